use super::*;
use crate::memory::HeapMemory;
use crate::verbs::Buffer;
use crate::verbs::{
    CollectiveConfig, CompletionQueueId, Direction, DomainId, EndReason, EngineConfig, Secret,
};
use common::units::Rate;
use common::wire::compute::{Flags, HEADER_LEN, Join, Key, Message, Terms, Work, guard};
use common::xdp::frame::Region;

const LEAF: [u8; 4] = [10, 0, 0, 1];
const OWN: [u8; 4] = [10, 0, 0, 9];
const AT: usize = 14 + 20 + 8;

fn config() -> CollectiveConfig {
    CollectiveConfig {
        leaf: LEAF.into(),
        port: 4795,
        secret: None,
        class: 2,
        slots: 64,
        memberships: 2,
        staging: 64 * 256,
        join_timeout: Span::from_secs(1),
        rto_min: Span::from_millis(1),
        rto_initial: Span::from_millis(1),
    }
}

fn request(domain: DomainId, cq: CompletionQueueId, rank: u16) -> MemberRequest {
    let join = Join {
        slots: 32,
        payload: 256,
        ..Join::new(1, rank, 4)
    };
    MemberRequest {
        domain,
        cq,
        max_wr: 4,
        job: 5,
        rank,
        join,
    }
}

fn engine() -> (Engine<HeapMemory>, FramePool, MemberRequest) {
    let config = EngineConfig {
        collective: Some(config()),
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(config);
    let domain = engine.create_domain().expect("room");
    let cq = engine.create_completion_queue().expect("room");
    let pool = FramePool::new(Region::heap(16, 2048, 0));
    let request = request(domain, cq, 3);
    (engine, pool, request)
}

/// The frame of a switch that says this.
fn frame(pool: &mut FramePool, message: Message<'_>) -> Frame {
    frame_to(pool, 3, message)
}

/// The same to the member of a rank.
fn frame_to(pool: &mut FramePool, rank: u16, message: Message<'_>) -> Frame {
    frame_by(pool, rank, None, message)
}

/// The same with the tag that this key makes.
fn frame_by(pool: &mut FramePool, rank: u16, key: Option<&Key>, message: Message<'_>) -> Frame {
    let route = Route {
        source: LEAF.into(),
        source_mac: [2; 6],
        destination_mac: [4; 6],
        mtu: 1500,
        rate: Rate::from_gbps(1),
    };
    let flow = frame::flow(&route, LEAF.into(), OWN.into(), 0).expect("of one family");
    let packet = Packet {
        flags: Flags::default(),
        job: 5,
        epoch: 8,
        rank,
        message,
    };
    let mut bytes = vec![0; AT + packet.len()];
    let seal = key.map(|it| it.between(LEAF.into(), OWN.into()));
    packet.write(seal, &mut bytes[AT..]).expect("it fits");
    frame::emit_compute(&mut bytes, &flow, 4795, packet.len());
    pool.take_filled(&bytes).expect("a frame")
}

/// Makes the checksum of UDP of a frame right.
fn seal(frame: &mut [u8]) {
    let [src, dst] = [26, 30].map(|at| {
        let octets: [u8; 4] = frame[at..at + 4].try_into().expect("four bytes");
        octets.into()
    });
    guard(&mut frame[AT - udp::HEADER_LEN..], src, dst);
}

/// HT-50, SW-42: a member asks for the way, joins once there is one, and hears its leaf alone;
/// each message that is not for it is dropped for its own reason.
#[test]
fn members_hear_their_leaf_alone() {
    let (mut engine, mut pool, request) = engine();
    let now = Time::from_nanos(1_000_000);
    engine.begin_turn(now);
    let id = engine.create_member(&request).expect("room");
    let mut out = Vec::new();
    engine.transmit(&mut pool, now, &mut out, 8);
    let destination = LEAF.into();
    assert_eq!(engine.next_event(), Some(Event::NeedRoute { destination }));
    let route = Route {
        source: OWN.into(),
        source_mac: [4; 6],
        destination_mac: [2; 6],
        mtu: 1500,
        rate: Rate::from_gbps(1),
    };
    engine.set_route(destination, route).expect("legal");
    let now = now + ASK_AGAIN;
    engine.transmit(&mut pool, now, &mut out, 8);
    let [(_, joins)] = &out[..] else {
        panic!("{} frames", out.len());
    };
    let join = Packet::read(&joins.bytes()[AT..]).expect("a message");
    assert!(matches!(join.message, Message::Join(join) if join.payload == 256));
    let terms = Terms {
        slots: 32,
        payload: 256,
        lease_millis: 2_000,
        generation: 1,
    };
    let cases = [
        (26, DropReason::CollectiveSource),
        (35, DropReason::CollectiveSource),
        (37, DropReason::NotRoce),
        (AT + 7, DropReason::CollectiveMember),
        (AT + 13, DropReason::CollectiveMember),
        (AT + HEADER_LEN, DropReason::CollectiveMalformed),
    ];
    let sealed = cases.map(|(at, reason)| (at, true, reason));
    let unsealed = [26, 35, AT + 7, AT + HEADER_LEN];
    let unsealed = unsealed.map(|at| (at, false, DropReason::CollectiveChecksum));
    for (at, is_sealed, reason) in sealed.into_iter().chain(unsealed) {
        let mut wrong = frame(&mut pool, Message::Admit(terms));
        let bytes = wrong.bytes_mut();
        bytes[at] ^= 1;
        // The checksums are right, but for one, or but for that of UDP.
        let ip = common::wire::checksum::of;
        bytes[24..26].fill(0);
        let sum = ip(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        if reason == DropReason::CollectiveMember {
            let mut message = Packet { job: 5, ..join };
            message.message = Message::Admit(terms);
            (message.job, message.rank) = if at == AT + 7 { (4, 3) } else { (5, 2) };
            message.write(None, &mut bytes[AT..]).expect("it fits");
        }
        if is_sealed {
            seal(bytes);
        }
        let before = engine.statistics().drops.get(reason);
        engine.receive(wrong, &mut pool, now);
        assert_eq!(
            engine.statistics().drops.get(reason),
            before + 1,
            "byte {at}"
        );
    }
    let admit = frame(&mut pool, Message::Admit(terms));
    engine.receive(admit, &mut pool, now);
    let standing = engine.member_statistics(id).expect("it is there");
    assert_eq!((standing.phase, standing.epoch), ("running", 8));
    let statistics = engine.statistics();
    assert_eq!(statistics.settled(), statistics.rx_packets);
    for (_, frame) in out {
        pool.give(frame);
    }
}

/// HT-50, HT-3: a rank has one holder, memberships and their memory are bounded, and all is
/// free again after the end.
#[test]
fn memberships_are_bounded() {
    let (mut engine, _, request) = engine();
    let id = engine.create_member(&request).expect("room");
    assert_eq!(engine.create_member(&request), Err(EngineError::Busy));
    let second = MemberRequest { rank: 1, ..request };
    engine.create_member(&second).expect("room");
    let third = MemberRequest { rank: 2, ..request };
    assert_eq!(engine.create_member(&third), Err(EngineError::TooMany));
    engine.destroy_member(id).expect("it is there");
    assert_eq!(engine.destroy_member(id), Err(EngineError::Unknown));
    // It leaves, and makes way for the next attempt under its name.
    engine.create_member(&request).expect("room");
    engine.expire_members(Time::ZERO + Span::from_secs(5));
    assert_eq!(engine.members().count(), 2);
    let mut none = Engine::<HeapMemory>::new(EngineConfig::default());
    assert_eq!(none.create_member(&request), Err(EngineError::State));
}

/// HT-50, HT-3: who joins and leaves again and again takes no place of others: members that only
/// leave make way, the oldest first, and those that take part never do.
#[test]
fn leaving_members_make_way() {
    let (mut engine, _, request) = engine();
    let other = MemberRequest { rank: 0, ..request };
    let kept = engine.create_member(&other).expect("room");
    for round in 0..20 {
        engine.begin_turn(Time::from_nanos(1_000 * round));
        let rank = 1 + u16::try_from(round % 3).expect("small");
        let again = MemberRequest { rank, ..request };
        let id = engine.create_member(&again).expect("the last one left");
        assert_eq!(engine.members().count(), 2);
        let third = MemberRequest {
            rank: 1 + rank % 3,
            ..request
        };
        assert_eq!(engine.create_member(&third), Err(EngineError::TooMany));
        engine.destroy_member(id).expect("it is there");
    }
    assert!(engine.member_statistics(kept).is_some());
}

fn route(source: [u8; 4]) -> Route {
    Route {
        source: source.into(),
        source_mac: [4; 6],
        destination_mac: [2; 6],
        mtu: 1500,
        rate: Rate::from_gbps(1),
    }
}

/// HT-50: a member whose port has no room does not keep those from sending that have another one.
#[test]
fn a_full_port_stops_no_others() {
    let (_, mut pool, request) = engine();
    let mut engine = Engine::<HeapMemory>::new(EngineConfig {
        collective: Some(config()),
        ports: 2,
        ..EngineConfig::default()
    });
    let domain = engine.create_domain().expect("room");
    let cq = engine.create_completion_queue().expect("room");
    let ports = [PortId::FIRST, PortId::at(1).expect("there are two")];
    let sources = [OWN, [10, 0, 1, 9]];
    let now = Time::from_nanos(1_000_000);
    engine.begin_turn(now);
    for ((port, source), rank) in ports.into_iter().zip(sources).zip(0..) {
        let direction = Direction {
            destination: LEAF.into(),
            source: Some(source.into()),
        };
        let ways = [(port, route(source))];
        engine.set_routes(direction, &ways).expect("legal");
        let request = MemberRequest {
            domain,
            cq,
            rank,
            ..request
        };
        let id = engine.create_member(&request).expect("room");
        let member = engine.members.members.get_mut(id.0).expect("it is there");
        member.source = Some(source.into());
    }
    engine.set_room(ports[0], 0);
    let mut out = Vec::new();
    engine.transmit(&mut pool, now, &mut out, 8);
    let left: Vec<_> = out.iter().map(|(port, _)| *port).collect();
    assert_eq!(left, [ports[1]]);
    engine.set_room(ports[0], 8);
    engine.transmit(&mut pool, now, &mut out, 8);
    let left: Vec<_> = out.iter().map(|(port, _)| *port).collect();
    assert_eq!(left, [ports[1], ports[0]], "it kept its place in the list");
    for (_, frame) in out {
        pool.give(frame);
    }
}

/// HT-50: members whose port has room for one packet at a time take turns.
#[test]
fn members_take_turns_at_a_full_port() {
    let (mut engine, mut pool, request) = engine();
    let now = Time::from_nanos(1_000_000);
    engine.begin_turn(now);
    engine
        .set_route(IpAddr::from(LEAF), route(OWN))
        .expect("legal");
    let memory = HeapMemory::new(vec![0; 1 << 14]);
    let keys = engine.register(request.domain, memory, 0, crate::verbs::Access::LOCAL_WRITE);
    let lkey = keys.expect("room").lkey;
    let ids = [3, 2].map(|rank| {
        let request = MemberRequest { rank, ..request };
        engine.create_member(&request).expect("room")
    });
    let mut out = Vec::new();
    engine.transmit(&mut pool, now, &mut out, 8);
    out.drain(..).for_each(|(_, frame)| pool.give(frame));
    let terms = Terms {
        slots: 32,
        payload: 256,
        lease_millis: 2_000,
        generation: 1,
    };
    for (id, rank) in ids.into_iter().zip([3, 2]) {
        let admit = frame_to(&mut pool, rank, Message::Admit(terms));
        engine.receive(admit, &mut pool, now);
        let buffer = Buffer { addr: 0, lkey };
        let posted = engine.post_collective(
            id,
            CollectiveRequest {
                wr_id: 1,
                work: Some(Work::Broadcast),
                root: false,
                shared: false,
                len: 1 << 14,
                input: buffer,
                output: buffer,
            },
        );
        posted.expect("room");
    }
    let mut sent = [0; 4];
    for _ in 0..40 {
        engine.set_room(PortId::FIRST, 1);
        engine.transmit(&mut pool, now, &mut out, 8);
        for (_, frame) in out.drain(..) {
            let packet = Packet::read(&frame.bytes()[AT..]).expect("a message");
            sent[usize::from(packet.rank)] += 1;
            pool.give(frame);
        }
    }
    assert_eq!(sent, [0, 0, 20, 20]);
}

/// HT-50: a member that can say nothing for the lease has lost its switch, whether its port has no
/// room or there is no way to the switch any more.
#[test]
fn members_that_cannot_speak_lose_the_switch() {
    for no_way in [false, true] {
        let (mut engine, mut pool, request) = engine();
        let begin = Time::from_nanos(1_000_000);
        engine.begin_turn(begin);
        engine
            .set_route(IpAddr::from(LEAF), route(OWN))
            .expect("legal");
        let id = engine.create_member(&request).expect("room");
        let mut out = Vec::new();
        engine.transmit(&mut pool, begin, &mut out, 8);
        let terms = Terms {
            slots: 32,
            payload: 256,
            lease_millis: 2_000,
            generation: 1,
        };
        let admit = frame(&mut pool, Message::Admit(terms));
        engine.receive(admit, &mut pool, begin);
        out.drain(..).for_each(|(_, frame)| pool.give(frame));
        if no_way {
            engine.set_routes(IpAddr::from(LEAF), &[]).expect("legal");
        } else {
            engine.set_room(PortId::FIRST, 0);
        }
        let standing = |engine: &Engine<HeapMemory>| {
            let it = engine.member_statistics(id).expect("it is there");
            (it.phase, it.end.map(|it| it.reason))
        };
        for step in 0..=27 {
            let now = begin + Span::from_millis(100 * step);
            engine.begin_turn(now);
            engine.expire_members(now);
            engine.transmit(&mut pool, now, &mut out, 8);
            assert!(out.is_empty());
            if step < 20 {
                assert_eq!(standing(&engine), ("running", None), "step {step}");
            }
        }
        let lost = Some(EndReason::SwitchLost);
        assert_eq!(standing(&engine), ("over", lost), "without a way: {no_way}");
    }
}

/// HT-50: answers that come to a member a moment after its end (LEFT once more, where LEAVE was
/// sent again) are lost under a name of their own, and only those with the tag of its job:
/// strangers keep theirs. After a while nobody is expected to say anything any more.
#[test]
fn members_that_have_ended_are_remembered() {
    for secret in [None, Some(Secret([7; 32]))] {
        let key = secret.as_ref().map(|it| Key::of_job(&it.0, 5));
        let collective = CollectiveConfig { secret, ..config() };
        let (_, mut pool, request) = engine();
        let mut engine = Engine::<HeapMemory>::new(EngineConfig {
            collective: Some(collective),
            ..EngineConfig::default()
        });
        let domain = engine.create_domain().expect("room");
        let cq = engine.create_completion_queue().expect("room");
        let begin = Time::from_nanos(1_000_000);
        engine.begin_turn(begin);
        let ids = [3, 2].map(|rank| {
            let request = MemberRequest {
                domain,
                cq,
                rank,
                ..request
            };
            engine.create_member(&request).expect("room")
        });
        let own = key.as_ref();
        let mut hear = |engine: &mut Engine<HeapMemory>, rank, key, message, now| {
            let before = engine.statistics().drops.clone();
            let frame = frame_by(&mut pool, rank, key, message);
            engine.receive(frame, &mut pool, now);
            let after = &engine.statistics().drops;
            let mut lost = after.iter().filter(|(it, count)| *count > before.get(*it));
            lost.next().map(|it| it.0)
        };
        engine.destroy_member(ids[0]).expect("it is there");
        assert_eq!(hear(&mut engine, 3, own, Message::Left, begin), None);
        assert_eq!(engine.members().count(), 1, "the other one");
        let now = begin + Span::from_secs(9);
        let ended = Some(DropReason::CollectiveEnded);
        assert_eq!(hear(&mut engine, 3, own, Message::Left, now), ended);
        let upward = Some(DropReason::CollectiveUpward);
        assert_eq!(hear(&mut engine, 3, own, Message::KeepAlive, now), upward);
        let stranger = Some(DropReason::CollectiveMember);
        assert_eq!(hear(&mut engine, 1, own, Message::Left, now), stranger);
        if own.is_some() {
            let wrong = Some(DropReason::CollectiveKey);
            assert_eq!(hear(&mut engine, 3, None, Message::Left, now), wrong);
        }
        let now = begin + Span::from_secs(10);
        assert_eq!(hear(&mut engine, 3, own, Message::Left, now), stranger);
        // However many end, so many are remembered, the last ones.
        for _ in 0..300 {
            engine.begin_turn(now);
            let request = MemberRequest {
                domain,
                cq,
                rank: 1,
                ..request
            };
            let id = engine.create_member(&request).expect("the last one left");
            engine.destroy_member(id).expect("it is there");
            assert_eq!(hear(&mut engine, 1, own, Message::Left, now), None);
        }
        assert_eq!(hear(&mut engine, 1, own, Message::Left, now), ended);
        assert_eq!(engine.members.remembered(), 256);
    }
}
