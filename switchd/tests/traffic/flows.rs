//! Tables of flows as an operator meets them: elephants, and the paths that flowlets take.

use super::{CS3, queue};
use crate::support::{Rig, eventually, privileged};

/// Flows are remembered for longer than the test takes to look.
const FLOWS: &str = "[[qos.elephants]]\nfrom = 3\nto = 2\nbytes = 20000\nageing_milliseconds = 60000\n\
    [ecmp.dlb]\nmode = \"flowlet\"\nageing_milliseconds = 4000\n";

/// Bytes of each frame: 1000 with the headers of UDP, IPv4 and Ethernet.
const FRAME: u64 = 1000 + 8 + 20 + 14;

/// Of 100 frames, those from the one on that makes it more than 20000 bytes.
const ELEPHANT: u64 = 100 - 20_000 / FRAME;

/// `a` sends so many datagrams of 1000 bytes, of priority 3, from a port of its own to 10.9.0.1.
fn send(rig: &Rig, from: u16, count: u32) {
    let script = format!(
        "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('',{from}))\n\
         s.setsockopt(socket.IPPROTO_IP,socket.IP_TOS,{CS3})\n\
         for n in range({count}):\n s.sendto(b'x'*1000,('10.9.0.1',9))\n time.sleep(0.0005)\n"
    );
    rig.on("a", "python3", &["-c", &script]);
}

/// SW-17, SW-4, MG-7: of a large flow and a small one both are shown with the port that they leave
/// by, and the large one as an elephant; its packets are in the queue of elephants.
#[test]
fn flows_are_shown() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("f");
    rig.settings(FLOWS);
    rig.start(&[
        "port_defaults.speed=1Gbps",
        "port_defaults.link_speed=1Gbps",
    ]);
    rig.ip(
        "sw",
        "route add 10.9.0.0/16 nexthop via 10.2.0.2 nexthop via 10.3.0.2",
    );
    eventually("resolved gateways", || {
        let hops = rig.ctl(&["nexthops"]);
        let known = |address: &str| {
            let mut hops = hops.as_array().unwrap().iter();
            hops.any(|hop| hop["address"] == address && hop["mac"].is_string())
        };
        known("10.2.0.2") && known("10.3.0.2")
    });
    for topic in ["elephants", "flowlets"] {
        assert_eq!(rig.ctl(&[topic]), serde_json::json!([]), "{topic}");
    }

    send(&rig, 20_001, 3);
    send(&rig, 20_002, 100);
    eventually("both flows", || {
        rig.ctl(&["flowlets"])
            .as_array()
            .is_some_and(|rows| rows.len() == 2)
    });
    let flowlets = rig.ctl(&["flowlets"]);
    let flowlets = flowlets.as_array().unwrap();
    assert_eq!(flowlets.len(), 2, "{flowlets:?}");
    assert_ne!(flowlets[0]["flow"], flowlets[1]["flow"]);
    for row in flowlets {
        let leaves = (row["address"].as_str(), row["port"].as_str());
        assert!(
            [
                (Some("10.2.0.2"), Some("p2")),
                (Some("10.3.0.2"), Some("p3"))
            ]
            .contains(&leaves),
            "{row}"
        );
        assert_eq!(row["inside"], false, "256 µs are over: {row}");
    }
    let one = rig.ctl(&["flowlets", "--limit", "1"]);
    assert_eq!(one.as_array().unwrap().len(), 1);

    eventually("an elephant that was sent", || {
        let sent = ["p2", "p3"].map(|port| queue(&rig, port, 2)["sent_packets"].as_u64());
        sent.iter().flatten().sum::<u64>() == ELEPHANT
    });
    let elephants = rig.ctl(&["elephants"]);
    let rows = elephants.as_array().unwrap();
    assert_eq!(rows.len(), 1, "the small flow is none: {elephants}");
    let row = &rows[0];
    assert_eq!(
        (&row["class"], &row["queue"], &row["bytes"]),
        (&3.into(), &2.into(), &(ELEPHANT * FRAME).into()),
        "{row}"
    );
    let port = row["port"].as_str().unwrap();
    assert_eq!(queue(&rig, port, 2)["sent_packets"], ELEPHANT);
    let same = |it: &serde_json::Value| it["port"] == port;
    assert!(flowlets.iter().any(same), "{row} {flowlets:?}");
    let hash = |row: &serde_json::Value, key: &str| format!("{:08x}", row[key].as_u64().unwrap());
    for (topic, hash) in [
        ("elephants", hash(row, "hash")),
        ("flowlets", hash(&flowlets[1], "flow")),
    ] {
        let shown = rig.ctl_output(&["show", topic]);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.status.success() && text.contains(&hash), "{text}");
    }
}
