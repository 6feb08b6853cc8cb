//! Routing daemons that die (SIGKILL), and come back.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::observe::{eventually, rows};
use lab::{exclusive, privileged};

use super::probe::{Echo, Probe};
use super::rig::{PATIENCE, Rig};
use super::{BEYOND, FLOWS, IN_RINGS, echo, probe};

/// Networks behind the leaf, as others know them.
const BEHIND: [&str; 2] = ["10.1.0.0/24", "2001:db8:1::/64"];

/// Packets that a switch had no route for.
fn without_route(rig: &Rig, name: &str) -> u64 {
    let drops = rows(rig.switchctl(name, &["drops"]));
    let of = drops.iter().filter(|row| row["reason"] == "no_route");
    of.filter_map(|row| row["packets"].as_u64()).sum()
}

/// A daemon of FRR on the leaf dies.
fn kill(rig: &mut Rig, daemon: &'static str) {
    let mut process = rig.running.remove(&("leaf", daemon)).expect("it runs");
    process.kill_inside();
}

/// Waits until BGP sessions of the leaf have ended and are up again.
fn wait_for_new_sessions(rig: &Rig, before: &BTreeMap<String, u64>) {
    eventually("sessions of leaf anew", PATIENCE, || {
        let now = rig.bgp("leaf");
        let is_new = |(peer, times): (&String, &u64)| now.get(peer).is_some_and(|it| it > times);
        if before.iter().all(is_new) {
            Ok(())
        } else {
            Err(format!("{before:?} {now:?}"))
        }
    });
}

/// All is as it was when the rig was up, by the kernel's routes, and nothing is lost.
fn assert_back(rig: &Rig) {
    rig.wait_for_sessions();
    for prefix in BEYOND {
        rig.wait_for_hops("leaf", prefix, &["uplink1", "uplink2"]);
    }
    for prefix in BEHIND {
        rig.wait_for_hops("spine", prefix, &["leaf1a", "leaf1b"]);
        rig.wait_for_hops("border", prefix, &["spine1", "spine2"]);
    }
    rig.agreed("leaf", &BEYOND);
    let seen = probe(rig).after(Duration::from_millis(500));
    assert_eq!((seen.lost(), seen.sent() > 0), (0, true), "{seen}");
}

/// SW-2: without bgpd zebra takes its routes back, and the peers theirs: switchd forwards as long
/// as the kernel has them, and then loses packets for want of a route, all of them, as the kernel
/// would. They come back with it.
#[test]
fn routes_go_with_bgpd_and_come_back() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::up();
    let echo = echo(&rig);
    kill(&mut rig, "bgpd");
    let begun = Instant::now();
    for prefix in BEYOND {
        rig.wait_for_hops("leaf", prefix, &[]);
    }
    for prefix in BEHIND {
        rig.wait_for_hops("spine", prefix, &[]);
    }
    println!("gone after {:?}", begun.elapsed());
    assert!(rig.agreed("leaf", &BEYOND).iter().all(Vec::is_empty));
    let (before, heard) = (without_route(&rig, "leaf"), echo.heard());
    let seen = probe(&rig).after(Duration::from_millis(500));
    assert_eq!((echo.heard(), seen.lost()), (heard, seen.sent()), "{seen}");
    let lost = without_route(&rig, "leaf") - before;
    assert_eq!(
        lost,
        u64::try_from(seen.sent()).expect("not many"),
        "{seen}"
    );
    rig.restart_frr("leaf", "bgpd");
    assert_back(&rig);
}

/// SW-2: without bfdd the peers end the sessions that they watched by BFD after a second.
#[test]
fn sessions_end_with_bfdd_and_come_back() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::up();
    let _echo = echo(&rig);
    let before = rig.bgp("leaf");
    kill(&mut rig, "bfdd");
    let begun = Instant::now();
    let running = probe(&rig);
    wait_for_new_sessions(&rig, &before);
    println!("anew after {:?}", begun.elapsed());
    for prefix in BEYOND {
        rig.wait_for_hops("leaf", prefix, &["uplink1", "uplink2"]);
    }
    rig.agreed("leaf", &BEYOND);
    let seen = running.after(Duration::from_millis(500));
    println!("{seen}");
    let (_, lost_later) = seen.since(Instant::now() - Duration::from_millis(300));
    assert_eq!(lost_later, 0, "{seen}");
    rig.restart_frr("leaf", "bfdd");
    assert_back(&rig);
}

/// SW-2: a zebra that dies leaves its routes in the kernel, and switchd forwards by them. One that
/// starts takes them back and gives them to the kernel again as bgpd tells it.
#[test]
fn routes_outlive_a_zebra_that_dies() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::up();
    let echo = echo(&rig);
    let ways = rig.agreed("leaf", &BEYOND);
    assert_eq!(ways, [["uplink1", "uplink2"]; 2]);
    let (heard, running) = (echo.heard(), probe(&rig));
    sleep(Duration::from_millis(500));
    kill(&mut rig, "zebra");
    let seen = running.after(Duration::from_secs(3));
    assert_eq!(rig.agreed("leaf", &BEYOND), ways);
    let heard = echo.heard() - heard;
    println!("without zebra: {seen}, {heard} arrived");
    assert!(seen.sent() - heard <= IN_RINGS, "{seen}, {heard} arrived");
    let sessions = rig.bgp("leaf");
    assert_eq!(sessions.len(), 4, "{sessions:?}");
    rig.restart_frr("leaf", "zebra");
    wait_for_new_sessions(&rig, &sessions);
    assert_back(&rig);
}

/// SW-2: the routes of a BIRD that dies stay in the kernel, and switchd forwards by them, though
/// its peers withdraw what they had from it. They come back with it.
#[test]
fn routes_outlive_a_bird_that_dies() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::up();
    let ways = rig.agreed("border", &BEHIND);
    assert_eq!(ways, [["spine1", "spine2"]; 2]);
    rig.running
        .remove(&("border", "bird"))
        .expect("it runs")
        .kill();
    for prefix in BEYOND {
        rig.wait_for_hops("spine", prefix, &[]);
        rig.wait_for_hops("leaf", prefix, &[]);
    }
    assert_eq!(rig.agreed("border", &BEHIND), ways);
    // Towards the leaf all arrives; no answer finds its way.
    let echo = Echo::start(rig.node("h1").namespace());
    let to = rig.addresses("h1");
    let seen = Probe::start(rig.node("h2").namespace(), &to, FLOWS).after(Duration::from_secs(1));
    assert!(seen.sent() > 0, "{seen}");
    assert_eq!(
        (echo.heard(), seen.lost()),
        (seen.sent(), seen.sent()),
        "{seen}"
    );
    drop(echo);
    rig.start_bird();
    let _echo = super::echo(&rig);
    assert_back(&rig);
    assert_eq!(rig.agreed("border", &BEHIND), ways);
}
