//! SW-40, SW-42: messages of in-network compute through whole workers.

use super::*;
use crate::compute::{Backlog, Engine, Happening, Settings};
use common::wire::compute::{
    Chunk, Element, Flags, Join, Message, Operation, PORT, Packet, Reason, Slot, Verdict, Work,
    guard, is_guarded,
};

/// A switch with jobs and the addresses 10.0.0.254 and fd00:0::254.
pub(super) fn computing(workers: usize) -> Switch {
    let mut switch = without_jobs(workers);
    set(&mut switch, &Settings::default());
    switch
}

/// The same without `[compute]`.
fn without_jobs(workers: usize) -> Switch {
    of_ports(2, workers)
}

/// The same with so many ports.
fn of_ports(ports: usize, workers: usize) -> Switch {
    let mut switch = Switch::new(ports, workers);
    let group = GroupId(u32::try_from(ports).expect("few ports"));
    switch.tables(|tables| tables.groups.push(Group::Local));
    for own in ["10.0.0.254/32", "fd00:0::254/128"] {
        let own = own.parse().expect("a prefix");
        switch.fib.insert(own, group).expect("room");
    }
    switch
}

/// Gives each worker an engine.
fn set(switch: &mut Switch, settings: &Settings) {
    for (stats, commands) in switch.stats.iter().zip(&switch.commands) {
        let engine = Engine::new(settings.clone(), 1, stats.compute.clone());
        let command = WorkerCommand::Compute(Box::new(engine));
        commands.send(command).expect("room");
    }
}

/// A packet that ends so many bytes behind its IP header.
fn cut_behind_the_header(mut frame: Vec<u8>, rest: u8) -> Vec<u8> {
    frame.truncate(34 + usize::from(rest));
    frame[17] = 20 + rest;
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A frame with a message of the host behind a port, over either version.
pub(super) fn frame(from: usize, is_v6: bool, packet: &Packet<'_>) -> Vec<u8> {
    let udp = Udp {
        from,
        payload: packet.len(),
        ..Udp::to(if is_v6 { "fd00:0::254" } else { "10.0.0.254" })
    };
    let mut bytes = udp.frame();
    let transport = if is_v6 { 54 } else { 34 };
    bytes[transport + 2..transport + 4].copy_from_slice(&PORT.to_be_bytes());
    let payload = &mut bytes[transport + udp::HEADER_LEN..];
    packet.write(None, payload).expect("room");
    let (src, dst) = addresses(&bytes);
    guard(&mut bytes[transport..], src, dst);
    bytes
}

/// The addresses of a packet in a frame.
fn addresses(frame: &[u8]) -> (IpAddr, IpAddr) {
    let packet = &frame[ethernet::HEADER_LEN..];
    match frame[12] {
        0x08 => {
            let packet = v4::Packet::new_checked(packet).expect("a packet");
            (packet.src().into(), packet.dst().into())
        }
        _ => {
            let packet = v6::Packet::new_checked(packet).expect("a packet");
            (packet.src().into(), packet.dst().into())
        }
    }
}

pub(super) fn packet(job: u32, rank: u16, message: Message<'_>) -> Packet<'_> {
    Packet {
        flags: Flags::default(),
        job,
        epoch: 1,
        rank,
        message,
    }
}

/// What a frame that left says, and the ECN field and TTL that it says it with.
fn said(frame: &[u8]) -> (Packet<'_>, u8, u8) {
    let (transport, ecn, ttl) = match frame[12] {
        0x08 => (34, frame[15] & 3, frame[22]),
        _ => (54, frame[15] >> 4 & 3, frame[21]),
    };
    let datagram = udp::Datagram::new_checked(&frame[transport..]).expect("a datagram");
    assert_eq!((datagram.src_port(), datagram.dst_port()), (PORT, 1000));
    let (src, dst) = addresses(frame);
    assert!(is_guarded(&datagram, src, dst));
    let payload = &frame[transport + udp::HEADER_LEN..transport + datagram.len()];
    (Packet::read(payload).expect("a message"), ecn, ttl)
}

/// SW-40: two members at different ports and of different workers, one of each version of IP, have
/// their sum, whichever worker has the job, and the books balance.
#[test]
fn members_at_all_workers_have_their_sum() {
    for workers in [1, 2] {
        for job in [4, 5] {
            let mut switch = computing(workers);
            for rank in [0_u16, 1] {
                let join = packet(job, rank, Message::Join(joining(rank)));
                switch.offer(rank.into(), &frame(rank.into(), rank == 1, &join));
            }
            let left = switch.run();
            for (port, frames) in left.iter().enumerate() {
                let (packet, ecn, ttl) = said(&frames[0]);
                assert!(matches!(packet.message, Message::Admit(_)), "{packet:?}");
                assert_eq!((usize::from(packet.rank), ecn, ttl), (port, 2, 64));
            }
            for rank in [0, 1] {
                let contribution = contribution(job, rank, 0);
                switch.offer(rank.into(), &frame(rank.into(), rank == 1, &contribution));
            }
            for frames in switch.run() {
                let Message::Result(chunk) = said(&frames[0]).0.message else {
                    panic!("{:?}", said(&frames[0]));
                };
                assert_eq!(chunk.data, [2, 0, 0, 0, 4, 0, 0, 0]);
            }
        }
    }
}

/// SW-42: a JOIN of which a bit turned on its way gives its rank to nobody else: the member is
/// admitted when it asks again.
#[test]
fn a_turned_bit_gives_no_rank_away() {
    for is_v6 in [false, true] {
        let mut switch = without_jobs(1);
        let settings = Settings {
            jobs: 4096,
            ..Settings::default()
        };
        set(&mut switch, &settings);
        let join = Join {
            slots: 1,
            payload: 8,
            operations: Operation::Sum.bit(),
            elements: Element::U32.bit(),
            ..Join::new(1, 0, 1)
        };
        let (protocol, transport) = if is_v6 { (20, 54) } else { (23, 34) };
        let is_answer = |it: &&Vec<u8>| it[protocol] == 17 && it[transport + 2..][..2] == [3, 232];
        for bit in 14 * 8..(transport + udp::HEADER_LEN) * 8 {
            let job = u32::try_from(bit).expect("few");
            let whole = frame(0, is_v6, &packet(job, 0, Message::Join(join)));
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            switch.offer(0, &broken);
            switch.offer(0, &whole);
            let left = switch.run();
            let answers = left[0].iter().filter(is_answer);
            let answers: Vec<_> = answers.map(|it| said(it).0.message).collect();
            let is_admitted = answers.iter().any(|it| matches!(it, Message::Admit(_)));
            assert!(is_admitted, "bit {bit}: {answers:?}");
        }
        // The source port and the checksum; over IPv6 the source, too.
        let least = if is_v6 { 128 + 32 } else { 32 };
        assert!(switch.dropped(DropReason::ComputeChecksum) >= least);
    }
}

/// What members of the tests ask for.
fn joining(rank: u16) -> Join {
    Join {
        slots: 4,
        payload: 64,
        operations: Operation::Sum.bit(),
        elements: Element::U32.bit(),
        ..Join::new(1, rank, 2)
    }
}

/// The contribution of a member to a chunk, which is a collective of its own.
fn contribution(job: u32, rank: u16, sequence: u64) -> Packet<'static> {
    let chunk = Chunk {
        work: Work::Allreduce(Operation::Sum, Element::U32),
        slot: Slot::of(sequence, 4),
        sequence,
        contributions: 1 << rank,
        complete: 0,
        data: &[1, 0, 0, 0, 2, 0, 0, 0],
    };
    Packet {
        flags: Flags::LAST,
        ..packet(job, rank, Message::Contribution(chunk))
    }
}

/// As many messages arrive at once at a port, beside what the queues of the ports bring.
fn flood(switch: &mut Switch, port: u16, bytes: &[u8], count: usize) {
    let own = mac(port.into(), false);
    let parsed = crate::ingress::parse::parse(bytes, own).expect("a packet");
    for _ in 0..count {
        let worker = &mut switch.workers[0];
        let frame = worker.devices.pool.take_chain(bytes).expect("free frames");
        let origin = super::super::dispatch::Origin {
            ingress: PortId(port),
            trace: crate::id::TraceId::NONE,
            flow: None,
            since: switch.now,
            now: switch.now,
        };
        worker.take_own(frame, &parsed, origin);
    }
}

/// What has left the ports.
fn pick_up(switch: &mut Switch) -> Vec<Vec<Vec<u8>>> {
    let mut left = vec![Vec::new(); switch.wires.len()];
    for (wire, left) in switch.wires.iter().zip(&mut left) {
        while let Some(frame) = wire.pick_up() {
            left.push(frame.pieces().flatten().copied().collect());
            switch.outside.give(frame);
        }
    }
    left
}

/// SW-42, SW-51: what floods one job beyond its room is lost by reason, turn after turn, and costs
/// another nothing: each of its results leaves in the turn in which the last contribution comes,
/// and control learns that it ran and is over.
#[test]
fn floods_are_lost_by_reason() {
    const JOB: u32 = 4;
    let mut switch = computing(1);
    for rank in [0, 1] {
        let join = packet(JOB, rank, Message::Join(joining(rank)));
        switch.offer(rank.into(), &frame(rank.into(), false, &join));
    }
    assert!(switch.run().iter().all(|left| left.len() == 1), "admitted");
    let stats = switch.stats[0].compute.clone();
    let most = Backlog::<()>::ALONE;
    // What a switch says is not answered.
    let alive = frame(0, false, &packet(3, 0, Message::Alive));
    let mut offered = 0;
    for sequence in 0..40 {
        flood(&mut switch, 0, &alive, most);
        offered += most as u64;
        for rank in [0, 1] {
            let chunk = contribution(JOB, rank, sequence);
            switch.offer(rank.into(), &frame(rank.into(), false, &chunk));
        }
        switch.turn();
        assert!(stats.waiting.get() >= 1_000, "the flood waits");
        for left in pick_up(&mut switch) {
            let [left] = &left[..] else {
                panic!("{} packets", left.len());
            };
            let Message::Result(chunk) = said(left).0.message else {
                panic!("{:?}", said(left));
            };
            assert_eq!(chunk.sequence, sequence);
            assert_eq!(chunk.data, [2, 0, 0, 0, 4, 0, 0, 0]);
        }
    }
    let full = switch.dropped(DropReason::ComputeFull);
    assert!(full > 0);
    assert_eq!(
        full + switch.dropped(DropReason::ComputeUnknownJob) + stats.waiting.get(),
        offered
    );
    let verdict = Verdict {
        reason: Reason::Finished,
        level: 0,
        world: None,
        generation: 1,
    };
    for rank in [0, 1] {
        let leave = packet(JOB, rank, Message::Leave(verdict));
        switch.offer(rank.into(), &frame(rank.into(), false, &leave));
    }
    switch.turn();
    for left in pick_up(&mut switch) {
        assert_eq!(said(&left[0]).0.message, Message::Left);
    }
    let told = switch.events.try_iter().map(|event| match event {
        WorkerEvent::Job(notice) => notice.happening,
        other => panic!("{other:?}"),
    });
    let runs = Happening::Runs {
        members: 2,
        slots: 4,
        parents: 0,
    };
    let over = Happening::Over {
        reason: Reason::Finished,
        blamed: None,
    };
    assert_eq!(told.collect::<Vec<_>>(), [runs, over]);
}

/// SW-42, SW-51: a flood from another port in a job's own name, in those of its members and of all
/// other jobs, costs the job nothing: each of its results leaves in the turn in which the last
/// contribution comes, and no member is told to send less.
#[test]
fn floods_in_the_name_of_a_job_cost_it_nothing() {
    const JOB: u32 = 4;
    // These have all hashes that there are.
    for jobs in [vec![JOB], (0..64).collect()] {
        let mut switch = of_ports(3, 1);
        set(&mut switch, &Settings::default());
        for rank in [0, 1] {
            let join = packet(JOB, rank, Message::Join(joining(rank)));
            switch.offer(rank.into(), &frame(rank.into(), false, &join));
        }
        assert_eq!(switch.run().iter().map(Vec::len).sum::<usize>(), 2);
        let each = Backlog::<()>::ALONE / jobs.len() + 1;
        for sequence in 0..40 {
            for job in &jobs {
                let stranger = contribution(*job, 0, sequence);
                flood(&mut switch, 2, &frame(2, false, &stranger), each);
            }
            for rank in [0, 1] {
                let chunk = contribution(JOB, rank, sequence);
                switch.offer(rank.into(), &frame(rank.into(), false, &chunk));
            }
            switch.turn();
            assert!(switch.stats[0].compute.waiting.get() >= 1_000);
            let left = pick_up(&mut switch);
            for rank in [0, 1] {
                let (result, ..) = said(left[rank].last().expect("a result"));
                let Message::Result(chunk) = result.message else {
                    panic!("{result:?}");
                };
                assert_eq!((left[rank].len(), chunk.sequence), (1, sequence));
                assert!(!result.flags.contain(Flags::CE), "chunk {sequence}");
            }
        }
        assert!(switch.dropped(DropReason::ComputeFull) > 0);
        assert!(switch.dropped(DropReason::ComputeStranger) > 0);
    }
}

/// SW-42, SW-51: a flood that one port brings is served as fast as it comes, and nothing is lost;
/// what is no message stays what it was, a packet that the kernel should have.
#[test]
fn what_a_port_brings_is_served() {
    let mut switch = computing(1);
    let flood = frame(0, false, &packet(3, 0, Message::KeepAlive));
    let room = Backlog::<()>::MOST;
    for _ in 0..room / 16 + 200 {
        switch.workers[0].turn(switch.now);
        switch.offer(0, &flood);
    }
    switch.run();
    assert_eq!(switch.dropped(DropReason::ComputeFull), 0);
    let unknown = switch.dropped(DropReason::ComputeUnknownJob);
    assert_eq!(unknown, (room / 16 + 200) as u64);

    let mut other = Udp::to("10.0.0.254").frame();
    other[36..38].copy_from_slice(&(PORT + 1).to_be_bytes());
    switch.offer(0, &other);
    switch.offer(0, &cut_behind_the_header(flood, 6));
    switch.run();
    assert_eq!(switch.dropped(DropReason::Local), 1);
    assert_eq!(switch.dropped(DropReason::ComputeMalformed), 1);
}

/// SW-42: a job that has more waiting than its share loses what exceeds it, by reason.
#[test]
fn a_job_that_waits_too_long_loses_by_reason() {
    let mut switch = computing(1);
    let message = frame(0, false, &packet(3, 0, Message::KeepAlive));
    let most = Backlog::<()>::ALONE;
    switch.turn();
    flood(&mut switch, 0, &message, most + 3);
    assert_eq!(switch.dropped(DropReason::ComputeFull), 3);
    assert_eq!(switch.workers[0].held(), most);
    for _ in 0..50 {
        switch.turn();
        while let Some(frame) = switch.wires[0].pick_up() {
            switch.outside.give(frame);
        }
    }
    assert_eq!(switch.workers[0].held(), 0);
    assert_eq!(switch.dropped(DropReason::ComputeUnknownJob), most as u64);
}

/// SW-42, SW-51: without in-network compute no packet is a message, also one without a port.
#[test]
fn without_jobs_nothing_is_a_message() {
    for rest in [0, 6] {
        let mut switch = without_jobs(1);
        let message = frame(0, false, &packet(3, 0, Message::KeepAlive));
        switch.offer(0, &cut_behind_the_header(message, rest));
        switch.run();
        assert_eq!(switch.dropped(DropReason::Local), 1, "{rest} bytes");
    }
}

/// SW-42: the switch is not talked to at the broadcast address of a network, and says nothing from
/// it.
#[test]
fn a_message_to_all_is_to_nobody() {
    let mut switch = computing(1);
    switch.tables(|tables| tables.groups.push(Group::Broadcast));
    let all = "10.0.0.255/32".parse().expect("a prefix");
    switch.fib.insert(all, GroupId(3)).expect("room");
    switch.turn();
    // The switch knows no such job, and says so.
    let packet = packet(3, 0, Message::KeepAlive);
    let mut to_all = frame(0, false, &packet);
    to_all[33] = 255;
    to_all[24..26].fill(0);
    let sum = checksum::of(&to_all[14..34]);
    to_all[24..26].copy_from_slice(&sum.to_be_bytes());
    let (src, dst) = addresses(&to_all);
    guard(&mut to_all[34..], src, dst);
    for (bytes, answers) in [(to_all, 0), (frame(0, false, &packet), 1)] {
        switch.offer(0, &bytes);
        let said: usize = switch.run().iter().map(Vec::len).sum();
        assert_eq!(said, answers);
    }
    assert_eq!(switch.dropped(DropReason::Local), 1);
}

/// SW-42, SW-51: what comes from a source that may not join takes no place among what waits, at
/// whichever worker it arrives.
#[test]
fn sources_that_may_not_join_take_no_place() {
    for (workers, job) in [(1, 3), (2, 3), (2, 4)] {
        let mut switch = without_jobs(workers);
        let settings = Settings {
            members: vec!["192.0.2.0/24".parse().expect("a prefix")],
            ..Settings::default()
        };
        set(&mut switch, &settings);
        switch.turn();
        let message = frame(0, false, &packet(job, 0, Message::KeepAlive));
        switch.offer(0, &message);
        switch.run();
        assert_eq!(switch.dropped(DropReason::ComputeStranger), 1);
    }
}
