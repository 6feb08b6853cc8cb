//! switchd as an operator meets it: the real binary between real hosts, driven by `ip`.

mod absence;
mod compute;
mod errors;
mod flows;
mod log;
mod ports;
mod support;
mod traffic;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{Rig, eventually, privileged};

/// MG-1: a daemon whose admin socket another one has touches no interface, and leaves the socket to
/// the other.
#[test]
fn a_second_daemon_for_a_socket_touches_no_interface() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("2d");
    rig.start(&[]);
    rig.ip("sw", "link add x1 type veth peer name x2");
    let mut second = rig.daemon_command(&["ports=[\"x1\"]", "metrics.listen=\"\""]);
    let output = second.output().expect("switchd");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("another switchd listens there"), "{said}");
    assert!(!said.contains("x1: native copy mode"), "{said}");
    assert_eq!(rig.ctl(&["ports"]).as_array().unwrap().len(), 3);
    // One that ends for another reason takes the socket that it made with it.
    rig.stop();
    let mut none = rig.daemon_command(&["metrics.listen=\"192.0.2.1:1\""]);
    let said = none.output().expect("switchd").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("metrics.listen 192.0.2.1:1: "), "{said}");
}

/// MG-7: ports and workers are chosen by name; one that is not there is an error.
#[test]
fn ports_and_workers_are_chosen_by_name() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("cn");
    rig.start(&[]);
    let names = |words: &[&str], key: &str| -> Vec<String> {
        let rows = rig.ctl(words);
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row[key].to_string()).collect()
    };
    assert_eq!(names(&["ports", "p3", "p1"], "name"), ["\"p1\"", "\"p3\""]);
    assert_eq!(names(&["show", "port", "p2"], "name"), ["\"p2\""]);
    assert_eq!(names(&["workers", "1"], "worker"), ["1"]);
    assert_eq!(names(&["workers"], "worker"), ["0", "1"]);
    for (words, wanted) in [
        (["ports", "p9"], "no port is called \"p9\""),
        (["workers", "2"], "no worker is called \"2\""),
    ] {
        let output = rig.ctl_output(&words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{said}");
    }
}

/// SW-1, MG-7: of a bridge's port that switchd serves, only what is for the bridge itself is left
/// to the kernel, and that is what operators are told. At a device that takes tags off it is all.
#[test]
fn what_is_left_to_the_kernel_of_a_bridge_is_told_truly() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("bk");
    rig.on("sw", "ethtool", &["-K", "p1", "rxvlan", "off"]);
    rig.start(&[]);
    rig.ip("sw", "link add br0 up type bridge");
    for port in ["p1", "p2"] {
        rig.ip("sw", &format!("link set {port} master br0"));
    }
    let why = |port: &str| {
        let rows = rig.ctl(&["routes", "--punted"]);
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["port"] == port && row["reason"] == "master");
        row.map_or_else(String::new, |row| row["why"].as_str().unwrap().to_owned())
    };
    let only = "the port belongs to the bridge br0: only packets to the bridge itself";
    eventually("port of a bridge", || why("p1").starts_with(only));
    eventually("port that is the kernel's", || {
        why("p2") == "the port belongs to the bridge br0"
    });
    let told = |port: &str, text: &str| {
        let events = rig.ctl(&["events"]);
        let mut events = events.as_array().unwrap().iter();
        events
            .any(|event| event["port"] == port && event["text"].as_str().unwrap().starts_with(text))
    };
    let to_bridge = "IPv4 packets to the bridge itself are left to the kernel, unless";
    let all = "IPv4 packets are left to the kernel: the port belongs to the bridge br0";
    // Events are told after the programs have been.
    eventually("events", || told("p1", to_bridge) && told("p2", all));
    assert!(!told("p2", to_bridge) && !told("p1", all));
    let remedy = "ethtool -K p2 rxvlan off, and the same with txvlan at its other end";
    eventually("the remedy", || {
        let rows = rig.ctl(&["bridge"]);
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["port"] == "p2");
        let why = row.and_then(|row| row["left_to_kernel"].as_str());
        why.is_some_and(|why| why.ends_with(remedy))
    });
}

/// SW-2: routes of all kinds are followed by the data path; the neighbour of a route is resolved on
/// the way.
#[test]
fn routes_are_followed() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("r");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 2, 100), 2, "connected network");
    assert_eq!(rig.ping("10.9.0.1", 1, 100), 0, "no route");
    let routes = [
        "route add 10.9.0.0/16 via 10.2.0.2",
        "route replace 10.9.0.0/16 via 10.3.0.2",
        "route add 10.9.0.0/24 via 10.2.0.2 metric 20",
        "route replace 10.9.0.1/32 nexthop via 10.2.0.2 nexthop via 10.3.0.2 weight 2",
        "-6 route add 2001:db8:9::/48 nexthop via 2001:db8:2::2 nexthop via 2001:db8:3::2",
    ];
    for route in routes {
        rig.ip("sw", route);
        let to = if route.starts_with("-6") {
            "2001:db8:9::1"
        } else {
            "10.9.0.1"
        };
        eventually(route, || rig.ping(to, 3, 20) == 3);
    }
    rig.ip("sw", "route del 10.9.0.1/32");
    rig.ip("sw", "route del 10.9.0.0/24 metric 20");
    rig.ip("sw", "route replace blackhole 10.9.0.0/16");
    eventually("no way", || rig.ping("10.9.0.1", 2, 20) == 0);
    let drops = rig.ctl(&["drops"]);
    let reasons: Vec<&str> = drops
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["reason"].as_str().unwrap())
        .collect();
    assert!(
        reasons.contains(&"blackhole") && reasons.contains(&"no_route"),
        "{reasons:?}"
    );
}

/// SW-2: IPv4 routes with an IPv6 gateway.
#[test]
fn ipv4_goes_via_ipv6_gateways() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("v");
    rig.start(&[]);
    rig.ip("sw", "route add 10.9.0.0/16 via inet6 2001:db8:3::2");
    eventually("a way", || rig.ping("10.9.0.1", 3, 20) == 3);
    assert!(rig.sent("p3") >= 3);
}

/// SW-2: while routes change, no packet is lost that both the old and the new route could carry.
#[test]
fn route_changes_lose_nothing() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("c");
    rig.ip("sw", "route add 10.9.0.0/16 via 10.2.0.2");
    rig.start(&[]);
    // Both gateways are known before it counts.
    assert_eq!(rig.ping("10.3.0.2", 2, 50), 2);
    assert_eq!(rig.ping("10.9.0.1", 2, 50), 2);
    let pings = rig.start_ping("10.9.0.1", 800, 2);
    for round in 0..40 {
        let gateway = if round % 2 == 0 {
            "10.3.0.2"
        } else {
            "10.2.0.2"
        };
        rig.ip("sw", &format!("route replace 10.9.0.0/16 via {gateway}"));
        if round % 8 == 0 {
            rig.ip("sw", &format!("route add 10.9.0.1/32 via {gateway}"));
            rig.ip("sw", "route del 10.9.0.1/32");
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    let seen = pings.finish().unwrap();
    assert_eq!(seen.received, 800, "{seen:?}");
    assert!(rig.sent("p2") > 100 && rig.sent("p3") > 100);
}

/// SW-2, SW-3: next hop objects with weights; a link that goes down takes only its own flows along.
#[test]
fn next_hop_groups_share_and_survive() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("g");
    rig.start(&[]);
    rig.ip("sw", "nexthop add id 1 via 10.2.0.2 dev p2");
    rig.ip("sw", "nexthop add id 2 via 10.3.0.2 dev p3");
    rig.ip("sw", "nexthop add id 10 group 1,3/2,1");
    rig.ip("sw", "route add 10.9.0.0/16 nhid 10");
    eventually("resolved gateways", || {
        let hops = rig.ctl(&["nexthops"]);
        let hops = hops.as_array().unwrap().clone();
        let known = |address: &str| {
            hops.iter()
                .any(|hop| hop["address"] == address && hop["mac"].is_string())
        };
        known("10.2.0.2") && known("10.3.0.2")
    });
    let counted = |rig: &Rig| {
        rig.ctl(&["clear", "counters"]);
        rig.flows(800);
        // b answers with ICMP by p1; what leaves by p2 and p3 are the flows.
        let counts = || (rig.sent("p2"), rig.sent("p3"));
        eventually("every flow", || counts().0 + counts().1 >= 790);
        counts()
    };
    let (first, second) = counted(&rig);
    assert!((first + second).abs_diff(800) < 20, "{first} + {second}");
    assert!((480..720).contains(&first), "weight 3 of 4: {first}");
    rig.ip("sw", "nexthop replace id 10 group 1/2");
    let hops = |rig: &Rig| rig.ctl(&["ecmp"])[0]["next_hops"].as_array().cloned();
    eventually("equal weights", || {
        hops(&rig).is_some_and(|hops| hops.iter().all(|hop| hop["percent"] == 50.0))
    });
    let (first, second) = counted(&rig);
    assert!(
        (300..500).contains(&first),
        "equal weights: {first}, {second}"
    );
    rig.ip("b", "link set e3 down");
    eventually("one member left", || {
        hops(&rig).is_some_and(|hops| hops.len() == 1)
    });
    let (first, second) = counted(&rig);
    assert!(first >= 790 && second == 0, "{first}, {second}");
    assert_eq!(rig.ping("10.9.0.1", 3, 20), 3);
    let ecmp = rig.ctl(&["ecmp"]);
    assert_eq!(ecmp[0]["next_hops"].as_array().unwrap().len(), 1, "{ecmp}");
    // With the carrier the kernel lost the next hop object; a routing daemon makes it anew.
    rig.ip("b", "link set e3 up");
    eventually("a carrier", || rig.ctl_output(&["status"]).status.success());
    rig.ip("sw", "nexthop replace id 2 via 10.3.0.2 dev p3");
    rig.ip("sw", "nexthop replace id 10 group 1/2");
    eventually("second member back", || {
        rig.ctl(&["ecmp"])[0]["next_hops"]
            .as_array()
            .is_some_and(|ways| ways.len() == 2)
    });
}

/// SW-3: a link of a multipath route goes down and comes back while hundreds of pings pass: only
/// what was on its way to that link can be lost, and both links carry flows again.
#[test]
fn a_link_of_a_multipath_route_goes_and_comes() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("m");
    rig.ip(
        "sw",
        "route add 10.9.0.0/16 nexthop via 10.2.0.2 nexthop via 10.3.0.2",
    );
    rig.start(&[]);
    let members = |rig: &Rig| {
        rig.ctl(&["ecmp"])[0]["next_hops"]
            .as_array()
            .map_or(0, Vec::len)
    };
    eventually("two members", || members(&rig) == 2);
    assert_eq!(rig.ping("10.9.0.1", 3, 20), 3);
    let seen = |rig: &Rig| {
        ["drops", "nexthops", "neighbours", "ecmp", "ports"].map(|topic| rig.ctl(&[topic]))
    };
    let all_answered = |rig: &Rig| {
        let answered = rig.ping("10.9.0.1", 20, 20);
        assert_eq!(answered, 20, "{:?}", seen(rig));
    };
    for _ in 0..2 {
        rig.ip("b", "link set e3 down");
        eventually("one member", || members(&rig) == 1);
        all_answered(&rig);
        rig.ip("b", "link set e3 up");
        eventually("two members again", || members(&rig) == 2);
        all_answered(&rig);
    }
    rig.ctl(&["clear", "counters"]);
    rig.flows(400);
    eventually("flows by both links", || {
        rig.sent("p2") > 100 && rig.sent("p3") > 100
    });
}

/// SW-2: neighbours that change or are forgotten are followed and found again.
#[test]
fn neighbours_are_followed() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("n");
    rig.ip("sw", "route add 10.9.0.0/16 via 10.2.0.2");
    rig.start(&["neighbours.keep_alive_seconds=1"]);
    assert_eq!(rig.ping("10.9.0.1", 2, 50), 2);
    rig.ip("b", "link set e2 address 02:11:22:33:44:55");
    rig.ip("sw", "neigh flush dev p2");
    // Packets that leave before the kernel has told of the change go to the old address.
    eventually("way to the new address", || {
        rig.ping("10.9.0.1", 1, 50) == 1
    });
    assert_eq!(rig.ping("10.9.0.1", 3, 50), 3);
    let hops = rig.ctl(&["nexthops"]).to_string();
    assert!(hops.contains("02:11:22:33:44:55"), "{hops}");
    rig.ip(
        "sw",
        "neigh replace 10.2.0.2 lladdr 02:00:00:00:00:99 dev p2 nud permanent",
    );
    eventually("packet to the address that was set", || {
        rig.ping("10.9.0.1", 1, 50) == 0
    });
    rig.ip("sw", "neigh del 10.2.0.2 dev p2");
    eventually("way back", || rig.ping("10.9.0.1", 1, 50) == 1);
    assert_eq!(rig.ping("10.9.0.1", 3, 50), 3);
}

/// SW-2: the kernel is asked for every gateway, also when they are more than it is asked for at a
/// time.
#[test]
fn many_gateways_are_all_asked_for() {
    const GATEWAYS: u32 = 400;
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("g");
    rig.ip("sw", "address add 10.50.0.1/22 dev p1");
    for number in 0..GATEWAYS {
        let (high, low) = (number / 200, number % 200 + 10);
        rig.ip(
            "sw",
            &format!("route add 10.60.{high}.{low}/32 via 10.50.{high}.{low} dev p1"),
        );
    }
    rig.start(&[]);
    // Nobody is there; that the kernel has an entry shows that it was asked.
    eventually("all gateways are being resolved", || {
        let known = rig.on("sw", "ip", &["neigh", "show", "dev", "p1"]);
        let known = known.lines().filter(|line| line.starts_with("10.50."));
        known.count() == GATEWAYS as usize
    });
}

/// MG-5, MG-1: metrics are clean; garbage on the admin socket is answered; the counters can be
/// cleared.
#[test]
fn operators_and_collectors_are_answered() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("o");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 5, 10), 5);
    let scrape = ["-s", "http://127.0.0.1:9101/metrics"];
    let text = rig.on("sw", "curl", &scrape);
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    for name in [
        "switchd_port_receive_packets_total{port=\"p1\"}",
        "switchd_drops_total{port=\"p1\",reason=\"no_route\"} 0",
        "switchd_queue_depth_bytes{port=\"p1\",queue=\"7\"} 0",
        "switchd_buffer_cells{region=\"service\"} 0",
    ] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    assert_eq!(
        rig.on("sw", "curl", &["-s", "http://127.0.0.1:9101/healthz"]),
        "ok\n"
    );
    for garbage in [
        &b"\xff\xfe\0{{{\n"[..],
        b"{\"show\":{\"topic\":\"moon\"}}\n",
        &[b'a'; 100_000],
        b"",
    ] {
        let mut stream = UnixStream::connect(rig.socket()).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        if stream.read_to_string(&mut answer).is_ok() {
            assert!(answer.contains("error"), "{answer}");
        }
    }
    assert_eq!(rig.ctl(&["show", "status"])["admin_malformed"], 4);
    assert!(rig.sent("p2") >= 5);
    rig.ctl(&["clear", "counters"]);
    assert!(rig.sent("p2") < 5);
    for topic in [
        "queues",
        "routes",
        "nexthops",
        "ecmp",
        "workers",
        "neighbours",
        "buffer",
        "pg",
        "headroom",
        "pfc",
        "events",
    ] {
        rig.ctl(&["show", topic]);
        assert!(rig.ctl_output(&[topic]).status.success());
    }
    assert_covering(&rig);
}

/// Of an address are shown the routes that cover it, and first the one that decides.
fn assert_covering(rig: &Rig) {
    let covering = rig.ctl(&["routes", "10.2.0.2"]);
    let covering = covering.as_array().or_else(|| covering["rows"].as_array());
    let lengths: Vec<u8> = covering
        .expect("rows")
        .iter()
        .map(|row| {
            let prefix: ipnet::IpNet = row["prefix"].as_str().unwrap().parse().unwrap();
            assert!(prefix.contains(&"10.2.0.2".parse::<std::net::IpAddr>().unwrap()));
            prefix.prefix_len()
        })
        .collect();
    assert!(
        !lengths.is_empty() && lengths.is_sorted_by(|a, b| a > b),
        "{lengths:?}"
    );
}

/// MG-1: switchctl says what is missing without a daemon, and that a reload has changed nothing.
#[test]
fn an_operator_is_told_in_a_sentence() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("u");
    rig.start(&[]);
    let refused = Command::new(env!("CARGO_BIN_EXE_switchctl"))
        .args(["--socket", "/nonexistent/s", "status"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("the socket /nonexistent/s does not exist: is switchd running?"),
        "{text}"
    );
    let reloaded = rig.ctl_output(&["reload"]);
    assert_eq!(
        String::from_utf8_lossy(&reloaded.stdout),
        "the configuration was read again: nothing has changed\n"
    );
}

/// SW-1, MG-7: what packets would pass in the kernel, and not in switchd, is warned of by `check`
/// and in the status while it exists.
#[test]
fn filters_that_are_passed_by_are_warned_of() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("f");
    rig.start(&[]);
    let warned = |rig: &Rig| rig.ctl(&["status"])["warnings"].to_string();
    assert!(!warned(&rig).contains("IPsec"), "{}", warned(&rig));
    rig.ip(
        "sw",
        "xfrm policy add src 10.8.0.0/16 dst 10.9.0.0/16 dir fwd",
    );
    eventually("warning", || warned(&rig).contains(": 1 policy of IPsec"));
    let config = rig.daemon_command(&[]);
    let config = config.get_args().last().unwrap().to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_switchd");
    let check = rig
        .command("sw", program, &["check", "-c", config])
        .output();
    let errors = String::from_utf8(check.unwrap().stderr).unwrap();
    assert!(errors.contains(": 1 policy of IPsec"), "{errors}");
    let events = rig.ctl(&["events"]).to_string();
    assert!(events.contains(": 1 policy of IPsec"), "{events}");
    rig.ip("sw", "xfrm policy flush");
    eventually("end of the warning", || !warned(&rig).contains("IPsec"));
}

/// SW-51, MG-7: an operator sees what each stage decided about a packet, and Wireshark why it was
/// dropped; one trace runs at a time.
#[test]
fn packets_are_traced() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("t");
    rig.start(&[]);
    rig.ip("sw", "route add blackhole 10.66.0.0/16");
    let trace = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchctl"));
        command.args(["--json", "--socket"]).arg(rig.socket());
        command.arg("trace").args(words).args(["--seconds", "60"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("switchctl")
    };
    // Of two one is refused, and shows that the other one runs.
    let running = |words: &[&str]| -> Child {
        let mut both = [0, 1].map(|_| trace(words));
        let mut ended = None;
        eventually("a refusal", || {
            let has_ended = |it: &mut Child| it.try_wait().expect("our child").is_some();
            ended = both.iter_mut().position(has_ended);
            ended.is_some()
        });
        let [one, other] = both;
        let (refused, runs) = if ended == Some(0) {
            (one, other)
        } else {
            (other, one)
        };
        let refused = refused.wait_with_output().expect("our child");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("another trace runs"), "{text}");
        runs
    };
    let answer = |child: Child| {
        let output = child.wait_with_output().expect("our child");
        assert!(output.status.success());
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")["traces"][0]
            .clone()
    };
    rig.ping("10.2.0.2", 1, 100);
    let child = running(&["in=p1", "dst=10.2.0.2", "proto=icmp", "count=1"]);
    rig.ping("10.2.0.2", 1, 100);
    let sent = answer(child);
    // A trace ends with its client.
    let mut left = running(&["in=p1", "dst=10.77.0.1"]);
    left.kill().and_then(|()| left.wait()).expect("our child");
    eventually("end of the trace", || {
        let next = rig.ctl_output(&["trace", "--seconds", "0.1"]);
        next.status.success()
    });
    assert_eq!(sent["outcome"], "sent", "{sent}");
    let steps = sent["steps"].as_array().expect("steps").iter();
    let stages: Vec<&str> = steps.filter_map(|step| step["stage"].as_str()).collect();
    assert_eq!(
        (stages.first(), stages.last()),
        (Some(&"received"), Some(&"sent"))
    );
    assert!(
        stages.contains(&"route") && stages.contains(&"enqueued"),
        "{stages:?}"
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("drops.pcapng").display().to_string();
    let mut child = trace(&["drop", "dst=10.66.0.0/16", "count=1", "--pcap", &file]);
    eventually("a packet that is traced", || {
        rig.ping("10.66.0.1", 1, 100);
        child.try_wait().expect("our child").is_some()
    });
    assert_eq!(answer(child)["reason"], "blackhole");
    let words = ["-n", "-r", &file, "-T", "fields", "-e", "frame.comment"];
    let output = Command::new("tshark").args(words).output().expect("tshark");
    assert!(String::from_utf8_lossy(&output.stdout).contains("dropped: blackhole"));
}

/// SIGTERM ends the daemon with status 0 and leaves the devices as they were; it can be started
/// again, also after SIGKILL.
#[test]
fn the_end_leaves_nothing_behind() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("e");
    let links = |rig: &Rig| rig.on("sw", "ip", &["-br", "link"]);
    let before = links(&rig);
    rig.start(&[]);
    assert!(rig.on("sw", "ip", &["link", "show", "p1"]).contains("xdp"));
    assert_eq!(rig.ping("10.2.0.2", 2, 20), 2);
    assert_eq!(rig.stop().code(), Some(0));
    assert_eq!(links(&rig), before);
    assert!(!rig.on("sw", "ip", &["link", "show", "p1"]).contains("xdp"));
    assert!(!rig.socket().exists());
    rig.start(&[]);
    rig.kill();
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 3, 50), 3);
    assert_eq!(rig.stop().code(), Some(0));
}

/// MG-6: systemd is told when the switch forwards, that its workers live, and that it stops.
#[test]
fn the_service_manager_is_told() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("s");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut daemon = rig
        .daemon_command(&[])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .spawn()
        .unwrap();
    let heard = || {
        let mut buffer = [0; 100];
        let len = loop {
            match socket.recv(&mut buffer) {
                // A signal came, as on a machine that was stopped for a moment.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.unwrap(),
            }
        };
        String::from_utf8_lossy(&buffer[..len]).trim().to_owned()
    };
    // What else it says is how it is, once a second at most.
    let statuses = std::cell::RefCell::new(Vec::new());
    let next = || {
        loop {
            let text = heard();
            match text.strip_prefix("STATUS=") {
                Some(status) => statuses.borrow_mut().push(status.to_owned()),
                None => return text,
            }
        }
    };
    assert_eq!(next(), "READY=1");
    for _ in 0..15 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    // The links may be seen later than the daemon is ready, on a machine that does much else.
    eventually("ports that are up", || {
        assert_eq!(next(), "WATCHDOG=1");
        let all_up = |it: &String| it.starts_with("3 of 3 ports up, ");
        statuses.borrow().last().is_some_and(all_up)
    });
    let id = nix::unistd::Pid::from_raw(i32::try_from(daemon.id()).unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    loop {
        match next().as_str() {
            "STOPPING=1" => break,
            text => assert_eq!(text, "WATCHDOG=1"),
        }
    }
    // Half a second to drain, and what the threads and sockets take behind it.
    assert_eq!(next(), "EXTEND_TIMEOUT_USEC=6500000");
    rig.start(&[]);
}
