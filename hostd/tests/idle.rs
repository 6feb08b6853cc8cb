//! HT-1: what an idle queue pair costs, and that an engine holds ten thousand of them.

use common::sys::alloc::{Counting, live_bytes};
use common::time::Time;
use common::units::Rate;
use common::xdp::frame::{FramePool, Region};
use hostd::engine::Engine;
use hostd::limits;
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, EngineConfig, QueuePairRequest, ReadyToReceive, ReadyToSend, Route, Transition,
};
use std::alloc::System;
use std::net::{IpAddr, Ipv4Addr};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Queue pairs of a large host.
const PAIRS: u32 = 10_000;

/// Bytes that each may cost.
const MOST: i64 = 8192;

/// Plain RoCEv2, connected by hand, with `reads` READs at a time in each direction.
fn ready(
    engine: &mut Engine<HeapMemory>,
    request: QueuePairRequest,
    number: u32,
    reads: u8,
) -> u32 {
    let qpn = engine.create_queue_pair(request).expect("room");
    let receive = ReadyToReceive {
        destination: peer(number),
        destination_qpn: number + 2,
        rq_psn: 0,
        path_mtu: 1024,
        min_rnr_timer: 12,
        multipath: None,
        max_dest_rd_atomic: reads,
    };
    let send = ReadyToSend {
        sq_psn: 0,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: reads,
    };
    for transition in [
        Transition::Init(Access::ALL_REMOTE),
        Transition::ReadyToReceive(receive),
        Transition::ReadyToSend(send),
    ] {
        engine.modify_queue_pair(qpn, &transition).expect("legal");
    }
    qpn
}

/// One of a thousand peers.
fn peer(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a01_0000 + number % 1000).into()
}

/// HT-1: ten thousand idle queue pairs of plain RC take no more than 8 KiB of the engine's memory
/// each, its tables included, and give all of it back; sessions, with the rings of the application,
/// have more. It is so with one READ at a time, as `ibv_rc_pingpong`
/// has it, with as many as connections agree on by default, and with the most.
#[test]
fn an_idle_queue_pair_is_small() {
    for reads in [1, limits::RD_ATOMIC_DEFAULT, limits::RD_ATOMIC] {
        idle_ones(reads);
    }
}

fn idle_ones(reads: u8) {
    let mut engine: Engine<HeapMemory> = Engine::new(EngineConfig::default());
    let mut pool = FramePool::new(Region::heap(64, 4096, 0));
    let domain = engine.create_domain().expect("room");
    let cq = engine.create_completion_queue().expect("room");
    let request = QueuePairRequest {
        domain,
        send_cq: cq,
        receive_cq: cq,
        max_send_wr: 16,
        max_recv_wr: 16,
        shared: None,
        signal_all: false,
    };
    for number in 0..1000 {
        let route = Route {
            source: Ipv4Addr::new(10, 0, 0, 1).into(),
            source_mac: [2; 6],
            destination_mac: [4; 6],
            mtu: 1500,
            rate: Rate::from_gbps(10),
        };
        engine.set_route(peer(number), route).expect("room");
    }
    // The tables grow with the first.
    let first = ready(&mut engine, request, 0, reads);
    let before = live_bytes();
    let pairs: Vec<u32> = (1..PAIRS)
        .map(|number| ready(&mut engine, request, number, reads))
        .collect();
    let mut now = Time::from_nanos(1_000_000_000);
    engine.begin_turn(now);
    let mut out = Vec::new();
    engine.transmit(&mut pool, now, &mut out, 64);
    assert!(out.is_empty(), "idle ones send nothing");
    let own = i64::try_from(pairs.capacity() * size_of::<u32>()).expect("small");
    let each = (live_bytes() - before - own) / i64::from(PAIRS - 1);
    println!("{each} bytes for each of {PAIRS} idle queue pairs with {reads} READs");
    assert!(each <= MOST, "{each} bytes");
    for qpn in pairs {
        engine.destroy_queue_pair(qpn).expect("exists");
    }
    now += common::time::Span::from_secs(1);
    engine.transmit(&mut pool, now, &mut out, 64);
    let left = live_bytes() - before;
    // Lists that were as long as the table keep their room.
    assert!(left < i64::from(PAIRS) * 128, "{left} bytes are left");
    engine.destroy_queue_pair(first).expect("exists");
}
