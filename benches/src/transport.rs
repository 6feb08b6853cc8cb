//! The transport engine without a network: two engines in one thread hand each other their frames.
//!
//! Every data packet is cut, sealed, handed over, checked, sorted in and delivered, and its share of
//! acknowledgements goes the other way. The base is what no implementation can leave out: the payload
//! is copied out and in, and the ICRC is computed at both ends.

use crate::measure::{Series, print_ratios};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::roce::icrc;
use common::xdp::frame::{Frame, FramePool, Region};
use hostd::engine::Engine;
use hostd::memory::{HeapMemory, RegionMemory};
use hostd::verbs::{
    Access, CompletionQueueId, EngineConfig, MultipathConfig, QueuePairRequest, ReadyToReceive,
    ReadyToSend, RegionKeys, Route, SendOpcode, SendRequest, Transition,
};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

const ROUNDS: usize = 7;
const MESSAGES: u64 = 400;
const MESSAGE: u32 = 1 << 20;

/// One of the two hosts.
struct Host {
    engine: Engine<HeapMemory>,
    pool: FramePool,
    qpn: u32,
    keys: RegionKeys,
    cq: CompletionQueueId,
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
        let memory = HeapMemory::new(vec![number; MESSAGE as usize]);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let keys = engine.register(domain, memory, 0, rights).expect("room");
        let request = QueuePairRequest {
            domain,
            send_cq: cq,
            receive_cq: cq,
            max_send_wr: 64,
            max_recv_wr: 64,
            signal_all: true,
        };
        let qpn = engine.create_queue_pair(request).expect("room");
        Self {
            engine,
            pool: FramePool::new(region.clone()),
            qpn,
            keys,
            cq,
            address: Ipv4Addr::new(10, 0, 0, number).into(),
        }
    }

    fn meet(&mut self, peer: IpAddr, peer_qpn: u32, mtu: u16, multipath: bool) {
        let route = Route {
            source: self.address,
            source_mac: [2; 6],
            destination_mac: [2; 6],
            mtu: 9000,
            rate: Rate::from_bps(0),
        };
        self.engine.set_route(peer, route).expect("legal");
        let receive = ReadyToReceive {
            destination: peer,
            destination_qpn: peer_qpn,
            rq_psn: 0,
            path_mtu: mtu,
            min_rnr_timer: 12,
            multipath: multipath.then(MultipathConfig::default),
        };
        let send = ReadyToSend {
            sq_psn: 0,
            timeout: 18,
            retry_count: 7,
            rnr_retry: 7,
        };
        for transition in [
            Transition::Init(Access::REMOTE_WRITE),
            Transition::ReadyToReceive(receive),
            Transition::ReadyToSend(send),
        ] {
            self.engine
                .modify_queue_pair(self.qpn, &transition)
                .expect("legal");
        }
    }
}

/// Packets a second through two engines, `mtu` bytes of payload each.
fn packets_per_second(mtu: u16, multipath: bool) -> f64 {
    let region = Region::heap(4096, 4608, 0);
    let mut hosts = [Host::new(1, &region), Host::new(2, &region)];
    let names = [0, 1].map(|n: usize| (hosts[n].address, hosts[n].qpn));
    hosts[0].meet(names[1].0, names[1].1, mtu, multipath);
    hosts[1].meet(names[0].0, names[0].1, mtu, multipath);
    let rkey = hosts[1].keys.rkey;
    let mut now = Time::from_nanos(1_000_000);
    let mut under_way: [Vec<Frame>; 2] = [Vec::with_capacity(256), Vec::with_capacity(256)];
    let (mut posted, mut done) = (0, 0);
    let start = Instant::now();
    while done < MESSAGES {
        while posted < MESSAGES && posted < done + 8 {
            let write = SendRequest {
                wr_id: posted,
                opcode: SendOpcode::RdmaWrite,
                lkey: hosts[0].keys.lkey,
                addr: 0,
                len: MESSAGE,
                remote_addr: 0,
                rkey,
                imm: 0,
                signaled: true,
                solicited: false,
            };
            hosts[0]
                .engine
                .post_send(hosts[0].qpn, write)
                .expect("room");
            posted += 1;
        }
        for (n, host) in hosts.iter_mut().enumerate() {
            for frame in under_way[1 - n].drain(..) {
                host.engine.receive(frame, &mut host.pool, now);
            }
            host.engine
                .transmit(&mut host.pool, now, &mut under_way[n], 64);
        }
        while hosts[0].engine.poll_completion(hosts[0].cq).is_some() {
            done += 1;
        }
        now += Span::from_micros(20);
    }
    let packets = MESSAGES * u64::from(MESSAGE) / u64::from(mtu);
    #[expect(clippy::cast_precision_loss, reason = "a figure to show")]
    let packets = packets as f64;
    packets / start.elapsed().as_secs_f64()
}

/// Packets a second when nothing but the copies and the two checksums is done.
fn least_per_second(mtu: u16) -> f64 {
    let memory = HeapMemory::new(vec![1; MESSAGE as usize]);
    let target = HeapMemory::new(vec![1; MESSAGE as usize]);
    let mut packet = vec![0x45; 60 + usize::from(mtu)];
    let per_message = MESSAGE / u32::from(mtu);
    let start = Instant::now();
    for _ in 0..MESSAGES {
        for n in 0..per_message {
            let offset = u64::from(n) * u64::from(mtu);
            memory.copy_out(offset, &mut packet[60..]);
            black_box(icrc::compute(black_box(&packet)).ok());
            black_box(icrc::compute(black_box(&packet)).ok());
            target.copy_in(offset, &packet[60..]);
        }
    }
    let packets = MESSAGES * u64::from(per_message);
    #[expect(clippy::cast_precision_loss, reason = "a figure to show")]
    let packets = packets as f64;
    packets / start.elapsed().as_secs_f64()
}

/// Prints packets a second, in thousands, of both modes beside the least that has to be done.
pub fn bench() -> Result<(), String> {
    for mtu in [1024, 4096] {
        let mut series = [
            Series::new("copies and checksums"),
            Series::new("plain RoCEv2"),
            Series::new("multipath, 8 paths"),
        ];
        for _ in 0..ROUNDS {
            let rates = [
                least_per_second(mtu),
                packets_per_second(mtu, false),
                packets_per_second(mtu, true),
            ];
            for (one, rate) in series.iter_mut().zip(rates) {
                one.rounds.push(rate / 1000.0);
            }
        }
        let title = format!("transport engine, both ends on one core, {mtu}-byte packets");
        print_ratios(&title, "kpps", &series);
    }
    Ok(())
}
