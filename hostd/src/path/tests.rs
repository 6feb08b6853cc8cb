use super::*;
use crate::verbs::PacketFate;
use std::collections::BTreeSet;

const FREE: PortSet = PortSet::NONE.with(PortId::FIRST);

const OBLIVIOUS: (Spraying, u8) = (Spraying::Oblivious, 50);
const RULES: Rules = Rules {
    avoidance: Span::from_millis(1),
    reroute_after: 10,
    held_back: Span::from_micros(10),
};

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

fn set(granularity: Granularity, paths: u16) -> PathSet {
    let agreed = MultipathConfig {
        paths,
        granularity,
        ..MultipathConfig::default()
    };
    PathSet::new(Some(&agreed), OBLIVIOUS, 42, RULES, 7)
}

/// HT-12, HT-34: each of 256 entropy values is used once before any repeats, each by one path, and
/// the paths share them out evenly.
#[test]
fn oblivious_spraying_uses_every_value_once_a_round() {
    let mut paths = set(Granularity::Packet, 16);
    for _ in 0..10 {
        let round: Vec<_> = (0..256).map(|_| paths.select(None, FREE, at(0))).collect();
        let ports: BTreeSet<_> = round
            .iter()
            .map(|choice| paths.entropy_of(choice).port)
            .collect();
        assert_eq!(ports.len(), 256);
        assert!(round.iter().all(|it| it.entropy % 16 == it.path));
        for path in 0..16 {
            assert_eq!(round.iter().filter(|it| it.path == path).count(), 16);
        }
    }
    let mut alone = set(Granularity::Packet, 1);
    assert!((0..40).all(|_| alone.select(None, FREE, at(0)).entropy == 0));
}

/// HT-31: one path per flow, and it changes only when it cannot be used; S says so.
#[test]
fn a_flow_stays_on_its_path() {
    let mut paths = set(Granularity::Flow, 8);
    let first = paths.select(None, FREE, at(0));
    assert!(!first.switched && first.flowlet == 0);
    assert!(first.fresh, "the first packet is a probe");
    for micros in 0..100 {
        let choice = paths.select(None, FREE, at(micros * 1000));
        assert!(choice.path == first.path && !choice.switched && !choice.fresh);
    }
    let moved = paths.select(Some(first.path), FREE, at(200_000));
    assert!(moved.switched && moved.path != first.path);
}

/// HT-34: a flow leaves a path of whose packets half are marked, and says so by S; not the only
/// one, nor one of which the last hop is congested.
#[test]
fn a_flow_leaves_a_congested_path() {
    let marked = |path, now| Feedback {
        path,
        entropy: path,
        sent: now,
        round_trip: Some(Span::from_micros(10)),
        delay: None,
        fate: PacketFate::Delivered {
            newest_copy: true,
            marked: true,
        },
    };
    // Changes of path within 300 µs, when half of all packets come back with a mark.
    let changes = |paths: u16, before: &dyn Fn(&mut PathSet, u8)| {
        let mut paths = set(Granularity::Flow, paths);
        let first = paths.select(None, FREE, at(0)).path;
        let moved = (1..300).filter(|&micros| {
            before(&mut paths, first);
            let choice = paths.select(None, FREE, at(micros));
            paths.measured(choice.path, Span::from_micros(10), at(micros));
            if micros % 2 == 0 || choice.path != first {
                paths.on_feedback(&marked(choice.path, at(micros)), at(micros));
            }
            choice.switched
        });
        moved.collect::<Vec<_>>()
    };
    let moved = changes(4, &|_, _| ());
    let apart = moved.windows(2).all(|pair| pair[1] - pair[0] >= 100);
    assert!(moved.len() == 2 && apart, "{moved:?}");
    assert!(changes(1, &|_, _| ()).is_empty());
    assert!(changes(4, &|paths, _| paths.crowd(20)).is_empty());
    assert!(changes(4, &|paths, first| paths.located(first, true)).is_empty());
}

/// Round trips of `took` µs each on the path of a flow, one packet at a time; the path that is to
/// be probed after each.
fn round_trips(paths: &mut PathSet, took: u64, from: u64, count: u64) -> Vec<Option<u8>> {
    let trips = (0..count).map(|trip| {
        for packet in 0..8 {
            let now = at(from + trip * took + packet * took / 8);
            let choice = paths.select(None, FREE, now);
            let round_trip = Some(Span::from_micros(took));
            let feedback = Feedback {
                path: choice.path,
                entropy: choice.entropy,
                sent: now,
                round_trip,
                delay: round_trip,
                fate: PacketFate::Delivered {
                    newest_copy: true,
                    marked: false,
                },
            };
            paths.measured(choice.path, Span::from_micros(took), now);
            paths.on_feedback(&feedback, now);
        }
        paths.take_doubt()
    });
    trips.collect()
}

/// HT-31: a flow has other paths probed when its own is slow, each once as long as the answer is
/// known; it goes to the one that is better, does not come back, and looks around now and then.
#[test]
fn a_flow_leaves_a_slow_path() {
    let mut paths = set(Granularity::Flow, 4);
    let first = paths.select(None, FREE, at(0)).path;
    let looks = round_trips(&mut paths, 20, 1_000, 40);
    let looks = looks.iter().flatten().count();
    assert!((3..=5).contains(&looks), "{looks} looks in 40 round trips");
    let others: Vec<u8> = (0..4).filter(|id| *id != first).collect();
    for other in &others {
        paths.probed(*other, Span::from_micros(150), Psn::default(), at(1_800));
    }
    let slow = round_trips(&mut paths, 200, 2_000, 10);
    assert!(slow.iter().all(Option::is_none), "all are known: {slow:?}");
    assert_eq!(paths.select(None, FREE, at(4_000)).path, first);
    // What is known is old after a hundred round trips.
    let slow = round_trips(&mut paths, 200, 17_000, 1);
    let probed = slow[0].expect("one is probed");
    assert!(others.contains(&probed));
    paths.probed(probed, Span::from_micros(20), Psn::default(), at(17_300));
    round_trips(&mut paths, 200, 17_200, 2);
    let moved = paths.select(None, FREE, at(17_700));
    assert_eq!(moved.path, probed);
    let later = round_trips(&mut paths, 30, 17_800, 300);
    assert!(!later.contains(&Some(first)), "that is known to be slow");
    assert_eq!(paths.select(None, FREE, at(30_000)).path, probed);
    let mut alone = set(Granularity::Flow, 1);
    assert_eq!(round_trips(&mut alone, 200, 0, 40), [None; 40]);
    let never = Rules {
        reroute_after: 0,
        ..RULES
    };
    let agreed = MultipathConfig {
        paths: 4,
        granularity: Granularity::Flow,
        ..MultipathConfig::default()
    };
    let mut never = PathSet::new(Some(&agreed), OBLIVIOUS, 42, never, 7);
    assert_eq!(round_trips(&mut never, 200, 0, 40), [None; 40]);
}

/// HT-31, HT-11: a pause ends a flowlet; its first packet has F, and S if the path is another.
#[test]
fn a_pause_ends_a_flowlet() {
    let mut paths = set(Granularity::Flowlet, 8);
    let first = paths.select(None, FREE, at(0));
    assert!(first.boundary && !first.switched && first.flowlet == 1);
    let second = paths.select(None, FREE, at(400));
    assert!(!second.boundary && second.path == first.path && second.flowlet == 1);
    let third = paths.select(None, FREE, at(1_000));
    assert!(third.boundary && third.flowlet == 2);
    assert_eq!(third.switched, third.path != first.path);
}

/// HT-31: flowlets prefer paths that are fast, as long as that is known; then they try the others.
#[test]
fn flowlets_take_fast_paths() {
    let mut paths = set(Granularity::Flowlet, 4);
    let shares = |paths: &mut PathSet, from: u64| {
        let mut counts = [0; 4];
        for turn in 0..400 {
            let path = paths.select(None, FREE, at(from + 501 * turn)).path;
            counts[usize::from(path)] += 1;
        }
        counts
    };
    assert_eq!(shares(&mut paths, 0), [100; 4]);
    let from = 10_000_000;
    for path in 0..4 {
        let delay = [10_000, 10_500, 20_000, 20_000][usize::from(path)];
        paths.measured(path, Span::from_micros(delay), at(from));
    }
    let [one, other, third, fourth] = shares(&mut paths, from);
    assert!(
        third + fourth < 130 && one + other > 270,
        "{third} {fourth}"
    );
    // The two fast ones were known for a second, the others for two.
    assert_eq!(shares(&mut paths, from + 2_000_000), [100; 4]);
}

/// HT-24: a path on which packets vanish carries none for a while, then one, with another entropy.
#[test]
fn packets_leave_a_path_that_leads_nowhere() {
    let mut paths = set(Granularity::Flow, 4);
    let first = paths.select(None, FREE, at(0)).path;
    let old = paths.entropy(first);
    for n in 0..4 {
        let packet = LostPacket {
            path: first,
            sent: at(n),
        };
        paths.lost(packet, at(100));
    }
    assert!(paths.statistics()[usize::from(first)].avoided);
    assert!((0..40).all(|_| paths.select(None, FREE, at(200)).path != first));
    assert!(!paths.statistics()[usize::from(first)].avoided || paths.entropy(first) == old);
    paths.select(None, FREE, at(1_200));
    assert!(!paths.statistics()[usize::from(first)].avoided);
    assert_ne!(paths.entropy(first), old);
    let again = LostPacket {
        path: first,
        sent: at(1_200),
    };
    paths.lost(again, at(1_300));
    paths.select(None, FREE, at(3_200));
    assert!(paths.statistics()[usize::from(first)].avoided);
    paths.acknowledged(first, at(1_250));
    assert!(!paths.statistics()[usize::from(first)].avoided);
}

/// HT-36: loss alone, with packets coming through between, never takes a path out; that of sprayed
/// packets never does.
#[test]
fn loss_alone_is_no_reason() {
    let mut paths = set(Granularity::Flow, 2);
    for n in 0..1_000 {
        let sent = at(n);
        if n % 3 == 0 {
            paths.acknowledged(0, sent);
        } else {
            paths.lost(LostPacket { path: 0, sent }, at(n + 50));
        }
    }
    assert!(!paths.statistics()[0].avoided);
    let mut sprayed = set(Granularity::Packet, 2);
    for n in 0..100 {
        let sent = at(n);
        sprayed.lost(LostPacket { path: 0, sent }, at(n + 50));
    }
    assert!(!sprayed.statistics()[0].avoided && sprayed.statistics()[0].lost == 100);
}

/// HT-24: when every path is suspect they are used all the same: the queue pair lives on.
#[test]
fn there_is_always_a_path() {
    let mut paths = set(Granularity::Flow, 3);
    for path in 0..3 {
        for n in 0..4 {
            paths.lost(LostPacket { path, sent: at(n) }, at(10));
        }
    }
    for _ in 0..9 {
        let path = paths.select(None, FREE, at(20)).path;
        assert!(path < 3);
    }
}

/// HT-42: the copy of a lost packet has another entropy value.
#[test]
fn a_retransmission_goes_elsewhere() {
    let mut paths = set(Granularity::Packet, 2);
    assert!((0..600).all(|_| paths.select(Some(1), FREE, at(0)).entropy != 1));
    let mut flow = set(Granularity::Flow, 2);
    assert!((0..20).all(|_| flow.select(Some(1), FREE, at(0)).path == 0));
    let mut alone = PathSet::new(None, OBLIVIOUS, 1, RULES, 1);
    assert_eq!(alone.select(Some(0), FREE, at(0)).path, 0);
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
        .map(|path| path.delay_above_best.expect("measured").nanos() >> 5)
        .collect();
    assert_eq!(above, [10, 0, 14]);
}
