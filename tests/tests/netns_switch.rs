//! switchd in whole fabrics: real daemons, real AF_XDP, the kernel's own traffic through them.
//!
//! The kernels of the switches do not forward (`ip_forward` is off), so whatever arrives at another
//! leaf was forwarded by switchd.

use std::time::{Duration, Instant};

use lab::load::Watch;
use lab::observe::{
    assert_healthy, assert_idle, drops, eventually, gain, received, rows, switches,
};
use lab::topology::Daemons;
use lab::traffic::{Iperf, Throughput, finish_ping, iperf, ping, start_ping};
use lab::{Lab, capture, exclusive, privileged, shared};

const SHORT: Duration = Duration::from_millis(20);

/// SW-1: every host reaches every other, in IPv4 and IPv6, and no switch loses a packet for it.
#[test]
fn every_host_reaches_every_other() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swping").up().unwrap();
    for v6 in [false, true] {
        for from in lab.hosts() {
            for to in lab.hosts().into_iter().filter(|to| *to != from) {
                let pings = ping(lab.host(from), lab.host(to), v6, 3, SHORT).unwrap();
                assert_eq!(pings.lost(), 0, "{from} to {to}, IPv6 {v6}");
            }
        }
    }
    assert_healthy(&lab, &[]);
}

/// SW-1, RFC 2827: in a laboratory the ports of hosts take packets from the hosts' own networks
/// only, of IPv4 and IPv6, and count the others; the ports between switches take all.
#[test]
fn hosts_cannot_send_from_addresses_of_others() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swspoof").up().unwrap();
    let refused = || {
        let ports = rows(lab.switchctl("leaf1", &["ports"]).unwrap());
        let port = |name: &str| {
            ports
                .iter()
                .find(|row| row["name"] == name)
                .unwrap()
                .clone()
        };
        assert_eq!(port("h1")["source_validation"], "strict");
        assert_eq!(port("spine1")["source_validation"], "off");
        assert_eq!(port("h2")["source_refused"], 0);
        port("h1")["source_refused"].as_u64().unwrap()
    };
    let (h1, h3) = (lab.host("h1"), lab.host("h3"));
    let mut expected = 0;
    // Of a host at the same switch, of one behind both spines, of nobody.
    for source in [
        "10.1.2.2",
        "10.2.4.2",
        "203.0.113.9",
        "fd00:1:2::2",
        "fd00:2:4::2",
        "2001:db8::9",
    ] {
        let v6 = source.contains(':');
        let address = format!("ip address add {source} dev lo");
        h1.run(address.split(' ')).unwrap().expect_ok();
        let to = h3.address(v6).to_string();
        let ping = [
            "ping", "-n", "-c", "3", "-i", "0.05", "-W", "1", "-I", source, &to,
        ];
        let output = h1.run(ping).unwrap();
        assert_eq!(output.stdout.matches("bytes from").count(), 0, "{source}");
        expected += 3;
        assert_eq!(refused(), expected, "{source}: {}", output.stdout);
    }
    for v6 in [false, true] {
        let pings = ping(h1, h3, v6, 3, SHORT).unwrap();
        assert_eq!(pings.lost(), 0, "its own source, IPv6 {v6}");
    }
    assert_eq!(refused(), expected);
}

/// SW-1: the switches are visible as routers: each answers when a packet's time is exceeded.
#[test]
fn traceroute_shows_every_hop() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swtrace").up().unwrap();
    for (v6, leaf, spines, last) in [
        (
            false,
            "10.1.1.1",
            ["10.201.1.0", "10.202.1.0"],
            ["10.201.2.1", "10.202.2.1"],
        ),
        (
            true,
            "fd00:1:1::1",
            ["fd00:ffff:1:1::1", "fd00:ffff:2:1::1"],
            ["fd00:ffff:1:2::2", "fd00:ffff:2:2::2"],
        ),
    ] {
        let to = lab.host("h4").address(v6).to_string();
        let trace = [
            "traceroute",
            if v6 { "-6" } else { "-4" },
            "-n",
            "-q",
            "4",
            "-w",
            "2",
            &to,
        ];
        let text = lab.host("h1").run(trace).unwrap().expect_ok();
        let hops: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(hops.len(), 4, "{text}");
        assert!(hops[0].contains(leaf), "{text}");
        assert!(spines.iter().any(|spine| hops[1].contains(spine)), "{text}");
        assert!(
            last.iter().any(|address| hops[2].contains(address)),
            "{text}"
        );
        assert!(hops[3].contains(&to), "{text}");
    }
}

/// SW-1: a packet that does not fit the next link is answered with the MTU that does, and path MTU
/// discovery of the kernel works on it.
#[test]
fn a_packet_too_big_is_answered_with_the_mtu() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swmtu").up().unwrap();
    lab.host("leaf2")
        .run(["ip", "link", "set", "h4", "mtu", "1400"])
        .unwrap()
        .expect_ok();
    for (v6, answer) in [(false, "mtu = 1400"), (true, "mtu=1400")] {
        let to = lab.host("h4").address(v6).to_string();
        let family = if v6 { "-6" } else { "-4" };
        let big = [
            "ping", family, "-n", "-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", "2000", &to,
        ];
        eventually("an answer with the MTU", Duration::from_secs(20), || {
            let output = lab.host("h1").run(big).unwrap();
            let text = format!("{}{}", output.stdout, output.stderr);
            let learnt =
                text.contains(answer) || text.contains("mtu: 1400") || text.contains("mtu=1400");
            if learnt { Ok(()) } else { Err(text) }
        });
    }
    // What learns, fits.
    let through = iperf(lab.host("h1"), lab.host("h4"), &["-t", "1"]).unwrap();
    assert!(through.bits_per_second > 10e6, "{through:?}");
}

/// SW-1: no route, and no neighbour, are answered instead of swallowed.
#[test]
fn what_cannot_be_delivered_is_answered() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swunre").up().unwrap();
    for (to, what) in [
        ("10.9.9.9", "Destination Net Unreachable"),
        ("fd00:9::9", "No route"),
        ("10.2.3.77", "Destination Host Unreachable"),
        ("fd00:2:3::77", "Address unreachable"),
    ] {
        let output = lab
            .host("h1")
            .run(["ping", "-n", "-c", "5", "-i", "1", "-W", "2", to])
            .unwrap();
        assert!(output.stdout.contains(what), "{to}: {}", output.stdout);
    }
}

/// What iperf3 measures, and whether a switch meanwhile waited for a core for a fifth of a tenth of
/// a second: its ports make up for a millisecond.
fn measured(lab: &Lab, options: &[&str]) -> (Throughput, bool) {
    let mut watch = Watch::begin(lab).unwrap();
    let run = std::thread::scope(|scope| {
        let run = scope.spawn(|| iperf(lab.host("h1"), lab.host("h4"), options).unwrap());
        while !run.is_finished() {
            watch.look();
            std::thread::sleep(SHORT);
        }
        run.join().unwrap()
    });
    let late = watch.worst().is_some_and(|worst| worst.waited > SHORT);
    (run, late)
}

/// SW-1: the kernel's TCP and UDP run through the fabric near the speed of its links. Where the
/// machine let switches wait for its cores it is still a part of it, and never more.
#[test]
fn iperf_runs_at_the_speed_of_the_links() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let speed = 100e6;
    let lab = switches("swiperf").speed(100_000_000).up().unwrap();
    let tcp = [&["-t", "2"][..], &["-t", "2", "-6"]];
    let udp = &["-t", "2", "-u", "-b", "50M", "-l", "1400"][..];
    for (options, least) in [
        (tcp[0], 0.85 * speed),
        (tcp[1], 0.85 * speed),
        (udp, 0.475 * speed),
    ] {
        // What else the machine does can slow one run down, but nothing may ever be faster.
        let mut seen = Vec::new();
        let reached = (0..4).any(|_| {
            let (run, late) = measured(&lab, options);
            seen.push((run, late));
            assert!(run.bits_per_second < speed, "the shaper: {seen:?}");
            run.bits_per_second > least && run.lost == 0
        });
        let always_late = seen.iter().all(|(_, late)| *late);
        let best = seen.iter().map(|(run, _)| run.bits_per_second);
        let a_part = best.fold(0.0, f64::max) > least / 4.0;
        assert!(reached || (always_late && a_part), "{options:?}: {seen:?}");
    }
}

/// SW-3: flows are spread over both spines, and each flow's packets stay on one.
#[test]
fn flows_use_both_spines() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("swecmp").up().unwrap();
    let before = received(&lab).unwrap();
    let udp = ["-t", "1", "-u", "-b", "2M", "-l", "500", "-P", "32"];
    iperf(lab.host("h1"), lab.host("h4"), &udp).unwrap();
    let carried = gain(&before, &received(&lab).unwrap());
    let on = |spine: &str| carried[&(spine.to_owned(), "leaf1".to_owned())];
    let (one, two) = (on("spine1"), on("spine2"));
    let least = (one + two) / 6;
    assert!(one > least && two > least, "spine1 {one}, spine2 {two}");

    // One flow of 200 packets, and whatever the neighbours say meanwhile.
    let before = received(&lab).unwrap();
    ping(
        lab.host("h1"),
        lab.host("h4"),
        false,
        200,
        Duration::from_millis(2),
    )
    .unwrap();
    let carried = gain(&before, &received(&lab).unwrap());
    let on = |spine: &str| carried[&(spine.to_owned(), "leaf1".to_owned())];
    let (one, two) = (on("spine1"), on("spine2"));
    assert!(
        one.max(two) >= 200 && one.min(two) < 20,
        "spine1 {one}, spine2 {two}"
    );
    assert_healthy(&lab, &[]);
}

/// SW-51: after any mixture of traffic every packet is accounted for: what switchd received and
/// what it made itself was sent, or lost for a reason; and the kernel's devices have counted the
/// same.
#[test]
fn every_packet_is_accounted_for() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("swacct").up().unwrap();
    let (h1, h4) = (lab.host("h1"), lab.host("h4"));
    iperf(h1, h4, &["-t", "1", "-P", "4"]).unwrap();
    iperf(h4, h1, &["-t", "1", "-u", "-b", "50M", "-l", "900", "-6"]).unwrap();
    h1.run(["ping", "-c", "5", "-i", "0.05", "-W", "1", "10.9.9.9"])
        .unwrap();
    h1.run(["traceroute", "-n", "-w", "1", &h4.address(true).to_string()])
        .unwrap()
        .expect_ok();
    eventually("a balance", Duration::from_secs(20), || {
        for node in lab.plan().nodes.iter().filter(|node| node.role.is_switch()) {
            let ports = rows(lab.switchctl(&node.name, &["show", "ports"]).unwrap());
            let sum = |field: &str| {
                ports
                    .iter()
                    .map(|p| p[field].as_u64().unwrap())
                    .sum::<u64>()
            };
            let made = sum("icmp_sent") + sum("fragments");
            let (into, out) = (sum("rx_packets") + made, sum("tx_packets"));
            if into != out + sum("drops") + sum("fragmented") {
                return Err(format!("{}: {into} in, {out} out: {ports:#?}", node.name));
            }
            for port in &ports {
                let name = port["name"].as_str().unwrap().to_owned();
                let seen =
                    port["rx_packets"].as_u64().unwrap() + port["to_kernel"].as_u64().unwrap();
                let device = received(&lab).unwrap()[&(node.name.clone(), name.clone())];
                // Neighbour discovery before the daemon was there, and between the two looks.
                if device.abs_diff(seen) > 60 {
                    return Err(format!("{} {name}: {seen}, the device {device}", node.name));
                }
            }
        }
        Ok(())
    });
    let lost = drops(&lab).unwrap();
    assert!(
        lost[&("leaf1".to_owned(), "no_route".to_owned())] >= 5,
        "{lost:?}"
    );
    assert!(
        lost[&("leaf1".to_owned(), "ttl_expired".to_owned())] >= 3,
        "{lost:?}"
    );
}

/// SW-2: routes change under traffic, and no packet is lost for it.
#[test]
fn routes_change_without_loss() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("swroute").up().unwrap();
    ping(lab.host("h1"), lab.host("h4"), false, 2, SHORT).unwrap();
    ping(lab.host("h1"), lab.host("h4"), true, 2, SHORT).unwrap();
    let interval = Duration::from_millis(2);
    let v4 = start_ping(lab.host("h1"), lab.host("h4"), false, 1500, interval);
    let v6 = start_ping(lab.host("h1"), lab.host("h4"), true, 1500, interval);
    let replace = |spines: &[u8]| {
        for (prefix, gateway) in [("10.2.0.0/16", false), ("fd00:2::/32", true)] {
            let mut words = vec![
                "ip".to_owned(),
                "route".into(),
                "replace".into(),
                prefix.into(),
            ];
            for spine in spines {
                let via = if gateway {
                    format!("fd00:ffff:{spine}:1::1")
                } else {
                    format!("10.20{spine}.1.0")
                };
                words.extend([
                    "nexthop".into(),
                    "via".into(),
                    via,
                    "dev".into(),
                    format!("spine{spine}"),
                ]);
            }
            lab.host("leaf1").run(words).unwrap().expect_ok();
        }
        std::thread::sleep(Duration::from_millis(150));
    };
    for _ in 0..5 {
        replace(&[1]);
        replace(&[2]);
        replace(&[1, 2]);
    }
    assert_eq!(finish_ping(v4).unwrap().lost(), 0);
    assert_eq!(finish_ping(v6).unwrap().lost(), 0);
    assert_healthy(&lab, &[]);
}

/// SW-3: TCP survives the loss of a spine's link, and its return.
#[test]
fn tcp_survives_a_pulled_link() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut lab = switches("swpull").speed(50_000_000).up().unwrap();
    let flows = Iperf::start(lab.host("h1"), lab.host("h4"), &["-t", "10", "-P", "4"]).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    lab.link_down("leaf1", "spine1").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let before = received(&lab).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let carried = gain(&before, &received(&lab).unwrap());
    assert!(
        carried[&("spine2".to_owned(), "leaf1".to_owned())] > 100,
        "{carried:?}"
    );
    lab.link_up("leaf1", "spine1").unwrap();
    let measured = flows.finish().unwrap();
    assert!(measured.bits_per_second > 30e6, "{measured:?}");
    let pings = ping(lab.host("h1"), lab.host("h4"), false, 20, SHORT).unwrap();
    assert_eq!(pings.lost(), 0);
}

/// After kill -9 of a switchd its supervisor starts it again, and it takes over what the dead one
/// has left on the devices: traffic resumes without help.
#[test]
fn traffic_resumes_after_a_crash() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("swkill").up().unwrap();
    for victim in ["leaf1", "spine1", "spine2"] {
        ping(lab.host("h1"), lab.host("h4"), false, 2, SHORT).unwrap();
        lab.kill(victim).unwrap();
        let from = Instant::now();
        eventually("replies after the crash", Duration::from_secs(30), || {
            let lost: u32 = [false, true]
                .map(|v6| {
                    ping(lab.host("h1"), lab.host("h4"), v6, 5, SHORT)
                        .unwrap()
                        .lost()
                })
                .iter()
                .sum();
            let restarted = lab.daemons().unwrap().iter().all(|d| d.ready);
            if lost == 0 && restarted {
                Ok(())
            } else {
                Err(format!("{victim}: {lost} lost"))
            }
        });
        println!("{victim}: traffic resumed after {:?}", from.elapsed());
    }
    let restarts: u32 = lab.daemons().unwrap().iter().map(|d| d.restarts).sum();
    assert_eq!(restarts, 3);
}

/// SIGTERM: the daemon ends in order, and leaves the devices as they were: no XDP program, and the
/// kernel reaches its neighbours.
#[test]
fn a_stopped_switch_leaves_the_devices_as_they_were() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swterm").size(1, 1, 2).up().unwrap();
    let links = || {
        lab.host("leaf1")
            .run(["ip", "-d", "link"])
            .unwrap()
            .expect_ok()
    };
    assert!(links().contains("prog/xdp"), "{}", links());
    lab.stop("leaf1").unwrap();
    assert!(!links().contains("xdp"), "{}", links());
    let exits = lab.daemons().unwrap();
    let leaf = exits.iter().find(|d| d.node == "leaf1").unwrap();
    assert_eq!(leaf.last_exit.as_deref(), Some("exit status: 0"));
    assert_eq!(
        ping(lab.host("leaf1"), lab.host("h1"), false, 3, SHORT)
            .unwrap()
            .lost(),
        0
    );
    lab.start("leaf1").unwrap();
    eventually("forwarding again", Duration::from_secs(20), || {
        let lost = ping(lab.host("h1"), lab.host("h2"), false, 3, SHORT)
            .unwrap()
            .lost();
        if lost == 0 {
            Ok(())
        } else {
            Err(format!("{lost} lost"))
        }
    });
}

/// SW-1: the box itself stays reachable: what is the kernel's goes to the kernel.
#[test]
fn the_kernel_keeps_its_own_traffic() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swlocal").size(2, 1, 2).up().unwrap();
    for (from, to) in [
        ("h1", "leaf1"),
        ("leaf1", "h1"),
        ("spine1", "leaf1"),
        ("leaf2", "spine1"),
    ] {
        for v6 in [false, true] {
            let (_, far) = lab.plan().between(from, to).unwrap();
            let address = far.addresses[usize::from(v6)].0.to_string();
            lab.host(from)
                .run(["ping", "-n", "-c", "2", "-i", "0.1", "-W", "2", &address])
                .unwrap()
                .expect_ok();
        }
    }
}

/// An idle daemon costs less than one hundredth of a core.
#[test]
fn an_idle_switch_sleeps() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("swidle").up().unwrap();
    assert_idle(&lab, "switchd");
}

/// With several queues per interface, every queue is served.
#[test]
fn every_queue_is_served() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("swmq").queues(4).up().unwrap();
    for v6 in [false, true] {
        let options: &[&str] = if v6 {
            &["-t", "1", "-P", "16", "-6"]
        } else {
            &["-t", "1", "-P", "16"]
        };
        let measured = iperf(lab.host("h1"), lab.host("h4"), options).unwrap();
        assert!(measured.bits_per_second > 10e6, "{measured:?}");
    }
    // TCP fills the queues until they drop: that is how it finds its rate.
    assert_healthy(&lab, &["queue_full"]);
}

/// tshark finds no malformed frame in what leaves a switch: routers' ICMP, TCP, UDP, IPv4 and IPv6.
#[test]
fn no_frame_is_malformed() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = Lab::builder()
        .name("swshark")
        .size(2, 1, 2)
        .daemons(Daemons::Switches)
        .tap("leaf1", "spine1")
        .tap("leaf1", "h1")
        .up()
        .unwrap();
    let captures = ["spine1", "h1"].map(|to| lab.capture("leaf1", to, "").unwrap());
    for (v6, family) in [(false, "-4"), (true, "-6")] {
        ping(lab.host("h1"), lab.host("h2"), v6, 5, SHORT).unwrap();
        let to = lab.host("h2").address(v6).to_string();
        let trace = ["traceroute", family, "-n", "-q", "2", "-w", "1", &to];
        lab.host("h1").run(trace).unwrap().expect_ok();
        let options: &[&str] = if v6 {
            &["-n", "4M", "-6"]
        } else {
            &["-n", "4M"]
        };
        iperf(lab.host("h1"), lab.host("h2"), options).unwrap();
    }
    for capture in captures {
        let file = capture.stop().unwrap();
        let frames = capture::dissect(&file, "frame", &["frame.number"])
            .unwrap()
            .len();
        assert!(frames > 1000, "{frames} frames in {}", file.display());
        let bad = "_ws.malformed || ip.checksum.status == 0 || icmp.checksum.status == 0 || \
                   icmpv6.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0";
        let fields = ["frame.number", "frame.protocols", "_ws.col.Info"];
        let malformed = capture::dissect(&file, bad, &fields).unwrap();
        assert!(malformed.is_empty(), "{malformed:#?}");
    }
}
