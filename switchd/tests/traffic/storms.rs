//! The watchdog as an operator meets it: a peer that pauses without end, what is said about it, and
//! the way back.

use super::{LOSSLESS, output, priority, python, queue, receive, send};
use crate::support::{Rig, eventually, privileged};
use std::process::Child;

/// Storms are found in a moment, recovery lasts long enough to look at, and the second round turns
/// flow control off.
const WATCHED: &str = "[qos.watchdog]\npoll_interval_milliseconds = 20\ndetection_time_milliseconds = 100\n\
    restoration_time_milliseconds = 5000\naction = \"drop\"\nstorms = 1\nwindow_milliseconds = 60000\n";

/// Exit status of `switchctl pfcwd` while something is wrong.
const DEGRADED: i32 = 4;

/// What `switchctl pfcwd` says of priority 3 of `p2`, and its exit status.
fn watched(rig: &Rig) -> (serde_json::Value, i32) {
    let output = rig.ctl_output(&["--json", "pfcwd"]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["port"] == "p2" && row["priority"] == 3);
    let row = found.unwrap_or_else(|| panic!("p2 3 is not in {rows}"));
    (row.clone(), output.status.code().unwrap())
}

/// Waits for a state and its exit status, and returns the row.
fn becomes(rig: &Rig, state: &str, status: i32) -> serde_json::Value {
    eventually(state, || watched(rig).0["state"] == state);
    let (row, code) = watched(rig);
    assert_eq!(code, status, "{row}");
    row
}

/// `b` pauses priority 3 until this process ends. 500 quanta at 5 Mb/s are 51.2 ms: each frame
/// comes long before the last one's time is over, and all of them are over soon after the last.
fn pauses(rig: &Rig) -> Child {
    let script = "import socket,struct,time\ns=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\ns.bind(('e2',0))\n\
        t=[0]*8\nt[3]=500\nprint('ready',flush=True)\nwhile True:\n \
        s.send(bytes.fromhex('0180c2000001020000000099 8808 0101 0008')+struct.pack('>8H',*t)+bytes(26))\n \
        time.sleep(0.005)\n";
    python(rig, "b", script)
}

fn ends(mut pauses: Child) {
    pauses.kill().unwrap();
    pauses.wait().unwrap();
}

/// Kinds of the events of `p2` that are about its watchdog.
fn told(rig: &Rig) -> Vec<String> {
    let events = rig.ctl(&["events"]);
    let of = |it: &serde_json::Value| it["port"] == "p2" && it["priority"] == 3;
    let about = events.as_array().unwrap().iter().filter(|it| of(it));
    let kinds = about.map(|it| it["kind"].as_str().unwrap().to_owned());
    kinds
        .filter(|kind| ["storm", "restored", "pfc_off", "pfc_on"].contains(&kind.as_str()))
        .collect()
}

/// Checks a metric of priority 3 of `p2`: its name, more of its labels, its value.
fn measures(rig: &Rig, name: &str, labels: &str, value: u64) {
    let text = rig.on("sw", "curl", &["-s", "http://127.0.0.1:9101/metrics"]);
    let line = format!("switchd_pfcwd_{name}{{port=\"p2\",priority=\"3\"{labels}}} {value}\n");
    assert!(text.contains(&line), "{line} is not in {text}");
}

/// SW-32, MG-5, MG-7: a peer pauses without end: its priority is stormed, and only its packets are
/// discarded; after recovery its peer is obeyed again; the second storm turns PFC off until the
/// operator turns it on.
#[test]
fn a_storm_is_found_ended_and_shown() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("w");
    rig.settings(&format!("{LOSSLESS}{WATCHED}"));
    rig.start(&[
        "port_defaults.speed=5Mbps",
        "port_defaults.link_speed=5Mbps",
    ]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    let row = becomes(&rig, "operational", 0);
    assert_eq!(
        (&row["storms"], &row["action"]),
        (&0.into(), &"drop".into())
    );
    measures(&rig, "state", ",state=\"operational\"", 1);

    let storm = pauses(&rig);
    let row = becomes(&rig, "stormed", DEGRADED);
    assert_eq!(
        (&row["storms"], &row["restored"]),
        (&1.into(), &0.into()),
        "{row}"
    );
    assert!(row["last_storm_seconds"].is_number(), "{row}");
    send(&rig, 5);
    let lost = |rig: &Rig| {
        let drops = rig.ctl(&["drops"]);
        let rows = drops.as_array().unwrap().iter();
        let storm = rows.filter(|it| it["port"] == "p1" && it["reason"] == "pfc_storm");
        storm.map(|it| it["packets"].as_u64().unwrap()).sum::<u64>()
    };
    eventually("5 that are discarded", || lost(&rig) == 5);
    assert_eq!(queue(&rig, "p2", 3)["depth_packets"], 0);
    assert_eq!(rig.ping("10.2.0.2", 3, 10), 3, "other priorities pass");
    measures(&rig, "storms_total", "", 1);
    measures(&rig, "state", ",state=\"stormed\"", 1);
    ends(storm);
    let row = becomes(&rig, "operational", 0);
    assert_eq!(row["restored"], 1, "{row}");
    measures(&rig, "restored_total", "", 1);
    assert_eq!(told(&rig), ["storm", "restored"]);
    let refused = rig.ctl_output(&["pfcwd", "enable", "p2", "3"]);
    assert_eq!(refused.status.code(), Some(1), "it is not off");

    let storm = pauses(&rig);
    let row = becomes(&rig, "off", DEGRADED);
    assert_eq!(row["storms"], 2, "{row}");
    measures(&rig, "state", ",state=\"off\"", 1);
    let receiver = receive(&rig, 5);
    send(&rig, 5);
    assert_eq!(output(receiver), "5", "its pauses count for nothing");
    assert_eq!(lost(&rig), 5, "no others were lost");
    ends(storm);
    let shown = rig.ctl_output(&["pfcwd"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.status.code(), Some(DEGRADED), "{text}");
    assert!(text.contains("off"), "{text}");

    assert!(
        rig.ctl_output(&["pfcwd", "enable", "p2", "3"])
            .status
            .success()
    );
    becomes(&rig, "operational", 0);
    measures(&rig, "state", ",state=\"operational\"", 1);
    measures(&rig, "state", ",state=\"off\"", 0);
    measures(&rig, "storms_total", "", 2);
    eventually("an event", || {
        told(&rig) == ["storm", "restored", "storm", "pfc_off", "pfc_on"]
    });
    let paused = || priority(&rig, "p2", 3)["paused_milliseconds"].as_f64();
    let before = paused();
    let storm = pauses(&rig);
    eventually("a pause that is obeyed again", || paused() > before);
    ends(storm);
}
