//! The kernel takes over while switchd is away: frozen, stopped, killed. It forwards by the same
//! routes, so little is lost.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use lab::observe::{assert_healthy, eventually, rows, switches};
use lab::traffic::{Pings, finish_ping, start_ping};
use lab::{Lab, exclusive, node_dir, privileged};
use serde_json::Value;

const SETTLE: Duration = Duration::from_secs(5);
const GAP: Duration = Duration::from_millis(10);

/// A leaf with two hosts, whose kernel forwards and takes over after 100 ms.
fn leaf(name: &str) -> Lab {
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
    let changed = text.replace("takeover_milliseconds = 0", "takeover_milliseconds = 100");
    assert_ne!(text, changed);
    fs::write(&path, changed).unwrap();
    lab.restart("leaf1").unwrap();
    lab.wait_ready(SETTLE).unwrap();
    assert_eq!(pinged(&lab, 10, || ()).lost(), 0);
    lab
}

/// Pings `count` times from host to host while `meanwhile` does something.
fn pinged(lab: &Lab, count: u32, meanwhile: impl FnOnce()) -> Pings {
    let ping = start_ping(lab.host("h1"), lab.host("h2"), false, count, GAP).unwrap();
    sleep(20 * GAP);
    meanwhile();
    finish_ping(ping).unwrap()
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

/// SW-1, MG-5: a switch that stands still for two seconds loses the packets of the first tenth and
/// a little more: then the kernel gets them. An event says when that begins and when it is over.
#[test]
fn the_kernel_forwards_while_switchd_is_frozen() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = leaf("takefrz");
    let pings = pinged(&lab, 400, || {
        signal(&lab, "-STOP");
        sleep(200 * GAP);
        signal(&lab, "-CONT");
    });
    // Without the kernel, two hundred.
    assert!(pings.lost() < 80, "{pings:?}");
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

/// MG-5: a switch that is stopped and started, and one that is killed and started again by its
/// supervisor, lose next to nothing: the kernel forwards in between.
#[test]
fn the_kernel_forwards_while_switchd_is_restarted() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = leaf("takestrt");
    let pings = pinged(&lab, 400, || {
        lab.stop("leaf1").unwrap();
        sleep(100 * GAP);
        lab.start("leaf1").unwrap();
        lab.wait_ready(SETTLE).unwrap();
    });
    println!("stopped and started: {pings:?}");
    assert!(pings.lost() < 40, "{pings:?}");
    let pings = pinged(&lab, 400, || {
        lab.kill("leaf1").unwrap();
        lab.wait_ready(SETTLE).unwrap();
    });
    println!("killed: {pings:?}");
    assert!(pings.lost() < 40, "{pings:?}");
}
