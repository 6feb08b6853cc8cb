//! Memory windows, and keys that are taken back.

use crate::network::Network;
use common::time::Span;
use hostd::memory::{HeapMemory, RegionMemory};
use hostd::verbs::{
    Access, Completion, CompletionOpcode, EngineConfig, EngineError, MultipathConfig, RegionKeys,
    SendOpcode, SendRequest, Status,
};

/// Bytes of the region that windows are bound to, and its first address.
const LEN: u32 = 1 << 20;
const BASE: u64 = 0x10_0000;

/// Two hosts; the second one has a region for windows, and a window.
struct Bed {
    network: Network,
    qpns: [u32; 2],
    memory: HeapMemory,
    region: RegionKeys,
    window: u32,
    rkey: u32,
}

/// The key after `rkey`.
fn next(rkey: u32) -> u32 {
    rkey & 0xffff_ff00 | rkey.wrapping_add(1) & 0xff
}

impl Bed {
    fn new(seed: u64, multipath: Option<MultipathConfig>) -> Self {
        let mut network = Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
        let qpns = network.connected(multipath);
        let host = &mut network.hosts[1];
        let memory = HeapMemory::new(vec![0; LEN as usize]);
        let rights = Access::LOCAL_WRITE | Access::BIND;
        let region = host
            .engine
            .register(host.domain, memory.clone(), BASE, rights);
        let (window, rkey) = host.engine.create_window(host.domain).expect("room");
        Self {
            network,
            qpns,
            memory,
            region: region.expect("room"),
            window,
            rkey,
        }
    }

    /// A request that binds the window to `len` bytes from `addr` on.
    fn bind(&self, addr: u64, len: u64, access: Access) -> SendRequest {
        SendRequest {
            wr_id: 100,
            opcode: SendOpcode::BindMw,
            lkey: self.region.lkey,
            addr,
            rkey: next(self.rkey),
            imm: self.window,
            signaled: true,
            compare_add: access.bits().into(),
            swap: len,
            ..SendRequest::default()
        }
    }

    /// Binds the window and returns its key.
    fn bound(&mut self, addr: u64, len: u64, access: Access) -> u32 {
        let bind = self.bind(addr, len, access);
        self.rkey = bind.rkey;
        let done = self.does(1, bind);
        assert_eq!(
            (done.status, done.opcode),
            (Status::Success, CompletionOpcode::BindMw)
        );
        self.rkey
    }

    /// Posts a request on a host; how it ended.
    fn does(&mut self, host: usize, request: SendRequest) -> Completion {
        let engine = &mut self.network.hosts[host].engine;
        engine.post_send(self.qpns[host], request).expect("room");
        let done = |network: &mut Network| {
            let mut completions = network.hosts[host].completions.iter();
            completions.any(|completion| completion.wr_id == request.wr_id)
        };
        assert!(self.network.run(Span::from_secs(20), done), "{request:?}");
        let completions = &mut self.network.hosts[host].completions;
        let found = completions.iter().position(|it| it.wr_id == request.wr_id);
        completions.swap_remove(found.expect("seen"))
    }

    /// A WRITE of `len` bytes of the first host to `addr` of the window.
    fn write(&self, rkey: u32, addr: u64, len: u32) -> SendRequest {
        SendRequest {
            opcode: SendOpcode::RdmaWrite,
            remote_addr: addr,
            rkey,
            ..self.network.hosts[0].send(7, 0, len)
        }
    }

    fn send_with_invalidate(&self, rkey: u32, len: u32) -> SendRequest {
        SendRequest {
            opcode: SendOpcode::SendWithInv,
            imm: rkey,
            ..self.network.hosts[0].send(8, 0, len)
        }
    }
}

fn local_invalidate(rkey: u32) -> SendRequest {
    SendRequest {
        wr_id: 101,
        opcode: SendOpcode::LocalInv,
        imm: rkey,
        signaled: true,
        ..SendRequest::default()
    }
}

/// HT-1: a window opens its part of a region, for its rights, to peers of its queue pair, under the
/// addresses that the bind says.
#[test]
fn a_window_opens_its_part() {
    for multipath in [Some(MultipathConfig::default()), None] {
        for zero_based in [false, true] {
            let mut bed = Bed::new(1, multipath);
            let bytes = bed.network.fill(0);
            let base = if zero_based { 0 } else { BASE + 1000 };
            let rights = if zero_based {
                Access::REMOTE_WRITE | Access::ZERO_BASED
            } else {
                Access::REMOTE_WRITE
            };
            let rkey = bed.bound(BASE + 1000, 5000, rights);
            let written = bed.does(0, bed.write(rkey, base, 5000));
            assert_eq!(written.status, Status::Success);
            let memory = bed.memory.to_vec();
            assert!(memory[1000..6000] == bytes[..5000]);
            assert!(
                memory[..1000]
                    .iter()
                    .chain(&memory[6000..])
                    .all(|byte| *byte == 0)
            );
            bed.network.close();
        }
    }
}

/// HT-1, HT-3: what a window does not open is refused: bytes beside its part, rights that it does
/// not give, other keys of it, other queue pairs.
#[test]
fn a_window_opens_no_more() {
    type Wrong = fn(&mut Bed, u32) -> SendRequest;
    let wrongs: [Wrong; 6] = [
        |bed, rkey| bed.write(rkey, BASE + 999, 10),
        |bed, rkey| bed.write(rkey, BASE + 5991, 10),
        |bed, rkey| bed.write(next(rkey), BASE + 1000, 10),
        |bed, rkey| SendRequest {
            opcode: SendOpcode::RdmaRead,
            ..bed.write(rkey, BASE + 1000, 10)
        },
        |bed, rkey| SendRequest {
            opcode: SendOpcode::AtomicFetchAndAdd,
            ..bed.write(rkey, BASE + 1000, 8)
        },
        |bed, rkey| {
            // A second pair of queue pairs, in the same domain.
            bed.qpns = bed.network.connected(None);
            bed.write(rkey, BASE + 1000, 10)
        },
    ];
    for (n, wrong) in wrongs.into_iter().enumerate() {
        let mut bed = Bed::new(2, None);
        let rkey = bed.bound(BASE + 1000, 5000, Access::REMOTE_WRITE);
        let request = wrong(&mut bed, rkey);
        let ended = bed.does(0, request);
        assert_eq!(ended.status, Status::RemoteAccess, "{n}");
        assert!(bed.memory.to_vec().iter().all(|byte| *byte == 0), "{n}");
        bed.network.close();
    }
}

/// HT-1: binds that verbs forbid end with their status, and open nothing.
#[test]
fn unlawful_binds_fail() {
    type Spoil = fn(&mut SendRequest, &Bed);
    let spoils: [Spoil; 10] = [
        |bind, _| bind.lkey ^= 1,
        |bind, bed| bind.lkey = bed.region.rkey,
        |bind, bed| bind.lkey = bed.network.hosts[1].keys.lkey, // no BIND
        |bind, _| bind.swap = u64::from(LEN) + 1,
        |bind, _| bind.swap = 0,
        |bind, _| bind.addr = BASE - 1,
        |bind, bed| bind.rkey = bed.rkey,
        |bind, _| bind.rkey ^= 1 << 8,
        |bind, _| bind.imm ^= 1,
        |bind, _| bind.compare_add |= 1 << 4,
    ];
    for (n, spoil) in spoils.into_iter().enumerate() {
        let mut bed = Bed::new(3, None);
        let mut bind = bed.bind(BASE, LEN.into(), Access::REMOTE_WRITE);
        spoil(&mut bind, &bed);
        let ended = bed.does(1, bind);
        assert_eq!(ended.status, Status::MemoryWindowBind, "{n}");
        bed.network.close();
    }
    // A window is bound once at a time.
    let mut bed = Bed::new(3, None);
    bed.bound(BASE, 100, Access::REMOTE_WRITE);
    let again = bed.bind(BASE, 100, Access::REMOTE_WRITE);
    assert_eq!(bed.does(1, again).status, Status::MemoryWindowBind);
    bed.network.close();
}

/// HT-1: local invalidation takes a key back; the window can be bound again, under another key.
#[test]
fn a_key_is_taken_back_here() {
    let mut bed = Bed::new(4, Some(MultipathConfig::default()));
    let first = bed.bound(BASE, 100, Access::REMOTE_WRITE);
    let ended = bed.does(1, local_invalidate(first));
    assert_eq!(
        (ended.status, ended.opcode),
        (Status::Success, CompletionOpcode::LocalInv)
    );
    let second = bed.bound(BASE, 200, Access::REMOTE_WRITE);
    assert_ne!(first, second);
    let written = bed.does(0, bed.write(second, BASE + 100, 100));
    assert_eq!(written.status, Status::Success);
    let refused = bed.does(0, bed.write(first, BASE, 10));
    assert_eq!(refused.status, Status::RemoteAccess);
    bed.network.close();
    // Keys that are none of a bound window: of regions, of others, none at all.
    for choose in [
        (|bed| bed.region.rkey) as fn(&Bed) -> u32,
        |bed| bed.rkey,
        |bed| bed.network.hosts[0].keys.rkey,
        |_| 0,
    ] {
        let mut bed = Bed::new(5, None);
        let key = choose(&bed);
        assert_eq!(
            bed.does(1, local_invalidate(key)).status,
            Status::LocalQpOperation
        );
        bed.network.close();
    }
}

/// HT-1: a SEND with invalidate of one packet or several takes the key back when it has arrived,
/// and its completion names the key; packets are lost and come twice meanwhile.
#[test]
fn a_key_is_taken_back_by_the_peer() {
    for (multipath, len) in [
        (Some(MultipathConfig::default()), 100),
        (Some(MultipathConfig::default()), 5000),
        (None, 100),
        (None, 5000),
    ] {
        let mut bed = Bed::new(6, multipath);
        bed.network.impairment.loss = 50;
        bed.network.impairment.duplication = 500;
        for round in 0..20 {
            let rkey = bed.bound(BASE, 100, Access::REMOTE_WRITE);
            let written = bed.does(0, bed.write(rkey, BASE, 100));
            assert_eq!(written.status, Status::Success, "round {round}");
            let qpn = bed.qpns[1];
            bed.network.hosts[1].receive_into(qpn, 200, 0, 6000);
            let sent = bed.does(0, bed.send_with_invalidate(rkey, len));
            assert_eq!(
                (sent.status, sent.opcode),
                (Status::Success, CompletionOpcode::Send)
            );
            let received = bed.network.hosts[1].completions.pop().expect("received");
            assert_eq!((received.status, received.wr_id), (Status::Success, 200));
            assert_eq!((received.invalidated, received.imm), (Some(rkey), None));
            assert_eq!(received.byte_len, len);
        }
        let refused = bed.does(0, bed.write(bed.rkey, BASE, 10));
        assert_eq!(refused.status, Status::RemoteAccess);
        bed.network.close();
    }
}

/// HT-1: SENDs with invalidate of every size from 0 to 4200 bytes, byte by byte.
#[test]
fn every_size_takes_a_key_back() {
    const ROOM: usize = 5000;
    for multipath in [Some(MultipathConfig::default()), None] {
        let mut bed = Bed::new(7, multipath);
        let bytes = bed.network.fill(0);
        for len in 0..=4200 {
            let rkey = bed.bound(BASE, 100, Access::REMOTE_WRITE);
            assert!(bed.network.hosts[1].memory.copy_in(0, &[0; ROOM]));
            let qpn = bed.qpns[1];
            bed.network.hosts[1].receive_into(qpn, 200, 300, len);
            let sent = bed.does(0, bed.send_with_invalidate(rkey, len));
            assert_eq!(sent.status, Status::Success, "{len}");
            let received = bed.network.hosts[1].completions.pop().expect("received");
            assert_eq!(received.status, Status::Success, "{len}");
            assert_eq!((received.invalidated, received.byte_len), (Some(rkey), len));
            let mut wanted = [0; ROOM];
            let end = 300 + len as usize;
            wanted[300..end].copy_from_slice(&bytes[..len as usize]);
            let mut memory = [0; ROOM];
            assert!(bed.network.hosts[1].memory.copy_out(0, &mut memory));
            assert!(memory == wanted, "{len}");
        }
        bed.network.close();
    }
}

/// HT-43: a READ behind a request that is carried out here asks for as much as one by itself, half
/// a window: what was asked for before does not count, and a new queue pair has asked for nothing.
#[test]
fn a_read_behind_a_bind_asks_for_half_a_window() {
    for behind in [false, true] {
        let mut bed = Bed::new(8, Some(MultipathConfig::default()));
        let [_, qpn] = bed.qpns;
        if behind {
            let bind = bed.bind(BASE, 100, Access::REMOTE_WRITE);
            let engine = &mut bed.network.hosts[1].engine;
            engine.post_send(qpn, bind).expect("room");
        }
        let read = SendRequest {
            opcode: SendOpcode::RdmaRead,
            remote_addr: 0,
            rkey: bed.network.hosts[0].keys.rkey,
            ..bed.network.hosts[1].send(9, 0, 32 * 1024)
        };
        assert_eq!(bed.does(1, read).status, Status::Success);
        let engine = &bed.network.hosts[1].engine;
        let statistics = engine.queue_pair_statistics(qpn).expect("there");
        assert_eq!(statistics.counters.tx_packets, 1, "behind a bind: {behind}");
        bed.network.close();
    }
}

/// HT-1, HT-3: a peer takes back no key but those that were bound for it: both sides fail, the
/// receive with an error, and nothing is invalidated.
#[test]
fn other_keys_are_not_taken_back() {
    type Choose = fn(&mut Bed) -> u32;
    let chooses: [Choose; 5] = [
        |bed| bed.region.rkey,
        |bed| bed.region.lkey,
        |bed| bed.network.hosts[1].keys.rkey,
        |bed| bed.rkey,
        |bed| {
            let rkey = bed.bound(BASE, 100, Access::REMOTE_WRITE);
            bed.qpns = bed.network.connected(None);
            rkey
        },
    ];
    for (n, choose) in chooses.into_iter().enumerate() {
        for len in [0, 100, 5000] {
            let mut bed = Bed::new(7, None);
            let before = bed.qpns;
            let key = choose(&mut bed);
            let qpn = bed.qpns[1];
            bed.network.hosts[1].receive_into(qpn, 200, 0, 6000);
            let sent = bed.does(0, bed.send_with_invalidate(key, len));
            assert_eq!(sent.status, Status::RemoteAccess, "{n}");
            let received = bed.network.hosts[1].completions.pop().expect("received");
            assert_eq!(
                (received.status, received.invalidated),
                (Status::LocalAccess, None)
            );
            if bed.qpns != before {
                // The window still opens what it was bound to.
                bed.qpns = before;
                let written = bed.does(0, bed.write(key, BASE, 100));
                assert_eq!(written.status, Status::Success);
            }
            bed.network.close();
        }
    }
}

/// HT-1: requests that take no packet complete in order with the others, also when they are the
/// last ones, alone, or many; with a fence they wait for READs.
#[test]
fn local_requests_complete_in_order() {
    for multipath in [Some(MultipathConfig::default()), None] {
        let mut bed = Bed::new(8, multipath);
        let (host, qpn) = (&mut bed.network.hosts[1], bed.qpns[1]);
        let lkey = host.keys.lkey;
        let mut rkey = bed.rkey;
        let mut kinds = Vec::new();
        for wr_id in 0..120_u64 {
            let request = match wr_id % 6 {
                0 | 3 => {
                    rkey = next(rkey);
                    SendRequest {
                        opcode: SendOpcode::BindMw,
                        lkey: bed.region.lkey,
                        addr: BASE,
                        rkey,
                        imm: bed.window,
                        compare_add: Access::REMOTE_READ.bits().into(),
                        swap: 64,
                        ..SendRequest::default()
                    }
                }
                1 | 5 => SendRequest {
                    opcode: SendOpcode::LocalInv,
                    imm: rkey,
                    fence: wr_id % 5 == 0,
                    ..SendRequest::default()
                },
                2 => SendRequest {
                    opcode: SendOpcode::RdmaWrite,
                    lkey,
                    len: 3000,
                    rkey: 0,
                    ..SendRequest::default()
                },
                _ => SendRequest {
                    opcode: SendOpcode::RdmaRead,
                    lkey,
                    len: 3000,
                    ..SendRequest::default()
                },
            };
            kinds.push(CompletionOpcode::from(request.opcode));
            let peer = bed.network.hosts[0].keys.rkey;
            let request = SendRequest {
                wr_id,
                signaled: true,
                rkey: if request.rkey == 0 {
                    peer
                } else {
                    request.rkey
                },
                ..request
            };
            let engine = &mut bed.network.hosts[1].engine;
            engine.post_send(qpn, request).expect("room");
        }
        let done = |network: &mut Network| network.hosts[1].completions.len() == 120;
        assert!(bed.network.run(Span::from_secs(1), done), "{multipath:?}");
        for (n, completion) in bed.network.hosts[1].completions.iter().enumerate() {
            assert_eq!(completion.status, Status::Success, "{completion:?}");
            assert_eq!((completion.wr_id, completion.opcode), (n as u64, kinds[n]));
        }
        bed.network.close();
    }
}

/// HT-1, HT-3: a WRITE that is under way when its key is taken back does not go on.
#[test]
fn what_is_under_way_stops() {
    for invalidate in [false, true] {
        let mut bed = Bed::new(9, None);
        bed.network.fill(0);
        let rkey = bed.bound(BASE, LEN.into(), Access::REMOTE_WRITE);
        let write = bed.write(rkey, BASE, LEN);
        let engine = &mut bed.network.hosts[0].engine;
        engine.post_send(bed.qpns[0], write).expect("room");
        let memory = bed.memory.clone();
        let begun = |_: &mut Network| memory.to_vec()[0..64] != [0; 64];
        assert!(bed.network.run(Span::from_millis(1), begun));
        if invalidate {
            let done = bed.does(1, local_invalidate(rkey));
            assert_eq!(done.status, Status::Success);
        } else {
            let engine = &mut bed.network.hosts[1].engine;
            engine.destroy_window(bed.window).expect("there");
        }
        let so_far = bed.memory.to_vec();
        bed.network.pass(Span::from_millis(5));
        let completions = &bed.network.hosts[0].completions;
        let statuses: Vec<_> = completions.iter().map(|it| it.status).collect();
        assert_eq!(statuses, [Status::RemoteAccess]);
        assert!(bed.memory.to_vec() == so_far);
        assert!(
            so_far[LEN as usize - 64..] == [0; 64],
            "all of it came at once"
        );
        bed.network.close();
    }
}

/// HT-1: a region is not deregistered while a window is bound to it, and no window is bound to one
/// that is about to be.
#[test]
fn a_region_outlives_its_windows() {
    let mut bed = Bed::new(10, None);
    let rkey = bed.bound(BASE, 100, Access::REMOTE_WRITE);
    let lkey = bed.region.lkey;
    let refused = bed.network.hosts[1].engine.deregister(lkey).err();
    assert_eq!(refused, Some(EngineError::Busy));
    let refused = bed.network.hosts[1].engine.forbid_windows(lkey);
    assert_eq!(refused, Err(EngineError::Busy));
    let written = bed.does(0, bed.write(rkey, BASE, 100));
    assert_eq!(written.status, Status::Success, "nothing has changed");
    assert_eq!(bed.does(1, local_invalidate(rkey)).status, Status::Success);
    bed.bound(BASE, 100, Access::REMOTE_WRITE);
    bed.network.hosts[1]
        .engine
        .destroy_window(bed.window)
        .expect("there");
    bed.network.hosts[1]
        .engine
        .forbid_windows(lkey)
        .expect("free");
    let host = &mut bed.network.hosts[1];
    (bed.window, bed.rkey) = host.engine.create_window(host.domain).expect("room");
    let late = bed.bind(BASE, 100, Access::REMOTE_WRITE);
    assert_eq!(bed.does(1, late).status, Status::MemoryWindowBind);
    let engine = &mut bed.network.hosts[1].engine;
    assert!(engine.deregister(lkey).is_ok());
    bed.network.close();
}
