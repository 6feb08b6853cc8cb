//! The longest messages: 2 GiB, through memory that is not there. Each byte of the sending region
//! follows from its address, and the receiving one compares.

use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::frame::{Frame, FramePool, Region};
use hostd::engine::Engine;
use hostd::limits;
use hostd::memory::RegionMemory;
use hostd::verbs::{
    Access, AtomicOperation, Completion, CompletionQueueId, Cookies, EngineConfig, Event,
    Multipath, MultipathConfig, PortId, QueuePairRequest, ReadyToReceive, ReadyToSend,
    ReceiveRequest, RegionKeys, Route, SendOpcode, SendRequest, Status, Transition,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::network::COOKIES;

/// Bytes of the regions.
const LEN: u64 = limits::MESSAGE as u64;

/// The byte at an address: no two words of one packet are alike, nor two packets in a row.
fn byte(address: u64) -> u8 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// Memory that reads as [`byte`] and takes nothing else; it counts what is written.
#[derive(Clone, Debug, Default)]
struct Pattern(Arc<AtomicU64>);

impl RegionMemory for Pattern {
    fn len(&self) -> u64 {
        LEN
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool {
        for (at, byte_of) in (offset..).zip(into.iter_mut()) {
            *byte_of = byte(at);
        }
        offset + into.len() as u64 <= LEN
    }

    fn copy_in(&self, offset: u64, from: &[u8]) -> bool {
        let mut here = (offset..).zip(from);
        assert!(here.all(|(at, found)| *found == byte(at)), "at {offset:#x}");
        self.0.fetch_add(from.len() as u64, Ordering::Relaxed);
        offset + from.len() as u64 <= LEN
    }

    fn atomic(&self, _: u64, _: AtomicOperation) -> Option<u64> {
        None
    }
}

struct Host {
    engine: Engine<Pattern>,
    pool: FramePool,
    cq: CompletionQueueId,
    qpn: u32,
    keys: RegionKeys,
    written: Pattern,
    completions: Vec<Completion>,
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

impl Host {
    fn new(number: u8) -> Self {
        let mut engine = Engine::new(EngineConfig {
            seed: [number; 32],
            ..EngineConfig::default()
        });
        let domain = engine.create_domain().expect("room");
        let cq = engine.create_completion_queue().expect("room");
        let written = Pattern::default();
        let rights = Access::LOCAL_WRITE | Access::ALL_REMOTE;
        let keys = engine.register(domain, written.clone(), 0, rights);
        let request = QueuePairRequest {
            domain,
            send_cq: cq,
            receive_cq: cq,
            max_send_wr: 16,
            max_recv_wr: 16,
            shared: None,
            signal_all: false,
        };
        let qpn = engine.create_queue_pair(request).expect("room");
        Self {
            engine,
            pool: FramePool::new(Region::heap(1024, 8192, 0)),
            cq,
            qpn,
            keys: keys.expect("room"),
            written,
            completions: Vec::new(),
        }
    }

    fn connect(&mut self, own: usize, peer: u32, path_mtu: u16, multipath: bool) {
        let route = Route {
            source: address(1 + u8::from(own == 1)),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            mtu: 9000,
            rate: Rate::from_gbps(100),
        };
        let destination = address(1 + u8::from(own == 0));
        self.engine.set_route(destination, route).expect("legal");
        let first = 0xff_fff0;
        let multipath = multipath.then(|| Multipath {
            config: MultipathConfig::default(),
            cookies: Cookies {
                own: COOKIES[own],
                peer: COOKIES[1 - own],
            },
        });
        for transition in [
            Transition::Init(Access::ALL_REMOTE),
            Transition::ReadyToReceive(ReadyToReceive {
                destination,
                destination_qpn: peer,
                rq_psn: first,
                path_mtu,
                min_rnr_timer: 12,
                multipath,
                max_dest_rd_atomic: 16,
            }),
            Transition::ReadyToSend(ReadyToSend {
                sq_psn: first,
                timeout: 16,
                retry_count: 7,
                rnr_retry: 7,
                max_rd_atomic: 16,
            }),
        ] {
            let modified = self.engine.modify_queue_pair(self.qpn, &transition);
            modified.expect("legal");
        }
    }

    fn collect(&mut self) {
        while let Some(completion) = self.engine.poll_completion(self.cq) {
            self.completions.push(completion);
        }
        while let Some(event) = self.engine.next_event() {
            assert!(matches!(event, Event::NeedRoute { .. }), "{event:?}");
        }
    }
}

/// Two hosts on one cable without delay. `lose` says which data packets of the first host are
/// lost, by their number.
struct Cable {
    hosts: [Host; 2],
    now: Time,
    out: Vec<(PortId, Frame)>,
    carried: u64,
    lose: fn(u64) -> bool,
}

impl Cable {
    fn new(path_mtu: u16, multipath: bool, lose: fn(u64) -> bool) -> Self {
        let mut hosts = [Host::new(1), Host::new(2)];
        let [a, b] = [hosts[0].qpn, hosts[1].qpn];
        hosts[0].connect(0, b, path_mtu, multipath);
        hosts[1].connect(1, a, path_mtu, multipath);
        Self {
            hosts,
            now: Time::from_nanos(1_000_000_000),
            out: Vec::new(),
            carried: 0,
            lose,
        }
    }

    /// Carries packets until the first host has `completions`.
    fn run(&mut self, completions: usize) {
        while self.hosts[0].completions.len() < completions {
            let mut sent = 0;
            for from in 0..2 {
                let [first, second] = &mut self.hosts;
                let (host, other) = if from == 0 {
                    (first, second)
                } else {
                    (second, first)
                };
                let out = &mut self.out;
                sent += host.engine.transmit(&mut host.pool, self.now, out, 64);
                for (_, frame) in out.drain(..) {
                    self.carried += u64::from(from == 0);
                    if from == 1 || !(self.lose)(self.carried) {
                        let copy = other.pool.take_filled(frame.bytes()).expect("a frame");
                        other.engine.receive(copy, &mut other.pool, self.now);
                    }
                    host.pool.give(frame);
                }
                host.collect();
                other.collect();
            }
            let due = self.hosts.iter().map(|host| host.engine.next_deadline());
            let due = due.min().expect("two");
            assert!(sent > 0 || due != Time::NEVER, "nothing happens any more");
            self.now =
                (self.now + Span::from_nanos(100)).max(if sent > 0 { self.now } else { due });
        }
    }

    fn post(&mut self, opcode: SendOpcode, len: u32) {
        let request = SendRequest {
            wr_id: u64::from(len),
            opcode,
            lkey: self.hosts[0].keys.lkey,
            len,
            rkey: self.hosts[1].keys.rkey,
            signaled: true,
            ..SendRequest::default()
        };
        let host = &mut self.hosts[0];
        host.engine.post_send(host.qpn, request).expect("room");
    }

    fn receive(&mut self, len: u32) {
        let host = &mut self.hosts[1];
        let receive = ReceiveRequest {
            wr_id: u64::from(len),
            lkey: host.keys.lkey,
            addr: 0,
            len,
        };
        host.engine.post_receive(host.qpn, receive).expect("room");
    }
}

/// Each operation with 2 GiB, and 100 bytes after it.
fn carry(path_mtu: u16, multipath: bool) {
    let mut cable = Cable::new(path_mtu, multipath, |n| n % 100_003 == 0);
    let mut done = 0;
    for (opcode, to) in [
        (SendOpcode::Send, 1),
        (SendOpcode::RdmaWrite, 1),
        (SendOpcode::RdmaRead, 0),
    ] {
        let before = cable.hosts[to].written.0.load(Ordering::Relaxed);
        for len in [limits::MESSAGE, 100] {
            if opcode == SendOpcode::Send {
                cable.receive(len);
            }
            cable.post(opcode, len);
        }
        done += 2;
        cable.run(done);
        let ended: Vec<_> = cable.hosts[0].completions[done - 2..]
            .iter()
            .map(|it| (it.status, it.wr_id))
            .collect();
        let good = [(Status::Success, LEN), (Status::Success, 100)];
        assert_eq!(ended, good, "{opcode:?}");
        let written = cable.hosts[to].written.0.load(Ordering::Relaxed) - before;
        assert_eq!(written, LEN + 100, "{opcode:?}: bytes, each once");
    }
    let received: Vec<_> = cable.hosts[1].completions.iter().collect();
    assert_eq!(received.len(), 2);
    assert_eq!(u64::from(received[0].byte_len), LEN);
}

/// HT-1: a message of 2³¹ bytes, by every operation, with packets lost, to the byte.
#[test]
fn two_gibibytes() {
    carry(4096, true);
}

/// HT-1, HT-30: the same at the smallest path MTU, where it takes 2²³ packet sequence numbers: half
/// of the circle.
#[test]
#[ignore = "takes minutes: make soak"]
fn half_of_the_circle() {
    for multipath in [true, false] {
        carry(256, multipath);
    }
}
