//! Every operation in both directions, also with losses.

use lab::capture::dissect;

use crate::dissection::{assert_checksums, assert_well_formed};
use crate::peer::Meeting;
use crate::rig::{self, Rig};
use crate::talk::Talk;

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

/// Ends them.
const NO_LOSSES: &str = "
    tc qdisc del dev eth0 root
    tc qdisc del dev eth0 ingress
    ip link del ifb0";

/// Has `work` done while one packet in a hundred is lost either way.
pub(crate) fn with_losses<T>(rig: &mut Rig, work: impl FnOnce(&mut Rig) -> T) -> T {
    rig.inside(LOSSES);
    let result = work(rig);
    rig.inside(NO_LOSSES);
    result
}

/// HT-1, HT-10, HT-43: SEND and RDMA WRITE, with immediate data and without, and RDMA READ, of 0
/// bytes to 64 KiB, and atomic operations, in both directions between hostd and a verbs program
/// over Soft-RoCE, by IPv4 and IPv6, with path MTUs from 256 to 4096. Every byte is right, no frame
/// is malformed, and scapy computes the same ICRCs.
#[test]
fn every_operation_between_hostd_and_soft_roce() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        for (port, v6, mtu) in [(7001, false, 4096), (7002, true, 256), (7003, true, 4096)] {
            let mut talk = Talk::begin(rig, Meeting::new(port, v6, mtu));
            for len in [0, 1, 3, 255, 256, 257, 4097, 65_537] {
                talk.all(len);
            }
            talk.end(rig);
        }
        let file = capture.stop().unwrap();
        rig.assert_understood(&file);
        assert_checksums(&file);
    });
}

/// HT-1: messages lie in up to 16 pieces of memory at either end, or at both, in no order, and
/// come as they were.
#[test]
fn messages_of_many_pieces_between_hostd_and_soft_roce() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        for (port, v6, mtu) in [(7011, true, 1024), (7012, false, 4096)] {
            let mut talk = Talk::begin(rig, Meeting::new(port, v6, mtu));
            for pieces in [[16, 1], [1, 16], [16, 16], [5, 3], [2, 7]] {
                talk.pieces = pieces;
                for len in [1, 15, 16, 4097, 70_001] {
                    talk.all(len);
                }
            }
            talk.end(rig);
        }
        let file = capture.stop().unwrap();
        rig.assert_understood(&file);
    });
}

/// HT-1, HT-10, HT-43: the same operations, of 0 bytes to 1 MiB, and messages of 16 MiB, when one
/// in a hundred packets is lost either way.
#[test]
fn every_operation_between_hostd_and_soft_roce_with_losses() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        with_losses(rig, |rig| {
            for (port, v6, mtu) in [(7021, false, 1024), (7022, true, 4096)] {
                let mut talk = Talk::begin(rig, Meeting::new(port, v6, mtu));
                for len in [0, 1, 4097, 1 << 20] {
                    talk.all(len);
                }
                talk.pieces = [16, 16];
                talk.all(300_007);
                if v6 {
                    talk.pieces = [1, 1];
                    talk.hostd_sends(false, None, 16 << 20);
                    talk.guest_sends("send", 16 << 20);
                }
                talk.end(rig);
            }
        });
        let file = capture.stop().unwrap();
        assert_well_formed(&file);
        // Something was lost: the guest has asked for it, by NAKs of PSN sequence error.
        let naks = dissect(&file, "infiniband.aeth.syndrome == 0x60", &["frame.number"]);
        assert!(!naks.unwrap().is_empty());
    });
}
