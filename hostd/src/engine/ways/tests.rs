use super::super::followers::LEADS;
use super::*;
use crate::memory::HeapMemory;
use crate::verbs::{
    Access, Cookies, EngineConfig, Event, Multipath, MultipathConfig, QueuePairRequest,
    ReadyToReceive, ReadyToSend, ReceiveRequest, SendOpcode, SendRequest, Status, Transition,
};
use common::time::{Span, Time};
use common::wire::roce::Cookie;
use common::xdp::frame::{Frame, FramePool, Region};

const PEERS: [[u8; 4]; 3] = [[10, 0, 0, 2], [10, 0, 0, 3], [10, 0, 0, 4]];
const BEGIN: Time = Time::from_nanos(1_000_000_000);

/// The address of the host itself.
const OWN: [u8; 4] = [10, 0, 0, 1];

/// An engine with two ports.
struct Host {
    engine: Engine<HeapMemory>,
    pool: FramePool,
    request: QueuePairRequest,
    lkey: u32,
    now: Time,
}

fn host() -> Host {
    let config = EngineConfig {
        ports: 2,
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(config);
    let domain = engine.create_domain().expect("room");
    let cq = engine.create_completion_queue().expect("room");
    let memory = HeapMemory::new(vec![0; 1 << 14]);
    let keys = engine.register(domain, memory, 0, Access::LOCAL_WRITE);
    let request = QueuePairRequest {
        domain,
        send_cq: cq,
        receive_cq: cq,
        max_send_wr: 4,
        max_recv_wr: 4,
        shared: None,
        signal_all: true,
    };
    Host {
        engine,
        pool: FramePool::new(Region::heap(64, 4096, 0)),
        request,
        lkey: keys.expect("room").lkey,
        now: BEGIN,
    }
}

/// A route by which frames go to this Ethernet address.
fn route(to: u8) -> Route {
    Route {
        source: IpAddr::from(OWN),
        source_mac: [2; 6],
        destination_mac: [4, 0, 0, 0, 0, to],
        mtu: 3000,
        rate: Rate::from_gbps(10),
    }
}

impl Host {
    /// A queue pair whose peer says nothing.
    fn queue_pair(&mut self, peer: impl Into<IpAddr>) -> u32 {
        let qpn = self.engine.create_queue_pair(self.request).expect("room");
        self.ready(qpn, (peer.into(), 7), None);
        qpn
    }

    fn ready(
        &mut self,
        qpn: u32,
        (destination, destination_qpn): (IpAddr, u32),
        multipath: Option<Multipath>,
    ) {
        let receive = ReadyToReceive {
            destination,
            destination_qpn,
            rq_psn: 0,
            path_mtu: 1024,
            min_rnr_timer: 12,
            multipath,
            max_dest_rd_atomic: 16,
        };
        let send = ReadyToSend {
            sq_psn: 0,
            timeout: 14,
            retry_count: 3,
            rnr_retry: 7,
            max_rd_atomic: 16,
        };
        for transition in [
            Transition::Init(Access::NONE),
            Transition::ReadyToReceive(receive),
            Transition::ReadyToSend(send),
        ] {
            let modified = self.engine.modify_queue_pair(qpn, &transition);
            modified.expect("legal");
        }
    }

    fn post(&mut self, qpn: u32) {
        let message = SendRequest {
            opcode: SendOpcode::Send,
            lkey: self.lkey,
            len: 1024,
            signaled: true,
            ..SendRequest::default()
        };
        self.engine.post_send(qpn, message).expect("room");
    }

    /// The Ethernet addresses that frames go to now.
    fn sent(&mut self) -> Vec<u8> {
        let mut out: Vec<(PortId, Frame)> = Vec::new();
        self.engine
            .transmit(&mut self.pool, self.now, &mut out, 256);
        let address = |(_, frame): (_, Frame)| {
            let last = frame.bytes()[5];
            self.pool.give(frame);
            last
        };
        out.into_iter().map(address).collect()
    }

    /// Waits for the failure of a queue pair, which sends nothing; how long that took.
    fn fails_silently(&mut self, failed: u32) -> Span {
        let begin = self.now;
        for _ in 0..10_000 {
            assert_eq!(self.sent(), [0; 0]);
            while let Some(event) = self.engine.next_event() {
                if let Event::QueuePairFailed { qpn, status, .. } = event {
                    assert_eq!((qpn, status), (failed, Status::RetryExceeded));
                    return self.now.since(begin);
                }
            }
            let next = self.engine.next_deadline();
            assert!(next > self.now && next != Time::NEVER, "{next:?}");
            self.now = next;
        }
        panic!("it stays");
    }
}

/// HT-37: without a route nothing leaves, and nobody spins. The clocks go on: what is in flight
/// fails as if the network had swallowed it, unless there is another route in time.
#[test]
fn a_queue_pair_waits_for_a_route_that_is_gone() {
    let mut host = host();
    let peer = IpAddr::from(PEERS[0]);
    host.engine.set_route(peer, route(1)).expect("legal");
    let qpn = host.queue_pair(peer);
    host.post(qpn);
    assert_eq!(host.sent(), [1]);
    host.engine.set_routes(peer, &[]).expect("legal");
    host.post(qpn);
    for _ in 0..3 {
        assert_eq!(host.sent(), [0; 0]);
        let next = host.engine.next_deadline();
        assert!(next > host.now, "{next:?}");
        host.now = next;
    }
    host.engine.set_route(peer, route(2)).expect("legal");
    let sent = host.sent();
    assert!(
        !sent.is_empty() && sent.iter().all(|to| *to == 2),
        "{sent:?}"
    );
    host.engine.set_routes(peer, &[]).expect("legal");
    host.fails_silently(qpn);
    // 4.096 µs × 2^14, four times, since the peer was to answer.
    let (took, least) = (host.now.since(BEGIN), Span::from_millis(268));
    assert!(took > least && took < least.times(3), "{took:?}");
}

/// HT-24, HT-37: one that has nothing in flight fails by its keep-alive, also if requests wait.
#[test]
fn a_queue_pair_without_a_route_is_not_kept_alive() {
    for posts in [false, true] {
        let mut host = host();
        let peer = IpAddr::from(PEERS[0]);
        host.engine.set_route(peer, route(1)).expect("legal");
        let qpn = host.queue_pair(peer);
        assert_eq!(host.sent(), [0; 0]);
        host.engine.set_routes(peer, &[]).expect("legal");
        if posts {
            host.post(qpn);
        }
        let config = EngineConfig::default();
        let probes = u64::from(config.keep_alive_probes);
        let expected = config.keep_alive + config.keep_alive_interval.times(probes);
        let took = host.fails_silently(qpn);
        assert!(took >= expected && took < expected.times(2), "{took:?}");
    }
}

/// HT-3, HT-37: a queue pair without a way that a receive was posted for is looked at once, and not
/// in each turn from then on.
#[test]
fn who_has_no_way_waits_in_no_list() {
    let (mut from, mut to) = (host(), host());
    let peer = IpAddr::from(PEERS[0]);
    from.engine.set_route(peer, route(1)).expect("legal");
    let [sends, receives] = [&mut from, &mut to].map(|host| {
        let made = host.engine.create_queue_pair(host.request);
        made.expect("room")
    });
    let cookies = [Cookie::new(1), Cookie::new(2)];
    let multipath = |[own, peer]: [Cookie; 2]| {
        let config = MultipathConfig::default();
        let cookies = Cookies { own, peer };
        Some(Multipath { config, cookies })
    };
    from.ready(sends, (peer, receives), multipath(cookies));
    let [own, other] = cookies;
    to.ready(receives, (OWN.into(), sends), multipath([other, own]));
    from.post(sends);
    let mut out = Vec::new();
    from.engine
        .transmit(&mut from.pool, from.now, &mut out, 256);
    for (port, frame) in out {
        let copy = to.pool.take_filled(frame.bytes()).expect("a frame");
        from.pool.give(frame);
        to.engine.receive_through(port, copy, &mut to.pool, to.now);
    }
    assert_eq!(to.sent(), [0; 0]);
    let receive = ReceiveRequest {
        wr_id: 9,
        lkey: to.lkey,
        addr: 0,
        len: 1024,
    };
    to.engine.post_receive(receives, receive).expect("room");
    assert_eq!(to.engine.to_acknowledge.len(PortSet::NONE), 1);
    assert_eq!(to.sent(), [0; 0]);
    let cq = to.request.receive_cq;
    let done = to.engine.poll_completion(cq).expect("it had come");
    assert_eq!((done.wr_id, done.status), (9, Status::Success));
    assert_eq!(to.engine.to_acknowledge.len(PortSet::NONE), 0);
    to.engine
        .set_route(IpAddr::from(OWN), route(2))
        .expect("legal");
    assert_eq!(to.sent(), [2]);
}

/// HT-3: a change of routes concerns the queue pairs of that peer alone, and a turn leads so many
/// of them as do not keep other packets waiting; the same when a port comes or goes.
#[test]
fn a_turn_leads_few_queue_pairs() {
    let mut host = host();
    let each = 3 * LEADS;
    let mut all = Vec::new();
    for peer in PEERS {
        let peer = IpAddr::from(peer);
        host.engine.set_route(peer, route(1)).expect("legal");
        all.push((0..each).map(|_| host.queue_pair(peer)).collect::<Vec<_>>());
    }
    let both = PortSet::first_of(2);
    let led = |host: &Host| {
        let is_led = |qpn: &&u32| {
            let queue_pair = host.engine.queue_pairs.get(**qpn).expect("it is there");
            queue_pair.ways() == both
        };
        [0, 1, 2].map(|peer: usize| all[peer].iter().filter(is_led).count())
    };
    assert_eq!(led(&host), [0; 3]);
    let routes = [0, 1].map(|port| (PortId::new(port), route(1)));
    let change = |host: &mut Host, peer: usize| {
        let peer = IpAddr::from(PEERS[peer]);
        host.engine.set_routes(peer, &routes).expect("legal");
    };
    change(&mut host, 1);
    assert_eq!(led(&host), [0, LEADS, 0]);
    // Nothing is left of this turn for others, and there is no need to wait for the next one.
    change(&mut host, 0);
    assert_eq!(led(&host), [0, LEADS, 0]);
    for turns in 2..=6 {
        assert!(host.engine.next_deadline() <= host.now);
        host.sent();
        let led = led(&host);
        assert_eq!(led.iter().sum::<usize>(), turns * LEADS);
        assert_eq!(led[2], 0);
    }
    // One that is gone meanwhile is passed over, and nobody is led twice.
    host.sent();
    host.engine.set_link_up(PortId::FIRST, false);
    host.engine.set_link_up(PortId::FIRST, true);
    for qpn in &all[2] {
        host.engine.destroy_queue_pair(*qpn).expect("it is there");
    }
    let mut turns = 0;
    while host.engine.followers.wait() {
        host.sent();
        turns += 1;
    }
    assert!(turns <= 9, "{turns}");
}
