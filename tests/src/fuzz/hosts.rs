//! The transport engine against any frame, and against a network that does whatever the input says.

use super::program::Program;
use crate::wire::SAMPLE_COOKIE;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::checksum;
use common::wire::ethernet::HEADER_LEN;
use common::wire::ip::v4;
use common::wire::roce::frame::seal;
use common::xdp::frame::{FramePool, Region};
use hostd::engine::Engine;
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, CompletionQueueId, ConnectionId, ConnectionParameters, Cookies, EngineConfig, Event,
    Multipath, MultipathConfig, QueuePairRequest, ReadyToReceive, ReadyToSend, ReceiveRequest,
    RegionKeys, Route, SendOpcode, SendRequest, Transition,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// Frames of a host.
const FRAMES: u32 = 256;
/// Bytes of a host's region.
const MEMORY: u32 = 1 << 16;
/// Frames that wait in the network for the input's decision; more are lost.
const UNDER_WAY: usize = 512;
/// Time in which everything that was posted ends, well or badly: some doubled time-outs, eight
/// times.
const PATIENCE: Span = Span::from_secs(120);
/// Identifiers of the requests: those that are sent must end, receives may wait.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
/// Port of the service that both hosts offer.
const SERVICE: u16 = 7471;
/// First PSN of a dialogue: it wraps soon.
const FIRST_PSN: u32 = 0xff_fff0;
/// Most times that hosts wake in that time: a message of 64 KiB and its time-outs take some
/// hundred.
const WAKES: u32 = 50_000;
/// Queue pair that the sample frames are for.
const SAMPLE_QP: u32 = 0x01_2345;
/// PSN of the sample frames.
const SAMPLE_PSN: u32 = 0x98_7654;

struct Host {
    engine: Engine<HeapMemory>,
    pool: FramePool,
    cq: CompletionQueueId,
    keys: RegionKeys,
    qpn: u32,
    connection: Option<ConnectionId>,
    posted: u32,
    completed: u32,
}

fn address(number: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, if number == 0 { 1 } else { 2 }).into()
}

/// Nobody waits without end for a receive that is not posted.
fn parameters() -> ConnectionParameters<'static> {
    ConnectionParameters {
        rnr_retry: 6,
        ..ConnectionParameters::default()
    }
}

impl Host {
    fn new(number: usize) -> Self {
        let seed = [if number == 0 { 1 } else { 2 }; 32];
        let mut engine = Engine::new(EngineConfig {
            seed,
            reorder_frames: FRAMES / 2,
            ..EngineConfig::default()
        });
        let domain = engine.create_domain().expect("room");
        let cq = engine.create_completion_queue().expect("room");
        let memory = HeapMemory::new(vec![0; MEMORY as usize]);
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
        let init = Transition::Init(Access::REMOTE_WRITE);
        engine.modify_queue_pair(qpn, &init).expect("legal");
        let pool = FramePool::new(Region::heap(FRAMES, 4096, 0));
        Self {
            engine,
            pool,
            cq,
            keys,
            qpn,
            connection: None,
            posted: 0,
            completed: 0,
        }
    }

    /// Brings the queue pair into RTS by hand.
    fn connect(&mut self, own: usize, destination_qpn: u32, psn: u32, multipath: bool) {
        let receive = ReadyToReceive {
            destination: address(1 - own),
            destination_qpn,
            rq_psn: psn,
            path_mtu: 1024,
            min_rnr_timer: 12,
            multipath: multipath.then(|| Multipath {
                config: MultipathConfig::default(),
                cookies: Cookies {
                    own: SAMPLE_COOKIE,
                    peer: SAMPLE_COOKIE,
                },
            }),
            max_dest_rd_atomic: 16,
        };
        let send = ReadyToSend {
            sq_psn: psn,
            timeout: 12,
            retry_count: 7,
            rnr_retry: 6,
            max_rd_atomic: 16,
        };
        for transition in [
            Transition::ReadyToReceive(receive),
            Transition::ReadyToSend(send),
        ] {
            self.engine
                .modify_queue_pair(self.qpn, &transition)
                .expect("legal");
        }
        self.set_route(own);
    }

    fn set_route(&mut self, own: usize) {
        let route = Route {
            source: address(own),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            mtu: 1500,
            rate: Rate::from_gbps(10),
        };
        self.engine
            .set_route(address(1 - own), route)
            .expect("legal");
    }

    fn receive(&mut self, bytes: &[u8], now: Time) {
        let Some(frame) = self.pool.take_filled(bytes) else {
            return;
        };
        self.engine.receive(frame, &mut self.pool, now);
        self.collect();
    }

    /// Frames that leave now.
    fn transmit(&mut self, now: Time) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.engine.transmit(&mut self.pool, now, &mut out, 64);
        let sent = out
            .iter()
            .map(|(_, frame)| frame.bytes().to_vec())
            .collect();
        out.into_iter().for_each(|(_, frame)| self.pool.give(frame));
        self.collect();
        sent
    }

    fn collect(&mut self) {
        while let Some(completion) = self.engine.poll_completion(self.cq) {
            self.completed += u32::from(completion.wr_id == SEND);
        }
        while let Some(event) = self.engine.next_event() {
            match event {
                Event::ConnectRequest { connection, .. }
                    if self
                        .engine
                        .accept(connection, self.qpn, &parameters())
                        .is_err() =>
                {
                    let _ = self.engine.reject(connection, b"no");
                }
                Event::Established { connection, .. } => self.connection = Some(connection),
                _ => {}
            }
        }
    }

    fn post_send(&mut self, rkey: u32, program: &mut Program<'_>) {
        let opcode = [
            SendOpcode::Send,
            SendOpcode::SendWithImm,
            SendOpcode::RdmaWrite,
            SendOpcode::RdmaWriteWithImm,
        ][usize::from(program.u8() & 3)];
        let request = SendRequest {
            wr_id: SEND,
            opcode,
            lkey: self.keys.lkey,
            addr: 0,
            len: u32::from(program.u16()),
            remote_addr: u64::from(program.u8()),
            rkey,
            imm: 5,
            signaled: true,
            solicited: false,
            ..SendRequest::default()
        };
        self.posted += u32::from(self.engine.post_send(self.qpn, request).is_ok());
    }

    fn post_receive(&mut self, len: u16) {
        let request = ReceiveRequest {
            wr_id: RECEIVE,
            lkey: self.keys.lkey,
            addr: 0,
            len: u32::from(len),
        };
        let _ = self.engine.post_receive(self.qpn, request);
    }

    /// Ends the queue pair; every frame must be back.
    fn close(mut self) {
        let all: Vec<_> = self.engine.queue_pairs().collect();
        for qpn in all {
            self.engine.destroy_queue_pair(qpn).expect("exists");
        }
        self.engine.reclaim(&mut self.pool);
        assert_eq!(self.pool.free_frames(), FRAMES as usize, "frames are lost");
    }
}

/// Gives `frame` the checksum and the ICRC of its bytes: what an attacker sends.
fn forge(frame: &mut [u8]) {
    if let Some(packet) = frame.get_mut(HEADER_LEN..) {
        let header = v4::Packet::new_checked(&packet[..]).map_or(0, |packet| packet.header_len());
        if let Some(header) = packet.get_mut(..header).filter(|header| !header.is_empty()) {
            let place = v4::field::CHECKSUM..v4::field::CHECKSUM + 2;
            header[place.clone()].fill(0);
            let sum = checksum::of(header);
            header[place].copy_from_slice(&sum.to_be_bytes());
        }
    }
    let _ = seal(frame);
}

/// Frames that claim to come from the peer of a connected queue pair.
///
/// The input is a series of: flags (bit 0: make the ICRC right; bits 1 to 7: milliseconds that
/// pass), length, frame.
pub(super) fn frames(input: &[u8]) {
    let mut host = Host::new(1);
    let own = host.qpn;
    host.connect(
        1,
        SAMPLE_QP,
        SAMPLE_PSN,
        input.first().is_some_and(|byte| byte & 0x80 != 0),
    );
    (0..8).for_each(|_| host.post_receive(0x1000));
    let mut program = Program::new(input);
    let mut now = Time::from_nanos(1_000_000_000);
    while !program.is_over() {
        let flags = program.u8();
        now += Span::from_millis(u64::from(flags >> 1));
        let mut frame = program.block().to_vec();
        redirect(&mut frame, own);
        if flags & 1 != 0 {
            forge(&mut frame);
        }
        host.receive(&frame, now);
        host.transmit(now);
    }
    host.close();
}

/// Frames for the queue pair of the samples go to `qpn`, whose number nobody knows beforehand.
fn redirect(frame: &mut [u8], qpn: u32) {
    const DEST_QP: std::ops::Range<usize> = 47..50;
    if let Some(place) = frame.get_mut(DEST_QP)
        && *place == SAMPLE_QP.to_be_bytes()[1..]
    {
        place.copy_from_slice(&qpn.to_be_bytes()[1..]);
    }
}

/// Two hosts, and the input as the network between them and as their applications.
///
/// A step is a byte: what to do, and to which host (bit 7); arguments follow.
pub(super) fn dialogue(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new(program.u8());
    while !program.is_over() {
        world.step(&mut program);
    }
    world.settle();
    world.hosts.into_iter().for_each(Host::close);
}

struct World {
    hosts: [Host; 2],
    /// Frames on the way to each host.
    under_way: [VecDeque<Vec<u8>>; 2],
    now: Time,
}

impl World {
    /// Bit 0: connected by hand with multipath. Bit 1: to be connected by the connection manager.
    fn new(mode: u8) -> Self {
        let mut hosts = [Host::new(0), Host::new(1)];
        let numbers = [hosts[0].qpn, hosts[1].qpn];
        for (own, host) in hosts.iter_mut().enumerate() {
            if mode & 2 == 0 {
                host.connect(own, numbers[1 - own], FIRST_PSN, mode & 1 != 0);
            } else {
                host.set_route(own);
                host.engine.listen(SERVICE).expect("a free port");
            }
        }
        if mode & 2 != 0 {
            let begun = hosts[0]
                .engine
                .connect(numbers[0], address(1), SERVICE, &parameters());
            begun.expect("a queue pair in INIT");
        }
        Self {
            hosts,
            under_way: Default::default(),
            now: Time::from_nanos(1_000_000_000),
        }
    }

    fn step(&mut self, program: &mut Program<'_>) {
        let byte = program.u8();
        let to = usize::from(byte >> 7);
        match byte & 0x0f {
            0 | 1 => {
                let frame = self.under_way[to].pop_front();
                self.deliver(to, frame);
            }
            2 => drop(self.under_way[to].pop_front()),
            3 => {
                let frame = self.under_way[to].pop_back();
                self.deliver(to, frame);
            }
            4 => {
                let frame = self.under_way[to].front().cloned();
                self.deliver(to, frame);
            }
            5 => self.tamper(to, program),
            6 => self.now += Span::from_micros(u64::from(program.u16())),
            7 => self.now += Span::from_millis(u64::from(program.u8())),
            8 | 9 => {
                let rkey = self.hosts[1 - to].keys.rkey;
                self.hosts[to].post_send(rkey, program);
            }
            10 => {
                let wrong = u32::from(program.u8());
                self.hosts[to].post_send(wrong, program);
            }
            11 | 12 => self.hosts[to].post_receive(program.u16()),
            13 => {
                let frame = program.block().to_vec();
                self.deliver(to, Some(frame));
            }
            14 => {
                if let Some(connection) = self.hosts[to].connection {
                    let _ = self.hosts[to].engine.disconnect(connection);
                }
            }
            _ => (0..8).for_each(|_| {
                let frame = self.under_way[to].pop_front();
                self.deliver(to, frame);
            }),
        }
        self.transmit();
    }

    /// Changes a byte of the oldest frame, or cuts it, and delivers it as if it had been sent so.
    fn tamper(&mut self, to: usize, program: &mut Program<'_>) {
        let (at, value, how) = (usize::from(program.u16()), program.u8(), program.u8());
        let Some(mut frame) = self.under_way[to].pop_front() else {
            return;
        };
        let at = at % frame.len();
        frame[at] = value;
        if how & 2 != 0 {
            frame.truncate(at);
        }
        if how & 1 != 0 {
            forge(&mut frame);
        }
        self.deliver(to, Some(frame));
    }

    fn deliver(&mut self, to: usize, frame: Option<Vec<u8>>) {
        if let Some(frame) = frame {
            self.hosts[to].receive(&frame, self.now);
        }
    }

    fn transmit(&mut self) -> usize {
        let mut sent = 0;
        for from in 0..2 {
            let frames = self.hosts[from].transmit(self.now);
            sent += frames.len();
            let queue = &mut self.under_way[1 - from];
            queue.extend(frames);
            queue.truncate(UNDER_WAY);
        }
        sent
    }

    /// The network behaves: whatever was posted ends in time, and nobody is busy with nothing.
    fn settle(&mut self) {
        let end = self.now + PATIENCE;
        let mut wakes = 0;
        while self.now < end {
            while self.transmit() > 0 || self.under_way.iter().any(|queue| !queue.is_empty()) {
                for to in 0..2 {
                    let frame = self.under_way[to].pop_front();
                    self.deliver(to, frame);
                }
            }
            let deadlines = self.hosts.iter().map(|host| host.engine.next_deadline());
            let next = deadlines.min().expect("two hosts");
            if next >= end {
                break;
            }
            self.now = next.max(self.now + Span::from_micros(1));
            wakes += 1;
            assert!(wakes < WAKES, "the hosts wake without end");
        }
        for (number, host) in self.hosts.iter().enumerate() {
            assert!(
                host.completed >= host.posted,
                "host {number}: {} of {} requests ended",
                host.completed,
                host.posted,
            );
        }
    }
}
