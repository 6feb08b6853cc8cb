use super::*;
use crate::edge::command::{NewQueuePair, SessionCommand, SessionId};
use crate::edge::completion::Wake;
use crate::edge::region::Released;
use crate::edge::table::BURIALS;
use crate::memory::HeapMemory;
use crate::verbs::{
    Access, Asks, EngineError, FlowControl, PortId, QueuePairRequest, ReadyToReceive, ReadyToSend,
    Route, SendOpcode, SendRequest, Transition,
};
use common::units::Rate;
use common::wire::Mac;
use common::wire::pause::Control;
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{AckKind, Aeth, Bth, Flow, Headers, Opcode, Operation};
use common::xdp::frame::Region;
use common::xdp::sim::SimQueue;
use hostd_client::abi::descriptor::{ReceiveWork, SgeList, WORK_LEN};
use hostd_client::abi::doorbell::{Doorbell, DoorbellPage};
use hostd_client::abi::ring::{Producer, RingMemory};
use hostd_client::abi::types::{self, ObjectKind};
use std::net::{IpAddr, Ipv4Addr};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FRAMES: u32 = 1024;

/// A worker with nothing to do.
fn over(
    queue: &SimQueue,
    region: &Arc<Region>,
    flow_control: FlowControl,
) -> Worker<SimQueue, HeapMemory> {
    let (_, commands) = crossbeam_channel::bounded(1);
    let (notices, _) = crossbeam_channel::bounded(8);
    let (released_memory, _) = crossbeam_channel::bounded(1);
    let config = EngineConfig {
        flow_control,
        ..EngineConfig::default()
    };
    Worker::new(
        config,
        vec![NetPort::new(vec![queue.clone()]).with_mac(Mac(MAC))],
        FramePool::new(region.clone()),
        ControlHandle::new(commands, notices),
        released_memory,
    )
}

/// A worker with one message to send to a peer that never answers.
fn sending(queue: &SimQueue, region: &Arc<Region>) -> Worker<SimQueue, HeapMemory> {
    let mut worker = over(queue, region, FlowControl::default());
    let engine = &mut worker.engine;
    let domain = engine.create_domain().expect("room");
    let cq = engine.create_completion_queue().expect("room");
    let memory = HeapMemory::new(vec![0; 1 << 20]);
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
    let qpn = engine.create_queue_pair(request).expect("room");
    let peer = IpAddr::from(Ipv4Addr::new(10, 0, 0, 2));
    let route = Route {
        source: Ipv4Addr::new(10, 0, 0, 1).into(),
        source_mac: MAC,
        destination_mac: [2; 6],
        mtu: 3000,
        rate: Rate::from_gbps(1),
    };
    engine.set_route(peer, route).expect("legal");
    let receive = ReadyToReceive {
        destination: peer,
        destination_qpn: 7,
        rq_psn: 0,
        path_mtu: 1024,
        min_rnr_timer: 12,
        multipath: None,
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
        Transition::Init(Access::NONE),
        Transition::ReadyToReceive(receive),
        Transition::ReadyToSend(send),
    ] {
        engine.modify_queue_pair(qpn, &transition).expect("legal");
    }
    let message = SendRequest {
        wr_id: 1,
        opcode: SendOpcode::Send,
        lkey: keys.expect("room").lkey,
        addr: 0,
        len: 1 << 20,
        remote_addr: 0,
        rkey: 0,
        imm: 0,
        signaled: true,
        solicited: false,
        ..SendRequest::default()
    };
    engine.post_send(qpn, message).expect("room");
    worker
}

/// HT-45: packets that come faster than turns take them make the worker ask for a pause, with the
/// port's address, and end it when few are left; by default it asks for nothing.
#[test]
fn a_worker_that_is_behind_asks_for_a_pause() {
    for priorities in [0, 0b10_1000] {
        let region = Region::heap(FRAMES, 2048, 0);
        let queue = SimQueue::new(256);
        queue.set_places(600);
        let mut wire = FramePool::new(region.clone());
        let rules = FlowControl {
            asks: Asks {
                priorities,
                ..Asks::default()
            },
            ..FlowControl::default()
        };
        let mut worker = over(&queue, &region, rules);
        for _ in 0..600 {
            queue.deliver(wire.take_filled(&[0; 60]).expect("a frame"));
        }
        let mut asked = Vec::new();
        for turn in 0..5 {
            worker.turn(Time::from_nanos(1_000_000_000 + turn * 1_000));
            while let Some(frame) = queue.pick_up() {
                asked.push((turn, frame.bytes().to_vec()));
                wire.give(frame);
            }
        }
        let pfc = |time| {
            let times = std::array::from_fn(|n| (priorities & 1 << n != 0).then_some(time));
            Control::Pfc(times).emit(Mac(MAC)).to_vec()
        };
        // 344 of 600 are left after one turn, and 88 after two.
        let expected = [(0, pfc(u16::MAX)), (1, pfc(0))];
        assert_eq!(asked, if priorities == 0 { &[][..] } else { &expected });
        let statistics = worker.engine.statistics();
        let counters = statistics.pauses().asked;
        let count = u64::from(priorities != 0);
        assert_eq!((counters.pausing[3], counters.resuming[5]), (count, count));
        assert_eq!((counters.pausing[4], counters.given_up), (0, 0));
    }
}

/// HT-45: a frame in the ring of the port stops what is not with the device yet, the worker may
/// sleep meanwhile, and is awake when the time is over.
#[test]
fn a_paused_worker_sleeps_until_the_pause_ends() {
    let region = Region::heap(FRAMES, 2048, 0);
    let queue = SimQueue::new(256);
    let mut wire = FramePool::new(region.clone());
    let mut worker = sending(&queue, &region);
    let start = Time::from_nanos(1_000_000_000);
    let turn = worker.turn(start);
    assert!(turn.work > 0 && queue.in_flight() > 0);
    let sent = queue.in_flight();

    let mut times = [None; 8];
    times[3] = Some(20_000);
    let pause = Control::Pfc(times).emit(Mac([2; 6]));
    queue.deliver(wire.take_filled(&pause).expect("a frame"));
    let now = start + Span::from_millis(1);
    let turn = worker.turn(now);
    assert_eq!(
        queue.in_flight(),
        sent,
        "more data leaves, or some was called back"
    );
    std::iter::from_fn(|| queue.pick_up()).for_each(|frame| wire.give(frame));

    // 20 000 quanta of 512 ns.
    let end = now + Span::from_nanos(20_000 * 512);
    let turn = worker.turn(turn.deadline.min(now + COLLECT));
    assert_eq!((turn.work, turn.again, turn.deadline), (0, false, end));
    worker.turn(Time::from_nanos(end.nanos() - 1));
    assert_eq!(queue.in_flight(), 0);
    let turn = worker.turn(end);
    assert!(turn.work > 0 && queue.in_flight() > 0);
    let statistics = worker.engine.statistics();
    assert_eq!(statistics.pauses().paused[3], end.since(now));
    assert_eq!(statistics.rx_packets, statistics.settled());

    std::iter::from_fn(|| queue.pick_up()).for_each(|frame| wire.give(frame));
    drop(worker);
    drop(wire);
    assert_eq!(FramePool::new(region).free_frames(), FRAMES as usize);
}

/// HT-43: a worker that was away for longer than any time-out finds an answer behind a thousand
/// other packets in its ring. It takes all of them before it looks at its clocks, and sends nothing
/// again. When the ring never gets empty, the clocks go on.
#[test]
fn a_late_worker_does_not_blame_its_peers() {
    let region = Region::heap(4 * FRAMES, 2048, 0);
    let queue = SimQueue::new(256);
    let mut wire = FramePool::new(region.clone());
    let mut worker = sending(&queue, &region);
    let mut now = Time::from_nanos(1_000_000_000);
    while worker.turn(now).work > 0 {
        std::iter::from_fn(|| queue.pick_up()).for_each(|frame| wire.give(frame));
        now += Span::from_micros(10);
    }
    let qpn = worker.engine.queue_pairs().next().expect("there is one");
    let counted = |worker: &Worker<SimQueue, HeapMemory>| {
        let statistics = worker.engine.queue_pair_statistics(qpn);
        statistics.expect("exists").counters
    };
    assert!(counted(&worker).tx_packets > 100);
    let nothing = [0x55; 64];
    let newest = u32::try_from(counted(&worker).tx_packets).expect("few") - 1;
    for _ in 0..1_000 {
        queue.deliver(wire.take_filled(&nothing).expect("a frame"));
    }
    queue.deliver(
        wire.take_filled(&acknowledgement(qpn, newest))
            .expect("a frame"),
    );
    now += Span::from_secs(2);
    while worker.turn(now).again {}
    let counters = counted(&worker);
    assert_eq!(counters.rx_acks, 1);
    assert_eq!((counters.timeouts, counters.retransmits), (0, 0));

    // Then nobody answers, and what comes is nothing of worth.
    std::iter::from_fn(|| queue.pick_up()).for_each(|frame| wire.give(frame));
    let mut turns = 0;
    while counted(&worker).timeouts == 0 {
        for _ in 0..BATCH {
            queue.deliver(wire.take_filled(&nothing).expect("a frame"));
        }
        now += Span::from_secs(1);
        worker.turn(now);
        std::iter::from_fn(|| queue.pick_up()).for_each(|frame| wire.give(frame));
        turns += 1;
        assert!(turns <= CATCH_UP + 1, "the clocks stand still");
    }
    assert!(turns > 1);
}

/// An ACK for queue pair `qpn` up to packet `psn`.
fn acknowledgement(qpn: u32, psn: u32) -> Vec<u8> {
    let operation = Opcode::Rc(Operation::Acknowledge);
    let mut headers = Headers::new(Bth::new(operation, qpn, psn));
    headers.aeth = Some(Aeth {
        kind: AckKind::Ack { credits: 31 },
        msn: 0,
    });
    let own = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
    let peer = IpAddr::from(Ipv4Addr::new(10, 0, 0, 2));
    let flow = Flow {
        src_mac: Mac([2; 6]),
        dst_mac: Mac(MAC),
        addresses: Addresses::new(peer, own).expect("one version"),
        src_port: 0xc000,
        flow_label: 0,
        traffic_class: 0,
        ttl: 64,
    };
    let mut bytes = vec![0; layout(flow.addresses, &headers, 0).len];
    emit(&mut bytes, &flow, &headers, 0);
    seal(&mut bytes).expect("a frame");
    bytes
}

/// HT-45: pauses count by the speed that the link has when they begin, and not by that of routes.
#[test]
fn pauses_follow_the_speed_of_the_link() {
    let region = Region::heap(FRAMES, 2048, 0);
    let queue = SimQueue::new(256);
    let mut wire = FramePool::new(region.clone());
    let mut worker = sending(&queue, &region);
    let mut now = Time::from_nanos(1_000_000_000);
    worker.turn(now);
    let mut times = [None; 8];
    times[3] = Some(20_000);
    let pause = Control::Pfc(times).emit(Mac([2; 6]));
    let mut total = 0;
    for (gbps, nanos) in [(1, 512_000), (10, 51_200), (100, 5_120), (1, 512_000)] {
        let speeds = Speeds {
            pacing: Rate::from_gbps(400),
            link: Rate::from_gbps(gbps),
        };
        worker.set_speeds(PortId::FIRST, speeds);
        assert_eq!(worker.pacing(), speeds.pacing);
        queue.deliver(wire.take_filled(&pause).expect("a frame"));
        worker.turn(now);
        // 20 000 quanta of 512 bits.
        let lasts = nanos * 20;
        now += Span::from_nanos(lasts);
        worker.turn(now);
        total += lasts;
        let paused = worker.engine.statistics().pauses().paused[3];
        assert_eq!(paused, Span::from_nanos(total), "{gbps}");
        std::iter::from_fn(|| queue.pick_up()).for_each(|frame| wire.give(frame));
    }
}

/// A request for a completion queue, and its answer.
fn completion_queue() -> (
    SessionCommand<HeapMemory>,
    oneshot::Receiver<Result<u32, EngineError>>,
) {
    let (answer, created) = oneshot::channel();
    let ring = RingMemory::private(8).expect("memory").producer();
    let wake = Wake::Flag(Arc::default());
    let create = SessionCommand::CreateCompletionQueue(ring, wake, answer);
    (create, created)
}

/// HT-3: what a session held is released in small parts, so that no turn takes long, and never
/// faster than the thread that unmaps takes it; the end is told when nothing is left.
#[test]
fn the_dead_are_buried_bit_by_bit() {
    const REGIONS: usize = 5_000;
    const UNMAPPER: usize = 1_000;
    let region = Region::heap(FRAMES, 2048, 0);
    let (tell, commands) = crossbeam_channel::bounded(2 * REGIONS);
    let (notices, _notices) = crossbeam_channel::bounded(8);
    let (released_memory, unmapper) = crossbeam_channel::bounded(UNMAPPER);
    let mut worker: Worker<SimQueue, HeapMemory> = Worker::new(
        EngineConfig::default(),
        vec![NetPort::new(vec![SimQueue::new(256)])],
        FramePool::new(region),
        ControlHandle::new(commands, notices),
        released_memory,
    );
    let _doorbell = session(1, &tell);
    let session = SessionId(1);
    let mut keys = Vec::new();
    for _ in 0..REGIONS {
        let (answer, registered) = oneshot::channel();
        let memory = HeapMemory::new(vec![0; 8]);
        let register = SessionCommand::Register(memory, 0, types::Access::LOCAL_WRITE, answer);
        tell.send(Command::Session(session, register))
            .expect("room");
        keys.push(registered);
    }
    let mut queues = Vec::new();
    for _ in 0..2 {
        let (create, created) = completion_queue();
        tell.send(Command::Session(session, create)).expect("room");
        queues.push(created);
    }
    let mut now = Time::from_nanos(1_000_000_000);
    worker.turn(now);
    let (answer, mut destroyed) = oneshot::channel();
    let queue = queues[0].try_recv().expect("answered").expect("created");
    let destroy = SessionCommand::Destroy(ObjectKind::CompletionQueue, queue, answer);
    tell.send(Command::Session(session, destroy)).expect("room");
    worker.turn(now);
    assert!(destroyed.try_recv().is_ok_and(|it| it.is_ok()));
    assert!(matches!(unmapper.try_recv(), Ok(Released::Ring(_))));
    let (lkey, _) = keys[0].try_recv().expect("answered").expect("registered");
    let (answer, mut destroyed) = oneshot::channel();
    let destroy = SessionCommand::Destroy(ObjectKind::Region, lkey, answer);
    tell.send(Command::Session(session, destroy)).expect("room");
    worker.turn(now);
    assert!(destroyed.try_recv().is_ok_and(|it| it.is_ok()));

    let (buried, mut end) = oneshot::channel();
    tell.send(Command::Close(session, buried)).expect("room");
    let mut left = REGIONS - 1;
    let mut given = unmapper.try_iter().count();
    assert_eq!(given, 1);
    while left > 0 {
        now += Span::from_millis(1);
        let turn = worker.turn(now);
        let sessions = worker.table.report(&worker.engine);
        let now_left = sessions.first().map_or(0, |held| held.regions.len());
        assert!(left - now_left <= BURIALS, "{} at once", left - now_left);
        if now_left == left {
            // It waits, and does not spin.
            assert_eq!(unmapper.len(), UNMAPPER);
            assert!(turn.work == 0 && turn.deadline <= now + COLLECT);
            given += unmapper.try_iter().count();
        }
        left = now_left;
    }
    assert!(end.try_recv().is_ok(), "told at the end");
    given += unmapper.try_iter().count();
    // Those of the other queue and of the doorbells.
    let rings = 2;
    assert_eq!(given, REGIONS + rings, "nothing was unmapped here");
    assert!(worker.table.report(&worker.engine).is_empty());
}

/// A worker without packets, and where its commands go.
fn idle() -> (
    Worker<SimQueue, HeapMemory>,
    crossbeam_channel::Sender<Command<HeapMemory>>,
) {
    let (tell, commands) = crossbeam_channel::bounded(64);
    let (notices, _) = crossbeam_channel::bounded(8);
    let (released_memory, _) = crossbeam_channel::bounded(1);
    let worker = Worker::new(
        EngineConfig::default(),
        vec![NetPort::new(vec![SimQueue::new(256)])],
        FramePool::new(Region::heap(FRAMES, 2048, 0)),
        ControlHandle::new(commands, notices),
        released_memory,
    );
    (worker, tell)
}

/// A session, and its end of the doorbells.
fn session(number: u32, tell: &crossbeam_channel::Sender<Command<HeapMemory>>) -> Doorbell {
    let (doorbell, doorbells) = DoorbellPage::private().expect("a page");
    let open = Command::Open {
        session: SessionId(number),
        doorbells,
        bell: None,
        answer: oneshot::channel().0,
    };
    tell.send(open).expect("room");
    doorbell
}

/// A queue pair of a session, with its ring of receives.
fn receiving(
    number: u32,
    slot: u32,
    worker: &mut Worker<SimQueue, HeapMemory>,
    tell: &crossbeam_channel::Sender<Command<HeapMemory>>,
) -> Producer<WORK_LEN> {
    let now = Time::from_nanos(1_000_000_000);
    let ask = |command| {
        let sent = tell.send(Command::Session(SessionId(number), command));
        sent.expect("room");
    };
    let (create, mut created) = completion_queue();
    ask(create);
    worker.turn(now);
    let queue = created.try_recv().expect("answered").expect("created");
    let [send, receive] = [(); 2].map(|()| RingMemory::<WORK_LEN>::private(64).expect("memory"));
    let new = NewQueuePair {
        send_cq: queue,
        receive_cq: queue,
        send: send.consumer(),
        receive: receive.consumer(),
        send_entries: 64,
        receive_entries: 64,
        shared: 0,
        slot,
    };
    let (answer, mut created) = oneshot::channel();
    ask(SessionCommand::CreateQueuePair(Box::new(new), answer));
    worker.turn(now);
    created.try_recv().expect("answered").expect("created");
    receive.producer()
}

fn fill(ring: &mut Producer<WORK_LEN>) {
    let receive = ReceiveWork {
        wr_id: 1,
        buffers: SgeList::default(),
    };
    while ring.push(&receive.to_bytes()).expect("sound") {}
    ring.publish();
}

/// HT-3: a session that rings without end for nothing does not keep the worker awake, and is looked
/// at now and then; what it posts at last is taken.
#[test]
fn bells_for_nothing_fall_silent() {
    let (mut worker, tell) = idle();
    let doorbell = session(1, &tell);
    let mut ring = receiving(1, 7, &mut worker, &tell);
    let mut now = Time::from_nanos(1_000_000_000);
    let mut awake = 0;
    let mut deadline = Time::NEVER;
    for step in 0..10_000_u64 {
        now += Span::from_micros(1);
        // One that names a queue pair without requests, and one that names nothing.
        doorbell.ring(if step % 2 == 0 { 7 } else { 900 });
        if deadline <= now || !worker.may_sleep() {
            let turn = worker.turn(now);
            assert_eq!(turn.work, 0);
            deadline = turn.deadline;
            awake += 1;
        }
        worker.wake_up(std::iter::empty());
    }
    assert!((32..64).contains(&awake), "{awake} turns of 10,000");
    assert!(worker.table.statistics.silences > 3);
    fill(&mut ring);
    doorbell.ring(7);
    assert!(worker.may_sleep(), "nobody listens");
    assert!(deadline.since(now) <= Span::from_millis(20));
    worker.turn(deadline);
    assert_eq!(ring.room(), Ok(64), "taken");
    doorbell.ring(7);
    assert!(!worker.may_sleep(), "it is listened to again");
}

/// HT-3: however much one session has in its rings, a turn takes no more than some, and another
/// session has its turn soon.
#[test]
fn a_turn_is_shared_among_sessions() {
    let (mut worker, tell) = idle();
    let [greedy, modest] = [1, 2].map(|number| session(number, &tell));
    let mut many: Vec<_> = (0..40)
        .map(|slot| receiving(1, slot, &mut worker, &tell))
        .collect();
    let mut one = receiving(2, 0, &mut worker, &tell);
    for (ring, slot) in many.iter_mut().zip(0..) {
        fill(ring);
        greedy.ring(slot);
    }
    fill(&mut one);
    modest.ring(0);
    let now = Time::from_nanos(1_000_000_000);
    let mut turns = 0;
    while worker.table.statistics.receives < 41 * 64 {
        let before = worker.table.statistics.receives;
        assert!(worker.turn(now).work > 0);
        let taken = worker.table.statistics.receives - before;
        turns += 1;
        assert!((1..=640).contains(&taken), "{taken} in a turn");
        assert!(turns < 4 || one.room() == Ok(64), "the other waits");
    }
    assert!(turns > 4, "{turns}");
    assert!(many.iter_mut().all(|ring| ring.room() == Ok(64)));
}
