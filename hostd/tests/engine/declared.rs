//! What `docs/transport.md` declares of time: how soon congestion is noticed, and what paths that
//! differ cost.

use crate::network::Network;
use common::time::Span;
use hostd::verbs::{Congestion, EngineConfig, MultipathConfig, SendOpcode, Status};

/// Round trip of the idle network of these tests.
const ROUND_TRIP: Span = Span::from_micros(40);

fn network(seed: u64, congestion: Congestion) -> Network {
    let config = EngineConfig {
        congestion,
        rto_min: Span::from_millis(50),
        ..EngineConfig::default()
    };
    Network::new(seed, [config.clone(), config])
}

/// A write of `len` bytes, and the time that it takes.
fn write(network: &mut Network, qpn: u32, len: u32) -> Span {
    let start = network.now;
    network.hosts[0].completions.clear();
    post(network, qpn, 0, len);
    let done = network.run(Span::from_secs(1), |network| {
        !network.hosts[0].completions.is_empty()
    });
    assert!(done && network.hosts[0].completions[0].status == Status::Success);
    network.now.since(start)
}

fn post(network: &mut Network, qpn: u32, number: u64, len: u32) {
    let mut write = network.hosts[0].send(number, 0, len);
    write.opcode = SendOpcode::RdmaWrite;
    write.rkey = network.hosts[1].keys.rkey;
    let engine = &mut network.hosts[0].engine;
    engine.post_send(qpn, write).expect("room");
}

/// HT-62: paths that differ by 10 round trips, within the tolerance: nothing is sent again, nothing
/// counts as lost. A gap is open for no longer than the difference, and a message takes longer by
/// no more than that for its data and as much for the acknowledgement, and a fifth of both.
#[test]
fn paths_that_differ_add_their_difference() {
    let tolerant = MultipathConfig {
        reorder_packets: 512,
        ..MultipathConfig::default()
    };
    for seed in 1..=3 {
        let mut network = network(seed, Congestion::Fixed);
        let [sender, receiver] = network.connected(Some(tolerant));
        let alike: Vec<Span> = (0..20)
            .map(|_| write(&mut network, sender, 65_536))
            .collect();
        // Of four ways the last is late by three times this.
        network.impairment.skew = Span::from_nanos(ROUND_TRIP.nanos() * 10 / 3);
        let difference = network.impairment.skew.times(3);
        let skewed: Vec<Span> = (0..20)
            .map(|_| write(&mut network, sender, 65_536))
            .collect();
        let [sent, received] = [(0, sender), (1, receiver)].map(|(host, qpn): (usize, u32)| {
            let engine = &network.hosts[host].engine;
            engine.queue_pair_statistics(qpn).expect("exists").counters
        });
        let longest = |all: &[Span]| *all.iter().max().expect("some");
        let (before, after) = (longest(&alike), longest(&skewed));
        println!(
            "seed {seed}: {before}, {after} with a difference of {difference}; a gap was open for \
             {}, {} packets deep",
            received.reorder_span_max, received.reorder_depth_max
        );
        assert!(received.out_of_order > 20, "{received:?}");
        assert_eq!(sent.retransmits + sent.timeouts + received.duplicates, 0);
        // An acknowledgement may be as late as data.
        let most = before + difference.times(12).divided_by(5);
        assert!(after <= most, "{after}");
        assert!(received.reorder_span_max <= difference.times(6).divided_by(5));
        network.close();
    }
}

/// HT-63: a switch begins to mark, or to trim, in the middle of a transfer: the window of DCTCP is
/// narrower, or the first trimmed packet is on its way again, within a round trip and what an
/// acknowledgement may wait for other packets. (NSCC follows a mean of the delay, and takes longer
/// to act on marks.)
#[test]
fn congestion_is_noticed_within_a_round_trip() {
    for (congestion, trims) in [
        (Congestion::Dctcp, false),
        (Congestion::Fixed, true),
        (Congestion::Nscc, true),
    ] {
        let mut network = network(7, congestion);
        let [sender, _] = network.connected(Some(MultipathConfig::default()));
        for number in 0..16 {
            post(&mut network, sender, number, 1 << 20);
        }
        network.pass(Span::from_millis(2));
        let standing = |network: &Network| {
            let engine = &network.hosts[0].engine;
            engine.queue_pair_statistics(sender).expect("exists")
        };
        let before = standing(&network);
        let begun = network.now;
        if trims {
            network.impairment.trims = 1_000;
        } else {
            network.impairment.marks = 1_000;
        }
        let noticed = network.run(Span::from_millis(5), |network| {
            let now = standing(network);
            if trims {
                now.counters.retransmits > before.counters.retransmits
            } else {
                now.window < before.window
            }
        });
        let took = network.now.since(begun);
        println!("{congestion:?}, trims {trims}: {took}, a round trip takes {ROUND_TRIP}");
        assert!(noticed, "{congestion:?}: {:?}", standing(&network));
        let waits = EngineConfig::default().ack_delay;
        assert!(took <= ROUND_TRIP + waits, "{congestion:?}: {took}");
        network.impairment.trims = 0;
        network.impairment.marks = 0;
        network.pass(Span::from_millis(100));
        network.close();
    }
}
