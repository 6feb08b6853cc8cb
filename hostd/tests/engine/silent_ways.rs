//! Half of the ways through the network swallow what they get, each direction for itself, so three
//! of four packets have no answer; the peer lives, and is found on the others.

use crate::connection::config;
use crate::network::Network;
use common::time::Span;
use hostd::verbs::{MultipathConfig, ReadyToSend, State, Status};

/// As members of groups have it: half a second, eight times over.
const PATIENCE: ReadyToSend = ReadyToSend {
    sq_psn: 0xff_fff0,
    timeout: 17,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
};

/// Two of four ways swallow what they get.
fn swallow(network: &mut Network) {
    network.impairment.black_holes = [false, true, false, true];
    network.impairment.apart = true;
}

/// Sends a message of `len` bytes from host 0, and waits; whether it was acknowledged.
fn exchange(network: &mut Network, [sender, receiver]: [u32; 2], len: u32) -> bool {
    network.hosts[1].receive_into(receiver, 1, 0, len);
    let send = network.hosts[0].send(1, 0, len);
    let posted = network.hosts[0].engine.post_send(sender, send);
    posted.expect("room");
    let before = network.hosts[0].completions.len();
    network.run(Span::from_secs(20), |network| {
        network.hosts[0].completions.len() > before
    });
    let done = network.hosts[0].completions.last();
    done.is_some_and(|done| done.status == Status::Success)
}

/// How many of so many connections end that exchange a message after the ways fell silent, and
/// `before` that some.
fn ended(seeds: u64, multipath: Option<MultipathConfig>, before: u32) -> u64 {
    let mut ended = 0;
    for seed in 1..=seeds {
        let configs = [config(multipath), config(multipath)];
        let mut network = Network::over(seed, configs, seed % 2 == 0);
        let qpns = network.connected_with(multipath, PATIENCE);
        for _ in 0..before {
            assert!(exchange(&mut network, qpns, 100));
            network.pass(Span::from_millis(1));
        }
        swallow(&mut network);
        ended += u64::from(!exchange(&mut network, qpns, 3_000));
        network.close();
    }
    println!("{ended} of {seeds} ended, with {before} messages before");
    ended
}

/// HT-24, HT-43, HT-34: whatever entropy values led through before, those that lead nowhere now are
/// left after a time-out each; so is the only one of a plain connection, and that of the answers
/// to it. IPv4 and IPv6.
#[test]
fn living_peers_are_found_on_other_ways() {
    for before in [0, 1, 12] {
        let paths = Some(MultipathConfig::default());
        assert!(ended(400, paths, before) <= 1, "{before}");
        assert!(ended(400, None, before) <= 20, "{before}, plain");
    }
    // Many values that led through, none of which may do so now.
    let paths = Some(MultipathConfig::default());
    let mut lost = 0;
    for seed in 1..=400 {
        let mut network = Network::new(seed, [config(paths), config(paths)]);
        let qpns = network.connected_with(paths, PATIENCE);
        assert!(exchange(&mut network, qpns, 60_000));
        swallow(&mut network);
        lost += u64::from(!exchange(&mut network, qpns, 100));
        network.close();
    }
    println!("{lost} of 400 ended, with a long message before");
    assert!(lost <= 1, "{lost}");
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
            assert!(exchange(&mut network, qpns, 100));
            swallow(&mut network);
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
