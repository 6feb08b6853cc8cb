//! Every operation in both directions, also with losses.

use lab::capture::dissect;

use crate::dissection::assert_checksums;
use crate::links::{directly, with_losses};
use crate::peer::Meeting;
use crate::rig;
use crate::talk::Talk;

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
        rig.assert_recovered(&file);
        // Something was lost: the guest has asked for it, by NAKs of PSN sequence error.
        let naks = dissect(&file, "infiniband.aeth.syndrome == 0x60", &["frame.number"]);
        assert!(!naks.unwrap().is_empty());
    });
}

/// HT-1, HT-10, HT-43: the same on one link without switches, first without losses.
#[test]
fn every_operation_on_one_link() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        directly(rig, |rig, at| {
            for (port, v6, mtu) in [(7031, false, 4096), (7032, true, 1024)] {
                let mut meeting = Meeting::new(port, v6, mtu);
                meeting.at = Some(at);
                let mut talk = Talk::begin(rig, meeting);
                for len in [0, 1, 4097, 65_537] {
                    talk.all(len);
                }
                with_losses(rig, |_| {
                    for len in [1, 65_537, 1 << 20] {
                        talk.all(len);
                    }
                });
                talk.end(rig);
            }
        });
        rig.assert_recovered(&capture.stop().unwrap());
    });
}
