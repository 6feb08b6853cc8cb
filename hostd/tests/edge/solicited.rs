//! Completion queues that wake their application for solicited events only.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{Access, Completion, CompletionStatus, ReceiveRequest, SendRequest};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::time::Duration;

fn end(daemon: &Daemon, entries: u32) -> End {
    End::new(daemon, entries, (1 << 16, Access::LOCAL_WRITE))
}

/// Two ends, of which the second has a completion queue of `entries` and receives posted.
pub(crate) fn connected(a: &Daemon, b: &Daemon, entries: u32) -> [End; 2] {
    let (mut first, mut second) = (end(a, 64), end(b, entries));
    for wr_id in 0..16 {
        let local = second.memory.slice(0, 64).expect("inside");
        let receive = ReceiveRequest { wr_id, local };
        second.queue_pair.post_receive(&receive).expect("posted");
    }
    first.connect(&mut second, b.address);
    [first, second]
}

/// Sends a message and waits until the peer's daemon has acknowledged it.
fn send(end: &mut End, solicited: bool) {
    let done = sent(end, solicited);
    assert!(done.is_success(), "{done:?}");
}

/// Sends a message, and how that ended.
pub(crate) fn sent(end: &mut End, solicited: bool) -> Completion {
    let local = end.memory.slice(0, 8).expect("inside");
    let send = SendRequest {
        solicited,
        ..SendRequest::send(1, local)
    };
    end.queue_pair.post_send(&send).expect("posted");
    end.queue.next(PATIENCE).expect("a completion")
}

fn is_woken(end: &End) -> bool {
    is_woken_within(end, PollTimeout::ZERO)
}

/// A thread of the daemon wakes it after its worker has counted that.
fn is_woken_within(end: &End, time: PollTimeout) -> bool {
    let mut fds = [PollFd::new(end.queue.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, time).expect("polled") > 0
}

/// Takes everything that is there, and how many there were.
fn take_all(end: &mut End) -> usize {
    let mut count = 0;
    while end.queue.poll().expect("the daemon lives").is_some() {
        count += 1;
    }
    count
}

/// HT-1: other completions do not wake who asked for solicited ones; a solicited one does, and so
/// does one that did not succeed.
#[test]
fn only_solicited_completions_wake() {
    let (a, b) = pair(&config());
    let [mut first, mut second] = connected(&a, &b, 64);
    assert!(!second.queue.arm_solicited().expect("sound"));
    for _ in 0..3 {
        send(&mut first, false);
    }
    b.wait_for("three came", |report| report.edge.completions == 3);
    assert!(!is_woken(&second), "none of them was solicited");
    send(&mut first, true);
    assert!(second.queue.wait(PATIENCE).expect("the daemon lives"));
    b.wait_for("four came", |report| report.edge.completions == 4);
    assert_eq!(take_all(&mut second), 4);

    assert!(!second.queue.arm_solicited().expect("sound"));
    send(&mut first, true);
    b.wait_for("woken", |report| report.edge.wakes > 0);
    assert!(is_woken_within(&second, PollTimeout::from(20_000_u16)));
    assert_eq!(take_all(&mut second), 1);

    let nothing = second.queue.wait_solicited(Duration::from_millis(10));
    assert!(!nothing.expect("the daemon lives"), "the time is over");
    assert!(!second.queue.arm_solicited().expect("sound"));
    first.queue_pair.disconnect(PATIENCE).expect("closed");
    assert!(second.queue.wait_solicited(PATIENCE).expect("woken"));
    let flushed = second.queue.poll().expect("the daemon lives");
    let status = flushed.map(|completion| completion.status);
    assert_eq!(status, Some(CompletionStatus::Flushed));
}

/// HT-1: a full queue wakes its application, because what it waits for may be behind.
#[test]
fn a_full_queue_wakes() {
    let (a, b) = pair(&config());
    let [mut first, mut second] = connected(&a, &b, 4);
    assert!(!second.queue.arm_solicited().expect("sound"));
    for _ in 0..6 {
        send(&mut first, false);
    }
    send(&mut first, true);
    let mut fds = [PollFd::new(second.queue.as_fd(), PollFlags::POLLIN)];
    let patience = u16::try_from(PATIENCE.as_millis()).expect("seconds");
    assert_eq!(poll(&mut fds, patience), Ok(1));
    let mut count = 0;
    while count < 7 {
        second.queue.next(PATIENCE).expect("a completion");
        count += 1;
    }
}
