//! Memory windows of applications, and keys that their peers take back.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd::stats::WindowStatistics;
use hostd_client::abi::types::ErrorCode;
use hostd_client::{
    Access, Bind, Completion, CompletionOpcode, CompletionStatus, Error, MemoryWindow,
    ReceiveRequest, RemoteSlice, SendRequest,
};

fn end(daemon: &Daemon) -> End {
    let rights = Access::LOCAL_WRITE.with(Access::BIND);
    End::new(daemon, 64, (1 << 16, rights))
}

/// What the daemon shows of its only window.
fn reported(daemon: &Daemon) -> WindowStatistics {
    let sessions = daemon.report().sessions;
    let windows: Vec<_> = sessions.into_iter().flat_map(|it| it.windows).collect();
    let [window] = windows[..] else {
        panic!("{windows:?}");
    };
    window
}

impl End {
    /// The next completion, which is that of `wr_id`.
    fn done(&mut self, wr_id: u64) -> Completion {
        let done = self.queue.next(PATIENCE).expect("a completion");
        assert_eq!(done.wr_id, wr_id, "{done:?}");
        done
    }

    /// Binds `window` to bytes 1000 to 1999 of the memory, for peers that write there.
    fn bind(&mut self, window: &mut MemoryWindow) -> u32 {
        let bind = Bind {
            region: &self.memory,
            offset: 1000,
            len: 1000,
            access: Access::REMOTE_WRITE.with(Access::ZERO_BASED),
        };
        let rkey = self.queue_pair.post_bind(1, window, bind).expect("posted");
        assert_eq!(rkey, window.rkey());
        let done = self.done(1);
        assert!(done.is_success(), "{done:?}");
        assert_eq!(done.opcode, CompletionOpcode::BindWindow);
        rkey
    }

    fn write(&mut self, rkey: u32, address: u64) -> CompletionStatus {
        let local = self.memory.slice(0, 10).expect("inside");
        let write = SendRequest::write(2, local, RemoteSlice { address, rkey });
        self.queue_pair.post_send(&write).expect("posted");
        self.done(2).status
    }
}

fn connected(a: &Daemon, b: &Daemon) -> [End; 2] {
    let [mut first, mut second] = [a, b].map(end);
    first.connect(&mut second, b.address);
    [first, second]
}

/// HT-1: an application opens a part of its memory, its peer writes there and gives the key back
/// with its next message; then the key opens nothing, and the next bind has another one.
#[test]
fn a_peer_writes_and_gives_the_key_back() {
    let (a, b) = pair(&config());
    let [mut first, mut second] = connected(&a, &b);
    first.memory.write(0, b"0123456789").expect("inside");
    let mut window = second.context.create_window().expect("a window");
    let mut keys = Vec::new();
    for round in 0..3 {
        let rkey = second.bind(&mut window);
        keys.push(rkey);
        let bound = reported(&b);
        let to = bound.bound.expect("it is bound");
        assert_eq!((bound.rkey, to.qpn), (rkey, second.queue_pair.number()));
        assert_eq!((to.offset, to.len), (1000, 1000));
        assert_eq!(first.write(rkey, 5), CompletionStatus::Success);
        let mut bytes = [0; 10];
        second.memory.read(1005, &mut bytes).expect("inside");
        assert_eq!(&bytes, b"0123456789");

        let local = second.memory.slice(0, 100).expect("inside");
        let receive = ReceiveRequest { wr_id: 3, local };
        second.queue_pair.post_receive(&receive).expect("posted");
        let local = first.memory.slice(0, 10).expect("inside");
        let send = SendRequest::send(4, local).with_invalidate(rkey);
        first.queue_pair.post_send(&send).expect("posted");
        assert!(first.done(4).is_success(), "round {round}");
        let received = second.done(3);
        assert!(received.is_success(), "{received:?}");
        assert_eq!(
            (received.invalidated, received.immediate),
            (Some(rkey), None)
        );
        let free = reported(&b);
        assert_eq!((free.rkey, free.bound), (rkey, None));
    }
    assert!(keys[0] != keys[1] && keys[1] != keys[2], "{keys:?}");
    assert_eq!(first.write(keys[2], 5), CompletionStatus::RemoteAccess);
}

/// HT-1: what the application takes back itself opens nothing; what is wrong with a bind the
/// completion says, and it ends the connection as any failed request does.
#[test]
fn an_application_takes_its_key_back() {
    let (a, b) = pair(&config());
    let [mut first, mut second] = connected(&a, &b);
    let mut window = second.context.create_window().expect("a window");
    let rkey = second.bind(&mut window);
    let queue_pair = &mut second.queue_pair;
    queue_pair.post_local_invalidate(5, rkey).expect("posted");
    let done = second.done(5);
    assert!(done.is_success(), "{done:?}");
    assert_eq!(done.opcode, CompletionOpcode::LocalInvalidate);

    second.bind(&mut window);
    let outside = Bind {
        region: &second.memory,
        offset: 1 << 16,
        len: 1,
        access: Access::REMOTE_READ,
    };
    let refused = second.queue_pair.post_bind(7, &mut window, outside);
    assert!(
        matches!(refused, Err(Error::OutOfRange { .. })),
        "{refused:?}"
    );
    let again = Bind {
        region: &second.memory,
        offset: 0,
        len: 1,
        access: Access::REMOTE_READ,
    };
    let queue_pair = &mut second.queue_pair;
    queue_pair.post_bind(6, &mut window, again).expect("posted");
    assert_eq!(second.done(6).status, CompletionStatus::WindowBind);
    assert_ne!(first.write(rkey, 0), CompletionStatus::Success);
}

/// HT-1, HT-3: windows count as regions against the quota, what is dropped is free again, and a
/// region that is dropped before its window goes with it.
#[test]
fn windows_have_a_quota() {
    let mut config = config();
    config.application.quota.regions = 4;
    let (a, b) = pair(&config);
    let [_first, mut second] = connected(&a, &b);
    let mut windows: Vec<_> = (0..3)
        .map(|_| second.context.create_window().expect("within the quota"))
        .collect();
    let refused = second.context.create_window().expect_err("one too many");
    assert!(
        matches!(
            &refused,
            Error::Refused {
                code: ErrorCode::Quota,
                ..
            }
        ),
        "{refused:?}"
    );
    second.bind(&mut windows[0]);
    windows.truncate(1);
    let rights = Access::LOCAL_WRITE.with(Access::BIND);
    let other = second
        .context
        .allocate(4096, rights)
        .expect("there is room");
    drop(std::mem::replace(&mut second.memory, other));
    let regions = |report: &hostd::edge::command::Report| -> usize {
        report.sessions.iter().map(|it| it.regions.len()).sum()
    };
    // Those of both ends are on different daemons.
    b.wait_for("the region is kept for its window", |it| regions(it) == 2);
    drop(windows);
    b.wait_for("both are gone", |report| regions(report) == 1);
}

/// HT-1: binds that fail leave the window bound to what it was, so that region is kept for it,
/// however many they are, and goes with it; the others go when nobody holds them.
#[test]
fn failed_binds_keep_the_region_of_the_window() {
    let (a, b) = pair(&config());
    let [_first, mut second] = connected(&a, &b);
    let rights = Access::LOCAL_WRITE.with(Access::BIND);
    let mut window = second.context.create_window().expect("a window");
    second.bind(&mut window);
    let allocate = |_| second.context.allocate(4096, rights).expect("memory");
    let others: Vec<_> = (0..5).map(allocate).collect();
    for region in &others {
        let bind = Bind {
            region,
            offset: 0,
            len: 1,
            access: Access::REMOTE_READ,
        };
        let posted = second.queue_pair.post_bind(9, &mut window, bind);
        posted.expect("posted");
    }
    assert_eq!(second.done(9).status, CompletionStatus::WindowBind);
    let other = second.context.allocate(4096, rights).expect("memory");
    drop(std::mem::replace(&mut second.memory, other));
    drop(others);
    let regions = |report: &hostd::edge::command::Report| -> usize {
        report.sessions.iter().map(|it| it.regions.len()).sum()
    };
    assert!(reported(&b).bound.is_some());
    drop(window);
    b.wait_for("all but one are gone", |report| regions(report) == 1);
}
