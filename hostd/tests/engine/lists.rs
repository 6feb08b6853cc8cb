//! Requests of several pieces of memory, and with their bytes inline.

use crate::network::{MEMORY, Network};
use common::time::Span;
use hostd::limits;
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, EngineConfig, EngineError, Local, MultipathConfig, SendOpcode, SendRequest, Sge, Status,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Bytes of a message, at most: more than eight packets of 1024.
const LONGEST: u32 = 9000;

/// Room around the pieces of a list, which come in any order.
const SLOT: u64 = 16 * 1024;

/// The pieces of a list begin here; what a peer names lies below.
const LISTS: u64 = 1 << 20;

fn below(random: &mut Pcg64Mcg, n: u32) -> u32 {
    random.next_u32() % n
}

/// A message of `len` bytes in up to 16 pieces, some of them empty, that do not touch one another
/// and lie in any order.
fn pieces(random: &mut Pcg64Mcg, len: u32, lkey: u32) -> Vec<Sge> {
    let count = 1 + below(random, 16);
    let mut cuts: Vec<u32> = (1..count).map(|_| below(random, len + 1)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    let mut slots: Vec<u64> = (0..u64::from(count)).collect();
    for index in (1..count).rev() {
        slots.swap(index as usize, below(random, index + 1) as usize);
    }
    cuts.windows(2)
        .zip(slots)
        .map(|(ends, slot)| {
            let len = ends[1] - ends[0];
            Sge {
                addr: LISTS + slot * SLOT + u64::from(below(random, 64)),
                len,
                // Nobody looks at the key of an empty piece.
                lkey: if len == 0 { 0 } else { lkey },
            }
        })
        .collect()
}

fn gathered(memory: &[u8], pieces: &[Sge]) -> Vec<u8> {
    let bytes = pieces.iter().map(|piece| {
        let from = usize::try_from(piece.addr).expect("small");
        &memory[from..from + piece.len as usize]
    });
    bytes.collect::<Vec<_>>().concat()
}

fn scattered(memory: &mut [u8], pieces: &[Sge], mut bytes: &[u8]) {
    for piece in pieces {
        let (now, later) = bytes.split_at(bytes.len().min(piece.len as usize));
        let from = usize::try_from(piece.addr).expect("small");
        memory[from..from + now.len()].copy_from_slice(now);
        bytes = later;
    }
}

/// One message after the other with random lists at both ends; all of both hosts' memory is as it
/// has to be after each.
fn random_lists(seed: u64, multipath: Option<MultipathConfig>) {
    let mut network = Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
    network.impairment.loss = 20;
    network.impairment.jitter = Span::from_micros(30);
    let qpns = network.connected(multipath);
    let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 1);
    let mut memory = [network.fill(0), network.fill(1)];
    for round in 0..60_u64 {
        let opcode = [
            SendOpcode::Send,
            SendOpcode::SendWithImm,
            SendOpcode::RdmaWrite,
            SendOpcode::RdmaWriteWithImm,
            SendOpcode::RdmaRead,
        ][below(&mut random, 5) as usize];
        let len = below(&mut random, LONGEST);
        let keys = [0, 1].map(|host| network.hosts[host].keys);
        let list = pieces(&mut random, len, keys[0].lkey);
        let inline: Vec<u8> = memory[0][..(len % 257) as usize].to_vec();
        let is_inline = opcode != SendOpcode::RdmaRead && below(&mut random, 3) == 0;
        let sent = if is_inline {
            inline.clone()
        } else {
            gathered(&memory[0], &list)
        };
        let target = u64::from(below(&mut random, 4096));
        let receive = pieces(&mut random, len + 10, keys[1].lkey);
        let takes = opcode.takes_receive();
        if takes {
            let engine = &mut network.hosts[1].engine;
            let posted = engine.post_receive_into(qpns[1], round, &receive);
            posted.expect("room");
        }
        let at = usize::try_from(target).expect("small");
        match opcode {
            SendOpcode::RdmaRead => {
                let asked = memory[1][at..at + len as usize].to_vec();
                scattered(&mut memory[0], &list, &asked);
            }
            SendOpcode::Send | SendOpcode::SendWithImm => {
                scattered(&mut memory[1], &receive, &sent);
            }
            _ => memory[1][at..at + sent.len()].copy_from_slice(&sent),
        }
        let request = SendRequest {
            opcode,
            remote_addr: target,
            rkey: keys[1].rkey,
            ..network.hosts[0].send(round, 0, 0)
        };
        let local = if is_inline {
            Local::Inline(&inline)
        } else {
            Local::Pieces(&list)
        };
        let engine = &mut network.hosts[0].engine;
        engine.post_send_of(qpns[0], request, local).expect("room");
        let done = network.run(Span::from_secs(2), |network| {
            !network.hosts[0].completions.is_empty()
                && (!takes || !network.hosts[1].completions.is_empty())
        });
        assert!(done, "seed {seed}: {opcode:?} of {len} in round {round}");
        for (host, wanted) in network.hosts.iter_mut().zip(&memory) {
            let same = host.memory.to_vec() == *wanted;
            assert!(same, "seed {seed}: {opcode:?} of {len} in round {round}");
            for completion in host.completions.drain(..) {
                assert_eq!(completion.status, Status::Success, "seed {seed}");
                assert_eq!(completion.wr_id, round, "seed {seed}");
                assert_eq!(completion.byte_len as usize, sent.len(), "seed {seed}");
            }
        }
    }
    network.close();
}

/// HT-1: messages out of up to 16 pieces and into as many, or out of bytes that were given inline,
/// arrive as they left, over many paths and over plain RoCEv2, while packets are lost.
#[test]
fn random_lists_arrive_as_they_left() {
    for seed in 0..6 {
        random_lists(seed, Some(MultipathConfig::default()));
        random_lists(seed, None);
    }
}

/// HT-1: inline bytes are taken when the request is posted, and need no region.
#[test]
fn inline_bytes_may_change_at_once() {
    let mut network = Network::new(1, [EngineConfig::default(), EngineConfig::default()]);
    let qpns = network.connected(Some(MultipathConfig::default()));
    let mut bytes = [0; limits::INLINE];
    for n in 0..100_u8 {
        let len = usize::from(n) * 2;
        network.hosts[1].receive_into(qpns[1], u64::from(n), u64::from(n) * 300, 300);
        bytes.fill(n + 1);
        let request = SendRequest {
            lkey: 0,
            ..network.hosts[0].send(u64::from(n), 0, 0)
        };
        let engine = &mut network.hosts[0].engine;
        let local = Local::Inline(&bytes[..len]);
        engine.post_send_of(qpns[0], request, local).expect("room");
    }
    network.pass(Span::from_millis(5));
    let memory = network.hosts[1].memory.to_vec();
    for n in 0..100_u8 {
        let from = usize::from(n) * 300;
        let (there, beside) = memory[from..from + 300].split_at(usize::from(n) * 2);
        assert!(there.iter().all(|byte| *byte == n + 1), "message {n}");
        assert!(beside.iter().all(|byte| *byte == 0), "beside message {n}");
    }
    network.close();
}

/// What became of a request that was posted alone.
fn outcome(request: impl FnOnce(&mut Network, [u32; 2]) -> Result<(), EngineError>) -> Status {
    let mut network = Network::new(3, [EngineConfig::default(), EngineConfig::default()]);
    let qpns = network.connected(Some(MultipathConfig::default()));
    let bytes = network.fill(0);
    request(&mut network, qpns).expect("room");
    network.tap = Some(Vec::new());
    network.pass(Span::from_millis(5));
    assert!(network.hosts[0].memory.to_vec() == bytes, "memory changed");
    let status = network.hosts[0].completions[0].status;
    if matches!(status, Status::LocalProtection | Status::LocalLength) {
        let tap = network.tap.as_ref().expect("set above");
        assert!(tap.is_empty(), "{} packets left", tap.len());
    }
    network.close();
    status
}

/// HT-1: a list with one bad piece, or of more than a message's bytes, ends with the status of
/// verbs before anything has left.
#[test]
fn bad_lists_end_before_they_leave() {
    let good = |network: &Network| Sge {
        addr: 0,
        len: 2000,
        lkey: network.hosts[0].keys.lkey,
    };
    let spoil: [fn(&mut Sge); 3] = [
        |piece| piece.lkey ^= 1,
        |piece| piece.addr = MEMORY as u64 - 1999,
        |piece| piece.addr = u64::MAX,
    ];
    for opcode in [
        SendOpcode::Send,
        SendOpcode::RdmaWrite,
        SendOpcode::RdmaRead,
    ] {
        for spoil in spoil {
            for bad in 0..5 {
                let status = outcome(|network, [qpn, _]| {
                    let mut list = [good(network); 5];
                    spoil(&mut list[bad]);
                    let request = SendRequest {
                        opcode,
                        ..network.hosts[0].send(1, 0, 0)
                    };
                    let engine = &mut network.hosts[0].engine;
                    engine.post_send_of(qpn, request, Local::Pieces(&list))
                });
                assert_eq!(status, Status::LocalProtection, "{opcode:?} piece {bad}");
            }
        }
        for len in [limits::MESSAGE / 2 + 1, limits::MESSAGE, u32::MAX] {
            let status = outcome(|network, [qpn, _]| {
                let list = [Sge {
                    len,
                    ..good(network)
                }; 2];
                let request = SendRequest {
                    opcode,
                    ..network.hosts[0].send(1, 0, 0)
                };
                let engine = &mut network.hosts[0].engine;
                engine.post_send_of(qpn, request, Local::Pieces(&list))
            });
            assert_eq!(status, Status::LocalLength, "{opcode:?} of twice {len}");
        }
    }
}

/// HT-1: a READ into a piece that may not be written ends with a local protection error; a SEND
/// out of it does not.
#[test]
fn rights_count_for_each_piece() {
    for (opcode, wanted) in [
        (SendOpcode::RdmaRead, Status::LocalProtection),
        (SendOpcode::RdmaWrite, Status::Success),
    ] {
        let status = outcome(|network, [qpn, _]| {
            let rkey = network.hosts[1].keys.rkey;
            let host = &mut network.hosts[0];
            let memory = HeapMemory::new(vec![7; 4096]);
            let only_read = host
                .engine
                .register(host.domain, memory, 0, Access::NONE)
                .expect("room");
            let piece = |lkey| Sge {
                addr: 0,
                len: 100,
                lkey,
            };
            let list = [piece(host.keys.lkey), piece(only_read.lkey)];
            let request = SendRequest {
                opcode,
                rkey,
                ..host.send(1, 0, 0)
            };
            host.engine.post_send_of(qpn, request, Local::Pieces(&list))
        });
        assert_eq!(status, wanted, "{opcode:?}");
    }
}

/// HT-1: more pieces or inline bytes than allowed are refused when they are posted, and so is what
/// cannot be inline.
#[test]
fn too_many_pieces_are_refused() {
    let mut network = Network::new(4, [EngineConfig::default(), EngineConfig::default()]);
    let [qpn, _] = network.connected(None);
    let host = &mut network.hosts[0];
    let request = host.send(1, 0, 0);
    let list = [Sge::default(); limits::SGE + 1];
    let bytes = [0; limits::INLINE + 1];
    let read = SendRequest {
        opcode: SendOpcode::RdmaRead,
        ..request
    };
    for (request, local) in [
        (request, Local::Pieces(&list)),
        (request, Local::Inline(&bytes)),
        (read, Local::Inline(&bytes[..1])),
    ] {
        let posted = host.engine.post_send_of(qpn, request, local);
        assert_eq!(posted, Err(EngineError::Argument), "{local:?}");
    }
    let posted = host.engine.post_receive_into(qpn, 1, &list);
    assert_eq!(posted, Err(EngineError::Argument));
    let posted = host.engine.post_receive_into(qpn, 1, &list[1..]);
    assert_eq!(posted, Ok(()));
    network.close();
}

/// HT-1: a message that is longer than all pieces of its receive together ends both requests with
/// the statuses of verbs; a receive with a bad piece does, too.
#[test]
fn receives_of_pieces_end_as_verbs_say() {
    for (spoiled, statuses) in [
        (false, [Status::RemoteInvalidRequest, Status::LocalLength]),
        (true, [Status::RemoteOperation, Status::LocalProtection]),
    ] {
        let mut network = Network::new(5, [EngineConfig::default(), EngineConfig::default()]);
        let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
        let lkey = network.hosts[1].keys.lkey;
        let mut list = [5000, 6000].map(|addr| Sge {
            addr,
            len: 999,
            lkey,
        });
        list[1].lkey ^= u32::from(spoiled);
        let engine = &mut network.hosts[1].engine;
        let posted = engine.post_receive_into(receiver, 7, &list);
        posted.expect("room");
        let request = network.hosts[0].send(8, 0, 1999);
        let engine = &mut network.hosts[0].engine;
        engine.post_send(sender, request).expect("room");
        network.pass(Span::from_millis(5));
        let ends = [0, 1].map(|host| network.hosts[host].completions[0].status);
        assert_eq!(ends, statuses);
        let memory = network.hosts[1].memory.to_vec();
        let beside = memory[..5000].iter().chain(&memory[5999..6000]);
        assert!(beside.chain(&memory[6999..]).all(|byte| *byte == 0));
        network.close();
    }
}
