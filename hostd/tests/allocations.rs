//! No packet costs an allocation once everything is set up: not in order, not out of order, not
//! lost.

use common::sys::alloc::{Counting, allocations};
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::frame::{Frame, FramePool, Region};
use hostd::engine::Engine;
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, CompletionQueueId, Cookies, EngineConfig, Local, Multipath, MultipathConfig, PortId,
    QueuePairRequest, ReadyToReceive, ReadyToSend, RegionKeys, Route, SendOpcode, SendRequest, Sge,
    Transition,
};
use std::alloc::System;
use std::net::{IpAddr, Ipv4Addr};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

const MESSAGE: u32 = 50_000;

struct Host {
    engine: Engine<HeapMemory>,
    pool: FramePool,
    qpn: u32,
    cq: CompletionQueueId,
    keys: RegionKeys,
    address: IpAddr,
}

impl Host {
    fn new(number: u8, region: &std::sync::Arc<Region>) -> Self {
        let mut engine = Engine::new(EngineConfig {
            seed: [number; 32],
            ..EngineConfig::default()
        });
        let domain = engine.create_domain().expect("room");
        let cq = engine.create_completion_queue().expect("room");
        let rights = Access::LOCAL_WRITE | Access::ALL_REMOTE;
        let memory = HeapMemory::new(vec![number; MESSAGE as usize]);
        let keys = engine.register(domain, memory, 0, rights).expect("room");
        let request = QueuePairRequest {
            domain,
            send_cq: cq,
            receive_cq: cq,
            max_send_wr: 16,
            max_recv_wr: 16,
            shared: None,
            signal_all: true,
        };
        let qpn = engine.create_queue_pair(request).expect("room");
        Self {
            engine,
            pool: FramePool::new(region.clone()),
            qpn,
            cq,
            keys,
            address: Ipv4Addr::new(10, 0, 0, number).into(),
        }
    }

    fn meet(&mut self, peer: (IpAddr, u32)) {
        let route = Route {
            source: self.address,
            source_mac: [2; 6],
            destination_mac: [2; 6],
            mtu: 3000,
            rate: Rate::from_gbps(10),
        };
        self.engine.set_route(peer.0, route).expect("legal");
        let receive = ReadyToReceive {
            destination: peer.0,
            destination_qpn: peer.1,
            rq_psn: 0,
            path_mtu: 1024,
            min_rnr_timer: 12,
            multipath: Some(Multipath {
                config: MultipathConfig::default(),
                cookies: Cookies::default(),
            }),
            max_dest_rd_atomic: 16,
        };
        let send = ReadyToSend {
            sq_psn: 0,
            timeout: 18,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
        };
        for transition in [
            Transition::Init(Access::ALL_REMOTE),
            Transition::ReadyToReceive(receive),
            Transition::ReadyToSend(send),
        ] {
            let engine = &mut self.engine;
            engine
                .modify_queue_pair(self.qpn, &transition)
                .expect("legal");
        }
    }

    fn completions(&mut self) -> u64 {
        let mut count = 0;
        while self.engine.next_ready_completion_queue().is_some() {
            while self.engine.poll_completion(self.cq).is_some() {
                count += 1;
            }
        }
        count
    }
}

/// Posts message `n`, and a receive if it takes one: the kinds of requests take turns, whole, in
/// pieces and inline.
fn post(hosts: &mut [Host; 2], n: u64, rkey: u32) {
    let opcode = [
        SendOpcode::RdmaWriteWithImm,
        SendOpcode::Send,
        SendOpcode::RdmaRead,
        SendOpcode::AtomicFetchAndAdd,
        SendOpcode::RdmaWrite,
    ][(n % 5) as usize];
    let [sender, receiver] = hosts;
    let request = SendRequest {
        wr_id: n,
        opcode,
        lkey: sender.keys.lkey,
        addr: 0,
        len: if opcode.is_atomic() { 8 } else { MESSAGE },
        remote_addr: 0,
        rkey,
        imm: 1,
        signaled: true,
        solicited: false,
        ..SendRequest::default()
    };
    let list = |lkey| {
        [0, 1, 2, 3].map(|part| Sge {
            addr: u64::from(MESSAGE / 4 * part),
            len: MESSAGE / 4,
            lkey,
        })
    };
    if opcode.takes_receive() {
        let pieces = list(receiver.keys.lkey);
        let posted = receiver.engine.post_receive_into(receiver.qpn, n, &pieces);
        posted.expect("room");
    }
    let pieces = list(sender.keys.lkey);
    let local = match n / 5 % 3 {
        1 if !opcode.is_atomic() => Local::Pieces(&pieces),
        2 if !opcode.is_answered() => Local::Inline(&[7; 200]),
        _ => Local::Named,
    };
    let posted = sender.engine.post_send_of(sender.qpn, request, local);
    posted.expect("room");
}

/// Carries `messages` messages; every seventh batch comes backwards, every 97th packet not at all.
fn carry(
    hosts: &mut [Host; 2],
    under_way: &mut [Vec<(PortId, Frame)>; 2],
    now: &mut Time,
    messages: u64,
) {
    let (mut posted, mut done, mut batches, mut packets) = (0, 0, 0_u64, 0_u64);
    let rkey = hosts[1].keys.rkey;
    while done < messages {
        while posted < messages && posted < done + 4 {
            post(hosts, posted, rkey);
            posted += 1;
        }
        for (n, host) in hosts.iter_mut().enumerate() {
            batches += 1;
            if batches.is_multiple_of(7) {
                under_way[1 - n].reverse();
            }
            for (_, frame) in under_way[1 - n].drain(..) {
                packets += 1;
                if packets.is_multiple_of(97) {
                    host.pool.give(frame);
                } else {
                    host.engine.receive(frame, &mut host.pool, *now);
                }
            }
            let out = &mut under_way[n];
            host.engine.transmit(&mut host.pool, *now, out, 64);
        }
        done += hosts[0].completions();
        hosts[1].completions();
        *now += Span::from_micros(30);
    }
}

/// HT-1, HT-40, HT-43: sending, receiving, reading, atomic operations, lists of pieces, inline
/// data, reordering, loss and its repair allocate nothing.
#[test]
fn a_steady_state_allocates_nothing() {
    let region = Region::heap(4096, 2048, 0);
    let mut hosts = [Host::new(1, &region), Host::new(2, &region)];
    let names = [0, 1].map(|n: usize| (hosts[n].address, hosts[n].qpn));
    hosts[0].meet(names[1]);
    hosts[1].meet(names[0]);
    while hosts[0].engine.next_event().is_some() {}
    let mut under_way = [Vec::with_capacity(256), Vec::with_capacity(256)];
    let mut now = Time::from_nanos(1_000_000);
    carry(&mut hosts, &mut under_way, &mut now, 50);
    let before = allocations();
    carry(&mut hosts, &mut under_way, &mut now, 1500);
    let allocated = allocations() - before;
    let sent = hosts[0].engine.queue_pair_statistics(hosts[0].qpn);
    let counters = sent.expect("exists").counters;
    println!("{allocated} allocations, {counters:#?}");
    assert!(counters.tx_packets > 20_000 && counters.retransmits > 100);
    assert_eq!(allocated, 0);
    let engine = hosts[0].engine.statistics();
    assert_eq!(engine.transport.retransmits, counters.retransmits);
    assert_eq!(engine.transport.timeouts, counters.timeouts);
    assert_eq!(engine.send_latencies.count(), counters.tx_messages);
    assert!((1..=engine.acknowledgements).contains(&engine.round_trips.count()));
    for (frames, host) in under_way.iter_mut().zip(&mut hosts) {
        frames
            .drain(..)
            .for_each(|(_, frame)| host.pool.give(frame));
    }
}
