//! Pauses of single ports: each sends and obeys what is configured for it, counted at the speed of
//! its link, and both are shown.

use super::*;

/// A PFC frame that pauses priority 3 for as long as it can, and one that pauses the whole link,
/// sent by `b`.
fn pauses(rig: &Rig) {
    let script = "import socket,struct\ns=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\ns.bind(('e2',0))\n\
        t=[0]*8\nt[3]=65535\nhead='0180c2000001020000000099 8808 '\n\
        s.send(bytes.fromhex(head+'0101 0008')+struct.pack('>8H',*t)+bytes(26))\n\
        s.send(bytes.fromhex(head+'0001 ffff')+bytes(42))\n";
    rig.on("b", "python3", &["-c", script]);
}

/// What is shown of the flow control of a port.
fn port(rig: &Rig, name: &str) -> serde_json::Value {
    let pfc = rig.ctl(&["pfc"]);
    let mut rows = pfc["ports"].as_array().unwrap().iter();
    rows.find(|row| row["port"] == name).unwrap().clone()
}

/// SW-30, SW-31, MG-5: PFC and PAUSE are sent and obeyed as each port is configured, also after a
/// reload; what is not obeyed is counted; the ways and the speed of the link are shown.
#[test]
fn each_port_pauses_and_obeys_as_configured() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("y");
    let own =
        |lines: &str| format!("{LOSSLESS}[[qos.flow_control.port]]\nports = [\"p2\"]\n{lines}\n");
    rig.settings(&own("pfc = \"tx\""));
    // A veth says 10 Gb/s, at which the longest pause takes 3.4 ms; here it is to take 6.7 s.
    rig.start(&[
        "port_defaults.speed=1Gbps",
        "port_defaults.link_speed=5Mbps",
        "qos.watchdog.enabled=false",
    ]);
    assert_eq!(rig.ping("10.2.0.2", 2, 50), 2);
    let shown = |rig: &Rig| {
        let row = port(rig, "p2");
        ["mode", "directions", "link_speed"].map(|key| row[key].as_str().unwrap().to_owned())
    };
    assert_eq!(shown(&rig), ["pfc", "tx", "5Mbps"]);
    pauses(&rig);
    eventually("two that are counted", || {
        port(&rig, "p2")["control_received"] == 2
    });
    let row = priority(&rig, "p2", 3);
    let told = (
        &row["sends"],
        &row["obeys"],
        &row["ignored"],
        &row["paused"],
    );
    assert_eq!(
        told,
        (&true.into(), &false.into(), &1.into(), &false.into())
    );
    assert_eq!(port(&rig, "p2")["pause_ignored"], 1);

    for (ways, mode, directions, sends) in [
        ("pause = \"rx\"", "pause", "rx", false),
        ("pfc = \"both\"", "pfc", "both", true),
    ] {
        rig.settings(&own(ways));
        rig.ctl(&["reload"]);
        assert_eq!(shown(&rig), [mode, directions, "5Mbps"]);
        pauses(&rig);
        let paused = || priority(&rig, "p2", 3)["paused"] == true;
        eventually("a priority that is paused", paused);
        assert_eq!(priority(&rig, "p2", 3)["sends"], sends);
        assert_eq!(port(&rig, "p1")["directions"], "both");
        let text = rig.on("sw", "curl", &["-s", "http://127.0.0.1:9101/metrics"]);
        for (direction, value) in [("rx", 1), ("tx", u8::from(sends))] {
            let line = format!(
                "switchd_port_flow_control{{port=\"p2\",kind=\"{mode}\",direction=\"{direction}\"}} {value}\n"
            );
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
    // Both at once is no link of 802.1Q: the old configuration stays.
    rig.settings(&own("pfc = \"rx\"\npause = \"tx\""));
    let refused = rig.ctl_output(&["reload"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("a link has PAUSE or PFC, not both"), "{text}");
    assert_eq!(shown(&rig), ["pfc", "both", "5Mbps"]);
    let status = rig.ctl(&["status"]);
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("p2: it is shaped to 1Gbps"), "{warnings}");
}

/// MG-1: a running daemon prints what is in force, with its origin and what follows from it.
#[test]
fn the_configuration_of_a_running_daemon_is_shown() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("z");
    rig.settings(LOSSLESS);
    rig.start(&["port_defaults.speed=1Gbps"]);
    let shown = rig.ctl_output(&["config"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{text}");
    for line in [
        "speed = \"1Gbps\"  # --set",
        "xoff_bytes = 8192  # ",
        "detection_time_milliseconds = 200  # default",
        "# p1: burst_bytes = 12500  # derived from burst_microseconds and speed",
        "# p1: link_speed = 10Gbps  # derived from link_speed and the device",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let table: toml::Table = toml::from_str(&text).expect("TOML");
    assert_eq!(table["qos"]["flow_control"]["mode"].as_str(), Some("pfc"));
}
