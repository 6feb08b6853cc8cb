//! What applications tell of their traffic, on the wire (HT-46).

use crate::changes::{agreed, busy, configs};
use crate::network::Network;
use common::time::Span;
use common::wire::roce::{BlockClass, DataFlags, Hint, Mpeh, TrafficPattern, TrafficPriority};
use hostd::verbs::{Granularity, MultipathConfig, Traffic};

/// DSCP and ECN, and the MPEH, of the data packets that host 0 sent while it was busy: Ethernet has
/// 14 bytes, IPv4 20, UDP 8, BTH 12.
fn sent(network: &mut Network, qpn: u32) -> Vec<(u8, Mpeh)> {
    network.tap = Some(Vec::new());
    busy(network, qpn, Span::from_millis(2), |_| false);
    let tapped = network.tap.take().expect("a tap");
    let data = tapped
        .iter()
        .filter(|frame| frame[29] == 1 && frame[42] != 0xd1);
    data.map(|frame| (frame[15], Mpeh::parse(&frame[54..]).expect("an MPEH")))
        .collect()
}

fn tell(network: &mut Network, qpn: u32, traffic: Traffic) {
    let engine = &mut network.hosts[0].engine;
    engine.describe_traffic(qpn, traffic).expect("it exists");
}

/// HT-46, HT-31: with granularity "flowlet" each block is a flowlet on another sub-path, with F and
/// S in its first packet; under many to one it stays on its sub-path. The Scheduling Tag says what
/// was told.
#[test]
fn blocks_become_flowlets() {
    let mut network = Network::new(21, configs());
    let multipath = MultipathConfig {
        paths: 4,
        flowlet_timeout: Span::from_millis(50),
        ..agreed(Granularity::Flowlet)
    };
    let [qpn, _] = network.connected(Some(multipath));
    let stands = network.hosts[0].engine.queue_pair_statistics(qpn);
    let mtu = u32::from(stands.expect("exists").path_mtu);
    let undescribed = sent(&mut network, qpn);
    let first = undescribed[0].1.path;
    assert!(undescribed.iter().all(|(_, mpeh)| mpeh.path == first));
    let movable = Hint {
        movable: true,
        ..Hint::default()
    };
    assert_eq!(Hint::of(undescribed[0].1.tag), movable);

    for pattern in [TrafficPattern::Pairs, TrafficPattern::ManyToOne] {
        let told = Traffic {
            block: 12 * mtu,
            pattern,
            priority: TrafficPriority::Low,
        };
        tell(&mut network, qpn, told);
        let packets = sent(&mut network, qpn);
        let expected = Hint {
            movable: true,
            priority: TrafficPriority::Low,
            pattern,
            blocks: BlockClass::of(u64::from(told.block)),
        };
        let said = |(_, mpeh): &(u8, Mpeh)| Hint::of(mpeh.tag) == expected;
        assert!(packets.iter().all(said));
        // The flowlet before the description may have been longer or shorter.
        let begins = |(_, mpeh): &(u8, Mpeh)| mpeh.has(DataFlags::FLOWLET_BOUNDARY);
        let from = packets.iter().position(begins).expect("a boundary");
        let same = |a: &(u8, Mpeh), b: &(u8, Mpeh)| a.1.flowlet == b.1.flowlet;
        let flowlets: Vec<_> = packets[from..].chunk_by(same).collect();
        assert!(flowlets.len() > 5, "{}", flowlets.len());
        for (flowlet, next) in flowlets.iter().zip(&flowlets[1..]) {
            assert_eq!(flowlet.len(), 12);
            let path = flowlet[0].1.path;
            assert!(flowlet.iter().all(|(_, mpeh)| mpeh.path == path));
            assert!(begins(&next[0]) && !next[1..].iter().any(begins));
            let moves = pattern == TrafficPattern::Pairs;
            // At the end of a round of paths the same one may come twice.
            let switched = next[0].1.has(DataFlags::PATH_SWITCH);
            assert_eq!(switched, next[0].1.path != path);
            assert!(moves || !switched);
        }
        let count = |path: &u8| flowlets.iter().any(|it| it[0].1.path == *path);
        let used = (0..4).filter(count).count();
        assert_eq!(
            used,
            if pattern == TrafficPattern::Pairs {
                4
            } else {
                1
            }
        );
    }
    network.close();
}

/// HT-46, HT-38: data packets have the class of the priority from the next one on, also of
/// connections that stand; sprayed ones tell switches to leave their way alone (SW-5).
#[test]
fn priorities_have_classes() {
    let configs = configs().map(|mut config| {
        (config.low_class, config.high_class) = (8 << 2 | 2, 34 << 2 | 2);
        config
    });
    let normal = configs[0].data_class;
    let mut network = Network::new(22, configs);
    let [qpn, _] = network.connected(Some(agreed(Granularity::Packet)));
    for (priority, class) in [
        (TrafficPriority::High, 34 << 2 | 2),
        (TrafficPriority::Low, 8 << 2 | 2),
        (TrafficPriority::Normal, normal),
    ] {
        let told = Traffic {
            priority,
            ..Traffic::default()
        };
        tell(&mut network, qpn, told);
        let packets = sent(&mut network, qpn);
        assert!(packets.len() > 20);
        assert!(packets.iter().all(|(found, _)| *found == class));
        let hint = Hint {
            priority,
            ..Hint::default()
        };
        let said = |(_, mpeh): &(u8, Mpeh)| Hint::of(mpeh.tag) == hint;
        assert!(packets.iter().all(said), "{priority:?}");
    }
    network.close();
}
