//! Links of the rig that are not as it makes them: those that lose packets, and one that joins the
//! guest with hostd and has no switch in between.

use std::net::IpAddr;
use std::process::Command;

use lab::{namespace, wiring::tap_name};

use crate::addresses::set;
use crate::rig::Rig;

/// Losses of one in a hundred UDP packets, in both directions of the guest's interface.
const LOSSES: &str = "
    ip link add ifb0 mtu 9000 type ifb
    ip link set ifb0 up
    tc qdisc add dev ifb0 root netem loss 1% limit 10000
    tc qdisc add dev eth0 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
    tc qdisc add dev eth0 parent 1:3 netem loss 1% limit 10000
    tc qdisc add dev eth0 handle ffff: ingress
    number=1
    for version in 'ip ip' 'ipv6 ip6'; do
        set -- $version
        udp=\"protocol $1 prio $number u32 match $2 protocol 17 0xff\"
        tc filter add dev eth0 parent 1: $udp flowid 1:3
        tc filter add dev eth0 parent ffff: $udp action mirred egress redirect dev ifb0
        number=$((number + 1))
    done";

/// Ends them, and prints how many packets were lost either way.
const NO_LOSSES: &str = "
    set -o pipefail
    for device in eth0 ifb0; do
        tc -s qdisc show dev $device | grep -A 1 netem | grep -o 'dropped [0-9]*'
    done
    tc qdisc del dev eth0 root
    tc qdisc del dev eth0 ingress
    ip link del ifb0";

/// From now on one packet in a hundred is lost either way.
pub(crate) fn begin_losses(rig: &mut Rig) {
    rig.inside(LOSSES);
}

/// From now on no packet is lost. How many were until now.
pub(crate) fn end_losses(rig: &mut Rig) -> u64 {
    end_losses_after(rig, 0)
}

/// From when on the guest's device has received `packets`, no packet is lost. How many were until
/// then. The guest looks itself, for a look from outside may take longer than a game.
pub(crate) fn end_losses_after(rig: &mut Rig, packets: u64) -> u64 {
    let counter = "/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts";
    let wait = format!("until [ $(< {counter}) -ge {packets} ]; do sleep 0.01; done");
    let said = rig.inside(&(wait + NO_LOSSES));
    let counts = said
        .lines()
        .map(|line| line.trim_start_matches("dropped ").parse::<u64>());
    counts
        .map(|count| count.unwrap_or_else(|_| panic!("{said}")))
        .sum()
}

/// Has `work` done while one packet in a hundred is lost either way, and some are.
pub(crate) fn with_losses<T>(rig: &mut Rig, work: impl FnOnce(&mut Rig) -> T) -> T {
    begin_losses(rig);
    let result = work(rig);
    let lost = end_losses(rig);
    println!("{lost} packets were lost");
    assert!(lost > 0);
    result
}

/// The addresses of both sides, those of IPv4 before those of IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) hostd: [IpAddr; 2],
    pub(crate) guest: [IpAddr; 2],
    /// Whether interfaces have them before all others.
    pub(crate) first: bool,
}

impl Addresses {
    /// Those that the laboratory has given, two tiers of switches apart.
    pub(crate) fn far(rig: &Rig) -> Self {
        let [hostd, guest] =
            ["h1", "h2"].map(|name| [false, true].map(|v6| rig.lab.host(name).address(v6)));
        let first = true;
        Self {
            hostd,
            guest,
            first,
        }
    }
}

/// Has `work` done while the guest is on hostd's link, with no switch in between. Each side has one
/// address more of each version, in one network with the other's.
pub(crate) fn directly<T>(rig: &mut Rig, work: impl FnOnce(&mut Rig, Addresses) -> T) -> T {
    let near = Addresses {
        hostd: ["192.168.77.1", "fd77::1"].map(|it| it.parse().unwrap()),
        guest: ["192.168.77.2", "fd77::2"].map(|it| it.parse().unwrap()),
        first: false,
    };
    let [tap, h2] = [&tap_name(1), "h2"].map(|node| namespace(rig.lab.name(), node));
    let in_tap = format!("-n {tap} link set");
    let in_h2 = format!("-n {h2} link set");
    ip(&format!(
        "link add name direct mtu 9000 netns {h2} type veth peer name direct mtu 9000 netns {tap}"
    ));
    let stop = |from: &str| run("tc", &format!("-n {tap} qdisc del dev {from} clsact"));
    let lead = |from: &str, to: &str| {
        run("tc", &format!("-n {tap} qdisc add dev {from} clsact"));
        run(
            "tc",
            &format!(
                "-n {tap} filter add dev {from} ingress protocol all u32 match u32 0 0 \
                 action mirred egress redirect dev {to}"
            ),
        );
    };
    ["lower", "upper"].iter().for_each(|end| stop(end));
    ip(&format!("{in_tap} direct addrgenmode none"));
    ip(&format!("{in_tap} direct up"));
    lead("lower", "direct");
    lead("direct", "lower");
    ip(&format!("{in_h2} leaf2 nomaster"));
    ip(&format!("{in_h2} direct master bridge up"));
    let [v4, v6] = near.guest;
    rig.inside(&format!(
        "ip address add {v4}/24 dev eth0 && ip address add {v6}/64 dev eth0 nodad"
    ));
    near.hostd.into_iter().for_each(|own| set(rig, "add", own));
    let result = work(rig, near);
    near.hostd.into_iter().for_each(|own| set(rig, "del", own));
    rig.inside(&format!(
        "ip address del {v4}/24 dev eth0 && ip address del {v6}/64 dev eth0"
    ));
    ip(&format!("-n {h2} link del direct"));
    ip(&format!("{in_h2} leaf2 master bridge"));
    stop("lower");
    lead("lower", "upper");
    lead("upper", "lower");
    result
}

/// Runs `ip` outside of all namespaces.
fn ip(words: &str) {
    run("ip", words);
}

fn run(program: &str, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let output = Command::new(program).args(&words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
}
