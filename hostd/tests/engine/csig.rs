//! Congestion signals: tags of data packets, and what acknowledgements say of them.

use crate::connection::connect;
use crate::network::Network;
use common::csig::{Bandwidth, Delay, Share, scales};
use common::time::Span;
use common::wire::csig::{Form, Signal, Tpids};
use hostd::stats::{PathStatistics, QueuePairCounters};
use hostd::verbs::{
    Congestion, DropReason, EngineConfig, Granularity, IntTerms, MultipathConfig, Signalling,
    Status, Untagged,
};
use std::sync::Arc;

/// Bytes of a message: some hundred packets.
const LEN: u32 = 500_000;

fn config(form: Form, every: u32) -> EngineConfig {
    let terms = Signalling {
        tpids: Tpids::default(),
        form,
        every,
        signals: vec![Signal::AvailableShare, Signal::Delay],
        scales: scales(&Bandwidth::default(), &Share::default(), &Delay::default()),
        host_locators: vec![9],
    };
    EngineConfig {
        csig: Some(Arc::new(terms)),
        ..EngineConfig::default()
    }
}

fn offer(signals: bool) -> Option<MultipathConfig> {
    Some(MultipathConfig {
        signals,
        ..MultipathConfig::default()
    })
}

fn counters(network: &Network, qpn: u32) -> QueuePairCounters {
    let statistics = network.hosts[0].engine.queue_pair_statistics(qpn);
    statistics.expect("exists").counters
}

/// Sends messages from host 0 to host 1, and returns what became of packets and paths.
fn send(
    network: &mut Network,
    qpns: [u32; 2],
    count: usize,
) -> (QueuePairCounters, Vec<PathStatistics>) {
    let done = network.hosts[0].completions.len();
    for number in 0..count {
        network.hosts[1].receive_into(qpns[1], number as u64, 0, LEN);
        let request = network.hosts[0].send(number as u64, 0, LEN);
        let engine = &mut network.hosts[0].engine;
        engine.post_send(qpns[0], request).expect("room");
    }
    let all = |network: &mut Network| network.hosts[0].completions.len() == done + count;
    assert!(network.run(Span::from_secs(1), all));
    let ends = &network.hosts[0].completions[done..];
    assert!(ends.iter().all(|end| end.status == Status::Success));
    let paths = network.hosts[0].engine.path_statistics(qpns[0]);
    (counters(network, qpns[0]), paths)
}

/// CS-8, CS-10: every packet asks, signals take turns, and what a switch wrote is known for each
/// path, with the place of the bottleneck, in both forms and over both versions of IP.
#[test]
fn what_switches_write_comes_back() {
    for (form, value, wanted) in [
        (Form::Compact, 3, [20_000, 3_000]),
        (Form::Expanded, 25_000, [25_000, 3_200_000]),
    ] {
        for v6 in [false, true] {
            let mut network = Network::over(1, [config(form, 1), config(form, 1)], v6);
            let qpns = network.connected(offer(true));
            network.impairment.signs = Some((value, 9));
            let (counters, paths) = send(&mut network, qpns, 4);
            assert_eq!(counters.tx_tags, counters.tx_packets);
            assert!(counters.rx_signals > 0);
            assert_eq!((counters.rx_unsigned, counters.rx_bad_signals), (0, 0));
            assert_eq!(paths.len(), 8);
            for path in paths {
                let known: Vec<_> = path.signals.iter().flatten().collect();
                let told = known.iter().map(|known| (known.signal, known.last));
                let told: Vec<_> = told.collect();
                let [share, delay] = wanted;
                let all = [(Signal::AvailableShare, share), (Signal::Delay, delay)];
                assert_eq!(told, all, "path {}", path.path);
                assert!(
                    known
                        .iter()
                        .all(|known| known.is_last_hop && known.locator == 9)
                );
                assert!(!path.stripped);
            }
            network.close();
        }
    }
}

/// CS-8: one in so many packets has a tag.
#[test]
fn one_in_so_many_packets_is_tagged() {
    let mut network = Network::new(1, [config(Form::Compact, 4), config(Form::Compact, 4)]);
    let qpns = network.connected(offer(true));
    let (counters, paths) = send(&mut network, qpns, 2);
    assert_eq!(counters.tx_tags, counters.tx_packets.div_ceil(4));
    assert!(counters.rx_signals > 0);
    let neutral = paths.iter().flat_map(|path| path.signals.iter().flatten());
    assert!(neutral.clone().count() > 0 && neutral.clone().all(|it| it.is_neutral));
    network.close();
}

/// CS-9: a network that takes tags off costs nothing but them: it is noticed, and they are left
/// out.
#[test]
fn a_network_that_strips_is_noticed() {
    let mut network = Network::new(1, [config(Form::Compact, 1), config(Form::Compact, 1)]);
    let qpns = network.connected(offer(true));
    network.impairment.strips = [true; 8];
    let (before, _) = send(&mut network, qpns, 8);
    assert!(before.rx_unsigned > 0 && before.rx_signals == 0);
    let (after, paths) = send(&mut network, qpns, 8);
    assert!(paths.iter().all(|path| path.stripped));
    let tags = after.tx_tags - before.tx_tags;
    let packets = after.tx_packets - before.tx_packets;
    assert!(tags * 4 < packets, "{tags} of {packets}");
    // It knows them again.
    network.impairment.strips = [false; 8];
    network.pass(Span::from_secs(2));
    let (now, paths) = send(&mut network, qpns, 8);
    assert!(now.rx_signals > 0 && paths.iter().all(|path| !path.stripped));
    network.close();
}

/// CS-8, CS-9: one path of eight that takes tags off is noticed by itself, though each
/// acknowledgement could tell of packets of others that have them; the others keep theirs.
#[test]
fn one_path_that_strips_is_noticed() {
    for (every, count) in [(1, 16), (4, 64)] {
        let config = config(Form::Compact, every);
        let mut network = Network::new(1, [config.clone(), config]);
        let qpns = network.connected(offer(true));
        network.impairment.signs = Some((3, 9));
        network.impairment.strips[5] = true;
        let (counters, paths) = send(&mut network, qpns, count);
        assert!(counters.rx_unsigned > 0 && counters.rx_signals > 0);
        for path in paths {
            let known = path.signals.iter().flatten().count();
            let expected = if path.path == 5 {
                (0, true)
            } else {
                (2, false)
            };
            assert_eq!((known, path.stripped), expected, "path {}", path.path);
        }
        network.close();
    }
}

/// HT-34, CS-8: a flow whose packets all come back with marks looks for another path when the
/// reflections name a device of the fabric, and stays when they name the last hop: an incast. What
/// they name counts, not that there are any.
#[test]
fn a_flow_leaves_a_path_by_the_place_of_its_bottleneck() {
    let changes = |locator| {
        let config = config(Form::Compact, 1);
        let mut network = Network::new(1, [config.clone(), config]);
        let flow = MultipathConfig {
            granularity: Granularity::Flow,
            signals: true,
            ..MultipathConfig::default()
        };
        let qpns = network.connected(Some(flow));
        network.impairment.marks = 1000;
        network.impairment.signs = Some((3, locator));
        let (counters, paths) = send(&mut network, qpns, 16);
        assert!(counters.rx_signals > 100);
        network.close();
        let used = paths.iter().filter(|path| path.tx_packets > 0);
        used.count()
    };
    assert_eq!(changes(9), 1, "the last hop");
    assert!(changes(1) > 1, "a device of the fabric");
}

/// CC-2, CC-5, CS-9: congestion control goes by signals while they come, and by the round trip
/// where the network takes tags off or the peer does not know them; operators see which.
#[test]
fn congestion_control_does_without_signals() {
    let config = |congestion| EngineConfig {
        congestion,
        ..config(Form::Compact, 1)
    };
    let algorithms = [
        (Congestion::SwiftCsig, "swift-csig"),
        (Congestion::Poseidon, "poseidon"),
    ];
    let cases = [(true, false), (true, true), (false, false)];
    for ((congestion, name), (signals, strips)) in algorithms
        .iter()
        .flat_map(|it| cases.map(|case| (*it, case)))
    {
        let mut network = Network::new(1, [config(congestion), config(congestion)]);
        let qpns = network.connected(offer(signals));
        network.impairment.signs = Some((3, 9));
        network.impairment.strips = [strips; 8];
        send(&mut network, qpns, 4);
        let engine = &network.hosts[0].engine;
        let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
        assert_eq!(stands.congestion, name);
        let guided = signals && !strips;
        assert_eq!(stands.guided, Some(guided), "{signals} {strips}");
        network.close();
    }
    let mut network = Network::new(1, [EngineConfig::default(), EngineConfig::default()]);
    let qpns = network.connected(offer(false));
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
    assert_eq!((stands.congestion, stands.guided), ("auto", None));
    network.close();
}

/// CS-9: without an agreement no packet has a tag, and no acknowledgement speaks of any.
#[test]
fn both_sides_have_to_agree() {
    let mut network = Network::new(1, [config(Form::Compact, 1), config(Form::Compact, 1)]);
    let qpns = network.connected(offer(false));
    let (counters, paths) = send(&mut network, qpns, 1);
    assert_eq!((counters.tx_tags, counters.rx_signals), (0, 0));
    assert_eq!(counters.rx_unsigned, 0);
    assert!(paths.iter().all(|path| path.signals == [None; 3]));
    network.close();
}

/// A host that knows tags by these TPIDs, of CSIG if there are any, else of INT.
pub(crate) fn knowing(tpids: Tpids) -> EngineConfig {
    let plain = config(Form::Compact, 1);
    let terms = plain.csig.as_deref().filter(|_| tpids.compact != 0);
    let csig = terms.map(|terms| Signalling {
        tpids: Tpids { int: 0, ..tpids },
        ..terms.clone()
    });
    let multipath = MultipathConfig {
        signals: csig.is_some(),
        telemetry: csig.is_none(),
        ..MultipathConfig::default()
    };
    EngineConfig {
        int: csig.is_none().then_some(IntTerms {
            tpid: tpids.int,
            every: 1,
        }),
        csig: csig.map(Arc::new),
        base_rtt: Span::from_micros(50),
        multipath: Some(multipath),
        ..plain
    }
}

/// CS-8, SW-52: hosts that know tags by other TPIDs carry data without them, and each says which
/// TPIDs those are: every tagged packet would be lost as one of an unknown protocol. Those with the
/// same TPIDs have tags, whichever these are.
#[test]
fn hosts_with_other_tpids_do_without_tags() {
    let csig = |compact| Tpids {
        compact,
        expanded: compact + 1,
        int: 0,
    };
    let int = |int| Tpids { int, ..Tpids::NONE };
    for [one, other] in [
        [csig(0x9900), csig(0x88b5)],
        [csig(0x88b5), csig(0x9900)],
        [csig(0x88b5), csig(0x88b5)],
        [int(0x9902), int(0x88b5)],
        [int(0x88b5), int(0x88b7)],
        [int(0x88b5), int(0x88b5)],
    ] {
        let mut network = Network::new(1, [knowing(one), knowing(other)]);
        let (qpns, _) = connect(&mut network);
        let (counters, _) = send(&mut network, qpns, 2);
        let is_same = one == other;
        assert_eq!(counters.tx_tags > 0, is_same, "{one:?} {other:?}");
        for (host, (own, peer)) in [(one, other), (other, one)].into_iter().enumerate() {
            let engine = &network.hosts[host].engine;
            let stands = engine.queue_pair_statistics(qpns[host]).expect("exists");
            let peer = Some(peer);
            let untagged = (!is_same).then_some(Untagged { own, peer });
            assert_eq!(stands.untagged, untagged, "host {host}");
            let counted = engine.statistics().untagged_unlike;
            assert_eq!(counted, u64::from(!is_same), "host {host}");
            let lost = engine.statistics().drops.get(DropReason::NotRoce);
            assert_eq!(lost, 0, "host {host}");
        }
        network.close();
    }
}

/// CS-8: Wireshark with the script that is shipped reads what acknowledgements say of tags.
#[test]
fn wireshark_reads_reflections() {
    let mut network = Network::new(1, [config(Form::Expanded, 1), config(Form::Expanded, 1)]);
    let qpns = network.connected(offer(true));
    network.impairment.signs = Some((0x1_2345, 0xabc));
    network.tap = Some(Vec::new());
    send(&mut network, qpns, 1);
    let frames = network.tap.take().expect("a tap");
    let answers = frames
        .into_iter()
        .filter(|frame| frame[12] == 0x08 && frame[29] == 2);
    let answers: Vec<_> = answers.collect();
    network.close();
    let fields = [
        "wrong",
        "reflection.path",
        "reflection.signal",
        "reflection.value",
        "reflection.locator",
    ];
    let told = crate::wireshark::shown(&answers, &fields);
    assert!(told.len() == answers.len() && told.len() > 20);
    let mut signals = [0; 3];
    for line in told {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let [wrong, path, signal, value, locator] = line[..] else {
            panic!("{line:?}");
        };
        assert!(
            wrong.is_empty() && path.parse::<u8>().is_ok_and(|path| path < 8),
            "{line:?}"
        );
        assert_eq!((value, locator), ("74565", "0x0abc"), "{line:?}");
        signals[signal.parse::<usize>().expect("a number")] += 1;
    }
    assert!(
        signals[0] == 0 && signals[1] > 10 && signals[2] > 10,
        "{signals:?}"
    );
}
