//! Half of the ways through the network swallow what they get, each direction for itself, so three
//! of four packets have no answer; the peer lives, and is found on the others.

use crate::connection::config;
use crate::network::Network;
use common::time::Span;
use hostd::verbs::{Granularity, MultipathConfig, ReadyToSend, SendOpcode, State, Status};

/// As members of groups have it: half a second, eight times over.
const PATIENCE: ReadyToSend = ReadyToSend {
    sq_psn: 0xff_fff0,
    timeout: 17,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
};

/// Sends `count` messages of a packet each from host 0 at once, and waits; whether all were
/// acknowledged.
fn exchange(network: &mut Network, [sender, receiver]: [u32; 2], count: usize) -> bool {
    let before = network.hosts[0].completions.len();
    for _ in 0..count {
        network.hosts[1].receive_into(receiver, 1, 0, 100);
        let send = network.hosts[0].send(1, 0, 100);
        let posted = network.hosts[0].engine.post_send(sender, send);
        if posted.is_err() {
            return false;
        }
    }
    network.run(Span::from_secs(20), |network| {
        network.hosts[0].completions.len() == before + count
    });
    let done = network.hosts[0].completions[before..].iter();
    done.filter(|done| done.status == Status::Success).count() == count
}

/// How many of so many connections end over which `count` messages go at a time, after the ways
/// fell silent, and some times `before` that.
fn ended(seeds: u64, multipath: Option<MultipathConfig>, before: u32, count: usize) -> u64 {
    let mut ended = 0;
    for seed in 1..=seeds {
        let configs = [config(multipath), config(multipath)];
        let mut network = Network::over(seed, configs, seed % 2 == 0);
        let qpns = network.connected_with(multipath, PATIENCE);
        for _ in 0..before {
            assert!(exchange(&mut network, qpns, count));
            network.pass(Span::from_millis(1));
        }
        network.swallow();
        ended += u64::from(!exchange(&mut network, qpns, count));
        network.close();
    }
    println!("{ended} of {seeds} ended: {count} messages at a time, {before} times before");
    ended
}

/// HT-24, HT-34, HT-43: whatever entropy values led through before, those that lead nowhere now are
/// left, be they few or many, and a peer that was never heard is tried as often as another one.
/// IPv4 and IPv6.
#[test]
fn living_peers_are_found_on_other_ways() {
    let paths = Some(MultipathConfig::default());
    for (before, count) in [
        (0, 1),
        (1, 1),
        (12, 1),
        (12, 2),
        (12, 4),
        (12, 16),
        (3, 100),
    ] {
        let ended = ended(400, paths, before, count);
        assert!(ended <= 1, "{ended}: {before}, {count}");
    }
}

/// HT-24, HT-43: the only way of a plain connection is left after time-outs, and so is that of the
/// answers to it. IPv4 and IPv6.
#[test]
fn plain_peers_are_found_on_other_ways() {
    for (before, count) in [(0, 1), (1, 1), (12, 4)] {
        let ended = ended(400, None, before, count);
        assert!(ended <= 30, "{ended}: {before}, {count}");
    }
}

/// HT-24, HT-34: so do those who only answer: what is asked for again leaves by another way than
/// before, with a way for each flow as with one.
#[test]
fn answers_leave_silent_ways() {
    let flows = MultipathConfig {
        granularity: Granularity::Flow,
        ..MultipathConfig::default()
    };
    let one = MultipathConfig { paths: 1, ..flows };
    for multipath in [MultipathConfig::default(), flows, one] {
        let (mut ended, seeds) = (0, 200);
        for seed in 1..=seeds {
            let configs = [config(Some(multipath)), config(Some(multipath))];
            let mut network = Network::over(seed, configs, seed % 2 == 0);
            let [reader, _] = network.connected_with(Some(multipath), PATIENCE);
            for silent in [false, true] {
                if silent {
                    network.swallow();
                }
                for number in 0..3 {
                    let mut read = network.hosts[0].send(number, 0, 10_000);
                    read.opcode = SendOpcode::RdmaRead;
                    read.rkey = network.hosts[1].keys.rkey;
                    let _ = network.hosts[0].engine.post_send(reader, read);
                }
                network.run(Span::from_secs(20), |network| {
                    network.hosts[0].completions.len() == if silent { 6 } else { 3 }
                });
            }
            let done = network.hosts[0].completions.iter();
            let good = done.filter(|done| done.status == Status::Success).count();
            ended += u64::from(good < 6);
            network.close();
        }
        println!("{ended} of {seeds} ended: {multipath:?}");
        assert!(ended <= 3, "{ended}: {multipath:?}");
    }
}

/// HT-24, HT-36: switches deliver in batches, so what led through stands in the order of the ways;
/// and those fall silent whose turn it is.
#[test]
fn peers_are_found_though_known_values_in_a_row_are_silent() {
    const SEEDS: u64 = 400;
    let paths = Some(MultipathConfig::default());
    let mut ended = 0;
    for seed in 1..=SEEDS {
        let configs = [config(paths), config(paths)];
        let mut network = Network::over(seed, configs, seed % 2 == 0);
        let qpns = network.connected_with(paths, PATIENCE);
        network.swallow();
        network.impairment.black_holes = [false; 4];
        network.impairment.skew = Span::from_micros(100);
        assert!(exchange(&mut network, qpns, 100));
        network.impairment.skew = Span::ZERO;
        network.impairment.black_holes = [false, true, true, false];
        ended += u64::from(!exchange(&mut network, qpns, 1));
        network.close();
    }
    println!("{ended} of {SEEDS} ended");
    assert!(ended <= 1, "{ended}");
}

/// HT-24: a minute of silence: what asks an idle peer whether it lives finds a way there and back,
/// with sub-paths and without.
#[test]
fn idle_peers_are_found_on_other_ways() {
    for multipath in [Some(MultipathConfig::default()), None] {
        let mut lost = 0;
        for seed in 1..=200 {
            let configs = [config(multipath), config(multipath)];
            let mut network = Network::over(seed, configs, seed % 2 == 0);
            let qpns = network.connected_with(multipath, PATIENCE);
            assert!(exchange(&mut network, qpns, 1));
            network.swallow();
            network.pass(Span::from_secs(60));
            let stands = |host: usize| {
                let standing = network.hosts[host].engine.queue_pair_statistics(qpns[host]);
                standing.is_some_and(|it| it.state == State::ReadyToSend)
            };
            lost += u64::from(!(stands(0) && stands(1)));
            network.close();
        }
        println!("{lost} of 200 ended");
        assert!(lost <= 1, "{lost}");
    }
}
