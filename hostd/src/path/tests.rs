use super::*;
use std::collections::BTreeSet;

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

fn set(granularity: Granularity, paths: u16) -> PathSet {
    let agreed = MultipathConfig {
        paths,
        granularity,
        ..MultipathConfig::default()
    };
    PathSet::new(Some(&agreed), 42, Span::from_millis(1), 7)
}

/// HT-34: each path is used once before any repeats, and the order is drawn again.
#[test]
fn oblivious_spraying_uses_every_path_once_a_round() {
    let mut paths = set(Granularity::Packet, 16);
    let mut rounds = BTreeSet::new();
    for _ in 0..50 {
        let round: Vec<_> = (0..16).map(|_| paths.select(None, at(0)).path).collect();
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 16, "{round:?}");
        rounds.insert(round);
    }
    assert!(rounds.len() > 45, "{} orders of 50", rounds.len());
}

/// HT-31: one path per flow, and it changes only when it cannot be used; S says so.
#[test]
fn a_flow_stays_on_its_path() {
    let mut paths = set(Granularity::Flow, 8);
    let first = paths.select(None, at(0));
    assert!(!first.switched && first.flowlet == 0);
    assert!(first.fresh, "the first packet is a probe");
    for micros in 0..100 {
        let choice = paths.select(None, at(micros * 1000));
        assert!(choice.path == first.path && !choice.switched && !choice.fresh);
    }
    let moved = paths.select(Some(first.path), at(200_000));
    assert!(moved.switched && moved.path != first.path);
}

/// HT-31, HT-11: a pause ends a flowlet; its first packet has F, and S if the path is another.
#[test]
fn a_pause_ends_a_flowlet() {
    let mut paths = set(Granularity::Flowlet, 8);
    let first = paths.select(None, at(0));
    assert!(first.boundary && !first.switched && first.flowlet == 1);
    let second = paths.select(None, at(400));
    assert!(!second.boundary && second.path == first.path && second.flowlet == 1);
    let third = paths.select(None, at(1_000));
    assert!(third.boundary && third.flowlet == 2);
    assert_eq!(third.switched, third.path != first.path);
}

/// HT-24: a path on which packets vanish carries none for a while, then one, with another entropy.
#[test]
fn packets_leave_a_path_that_leads_nowhere() {
    let mut paths = set(Granularity::Packet, 4);
    let old = paths.entropy(2);
    for n in 0..4 {
        let packet = LostPacket {
            path: 2,
            sent: at(n),
        };
        paths.lost(packet, at(100));
    }
    assert!(paths.statistics()[2].avoided);
    assert!((0..40).all(|_| paths.select(None, at(200)).path != 2));
    let back = (0..8).any(|_| paths.select(None, at(1_200)).path == 2);
    assert!(back, "it is tried again");
    assert_ne!(paths.entropy(2), old);
    let again = LostPacket {
        path: 2,
        sent: at(1_200),
    };
    paths.lost(again, at(1_300));
    assert!((0..40).all(|_| paths.select(None, at(3_200)).path != 2));
    paths.acknowledged(2, at(1_250));
    assert!((0..8).any(|_| paths.select(None, at(3_200)).path == 2));
}

/// HT-36: loss alone, with packets coming through between, never takes a path out.
#[test]
fn loss_alone_is_no_reason() {
    let mut paths = set(Granularity::Packet, 2);
    for n in 0..1_000 {
        let sent = at(n);
        if n % 3 == 0 {
            paths.acknowledged(0, sent);
        } else {
            paths.lost(LostPacket { path: 0, sent }, at(n + 50));
        }
    }
    assert!(!paths.statistics()[0].avoided);
}

/// HT-24: when every path is suspect all are used: the queue pair lives on.
#[test]
fn there_is_always_a_path() {
    let mut paths = set(Granularity::Packet, 3);
    for path in 0..3 {
        for n in 0..4 {
            paths.lost(LostPacket { path, sent: at(n) }, at(10));
        }
    }
    let used: BTreeSet<_> = (0..9).map(|_| paths.select(None, at(20)).path).collect();
    assert_eq!(used.len(), 3);
}

/// HT-42: the copy of a lost packet takes another path.
#[test]
fn a_retransmission_goes_elsewhere() {
    let mut paths = set(Granularity::Packet, 2);
    assert!((0..20).all(|_| paths.select(Some(1), at(0)).path == 0));
    let mut alone = PathSet::new(None, 1, Span::ZERO, 1);
    assert_eq!(alone.select(Some(0), at(0)).path, 0);
}

/// HT-40: a Path ID that was not agreed on is refused.
#[test]
fn only_agreed_paths_are_received() {
    let mut paths = set(Granularity::Packet, 4);
    assert!(paths.received(3));
    assert!(!paths.received(4));
    assert_eq!(paths.statistics()[3].rx_packets, 1);
}

#[test]
fn one_way_delays_are_compared_across_their_wrap() {
    let mut paths = set(Granularity::Packet, 3);
    paths.one_way(0, 5);
    paths.one_way(1, 0xfffb);
    paths.one_way(2, 9);
    let above: Vec<_> = paths
        .statistics()
        .iter()
        .map(|path| path.delay_above_best.expect("measured").nanos() >> 8)
        .collect();
    assert_eq!(above, [10, 0, 14]);
}
