//! The kernel takes over while switchd is away: frozen, stopped, killed. It forwards by the same
//! routes, so little is lost.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use lab::observe::{assert_healthy, eventually, rows, switches};
use lab::traffic::{Pings, finish_ping, start_ping};
use lab::{Echo, Lab, exclusive, node_dir, privileged};
use serde_json::Value;
use switchd::config::Config;

const SETTLE: Duration = Duration::from_secs(120);
const GAP: Duration = Duration::from_millis(10);

/// A leaf with two hosts, whose kernel forwards and takes over after so many milliseconds, or
/// never.
fn leaf(name: &str, milliseconds: u64) -> Lab {
    let lab = switches(name).size(1, 1, 2).up().unwrap();
    for line in [
        "sysctl -qw net.ipv4.ip_forward=1",
        "sysctl -qw net.ipv6.conf.all.forwarding=1",
    ] {
        let output = lab.host("leaf1").run(line.split(' ')).unwrap();
        output.expect_ok();
    }
    let path = node_dir(lab.name(), "leaf1").join("switchd.toml");
    let text = fs::read_to_string(&path).unwrap();
    let key = "takeover_milliseconds = 0";
    assert!(text.contains(key), "{text}");
    let changed = text.replace(key, &format!("takeover_milliseconds = {milliseconds}"));
    fs::write(&path, changed).unwrap();
    lab.restart("leaf1").unwrap();
    lab.wait_ready(SETTLE).unwrap();
    for pings in pinged(&lab, 10, || ()) {
        assert_eq!(pings.lost(), 0);
    }
    lab
}

/// Pings `count` times from host to host, by IPv4 and IPv6, while `meanwhile` does something.
fn pinged(lab: &Lab, count: u16, meanwhile: impl FnOnce()) -> [Pings; 2] {
    let ping = |v6| start_ping(lab.host("h1"), lab.host("h2"), v6, count, GAP);
    let pings = [ping(false), ping(true)];
    sleep(20 * GAP);
    meanwhile();
    pings.map(|ping| finish_ping(ping).unwrap())
}

/// Freezes switchd for two seconds.
fn freeze(lab: &Lab) {
    signal(lab, "-STOP");
    sleep(200 * GAP);
    signal(lab, "-CONT");
}

/// Lost at most, of the packets of a freeze that the kernel takes over after so long: those of that
/// time, each way, and a little more because the worker's last look was before it.
fn lost_most(milliseconds: u64) -> u32 {
    let sent = Duration::from_millis(milliseconds).as_millis() / GAP.as_millis();
    2 * u32::try_from(sent).expect("not long") + 5
}

/// Sends a signal to switchd.
fn signal(lab: &Lab, signal: &str) {
    let daemons = lab.daemons().unwrap();
    let leaf = daemons.iter().find(|daemon| daemon.node == "leaf1");
    let pid = leaf.unwrap().pid.unwrap().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &pid])
            .status()
            .unwrap()
            .success()
    );
}

fn events(lab: &Lab) -> Vec<String> {
    let events = rows(lab.switchctl("leaf1", &["events"]).unwrap());
    let kind = |row: &Value| row["kind"].as_str().unwrap().to_owned();
    events.iter().map(kind).collect()
}

/// SW-1, MG-5: a switch that stands still for two seconds loses no more than the packets of the
/// first moment, of IPv4 and of IPv6: then the kernel gets them. That moment is what is configured,
/// as it ships or another. An event says when the kernel takes over and when that is over. Without
/// the kernel the packets stand still as long.
#[test]
fn the_kernel_forwards_while_switchd_is_frozen() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = leaf("takenot", 0);
    let without = pinged(&lab, 400, || freeze(&lab));
    println!("without the kernel: {without:?}");
    drop(lab);
    for milliseconds in [Config::default().workers.takeover_milliseconds, 100] {
        frozen_for_two_seconds(milliseconds, &without);
    }
}

/// Checks a switch that is frozen, whose kernel takes over after so many milliseconds, and of which
/// without the kernel so many packets would be lost or late.
fn frozen_for_two_seconds(milliseconds: u64, without: &[Pings; 2]) {
    let lab = leaf("takefrz", milliseconds);
    let pings = pinged(&lab, 400, || freeze(&lab));
    println!("with the kernel after {milliseconds} ms: {pings:?}");
    for (with, without) in pings.iter().zip(without) {
        assert!(with.lost() <= lost_most(milliseconds), "{with:?}");
        assert!(with.mean_ms < without.mean_ms || 4 * with.lost() < without.lost());
    }
    eventually("told", SETTLE, || {
        let events = events(&lab);
        let has = |kind: &str| events.iter().any(|event| event == kind);
        if has("takeover") && has("takeover_over") {
            Ok(())
        } else {
            Err(format!("{events:?}"))
        }
    });
    let ports = rows(lab.switchctl("leaf1", &["show", "ports"]).unwrap());
    let punted = |row: &Value| row["punted"].as_u64().unwrap();
    assert!(ports.iter().map(punted).sum::<u64>() > 100, "{ports:?}");
    assert_healthy(&lab, &[]);
}

/// SW-1, MG-5: what a bridge forwards between known stations is taken over as well.
#[test]
fn the_kernel_bridges_while_switchd_is_frozen() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = leaf("takebr", 100);
    let run = |node: &str, line: &str| {
        let output = lab.host(node).run(line.split(' ')).unwrap();
        output.expect_ok();
    };
    run(
        "leaf1",
        "ip link add br0 type bridge forward_delay 0 mcast_snooping 0",
    );
    for (host, address) in [("h1", "192.0.2.1/24"), ("h2", "192.0.2.2/24")] {
        run("leaf1", &format!("ip address flush dev {host}"));
        run("leaf1", &format!("ip link set {host} master br0"));
        run(host, &format!("ip address add {address} dev leaf1"));
    }
    run("leaf1", "ip link set br0 up");
    let bridged = || {
        let ports = rows(lab.switchctl("leaf1", &["bridge"]).unwrap());
        let count = |row: &Value| row["bridged_packets"].as_u64().unwrap_or(0);
        ports.iter().map(count).sum::<u64>()
    };
    let to = "192.0.2.2".parse().unwrap();
    let ping = |count| lab.host("h1").echo(Echo::new(to, count, GAP));
    eventually("frames that a worker bridges", SETTLE, || {
        let before = bridged();
        let pings = finish_ping(ping(20)).unwrap();
        if pings.lost() == 0 && bridged() >= before + 40 {
            Ok(())
        } else {
            Err(format!("{pings:?}"))
        }
    });
    let pings = ping(400);
    sleep(20 * GAP);
    freeze(&lab);
    let pings = finish_ping(pings).unwrap();
    println!("bridged: {pings:?}");
    assert!(pings.lost() <= lost_most(100), "{pings:?}");
    let ports = rows(lab.switchctl("leaf1", &["show", "ports"]).unwrap());
    let punted = |row: &Value| row["punted"].as_u64().unwrap();
    assert!(ports.iter().map(punted).sum::<u64>() > 100, "{ports:?}");
}

/// MG-5: a switch that is stopped loses nothing: the kernel forwards from then on. Nor does one
/// that starts, perhaps as another version: the kernel forwards until its workers run. One that is
/// killed and started again by its supervisor loses no more than what comes while its process ends,
/// which the kernel takes over as for a frozen one.
#[test]
fn the_kernel_forwards_while_switchd_is_restarted() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = leaf("takestrt", 100);
    let stopped = pinged(&lab, 200, || lab.stop("leaf1").unwrap());
    println!("stopped: {stopped:?}");
    for pings in &stopped {
        assert_eq!(pings.lost(), 0, "{pings:?}");
    }
    let started = pinged(&lab, 400, || {
        lab.start("leaf1").unwrap();
        lab.wait_ready(SETTLE).unwrap();
    });
    println!("started: {started:?}");
    let killed = pinged(&lab, 400, || {
        lab.kill("leaf1").unwrap();
        lab.wait_ready(SETTLE).unwrap();
    });
    println!("killed: {killed:?}");
    for pings in &started {
        assert_eq!(pings.lost(), 0, "{pings:?}");
    }
    for pings in &killed {
        assert!(pings.lost() <= lost_most(100), "{pings:?}");
    }
}
