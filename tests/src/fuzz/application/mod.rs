//! An application that does whatever the input says, beside one that does nothing wrong.
//!
//! Records of the socket are read and carried out as the daemon does it, by the worker that ships,
//! over memory that really is shared: rings, doorbells and regions are written anywhere, at any
//! time, by what the application holds of them. The network gives every packet back to the queue
//! pair that sent it, as if from its peer, so that requests end.

mod client;
mod daemon;
mod posts;
mod requests;

use super::program::Program;
use client::{Client, MEMORY, pick};
use common::time::Span;
use daemon::{Daemon, PATIENCE};
use hostd_client::abi::descriptor::{
    CompletionEntry, CompletionStatus, Local, Opcode, ReceiveWork, SendWork, Sge, SgeList,
};
use hostd_client::abi::feature;
use hostd_client::abi::types::Access;
use nix::fcntl::{FallocateFlags, fallocate};

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
    match byte % 24 {
        0 => return requests::record(daemon, client, which, program.block()),
        1 | 2 => requests::often(daemon, client, which, program),
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
        4..=6 => posts::send(client, which, stranger, program),
        7 | 8 => posts::receive(client, which, program),
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
        15 => return which != 0,
        16..=18 => requests::seldom(daemon, client, which, program),
        19 | 20 => posts::of_any_kind(client, which, stranger, program),
        of @ 21.. => posts::list(client, which, of > 21, program),
    }
    true
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
