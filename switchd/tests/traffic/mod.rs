//! The traffic manager as an operator meets it: the real daemon between real hosts, with holds,
//! reloads and pauses on the wire.

mod flows;
mod resilience;
mod storms;
mod ways;

use crate::support::{Rig, eventually, privileged};
use netns::Echo;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// TOS of DSCP CS3, whose priority is 3.
const CS3: u8 = 0x60;

/// Every class is there: a lossless one that pauses its peer, and one with a share.
const LOSSLESS: &str = "[qos.headroom]\npoll_gap_microseconds = 1000000\n\
    [qos.flow_control]\nmode = \"pfc\"\n\
    [[qos.group]]\ngroups = [3]\nxoff_bytes = 8192\nxon_bytes = 4096\nheadroom = 262144\n\
    [[qos.queue]]\nqueues = [3]\nlossless = true\nweight = 50\n";

/// The row of a queue.
fn queue(rig: &Rig, port: &str, queue: u64) -> serde_json::Value {
    let rows = rig.ctl(&["queues"]);
    let found = rows.as_array().unwrap().iter();
    found
        .clone()
        .find(|row| row["port"] == port && row["queue"] == queue)
        .unwrap_or_else(|| panic!("{port} {queue} is not in {rows}"))
        .clone()
}

/// The row of a priority.
fn priority(rig: &Rig, port: &str, priority: u64) -> serde_json::Value {
    let pfc = rig.ctl(&["pfc"]);
    let rows = pfc["priorities"].as_array().unwrap();
    let found = rows
        .iter()
        .find(|row| row["port"] == port && row["priority"] == priority);
    found.expect("the priority").clone()
}

/// Cells of the buffer in use.
fn in_use(rig: &Rig) -> u64 {
    rig.ctl(&["buffer"])["regions"][0]["used"]["cells"]
        .as_u64()
        .unwrap()
}

/// Sends `count` datagrams of priority 3 from `a` to `b`.
fn send(rig: &Rig, count: u32) {
    let script = format!(
        "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
         s.setsockopt(socket.IPPROTO_IP,socket.IP_TOS,{CS3})\n\
         for n in range({count}):\n s.sendto(b'x'*150,('10.2.0.2',7777))\n time.sleep(0.0005)\n"
    );
    rig.on("a", "python3", &["-c", &script]);
}

/// Counts the datagrams that reach `b`, and ends after so many or some seconds.
fn receive(rig: &Rig, count: u32) -> Child {
    let script = format!(
        "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('10.2.0.2',7777))\n\
         s.settimeout(90)\nprint('ready',flush=True)\nn=0\ntry:\n while n<{count}:\n  s.recv(2000)\n  n+=1\n\
         except TimeoutError: pass\nprint(n)\n"
    );
    python(rig, "b", &script)
}

/// A script that says when it is ready, and then goes on.
fn python(rig: &Rig, node: &str, script: &str) -> Child {
    let mut child = rig
        .command(node, "python3", &["-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
    assert_eq!(&byte, b"ready\n");
    child
}

fn output(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// SW-15: what is in a held queue waits, everything else passes, and nothing is lost when it is let
/// go.
#[test]
fn a_held_queue_waits() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("h");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    rig.ctl(&["clear", "counters"]);
    rig.ctl(&["clear", "watermarks"]);
    rig.ctl(&["hold", "p2", "3"]);
    eventually("a held queue", || queue(&rig, "p2", 3)["held"] == true);
    let receiver = receive(&rig, 100);
    send(&rig, 100);
    eventually("100 that wait", || {
        queue(&rig, "p2", 3)["depth_packets"] == 100
    });
    assert_eq!(queue(&rig, "p2", 3)["sent_packets"], 0);
    assert_eq!(rig.ping("10.2.0.2", 5, 10), 5, "other classes pass");
    assert!(in_use(&rig) >= 100);
    rig.ctl(&["hold", "p2", "3", "--release"]);
    assert_eq!(output(receiver), "100");
    eventually("100 that were sent", || {
        queue(&rig, "p2", 3)["sent_packets"] == 100
    });
    let row = queue(&rig, "p2", 3);
    assert_eq!(
        (row["depth_packets"].as_u64(), row["held"].as_bool()),
        (Some(0), Some(false))
    );
    assert_eq!(row["watermark_bytes"], 100 * 256);
    rig.ctl(&["clear", "watermarks"]);
    assert_eq!(queue(&rig, "p2", 3)["watermark_bytes"], 0);
    eventually("an empty buffer", || in_use(&rig) == 0);
    let kinds: Vec<_> = rig
        .ctl(&["events"])
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["kind"].clone())
        .collect();
    assert_eq!(kinds, ["hold", "release"]);
    let refused = rig.ctl_output(&["hold", "p9", "3"]);
    assert_eq!(refused.status.code(), Some(1));
    // What is held at the end is sent, not lost.
    rig.ctl(&["hold", "p2", "3"]);
    let receiver = receive(&rig, 10);
    send(&rig, 10);
    eventually("10 that wait", || {
        queue(&rig, "p2", 3)["depth_packets"] == 10
    });
    assert_eq!(rig.stop().code(), Some(0));
    assert_eq!(output(receiver), "10");
}

/// MG-1: weights, thresholds and limits change under traffic without a lost packet; a broken file
/// changes nothing.
#[test]
fn a_reload_loses_nothing() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("l");
    rig.settings(LOSSLESS);
    rig.start(&[
        "port_defaults.speed=1Gbps",
        "port_defaults.link_speed=1Gbps",
    ]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    let gap = Duration::from_millis(2);
    let mut echo = Echo::new([10, 2, 0, 2].into(), 600, gap);
    echo.tos = CS3;
    let pings = rig.echo("a", echo);
    for round in 0..20 {
        let text = LOSSLESS
            .replace("weight = 50", &format!("weight = {}", 20 + round))
            .replace(
                "xoff_bytes = 8192",
                &format!("xoff_bytes = {}", 8192 + 256 * round),
            )
            .replace("262144", &format!("{}", 262_144 - 1024 * round));
        rig.settings(&text);
        let changes = rig.ctl(&["reload"]);
        let keys: Vec<&str> = changes
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["key"].as_str().unwrap())
            .collect();
        assert!(keys.contains(&"qos.queue[0].weight"), "{keys:?}");
        std::thread::sleep(Duration::from_millis(30));
    }
    let seen = pings.finish().unwrap();
    assert_eq!(seen.received, 600, "{seen:?}");
    assert_eq!(queue(&rig, "p2", 3)["weight"], 39);
    eventually("an empty buffer", || in_use(&rig) == 0);
    for (wrong, told) in [
        (LOSSLESS.replace("weight = 50", "weight = 0"), "weight"),
        (format!("{LOSSLESS}[ecmp]\nseed = 9\n"), "ecmp.seed"),
        (
            format!("{LOSSLESS}[qos.buffer]\nsize_bytes = 8388608\n"),
            "32768 cells",
        ),
        ("[qos\n".to_owned(), "switchd.toml"),
    ] {
        rig.settings(&wrong);
        let refused = rig.ctl_output(&["reload"]);
        assert_eq!(refused.status.code(), Some(1));
        let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(reason.contains(told), "{told} is not in {reason}");
        assert_eq!(
            queue(&rig, "p2", 3)["weight"],
            39,
            "the old one is in force"
        );
        assert_eq!(rig.ping("10.2.0.2", 1, 10), 1);
    }
    rig.settings(&LOSSLESS.replace("weight = 50", "weight = 77"));
    rig.hang_up();
    eventually("the weight after SIGHUP", || {
        queue(&rig, "p2", 3)["weight"] == 77
    });
    let events = rig.ctl(&["events"]);
    let count = |kind: &str| {
        events
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["kind"] == kind)
            .count()
    };
    assert_eq!((count("reload"), count("reload_refused")), (21, 4));
}

/// SW-31: a PFC frame that arrives stops its priority at that port for its time, and no other.
#[test]
fn a_received_pause_is_obeyed() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("q");
    rig.settings(LOSSLESS);
    // At 2 Mb/s the longest pause takes 65535 × 512 bits / 2 Mb/s = 16.8 s: long enough to look at
    // it. The watchdog would take it for a storm.
    rig.start(&[
        "port_defaults.speed=2Mbps",
        "port_defaults.link_speed=2Mbps",
        "qos.watchdog.enabled=false",
    ]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    let receiver = receive(&rig, 5);
    let script = "import socket,struct\ns=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\ns.bind(('e2',0))\n\
        t=[0]*8\nt[3]=65535\n\
        s.send(bytes.fromhex('0180c2000001020000000099 8808 0101 0008')+struct.pack('>8H',*t)+bytes(26))\n";
    let begun = Instant::now();
    rig.on("b", "python3", &["-c", script]);
    send(&rig, 5);
    assert_eq!(rig.ping("10.2.0.2", 3, 10), 3, "other priorities pass");
    let row = priority(&rig, "p2", 3);
    let waiting = queue(&rig, "p2", 3);
    assert!(
        begun.elapsed() < Duration::from_secs(16),
        "too slow to see it"
    );
    assert_eq!(row["paused"], true, "{row}");
    assert_eq!(row["received_xoff"], 1, "{row}");
    assert_eq!(
        (&waiting["depth_packets"], &waiting["paused"]),
        (&5.into(), &true.into())
    );
    assert_eq!(output(receiver), "5", "they go on when the time is over");
    assert!(begun.elapsed() > Duration::from_millis(16_700));
    let row = priority(&rig, "p2", 3);
    assert_eq!(row["paused"], false);
    let paused = row["paused_milliseconds"].as_f64().unwrap();
    assert!((paused - 16_776.96).abs() < 0.001, "{paused}");
    assert_eq!(priority(&rig, "p1", 3)["received_xoff"], 0);
}

/// SW-31, SW-10: when a class is held back and its group crosses xoff, a PFC frame is on the wire
/// towards the sender, and another one lets it go on; nothing is lost.
#[test]
fn a_full_group_pauses_its_peer() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("x");
    rig.settings(LOSSLESS);
    rig.start(&[
        "port_defaults.speed=1Gbps",
        "port_defaults.link_speed=1Gbps",
    ]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    let capture = python(
        &rig,
        "a",
        "import socket\ns=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(3))\ns.bind(('e1',0x8808))\n\
         s.settimeout(60)\nprint('ready',flush=True)\nseen=[]\ntry:\n while True:\n  seen.append(s.recv(100).hex())\n  \
         if seen[-1][48:52]=='0000': break\nexcept TimeoutError: pass\nprint(*seen)\n",
    );
    let receiver = receive(&rig, 200);
    rig.ctl(&["hold", "p2", "3"]);
    send(&rig, 200);
    eventually("200 that wait", || {
        queue(&rig, "p2", 3)["depth_packets"] == 200
    });
    let groups = rig.ctl(&["pg"]);
    let group = groups
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["port"] == "p1" && it["group"] == 3)
        .unwrap();
    assert_eq!(group["xoff_now"], true, "{group}");
    // 200 cells: 32 below xoff, the rest in headroom.
    assert_eq!(
        (&group["used"]["cells"], &group["headroom"]["cells"]),
        (&32.into(), &168.into())
    );
    assert_eq!(group["xoff"]["bytes"], 8192);
    eventually("an event", || {
        let events = rig.ctl(&["events"]);
        events
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["kind"] == "xoff" && it["port"] == "p1")
    });
    rig.ctl(&["hold", "p2", "3", "--release"]);
    assert_eq!(output(receiver), "200", "lossless");
    let frames = output(capture);
    let frames: Vec<&str> = frames.split(' ').collect();
    // Destination; behind the source: type, opcode, enable vector; the time of priority 3.
    for frame in &frames {
        assert!(
            frame.starts_with("0180c2000001") && frame[24..36] == *"880801010008",
            "{frame}"
        );
    }
    assert_eq!(&frames[0][48..52], "ffff", "{frames:?}");
    assert_eq!(&frames.last().unwrap()[48..52], "0000", "{frames:?}");
    let row = priority(&rig, "p1", 3);
    assert!(
        row["sent_xoff"].as_u64().unwrap() >= 1 && row["sent_xon"].as_u64().unwrap() >= 1,
        "{row}"
    );
    eventually("an empty buffer", || in_use(&rig) == 0);
    let drops = rig.ctl(&["drops"]);
    assert!(!drops.to_string().contains("headroom"), "{drops}");
}

/// MG-7: every topic is shown as a table and as JSON, with what operators look for.
#[test]
fn the_traffic_manager_is_shown() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("t");
    rig.settings(
        &LOSSLESS
            .replace("headroom = 262144", "headroom = \"auto\"")
            .replace("1000000", "100"),
    );
    rig.start(&[
        "port_defaults.speed=100Mbps",
        "port_defaults.link_speed=100Mbps",
    ]);
    assert_eq!(rig.ping("10.2.0.2", 5, 10), 5);
    for (topic, word) in [
        ("buffer", "egress_service"),
        ("pg", "lossless"),
        ("headroom", "peer's frame"),
        ("queues", "strict"),
        ("pfc", "software"),
        ("events", "none"),
        ("workers", "worst gap"),
        ("status", "uptime"),
    ] {
        let shown = rig.ctl_output(&["show", topic]);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(
            shown.status.success() && text.contains(word),
            "{topic}: {text}"
        );
        assert!(!rig.ctl(&[topic]).is_null());
    }
    let headroom = rig.ctl(&["headroom"]);
    let all = headroom
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["port"] == "p1" && it["term"] == "all")
        .unwrap();
    let groups = rig.ctl(&["pg"]);
    let group = groups
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["port"] == "p1" && it["group"] == 3)
        .unwrap();
    assert_eq!(group["headroom_limit"], all["headroom"]);
    let gaps = rig.ctl(&["workers"]);
    let gap = |row: &serde_json::Value| row["worst_gap_microseconds"].as_f64().unwrap();
    let worst = gaps.as_array().unwrap().iter().map(gap).fold(0.0, f64::max);
    assert!(worst > 0.0 && worst < 10e6, "{gaps}");
    let warned = rig.ctl(&["status"])["warnings"]
        .to_string()
        .contains("did not look at its ports");
    assert_eq!(
        warned,
        gaps.as_array().unwrap().iter().any(|it| gap(it) > 100.0),
        "{gaps}"
    );
}
