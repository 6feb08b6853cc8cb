//! The laboratory itself: what it builds carries traffic, and it leaves nothing behind, however it
//! ends. The Linux kernel forwards here, so these tests say nothing about the daemons.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::sweep::{namespaces_of, supervisor, sweep};
use lab::topology::Daemons;
use lab::{Lab, LabError, exclusive, privileged, run_dir};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const FABRIC: &str = env!("CARGO_BIN_EXE_fabric");

/// Fails unless nothing of laboratory `name` is left, now or soon.
fn assert_gone(name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let namespaces = namespaces_of(name).unwrap();
        let gone = namespaces.is_empty() && !run_dir(name).exists() && supervisor(name).is_none();
        if gone {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: {namespaces:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn signal(process: &std::process::Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).unwrap();
}

/// Hosts of different leaves reach each other, over both spines, in IPv4 and IPv6; and a pulled
/// link is routed around.
#[test]
fn kernel_routers_forward() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut lab = Lab::builder()
        .name("labk")
        .daemons(Daemons::KernelRouters)
        .up()
        .unwrap();
    for (v6, family) in [(false, "-4"), (true, "-6")] {
        for to in ["h2", "h3", "h4"] {
            let address = lab.host(to).address(v6).to_string();
            let ping = ["ping", family, "-c", "2", "-i", "0.05", "-W", "2", &address];
            lab.host("h1").run(ping).unwrap().expect_ok();
        }
    }
    let address = lab.host("h4").address(false).to_string();
    let hops = |lab: &Lab| {
        let trace = ["traceroute", "-n", "-q", "8", "-w", "1", &address];
        lab.host("h1").run(trace).unwrap().expect_ok()
    };
    let seen = hops(&lab);
    assert!(
        seen.contains("10.201.1.0") && seen.contains("10.202.1.0"),
        "{seen}"
    );
    lab.link_down("leaf2", "spine1").unwrap();
    let seen = hops(&lab);
    assert!(
        !seen.contains("10.201.1.0") && seen.contains("10.202.1.0"),
        "{seen}"
    );
    // In either order.
    lab.link_up("spine1", "leaf2").unwrap();
    let seen = hops(&lab);
    assert!(
        seen.contains("10.201.1.0") && seen.contains("10.202.1.0"),
        "{seen}"
    );
    drop(lab);
    assert_gone("labk");
}

/// A tap shows what passes a link.
#[test]
fn a_tap_sees_every_frame() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = Lab::builder()
        .name("labt")
        .size(1, 1, 2)
        .daemons(Daemons::KernelRouters)
        .tap("h1", "leaf1")
        .up()
        .unwrap();
    let capture = lab.capture("leaf1", "h1", "icmp").unwrap();
    let address = lab.host("h2").address(false).to_string();
    // Each waits for its reply.
    for _ in 0..3 {
        let ping = ["ping", "-c", "1", "-W", "20", &address];
        lab.host("h1").run(ping).unwrap().expect_ok();
    }
    let file = capture.stop().unwrap();
    let seen = lab::capture::dissect(&file, "icmp", &["icmp.type"]).unwrap();
    assert_eq!(seen, ["8", "0", "8", "0", "8", "0"]);
    assert!(
        lab.capture("leaf1", "h2", "").is_err(),
        "a link without a tap"
    );
}

/// What `fabric lab up` printed to be tried on nodes, without the program.
fn hints(printed: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(printed)
        .lines()
        .filter_map(|line| line.split_once("fabric lab exec "))
        .map(|(_, words)| format!("lab exec {words}"))
        .collect()
}

/// With no daemons the hint is how to start one: its configuration is there and can be loaded.
#[test]
fn a_laboratory_without_daemons_says_how_to_start_one() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    sweep("labn").unwrap();
    let fabric = |words: &[&str]| Command::new(FABRIC).args(words).output().unwrap();
    let size = ["--leaves", "1", "--spines", "1", "--hosts", "1"];
    let up = ["lab", "up", "--name", "labn", "--no-daemons"];
    let made = fabric(&[&up[..], &size, &["--tap", "leaf1:spine1"]].concat());
    assert!(made.status.success());
    let text = String::from_utf8_lossy(&made.stdout);
    let tap = "tap on leaf1–spine1: ip netns exec labn-tap1 tcpdump -i lower";
    assert!(text.contains(tap), "{text}");
    let hints = hints(&made.stdout);
    assert_eq!(hints.len(), 1, "{hints:?}");
    let mut words: Vec<_> = hints[0].split_whitespace().collect();
    words.push("check");
    let checked = fabric(&words);
    assert!(checked.status.success(), "{checked:?}");
    Lab::open("labn").unwrap().down().unwrap();
    assert_gone("labn");
}

/// A detached laboratory survives the command that made it; `up` on top of it is refused; `down`
/// leaves nothing, not even processes that were started in it.
#[test]
fn up_and_down_leave_nothing_behind() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    sweep("labd").unwrap();
    let fabric = |words: &[&str]| Command::new(FABRIC).args(words).output().unwrap();
    let up = [
        "lab",
        "up",
        "--name",
        "labd",
        "--hosts",
        "2",
        "--kernel-routers",
    ];
    let made = fabric(&up);
    assert!(made.status.success());
    let hints = hints(&made.stdout);
    assert_eq!(hints.len(), 2, "{hints:?}");
    for hint in &hints {
        let words: Vec<_> = hint.split_whitespace().collect();
        assert!(fabric(&words).status.success(), "{hint}");
    }
    let again = fabric(&up);
    assert!(!again.status.success());
    let text = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(text.contains("is up already"), "{text}");
    let lab = Lab::open("labd").unwrap();
    let mut sleeper = lab.host("h1").spawn(["sleep", "1000"]).unwrap();
    let echo = fabric(&[
        "lab",
        "exec",
        "--name",
        "labd",
        "h2",
        "sh",
        "-c",
        "echo hello; exit 7",
    ]);
    assert_eq!(
        (echo.status.code(), echo.stdout.as_slice()),
        (Some(7), b"hello\n".as_slice())
    );
    // The command's own laboratory, not the caller's.
    let inner = Command::new(FABRIC)
        .args(["lab", "exec", "--name", "labd", "h1", "sh", "-c"])
        .arg("echo $FABRIC_LAB")
        .env("FABRIC_LAB", "other")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&inner.stdout), "labd\n");
    for (words, reason) in [
        (
            &["logs", "--name", "labd", "leaf1"][..],
            "no log of leaf1 in /run/fabric/labd/leaf1/switchd.log: this laboratory was brought up \
             without switchd",
        ),
        (
            &["link", "--name", "labd", "leaf1", "leaf2", "down"],
            "no link between 'leaf1' and 'leaf2': leaf1 has links to h1, spine1, spine2; leaf2 has",
        ),
    ] {
        let refused = fabric(&[&["lab"], words].concat());
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains(reason), "{text}");
    }
    assert!(fabric(&["lab", "down", "--name", "labd"]).status.success());
    assert_gone("labd");
    assert!(!sleeper.wait().unwrap().success());
    assert!(matches!(Lab::open("labd"), Err(LabError::Absent(_))));
}

/// After kill -9 of the supervisor the next `up` of that name starts from nothing.
#[test]
fn up_replaces_what_a_killed_one_has_left() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    sweep("labz").unwrap();
    let build = || {
        Lab::builder()
            .name("labz")
            .size(1, 1, 2)
            .daemons(Daemons::KernelRouters)
            .detached()
            .up()
    };
    build().unwrap();
    kill(supervisor("labz").unwrap(), Signal::SIGKILL).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(namespaces_of("labz").unwrap().len(), 4);
    let lab = build().unwrap();
    let address = lab.host("h2").address(true).to_string();
    lab.host("h1")
        .run(["ping", "-c", "1", "-W", "2", &address])
        .unwrap()
        .expect_ok();
    lab.down().unwrap();
    assert_gone("labz");
}

/// Namespaces that others have made under names of a laboratory are refused by name, and stay;
/// `fabric lab list` shows what is there.
#[test]
fn namespaces_of_others_are_left_alone() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    sweep("labn").unwrap();
    lab::command::run("ip", &["netns", "add", "labn-leaf1"]).unwrap();
    let build = || {
        Lab::builder()
            .name("labn")
            .size(1, 1, 1)
            .daemons(Daemons::KernelRouters)
            .up()
    };
    let refusal = build().map(drop).unwrap_err().to_string();
    assert!(
        refusal.contains("'labn' did not make the network namespaces labn-leaf1: "),
        "{refusal}"
    );
    sweep("labn").unwrap();
    assert_eq!(namespaces_of("labn").unwrap(), ["labn-leaf1"]);
    lab::command::run("ip", &["netns", "delete", "labn-leaf1"]).unwrap();

    let list = || {
        let output = Command::new(FABRIC)
            .args(["lab", "list", "--json"])
            .output();
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        rows.into_iter().find(|row| row["name"] == "labn")
    };
    assert_eq!(list(), None);
    let lab = build().unwrap();
    let row = list().unwrap();
    assert_eq!(
        (&row["up"], &row["hosts"]),
        (&true.into(), &1.into()),
        "{row}"
    );
    // One that others make beside a laboratory stays as well.
    lab::command::run("ip", &["netns", "add", "labn-h9"]).unwrap();
    lab.down().unwrap();
    assert_eq!(namespaces_of("labn").unwrap(), ["labn-h9"]);
    lab::command::run("ip", &["netns", "delete", "labn-h9"]).unwrap();
    assert_eq!(list(), None);
}

/// A laboratory that belongs to a process goes when that process goes, even by kill -9; and an
/// interrupted `up` takes down what it has made.
#[test]
fn a_laboratory_goes_with_the_process_that_made_it() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    sweep("labg").unwrap();
    let hold = || {
        let mut holder = Command::new(FABRIC)
            .args([
                "lab",
                "up",
                "--name",
                "labg",
                "--kernel-routers",
                "--foreground",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !Lab::open("labg").is_ok_and(|lab| lab.daemons().is_ok()) {
            assert!(Instant::now() < deadline, "not up: {:?}", holder.try_wait());
            std::thread::sleep(Duration::from_millis(20));
        }
        holder
    };
    for ending in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM] {
        let mut holder = hold();
        signal(&holder, ending);
        holder.wait().unwrap();
        assert_gone("labg");
    }
    // Interrupted at any moment of its coming up.
    for delay in [5, 30, 60, 90, 120] {
        let mut up = Command::new(FABRIC)
            .args([
                "lab",
                "up",
                "--name",
                "labg",
                "--kernel-routers",
                "--foreground",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        signal(&up, Signal::SIGINT);
        up.wait().unwrap();
        assert_gone("labg");
    }
}

/// Bad input: options that cannot be, nodes that are not there.
#[test]
fn mistakes_are_named() {
    let fabric = |words: &[&str]| {
        let output = Command::new(FABRIC).args(words).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(fabric(&["lab", "up", "--mtu", "9217"]).contains("--mtu: 9217 is not in 1280..="));
    let hosts = fabric(&["lab", "up", "--hosts", "300"]);
    assert!(hosts.contains("300 is not in 1..=250: a host's"), "{hosts}");
    let twice = ["--tap", "leaf1:spine1", "--tap", "leaf1:spine1"];
    let twice = fabric(&[&["lab", "up"], &twice[..]].concat());
    assert!(
        twice.contains("'leaf1' and 'spine1' is named twice"),
        "{twice}"
    );
    assert!(fabric(&["lab", "up", "--name", "a-b"]).contains("--name"));
    assert!(fabric(&["lab", "up", "--speed", "fast"]).contains("fast"));
    assert!(fabric(&["lab", "status", "--name", "nolab"]).contains("no laboratory 'nolab' is up"));
    assert!(fabric(&["lab", "exec", "--name", "nolab", "h1", "true"]).contains("nolab"));
}
