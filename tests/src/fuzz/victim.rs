//! An engine under attack: what every target that attacks one needs, and what has to hold of it.

use common::time::{Span, Time};
use common::units::Rate;
use common::wire::Mac;
use common::wire::csig::Tpids;
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{Cookie, Flow, Headers, Opcode};
use common::xdp::frame::{FramePool, Region};
use hostd::engine::Engine;
use hostd::memory::HeapMemory;
use hostd::stats::EngineStatistics;
use hostd::verbs::{
    Access, CompletionOpcode, CompletionQueueId, Cookies, DomainId, EngineConfig, Event, Multipath,
    MultipathConfig, QueuePairRequest, ReadyToReceive, ReadyToSend, ReceiveRequest, RegionKeys,
    Route, SendRequest, Status, Transition,
};
use std::net::{IpAddr, Ipv4Addr};

/// Frames of the engine.
const FRAMES: u32 = 256;

/// Bytes of each region.
pub(super) const MEMORY: u16 = 1 << 14;

/// What the region that nobody may reach is full of. Nothing else puts so many in a row anywhere.
const SECRET: u8 = 0xa5;

/// So many bytes of the secret in a packet are a leak.
const LEAK: usize = 16;

/// Time in which everything that was posted ends, well or badly: doubled time-outs, eight times,
/// and the longest waits that a peer may ask for.
const PATIENCE: Span = Span::from_secs(180);

/// Times that the engine wakes in that time, at most.
const WAKES: u32 = 100_000;

/// Ethernet and IPv4 and UDP: where the BTH begins.
pub(super) const BTH: usize = 14 + 20 + 8;

/// Payload bytes of a full packet.
pub(super) const MTU: u16 = 1024;

/// First PSN of both directions of connections by hand: it wraps soon.
pub(super) const FIRST: u32 = 0xff_fff8;

/// What packets of multipath connections by hand carry, both ways.
pub(super) const COOKIE: Cookie = Cookie::new(0x1234_5678_9abc);

/// What the payload of packets of the peer is full of.
pub(super) const FILL: u8 = 0x11;

/// Address of the engine.
pub(super) const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Address of its peer.
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Requests of one queue pair that have not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    pub(super) sends: u32,
    pub(super) receives: u32,
}

/// A queue pair of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) qpn: u32,
    /// Marks its requests: queue pairs that are gone leave theirs behind.
    life: u32,
    pub(super) open: Open,
}

/// An engine, its memory, and what is expected of it.
pub(super) struct Victim {
    pub(super) engine: Engine<HeapMemory>,
    pool: FramePool,
    domain: DomainId,
    cq: CompletionQueueId,
    pub(super) keys: RegionKeys,
    /// A memory window: its number, and the key that it has or is to have.
    pub(super) window: (u32, u32),
    /// Windows that were bound, and keys that were taken back.
    pub(super) windows: [u64; 2],
    /// Keys of a region that peers have no right to.
    pub(super) secret: RegionKeys,
    hidden: HeapMemory,
    /// What peers may write.
    pub(super) memory: HeapMemory,
    pub(super) pairs: Vec<Pair>,
    lives: u32,
    pub(super) events: Vec<Event>,
    pub(super) now: Time,
}

impl Victim {
    /// An engine with `pairs` queue pairs in INIT.
    pub(super) fn new(pairs: usize) -> Self {
        Self::with(EngineConfig::default(), pairs)
    }

    /// The same, configured otherwise.
    pub(super) fn with(config: EngineConfig, pairs: usize) -> Self {
        let mut engine = Engine::new(EngineConfig {
            seed: [7; 32],
            reorder_frames: FRAMES / 2,
            ..config
        });
        let domain = engine.create_domain().expect("room");
        let cq = engine.create_completion_queue().expect("room");
        let rights = Access::LOCAL_WRITE | Access::ALL_REMOTE | Access::BIND;
        let open = HeapMemory::new(vec![0; usize::from(MEMORY)]);
        let keys = engine
            .register(domain, open.clone(), 0, rights)
            .expect("room");
        let hidden = HeapMemory::new(vec![SECRET; usize::from(MEMORY)]);
        let secret = engine
            .register(domain, hidden.clone(), 0, Access::LOCAL_WRITE)
            .expect("room");
        let window = engine.create_window(domain).expect("room");
        let mut victim = Self {
            window,
            windows: [0; 2],
            engine,
            pool: FramePool::new(Region::heap(FRAMES, 4096, 0)),
            domain,
            cq,
            keys,
            secret,
            hidden,
            memory: open,
            pairs: Vec::new(),
            lives: 0,
            events: Vec::new(),
            now: Time::from_nanos(1_000_000_000),
        };
        for _ in 0..pairs {
            let pair = victim.queue_pair();
            victim.pairs.push(pair);
        }
        victim
    }

    fn queue_pair(&mut self) -> Pair {
        let request = QueuePairRequest {
            domain: self.domain,
            send_cq: self.cq,
            receive_cq: self.cq,
            max_send_wr: 16,
            max_recv_wr: 16,
            shared: None,
            signal_all: true,
        };
        let qpn = self.engine.create_queue_pair(request).expect("room");
        let init = Transition::Init(Access::ALL_REMOTE);
        self.engine.modify_queue_pair(qpn, &init).expect("legal");
        self.lives += 1;
        Pair {
            qpn,
            life: self.lives,
            open: Open::default(),
        }
    }

    /// Brings a queue pair from INIT into RTS; multipath if there is a configuration of it.
    pub(super) fn connect(
        &mut self,
        index: usize,
        destination_qpn: u32,
        multipath: Option<MultipathConfig>,
    ) {
        let receive = ReadyToReceive {
            destination: PEER.into(),
            destination_qpn,
            rq_psn: FIRST,
            path_mtu: MTU,
            min_rnr_timer: 12,
            multipath: multipath.map(|config| Multipath {
                config,
                cookies: Cookies {
                    own: COOKIE,
                    peer: COOKIE,
                },
            }),
            max_dest_rd_atomic: 4,
        };
        let send = ReadyToSend {
            sq_psn: FIRST,
            timeout: 12,
            retry_count: 7,
            rnr_retry: 6,
            max_rd_atomic: 4,
        };
        for transition in [
            Transition::ReadyToReceive(receive),
            Transition::ReadyToSend(send),
        ] {
            let qpn = self.pairs[index].qpn;
            let changed = self.engine.modify_queue_pair(qpn, &transition);
            changed.expect("legal");
        }
    }

    /// Ends a queue pair, and puts a fresh one into its place.
    pub(super) fn replace(&mut self, index: usize) {
        let qpn = self.pairs[index].qpn;
        self.engine.destroy_queue_pair(qpn).expect("exists");
        self.pairs[index] = self.queue_pair();
    }

    /// Resets a queue pair: what is outstanding is forgotten.
    pub(super) fn reset(&mut self, index: usize) {
        let qpn = self.pairs[index].qpn;
        self.collect();
        self.lives += 1;
        self.pairs[index].life = self.lives;
        self.pairs[index].open = Open::default();
        let engine = &mut self.engine;
        engine
            .modify_queue_pair(qpn, &Transition::Reset)
            .expect("from any state");
        let init = Transition::Init(Access::ALL_REMOTE);
        engine.modify_queue_pair(qpn, &init).expect("legal");
    }

    pub(super) fn set_route(&mut self, destination: IpAddr) {
        let route = Route {
            source: OWN.into(),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            mtu: 1500,
            rate: Rate::from_gbps(10),
        };
        self.engine.set_route(destination, route).expect("legal");
    }

    pub(super) fn post_send(&mut self, index: usize, request: SendRequest) {
        let pair = &mut self.pairs[index];
        let wr_id = u64::from(pair.life) << 1;
        let request = SendRequest { wr_id, ..request };
        let posted = self.engine.post_send(pair.qpn, request).is_ok();
        pair.open.sends += u32::from(posted);
    }

    pub(super) fn post_receive(&mut self, index: usize, addr: u64, len: u32) {
        let pair = &mut self.pairs[index];
        let request = ReceiveRequest {
            wr_id: u64::from(pair.life) << 1 | 1,
            lkey: self.keys.lkey,
            addr,
            len,
        };
        let posted = self.engine.post_receive(pair.qpn, request).is_ok();
        pair.open.receives += u32::from(posted);
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if let Some(frame) = self.pool.take_filled(bytes) {
            self.engine.receive(frame, &mut self.pool, self.now);
            self.collect();
        }
    }

    /// What leaves now. It is well-formed, and does not tell the secret.
    pub(super) fn transmit(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.engine.transmit(&mut self.pool, self.now, &mut out, 64);
        let sent: Vec<_> = out
            .iter()
            .map(|(_, frame)| untagged(frame.bytes()))
            .collect();
        out.into_iter().for_each(|(_, frame)| self.pool.give(frame));
        self.collect();
        sent.iter().for_each(|bytes| check(bytes));
        sent
    }

    /// Takes completions and events. No request ends twice.
    pub(super) fn collect(&mut self) {
        while let Some(completion) = self.engine.poll_completion(self.cq) {
            let life = u32::try_from(completion.wr_id >> 1).expect("as posted");
            let pair = self.pairs.iter_mut().find(|pair| pair.life == life);
            let Some(pair) = pair else { continue };
            let open = match completion.wr_id & 1 {
                0 => &mut pair.open.sends,
                _ => &mut pair.open.receives,
            };
            *open = open.checked_sub(1).expect("a request ended twice");
            if completion.status == Status::Success {
                let own = completion.opcode == CompletionOpcode::LocalInv;
                let taken_back = own || completion.invalidated.is_some();
                self.windows[0] += u64::from(completion.opcode == CompletionOpcode::BindMw);
                self.windows[1] += u64::from(taken_back);
            }
        }
        while let Some(event) = self.engine.next_event() {
            self.events.push(event);
        }
    }

    /// Nobody says anything any more, and the engine is left to its clock: it does not wake without
    /// end. What it sends goes to `heard`.
    pub(super) fn settle(&mut self, mut heard: impl FnMut(&mut Self, Vec<u8>)) {
        let end = self.now + PATIENCE;
        let mut wakes = 0;
        while self.now < end {
            for _ in 0..FRAMES {
                let sent = self.transmit();
                if sent.is_empty() {
                    break;
                }
                for frame in sent {
                    heard(self, frame);
                }
            }
            let next = self.engine.next_deadline();
            if next >= end {
                break;
            }
            self.now = next.max(self.now + Span::from_micros(1));
            wakes += 1;
            assert!(wakes < WAKES, "the engine wakes without end");
        }
    }

    /// All requests to send have ended.
    pub(super) fn all_ended(&self) {
        for (index, pair) in self.pairs.iter().enumerate() {
            assert_eq!(pair.open.sends, 0, "queue pair {index}: requests hang");
        }
    }

    /// Ends all queue pairs: the books agree, every frame is back, and the secret is whole. What
    /// was counted.
    pub(super) fn close(mut self) -> EngineStatistics {
        let all: Vec<_> = self.engine.queue_pairs().collect();
        for qpn in all {
            self.engine.destroy_queue_pair(qpn).expect("exists");
        }
        self.settle(|_, _| ());
        assert_eq!(self.engine.connections(), 0, "connections are left");
        self.engine.reclaim(&mut self.pool);
        assert_eq!(self.pool.free_frames(), FRAMES as usize, "frames are lost");
        let statistics = self.engine.statistics();
        assert_eq!(statistics.rx_packets, statistics.settled(), "packets");
        let hidden = self.hidden.to_vec();
        assert!(hidden.iter().all(|&byte| byte == SECRET), "overwritten");
        statistics.clone()
    }
}

/// A sealed frame of the peer to the engine, with `payload` bytes of [`FILL`]. `class`: DSCP and
/// ECN.
pub(super) fn frame_of_peer(headers: &Headers, payload: usize, class: u8) -> Vec<u8> {
    let flow = Flow {
        src_mac: Mac([2, 0, 0, 0, 0, 2]),
        dst_mac: Mac([2, 0, 0, 0, 0, 1]),
        addresses: Addresses::new(PEER.into(), OWN.into()).expect("one version"),
        src_port: 0xc123,
        flow_label: 0,
        traffic_class: class,
        ttl: 64,
    };
    let mut bytes = vec![FILL; layout(flow.addresses, headers, payload).len];
    let place = emit(&mut bytes, &flow, headers, payload);
    bytes[place].fill(FILL);
    seal(&mut bytes).expect("a frame");
    bytes
}

/// A frame without the tag that tells of its path, as the next host's transport sees it.
fn untagged(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let tpid = u16::from_be_bytes([frame[12], frame[13]]);
    if let Some(kind) = Tpids::default().kind(tpid) {
        frame.drain(12..12 + kind.len());
    }
    frame
}

/// What the engine sends is whole, sealed, and tells nothing that nobody asked it to tell.
fn check(bytes: &[u8]) {
    let mut again = bytes.to_vec();
    seal(&mut again).expect("a frame");
    assert_eq!(again, bytes, "ICRC");
    let (headers, payload) = Headers::parse(&bytes[BTH..]).expect("headers");
    if headers.bth.opcode != Opcode::UdSendOnly {
        let payload = &bytes[BTH..][payload];
        let told = payload.windows(LEAK).any(|it| it == [SECRET; LEAK]);
        assert!(!told, "the secret is told");
    }
}

/// What the kept inputs of a target reach together, so that their mutations start from there.
#[cfg(test)]
pub(super) fn reached<T>(target: &str, run: fn(&[u8]) -> T) -> Vec<T> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");
    let entries = std::fs::read_dir(std::path::Path::new(folder).join(target));
    let entries = entries.expect("the corpus");
    entries
        .map(|entry| {
            let path = entry.expect("readable").path();
            run(&std::fs::read(path).expect("readable"))
        })
        .collect()
}
