//! Telemetry: tags of data packets, and what acknowledgements say of the worst link.

use crate::network::Network;
use common::time::Span;
use common::wire::int::TPID;
use hostd::stats::{PathStatistics, QueuePairCounters};
use hostd::verbs::{Congestion, EngineConfig, IntTerms, MultipathConfig, Status};

/// Bytes of a message: some hundred packets.
const LEN: u32 = 500_000;

fn config(every: u32) -> EngineConfig {
    EngineConfig {
        int: Some(IntTerms { tpid: TPID, every }),
        base_rtt: Span::from_micros(50),
        congestion: Congestion::Hpcc,
        ..EngineConfig::default()
    }
}

fn offer(telemetry: bool) -> Option<MultipathConfig> {
    Some(MultipathConfig {
        paths: 4,
        telemetry,
        ..MultipathConfig::default()
    })
}

/// Sends messages from host 0 to host 1, and returns what became of packets and paths.
fn send(network: &mut Network, qpns: [u32; 2]) -> (QueuePairCounters, Vec<PathStatistics>) {
    const COUNT: usize = 8;
    let done = network.hosts[0].completions.len();
    for number in 0..COUNT {
        network.hosts[1].receive_into(qpns[1], number as u64, 0, LEN);
        let request = network.hosts[0].send(number as u64, 0, LEN);
        let engine = &mut network.hosts[0].engine;
        engine.post_send(qpns[0], request).expect("room");
    }
    let all = |network: &mut Network| network.hosts[0].completions.len() == done + COUNT;
    assert!(network.run(Span::from_secs(2), all));
    let ends = &network.hosts[0].completions[done..];
    assert!(ends.iter().all(|end| end.status == Status::Success));
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
    (stands.counters, engine.path_statistics(qpns[0]))
}

/// SW-52, CC-3: every packet has a tag, and what follows from what switches wrote in it is known
/// for each path; HPCC goes by it.
#[test]
fn what_switches_write_comes_back() {
    let mut network = Network::new(1, [config(1), config(1)]);
    let qpns = network.connected(offer(true));
    network.impairment.queue = Some(30_000);
    let (counters, paths) = send(&mut network, qpns);
    assert_eq!(counters.tx_tags, counters.tx_packets);
    assert!(counters.rx_signals > 0);
    assert_eq!(counters.rx_bad_signals, 0);
    assert_eq!(paths.len(), 4);
    for path in paths {
        let load = path.load.expect("it is known");
        assert_eq!((load.hop, load.is_cut), (1, false));
        // Of 10 Gb/s and 50 µs 30,000 bytes are half.
        assert!((29_000..=30_000).contains(&load.queue), "{load:?}");
        assert!((480..3_000).contains(&load.in_flight), "{load:?}");
        assert_eq!(load.speed / 10_000_000, 999);
    }
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
    assert_eq!((stands.congestion, stands.guided), ("hpcc", Some(true)));
    network.close();
}

/// SW-52: one in so many packets has a tag; without an agreement none has.
#[test]
fn one_in_so_many_packets_has_telemetry() {
    for (agreed, every) in [(true, 4), (false, 1)] {
        let mut network = Network::new(1, [config(every), config(every)]);
        let qpns = network.connected(offer(agreed));
        network.impairment.queue = Some(0);
        let (counters, paths) = send(&mut network, qpns);
        let expected = if agreed {
            counters.tx_packets.div_ceil(4)
        } else {
            0
        };
        assert_eq!(counters.tx_tags, expected);
        assert_eq!(counters.rx_signals > 0, agreed);
        assert!(paths.iter().all(|path| path.load.is_some() == agreed));
        network.close();
    }
}

/// SW-52, CC-3: a network that takes telemetry off is noticed, and HPCC goes by the round trip.
#[test]
fn a_network_that_strips_is_noticed() {
    let mut network = Network::new(1, [config(1), config(1)]);
    let qpns = network.connected(offer(true));
    network.impairment.strips = [true; 8];
    let (before, _) = send(&mut network, qpns);
    assert!(before.rx_unsigned > 0 && before.rx_signals == 0);
    let (after, paths) = send(&mut network, qpns);
    assert!(paths.iter().all(|path| path.load.is_none()));
    let tags = after.tx_tags - before.tx_tags;
    let packets = after.tx_packets - before.tx_packets;
    assert!(tags * 4 < packets, "{tags} of {packets}");
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
    assert_eq!(stands.guided, Some(false));
    network.close();
}

/// SW-52: Wireshark with the script that is shipped reads what acknowledgements say of the worst
/// link, and finds fault with a hop that there is not.
#[test]
fn wireshark_reads_what_is_told_of_links() {
    let mut network = Network::new(1, [config(1), config(1)]);
    let qpns = network.connected(offer(true));
    network.impairment.queue = Some(30_000);
    network.tap = Some(Vec::new());
    send(&mut network, qpns);
    let frames = network.tap.take().expect("a tap");
    network.close();
    let answers = frames
        .into_iter()
        .filter(|frame| frame[12] == 0x08 && frame[29] == 2);
    let mut answers: Vec<_> = answers.collect();
    // Ethernet, IPv4, UDP, BTH, MPEH, and what stands in front of the only block.
    let block = 14 + 20 + 8 + 12 + 8 + 8;
    let told = answers.iter().position(|frame| frame[block] == 0x81);
    let mut lie = answers[told.expect("one of them tells")].clone();
    lie[block] = 0x86;
    answers.push(lie);
    let fields = [
        "wrong",
        "ext.unknown",
        "utilisation.valid",
        "utilisation.path",
        "utilisation.hop",
        "utilisation.cut",
        "utilisation.in_flight",
        "utilisation.queue",
        "utilisation.speed",
    ];
    let mut lines = crate::wireshark::shown(&answers, &fields);
    assert_eq!(lines.len(), answers.len());
    let lie = lines.pop().expect("the last one");
    assert!(!lie[0].is_empty() && lie[4] == "6", "{lie:?}");
    let mut told = 0;
    for line in lines {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let [
            wrong,
            unknown,
            valid,
            path,
            hop,
            cut,
            in_flight,
            queue,
            speed,
        ] = line[..]
        else {
            panic!("{line:?}");
        };
        assert!(wrong.is_empty() && unknown.is_empty(), "{line:?}");
        if valid != "1" {
            // The first acknowledgements have nothing to tell of.
            continue;
        }
        told += 1;
        assert!(path.parse::<u8>().is_ok_and(|path| path < 4), "{line:?}");
        assert_eq!((hop, cut, speed), ("1", "0", "9994240"), "{line:?}");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        assert!((29_000..=30_000).contains(&number(queue)), "{line:?}");
        assert!((480..3_000).contains(&number(in_flight)), "{line:?}");
    }
    assert!(told > 20, "{told}");
}
