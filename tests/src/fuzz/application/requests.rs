//! What the hostile application asks for.

use super::client::{Client, MEMORY, keep, pick};
use super::daemon::{Daemon, OWN, PEER};
use crate::fuzz::program::Program;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::attributes::{QueuePairAttributes, QueuePairState};
use hostd_client::abi::collective::FailureReason;
use hostd_client::abi::message::Request;
use hostd_client::abi::options::ConnectionOptions;
use hostd_client::abi::paths::{
    Congestion, PathChange, PathIds, PathRequest, PathWeights, Service, Traffic,
};
use hostd_client::abi::port::PortRequest;
use hostd_client::abi::types::{Access, Granularity, ObjectKind, Private};
use hostd_client::shm::create_shared;
use std::net::Ipv4Addr;

/// Bytes on the socket. Those that are no request end the session.
pub(super) fn record(daemon: &mut Daemon, client: &mut Client, fds: u8, bytes: &[u8]) -> bool {
    let Ok((_, request)) = Request::decode(bytes) else {
        return false;
    };
    // Memory of this size would only cost time.
    if matches!(request, Request::RegisterRegion { length, .. } if length > 1 << 20) {
        return true;
    }
    let fds: Vec<_> = (0..fds & 3)
        .map(|n| match n {
            0 => create_shared(c"fuzz", MEMORY).expect("memory").0,
            _ => std::fs::File::open("/dev/null").expect("there").into(),
        })
        .collect();
    let _ = daemon.ask(&mut client.session, request, &fds);
    true
}

/// A request that makes sense, with handles that are mostly right.
pub(super) fn often(
    daemon: &mut Daemon,
    client: &mut Client,
    which: u8,
    program: &mut Program<'_>,
) {
    let value = program.u8();
    match which % 12 {
        0 | 1 => {
            let right = |bit: u8, access: Access| (value & bit != 0).then_some(access);
            let access = [
                right(1, Access::REMOTE_WRITE),
                right(2, Access::REMOTE_READ),
                right(4, Access::REMOTE_ATOMIC),
                right(8, Access::BIND),
            ];
            let access = access.into_iter().flatten();
            let access = access.fold(Access::LOCAL_WRITE, Access::with);
            client.register(daemon, access);
        }
        2 => client.completion_queue(daemon),
        3 | 4 => client.queue_pair(daemon, value),
        5 | 6 => client.connect(daemon, value, |it| {
            if which >= 0x80 {
                it.timeout = value & 31;
                it.mtu = 256 << (value % 6);
                it.psn = u32::from(which) << 17;
            }
        }),
        7 => {
            let qp = pick(&mut client.pairs, value).map_or(0, |it| it.handle);
            let _ = daemon.ask(&mut client.session, Request::Disconnect { qp }, &[]);
        }
        8 => {
            let (kind, handle) = match value % 4 {
                0 => (
                    ObjectKind::Region,
                    pick(&mut client.regions, value / 4).map_or(0, |it| it.handle),
                ),
                1 => (
                    ObjectKind::CompletionQueue,
                    pick(&mut client.queues, value / 4).map_or(0, |it| it.0),
                ),
                2 => (
                    ObjectKind::QueuePair,
                    pick(&mut client.pairs, value / 4).map_or(0, |it| it.handle),
                ),
                _ => (
                    ObjectKind::Listener,
                    pick(&mut client.listeners, value / 4).map_or(0, |it| *it),
                ),
            };
            let request = Request::Destroy { kind, handle };
            let _ = daemon.ask(&mut client.session, request, &[]);
        }
        9 => {
            let address = match value >> 6 {
                2 => OWN,
                3 => PEER,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            let request = Request::Listen {
                address: address.into(),
                port: value.into(),
                backlog: 4,
            };
            let reply = daemon.ask(&mut client.session, request, &[]);
            if let Some((Reply::Listener { handle, .. }, _)) = reply {
                keep(&mut client.listeners, handle);
            }
        }
        _ => {
            let qp = pick(&mut client.pairs, value).map_or(0, |it| it.handle);
            connect(daemon, client, qp, value);
        }
    }
}

/// Connects a queue pair, some of them from an address that is own or not.
fn connect(daemon: &mut Daemon, client: &mut Client, qp: u32, value: u8) {
    if value & 4 != 0 {
        let own = if value & 8 != 0 { OWN } else { PEER };
        let address = own.into();
        let bind = Request::Bind { qp, address };
        let _ = daemon.ask(&mut client.session, bind, &[]);
    }
    let request = Request::Connect {
        qp,
        address: PEER.into(),
        port: u16::from(value & 3),
        private: Private::EMPTY,
    };
    let _ = daemon.ask(&mut client.session, request, &[]);
}

/// Requests that make sense seldom, with handles that are mostly right.
pub(super) fn seldom(
    daemon: &mut Daemon,
    client: &mut Client,
    which: u8,
    program: &mut Program<'_>,
) {
    let value = program.u8();
    let qp = pick(&mut client.pairs, value).map_or(0, |it| it.handle);
    let request = match which % 20 {
        0 => return client.shared_queue(daemon, value),
        1 => return client.queue_pair_of_shared(daemon, value),
        2 => return client.window(daemon),
        3 => return client.member(daemon, value),
        4 => Request::LimitSharedQueue {
            queue: pick(&mut client.shared, value).map_or(0, |it| it.handle),
            limit: program.u8().into(),
        },
        5 => Request::SetOptions {
            qp,
            options: ConnectionOptions {
                timeout: program.u8() & 63,
                retry_count: program.u8() & 15,
                rnr_retry: program.u8() & 15,
                min_rnr_timer: program.u8() & 63,
                responder_resources: program.u8(),
                initiator_depth: program.u8(),
            },
        },
        6..=8 => modify(qp, which, program),
        9 => Request::QueryQueuePair { qp },
        10 => Request::Accept {
            request: program.u8().into(),
            qp,
            private: Private::EMPTY,
        },
        11 => Request::Reject {
            request: value.into(),
            private: Private::EMPTY,
        },
        12 => Request::ChoosePartition {
            qp,
            index: program.u8().into(),
        },
        13 => Request::Port(match value % 4 {
            0 => PortRequest::Query,
            1 => PortRequest::Gid {
                from: program.u16(),
            },
            2 => PortRequest::Partition {
                index: program.u16(),
            },
            _ => PortRequest::Watch {
                watch: value & 4 != 0,
            },
        }),
        14 => Request::NoteFallback {
            job: program.u8().into(),
            reason: FailureReason::MemberLost,
        },
        15 => Request::QueryLeaf,
        16 => Request::Destroy {
            kind: match value % 3 {
                0 => ObjectKind::SharedQueue,
                1 => ObjectKind::Window,
                _ => ObjectKind::Member,
            },
            handle: match value % 3 {
                0 => pick(&mut client.shared, value / 3).map_or(0, |it| it.handle),
                1 => pick(&mut client.windows, value / 3).map_or(0, |it| it.0),
                _ => program.u8().into(),
            },
        },
        _ => Request::Paths {
            qp,
            request: of_paths(program),
        },
    };
    let _ = daemon.ask(&mut client.session, request, &[]);
}

/// A change of state with some attributes.
fn modify(qp: u32, which: u8, program: &mut Program<'_>) -> Request {
    const STATES: [QueuePairState; 6] = [
        QueuePairState::Reset,
        QueuePairState::Init,
        QueuePairState::ReadyToReceive,
        QueuePairState::ReadyToSend,
        QueuePairState::SendQueueDrained,
        QueuePairState::Error,
    ];
    let (given, value) = (program.u16(), program.u8());
    let some = |bit: u16| given & 1 << bit != 0;
    // What a change needs is there more often than not.
    let needed = |bit: u16| which < 0xc0 || some(bit);
    let attributes = QueuePairAttributes {
        access: some(0).then_some(Access::REMOTE_WRITE.with(Access::LOCAL_WRITE)),
        destination: needed(1).then_some(PEER.into()),
        destination_number: needed(2).then_some(qp),
        rq_psn: needed(3).then_some(value.into()),
        sq_psn: needed(4).then_some(value.into()),
        path_mtu: needed(5).then_some(256 << (value % 6)),
        min_rnr_timer: some(6).then_some(value & 63),
        max_dest_rd_atomic: some(7).then_some(value),
        max_rd_atomic: some(8).then_some(value),
        timeout: some(9).then_some(value & 63),
        retry_count: some(10).then_some(value & 15),
        rnr_retry: some(11).then_some(value & 15),
        notify_drained: some(12).then_some(true),
    };
    Request::ModifyQueuePair {
        qp,
        next: STATES[usize::from(program.u8()) % STATES.len()],
        attributes,
    }
}

/// Something about the sub-paths of a queue pair.
fn of_paths(program: &mut Program<'_>) -> PathRequest {
    let (kind, value) = (program.u8(), program.u8());
    match kind % 5 {
        0 => PathRequest::Describe(Traffic {
            block: u32::from(value) << 10,
            ..Traffic::default()
        }),
        1 => PathRequest::Outcome(value.into()),
        2 => PathRequest::Serve(match value % 3 {
            0 => Service::Ordered,
            1 => Service::Unordered,
            _ => Service::Idempotent,
        }),
        3 => PathRequest::Steer(Congestion::ALL[usize::from(value) % Congestion::ALL.len()]),
        _ => {
            let given = |bit: u8, value: u16| (kind & bit != 0).then_some(value);
            PathRequest::Change(PathChange {
                add: PathIds::default().with(value),
                remove: PathIds::default().with(program.u8()),
                weights: PathWeights::new(&[(value, program.u8())]).expect("one"),
                granularity: (kind & 0x80 != 0).then_some(Granularity::Flowlet),
                reorder_packets: given(0x10, program.u16()),
                reorder_time_us: given(0x20, program.u16()),
                flowlet_timeout_us: given(0x40, program.u16()),
            })
        }
    }
}
