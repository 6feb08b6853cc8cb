//! Interfaces that come, go and change while the real daemon runs.

use crate::support::{Rig, eventually, privileged};
use std::process::Child;

/// The row of a port; `null` if there is none.
fn port(rig: &Rig, name: &str) -> serde_json::Value {
    let rows = rig.ctl(&["ports"]);
    let found = rows.as_array().unwrap().iter();
    let mut found = found.filter(|row| row["name"] == name);
    found.next().cloned().unwrap_or_default()
}

fn state(rig: &Rig, name: &str) -> String {
    port(rig, name)["state"].as_str().unwrap_or("").to_owned()
}

fn reason(rig: &Rig, name: &str) -> String {
    port(rig, name)["reason"].as_str().unwrap_or("").to_owned()
}

fn status(rig: &Rig) -> (bool, String) {
    // It fails while something is wrong.
    let output = rig.ctl_output(&["--json", "status"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let healthy = status["healthy"].as_bool().unwrap();
    assert_eq!(output.status.success(), healthy);
    (healthy, status["problems"].to_string())
}

fn events(rig: &Rig, kind: &str, name: &str) -> Vec<String> {
    let events = rig.ctl(&["events"]);
    let events = events.as_array().unwrap().iter();
    events
        .filter(|event| event["kind"] == kind && event["port"] == name)
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect()
}

fn metrics(rig: &Rig) -> String {
    rig.on("sw", "curl", &["-s", "http://127.0.0.1:9101/metrics"])
}

/// SW-1, SW-2: an interface that matches a pattern and appears while switchd runs is a port: routes
/// over it are followed. It vanishes, and its routes with it; under its name it comes back. Packets
/// between other ports lose nothing.
#[test]
fn an_interface_comes_and_goes() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pc");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 3, 50), 3);
    assert_eq!(status(&rig), (true, "[]".to_owned()));
    let others = rig.start_ping("10.2.0.2", 600, 5);
    for round in 0..3_u64 {
        rig.link(4, "b");
        eventually("port", || state(&rig, "p4") == "up");
        rig.ip("sw", "route add 10.9.0.0/16 via 10.4.0.2");
        eventually("neighbour", || rig.ping("10.9.0.1", 1, 50) == 1);
        let before = rig.sent("p4");
        assert_eq!(rig.ping("10.4.0.2", 3, 50), 3, "round {round}");
        assert_eq!(rig.ping("10.9.0.1", 3, 50), 3, "round {round}");
        assert!(rig.sent("p4") >= before + 6, "it is switchd that forwards");
        assert_eq!(status(&rig), (true, "[]".to_owned()), "round {round}");
        assert_eq!(port(&rig, "p4")["link_downs"], round);
        rig.ip("sw", "link del p4");
        eventually("end of the port", || port(&rig, "p4").is_null());
        assert_eq!(rig.ping("10.9.0.1", 1, 50), 0);
        // It came by a pattern: nobody misses it.
        assert_eq!(status(&rig), (true, "[]".to_owned()), "round {round}");
        let text = metrics(&rig);
        assert!(!text.contains("{port=\"p4\""), "round {round}: {text}");
        let forgotten = format!("switchd_ports_forgotten_total {}\n", round + 1);
        assert!(text.contains(&forgotten), "round {round}: {text}");
        let routes = rig.ctl(&["routes"]).to_string();
        assert!(!routes.contains("10.4.0.2"), "{routes}");
    }
    let seen = others.finish().unwrap();
    assert_eq!(seen.received, 600, "others lose nothing: {seen:?}");
    let leaked = rig.ctl_output(&["--json", "status"]).stdout;
    let leaked: serde_json::Value = serde_json::from_slice(&leaked).expect("JSON");
    assert_eq!(leaked["frames_leaked"], 0);
    assert_eq!(rig.ctl(&["ports"]).as_array().unwrap().len(), 3);
    let told = events(&rig, "port", "p4");
    let forgotten = told.iter().filter(|text| text.contains("it is forgotten"));
    assert_eq!(forgotten.count(), 3, "{told:?}");
}

/// SW-1, MG-5: a switch whose patterns match nothing at the start waits for its first port, and
/// says that it has none. It forwards between ports that come; when all have gone it has none
/// again.
#[test]
fn a_switch_waits_for_its_first_port() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pw");
    for number in 1..=3 {
        rig.ip("sw", &format!("link del p{number}"));
    }
    rig.start_unwell(&[]);
    assert_eq!(rig.ctl(&["ports"]), serde_json::json!([]));
    let (healthy, problems) = status(&rig);
    let told = problems.contains("there is no port: no interface matches");
    assert!(!healthy && told, "{problems}");
    rig.link(1, "a");
    rig.ip("a", "route add default via 10.1.0.1");
    rig.link(2, "b");
    rig.ip("b", "route add default via 10.2.0.1");
    for name in ["p1", "p2"] {
        eventually("port", || state(&rig, name) == "up");
    }
    assert_eq!(status(&rig), (true, "[]".to_owned()));
    eventually("neighbours", || rig.ping("10.2.0.2", 1, 50) == 1);
    let before = rig.sent("p2");
    assert_eq!(rig.ping("10.2.0.2", 3, 50), 3);
    assert!(rig.sent("p2") >= before + 3, "it is switchd that forwards");
    for number in 1..=2 {
        rig.ip("sw", &format!("link del p{number}"));
    }
    eventually("no port again", || {
        status(&rig).1.contains("there is no port")
    });
}

/// SW-1, MG-5: a port that is configured by its name is missed while its interface is gone.
#[test]
fn a_port_by_name_is_missed() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pn");
    rig.start(&["port=[{name=\"p3\"}]"]);
    assert_eq!(status(&rig), (true, "[]".to_owned()));
    rig.ip("sw", "link del p3");
    eventually("end of the port", || state(&rig, "p3") == "absent");
    let (healthy, problems) = status(&rig);
    let missed = problems.contains("p3 is down: there is no such interface");
    assert!(!healthy && missed, "{problems}");
    assert!(metrics(&rig).contains("switchd_port_open{port=\"p3\"} 0"));
    rig.link(3, "b");
    eventually("port again", || state(&rig, "p3") == "up");
    assert_eq!(status(&rig), (true, "[]".to_owned()));
}

/// SW-1: a port whose MAC address changes while switchd runs goes on under the new one: frames to
/// it are forwarded, and those to the former one are nobody's.
#[test]
fn a_port_gets_another_mac_address() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pm");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    let macs = ["02:11:22:33:44:55", "02:66:77:88:99:aa"];
    for mac in macs {
        rig.ip("sw", &format!("link set p1 address {mac}"));
        rig.ip("sw", &format!("link set p2 address {mac}"));
        eventually("new address", || port(&rig, "p1")["mac"] == mac);
        rig.ip("a", "neighbour flush dev e1");
        rig.ip("b", "neighbour flush dev e2");
        eventually("neighbours", || rig.ping("10.2.0.2", 1, 50) == 1);
        let before = rig.sent("p2");
        assert_eq!(rig.ping("10.2.0.2", 3, 50), 3);
        assert!(rig.sent("p2") >= before + 3, "it is switchd that forwards");
        let known = rig.on("a", "ip", &["neighbour", "show", "10.1.0.1"]);
        assert!(known.contains(mac), "{known}");
    }
    let former = macs[0];
    rig.ip(
        "a",
        &format!("neighbour replace 10.1.0.1 lladdr {former} dev e1 nud permanent"),
    );
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 0);
}

/// SW-1: a port that is renamed goes on under its new name if that matches, and is none any more if
/// it does not.
#[test]
fn an_interface_is_renamed() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pr");
    rig.start(&[]);
    let rename = |rig: &Rig, from: &str, to: &str| {
        rig.ip("sw", &format!("link set {from} down"));
        rig.ip("sw", &format!("link set {from} name {to}"));
        rig.ip("sw", &format!("link set {to} up"));
    };
    let before = port(&rig, "p2");
    rename(&rig, "p2", "p7");
    eventually("port of another name", || state(&rig, "p7") == "up");
    assert_eq!(port(&rig, "p7")["ifindex"], before["ifindex"]);
    assert!(port(&rig, "p2").is_null());
    assert_eq!(events(&rig, "port", "p7"), ["it was p2 before"]);
    eventually("way", || rig.ping("10.2.0.2", 1, 50) == 1);
    let before = rig.sent("p7");
    assert_eq!(rig.ping("10.2.0.2", 5, 20), 5);
    assert!(rig.sent("p7") >= before + 5);
    assert!(status(&rig).0);
    rename(&rig, "p7", "x7");
    eventually("end of the port", || port(&rig, "p7").is_null());
    // The kernel has its packets now, and does not forward.
    assert_eq!(rig.ping("10.2.0.2", 1, 50), 0);
    let program = rig.on("sw", "ip", &["link", "show", "x7"]);
    assert!(!program.contains("xdp"), "{program}");
    rename(&rig, "x7", "p7");
    eventually("port again", || state(&rig, "p7") == "up");
    eventually("way", || rig.ping("10.2.0.2", 1, 50) == 1);
    assert!(status(&rig).0, "{:?}", status(&rig));
}

/// SW-1: an MTU above what AF_XDP carries takes a port out of use, with the reason; another one
/// brings it back.
#[test]
fn an_mtu_is_too_large_for_a_while() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pm");
    rig.ip("b", "route replace default via 10.3.0.1");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    rig.ip("sw", "link set p2 mtu 1280");
    eventually("smaller MTU", || port(&rig, "p2")["mtu"] == 1280);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    rig.ip("sw", "link set p2 mtu 9217");
    eventually("refusal", || state(&rig, "p2") == "failed");
    let why = reason(&rig, "p2");
    assert!(why.contains("MTU 9217 is above 9216"), "{why}");
    let (healthy, problems) = status(&rig);
    assert!(!healthy && problems.contains("MTU 9217"), "{problems}");
    assert_eq!(rig.ping("10.2.0.2", 1, 50), 0);
    assert_eq!(rig.ping("10.3.0.2", 2, 50), 2, "others forward");
    rig.ip("sw", "link set p2 mtu 1500");
    eventually("port again", || state(&rig, "p2") == "up");
    eventually("way", || rig.ping("10.2.0.2", 1, 50) == 1);
    assert!(status(&rig).0, "{:?}", status(&rig));
}

/// SW-1, MG-1: what cannot be opened is tried again and shown with the reason; what finds no room
/// is refused by name. Neither ends the daemon, nor is an interface stacked on a port one itself.
#[test]
fn an_interface_that_cannot_be_a_port_is_shown() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pf");
    rig.start(&["memory.spare_queues=1"]);
    // Its second receive queue could not send.
    rig.ip(
        "sw",
        "link add p5 numrxqueues 2 numtxqueues 1 type veth peer name x5 numrxqueues 1 numtxqueues 1",
    );
    eventually("refusal", || state(&rig, "p5") == "failed");
    let why = reason(&rig, "p5");
    assert!(why.contains("2 receive queues"), "{why}");
    let (healthy, problems) = status(&rig);
    assert!(!healthy && problems.contains("p5 is down: "), "{problems}");
    assert_eq!(events(&rig, "port", "p5").len(), 1, "said once");
    // Its slot is the last one.
    rig.link(4, "b");
    eventually("refusal", || status(&rig).1.contains("p4: it matches"));
    assert!(metrics(&rig).contains("switchd_ports_refused_total 1"));
    rig.ip("sw", "link add pbr type bridge");
    rig.ip("sw", "link del p5");
    eventually("port in its place", || state(&rig, "p4") == "up");
    assert_eq!(rig.ping("10.4.0.2", 3, 50), 3);
    let (healthy, problems) = status(&rig);
    assert!(healthy, "{problems}");
    assert!(!metrics(&rig).contains("pbr"));
}

/// SW-1, SW-12: a lossless port that comes when packet memory for such ports is short gets receive
/// rings that are shorter than its poll gap asks: its event, the status and `switchctl config` say
/// so while it is there. With memory for it the rings are as long as they should be.
#[test]
fn a_port_that_comes_tells_of_short_rings() {
    if !privileged() {
        return;
    }
    // 1,489 of the shortest frames in 100 µs at the 10 Gb/s that veth reports.
    let lossless = "[qos.flow_control]\nmode = \"pfc\"\n[[qos.group]]\n\
        groups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = \"auto\"\n\
        [[qos.queue]]\nqueues = [3]\nlossless = true\n";
    // It comes with three queues: memory for two of them is enough for three with shorter rings.
    for (spare, ring) in [(2, 1024), (3, 2048)] {
        let mut rig = Rig::new("ps");
        rig.settings(lossless);
        rig.start(&[&format!("memory.spare_queues={spare}")]);
        let about_rings = |rig: &Rig| {
            let status = rig.ctl(&["status"]);
            let warnings = status["warnings"].as_array().unwrap().iter();
            let texts = warnings.map(|it| it.as_str().unwrap().to_owned());
            texts
                .filter(|text| text.contains("receive ring"))
                .collect::<Vec<_>>()
        };
        assert_eq!(about_rings(&rig), Vec::<String>::new());
        let queues = "numrxqueues 3 numtxqueues 3";
        rig.ip(
            "sw",
            &format!("link add p4 {queues} type veth peer name e4 {queues}"),
        );
        rig.ip("sw", "link set e4 up");
        rig.ip("sw", "link set p4 up");
        eventually("port", || state(&rig, "p4") == "up");
        let config = rig.ctl(&["config"]);
        let mut rows = config["derived"].as_array().unwrap().iter();
        let row = rows.find(|row| row["port"] == "p4" && row["name"] == "receive_ring");
        assert_eq!(row.expect("a row")["value"], ring.to_string());
        let told = events(&rig, "port", "p4");
        let short =
            "its receive rings hold 1024 frames, not the 2048 that its lossless groups need";
        let is_short = ring < 2048;
        let texts = told.iter().filter(|text| text.contains(short));
        assert_eq!(texts.count(), usize::from(is_short), "{told:?}");
        let warnings = about_rings(&rig);
        assert_eq!(warnings.len(), usize::from(is_short), "{warnings:?}");
        let warned = "p4: its receive ring (memory.ring) holds 1024 frames, but up to 1489 arrive";
        assert!(
            warnings.iter().all(|text| text.starts_with(warned)),
            "{warnings:?}"
        );
        rig.ip("sw", "link del p4");
        eventually("end of the port", || port(&rig, "p4").is_null());
        eventually("end of what it asked for", || {
            let config = rig.ctl(&["config"]);
            let mut rows = config["derived"].as_array().unwrap().iter();
            about_rings(&rig).is_empty() && rows.all(|row| row["port"] != "p4")
        });
    }
}

/// MG-1, MG-5: a port's link is shown as the administrator has it and as it is, with its changes,
/// in the table, as events and as metrics, also those too fast to be told; while it is down not all
/// is well.
#[test]
fn links_are_watched() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pl");
    rig.start(&[]);
    let row = port(&rig, "p3");
    assert_eq!(
        (&row["admin_up"], &row["carrier"]),
        (&true.into(), &true.into())
    );
    assert!(row["last_change"].is_null() && row["reason"].is_null());
    rig.ip("b", "link set e3 down");
    eventually("lost carrier", || state(&rig, "p3") == "down");
    let row = port(&rig, "p3");
    assert_eq!(
        (&row["admin_up"], &row["carrier"]),
        (&true.into(), &false.into())
    );
    assert_eq!(reason(&rig, "p3"), "no carrier");
    assert!(status(&rig).1.contains("p3 is down: no carrier"));
    let health = ["-s", "-o", "/dev/null", "-w", "%{http_code}"];
    let health = [&health[..], &["http://127.0.0.1:9101/healthz"]].concat();
    assert_eq!(rig.on("sw", "curl", &health), "503");
    rig.ip("sw", "link set p3 down");
    eventually("port set down", || reason(&rig, "p3") == "it is set down");
    rig.ip("b", "link set e3 up");
    rig.ip("sw", "link set p3 up");
    eventually("link", || state(&rig, "p3") == "up");
    let row = port(&rig, "p3");
    assert_eq!(
        (&row["link_ups"], &row["link_downs"]),
        (&1.into(), &1.into())
    );
    assert!(row["last_change"].as_f64().unwrap() > 1e9);
    assert_eq!(
        events(&rig, "link_down", "p3"),
        ["the link is down: no carrier"]
    );
    assert_eq!(events(&rig, "link_up", "p3"), ["the link is up"]);
    let text = metrics(&rig);
    for line in [
        "switchd_port_link_changes_total{port=\"p3\",to=\"down\"} 1",
        "switchd_port_link_changes_total{port=\"p3\",to=\"up\"} 1",
        "switchd_port_link_changes_total{port=\"p2\",to=\"up\"} 0",
        "switchd_port_admin_up{port=\"p3\"} 1",
        "switchd_port_carrier{port=\"p3\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(status(&rig).0);
    // So fast that some are over before they are told; the kernel counts them all.
    let flaps =
        "for n in 1 2 3 4; do echo link set e3 down; echo link set e3 up; done | ip -batch -";
    rig.on("b", "sh", &["-c", flaps]);
    let counts = |row: &serde_json::Value| [&row["link_ups"], &row["link_downs"]].map(|it| it == 5);
    eventually("all flaps", || counts(&port(&rig, "p3")) == [true; 2]);
}

/// A device that tells a speed, one that can be set: a tap, which has a carrier while a program
/// holds it.
struct Tap(Child);

impl Tap {
    fn new(rig: &Rig, name: &str) -> Self {
        // TUNSETIFF, IFF_TAP and IFF_NO_PI (linux/if_tun.h).
        let script = format!(
            "import fcntl,struct,time\n\
             f=open('/dev/net/tun','r+b',buffering=0)\n\
             fcntl.ioctl(f,0x400454ca,struct.pack('16sH14x',b'{name}',0x1002))\n\
             time.sleep(3600)\n"
        );
        let mut command = rig.command("sw", "python3", &["-c", &script]);
        Self(command.spawn().expect("python3"))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("our child");
    }
}

/// SW-1, SW-15, SW-31: a port follows the speed of its device when its link was negotiated again.
#[test]
fn a_link_that_negotiates_again_is_followed() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("pn");
    rig.start(&[]);
    let _tap = Tap::new(&rig, "p4");
    // It may be one with its first speed, or be opened still.
    eventually("port", || !state(&rig, "p4").is_empty());
    for (mbps, speed) in [("1000", "1Gbps"), ("25000", "25Gbps"), ("100", "100Mbps")] {
        let set = [
            "-s", "p4", "speed", mbps, "duplex", "full", "autoneg", "off",
        ];
        rig.on("sw", "ethtool", &set);
        // The kernel says nothing of the speed itself.
        for link in ["down", "up"] {
            rig.ip("sw", &format!("link set p4 {link}"));
        }
        eventually(speed, || {
            let p4 = port(&rig, "p4");
            p4["speed"] == speed && p4["state"] == "up"
        });
    }
    assert_eq!(port(&rig, "p2")["speed"], "10Gbps", "its veth's, as ever");
}
