//! An application that does whatever the input says, beside one that does nothing wrong.
//!
//! Records of the socket are read and carried out as the daemon does it, by the worker that ships,
//! over memory that really is shared: rings, doorbells and regions are written anywhere, at any
//! time, by what the application holds of them. The network gives every packet back to the queue
//! pair that sent it, as if from its peer, so that requests end.

mod client;
mod daemon;

use super::program::Program;
use client::{Client, MEMORY, keep, pick};
use common::time::Span;
use daemon::{Daemon, OWN, PATIENCE, PEER};
use hostd_client::abi::answer::Reply;
use hostd_client::abi::descriptor::{
    CompletionEntry, CompletionStatus, Local, Opcode, ReceiveWork, SendWork, Sge, SgeList,
};
use hostd_client::abi::feature;
use hostd_client::abi::message::Request;
use hostd_client::abi::types::{Access, ObjectKind, Private};
use hostd_client::shm::create_shared;
use nix::fcntl::{FallocateFlags, fallocate};
use std::net::Ipv4Addr;

/// What the region of the other application is full of.
const TREASURE: u8 = 0xa5;

/// An application that does nothing wrong is served well: a message to itself arrives.
fn is_served(daemon: &mut Daemon, client: &mut Client) {
    let (from, to) = (0x100, 0x800);
    let region = &client.regions[0];
    region.mapping.copy_in(from, &[0x42; 64]);
    let sge = |address: usize| {
        SgeList::new(&[Sge {
            address: address as u64,
            length: 64,
            lkey: region.handle,
        }])
    };
    let receive = ReceiveWork {
        wr_id: 1,
        buffers: sge(to).expect("one"),
    };
    let send = SendWork {
        wr_id: 2,
        opcode: Opcode::Send,
        signaled: true,
        solicited: false,
        fence: false,
        immediate: 0,
        remote_address: 0,
        rkey: 0,
        local: Local::Pieces(sge(from).expect("one")),
        compare_add: 0,
        swap: 0,
    };
    let pair = &mut client.pairs[0];
    pair.receive.push(&receive.to_bytes());
    pair.send.push(&send.to_bytes());
    let slot = pair.slot;
    client.ring(slot);
    let mut ended = Vec::new();
    for _ in 0..PATIENCE {
        daemon.turn(false);
        while let Some(bytes) = client.queues[0].1.pop() {
            let entry = CompletionEntry::parse(&bytes).expect("the daemon wrote it");
            assert_eq!(entry.status, CompletionStatus::Success);
            ended.push(entry.wr_id);
        }
        if ended.len() == 2 {
            break;
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 2], "it is not served");
    let mut bytes = vec![0; MEMORY];
    client.regions[0].mapping.copy_out(0, &mut bytes);
    assert_eq!(bytes[to..to + 64], [0x42; 64]);
    let own = |at: usize| (from..from + 64).contains(&at) || (to..to + 64).contains(&at);
    let rest = bytes.iter().enumerate().filter(|(at, _)| !own(*at));
    assert!(
        rest.clone().all(|(_, &byte)| byte == TREASURE),
        "overwritten"
    );
}

/// See the module. A step is a byte with arguments behind it.
pub(super) fn steps(input: &[u8]) {
    let mut daemon = Daemon::new();
    let mut victim = Client::new(&mut daemon, 1, feature::ALL);
    let rights = Access::LOCAL_WRITE
        .with(Access::REMOTE_WRITE)
        .with(Access::REMOTE_READ)
        .with(Access::REMOTE_ATOMIC);
    victim.register(&mut daemon, rights);
    victim.regions[0].mapping.copy_in(0, &[TREASURE; MEMORY]);
    victim.completion_queue(&mut daemon);
    victim.queue_pair(&mut daemon, 0);
    victim.connect(&mut daemon, 0, |_| ());

    let mut program = Program::new(input);
    let features = match program.u8() {
        0..=0x7f => feature::ALL,
        _ => feature::SEND | feature::WRITE,
    };
    let mut client = Client::new(&mut daemon, 2, features);
    let stranger = victim.regions[0].rkey;
    while !program.is_over() {
        if !step(&mut daemon, &mut client, stranger, &mut program) {
            daemon.end(client.session);
            client = Client::new(&mut daemon, 2, features);
        }
        daemon.drain_notices();
    }
    is_served(&mut daemon, &mut victim);
    daemon.end(client.session);
    daemon.end(victim.session);
    daemon.close();
}

/// One step of the hostile application; `false` ends its session.
fn step(
    daemon: &mut Daemon,
    client: &mut Client,
    stranger: u32,
    program: &mut Program<'_>,
) -> bool {
    let (byte, which) = (program.u8(), program.u8());
    match byte % 16 {
        0 => return record(daemon, client, which, program.block()),
        1 | 2 => request(daemon, client, which, program),
        3 => {
            let (at, bytes) = (program.u16(), program.block());
            match which % 3 {
                0 => pick(&mut client.queues, which / 3).map(|it| &it.1),
                1 => pick(&mut client.pairs, which / 3).map(|it| &it.send),
                _ => pick(&mut client.pairs, which / 3).map(|it| &it.receive),
            }
            .iter()
            .for_each(|ring| ring.spoil(at, bytes));
        }
        4..=6 => post_send(client, which, stranger, program),
        7 | 8 => post_receive(client, which, program),
        9 => {
            let (first, count) = (u32::from(program.u8()) * 4, u32::from(program.u8()));
            (first..(first + count).min(1024)).for_each(|slot| {
                client.ring(slot);
            });
        }
        10 | 11 => {
            let deaf = which & 0x80 != 0;
            for _ in 0..which & 0x1f {
                if daemon.turn(deaf) == 0 {
                    break;
                }
            }
        }
        12 => daemon.now += Span::from_millis(which.into()),
        13 => {
            if let Some((_, ring)) = pick(&mut client.queues, which) {
                // Bounded: the index may have been spoiled here.
                for _ in 0..16 {
                    ring.pop();
                }
            }
        }
        14 => take_away(client, which),
        _ => return which != 0,
    }
    true
}

/// Bytes on the socket. Those that are no request end the session.
fn record(daemon: &mut Daemon, client: &mut Client, fds: u8, bytes: &[u8]) -> bool {
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
fn request(daemon: &mut Daemon, client: &mut Client, which: u8, program: &mut Program<'_>) {
    let value = program.u8();
    match which % 12 {
        0 | 1 => {
            let right = |bit: u8, access: Access| (value & bit != 0).then_some(access);
            let access = [
                right(1, Access::REMOTE_WRITE),
                right(2, Access::REMOTE_READ),
                right(4, Access::REMOTE_ATOMIC),
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

fn post_send(client: &mut Client, which: u8, stranger: u32, program: &mut Program<'_>) {
    const OPCODES: [Opcode; 7] = [
        Opcode::Write,
        Opcode::WriteWithImmediate,
        Opcode::Send,
        Opcode::SendWithImmediate,
        Opcode::Read,
        Opcode::CompareSwap,
        Opcode::FetchAdd,
    ];
    let (how, address, len) = (program.u8(), program.u16(), program.u16());
    let opcode = OPCODES[usize::from(how & 7) % OPCODES.len()];
    let region = pick(&mut client.regions, how >> 3).map(|it| (it.handle, it.rkey));
    let (lkey, rkey) = region.unwrap_or((1, 1));
    let rkey = if how >= 0xc0 { stranger } else { rkey };
    let sge = Sge {
        address: u64::from(address) & 0x1ff8,
        length: if opcode.is_atomic() {
            8
        } else {
            u32::from(len & 0xfff)
        },
        lkey: if how & 0xe0 == 0xa0 { stranger } else { lkey },
    };
    let work = SendWork {
        wr_id: u64::from(len),
        opcode,
        signaled: which & 0x80 != 0,
        solicited: which & 0x40 != 0,
        fence: which & 0x20 != 0,
        immediate: if opcode.has_immediate() { 7 } else { 0 },
        remote_address: match opcode {
            Opcode::Send | Opcode::SendWithImmediate => 0,
            _ => u64::from(len) & 0x1ff8,
        },
        rkey,
        local: Local::Pieces(SgeList::new(&[sge]).expect("one")),
        compare_add: if opcode.is_atomic() { 1 } else { 0 },
        swap: 0,
    };
    if let Some(pair) = pick(&mut client.pairs, which & 3) {
        pair.send.push(&work.to_bytes());
        let slot = pair.slot;
        client.ring(slot);
    }
}

fn post_receive(client: &mut Client, which: u8, program: &mut Program<'_>) {
    let (address, len) = (program.u16(), program.u16());
    let lkey = pick(&mut client.regions, which >> 2).map_or(1, |it| it.handle);
    let sge = Sge {
        address: address.into(),
        length: len.into(),
        lkey,
    };
    let work = ReceiveWork {
        wr_id: 3,
        buffers: SgeList::new(&[sge]).expect("one"),
    };
    if let Some(pair) = pick(&mut client.pairs, which & 3) {
        pair.receive.push(&work.to_bytes());
        let slot = pair.slot;
        client.ring(slot);
    }
}

/// Punches holes into a region, or makes it shorter, as far as the kernel lets it.
fn take_away(client: &mut Client, which: u8) {
    let Some(region) = pick(&mut client.regions, which >> 1) else {
        return;
    };
    if which & 1 == 0 {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = fallocate(&region.fd, flags, 0, MEMORY as i64);
    } else {
        let _ = nix::unistd::ftruncate(&region.fd, 0);
    }
}
