//! The two ends of a link tell each other how they spread packets over paths (MG-9) and what
//! follows a pause (SW-12): real daemons, and neighbours that send nonsense or lie.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Duration;

use lab::observe::{eventually, fabric, rows};
use lab::topology::Qos;
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
    let ports = rows(lab.switchctl("leaf1", &["schedulers"]).unwrap());
    let row = ports.iter().find(|row| row["port"] == "h1").expect("a row");
    assert_eq!(row["peer"], "h1", "nodes have names of their own");
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

/// Sends announcements of a switch that claims to send for seconds after each pause.
const LIE: &str = "
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('leaf1', 0))
body = b'FSA1' + bytes([1, 0, 0, 4, 4]) + b'liar' + bytes([1, 8]) + b'\\xff' * 8
for _ in range(30):
    s.send(bytes.fromhex('0180c200000e') + s.getsockname()[4] + b'\\x88\\xb5' + body)
    time.sleep(0.5)
";

/// Asks eight times, each as soon as the last question was answered and a quarter of a second has
/// passed, and prints the seconds that took. What is told without questions comes once a second.
const ASK: &str = "
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
s.bind(('leaf1', 0x88b5))
s.settimeout(10)
body = b'FSA1' + bytes([0, 0, 0, 4, 3]) + b'new' + bytes([2, 0])
def hear():
    while True:
        frame, address = s.recvfrom(300)
        if address[2] != socket.PACKET_OUTGOING:
            return
hear()
begun = time.monotonic()
for _ in range(8):
    s.send(bytes.fromhex('0180c200000e') + s.getsockname()[4] + b'\\x88\\xb5' + body)
    hear()
    time.sleep(0.25)
print(time.monotonic() - begun)
";

/// Bytes of a term of a switch's headroom at a port, and where they are from.
fn term(lab: &Lab, switch: &str, port: &str, term: &str) -> (u64, String) {
    let rows = rows(lab.switchctl(switch, &["headroom"]).unwrap());
    let its = |row: &&serde_json::Value| row["port"] == port && row["term"] == term;
    let row = rows.iter().find(its).expect("computed");
    let from = row["origin"].as_str().unwrap_or("-").to_owned();
    (row["wire_bytes"].as_u64().unwrap(), from)
}

/// SW-12, MG-9: headroom of a switch has room for what its peers, a host and a switch, say that
/// still comes after a pause, and follows when they say something else or fall silent; who asks is
/// told at once; a neighbour that lies gets its part of the buffer, and that is told.
#[test]
fn headroom_is_planned_with_what_peers_announce() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("told")
        .size(2, 1, 4)
        .qos(Qos::Lossless)
        .up()
        .unwrap();
    let said = |switch, port, name| {
        let (bytes, from) = term(&lab, switch, port, name);
        (bytes, from.starts_with("announced by "))
    };
    let backlog = "peer's backlog";
    assert_eq!(said("leaf1", "h1", backlog), (131_072, true));
    // Each end tells what it prints of itself.
    let derived = |switch: &str, port: &str, name: &str| {
        let answer = lab.switchctl(switch, &["config"]).unwrap();
        let rows = answer["derived"].as_array().expect("values").clone();
        let its = |row: &&serde_json::Value| row["port"] == port && row["name"] == name;
        let row = rows.iter().find(its).expect("a value");
        row["value"].as_str().unwrap().parse::<u64>().unwrap()
    };
    for (switch, peer) in [("leaf1", "spine1"), ("spine1", "leaf1")] {
        let holds = derived(peer, switch, "peer_backlog_bytes");
        assert_eq!(said(switch, peer, backlog), (holds, true), "{switch}");
        assert!(said(switch, peer, "response").1, "{switch}");
    }
    let path = node_dir(lab.name(), "h1").join("hostd.toml");
    let text = fs::read_to_string(&path).unwrap();
    let other = text.replace("[transport]\n", "[transport]\npacer_burst = 100000\n");
    assert_ne!(other, text);
    fs::write(&path, other).unwrap();
    lab.restart("h1").unwrap();
    until("the leaf hears the host", || {
        said("leaf1", "h1", backlog) == (100_000, true)
    });
    let of_response = term(&lab, "leaf1", "h1", "response").1;
    assert_eq!(of_response, "qos.headroom.poll_gap_microseconds");
    until("the host shows what the leaf says", || {
        let rows = rows(lab.hostctl("h1", &["schedulers"]).unwrap());
        rows.first()
            .is_some_and(|row| row["response_nanoseconds"] == 20_000_000)
    });

    let cells = |port| term(&lab, "leaf1", port, "all").0;
    let before = cells("h1");
    // Who lies says nothing else beside it.
    lab.stop("h2").unwrap();
    let words = ["python3", "-c", ASK];
    let asked = lab.host("h2").run(words).unwrap().expect_ok();
    let seconds: f64 = asked.trim().parse().unwrap();
    assert!(seconds < 6.0, "eight answers took {seconds} s");
    lab.host("h2")
        .run(["python3", "-c", LIE])
        .unwrap()
        .expect_ok();
    assert!(said("leaf1", "h2", backlog).1 || said("leaf1", "h2", "response").1);
    let events = rows(lab.switchctl("leaf1", &["events"]).unwrap());
    let told = events.iter().any(|event| {
        let is_its = event["kind"] == "headroom" && event["port"] == "h2";
        is_its
            && event["text"]
                .as_str()
                .unwrap()
                .contains("announced_percent")
    });
    assert!(told, "{events:?}");
    assert_eq!(cells("h1"), before, "others keep theirs");
    lab.stop("h1").unwrap();
    let by_kind = "qos.headroom.peer: hardware".to_owned();
    until("the host is forgotten", || {
        term(&lab, "leaf1", "h1", backlog) == (0, by_kind.clone())
    });
}
