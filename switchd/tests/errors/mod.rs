//! ICMP errors of the real daemon that the kernel has to send.

use crate::support::{Rig, eventually, privileged};

/// SW-1: a sender whose own route is punted hears of packets that expire and of those that are too
/// big, as any other: the kernel sends these errors, and they are counted, also those that it
/// refuses to send.
#[test]
fn errors_reach_senders_whose_route_is_punted() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("er");
    rig.ip("sw", "link set p2 mtu 1400");
    rig.start(&[]);
    rig.ip("sw", "route add 10.1.0.2 dev p1 tos 0x10");
    rig.ip(
        "sw",
        "-6 route add 2001:db8:1::2 from 2001:db8:99::/48 dev p1",
    );
    eventually("two punted routes", || {
        rig.ctl(&["routes", "--punted"]).as_array().map(Vec::len) == Some(2)
    });
    let said = |options: &[&str], to: &str| {
        let words = [&["-n", "-c", "1", "-W", "5"], options, &[to]].concat();
        // Nobody answers, which it takes for a failure.
        let output = rig.command("a", "ping", &words).output().expect("ping");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let big = ["-M", "do", "-s", "1420"];
    for (options, to, wanted) in [
        (
            &["-t", "1"][..],
            "10.2.0.2",
            "From 10.1.0.1 icmp_seq=1 Time to live exceeded",
        ),
        (
            &["-t", "1"],
            "2001:db8:2::2",
            "From 2001:db8:1::1 icmp_seq=1 Time exceeded: Hop limit",
        ),
        (
            &big,
            "10.2.0.2",
            "From 10.1.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1400)",
        ),
        (
            &big,
            "2001:db8:2::2",
            "From 2001:db8:1::1 icmp_seq=1 Packet too big: mtu=1400",
        ),
    ] {
        let said = said(options, to);
        assert!(said.contains(wanted), "{options:?} {to}: {said}");
    }
    let metrics = || rig.on("sw", "curl", &["-s", "http://127.0.0.1:9101/metrics"]);
    let counted = |given: u64, refused: u64| {
        let (metrics, name) = (metrics(), "switchd_icmp");
        let given = format!("{name}_by_kernel_packets_total{{port=\"p1\"}} {given}\n");
        let refused = format!("{name}_refused_by_kernel_packets_total {refused}\n");
        metrics.contains(&given) && metrics.contains(&refused)
    };
    assert!(counted(4, 0), "{}", metrics());
    // A rule for what this machine itself sends is none for what it forwards.
    rig.ip("sw", "rule add iif lo to 10.1.0.2 prohibit");
    let unheard = said(&["-t", "1"], "10.2.0.2");
    assert!(!unheard.contains("From"), "{unheard}");
    eventually("a refusal of the kernel", || counted(5, 1));
}
