use super::answer::*;
use super::attributes::{QueuePairAttributes, QueuePairState};
use super::by_hand::ByHand;
use super::collective::{CollectiveWork, FailureReason, JoinJob, LEVELS_MAX, Level, Membership};
use super::descriptor::*;
use super::message::*;
use super::options::ConnectionOptions;
use super::paths::*;
use super::port::{GidEntry, PortAttributes, PortEvent, PortRequest, PortState};
use super::record::tag_of;
use super::types::*;
use super::{INLINE_MAX, MESSAGE_MAX, PRIVATE_MAX, SGE_MAX};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn addresses() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).to_canonical()),
    ]
}

fn privates() -> impl Strategy<Value = Private> {
    prop::collection::vec(any::<u8>(), 0..=PRIVATE_MAX)
        .prop_map(|data| Private::new(&data).expect("short enough"))
}

fn accesses() -> impl Strategy<Value = Access> {
    prop_oneof![
        Just(Access::default()),
        Just(Access::LOCAL_WRITE),
        Just(Access::LOCAL_WRITE.with(Access::REMOTE_WRITE)),
        Just(Access::REMOTE_READ),
        Just(Access::LOCAL_WRITE.with(Access::REMOTE_ATOMIC)),
        Just(Access::BIND),
    ]
}

fn by_hands() -> impl Strategy<Value = Request> {
    (
        addresses(),
        addresses(),
        any::<(u32, u32, u32, u32, u16, [u8; 6])>(),
    )
        .prop_map(
            |(local, peer, (qp, peer_number, psn, peer_psn, mtu, small))| {
                let [timeout, retry_count, rnr_retry, min_rnr_timer, ..] = small;
                Request::ConnectByHand {
                    qp,
                    by_hand: ByHand {
                        local,
                        peer,
                        peer_number,
                        psn,
                        peer_psn,
                        mtu,
                        timeout,
                        retry_count,
                        rnr_retry,
                        min_rnr_timer,
                        max_dest_rd_atomic: small[4],
                        max_rd_atomic: small[5],
                    },
                }
            },
        )
}

fn attributes() -> impl Strategy<Value = QueuePairAttributes> {
    (
        prop::option::of(accesses()),
        prop::option::of(addresses()),
        any::<([Option<u32>; 3], Option<u16>, [Option<u8>; 6], Option<bool>)>(),
    )
        .prop_map(
            |(access, destination, (numbers, path_mtu, small, notify_drained))| {
                let [destination_number, rq_psn, sq_psn] = numbers;
                let [
                    min_rnr_timer,
                    max_dest_rd_atomic,
                    max_rd_atomic,
                    timeout,
                    ..,
                ] = small;
                QueuePairAttributes {
                    access,
                    destination,
                    destination_number,
                    rq_psn,
                    sq_psn,
                    path_mtu,
                    min_rnr_timer,
                    max_dest_rd_atomic,
                    max_rd_atomic,
                    timeout,
                    retry_count: small[4],
                    rnr_retry: small[5],
                    notify_drained,
                }
            },
        )
}

fn of_port() -> impl Strategy<Value = PortRequest> {
    prop_oneof![
        Just(PortRequest::Query),
        any::<u16>().prop_map(|from| PortRequest::Gid { from }),
        any::<u16>().prop_map(|index| PortRequest::Partition { index }),
        any::<bool>().prop_map(|watch| PortRequest::Watch { watch }),
    ]
}

fn of_addresses() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any::<u32>(), addresses()).prop_map(|(qp, address)| Request::Bind { qp, address }),
        (any::<u32>(), any::<u16>()).prop_map(|(qp, index)| Request::ChoosePartition { qp, index }),
    ]
}

fn of_paths() -> impl Strategy<Value = Request> {
    let described = (any::<u32>(), 0_u8..4, 0_u8..3).prop_map(|(block, pattern, priority)| {
        use TrafficPattern as P;
        use TrafficPriority as T;
        PathRequest::Describe(Traffic {
            block,
            pattern: [P::Unknown, P::Pairs, P::ManyToOne, P::AllToAll][usize::from(pattern)],
            priority: [T::Normal, T::Low, T::High][usize::from(priority)],
        })
    });
    let changed = (
        any::<([u8; 32], [u8; 32], [Option<u16>; 3], Option<bool>)>(),
        prop::collection::vec(any::<(u8, u8)>(), 0..=WEIGHTS_MAX),
    )
        .prop_map(|((add, remove, times, granularity), weights)| {
            PathRequest::Change(PathChange {
                add: PathIds(add),
                remove: PathIds(remove),
                weights: PathWeights::new(&weights).expect("few enough"),
                granularity: granularity.map(|it| {
                    if it {
                        Granularity::Flowlet
                    } else {
                        Granularity::Packet
                    }
                }),
                reorder_packets: times[0],
                reorder_time_us: times[1],
                flowlet_timeout_us: times[2],
            })
        });
    let request = prop_oneof![
        described,
        changed,
        any::<u16>().prop_map(PathRequest::Outcome),
        prop_oneof![
            Just(Service::Ordered),
            Just(Service::Unordered),
            Just(Service::Idempotent),
        ]
        .prop_map(PathRequest::Serve),
        prop::sample::select(&Congestion::ALL[..]).prop_map(PathRequest::Steer),
    ];
    (any::<u32>(), request).prop_map(|(qp, request)| Request::Paths { qp, request })
}

fn memberships() -> impl Strategy<Value = Request> {
    let numbers = any::<([u16; 5], [u8; 2], bool)>();
    let levels = prop::collection::vec(any::<(u16, u16, u16, u16)>(), 0..=LEVELS_MAX);
    (any::<[u32; 4]>(), numbers, levels).prop_map(
        |([cq, entries, job, generation], (words, bits, deterministic), levels)| {
            let levels: Vec<_> = levels
                .into_iter()
                .map(|(rank, size, trees, first)| Level {
                    rank,
                    size,
                    trees,
                    first,
                })
                .collect();
            let membership = Membership {
                world: words[2],
                slots: words[3],
                payload: words[4],
                operations: bits[0],
                elements: bits[1],
                deterministic,
                ..Membership::new(job, generation, words[0], words[1])
            };
            Request::JoinJob(JoinJob {
                cq,
                entries,
                membership: membership.with_levels(&levels).expect("few enough"),
            })
        },
    )
}

fn of_others() -> impl Strategy<Value = Request> {
    let port = of_port().prop_map(Request::Port);
    prop_oneof![of_addresses(), port, of_paths(), memberships()]
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        any::<(u16, u16, u64)>().prop_map(|(major, minor, features)| Request::Hello {
            major,
            minor,
            features
        }),
        (any::<(u64, u64)>(), accesses()).prop_map(|((length, iova), access)| {
            Request::RegisterRegion {
                length,
                iova,
                access,
            }
        }),
        any::<u32>().prop_map(|entries| Request::CreateCompletionQueue { entries }),
        any::<(u32, u32)>()
            .prop_map(|(entries, limit)| Request::CreateSharedQueue { entries, limit }),
        any::<(u32, u32)>().prop_map(|(queue, limit)| Request::LimitSharedQueue { queue, limit }),
        any::<(u32, u32, u32, u32, u32)>().prop_map(
            |(send_cq, receive_cq, send_entries, receive_entries, shared)| {
                Request::CreateQueuePair {
                    send_cq,
                    receive_cq,
                    send_entries,
                    receive_entries,
                    shared,
                }
            }
        ),
        Just(Request::ShareDoorbells),
        Just(Request::QueryLeaf),
        (any::<u32>(), prop::sample::select(&FailureReason::ALL[..]))
            .prop_map(|(job, reason)| Request::NoteFallback { job, reason }),
        Just(Request::CreateWindow),
        (addresses(), any::<(u16, u16)>()).prop_map(|(address, (port, backlog))| {
            Request::Listen {
                address,
                port,
                backlog,
            }
        }),
        (any::<u32>(), addresses(), any::<u16>(), privates()).prop_map(
            |(qp, address, port, private)| Request::Connect {
                qp,
                address,
                port,
                private
            }
        ),
        (any::<(u32, u32)>(), privates()).prop_map(|((request, qp), private)| Request::Accept {
            request,
            qp,
            private
        }),
        (any::<u32>(), privates())
            .prop_map(|(request, private)| Request::Reject { request, private }),
        any::<u32>().prop_map(|qp| Request::Disconnect { qp }),
        any::<(u32, [u8; 6])>().prop_map(|(qp, small)| Request::SetOptions {
            qp,
            options: ConnectionOptions {
                timeout: small[0],
                retry_count: small[1],
                rnr_retry: small[2],
                min_rnr_timer: small[3],
                responder_resources: small[4],
                initiator_depth: small[5],
            },
        }),
        by_hands(),
        (any::<u32>(), attributes()).prop_map(|(qp, attributes)| Request::ModifyQueuePair {
            qp,
            next: QueuePairState::SendQueueDrained,
            attributes,
        }),
        any::<u32>().prop_map(|qp| Request::QueryQueuePair { qp }),
        of_others(),
        any::<u32>().prop_map(|handle| Request::Destroy {
            kind: ObjectKind::QueuePair,
            handle
        }),
    ]
}

fn lists() -> impl Strategy<Value = Vec<Sge>> {
    let sge = any::<(u64, u32, u32)>().prop_map(|(address, length, lkey)| Sge {
        address,
        length,
        lkey,
    });
    prop::collection::vec(sge, 0..=SGE_MAX)
}

fn send_works() -> impl Strategy<Value = SendWork> {
    let opcodes = prop_oneof![
        Just(Opcode::Write),
        Just(Opcode::WriteWithImmediate),
        Just(Opcode::Send),
        Just(Opcode::SendWithImmediate),
        Just(Opcode::Read),
        Just(Opcode::CompareSwap),
        Just(Opcode::FetchAdd),
        Just(Opcode::LocalInvalidate),
        Just(Opcode::BindWindow),
        Just(Opcode::SendWithInvalidate),
    ];
    let locals = (lists(), prop::collection::vec(any::<u8>(), 0..=INLINE_MAX));
    (
        any::<(u64, bool, bool, u32, u32)>(),
        any::<(bool, u64, u64)>(),
        opcodes,
        0_u64..1 << 60,
        (locals, any::<bool>()),
    )
        .prop_map(
            |(
                (wr_id, signaled, solicited, immediate, rkey),
                (fence, compare_add, swap),
                opcode,
                remote_address,
                ((mut list, bytes), inline),
            )| {
                if opcode.has_operands() {
                    list.resize(1, Sge::default());
                    list[0].length = if opcode.is_atomic() { ATOMIC_LEN } else { 0 };
                }
                let local = if inline && opcode.can_be_inline() {
                    Local::inline(&bytes).expect("few enough")
                } else {
                    Local::Pieces(SgeList::new(&list).expect("few enough"))
                };
                SendWork {
                    wr_id,
                    opcode,
                    signaled,
                    solicited,
                    fence,
                    immediate,
                    remote_address,
                    rkey,
                    local,
                    compare_add: if opcode.has_operands() {
                        compare_add
                    } else {
                        0
                    },
                    swap: if opcode.has_operands() && opcode != Opcode::FetchAdd {
                        swap
                    } else {
                        0
                    },
                }
            },
        )
}

proptest! {
    #[test]
    fn requests_round_trip(tag: u32, request in requests()) {
        let record = request.encode(tag);
        prop_assert_eq!(Request::decode(record.as_slice()), Ok((tag, request)));
        prop_assert_eq!(tag_of(record.as_slice()), tag);
        let short = &record.as_slice()[..record.as_slice().len() - 1];
        prop_assert!(Request::decode(short).is_err());
        let mut long = record.as_slice().to_vec();
        long.push(0);
        prop_assert!(Request::decode(&long).is_err());
    }

    /// HT-3: any bytes on the socket are a request or an error, on either side.
    #[test]
    fn any_bytes_are_survived(kind in 0_u16..235, tail in prop::collection::vec(any::<u8>(), 0..MESSAGE_MAX)) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(&tail);
        let _ = Request::decode(&tail);
        let _ = FromDaemon::decode(&tail);
        if let Ok((tag, request)) = Request::decode(&bytes) {
            prop_assert_eq!(Request::decode(request.encode(tag).as_slice()), Ok((tag, request)));
        }
        let _ = FromDaemon::decode(&bytes);
    }

    /// HT-50: any 64 bytes in a ring are a collective, which is written the same, or an error.
    #[test]
    fn any_slot_is_a_collective_or_an_error(mut bytes: [u8; 64], likely: bool) {
        if likely {
            bytes[8] %= 5;
            bytes[9] %= 9;
            bytes[10] %= 10;
            bytes[11] %= 3;
            bytes[40..].fill(0);
        }
        if let Ok(work) = CollectiveWork::parse(&bytes) {
            prop_assert_eq!(work.to_bytes(), bytes);
        }
    }

    #[test]
    fn send_work_round_trips(work in send_works()) {
        prop_assert_eq!(SendWork::parse(&work.to_bytes()), Ok(work));
        if let Local::Pieces(buffers) = work.local {
            let receive = ReceiveWork { wr_id: work.wr_id, buffers };
            prop_assert_eq!(ReceiveWork::parse(&receive.to_bytes()), Ok(receive));
        }
    }

    /// Pieces beyond those of the first slot come out of their slots as they went in.
    #[test]
    fn slots_of_pieces_round_trip(list in lists()) {
        let whole = SgeList::new(&list).expect("few enough");
        let rest = list.get(SGE_FIRST..).unwrap_or_default();
        prop_assert_eq!(rest.chunks(SGE_MORE).count(), whole.more());
        let mut back = whole.first().to_vec();
        for some in rest.chunks(SGE_MORE) {
            back.extend(Sge::of_slot(&Sge::slot(some)).expect("a slot").iter().take(some.len()));
        }
        prop_assert_eq!(back, list);
    }

    /// HT-3: whatever stands in a ring is valid work or an error, and valid work takes no more
    /// slots than a ring has.
    #[test]
    fn any_descriptor_is_survived(mut bytes: [u8; WORK_LEN], tame: bool) {
        if tame {
            let tamed = [bytes[8] % 10, bytes[9] & 15, bytes[10] % 17, 0];
            bytes[8..12].copy_from_slice(&tamed);
            bytes[30..32].fill(0);
            bytes[29] &= 1;
            if tamed[1] & FLAG_INLINE == 0 {
                bytes[28..30].fill(0);
            } else {
                bytes[10] = 0;
            }
        }
        if let Ok(work) = SendWork::parse(&bytes) {
            prop_assert!(work.local.more() < WORK_SLOTS_MAX as usize);
        }
        if let Ok(work) = ReceiveWork::parse(&bytes) {
            prop_assert!(work.buffers.more() < WORK_SLOTS_MAX as usize);
        }
        let _ = CompletionEntry::parse(bytes.first_chunk().expect("long enough"));
    }

    #[test]
    fn completions_round_trip(wr_id: u64, qp: u32, byte_len: u32, immediate: Option<u32>) {
        let (status, opcode) = (CompletionStatus::RnrRetryExceeded, CompletionOpcode::Receive);
        let invalidated = immediate.is_none().then_some(!qp);
        let entry =
            CompletionEntry { wr_id, qp, status, opcode, byte_len, immediate, invalidated };
        prop_assert_eq!(CompletionEntry::parse(&entry.to_bytes()), Ok(entry));
    }

    #[test]
    fn events_round_trip(qp: u32, peer in addresses(), mtu: u16, paths: u16, rej: u16, private in privates()) {
        let granularity = Granularity::Packet;
        for event in [
            Event::ConnectRequest { listener: qp, request: !qp, peer, private },
            Event::Established { qp, peer, mtu, paths, granularity, private },
            Event::ConnectFailed { qp, reason: ErrorCode::Rejected, rej, private },
            Event::Disconnected { qp, reason: ErrorCode::Closed },
            Event::SharedLimitReached { queue: qp },
            Event::LastReceiveTaken { qp },
            Event::SendQueueDrained { qp },
            Event::Port { event: PortEvent::ALL[usize::from(rej % 4)] },
        ] {
            let decoded = FromDaemon::decode(event.encode().as_slice());
            prop_assert_eq!(decoded, Ok(FromDaemon::Event(event)));
        }
    }
}

#[test]
fn replies_round_trip() {
    let replies = [
        Reply::Hello {
            major: 1,
            minor: 2,
            features: 3,
            memory: 4,
            queue_pairs: 5,
            message: 6,
        },
        Reply::Region {
            handle: 1,
            lkey: 2,
            rkey: 3,
        },
        Reply::CompletionQueue {
            handle: 1,
            entries: 2,
        },
        Reply::QueuePair {
            handle: 1,
            qpn: 2,
            slot: 3,
            send_entries: 4,
            receive_entries: 5,
        },
        Reply::Window { handle: 1, rkey: 2 },
        Reply::Member {
            handle: 1,
            slot: 2,
            entries: 3,
        },
        Reply::Port(PortAttributes {
            name: *b"interface-of-it\0",
            state: PortState::NoCarrier,
            mac: [1, 2, 3, 4, 5, 6],
            mtu: 9000,
            path_mtu: 4096,
            speed: 100_000_000_000,
            gids: 3,
            partitions: 1,
        }),
        Reply::Gid(GidEntry {
            index: 255,
            address: Ipv4Addr::new(10, 1, 2, 3).into(),
            prefix_len: 24,
        }),
        Reply::Gid(GidEntry {
            index: 0,
            address: Ipv6Addr::LOCALHOST.into(),
            prefix_len: 128,
        }),
        Reply::Partition { key: 0xffff },
        Reply::PathsAsked { change: 7 },
        Reply::PathsOutcome(PathOutcome::Refused),
        Reply::Listener { handle: 1, port: 2 },
        Reply::QueuePairState {
            state: QueuePairState::Error,
            attributes: QueuePairAttributes {
                timeout: Some(0),
                ..QueuePairAttributes::default()
            },
        },
        Reply::SharedQueue {
            handle: 1,
            slot: 2,
            entries: 3,
        },
        Reply::Done,
        Reply::error(ErrorCode::Quota, "no more than 3 queue pairs"),
    ];
    for reply in replies {
        let record = reply.encode(77);
        assert_eq!(
            FromDaemon::decode(record.as_slice()),
            Ok(FromDaemon::Reply(77, reply))
        );
    }
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let record = Reply::error(ErrorCode::Internal, "ü".repeat(400)).encode(1);
    let Ok(FromDaemon::Reply(1, Reply::Error { text, .. })) = FromDaemon::decode(record.as_slice())
    else {
        panic!("not an error reply");
    };
    assert_eq!(text, "ü".repeat(128));
}

/// Flags that cannot be are an argument to refuse, not a message that cannot be read, and the fault
/// is named.
#[test]
fn unlawful_access_is_named() {
    let write = Access::LOCAL_WRITE;
    for (access, fault) in [
        (Access::REMOTE_WRITE, Some("REMOTE_WRITE needs LOCAL_WRITE")),
        (
            Access::REMOTE_ATOMIC,
            Some("REMOTE_ATOMIC needs LOCAL_WRITE"),
        ),
        (Access::REMOTE_WRITE.with(write), None),
        (Access::REMOTE_ATOMIC.with(write).with(Access::BIND), None),
        (Access::REMOTE_READ, None),
    ] {
        assert_eq!(access.fault_of_region(), fault, "{access:?}");
        let request = Request::RegisterRegion {
            length: 1,
            iova: 0,
            access,
        };
        let decoded = Request::decode(request.encode(1).as_slice());
        assert_eq!(decoded, Ok((1, request)));
    }
    assert!(Access::ZERO_BASED.fault_of_region().is_some());
    assert!(Access::BIND.fault_of_queue_pair().is_some());
    assert_eq!(Access::REMOTE_WRITE.fault_of_queue_pair(), None);
}
