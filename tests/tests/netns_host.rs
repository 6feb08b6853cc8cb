//! hostd and its applications in whole fabrics: files copied over every path at once, and what
//! happens to them when the fabric or a daemon breaks.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use lab::command::run_with_input;
use lab::observe::{assert_healthy, assert_idle, eventually, fabric, gain, received, rows};
use lab::topology::Qos;
use lab::traffic::Receiver;
use lab::{Lab, capture, exclusive, node_dir, privileged};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// A file of bytes that cannot be compressed or guessed, from a seed.
fn make_file(path: &Path, length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pcg64::seed_from_u64(seed).fill_bytes(&mut bytes);
    let mut file = fs::File::create(path).unwrap();
    file.write_all(&bytes).unwrap();
    bytes
}

/// A receiver of files on a host.
fn receive_on(lab: &Lab, host: &str) -> Receiver {
    let root = node_dir(lab.name(), host).join("files");
    Receiver::start(lab.host(host), &root).unwrap()
}

fn hostcp(lab: &Lab, from: &str, to: &str, v6: bool, file: &Path, name: &str) -> Child {
    let address = lab.host(to).address(v6);
    let address = if v6 {
        format!("[{address}]")
    } else {
        address.to_string()
    };
    let target = format!("{address}:{name}");
    lab.host(from)
        .spawn(["hostcp", &file.display().to_string(), &target])
        .unwrap()
}

fn finish(copy: Child) -> String {
    let output = copy.wait_with_output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

/// HT-1, HT-10, HT-30, HT-34: a file crosses the fabric over both spines at once and arrives as it
/// was, in IPv4 and IPv6; nothing is lost for a fault.
#[test]
fn a_file_crosses_the_fabric_over_several_paths() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    // Queues that hold a whole window: hostd does not slow down for marks, and five bandwidth-delay
    // products are less here.
    let lab = fabric("hocopy")
        .speed(200_000_000)
        .qos(Qos::Plain)
        .up()
        .unwrap();
    let receiver = receive_on(&lab, "h4");
    let source = node_dir(lab.name(), "h1").join("source");
    let bytes = make_file(&source, 16 << 20, 1);
    for v6 in [false, true] {
        let before = received(&lab).unwrap();
        finish(hostcp(&lab, "h1", "h4", v6, &source, "copy"));
        assert!(
            fs::read(receiver.root().join("copy")).unwrap() == bytes,
            "the same bytes"
        );
        fs::remove_file(receiver.root().join("copy")).unwrap();
        let carried = gain(&before, &received(&lab).unwrap());
        let on = |spine: &str| carried[&(spine.to_owned(), "leaf1".to_owned())];
        let (one, two) = (on("spine1"), on("spine2"));
        // 16 MiB in packets of at most 2048 bytes.
        assert!(one + two >= 8192, "spine1 {one}, spine2 {two}");
        assert!(one > 500 && two > 500, "spine1 {one}, spine2 {two}");
    }
    drop(receiver);
    // Where processors were late a packet may have come twice, or a burst exceeded a queue.
    let late = ["queue_full", "queue_pair_state", "queue_pair_ended"];
    assert_healthy(&lab, &late);
}

/// HT-1: odd sizes, down to nothing; and hosts of the same leaf.
#[test]
fn every_length_arrives() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("holen").size(1, 1, 2).up().unwrap();
    let receiver = receive_on(&lab, "h2");
    let source = node_dir(lab.name(), "h1").join("source");
    for (seed, length) in [0, 1, 2047, 2048, 2049, 65_537, 1_000_003]
        .into_iter()
        .enumerate()
    {
        let bytes = make_file(&source, length, seed as u64);
        let name = format!("copy{length}");
        finish(hostcp(&lab, "h1", "h2", false, &source, &name));
        assert!(
            fs::read(receiver.root().join(&name)).unwrap() == bytes,
            "{length} bytes"
        );
    }
}

/// HT-24, HT-43: a pulled link in the middle of a copy: what was on it is sent again over the other
/// paths. First while the routes still lead into the hole, then with routes that have followed.
#[test]
fn a_copy_survives_a_pulled_link() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    for followed in [true, false] {
        let mut lab = fabric("hopull").speed(100_000_000).up().unwrap();
        let receiver = receive_on(&lab, "h4");
        let source = node_dir(lab.name(), "h1").join("source");
        let bytes = make_file(&source, 32 << 20, 2);
        let started = Instant::now();
        let copy = hostcp(&lab, "h1", "h4", false, &source, "copy");
        std::thread::sleep(Duration::from_millis(800));
        if followed {
            lab.link_down("leaf1", "spine1").unwrap();
        } else {
            // leaf1 does not see it: spine1 loses what it should bring to leaf2.
            lab.pull("leaf2", "spine1").unwrap();
        }
        finish(copy);
        println!(
            "routes followed: {followed}; 32 MiB in {:?}",
            started.elapsed()
        );
        assert!(
            fs::read(receiver.root().join("copy")).unwrap() == bytes,
            "the same bytes"
        );
        for daemon in lab.daemons().unwrap() {
            assert!(daemon.ready && daemon.restarts == 0, "{daemon:?}");
        }
    }
}

/// HT-24, HT-36: kill -9 of a spine's daemon in the middle of a copy: the other paths carry it, and
/// the spine is used again when it is back.
#[test]
fn a_copy_survives_a_crash_of_a_switch() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hokill").speed(100_000_000).up().unwrap();
    let receiver = receive_on(&lab, "h4");
    let source = node_dir(lab.name(), "h1").join("source");
    let bytes = make_file(&source, 32 << 20, 3);
    let copy = hostcp(&lab, "h1", "h4", false, &source, "copy");
    std::thread::sleep(Duration::from_millis(800));
    lab.kill("spine2").unwrap();
    finish(copy);
    assert!(
        fs::read(receiver.root().join("copy")).unwrap() == bytes,
        "the same bytes"
    );
}

/// HT-2: the death of hostd ends its applications' waits with an error, on both sides; the next
/// copy works.
#[test]
fn applications_are_told_when_the_daemon_dies() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hodead")
        .size(1, 1, 2)
        .speed(50_000_000)
        .up()
        .unwrap();
    let source = node_dir(lab.name(), "h1").join("source");
    let bytes = make_file(&source, 16 << 20, 4);
    let receiver = receive_on(&lab, "h2");
    let copy = hostcp(&lab, "h1", "h2", false, &source, "copy");
    std::thread::sleep(Duration::from_millis(500));
    lab.kill("h1").unwrap();
    let output = copy.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && !said.contains("panicked"),
        "{said}"
    );
    assert!(!said.trim().is_empty(), "it says why");
    drop(receiver);
    lab.wait_ready(Duration::from_secs(120)).unwrap();
    let receiver = receive_on(&lab, "h2");
    eventually("a copy after the restart", Duration::from_secs(20), || {
        let copy = hostcp(&lab, "h1", "h2", false, &source, "again");
        let output = copy.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(said)
        }
    });
    assert!(
        fs::read(receiver.root().join("again")).unwrap() == bytes,
        "the same bytes"
    );
}

/// HT-3: what a dead application held is given back: memory, queues, connections.
#[test]
fn a_dead_application_leaves_nothing() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hoapp")
        .size(1, 1, 2)
        .speed(20_000_000)
        .up()
        .unwrap();
    let source = node_dir(lab.name(), "h1").join("source");
    make_file(&source, 16 << 20, 5);
    let count = |host: &str, what: &str| rows(lab.hostctl(host, &["show", what]).unwrap()).len();
    let receiver = receive_on(&lab, "h2");
    for _ in 0..3 {
        let mut copy = hostcp(&lab, "h1", "h2", false, &source, "copy");
        eventually("a queue pair", Duration::from_secs(20), || {
            if count("h1", "qps") > 0 {
                Ok(())
            } else {
                Err("none".to_owned())
            }
        });
        copy.kill().unwrap();
        copy.wait().unwrap();
        eventually("nothing held", Duration::from_secs(20), || {
            let held = ["sessions", "qps", "regions"].map(|what| count("h1", what));
            if held == [0, 0, 0] {
                Ok(())
            } else {
                Err(format!("{held:?}"))
            }
        });
    }
    drop(receiver);
    eventually(
        "nothing held by the receiver",
        Duration::from_secs(20),
        || {
            let held = ["sessions", "qps", "regions"].map(|what| count("h2", what));
            if held == [0, 0, 0] {
                Ok(())
            } else {
                Err(format!("{held:?}"))
            }
        },
    );
}

/// MG-5: both daemons answer Prometheus while traffic flows, in a form that promtool accepts.
#[test]
fn metrics_are_clean() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hometric").size(1, 1, 2).up().unwrap();
    let receiver = receive_on(&lab, "h2");
    let source = node_dir(lab.name(), "h1").join("source");
    make_file(&source, 4 << 20, 7);
    finish(hostcp(&lab, "h1", "h2", false, &source, "copy"));
    drop(receiver);
    for (node, prefix, port) in [("leaf1", "switchd_", 9101), ("h1", "hostd_", 9102)] {
        let url = format!("http://127.0.0.1:{port}/metrics");
        let text = lab
            .host(node)
            .run(["curl", "-sf", &url])
            .unwrap()
            .expect_ok();
        assert!(
            text.lines().filter(|line| line.starts_with(prefix)).count() > 20,
            "{text}"
        );
        run_with_input("promtool", &["check", "metrics"], &text).unwrap();
    }
}

/// An idle hostd costs less than one hundredth of a core.
#[test]
fn an_idle_host_sleeps() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hoidle").size(1, 1, 2).up().unwrap();
    assert_idle(&lab, "hostd");
}

/// tshark finds no malformed frame in a copy, and knows every packet as RoCEv2 with a valid ICRC;
/// the source ports show the sub-paths.
#[test]
fn every_frame_of_a_copy_is_well_formed() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hoshark")
        .size(2, 1, 2)
        .tap("leaf1", "spine1")
        .up()
        .unwrap();
    let receiver = receive_on(&lab, "h2");
    let source = node_dir(lab.name(), "h1").join("source");
    make_file(&source, 2 << 20, 6);
    let capture = lab.capture("leaf1", "spine1", "").unwrap();
    for v6 in [false, true] {
        finish(hostcp(
            &lab,
            "h1",
            "h2",
            v6,
            &source,
            if v6 { "six" } else { "four" },
        ));
    }
    drop(receiver);
    let file = capture.stop().unwrap();
    let fields = ["frame.number", "frame.protocols", "_ws.col.Info"];
    let malformed = capture::dissect(
        &file,
        "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0",
        &fields,
    )
    .unwrap();
    assert!(malformed.is_empty(), "{malformed:#?}");
    let not_roce = capture::dissect(&file, "udp.dstport == 4791 && !infiniband", &fields).unwrap();
    assert!(not_roce.is_empty(), "{not_roce:#?}");
    let data = "infiniband && udp.length > 1000";
    let ports = capture::dissect(&file, data, &["udp.srcport"]).unwrap();
    assert!(ports.len() >= 2048, "{} packets of data", ports.len());
    let paths: std::collections::BTreeSet<String> = ports.into_iter().collect();
    assert!(paths.len() >= 4, "source ports {paths:?}");
}

/// HT-1, SW-1: both daemons carry every length by the kernel of Debian 12 as by this machine's.
#[test]
fn a_guest_carries_every_length() {
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    guest::run_selected(&["every_length_arrives"], Duration::from_secs(1200));
}
