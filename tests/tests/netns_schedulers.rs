//! The two ends of a link tell each other how they spread packets over paths (MG-9): real daemons,
//! and a neighbour that sends nonsense.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use lab::observe::{eventually, fabric, rows};
use lab::{Lab, exclusive, node_dir, privileged};

/// Adds lines to a configuration of a node, and starts its daemon again.
fn add(lab: &Lab, node: &str, file: &str, lines: &str) {
    let path = node_dir(lab.name(), node).join(file);
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    lab.restart(node).unwrap();
}

/// What the leaf says of its port to h1: peer's role, what each end spreads, and who spreads
/// packets.
fn at_leaf(lab: &Lab) -> [String; 4] {
    let rows = rows(lab.switchctl("leaf1", &["show", "schedulers"]).unwrap());
    let row = rows.iter().find(|row| row["port"] == "h1").expect("a port");
    ["role", "own", "theirs", "by_packet"].map(|key| row[key].as_str().unwrap_or("-").to_owned())
}

/// The same of the host.
fn at_host(lab: &Lab) -> Vec<[String; 4]> {
    let rows = rows(lab.hostctl("h1", &["schedulers"]).unwrap());
    let of = |row: &serde_json::Value| {
        ["role", "own", "theirs", "by_packet"]
            .map(|key| row[key].as_str().unwrap_or("-").to_owned())
    };
    rows.iter().map(of).collect()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    eventually(what, Duration::from_secs(20), || {
        if is_so() {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
}

/// Sends frames that are no announcements by the host's interface.
const NONSENSE: &str = "
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('leaf1', 0))
group = bytes.fromhex('0180c200000e')
for body in [b'', b'FSA1', b'FSA2' + bytes(60), b'FSA1' + bytes([0, 9]) + bytes(60), b'FSA1' + b'\\xff' * 60]:
    s.send(group + s.getsockname()[4] + b'\\x88\\xb5' + body)
";

/// MG-9: a host that sprays and a switch that would spray packets know of each other, and both say
/// that it is the host who does; nonsense is counted and changes nothing; who falls silent is
/// forgotten.
#[test]
fn both_ends_know_who_spreads_packets() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("sched").size(2, 1, 2).up().unwrap();
    let packets = "\n[scheduling]\nannounce = true\n\n[ecmp.dlb]\nmode = \"packet\"\n";
    add(&lab, "leaf1", "switchd.toml", packets);
    until("the switch is up", || at_leaf(&lab)[1] == "packets");
    assert_eq!(at_leaf(&lab), ["-", "packets", "-", "switch"]);
    assert!(at_host(&lab).is_empty(), "it is not asked for");

    add(
        &lab,
        "h1",
        "hostd.toml",
        "\n[scheduling]\nannounce = true\n",
    );
    let both = |row: &[String; 4], role: &str| {
        let expected = [role, "packets", "packets", "host"];
        row.iter().eq(expected)
    };
    until("the leaf hears the host", || both(&at_leaf(&lab), "host"));
    until("the host hears the leaf", || {
        at_host(&lab).first().is_some_and(|row| both(row, "switch"))
    });

    let words = ["python3", "-c", NONSENSE];
    lab.host("h1").run(words).unwrap().expect_ok();
    until("nonsense is counted", || {
        let words = ["curl", "-sf", "http://127.0.0.1:9101/metrics"];
        let metrics = lab.host("leaf1").run(words).unwrap().expect_ok();
        metrics.contains("switchd_scheduling_announcements_bad_total 5")
    });
    assert!(both(&at_leaf(&lab), "host"));

    lab.stop("h1").unwrap();
    until("the host is forgotten", || at_leaf(&lab)[0] == "-");
}
