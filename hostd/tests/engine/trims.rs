//! Packets that switches trim, and forged ones that only look so.

use crate::network::{Network, trim};
use common::time::Span;
use hostd::verbs::{Congestion, DropReason, EngineConfig, MultipathConfig, SendOpcode, Status};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::collections::HashSet;

fn configs(congestion: Congestion) -> [EngineConfig; 2] {
    let config = EngineConfig {
        congestion,
        // No time-out and no probe may take the place of what is shown here.
        rto_min: Span::from_millis(400),
        ..EngineConfig::default()
    };
    [config.clone(), config]
}

/// Writes 64 KiB so often, one after the other; the time that it took.
fn writes(network: &mut Network, qpn: u32, count: u64) -> Span {
    let start = network.now;
    let rkey = network.hosts[1].keys.rkey;
    for number in 0..count {
        let mut write = network.hosts[0].send(number, 0, 65_536);
        write.opcode = SendOpcode::RdmaWrite;
        write.rkey = rkey;
        network.hosts[0].engine.post_send(qpn, write).expect("room");
        let done = network.run(Span::from_secs(1), |network| {
            network.hosts[0].completions.len() as u64 == number + 1
        });
        assert!(done, "write {number}");
        assert_eq!(
            network.hosts[0].completions.last().map(|it| it.status),
            Some(Status::Success)
        );
    }
    network.now.since(start)
}

/// HT-42, HT-43: a trimmed packet is answered at once and sent again, with each window and whether
/// it is the first or the last of its message: no time-out, no probe, and no wait for a tolerance.
#[test]
fn trimmed_packets_come_again_at_once() {
    for congestion in [Congestion::Fixed, Congestion::Nscc] {
        let mut network = Network::new(31, configs(congestion));
        let bytes = network.fill(0);
        let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
        let whole = writes(&mut network, sender, 20);
        network.hosts[0].completions.clear();
        network.impairment.trims = 200;
        let trimmed = writes(&mut network, sender, 20);
        let sent = network.hosts[0].engine.queue_pair_statistics(sender);
        let sent = sent.expect("exists").counters;
        let engine = &network.hosts[1].engine;
        let received = engine.queue_pair_statistics(receiver).expect("exists");
        let dropped = engine.statistics().drops.get(DropReason::Trimmed);
        println!("{whole} and {trimmed}, {sent:#?}");
        assert!(dropped > 200, "{dropped} trimmed");
        assert_eq!(received.counters.trimmed, dropped);
        assert_eq!(sent.rx_trims, dropped, "each is reported");
        assert_eq!(sent.retransmits, dropped, "and sent again once");
        assert_eq!(sent.timeouts + sent.tail_probes, 0);
        assert_eq!(received.counters.duplicates, 0, "nothing was spurious");
        // 1 in 5 lost, again and again: about two more round trips for each message. Congestion
        // control slows down besides, as it should when so much is trimmed.
        let most = whole.times(if congestion == Congestion::Fixed {
            6
        } else {
            30
        });
        assert!(trimmed < most, "{trimmed}, {whole} without trims");
        let memory = network.hosts[1].memory.to_vec();
        assert_eq!(memory[..65_536], bytes[..65_536]);
        network.close();
    }
}

/// HT-38: data has the code point of trimmable packets, what is sent again that of trimmable
/// retransmissions, and acknowledgements and connection set-up that of control, each packet.
#[test]
fn classes_have_code_points() {
    // The network of these tests trims what has this one.
    const DATA: u8 = 26 << 2 | 2;
    const AGAIN: u8 = 10 << 2 | 2;
    const CONTROL: u8 = 48 << 2;
    let configs = configs(Congestion::Fixed).map(|mut config| {
        (config.data_class, config.control_class) = (DATA, CONTROL);
        (config.low_class, config.high_class) = (DATA, DATA);
        config.again_class = Some(AGAIN);
        config
    });
    let mut network = Network::new(35, configs);
    network.tap = Some(Vec::new());
    let [sender, _] = network.connected(Some(MultipathConfig::default()));
    network.impairment.trims = 100;
    writes(&mut network, sender, 10);
    let tapped = network.tap.take().expect("a tap");
    let (mut left, mut again) = (HashSet::new(), 0);
    for frame in &tapped {
        // IPv4 behind 14 bytes, BTH behind 42: operation, and the number of the packet.
        let (class, operation) = (frame[15], frame[42]);
        let number = [frame[51], frame[52], frame[53]];
        let expected = match operation {
            0xd1 | 0x64 => CONTROL,
            _ if left.insert(number) => DATA,
            _ => AGAIN,
        };
        again += usize::from(expected == AGAIN);
        assert_eq!(class, expected, "{operation:#x} {number:?}");
    }
    let sent = network.hosts[0].engine.queue_pair_statistics(sender);
    let retransmits = sent.expect("exists").counters.retransmits;
    assert!(again > 5 && again as u64 == retransmits, "{again}");
    network.close();
}

/// HT-42: a peer that does not understand marks is told nothing: its time-outs repair what is lost.
#[test]
fn peers_without_marks_are_not_told() {
    let mut network = Network::new(32, configs(Congestion::Fixed));
    let agreed = MultipathConfig {
        marks: false,
        ..MultipathConfig::default()
    };
    let [sender, _] = network.connected(Some(agreed));
    network.impairment.trims = 20;
    network.impairment.marks = 500;
    writes(&mut network, sender, 5);
    let engine = &network.hosts[1].engine;
    let drops = &engine.statistics().drops;
    assert_eq!(drops.get(DropReason::Trimmed), 0);
    assert!(drops.get(DropReason::BadIcrc) > 0, "they are bad packets");
    network.close();
}

/// HT-42: 10,000 forged trims of random numbers, paths and queue pairs cost no more than a
/// retransmission each; data and neighbours are unharmed.
#[test]
fn forged_trims_cost_little() {
    let mut network = Network::new(33, configs(Congestion::Nscc));
    let bytes = network.fill(0);
    network.tap = Some(Vec::new());
    let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
    writes(&mut network, sender, 1);
    let tapped = network.tap.take().expect("a tap");
    let long = tapped.into_iter().find(|frame| frame.len() > 1_000);
    let model = long.expect("a data packet");
    let mut random = Pcg64Mcg::new(33);
    network.hosts[0].completions.clear();
    let rkey = network.hosts[1].keys.rkey;
    let (mut posted, mut forged) = (0, 0);
    let done = network.run(Span::from_secs(5), |network| {
        while posted < 200 && posted < network.hosts[0].completions.len() as u64 + 4 {
            let mut write = network.hosts[0].send(posted, 0, 65_536);
            write.opcode = SendOpcode::RdmaWrite;
            write.rkey = rkey;
            network.hosts[0]
                .engine
                .post_send(sender, write)
                .expect("room");
            posted += 1;
        }
        for _ in 0..20 {
            let mut frame = model.clone();
            trim(&mut frame);
            // BTH: destination queue pair and PSN; MPEH: the path.
            let draw = random.next_u64().to_be_bytes();
            match draw[0] % 4 {
                0 => frame[54..75].fill_with(|| (random.next_u64() & 0xff) as u8),
                1 => frame[47..50].copy_from_slice(&draw[1..4]),
                _ => frame[51] = draw[1],
            }
            // The newest of what is under way is the likeliest to be hit.
            frame[52..54].copy_from_slice(&draw[4..6]);
            network.inject(1, &frame);
            forged += 1;
        }
        network.hosts[0].completions.len() == 200
    });
    assert!(done && forged >= 10_000, "{forged} forged");
    let sent = network.hosts[0].engine.queue_pair_statistics(sender);
    let sent = sent.expect("exists").counters;
    let trims = &network.hosts[1].engine.statistics().drops;
    println!("{forged} forged: {trims:?}, {sent:#?}");
    assert!(
        sent.retransmits <= forged,
        "{} sent again",
        sent.retransmits
    );
    assert_eq!(sent.timeouts, 0);
    let received = network.hosts[1].engine.queue_pair_statistics(receiver);
    assert_eq!(received.expect("exists").counters.rx_bytes, 201 * 65_536);
    let memory = network.hosts[1].memory.to_vec();
    assert_eq!(memory[..65_536], bytes[..65_536]);
    network.close();
}
