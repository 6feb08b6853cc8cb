//! Two engines and the network between them, in one thread, from one seed.

use common::time::{Span, Time};
use common::units::Rate;
use common::wire::csig::{Kind, Tag, Tpids};
use common::wire::int::{self, Hop, Scaled};
use common::wire::roce::Cookie;
use common::xdp::frame::{Frame, FramePool, Region};
use hostd::engine::Engine;
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, Completion, CompletionQueueId, Cookies, DomainId, EngineConfig, Event, Multipath,
    MultipathConfig, PortId, QueuePairRequest, ReadyToReceive, ReadyToSend, ReceiveRequest,
    RegionKeys, Route, SendOpcode, SendRequest, Transition,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Frames of each host.
pub(crate) const FRAMES: u32 = 2048;

/// Bytes of each host's region.
pub(crate) const MEMORY: usize = 4 << 20;

/// What packets to each host carry if the hosts were connected by hand.
pub(crate) const COOKIES: [Cookie; 2] =
    [Cookie::new(0xc001_1e11_e511), Cookie::new(0xc002_2e22_e522)];

/// What packets to `address` carry if the hosts were connected by hand.
pub(crate) fn cookie_of(address: IpAddr) -> Cookie {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    COOKIES[usize::from(last) - 1]
}

/// What peers may do with a host's region.
pub(crate) const PEERS: Access = Access::ALL_REMOTE;

/// A host: an engine, its memory, and what came out of it.
pub(crate) struct Host {
    pub(crate) engine: Engine<HeapMemory>,
    pub(crate) pool: FramePool,
    pub(crate) domain: DomainId,
    pub(crate) cq: CompletionQueueId,
    pub(crate) memory: HeapMemory,
    pub(crate) keys: RegionKeys,
    pub(crate) address: IpAddr,
    pub(crate) completions: Vec<Completion>,
    pub(crate) events: Vec<Event>,
    /// Gives the engine the routes that it asks for.
    pub(crate) routed: bool,
    /// Takes completions as they come.
    pub(crate) polls: bool,
    ports: u8,
}

impl Host {
    fn new(number: u8, seed: u64, config: EngineConfig, v6: bool) -> Self {
        let mut secret = [number; 32];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        let ports = config.ports;
        let mut engine = Engine::new(EngineConfig {
            seed: secret,
            ..config
        });
        let domain = engine.create_domain().expect("room");
        let cq = engine.create_completion_queue().expect("room");
        let memory = HeapMemory::new(vec![0; MEMORY]);
        let rights = Access::LOCAL_WRITE | PEERS;
        let keys = engine
            .register(domain, memory.clone(), 0, rights)
            .expect("room");
        let address = if v6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, number).into()
        };
        Self {
            engine,
            pool: FramePool::new(Region::heap(FRAMES, 4096, 64)),
            domain,
            cq,
            memory,
            keys,
            address,
            completions: Vec::new(),
            events: Vec::new(),
            routed: true,
            polls: true,
            ports,
        }
    }

    pub(crate) fn queue_pair(&mut self) -> u32 {
        let request = QueuePairRequest {
            domain: self.domain,
            send_cq: self.cq,
            receive_cq: self.cq,
            max_send_wr: 256,
            max_recv_wr: 256,
            shared: None,
            signal_all: false,
        };
        let qpn = self.engine.create_queue_pair(request).expect("room");
        let init = Transition::Init(PEERS);
        self.engine.modify_queue_pair(qpn, &init).expect("legal");
        qpn
    }

    pub(crate) fn route(&self) -> Route {
        Route {
            source: self.address,
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            mtu: 3000,
            rate: Rate::from_gbps(10),
        }
    }

    pub(crate) fn receive_into(&mut self, qpn: u32, wr_id: u64, addr: u64, len: u32) {
        let request = ReceiveRequest {
            wr_id,
            lkey: self.keys.lkey,
            addr,
            len,
        };
        self.engine.post_receive(qpn, request).expect("room");
    }

    pub(crate) fn send(&self, wr_id: u64, addr: u64, len: u32) -> SendRequest {
        SendRequest {
            wr_id,
            opcode: SendOpcode::Send,
            lkey: self.keys.lkey,
            addr,
            len,
            remote_addr: 0,
            rkey: 0,
            imm: 0,
            signaled: true,
            solicited: false,
            ..SendRequest::default()
        }
    }

    fn collect(&mut self) {
        while self.polls
            && let Some(cq) = self.engine.next_ready_completion_queue()
        {
            while let Some(completion) = self.engine.poll_completion(cq) {
                self.completions.push(completion);
            }
        }
        while let Some(event) = self.engine.next_event() {
            if let (Event::NeedRoute { destination }, true) = (event, self.routed) {
                let ports = (0..self.ports).map(PortId::new);
                let routes: Vec<_> = ports.map(|port| (port, self.route())).collect();
                self.engine.set_routes(destination, &routes).expect("legal");
            }
            self.events.push(event);
        }
    }
}

/// What the network does to packets.
#[derive(Clone, Debug)]
pub(crate) struct Impairment {
    /// Per thousand packets lost.
    pub(crate) loss: u32,
    /// Per thousand data packets whose payload a switch cuts off.
    pub(crate) trims: u32,
    /// Per thousand packets that a switch marks.
    pub(crate) marks: u32,
    /// Per thousand packets that come twice.
    pub(crate) duplication: u32,
    /// One-way delay of the fastest path.
    pub(crate) delay: Span,
    /// Each path (a hash of the source port) is slower by a multiple of this, 0 to 3 times.
    pub(crate) skew: Span,
    /// Random delay on top.
    pub(crate) jitter: Span,
    /// Of four paths through the network, those that lead nowhere.
    pub(crate) black_holes: [bool; 4],
    /// What source ports are multiplied with to find the path of a packet, by the host that sends
    /// it: so one leads one way there, and may lead another way back.
    pub(crate) factors: [u16; 2],
    /// Nothing arrives at either host before: its thread waits.
    pub(crate) stalled_until: Time,
    /// Host whose packets no longer arrive at all.
    pub(crate) dead: [bool; 2],
    /// Planes that carry nothing: port n of one host leads to port n of the other.
    pub(crate) dead_planes: [bool; 4],
    /// What a switch writes in CSIG tags: value and locator.
    pub(crate) signs: Option<(u32, u16)>,
    /// A switch writes itself in INT tags, with so many bytes in its queue.
    pub(crate) queue: Option<u64>,
    /// By Path ID, up to eight: a switch takes tags of CSIG and INT off.
    pub(crate) strips: [bool; 8],
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            loss: 0,
            trims: 0,
            marks: 0,
            duplication: 0,
            delay: Span::from_micros(20),
            skew: Span::ZERO,
            jitter: Span::ZERO,
            black_holes: [false; 4],
            factors: [0x9e37; 2],
            stalled_until: Time::ZERO,
            dead: [false; 2],
            dead_planes: [false; 4],
            signs: None,
            queue: None,
            strips: [false; 8],
        }
    }
}

/// Bytes of a trimmed frame.
const TRIMMED: usize = 128;

/// Cuts the payload of a long data packet over IPv4 off, as a switch does that has no room for it.
pub(crate) fn trim(bytes: &mut Vec<u8>) {
    if bytes.len() <= TRIMMED || bytes[12] != 0x08 || bytes[15] >> 2 != 26 {
        return;
    }
    bytes.truncate(TRIMMED);
    let len = |from: usize| u16::try_from(TRIMMED - from).expect("short").to_be_bytes();
    bytes[15] = 42 << 2 | bytes[15] & 3;
    bytes[16..18].copy_from_slice(&len(14));
    bytes[38..40].copy_from_slice(&len(34));
    checksum(bytes);
}

/// Makes the checksum of an IPv4 header behind an Ethernet header right.
fn checksum(bytes: &mut [u8]) {
    bytes[24..26].fill(0);
    let words = bytes[14..34].chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded");
    bytes[24..26].copy_from_slice(&(!folded).to_be_bytes());
}

/// When a frame arrives, its number, where, through which port, and what it is.
type UnderWay = (Time, u64, usize, PortId, Vec<u8>);

/// Two hosts and what is under way between them.
pub(crate) struct Network {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Time,
    pub(crate) impairment: Impairment,
    /// By arrival, then by departure.
    under_way: BinaryHeap<Reverse<UnderWay>>,
    departures: u64,
    /// Bytes of frames with telemetry that the switch sent.
    switched: u32,
    random: Pcg64Mcg,
    pub(crate) seed: u64,
    /// RDMA READs and atomic operations that a responder takes at a time.
    pub(crate) depth: u8,
    out: Vec<(PortId, Frame)>,
    /// Data packets that left host 0, by UDP source port hash.
    pub(crate) carried: [u64; 4],
    /// The same by its port.
    pub(crate) carried_by: [u64; 4],
    /// Every frame that was sent, if a test looks at them.
    pub(crate) tap: Option<Vec<Vec<u8>>>,
    /// Every frame that arrived, as the network left it, if a test looks at them.
    pub(crate) arrivals: Option<Vec<Vec<u8>>>,
}

impl Network {
    pub(crate) fn new(seed: u64, configs: [EngineConfig; 2]) -> Self {
        Self::over(seed, configs, false)
    }

    pub(crate) fn over(seed: u64, [first, second]: [EngineConfig; 2], v6: bool) -> Self {
        println!("seed {seed}");
        Self {
            hosts: [
                Host::new(1, seed, first, v6),
                Host::new(2, seed, second, v6),
            ],
            now: Time::from_nanos(1_000_000_000),
            impairment: Impairment::default(),
            under_way: BinaryHeap::new(),
            departures: 0,
            switched: 0,
            random: Pcg64Mcg::new(u128::from(seed)),
            seed,
            depth: 16,
            out: Vec::new(),
            carried: [0; 4],
            carried_by: [0; 4],
            tap: None,
            arrivals: None,
        }
    }

    /// Queue pairs on both hosts, connected by hand.
    pub(crate) fn connected(&mut self, multipath: Option<MultipathConfig>) -> [u32; 2] {
        let timeouts = ReadyToSend {
            sq_psn: 0xff_fff0,
            timeout: 12,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
        };
        self.connected_with(multipath, timeouts)
    }

    pub(crate) fn connected_with(
        &mut self,
        multipath: Option<MultipathConfig>,
        send: ReadyToSend,
    ) -> [u32; 2] {
        let qpns = [self.hosts[0].queue_pair(), self.hosts[1].queue_pair()];
        self.connect(qpns, multipath, send);
        qpns
    }

    /// Connects queue pairs that are in INIT.
    pub(crate) fn connect(
        &mut self,
        qpns: [u32; 2],
        multipath: Option<MultipathConfig>,
        send: ReadyToSend,
    ) {
        for (own, other) in [(0, 1), (1, 0)] {
            let receive = ReadyToReceive {
                destination: self.hosts[other].address,
                destination_qpn: qpns[other],
                rq_psn: send.sq_psn,
                path_mtu: 1024,
                min_rnr_timer: 12,
                multipath: multipath.map(|config| Multipath {
                    config,
                    cookies: Cookies {
                        own: COOKIES[own],
                        peer: COOKIES[other],
                    },
                }),
                max_dest_rd_atomic: self.depth,
            };
            let engine = &mut self.hosts[own].engine;
            for transition in [
                Transition::ReadyToReceive(receive),
                Transition::ReadyToSend(send),
            ] {
                engine
                    .modify_queue_pair(qpns[own], &transition)
                    .expect("legal");
            }
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            0
        } else {
            self.random.next_u64() % n
        }
    }

    fn depart(&mut self, from: usize, port: PortId, frame: &Frame) {
        let mut bytes = frame.bytes().to_vec();
        if let Some(tap) = &mut self.tap {
            tap.push(bytes.clone());
        }
        let kind = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let tag = Tpids::default().kind(kind(&bytes, 12));
        let start = 14 + tag.map_or(0, Kind::len);
        let is_v4 = kind(&bytes, start - 2) == 0x0800;
        let ip = if is_v4 { 20 } else { 40 };
        let source = kind(&bytes, start + ip);
        let path = usize::from(source.wrapping_mul(self.impairment.factors[from]) >> 14);
        if from == 0 {
            self.carried[path] += 1;
            self.carried_by[port.index()] += 1;
        }
        let impairment = self.impairment.clone();
        match tag {
            Some(Kind::Csig(form)) => {
                if let Some((value, locator)) = impairment.signs {
                    let mut tag = Tag::read(form, &bytes[12..]).expect("whole");
                    (tag.value, tag.locator) = (value, locator);
                    tag.write(form, &mut bytes[12..]).expect("whole");
                }
            }
            Some(Kind::Int) => {
                self.switched += u32::try_from(bytes.len()).expect("short");
                if let Some(queue) = impairment.queue {
                    let hop = Hop {
                        sent: self.switched,
                        at: u32::try_from(self.now.nanos() & u64::from(u32::MAX)).expect("cut"),
                        queue: Scaled::of(queue),
                        speed: Scaled::of(10_000_000),
                    };
                    int::add(&mut bytes[12..], &hop).expect("whole");
                }
            }
            None => {}
        }
        // Behind IP, UDP and BTH stands the MPEH, whose first byte is the Path ID.
        let id = start + ip + 8 + 12;
        let strips = tag.is_some() && impairment.strips[usize::from(bytes[id] % 8)];
        let start = if strips {
            bytes.drain(12..start - 2);
            14
        } else {
            start
        };
        if impairment.black_holes[path]
            || impairment.dead[from]
            || impairment.dead_planes[port.index()]
            || self.below(1000) < u64::from(impairment.loss)
        {
            return;
        }
        if impairment.trims > 0 && self.below(1000) < u64::from(impairment.trims) {
            trim(&mut bytes);
        }
        if impairment.marks > 0 && self.below(1000) < u64::from(impairment.marks) {
            bytes[start + 1] |= 3;
            checksum(&mut bytes[start - 14..]);
        }
        let copies = 1 + u64::from(self.below(1000) < u64::from(impairment.duplication));
        for _ in 0..copies {
            let jitter = Span::from_nanos(self.below(impairment.jitter.nanos()));
            let skew = impairment.skew.times(path as u64);
            let arrival = self.now + impairment.delay + skew + jitter;
            let arrival = arrival.max(impairment.stalled_until);
            self.departures += 1;
            self.under_way.push(Reverse((
                arrival,
                self.departures,
                1 - from,
                port,
                bytes.clone(),
            )));
        }
    }

    /// Puts a frame into a host as if it had come from the network.
    pub(crate) fn inject(&mut self, host: usize, bytes: &[u8]) {
        self.inject_through(host, PortId::FIRST, bytes);
    }

    /// The same through one of its ports.
    pub(crate) fn inject_through(&mut self, host: usize, port: PortId, bytes: &[u8]) {
        let host = &mut self.hosts[host];
        let frame = host.pool.take_filled(bytes).expect("a free frame");
        host.engine
            .receive_through(port, frame, &mut host.pool, self.now);
    }

    /// Lets everything happen that happens now, and returns when the next thing does.
    pub(crate) fn turn(&mut self) -> Time {
        for _ in 0..100_000 {
            let due =
                matches!(self.under_way.peek(), Some(Reverse((time, ..))) if *time <= self.now);
            if due {
                let Reverse((_, _, to, port, bytes)) = self.under_way.pop().expect("peeked");
                if let Some(arrivals) = &mut self.arrivals {
                    arrivals.push(bytes.clone());
                }
                self.inject_through(to, port, &bytes);
                self.hosts[to].collect();
                continue;
            }
            let mut sent = 0;
            for from in 0..2 {
                let host = &mut self.hosts[from];
                host.collect();
                let mut out = std::mem::take(&mut self.out);
                sent += host.engine.transmit(&mut host.pool, self.now, &mut out, 64);
                host.collect();
                for (port, frame) in out.drain(..) {
                    self.depart(from, port, &frame);
                    self.hosts[from].pool.give(frame);
                }
                self.out = out;
            }
            let deadline = self.hosts.iter().map(|host| host.engine.next_deadline());
            let next = deadline.min().expect("two hosts");
            if sent == 0 && next > self.now {
                let arrival = self.under_way.peek();
                return arrival.map_or(next, |Reverse((time, ..))| next.min(*time));
            }
        }
        panic!("seed {}: no progress at {:?}", self.seed, self.now);
    }

    /// Runs until `done`, or for `limit`. Whether it was done.
    pub(crate) fn run(&mut self, limit: Span, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.turn();
            if done(self) {
                return true;
            }
            // `done` may have asked for something.
            let next = self.turn();
            if next > end {
                self.now = end;
                return done(self);
            }
            self.now = next;
        }
    }

    /// Two of four paths swallow what they get from now on, there and back, each for itself.
    pub(crate) fn swallow(&mut self) {
        self.impairment.black_holes = [false, true, false, true];
        let factor = |seed: u64| u16::try_from(seed % 0x4000).expect("few") << 2 | 1;
        let seed = self.seed.wrapping_mul(0x9e37_79b9);
        self.impairment.factors = [factor(seed >> 8), factor(seed >> 24)];
    }

    /// Runs for `span`.
    pub(crate) fn pass(&mut self, span: Span) {
        self.run(span, |_| false);
    }

    /// Fills a host's region with bytes that depend on the seed.
    pub(crate) fn fill(&mut self, host: usize) -> Vec<u8> {
        let mut bytes = vec![0; MEMORY];
        self.random.fill_bytes(&mut bytes);
        use hostd::memory::RegionMemory;
        assert!(self.hosts[host].memory.copy_in(0, &bytes));
        bytes
    }

    /// Ends all queue pairs and checks that every frame is back.
    pub(crate) fn close(mut self) {
        for host in &mut self.hosts {
            let all: Vec<_> = host.engine.queue_pairs().collect();
            for qpn in all {
                host.engine.destroy_queue_pair(qpn).expect("exists");
            }
            host.engine.reclaim(&mut host.pool);
            let free = host.pool.free_frames();
            assert_eq!(free, FRAMES as usize, "seed {}: frames lost", self.seed);
        }
    }
}
