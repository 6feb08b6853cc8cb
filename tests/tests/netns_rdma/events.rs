//! Solicited events, with the notifications of the guest's kernel.

use std::collections::BTreeSet;
use std::time::Instant;

use hostd_client::{ReceiveRequest, SendRequest};
use lab::capture::dissect;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::peer::Meeting;
use crate::rig::{self, LIMIT};
use crate::talk::Talk;

/// Bytes of ten packets.
const LONG: usize = 10_000;

/// How long the guest is waited for when it should not be woken, in milliseconds.
const NOTHING: u32 = 300;

/// A message from hostd, which the guest takes.
fn hostd_sends(talk: &mut Talk, write: bool, solicited: bool) {
    let room = if write { 0 } else { LONG };
    talk.peer.must(&format!("post 1 {room}"));
    let local = talk.region.slice(0, LONG).unwrap();
    let request = match write {
        true => SendRequest::write(7, local, talk.peer.remote).with_immediate(1),
        false => SendRequest::send(7, local),
    };
    let request = SendRequest {
        solicited,
        ..request
    };
    talk.pair.post_send(&request).unwrap();
    talk.next();
    let opcode = if write { 129 } else { 128 };
    let expected = format!("{opcode} {LONG} {}", u8::from(write));
    assert_eq!(talk.peer.ask("wait"), expected);
}

/// A message from the guest, which hostd takes without waiting for the event.
fn guest_sends(talk: &mut Talk, operation: &str, solicited: bool) {
    let receive = ReceiveRequest {
        wr_id: 8,
        local: talk.region.slice(0, LONG).unwrap(),
    };
    talk.pair.post_receive(&receive).unwrap();
    talk.peer
        .must(&format!("solicited {}", u8::from(solicited)));
    let rkey = talk.region.rkey();
    let request = format!("do {operation} 1 {LONG} 1 0 {rkey} 0 0");
    assert_eq!(talk.peer.ask(&request), "success");
    let until = Instant::now() + LIMIT;
    while talk.completions.poll().unwrap().is_none() {
        assert!(Instant::now() < until, "no completion");
        std::thread::yield_now();
    }
}

fn is_woken(talk: &Talk) -> bool {
    let mut fds = [PollFd::new(talk.completions.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
}

/// HT-1: what one side marks as solicited wakes the other one that waits for that, and nothing
/// else does. On the wire the last packet of each such message has the SE bit, and no other.
#[test]
fn solicited_messages_wake_hostd_and_the_guest() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let mut talk = Talk::begin(rig, Meeting::new(7031, false, 1024));
        for write in [false, true] {
            talk.peer.must("arm 1");
            for write in [false, true, false] {
                hostd_sends(&mut talk, write, false);
            }
            let nothing = talk.peer.ask(&format!("event {NOTHING}"));
            assert_eq!(nothing, "none", "none of them was solicited");
            hostd_sends(&mut talk, write, true);
            assert_eq!(talk.peer.ask("event 60000"), "event", "write {write}");
            talk.peer.must("arm 0");
            hostd_sends(&mut talk, write, false);
            assert_eq!(talk.peer.ask("event 60000"), "event", "of any kind");
        }
        for operation in ["send", "send_imm", "write_imm"] {
            assert!(!talk.completions.arm_solicited().unwrap());
            for other in ["send", "write_imm"] {
                guest_sends(&mut talk, other, false);
            }
            assert!(!is_woken(&talk), "none of them was solicited");
            guest_sends(&mut talk, operation, true);
            let mut fds = [PollFd::new(talk.completions.as_fd(), PollFlags::POLLIN)];
            let patience = u16::try_from(LIMIT.as_millis().min(60_000)).unwrap();
            assert_eq!(poll(&mut fds, patience), Ok(1), "{operation}");
        }
        talk.end(rig);
        let file = capture.stop().unwrap();
        rig.assert_understood(&file);
        let fields = ["infiniband.bth.opcode", "infiniband.bth.psn"];
        let marked = dissect(&file, "infiniband.bth.se == 1", &fields).unwrap();
        // A guest that is slow sends some packet again.
        let marked: BTreeSet<_> = marked.into_iter().collect();
        let opcodes = marked.iter().map(|it| it.split_once('\t').unwrap().0);
        // SEND Last and RDMA WRITE Last with Immediate of hostd; SEND Last, SEND Last with
        // Immediate and RDMA WRITE Last with Immediate of the guest.
        assert!(opcodes.eq(["2", "2", "3", "9", "9"]), "{marked:?}");
    });
}
