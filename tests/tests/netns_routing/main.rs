//! Routing daemons beside switchd, as operators run them: FRR and BIRD with the configurations in
//! `etc/`, each over the ports of a switch of its own, and lldpd.

mod full_table;
mod killed;
mod node;
mod probe;
mod rig;
mod table;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::observe::{eventually, rows};
use lab::{exclusive, privileged};
use nix::sys::signal::Signal;

use probe::{Echo, Probe};
use rig::{PATIENCE, Rig, SWITCHES};

/// Flows of a [`Probe`] by address family.
const FLOWS: usize = 16;

/// Packets that the start of a switch may lose: what lies in a ring at that moment, one of each
/// flow both ways.
const IN_RINGS: usize = 2 * 2 * FLOWS;

/// Packets that its death may lose: those of all flows in a fifth of a second, both ways. A process
/// as large as this takes a while to end, and its programs end last.
const UNTIL_DEAD: usize = 20 * IN_RINGS;

/// Networks behind the border, as the leaf knows them.
const BEYOND: [&str; 2] = ["10.2.0.0/24", "2001:db8:2::/64"];

/// Makes FRR use no next hop objects of the kernel.
const NO_OBJECTS: &str = "no zebra nexthop kernel enable";

fn probe(rig: &Rig) -> Probe {
    let to = rig.addresses("h2");
    Probe::start(rig.node("h1").namespace(), &to, FLOWS)
}

fn echo(rig: &Rig) -> Echo {
    Echo::start(rig.node("h2").namespace())
}

/// SW-1, SW-2, SW-3: routes that FRR and BIRD learn over switchd's ports by BGP are forwarded:
/// IPv4 and IPv6, by next hops of either family, ECMP over two links, in each form in which the
/// daemons give them to the kernel.
#[test]
fn routes_of_frr_and_bird_are_forwarded() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let rig = Rig::with("", |text| text.replace(NO_OBJECTS, "!"));
    // BIRD, and FRR with next hop objects, give IPv4 routes the neighbours' IPv6 addresses
    // (RFC 8950). As shipped FRR gives them 169.254.0.1 on either link, a neighbour of its making.
    let is_of = |hops: &[(String, String)], start: &[&str]| {
        let mut pairs = hops.iter().zip(start);
        hops.len() == start.len() && pairs.all(|((_, hop), start)| hop.starts_with(start))
    };
    let forms = [
        ("leaf", BEYOND[0], ["fe80::"; 2], ["169.254.0.1"; 2]),
        ("leaf", BEYOND[1], ["fe80::"; 2], ["fe80::"; 2]),
        (
            "spine",
            BEYOND[0],
            ["192.0.2.2", "fe80::"],
            ["192.0.2.2", "169.254.0.1"],
        ),
        (
            "border",
            "10.1.0.0/24",
            ["192.0.2.1", "fe80::"],
            ["192.0.2.1", "fe80::"],
        ),
    ];
    for (name, prefix, objects, _) in forms {
        let hops = rig.hops(name, prefix);
        assert!(is_of(&hops, &objects), "{name} {prefix}: {hops:?}");
    }
    for name in ["leaf", "spine"] {
        let groups = rows(rig.switchctl(name, &["ecmp"]));
        let objects = groups.iter().filter(|row| row["object"].is_u64());
        assert!(objects.count() > 0, "{groups:?}");
    }
    let _echo = echo(&rig);
    assert_spread(&rig);
    for name in ["leaf", "spine"] {
        rig.vtysh(name, &["configure", NO_OBJECTS, "end", "clear bgp *"]);
    }
    for (name, prefix, _, own) in forms {
        eventually(
            &format!("routes of {name} by their own next hops"),
            PATIENCE,
            || {
                let hops = rig.hops(name, prefix);
                if is_of(&hops, &own) {
                    Ok(())
                } else {
                    Err(format!("{hops:?}"))
                }
            },
        );
    }
    rig.wait_for_hops("spine", "10.1.0.0/24", &["leaf1a", "leaf1b"]);
    rig.wait_for_hops("border", "10.1.0.0/24", &["spine1", "spine2"]);
    assert_spread(&rig);
    rig.assert_nothing_dropped();
}

/// Traffic arrives, by both ways at each step, and no kernel forwards it.
fn assert_spread(rig: &Rig) {
    let ways = [
        ("leaf", ["uplink1", "uplink2"]),
        ("spine", ["border1", "border2"]),
        ("spine", ["leaf1a", "leaf1b"]),
        ("border", ["spine1", "spine2"]),
    ];
    let sent = || ways.map(|(name, ports)| ports.map(|port| rig.port(name, port, "tx_packets")));
    let before = sent();
    let seen = probe(rig).after(Duration::from_secs(1));
    println!("{seen}");
    assert_eq!(seen.lost(), 0, "{seen}");
    for ((way, before), after) in ways.iter().zip(before).zip(sent()) {
        let gains = [after[0] - before[0], after[1] - before[1]];
        // 32 flows: that one way gets less than an eighth has a chance of one in a million.
        let all = u64::try_from(seen.sent()).unwrap();
        assert!(
            gains.iter().sum::<u64>() >= all,
            "{way:?}: {gains:?} of {all}"
        );
        assert!(
            gains.iter().all(|gain| *gain > all / 8),
            "{way:?}: {gains:?} of {all}"
        );
    }
    for name in SWITCHES {
        assert_eq!(rig.punted(name), 0, "{name}");
    }
}

/// SW-2, SW-3: when a link is pulled its flows move to the other one, and those of the other one
/// lose nothing; the same when a cable is cut of which neither end notices, which BFD finds.
#[test]
fn traffic_leaves_a_link_that_is_pulled_or_cut() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let rig = Rig::up();
    let _echo = echo(&rig);
    let bfd = rig.bfd("leaf");
    for (what, pull, plug, left) in [
        (
            "pulled",
            ("spine", "ip link set dev leaf1a down"),
            ("spine", "ip link set dev leaf1a up"),
            "uplink2",
        ),
        (
            "cut",
            ("cable", "ip link set dev bridge down"),
            ("cable", "ip link set dev bridge up"),
            "uplink1",
        ),
    ] {
        let running = probe(&rig);
        sleep(Duration::from_millis(500));
        let begun = Instant::now();
        rig.node(pull.0).run(pull.1);
        for prefix in BEYOND {
            rig.wait_for_hops("leaf", prefix, &[left]);
        }
        for prefix in ["10.1.0.0/24", "2001:db8:1::/64"] {
            let left = if left == "uplink1" {
                "leaf1a"
            } else {
                "leaf1b"
            };
            rig.wait_for_hops("spine", prefix, &[left]);
        }
        let (moved, at) = (Instant::now(), begun.elapsed());
        let seen = running.after(Duration::from_secs(2));
        let (later, lost_later) = seen.since(moved);
        println!("{what}: moved after {at:?}; {seen}");
        assert!(
            later > 0 && lost_later == 0,
            "{lost_later} of {later} when moved"
        );
        assert!(
            seen.hit() < 2 * FLOWS,
            "the flows of the other link: {seen}"
        );
        rig.node(plug.0).run(plug.1);
        rig.wait_for_sessions();
        for prefix in BEYOND {
            rig.wait_for_hops("leaf", prefix, &["uplink1", "uplink2"]);
        }
    }
    // Neither interface of the link that was cut ever lost its carrier.
    assert_eq!(rig.port("leaf", "uplink2", "link_downs"), 0);
    let noticed = |after: &BTreeMap<String, u64>| {
        let of = |name: &str| name.contains("uplink2");
        let downs = |all: &BTreeMap<String, u64>| {
            all.iter()
                .filter(|(name, _)| of(name))
                .map(|(_, downs)| *downs)
                .sum::<u64>()
        };
        downs(after) > downs(&bfd)
    };
    let after = rig.bfd("leaf");
    assert!(noticed(&after), "{bfd:?} {after:?}");
}

/// SW-2, SW-3: switchd moves the flows of a link that is pulled by itself, before BGP does: while
/// zebra and bgpd of both ends stand still, so that no route changes but by the kernel.
#[test]
fn a_pulled_link_is_left_without_the_routing_daemons() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let rig = Rig::up();
    let _echo = echo(&rig);
    let ends = [("leaf", "uplink1"), ("spine", "leaf1a")];
    let daemons = || {
        let all = ends.into_iter();
        all.flat_map(|(name, _)| ["bgpd", "zebra"].map(|daemon| &rig.running[&(name, daemon)]))
    };
    let downs = || ends.map(|(name, port)| rig.port(name, port, "link_downs"));
    let (before, sessions) = (downs(), ends.map(|(name, _)| rig.bgp(name)));
    let running = probe(&rig);
    sleep(Duration::from_millis(500));
    daemons().for_each(|it| it.signal_inside(Signal::SIGSTOP));
    rig.node("spine").run("ip link set dev leaf1a down");
    eventually("both ends have seen it", PATIENCE, || {
        let now = downs();
        let seen = before.iter().zip(now).all(|(before, now)| *before < now);
        if seen {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    // The workers take the new tables with their next turn, and what was sent before is on its way.
    sleep(Duration::from_millis(100));
    let moved = Instant::now();
    let seen = running.after(Duration::from_millis(1500));
    daemons().for_each(|it| it.signal_inside(Signal::SIGCONT));
    println!("{seen}");
    let (later, lost_later) = seen.since(moved);
    assert!(
        later > 0 && lost_later == 0,
        "{lost_later} of {later} when moved"
    );
    assert!(
        seen.hit() < 2 * FLOWS,
        "the flows of the other link: {seen}"
    );
    // Only now do they learn of it.
    let gone = |(name, before): (&str, &BTreeMap<String, u64>)| {
        let key = format!("the session of {name}");
        eventually(&key, PATIENCE, || {
            let now = rig.bgp(name);
            if now.len() < before.len() {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        });
    };
    let names = ends.into_iter().map(|(name, _)| name);
    names.zip(&sessions).for_each(gone);
}

/// How long a switch stands still: longer than BFD waits, and than a ring has room.
const STILL: Duration = Duration::from_secs(2);

/// A switch stands still (SIGSTOP) and goes on: the kernel takes over once the heartbeat is old.
/// What came before waits in the rings and leaves late; a probe awaits answers for longer than the
/// switch stands still.
fn freeze(rig: &Rig, name: &'static str) {
    let forwarded = |rig: &Rig| -> u64 {
        let ports = rows(rig.switchctl(name, &["ports"]));
        ports
            .iter()
            .filter_map(|row| row["tx_packets"].as_u64())
            .sum()
    };
    let running = probe(rig);
    sleep(Duration::from_millis(500));
    let before = forwarded(rig);
    let switch = &rig.running[&(name, "switchd")];
    switch.signal(Signal::SIGSTOP);
    sleep(STILL);
    switch.signal(Signal::SIGCONT);
    let meanwhile = forwarded(rig) - before;
    let seen = running.after(Duration::from_secs(1));
    println!("{name} stood still: {seen}, {meanwhile} forwarded until it went on");
    assert!(seen.lost() <= IN_RINGS, "{name}: {seen}");
    let all = u64::try_from(seen.sent()).expect("not many");
    // Both ways; the switch had half a second before and a second after for its part.
    assert!(
        meanwhile < all / 3,
        "{name}: the kernel forwarded: {meanwhile}"
    );
    let again = forwarded(rig) - before;
    assert!(again > meanwhile + all / 4, "{name}: {again}, {meanwhile}");
}

/// MG-5: BGP and BFD don't notice that switchd is killed, stopped, started or stands still: they
/// run in the kernel of the box, and so does the traffic meanwhile. A stop loses nothing, a start
/// what lies in a ring, a death what comes until the kernel has noticed it. A switch that stands
/// still loses no more than a start.
#[test]
fn sessions_outlive_the_switch() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::up();
    let _echo = echo(&rig);
    let sessions = |rig: &Rig| ["leaf", "spine"].map(|name| (rig.bgp(name), rig.bfd(name)));
    let before = sessions(&rig);
    for name in ["spine", "leaf"] {
        for how in ["killed", "stopped"] {
            let ways = BEYOND.map(|prefix| rig.hops(name, prefix));
            let running = probe(&rig);
            sleep(Duration::from_millis(500));
            let mut switch = rig.running.remove(&(name, "switchd")).expect("it runs");
            match how {
                "killed" => switch.kill(),
                _ => switch.stop(),
            }
            let ended = running.after(Duration::from_millis(1000));
            println!("{name} {how}: {ended}");
            let most = if how == "stopped" { 0 } else { UNTIL_DEAD };
            assert!(ended.lost() <= most, "{name} {how}: {ended}");
            let running = probe(&rig);
            sleep(Duration::from_millis(500));
            rig.start_switch(name);
            for (prefix, hops) in BEYOND.into_iter().zip(&ways) {
                let ports: Vec<&str> = hops.iter().map(|(port, _)| port.as_str()).collect();
                rig.wait_for_hops(name, prefix, &ports);
            }
            assert_eq!(BEYOND.map(|prefix| rig.hops(name, prefix)), ways);
            let started = running.after(Duration::from_secs(1));
            println!("{name} started: {started}");
            assert!(started.lost() <= IN_RINGS, "{name} started: {started}");
        }
        freeze(&rig, name);
    }
    assert_eq!(sessions(&rig), before);
}

/// SW-2: while zebra is away (`-r`) the routes that it had given to the kernel stay, and every
/// packet of the box takes them. Answers take those of other routers, which may lose theirs. When
/// those routes go, too, nothing arrives any more: so it was them that packets took.
#[test]
fn routes_outlive_zebra() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::up();
    let echo = echo(&rig);
    let ways = BEYOND.map(|prefix| rig.hops("leaf", prefix));
    assert!(ways.iter().all(|hops| hops.len() == 2), "{ways:?}");
    let sent = |rig: &Rig| {
        let ports = ["uplink1", "uplink2"];
        ports
            .map(|port| rig.port("leaf", port, "tx_packets"))
            .iter()
            .sum::<u64>()
    };
    let (before, heard) = (sent(&rig), echo.heard());
    let running = probe(&rig);
    sleep(Duration::from_millis(500));
    let mut zebra = rig.running.remove(&("leaf", "zebra")).expect("it runs");
    zebra.stop_inside();
    let seen = running.after(Duration::from_secs(3));
    assert_eq!(BEYOND.map(|prefix| rig.hops("leaf", prefix)), ways);
    let arrived = echo.heard() - heard;
    println!("{arrived} arrived: {seen}");
    assert_eq!(arrived, seen.sent(), "{seen}");
    let forwarded = usize::try_from(sent(&rig) - before).expect("not many");
    assert!(forwarded >= arrived, "by switchd: {forwarded} of {arrived}");
    for (family, prefix) in ["-4", "-6"].into_iter().zip(BEYOND) {
        rig.node("leaf")
            .run(&format!("ip {family} route flush exact {prefix}"));
        rig.wait_for_hops("leaf", prefix, &[]);
    }
    let heard = echo.heard();
    let seen = probe(&rig).after(Duration::from_millis(500));
    assert!(seen.sent() > 0, "{seen}");
    assert_eq!(echo.heard(), heard, "{seen}");
}

/// SW-1: LLDP reaches lldpd at both ends of a link between two switches.
#[test]
fn lldp_goes_both_ways() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::up();
    for name in ["leaf", "spine"] {
        rig.start_lldpd(name);
    }
    for (name, port, other, of_other) in [
        ("leaf", "uplink1", "spine", "leaf1a"),
        ("spine", "leaf1a", "leaf", "uplink1"),
    ] {
        eventually(&format!("the neighbour of {name}"), PATIENCE, || {
            let found = rig.lldp_neighbour(name, port);
            if found == Ok((other.to_owned(), of_other.to_owned())) {
                Ok(())
            } else {
                Err(format!("{found:?}\n{}", rig.node(name).log("lldpd")))
            }
        });
    }
}
