//! The transport engine without a network: two engines in one thread exchange their frames.
//!
//! Every data packet is segmented, sealed with its ICRC, passed on, checked, put in order and
//! delivered, and its share of acknowledgements goes the other way. The reference is the work that
//! no implementation can avoid: the payload is copied out and in, and the ICRC is computed at both
//! ends.

use crate::measure::{Better, Group, Subject, busy_time, millions_each_second};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::roce::icrc;
use common::xdp::frame::{Frame, FramePool, Region};
use hostd::engine::Engine;
use hostd::memory::{HeapMemory, RegionMemory};
use hostd::verbs::{
    Access, CompletionQueueId, Cookies, EngineConfig, Multipath, MultipathConfig, PortId,
    QueuePairRequest, ReadyToReceive, ReadyToSend, RegionKeys, Route, SendOpcode, SendRequest,
    Transition,
};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

/// Payload of the packets.
const MTUS: [u16; 2] = [1024, 4096];

/// What nothing can be faster than, and the two modes of the engine.
const CONTENDERS: [&str; 3] = ["copies and checksums", "plain RoCEv2", "multipath, 8 paths"];

/// Messages of a turn, and before each turn, not measured.
const MESSAGES: u64 = 64;
const LEAD: u64 = 4;

/// Bytes of a message.
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
            shared: None,
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
            multipath: multipath.then(|| Multipath {
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

/// Two hosts that write to each other's memory.
struct Pair {
    hosts: [Host; 2],
    under_way: [Vec<(PortId, Frame)>; 2],
    now: Time,
    posted: u64,
    done: u64,
}

impl Pair {
    fn new(mtu: u16, multipath: bool) -> Self {
        let region = Region::heap(4096, 4608, 0);
        let mut hosts = [Host::new(1, &region), Host::new(2, &region)];
        let names = [0, 1].map(|n: usize| (hosts[n].address, hosts[n].qpn));
        hosts[0].meet(names[1].0, names[1].1, mtu, multipath);
        hosts[1].meet(names[0].0, names[0].1, mtu, multipath);
        Self {
            hosts,
            under_way: [Vec::with_capacity(256), Vec::with_capacity(256)],
            now: Time::from_nanos(1_000_000),
            posted: 0,
            done: 0,
        }
    }

    /// Writes so many messages from the first to the second.
    fn write(&mut self, messages: u64) {
        let end = self.done + messages;
        let rkey = self.hosts[1].keys.rkey;
        while self.done < end {
            while self.posted < end && self.posted < self.done + 8 {
                let write = SendRequest {
                    wr_id: self.posted,
                    opcode: SendOpcode::RdmaWrite,
                    lkey: self.hosts[0].keys.lkey,
                    addr: 0,
                    len: MESSAGE,
                    remote_addr: 0,
                    rkey,
                    imm: 0,
                    signaled: true,
                    solicited: false,
                    ..SendRequest::default()
                };
                let host = &mut self.hosts[0];
                host.engine.post_send(host.qpn, write).expect("room");
                self.posted += 1;
            }
            for (n, host) in self.hosts.iter_mut().enumerate() {
                for (_, frame) in self.under_way[1 - n].drain(..) {
                    host.engine.receive(frame, &mut host.pool, self.now);
                }
                let sent = &mut self.under_way[n];
                host.engine.transmit(&mut host.pool, self.now, sent, 64);
            }
            let sender = &mut self.hosts[0];
            while sender.engine.poll_completion(sender.cq).is_some() {
                self.done += 1;
            }
            self.now += Span::from_micros(20);
        }
    }
}

/// The copies and the two checksums, and nothing else.
struct Least {
    memory: HeapMemory,
    target: HeapMemory,
    packet: Vec<u8>,
}

impl Least {
    fn new(mtu: u16) -> Self {
        Self {
            memory: HeapMemory::new(vec![1; MESSAGE as usize]),
            target: HeapMemory::new(vec![1; MESSAGE as usize]),
            packet: vec![0x45; 60 + usize::from(mtu)],
        }
    }

    fn write(&mut self, messages: u64) {
        let payload = (self.packet.len() - 60) as u64;
        for offset in (0..messages).flat_map(|_| 0..u64::from(MESSAGE) / payload) {
            let offset = offset * payload;
            self.memory.copy_out(offset, &mut self.packet[60..]);
            black_box(icrc::compute(black_box(&self.packet)).ok());
            black_box(icrc::compute(black_box(&self.packet)).ok());
            self.target.copy_in(offset, &self.packet[60..]);
        }
    }
}

/// What is measured with packets of one size.
struct Size {
    mtu: u16,
    least: Least,
    /// Plain, and multipath.
    pairs: [Pair; 2],
}

/// The bench.
struct Transport {
    groups: Vec<Group>,
    sizes: Vec<Size>,
}

/// Sets up engines in both modes, for both sizes of packets.
///
/// # Errors
/// None.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let size = |mtu| Size {
        mtu,
        least: Least::new(mtu),
        pairs: [false, true].map(|multipath| Pair::new(mtu, multipath)),
    };
    let group = |mtu| {
        let title = format!("{mtu}-byte packets, both ends on one core");
        Group::beside_first(title, "M/s", Better::High, &CONTENDERS)
    };
    Ok(Box::new(Transport {
        groups: MTUS.map(group).into(),
        sizes: MTUS.map(size).into(),
    }))
}

impl Subject for Transport {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let size = &mut self.sizes[group];
        let mut write = |messages| match contender {
            0 => size.least.write(messages),
            one => size.pairs[one - 1].write(messages),
        };
        write(LEAD);
        let began = busy_time();
        write(MESSAGES);
        let packets = MESSAGES * u64::from(MESSAGE) / u64::from(size.mtu);
        Ok(millions_each_second(began, packets))
    }
}
