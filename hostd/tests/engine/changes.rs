//! Sub-paths and their use change while data flows (HT-21, HT-22, HT-24, HT-32).

use crate::network::Network;
use common::time::Span;
use common::wire::roce::PathIds;
use hostd::stats::PathStatistics;
use hostd::verbs::{
    ChangeRefused, ChangeStanding, DropReason, EngineConfig, Granularity, MultipathChange,
    MultipathConfig, MultipathState, PathStanding, SendOpcode, State, Status, Transition,
};

/// Bytes that are written, again and again.
const WRITTEN: usize = 1 << 20;

pub(crate) fn configs() -> [EngineConfig; 2] {
    let config = EngineConfig {
        rto_initial: Span::from_millis(5),
        rto_min: Span::from_millis(5),
        ..EngineConfig::default()
    };
    [config.clone(), config]
}

pub(crate) fn agreed(granularity: Granularity) -> MultipathConfig {
    MultipathConfig {
        granularity,
        ..MultipathConfig::default()
    }
}

fn ids(paths: &[u8]) -> PathIds {
    paths.iter().copied().collect()
}

fn change(add: &[u8], remove: &[u8]) -> MultipathChange {
    MultipathChange {
        add: ids(add),
        remove: ids(remove),
        ..MultipathChange::default()
    }
}

fn ask(network: &mut Network, host: usize, qpn: u32, change: &MultipathChange) {
    let asked = network.hosts[host].engine.change_multipath(qpn, change);
    asked.expect("possible");
}

fn state(network: &Network, host: usize, qpn: u32) -> MultipathState {
    let state = network.hosts[host].engine.multipath_state(qpn);
    state.expect("multipath")
}

fn paths(network: &Network, host: usize, qpn: u32) -> Vec<PathStatistics> {
    network.hosts[host].engine.path_statistics(qpn)
}

/// Packets that host 0 sent again.
fn retransmits(network: &Network, qpn: u32) -> u64 {
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpn).expect("exists");
    stands.counters.retransmits
}

/// Writes keep host 0 busy for `span`; what `look` says of each moment ends it earlier.
pub(crate) fn busy(
    network: &mut Network,
    qpn: u32,
    span: Span,
    mut look: impl FnMut(&Network) -> bool,
) {
    let rkey = network.hosts[1].keys.rkey;
    let len = 65_536;
    let mut posted = 0;
    let before = network.hosts[0].completions.len() as u64;
    network.run(span, |network| {
        let done = network.hosts[0].completions.len() as u64 - before;
        while posted < done + 4 {
            let place = posted * u64::from(len) % WRITTEN as u64;
            let mut write = network.hosts[0].send(posted, place, len);
            write.opcode = SendOpcode::RdmaWrite;
            write.rkey = rkey;
            write.remote_addr = place;
            if network.hosts[0].engine.post_send(qpn, write).is_err() {
                return true;
            }
            posted += 1;
        }
        look(network)
    });
}

/// Waits until all that was posted is done, and compares what was written.
fn finish(network: &mut Network, qpn: u32, bytes: &[u8]) {
    let seed = network.seed;
    let done = network.run(Span::from_secs(5), |network| {
        let engine = &network.hosts[0].engine;
        let stands = engine.queue_pair_statistics(qpn).expect("exists");
        stands.sends_outstanding == 0
    });
    assert!(done, "seed {seed}");
    let completions = &network.hosts[0].completions;
    assert!(completions.iter().all(|it| it.status == Status::Success));
    let mut written = vec![0; WRITTEN];
    use hostd::memory::RegionMemory;
    assert!(network.hosts[1].memory.copy_out(0, &mut written));
    assert!(written == bytes[..WRITTEN], "seed {seed}: bytes differ");
}

/// Two changes and two probes of each side have cost no packet: `begun` were sent again before.
fn undisturbed(network: &Network, qpns: [u32; 2], begun: u64) {
    for (host, begun) in [(0, begun), (1, 0)] {
        let engine = &network.hosts[host].engine;
        let stands = engine.queue_pair_statistics(qpns[host]).expect("exists");
        let counters = stands.counters;
        assert_eq!((counters.retransmits, counters.timeouts), (begun, 0));
        assert_eq!(counters.changes, 2);
        // A flow compares its path with others besides.
        assert!(counters.path_probes >= 2);
        assert_eq!(engine.statistics().drops.total(), 0);
    }
}

/// HT-21, HT-32, HT-30: while data flows, sub-paths are taken out and put in force again, by either
/// side. Both agree; no byte is lost and no packet is sent twice; a path that was taken out carries
/// nothing more and is released once its packets are acknowledged; one that comes back has another
/// entropy value, and carries data only when a probe has measured its round trip.
#[test]
fn paths_come_and_go_under_load() {
    for (seed, granularity) in [
        (1, Granularity::Packet),
        (2, Granularity::Flowlet),
        (3, Granularity::Flow),
    ] {
        let mut network = Network::new(seed, configs());
        network.impairment.skew = Span::from_micros(7);
        let bytes = network.fill(0);
        let qpns = network.connected(Some(agreed(granularity)));
        busy(&mut network, qpns[0], Span::from_millis(10), |_| false);
        // The first packets leave in one burst, in which some are overtaken by too many.
        let begun = retransmits(&network, qpns[0]);
        let first = paths(&network, 0, qpns[0]);
        ask(&mut network, 0, qpns[0], &change(&[], &[1, 2, 3, 4, 5, 6]));
        let mut retired = false;
        busy(&mut network, qpns[0], Span::from_millis(10), |network| {
            let standing = |path: &PathStatistics| path.standing == PathStanding::Retiring;
            retired |= paths(network, 0, qpns[0]).iter().any(standing);
            false
        });
        assert!(retired || granularity != Granularity::Packet, "in flight");
        for host in [0, 1] {
            let stands = state(&network, host, qpns[host]);
            assert_eq!(stands.in_force, ids(&[0, 7]), "{granularity:?}");
            assert!(!stands.pending && !stands.refused);
        }
        let without = paths(&network, 0, qpns[0]);
        assert!(
            without[1..7]
                .iter()
                .all(|it| it.standing == PathStanding::Unused)
        );
        busy(&mut network, qpns[0], Span::from_millis(10), |_| false);
        let later = paths(&network, 0, qpns[0]);
        for (before, after) in without.iter().zip(&later).take(7).skip(1) {
            assert_eq!(before.tx_packets, after.tx_packets, "{granularity:?}");
        }
        // The other side puts them in force again.
        ask(&mut network, 1, qpns[1], &change(&[3, 4], &[]));
        busy(&mut network, qpns[0], Span::from_millis(10), |network| {
            for (after, before) in paths(network, 0, qpns[0]).iter().zip(&later) {
                let unmeasured = after.standing == PathStanding::Unmeasured;
                let carried = after.tx_packets > before.tx_packets;
                assert!(!(unmeasured && carried), "before its probe");
                assert!(!carried || after.rtt.is_some(), "measured");
            }
            false
        });
        let again = paths(&network, 0, qpns[0]);
        for path in [3, 4] {
            assert_eq!(again[path].standing, PathStanding::Carrying);
            assert_ne!(again[path].entropy, first[path].entropy);
            let rtt = again[path].rtt.expect("a probe");
            assert!(
                rtt >= Span::from_micros(40) && rtt < Span::from_millis(2),
                "{rtt:?}"
            );
            let grew = again[path].tx_packets > later[path].tx_packets;
            assert!(grew || granularity != Granularity::Packet);
        }
        for host in [0, 1] {
            let stands = state(&network, host, qpns[host]);
            assert_eq!(stands.in_force, ids(&[0, 3, 4, 7]));
        }
        finish(&mut network, qpns[0], &bytes);
        undisturbed(&network, qpns, begun);
        network.close();
    }
}

/// HT-21: before a flow or a flowlet takes a second sub-path, a probe has measured that; data need
/// not wait on the first one. A sub-path that leads nowhere is never taken. Each sprayed packet is
/// a probe itself.
#[test]
fn sub_paths_are_measured_when_a_connection_begins() {
    use crate::connection::{config, connect};
    for granularity in [Granularity::Flow, Granularity::Flowlet, Granularity::Packet] {
        let config = EngineConfig {
            multipath: Some(agreed(granularity)),
            ..config(None)
        };
        let mut network = Network::new(9, [config.clone(), config]);
        network.impairment.black_holes = [false, true, false, true];
        let (qpns, _) = connect(&mut network);
        let probes = granularity != Granularity::Packet;
        // Nothing has come back to who was accepted.
        let begun = paths(&network, 1, qpns[1]);
        let waits = |path: &&PathStatistics| path.standing == PathStanding::Unmeasured;
        assert_eq!(
            begun.iter().filter(waits).count(),
            if probes { 7 } else { 0 }
        );
        network.pass(Span::from_millis(2));
        for (host, qpn) in (0..).zip(qpns) {
            let measured = paths(&network, host, qpn);
            let carrying = measured
                .iter()
                .filter(|it| it.standing == PathStanding::Carrying);
            let carrying = carrying.count();
            assert!(!probes || (1..8).contains(&carrying), "{carrying}");
            // The first one need not wait.
            let unmeasured = measured.iter().filter(|it| it.rtt.is_none());
            let carries = |it: &&PathStatistics| it.standing == PathStanding::Carrying;
            assert_eq!(
                unmeasured.filter(carries).count(),
                if probes { 1 } else { 8 }
            );
            let engine = &network.hosts[host].engine;
            let stands = engine.queue_pair_statistics(qpn).expect("exists");
            assert_eq!(stands.counters.path_probes >= 7, probes);
        }
        // Who cannot be measured yet is asked again.
        network.impairment.black_holes = [false; 4];
        network.pass(Span::from_secs(1));
        let all = paths(&network, 0, qpns[0]);
        assert!(
            all.iter().all(|it| it.standing == PathStanding::Carrying),
            "{all:?}"
        );
        network.close();
    }
}

/// HT-22, HT-32: the first packet of data on a path that came into force has flag S, and probes go
/// before it.
#[test]
fn the_first_packet_after_a_switch_says_so() {
    let mut network = Network::new(4, configs());
    let qpns = network.connected(Some(agreed(Granularity::Packet)));
    busy(&mut network, qpns[0], Span::from_millis(2), |_| false);
    ask(&mut network, 0, qpns[0], &change(&[], &[5]));
    busy(&mut network, qpns[0], Span::from_millis(2), |_| false);
    network.tap = Some(Vec::new());
    ask(&mut network, 0, qpns[0], &change(&[5], &[]));
    busy(&mut network, qpns[0], Span::from_millis(5), |_| false);
    let tapped = network.tap.take().expect("a tap");
    // BTH at 42, MPEH behind it: Path ID, flags; the extension begins at 62.
    let on_path: Vec<(u8, bool)> = tapped
        .iter()
        .filter(|frame| frame[29] == 1 && frame[42] != 0xd1 && frame[54] == 5)
        .map(|frame| (frame[55] & 2, frame[63] & 1 == 1))
        .collect();
    assert_eq!(on_path[0], (0, true), "a probe of this side");
    let data: Vec<u8> = on_path.iter().filter(|it| !it.1).map(|it| it.0).collect();
    assert!(data.len() > 10);
    assert!(
        data[0] == 2 && data[1..].iter().all(|flag| *flag == 0),
        "{data:?}"
    );
    network.close();
}

/// HT-22: granularity, tolerance and flowlet time-out change live; both sides hold the same, and
/// packets follow.
#[test]
fn granularity_and_tolerance_change_under_load() {
    for seed in 5..7 {
        let mut network = Network::new(seed, configs());
        network.impairment.skew = Span::from_micros(7);
        let bytes = network.fill(0);
        let qpns = network.connected(Some(agreed(Granularity::Packet)));
        busy(&mut network, qpns[0], Span::from_millis(5), |_| false);
        let begun = retransmits(&network, qpns[0]);
        let mut before = vec![0; 8];
        for (turn, granularity) in (0..).zip([
            Granularity::Flow,
            Granularity::Packet,
            Granularity::Flowlet,
            Granularity::Packet,
            Granularity::Flow,
        ]) {
            let asks = usize::from(turn % 2);
            let wanted = MultipathChange {
                granularity: Some(granularity),
                reorder_packets: Some(300 + turn),
                reorder_time: Some(Span::from_micros(1_000 + u64::from(turn))),
                flowlet_timeout: Some(Span::from_micros(50 + u64::from(turn))),
                ..MultipathChange::default()
            };
            ask(&mut network, asks, qpns[asks], &wanted);
            busy(&mut network, qpns[0], Span::from_millis(3), |_| false);
            for host in [0, 1] {
                let holds = state(&network, host, qpns[host]).agreed;
                assert_eq!(holds.granularity, granularity);
                assert_eq!(Some(holds.reorder_packets), wanted.reorder_packets);
                assert_eq!(Some(holds.reorder_time), wanted.reorder_time);
                assert_eq!(Some(holds.flowlet_timeout), wanted.flowlet_timeout);
            }
            busy(&mut network, qpns[0], Span::from_millis(3), |_| false);
            let sent: Vec<u64> = paths(&network, 0, qpns[0])
                .iter()
                .map(|it| it.tx_packets)
                .collect();
            busy(&mut network, qpns[0], Span::from_millis(3), |_| false);
            let now: Vec<u64> = paths(&network, 0, qpns[0])
                .iter()
                .map(|it| it.tx_packets)
                .collect();
            let used = now
                .iter()
                .zip(&sent)
                .filter(|(now, sent)| now > sent)
                .count();
            match granularity {
                Granularity::Packet => assert_eq!(used, 8, "seed {seed}"),
                // Without a pause there is one flowlet.
                Granularity::Flow | Granularity::Flowlet => assert_eq!(used, 1, "seed {seed}"),
            }
            before = now;
        }
        assert!(before.iter().all(|sent| *sent > 0));
        finish(&mut network, qpns[0], &bytes);
        assert_eq!(retransmits(&network, qpns[0]), begun, "seed {seed}");
        network.close();
    }
}

/// HT-41, HT-22: a tolerance that is smaller than the skew of the paths makes late packets count as
/// lost, and one that is larger again ends that: the change is in force, not only shown.
#[test]
fn a_changed_tolerance_is_heeded() {
    let mut network = Network::new(11, configs());
    network.impairment.skew = Span::from_micros(150);
    let bytes = network.fill(0);
    let qpns = network.connected(Some(agreed(Granularity::Packet)));
    let again = |network: &mut Network, packets, micros| {
        let wanted = MultipathChange {
            reorder_packets: Some(packets),
            reorder_time: Some(Span::from_micros(micros)),
            ..MultipathChange::default()
        };
        let count = |network: &Network| {
            let engine = &network.hosts[0].engine;
            let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
            stands.counters.fast_retransmits
        };
        let mut before = count(network);
        ask(network, 0, qpns[0], &wanted);
        if packets > 100 {
            // What was overtaken before is still under way.
            busy(network, qpns[0], Span::from_millis(2), |_| false);
            before = count(network);
        }
        busy(network, qpns[0], Span::from_millis(20), |_| false);
        count(network) - before
    };
    assert_eq!(again(&mut network, 500, 5_000), 0);
    assert!(again(&mut network, 4, 100) > 10);
    assert_eq!(again(&mut network, 500, 5_000), 0);
    finish(&mut network, qpns[0], &bytes);
    network.close();
}

/// HT-32: weights share packets out, at once and without the peer.
#[test]
fn weights_share_packets_out() {
    for granularity in [Granularity::Packet, Granularity::Flowlet] {
        let mut network = Network::new(12, configs());
        let multipath = MultipathConfig {
            paths: 4,
            // Each message is a flowlet.
            flowlet_timeout: Span::ZERO,
            ..agreed(granularity)
        };
        let qpns = network.connected(Some(multipath));
        let weights = vec![(0, 3), (1, 10), (2, 60), (3, 27)];
        let wanted = MultipathChange {
            weights: weights.clone(),
            ..MultipathChange::default()
        };
        ask(&mut network, 0, qpns[0], &wanted);
        assert!(!state(&network, 0, qpns[0]).pending);
        busy(&mut network, qpns[0], Span::from_millis(60), |_| false);
        let sent = paths(&network, 0, qpns[0]);
        let all: u64 = sent.iter().map(|path| path.tx_packets).sum();
        for (path, weight) in weights {
            let share = sent[usize::from(path)].tx_packets * 1_000 / all;
            let meant = u64::from(weight) * 10;
            println!("{granularity:?}: path {path} has {share} of 1000, weight {weight}");
            assert!(share.abs_diff(meant) <= 10 + meant / 5);
            assert_eq!(sent[usize::from(path)].weight, weight);
        }
        network.close();
    }
}

/// HT-22: whatever is lost, repeated or overtaken, and though both sides ask at the same time, each
/// change is made by both, in the same order.
#[test]
fn both_sides_agree_whatever_is_lost() {
    for seed in 20..36 {
        let mut network = Network::new(seed, configs());
        network.impairment.loss = 150;
        network.impairment.duplication = 100;
        network.impairment.jitter = Span::from_micros(200);
        let qpns = network.connected(Some(agreed(Granularity::Packet)));
        for round in 0..5_u16 {
            for (host, own) in [(0, 0), (1, 1)] {
                let packets = 10 + 2 * round + own;
                let wanted = MultipathChange {
                    reorder_packets: Some(packets),
                    ..MultipathChange::default()
                };
                let mut asked = false;
                let agree = network.run(Span::from_secs(60), |network| {
                    let engine = &mut network.hosts[host].engine;
                    asked = asked || engine.change_multipath(qpns[host], &wanted).is_ok();
                    asked
                });
                assert!(agree, "seed {seed}: host {host} waits in round {round}");
            }
        }
        let settled = network.run(Span::from_secs(60), |network| {
            !(0..2).any(|host| state(network, host, qpns[host]).pending)
        });
        assert!(settled, "seed {seed}");
        let made = [0, 1].map(|host| {
            let engine = &network.hosts[host].engine;
            let counters = engine
                .queue_pair_statistics(qpns[host])
                .expect("exists")
                .counters;
            assert_eq!(counters.changes, 10, "seed {seed}");
            state(&network, host, qpns[host]).agreed
        });
        assert_eq!(made[0], made[1], "seed {seed}");
        network.close();
    }
}

/// HT-22, HT-32: changes that cannot be are refused, and the refusal says why.
#[test]
fn impossible_changes_are_refused() {
    let mut network = Network::new(70, configs());
    let idle = network.hosts[0].queue_pair();
    let plain = network.connected(None)[0];
    let old = MultipathConfig {
        changes: false,
        ..MultipathConfig::default()
    };
    let old = network.connected(Some(old));
    let qpns = network.connected(Some(MultipathConfig::default()));
    let mut refused = |qpn, wanted: &MultipathChange| {
        let engine = &mut network.hosts[0].engine;
        engine.change_multipath(qpn, wanted).expect_err("refused")
    };
    let less = change(&[], &[1]);
    assert_eq!(refused(0xff_ffff, &less), ChangeRefused::Unknown);
    assert_eq!(refused(idle, &less), ChangeRefused::NotConnected);
    assert_eq!(refused(plain, &less), ChangeRefused::Plain);
    assert_eq!(refused(old[0], &less), ChangeRefused::PeerTooOld);
    assert_eq!(
        refused(qpns[0], &MultipathChange::default()),
        ChangeRefused::Nothing
    );
    let all = change(&[], &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(refused(qpns[0], &all), ChangeRefused::LastPath);
    let beyond = ChangeRefused::NoSuchPath { path: 8, most: 8 };
    assert_eq!(refused(qpns[0], &change(&[8], &[])), beyond);
    assert_eq!(
        beyond.to_string(),
        "there is no sub-path 8: 8 were agreed on, from 0 up"
    );
    let engine = &mut network.hosts[0].engine;
    engine.change_multipath(qpns[0], &less).expect("possible");
    let engine = &mut network.hosts[0].engine;
    let pending = engine.change_multipath(qpns[0], &change(&[], &[2]));
    assert_eq!(pending, Err(ChangeRefused::Pending));
    network.pass(Span::from_millis(5));
    assert_eq!(
        state(&network, 1, qpns[1]).in_force,
        ids(&[0, 2, 3, 4, 5, 6, 7])
    );
    // What an old peer did not offer to understand is never sent to it.
    assert_eq!(network.hosts[1].engine.statistics().changes, 1);
    network.close();
}

/// HT-22: old changes that are replayed, answers that nobody awaits, and changes for peers that did
/// not agree on them are dropped with a name; nothing changes.
#[test]
fn replayed_changes_change_nothing() {
    let mut network = Network::new(71, configs());
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.tap = Some(Vec::new());
    ask(&mut network, 0, qpns[0], &change(&[], &[7]));
    network.pass(Span::from_millis(5));
    let tapped = network.tap.replace(Vec::new()).expect("a tap");
    let block =
        |frame: &&Vec<u8>, kind: u8| frame.len() > 70 && frame[63] == 1 && frame[70] == kind;
    let asked = tapped
        .iter()
        .find(|frame| block(frame, 1))
        .expect("asked")
        .clone();
    let answered = tapped
        .iter()
        .find(|frame| block(frame, 2))
        .expect("answered")
        .clone();
    ask(&mut network, 0, qpns[0], &change(&[7], &[]));
    network.pass(Span::from_millis(5));
    let tapped = network.tap.take().expect("a tap");
    let probed = tapped
        .iter()
        .find(|frame| block(frame, 4))
        .expect("a probe's answer")
        .clone();
    let to = usize::from(probed[33]) - 1;
    let dropped = |network: &Network, host: usize| {
        let drops = &network.hosts[host].engine.statistics().drops;
        drops.get(DropReason::UnexpectedChange)
    };
    for _ in 0..100 {
        network.inject(1, &asked);
        network.inject(0, &answered);
        network.inject(to, &probed);
        network.pass(Span::from_micros(100));
    }
    assert_eq!(dropped(&network, 0) + dropped(&network, 1), 300);
    for host in [0, 1] {
        let stands = state(&network, host, qpns[host]);
        assert_eq!(stands.in_force, PathIds::first(8));
        let engine = &network.hosts[host].engine;
        let counters = engine
            .queue_pair_statistics(qpns[host])
            .expect("exists")
            .counters;
        assert_eq!((counters.changes, counters.changes_refused), (2, 0));
    }
    network.close();
}

/// HT-24, HT-32: a path that leads nowhere is put in force: it never carries data, and those that
/// it was to replace go on until there is another one. Once it leads somewhere it takes over.
#[test]
fn a_path_that_leads_nowhere_never_carries() {
    let hole = |port: u16| usize::from(port.wrapping_mul(0x9e37) >> 14);
    let mut tried = 0;
    for seed in 80.. {
        if tried == 2 {
            break;
        }
        let multipath = MultipathConfig {
            paths: 2,
            ..agreed(Granularity::Flow)
        };
        // What the entropy will be is known from a run without trouble.
        let mut holes = Vec::new();
        for trouble in [false, true] {
            let mut network = Network::new(seed, configs());
            let bytes = network.fill(0);
            let qpns = network.connected(Some(multipath));
            ask(&mut network, 0, qpns[0], &change(&[], &[1]));
            busy(&mut network, qpns[0], Span::from_millis(5), |_| false);
            if trouble {
                network.impairment.black_holes[holes[1]] = true;
            }
            let carried = paths(&network, 0, qpns[0])[1].tx_packets;
            ask(&mut network, 0, qpns[0], &change(&[1], &[0]));
            busy(&mut network, qpns[0], Span::from_millis(30), |_| false);
            let stands = paths(&network, 0, qpns[0]);
            if !trouble {
                assert_eq!(stands[1].standing, PathStanding::Carrying, "seed {seed}");
                assert_eq!(stands[0].standing, PathStanding::Unused, "seed {seed}");
                holes = stands.iter().map(|path| hole(path.entropy)).collect();
                network.close();
                if holes[0] == holes[1] {
                    break;
                }
                continue;
            }
            tried += 1;
            assert_eq!(stands[1].standing, PathStanding::Unmeasured, "seed {seed}");
            assert_eq!(
                (stands[1].tx_packets, stands[0].standing),
                (carried, PathStanding::Retiring)
            );
            let sent = stands[0].tx_packets;
            busy(&mut network, qpns[0], Span::from_millis(10), |_| false);
            assert!(
                paths(&network, 0, qpns[0])[0].tx_packets > sent,
                "it goes on"
            );
            network.impairment.black_holes = [false; 4];
            busy(&mut network, qpns[0], Span::from_millis(200), |_| false);
            let stands = paths(&network, 0, qpns[0]);
            assert_eq!(stands[1].standing, PathStanding::Carrying, "seed {seed}");
            assert_eq!(stands[0].standing, PathStanding::Unused, "seed {seed}");
            finish(&mut network, qpns[0], &bytes);
            let engine = &network.hosts[0].engine;
            let counters = engine
                .queue_pair_statistics(qpns[0])
                .expect("exists")
                .counters;
            assert_eq!(counters.retransmits, 0, "seed {seed}");
            assert!(counters.path_probes > 2, "it was probed again and again");
            network.close();
        }
    }
}

/// HT-24: all sub-paths fail while a change waits for its answer: the queue pair fails, as ever.
#[test]
fn all_paths_fail_while_a_change_is_pending() {
    let mut network = Network::new(101, configs());
    let qpns = network.connected(Some(agreed(Granularity::Flowlet)));
    busy(&mut network, qpns[0], Span::from_millis(5), |_| false);
    network.impairment.dead = [true, true];
    ask(&mut network, 0, qpns[0], &change(&[], &[1]));
    busy(&mut network, qpns[0], Span::from_millis(50), |_| false);
    assert!(state(&network, 0, qpns[0]).pending);
    busy(&mut network, qpns[0], Span::from_secs(30), |_| false);
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
    assert_eq!(stands.state, State::Error);
    network.close();
}

/// HT-32: a change that the peer has not answered ends with the connection, so that nobody waits
/// for it for ever.
#[test]
fn a_change_ends_with_its_connection() {
    let mut network = Network::new(12, configs());
    let qpns = network.connected(Some(agreed(Granularity::Packet)));
    network.pass(Span::from_millis(1));
    network.impairment.dead[1] = true;
    let engine = &mut network.hosts[0].engine;
    let asked = engine.change_multipath(qpns[0], &change(&[], &[5]));
    let name = asked.expect("possible").expect("the peer is asked");
    network.pass(Span::from_millis(10));
    let standing = |network: &Network| network.hosts[0].engine.change_standing(qpns[0], name);
    assert_eq!(standing(&network), Some(ChangeStanding::Pending));
    let engine = &mut network.hosts[0].engine;
    let ended = engine.modify_queue_pair(qpns[0], &Transition::Error);
    ended.expect("legal");
    assert_eq!(standing(&network), Some(ChangeStanding::Refused));
    network.close();
}
