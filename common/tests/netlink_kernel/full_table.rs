//! A kernel with 500,000 routes, whose dump takes long.

use super::*;
use common::netlink::NeighbourKey;
use std::net::Ipv4Addr;

/// Within so long is known what the kernel drops without a word, and what its lost messages said.
const SILENT_LIMIT: Span = Span::from_millis(100);

/// Neighbours whose messages are more than a small receive buffer holds.
const NEIGHBOURS: std::ops::Range<u32> = 256..3_000;

fn batch(lines: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("batch");
    std::fs::write(&file, lines).expect("the folder is ours");
    ip(&format!("-batch {}", file.display()));
}

/// Follows a kernel that has the routes, with a buffer so small that a burst does not fit.
fn watch_a_full_table() -> Watch {
    let route = |n: u32| {
        let address = Ipv4Addr::from_bits(0x1400_0000 + n * 256);
        format!("route add {address}/24 via 10.0.0.2\n")
    };
    batch(&(0..500_000).map(route).collect::<String>());
    let mut watch = Watch::open(Settings::default(), 65_536).unwrap();
    let limit = monotonic() + Span::from_secs(60);
    watch.sync(limit, &mut Vec::new()).unwrap();
    watch
}

fn last_end(watch: &Watch) -> common::time::Time {
    watch.follower().statistics().last_end
}

/// How long after `step` `holds`, which is before the resynchronisation that follows is at its end.
/// Waits for that end; then nothing is under way.
fn known_after(watch: &mut Watch, step: impl FnOnce(), holds: impl Fn(&Mirror) -> bool) -> Span {
    let before = last_end(watch);
    step();
    let took = until_at_work(watch, holds);
    assert_eq!(last_end(watch), before);
    until_so(watch, |watch| last_end(watch) != before);
    follow(watch, Span::from_secs(5));
    took
}

fn is_soon(tries: &[Span]) -> bool {
    tries.iter().any(|took| *took < SILENT_LIMIT)
}

/// The address of neighbour `n`.
fn neighbour(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + n)
}

/// Does `verb` to all neighbours at once, which get the station address that ends with `station`.
/// How long it takes until what became of the last one is known, whose message is lost.
fn neighbours(watch: &mut Watch, verb: &str, station: Option<u8>) -> Span {
    let mac = station.map(|last| [2, 0, 0, 0, 0, last]);
    let state = station.map_or_else(String::new, |last| {
        format!("lladdr 02:00:00:00:00:{last:02x} nud permanent")
    });
    let line = |n: u32| format!("neighbour {verb} {} dev left {state}\n", neighbour(n));
    let lines: String = NEIGHBOURS.map(line).collect();
    let last = NeighbourKey {
        ifindex: watch.mirror().link_named("left").expect("it is").index,
        address: neighbour(NEIGHBOURS.end - 1).into(),
    };
    let known = |mirror: &Mirror| mirror.neighbour(&last).and_then(|it| it.usable_mac());
    assert_ne!(known(watch.mirror()), mac);
    let overruns = watch.follower().statistics().overruns;
    let took = known_after(watch, || batch(&lines), |mirror| known(mirror) == mac);
    let statistics = watch.follower().statistics();
    assert!(statistics.overruns > overruns, "{statistics:?}");
    took
}

/// SW-2: with 500,000 routes the mirror of the kernel's tables knows within 100 ms what a link
/// takes along that goes down, and so it does what became of neighbours whose messages were lost:
/// they are there, changed, gone. As a core may be slow for a while, each has three tries. If all
/// routes go with a link, they are gone before a dump has ended, however long that takes: no time
/// is asked for.
#[test]
fn what_a_full_table_hides_is_known_before_it_is_dumped() {
    in_namespace(|| {
        let mut watch = watch_a_full_table();
        let lost = key("10.9.0.0/16", 0);
        let mut tries = Vec::new();
        while tries.len() < 3 && !is_soon(&tries) {
            ip("link set right up");
            ip("route replace 10.9.0.0/16 via 10.0.1.2");
            until(&mut watch, |mirror| mirror.route(&lost).is_some());
            follow(&mut watch, Span::from_secs(5));
            let down = || ip("link set right down");
            let gone = |mirror: &Mirror| mirror.route(&lost).is_none();
            tries.push(known_after(&mut watch, down, gone));
        }
        println!("a route of a link that went down: {tries:?}");
        assert!(is_soon(&tries), "{tries:?}");
        let verbs = [("add", Some(1)), ("replace", Some(2)), ("del", None)];
        let mut tries = [const { Vec::new() }; 3];
        while tries[0].len() < 3 && !tries.iter().all(|tries| is_soon(tries)) {
            for ((verb, station), tries) in verbs.into_iter().zip(&mut tries) {
                tries.push(neighbours(&mut watch, verb, station));
            }
        }
        println!("neighbours whose messages were lost: {tries:?}");
        assert!(tries.iter().all(|tries| is_soon(tries)), "{tries:?}");
        let before = last_end(&watch);
        ip("link set left down");
        let last = key("27.161.31.0/24", 0);
        let took = until_at_work(&mut watch, |mirror| mirror.route(&last).is_none());
        assert_eq!(last_end(&watch), before);
        println!("all routes of the link that has them all: {took}");
    });
}
