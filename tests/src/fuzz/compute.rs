//! In-network compute against members, strangers and parents that say anything (SW-42).

use super::program::Program;
use common::time::{Span, Time};
use common::wire::compute::{
    Chunk, Element, Flags, Join, Key, Level, Levels, Message, Operation, Packet, Reason, Slot,
    Terms, Verdict, Work,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use switchd::compute::{Datagram, Engine, Outbox, Peer, Settings};
use switchd::id::PortId;
use switchd::stats::ComputeStats;

/// Bytes that jobs may take.
const MEMORY: usize = 1 << 16;

/// An outbox that reads what is sent.
struct Read {
    epochs: [u32; 4],
}

impl Outbox for Read {
    fn send(&mut self, to: &Peer, packet: &Packet<'_>, key: Option<&Key>) -> bool {
        let mut bytes = vec![0; packet.len()];
        let len = packet
            .write(key.map(|key| to.seal(key)), &mut bytes)
            .expect("it fits");
        let read = Packet::read(&bytes[..len]).expect("switches say nothing wrong");
        if let Message::Admit(_) = read.message {
            self.epochs[read.job as usize % 4] = read.epoch;
        }
        true
    }
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 5_000))
}

fn work(step: u8) -> Work {
    let operation = Operation::ALL[usize::from(step) % 7];
    let element = Element::ALL[usize::from(step >> 3) % 8];
    match step >> 6 {
        0 => Work::Broadcast,
        1 => Work::Barrier,
        2 if operation.takes(element) => Work::Reduce(operation, element),
        _ if operation.takes(element) => Work::Allreduce(operation, element),
        _ => Work::Barrier,
    }
}

/// What a step says. Sequence numbers are small, so that slots fill.
fn message<'a>(program: &mut Program<'_>, data: &'a [u8]) -> (Flags, u16, Message<'a>) {
    let (kind, rank) = (program.u8(), u16::from(program.u8() % 4));
    let verdict = Verdict {
        reason: Reason::ALL[usize::from(program.u8()) % Reason::ALL.len()],
        level: 0,
        world: None,
        generation: u32::from(program.u8() % 3),
    };
    let flags = program.u8();
    let flag = |bit: u8, flag: Flags| flag.when(flags & bit != 0);
    let flags = flag(1, Flags::RETRANSMISSION)
        .with(flag(2, Flags::PARTIAL))
        .with(flag(4, Flags::CE))
        .with(flag(8, Flags::ROOT))
        .with(flag(16, Flags::LAST))
        .with(flag(32, Flags::SHARED));
    let sequence = u64::from(program.u8() % 16);
    let chunk = Chunk {
        work: work(program.u8()),
        slot: Slot::of(sequence, u16::from(program.u8() % 4)),
        sequence,
        contributions: 1 << rank,
        complete: 0,
        data: &data[..usize::from(program.u8()) % data.len()],
    };
    let terms = Terms {
        slots: 1 + u16::from(program.u8() % 8),
        payload: 64,
        lease_millis: 2_000,
        generation: verdict.generation,
    };
    let level = Level {
        rank: 0,
        size: 2,
        trees: 1 + u16::from(program.u8() % 3),
        first: u16::from(program.u8() % 3),
    };
    let join = Join {
        slots: terms.slots,
        payload: 64,
        operations: 0xfe,
        elements: 0xff,
        deterministic: program.u8() & 1 != 0,
        above: Levels::new(if program.u8() & 1 == 0 {
            &[]
        } else {
            std::slice::from_ref(&level)
        }),
        ..Join::new(verdict.generation, rank, 1 + u16::from(program.u8() % 3))
    };
    let message = match kind % 16 {
        0..5 => Message::Contribution(chunk),
        5 | 6 => Message::Result(chunk),
        7 => Message::Error(verdict),
        8..11 => Message::Join(join),
        11 => Message::Admit(terms),
        12 => Message::Refuse(verdict),
        13 => Message::KeepAlive,
        14 => Message::Leave(verdict),
        _ if kind & 16 == 0 => Message::Alive,
        _ => Message::Left,
    };
    (flags, rank, message)
}

/// Steps: a byte for time, job and source, then what is said. Whatever that is, memory is bounded
/// and all of it is free in the end.
pub(super) fn steps(input: &[u8]) {
    let mut program = Program::new(input);
    let settings = Settings {
        address: Some(Ipv4Addr::new(10, 0, 0, 99).into()),
        parents: vec![address(0), address(1)],
        memory: MEMORY,
        jobs: 3,
        slots: 8,
        ..Settings::default()
    };
    let stats = Arc::new(ComputeStats::default());
    let mut engine = Engine::new(settings, 1, stats.clone());
    let mut out = Read { epochs: [1; 4] };
    let mut now = Time::from_nanos(1_000_000_000);
    let data: Vec<u8> = (0..96).collect();
    while !program.is_over() {
        let step = program.u8();
        if step & 0xc0 == 0xc0 {
            now += Span::from_millis(u64::from(step & 0x3f) * 20);
            engine.tick(now, &mut out);
            continue;
        }
        let job = u32::from(step & 3);
        let (flags, rank, message) = message(&mut program, &data);
        let packet = Packet {
            flags,
            job,
            epoch: out.epochs[job as usize].wrapping_add(u32::from(step & 0x30 == 0x30)),
            rank,
            message,
        };
        let mut bytes = vec![0; packet.len()];
        packet.write(None, &mut bytes).expect("it fits");
        if program.u8() == 0xff {
            let at = usize::from(program.u8()) % bytes.len();
            bytes[at] ^= program.u8();
        }
        let peer = Peer {
            remote: address(step >> 2 & 3),
            local: address(99),
            port: PortId(0),
        };
        let datagram = Datagram {
            peer,
            is_ce: step & 0x20 != 0,
            bytes: &bytes,
        };
        let _ = engine.receive(datagram, now, &mut out);
        assert!(stats.memory.get() <= MEMORY as u64 && stats.jobs.get() <= 3);
    }
    for _ in 0..40 {
        now += Span::from_secs(1);
        engine.tick(now, &mut out);
    }
    assert!(engine.rows(now).is_empty(), "all jobs are over");
    assert_eq!(
        (stats.memory.get(), stats.slots_open.get(), stats.jobs.get()),
        (0, 0, 0)
    );
}
