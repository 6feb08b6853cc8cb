//! A lossless class with the real daemons: incast in a laboratory that has a dozen processes on few
//! cores.

use lab::observe::{assert_healthy, drops, eventually, fabric, rows};
use lab::topology::Qos;
use lab::traffic::Receiver;
use lab::{Lab, exclusive, node_dir, privileged};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::fs;
use std::time::{Duration, Instant};

/// Bytes that each sender copies: all together keep the receiver's link busy for more than ten
/// seconds.
const EACH: usize = 18 << 20;

/// What a host counts when a packet comes after its copy is done: a host whose processor was late
/// took it for lost and sent it twice. The queue pair ends then, or has ended.
const STRAGGLERS: [&str; 2] = ["queue_pair_state", "queue_pair_ended"];

/// Sum of a number over the rows of a topic, of all switches.
fn sum(lab: &Lab, topic: &str, number: impl Fn(&serde_json::Value) -> u64) -> u64 {
    let switches = ["leaf1", "leaf2", "spine1", "spine2"];
    let of = |switch: &&str| {
        let answer = lab.switchctl(switch, &[topic]).expect("an answer");
        rows(answer).iter().map(&number).sum::<u64>()
    };
    switches.iter().map(of).sum()
}

/// Headroom of every port of every switch is planned with all that its peer announces, and with
/// nothing else of the peer.
fn assert_planned_with_announcements(lab: &Lab, when: &str) {
    for node in ["leaf1", "leaf2", "spine1", "spine2"] {
        let headroom = rows(lab.switchctl(node, &["headroom"]).unwrap());
        let of_port = |port: &str, term: &str| {
            let its = |row: &&serde_json::Value| row["port"] == port && row["term"] == term;
            let row = headroom.iter().find(its);
            let row = row.unwrap_or_else(|| panic!("{node} has no {term} of {port}"));
            let origin = row["origin"].as_str().unwrap_or_default().to_owned();
            (row["wire_bytes"].as_u64().unwrap_or(0), origin)
        };
        for end in lab.plan().ends(node) {
            let port = &end.interface;
            let (bytes, origin) = of_port(port, "peer's backlog");
            // The interface has the name of the node at its other end.
            let peer = format!("announced by {port}");
            assert_eq!(origin, peer, "{node}, {port}, {when}: {bytes} bytes");
            let (bytes, origin) = of_port(port, "response");
            // 20 ms at 100 Mb/s, told or as late as this switch.
            assert_eq!(bytes, 250_000, "{node}, {port}, {when}");
            let expected = match lab.plan().known(port).unwrap().role.is_switch() {
                true => peer.as_str(),
                false => "qos.headroom.poll_gap_microseconds",
            };
            assert_eq!(origin, expected, "{node}, {port}, {when}");
        }
    }
}

/// SW-12, SW-31, HT-45: seven hosts send to one at once for ten seconds, over a fabric of four
/// switches, twelve daemons on whatever cores there are: headroom is planned with what all of them
/// announce, and nobody says it by hand; peers are paused, nothing of the lossless class is lost,
/// and the buffers are empty afterwards.
#[test]
fn incast_loses_nothing() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("lossless")
        .size(2, 2, 8)
        .speed(100_000_000)
        .qos(Qos::Lossless)
        // Pauses and announcements pass a tap like everything else.
        .tap("leaf1", "spine1")
        .up()
        .unwrap();
    assert_planned_with_announcements(&lab, "before");
    let root = node_dir(lab.name(), "h1").join("files");
    let receiver = Receiver::start(lab.host("h1"), &root).unwrap();
    let source = node_dir(lab.name(), "h1").join("source");
    let mut bytes = vec![0; EACH];
    Pcg64::seed_from_u64(7).fill_bytes(&mut bytes);
    fs::write(&source, &bytes).unwrap();
    let began = Instant::now();
    let copies: Vec<_> = (2..=8)
        .map(|host| {
            let target = format!("{}:copy{host}", lab.host("h1").address(false));
            let from = lab.host(&format!("h{host}"));
            let source = source.display().to_string();
            from.spawn(["hostcp", &source, &target]).unwrap()
        })
        .collect();
    for copy in copies {
        let output = copy.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {text}", output.status);
    }
    let took = began.elapsed();
    for host in 2..=8 {
        let copy = receiver.root().join(format!("copy{host}"));
        assert!(fs::read(&copy).unwrap() == bytes, "the same bytes");
        fs::remove_file(copy).unwrap();
    }
    assert!(took > Duration::from_secs(10), "{took:?}");
    assert_planned_with_announcements(&lab, "after");
    assert_healthy(&lab, &STRAGGLERS);
    let lost = drops(&lab).unwrap();
    let hosts = |node: &str| node.starts_with('h');
    assert!(lost.keys().all(|(node, _)| hosts(node)), "{lost:?}");
    let paused = sum(&lab, "pfc", |row| row["sent_xoff"].as_u64().unwrap_or(0));
    assert!(paused > 0, "nobody was paused: there was no congestion");
    let others = sum(&lab, "pfc", |row| {
        let frames = row["sent_xoff"].as_u64().unwrap_or(0);
        if row["priority"] == 3 { 0 } else { frames }
    });
    assert_eq!(others, 0, "other priorities were paused");
    eventually("empty buffer", Duration::from_secs(20), || {
        let cells = |row: &serde_json::Value, name: &str| row[name]["cells"].as_u64().unwrap_or(1);
        let cells = sum(&lab, "pg", |row| {
            cells(row, "used") + cells(row, "headroom")
        });
        if cells == 0 {
            Ok(())
        } else {
            Err(format!("{cells} cells are in use"))
        }
    });
    drop(receiver);
}

/// SW-12: at the speed of links that a laboratory has by itself, its lossless switches have receive
/// rings that hold what arrives while they are late: 20 ms at 1 Gb/s are 4,665 frames of 512 bytes.
#[test]
fn rings_of_a_lossless_laboratory_are_long_enough() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("rings")
        .size(1, 1, 2)
        .speed(1_000_000_000)
        .qos(Qos::Lossless)
        .up()
        .unwrap();
    let status = lab.switchctl("leaf1", &["status"]).expect("an answer");
    let warnings = status["warnings"].as_array().expect("warnings");
    let about_rings = |it: &&serde_json::Value| it.to_string().contains("receive ring");
    assert_eq!(warnings.iter().find(about_rings), None, "{status}");
    let config = lab.switchctl("leaf1", &["config"]).expect("an answer");
    let derived = config["derived"].as_array().expect("what is derived");
    let rings: Vec<&str> = derived
        .iter()
        .filter(|row| row["name"] == "receive_ring")
        .filter_map(|row| row["value"].as_str())
        .collect();
    assert_eq!(rings, ["8192"; 3], "{config}");
}
