//! Notifications of congestion that a sender misses are made by a real switchd (SW-25), between two
//! ends of RoCEv2 that are not ours: scapy on raw sockets of network namespaces.

use lab::observe::{eventually, rows, switches};
use lab::{Lab, exclusive, node_dir, privileged};
use serde::Deserialize;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::time::Duration;

const ENDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scapy/notified.py");

/// The links' speed in bits a second: 2,500 of the sender's packets.
const SPEED: u64 = 20_000_000;

/// Milliseconds after which a CNP is missing; the receiver sends one ten times as seldom.
const INTERVAL_MS: usize = 5;

/// What the first switch on the way does. Its queue has room for 24 packets, and marks
/// everything from 12 on.
const SETTINGS: &str = r#"
[flows]
enabled = true
[iqcn]
enabled = true
increase_microseconds = 5000
min_interval_microseconds = 5000
forget_milliseconds = 5000
[[qos.queue]]
queues = [0]
[qos.queue.wred]
min_bytes = 6000
max_bytes = 12000
"#;

/// A CNP that came to the sender.
#[derive(Debug, Deserialize)]
struct Cnp {
    made: bool,
    source: String,
    destination: String,
    dscp: u8,
    qp: u32,
    becn: u8,
    zeros: bool,
    icrc: bool,
}

/// What a run of the sender came to.
#[derive(Debug, Deserialize)]
struct Sent {
    next: u32,
    cnps: Vec<Cnp>,
}

impl Sent {
    fn made(&self) -> impl Iterator<Item = &Cnp> {
        self.cnps.iter().filter(|cnp| cnp.made)
    }
}

/// The receiver, which is ended when this goes.
struct Receiver(Child);

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended, and then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn receiver(lab: &Lab) -> Receiver {
    let from = lab.host("h1").address(false).to_string();
    let words = ["/usr/bin/python3", ENDS, "receive", &from, "0.05"];
    let mut child = lab.host("h2").spawn(words).unwrap();
    let said = child.stdout.take().expect("a pipe");
    let receiver = Receiver(child);
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    receiver
}

fn send(lab: &Lab, rate: &str, seconds: &str, psn: u32) -> Sent {
    let to = lab.host("h2").address(false).to_string();
    let words = [
        "/usr/bin/python3",
        ENDS,
        "send",
        &to,
        rate,
        seconds,
        &psn.to_string(),
    ];
    let said = lab.host("h1").run(words).unwrap().expect_ok();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// CNPs of the flow that passed and that were made, as the switch counts them.
fn counted(lab: &Lab) -> (u64, u64) {
    let rows = rows(lab.switchctl("leaf1", &["iqcn"]).unwrap());
    let row = rows.iter().find(|row| row["sender_qp"] == 0x1001);
    let of = |key: &str| row.map_or(0, |row| row[key].as_u64().expect("a number"));
    (of("passed"), of("made"))
}

/// SW-25: a flow whose receiver notifies too seldom gets the missing CNPs while its queue is
/// congested: from the receiver's address, to the sender's queue pair, with an ICRC that scapy
/// finds right, and not more often than may be. Neither before nor after, when there is no queue,
/// is any made. Those of the receiver all pass.
#[test]
fn missing_notifications_are_made_while_a_queue_is_congested() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("iqcn").size(2, 1, 2).speed(SPEED).up().unwrap();
    let path = node_dir(lab.name(), "leaf1").join("switchd.toml");
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(SETTINGS.as_bytes()).unwrap();
    lab.restart("leaf1").unwrap();
    // The sender's kernel would hold its packets to the links' speed: no queue of a switch would
    // fill.
    let unshaped = ["tc", "qdisc", "del", "dev", "leaf1", "root"];
    lab.host("h1").run(unshaped).unwrap().expect_ok();
    let [source, destination] = ["h2", "h1"].map(|host| lab.host(host).address(false).to_string());
    let ping = ["ping", "-c", "1", "-W", "1", &source];
    eventually("the way is there", Duration::from_secs(20), || {
        let output = lab.host("h1").run(ping).unwrap();
        if output.ok() {
            Ok(())
        } else {
            Err(output.stderr)
        }
    });
    let _receiver = receiver(&lab);

    let calm = send(&lab, "200", "3", 1_000);
    println!("calm: {} CNPs, {:?}", calm.cnps.len(), counted(&lab));
    assert_eq!(calm.made().count(), 0, "{calm:?}");
    assert!(calm.cnps.len() >= 20, "those of the receiver: {calm:?}");
    eventually("the switch knows the flow", Duration::from_secs(10), || {
        let (passed, made) = counted(&lab);
        assert_eq!(made, 0);
        if passed > 0 {
            Ok(())
        } else {
            Err("it does not".to_owned())
        }
    });

    let full = send(&lab, "5000", "2", calm.next);
    let made = full.made().count();
    println!(
        "full: {made} of {} CNPs, {:?}",
        full.cnps.len(),
        counted(&lab)
    );
    for cnp in full.made() {
        let ends = (cnp.source.as_str(), cnp.destination.as_str());
        assert_eq!(ends, (source.as_str(), destination.as_str()));
        assert_eq!((cnp.qp, cnp.dscp, cnp.becn), (0x1001, 48, 1));
        assert!(cnp.icrc && cnp.zeros, "{cnp:?}");
    }
    assert!((20..=2_500 / INTERVAL_MS).contains(&made), "{made}");
    assert!(full.cnps.len() > made, "those of the receiver passed, too");
    assert_eq!(counted(&lab).1, made as u64, "each of them came");

    let after = send(&lab, "200", "1", full.next);
    assert_eq!(after.made().count(), 0, "{after:?}");
    assert_eq!(counted(&lab).1, made as u64);
}
