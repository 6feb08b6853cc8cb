//! PFC and PAUSE frames of the switch, obeyed by the engine: what waits, what goes on, and that
//! nothing is taken for lost because of them.

use crate::network::{Impairment, MEMORY, Network};
use common::time::{Span, Time};
use common::wire::Mac;
use common::wire::pause::Control;
use hostd::stats::QueuePairCounters;
use hostd::verbs::FlowControl;
use hostd::verbs::{
    ConnectionParameters, DropReason, EngineConfig, Event, MultipathConfig, SendOpcode, Status,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Priorities of data and of acknowledgements by default: AF31 and EF.
const DATA: usize = 3;
const ACKNOWLEDGEMENTS: usize = 5;

/// The time of one quantum at the 10 Gb/s of the network, 51.2 ns, rounded up.
const QUANTUM: Span = Span::from_nanos(52);

fn network() -> Network {
    Network::new(1, [EngineConfig::default(), EngineConfig::default()])
}

fn time_of(quanta: u16) -> Span {
    Span::from_nanos((u64::from(quanta) * 512).div_ceil(10))
}

fn pfc(priority: usize, quanta: u16) -> Control {
    let mut times = [None; 8];
    times[priority] = Some(quanta);
    Control::Pfc(times)
}

fn ask(network: &mut Network, host: usize, control: &Control) {
    network.inject(host, &control.emit(Mac([2, 0, 0, 0, 0, 2])));
}

/// Keeps a priority of host 0 paused for `span` from now on, at least.
fn pause_for(network: &mut Network, priority: usize, span: Span) {
    let end = network.now + span;
    while network.now < end {
        ask(network, 0, &pfc(priority, u16::MAX));
        network.pass(time_of(u16::MAX) - Span::from_micros(100));
    }
}

/// Posts a message of `len` bytes from a host to the other.
fn post(network: &mut Network, from: usize, qpns: [u32; 2], wr_id: u64, len: u32) {
    network.hosts[1 - from].receive_into(qpns[1 - from], wr_id, 0, len);
    let request = network.hosts[from].send(wr_id, 0, len);
    network.hosts[from]
        .engine
        .post_send(qpns[from], request)
        .expect("room");
}

/// Frames with this priority that left a host since the last look.
fn left(network: &mut Network, host: u8, priority: usize) -> usize {
    let tap = network.tap.replace(Vec::new()).unwrap_or_default();
    tap.iter()
        .filter(|frame| frame[29] == host + 1 && usize::from(frame[15] >> 5) == priority)
        .count()
}

fn counters(network: &Network, host: usize, qpn: u32) -> QueuePairCounters {
    let statistics = network.hosts[host].engine.queue_pair_statistics(qpn);
    statistics.expect("exists").counters
}

/// Of every packet it is known what became of it, flow control included.
fn books_balance(network: &Network) {
    for host in &network.hosts {
        let statistics = host.engine.statistics();
        let known = statistics.settled() + host.engine.held_packets() as u64;
        assert_eq!(statistics.rx_packets, known, "{statistics:#?}");
    }
}

fn all_good(network: &Network, host: usize, count: usize) -> bool {
    let completions = &network.hosts[host].completions;
    completions.len() == count
        && completions
            .iter()
            .all(|completion| completion.status == Status::Success)
}

/// HT-45: paused data stays, acknowledgements of the same host go on, and when the time is over
/// data goes on within a quantum.
#[test]
fn a_paused_priority_waits_and_others_do_not() {
    let mut network = network();
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.turn();
    network.tap = Some(Vec::new());
    ask(&mut network, 0, &pfc(DATA, 40_000));
    let begin = network.now;
    post(&mut network, 0, qpns, 1, 100_000);
    post(&mut network, 1, qpns, 2, 100_000);
    let end = begin + time_of(40_000);
    network.run(Span::from_nanos(end.since(begin).nanos() - 1), |network| {
        assert_eq!(left(network, 0, DATA), 0, "at {:?}", network.now);
        false
    });
    // The other direction is done, so its acknowledgements left host 0.
    assert!(all_good(&network, 1, 1) && all_good(&network, 0, 1));
    assert!(counters(&network, 0, qpns[0]).tx_acks > 0);
    assert_eq!(counters(&network, 0, qpns[0]).tx_packets, 0);

    let resumed = network.run(Span::from_millis(1), |network| left(network, 0, DATA) > 0);
    assert!(resumed && network.now >= end && network.now <= end + QUANTUM);
    assert!(network.run(Span::from_millis(50), |network| all_good(network, 0, 2)));
    let statistics = network.hosts[0].engine.statistics();
    assert_eq!(statistics.pauses().paused[DATA], time_of(40_000));
    assert_eq!(statistics.pauses().pfc_pausing[DATA], 1);
    assert_eq!(counters(&network, 0, qpns[0]).retransmits, 0);
    books_balance(&network);
    network.close();
}

/// HT-45: time zero resumes at once; until then the engine asks for no turn before the pause ends.
#[test]
fn a_resuming_frame_ends_the_pause() {
    let mut network = network();
    let qpns = network.connected(None);
    // More receives than messages: nobody waits for credits.
    network.hosts[1].receive_into(qpns[1], 0, 0, 3000);
    network.turn();
    network.tap = Some(Vec::new());
    for pause in [pfc(DATA, u16::MAX), Control::Pause(u16::MAX)] {
        ask(&mut network, 0, &pause);
        post(&mut network, 0, qpns, 1, 3000);
        let next = network.turn();
        assert_eq!(next, network.now + time_of(u16::MAX));
        network.now += Span::from_micros(10);
        let resume = match pause {
            Control::Pause(_) => Control::Pause(0),
            Control::Pfc(_) => pfc(DATA, 0),
        };
        ask(&mut network, 0, &resume);
        network.turn();
        assert_eq!(left(&mut network, 0, DATA), 3);
        network.pass(Span::from_millis(1));
    }
    let paused = network.hosts[0].engine.statistics().pauses().paused;
    assert_eq!(paused[DATA], Span::from_micros(20));
    assert_eq!(paused[0], Span::from_micros(10), "by PAUSE alone");
    books_balance(&network);
    network.close();
}

/// HT-45: acknowledgements wait as well if it is their priority; data does not, and what came is
/// delivered.
#[test]
fn acknowledgements_have_a_priority_too() {
    let mut network = network();
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.turn();
    network.tap = Some(Vec::new());
    ask(&mut network, 0, &pfc(ACKNOWLEDGEMENTS, 10_000));
    // Host 1 finds no receive: it is posted late, in the pause.
    let request = network.hosts[1].send(2, 0, 5_000);
    network.hosts[1]
        .engine
        .post_send(qpns[1], request)
        .expect("room");
    post(&mut network, 0, qpns, 1, 50_000);
    network.pass(Span::from_micros(100));
    network.hosts[0].receive_into(qpns[0], 2, 0, 5_000);
    network.pass(Span::from_micros(300));
    assert!(all_good(&network, 0, 2), "sent one and received one");
    assert_eq!(network.hosts[1].completions.len(), 1, "not acknowledged");
    assert_eq!(left(&mut network, 0, ACKNOWLEDGEMENTS), 0);
    network.pass(Span::from_micros(200));
    assert!(all_good(&network, 1, 2));
    assert!(left(&mut network, 0, ACKNOWLEDGEMENTS) > 0);
    books_balance(&network);
    network.close();
}

/// HT-45: an acknowledgement that falls due in a pause wakes nobody before its end.
#[test]
fn late_acknowledgements_wake_nobody() {
    let mut network = network();
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.turn();
    // The first packet of each path asks for an answer.
    post(&mut network, 1, qpns, 1, 50_000);
    network.pass(Span::from_millis(5));
    (network.tap, network.impairment.dead) = (Some(Vec::new()), [false, true]);
    post(&mut network, 1, qpns, 2, 5_000);
    network.turn();
    let data = network.tap.take().expect("was put there");
    network.tap = Some(Vec::new());
    ask(&mut network, 0, &pfc(ACKNOWLEDGEMENTS, 10_000));
    let end = network.now + time_of(10_000);
    data[..2].iter().for_each(|frame| network.inject(0, frame));
    // Nobody asked for an answer, so one is due 100 µs later.
    network.pass(Span::from_micros(150));
    assert_eq!(network.turn(), end);
    assert_eq!(left(&mut network, 0, ACKNOWLEDGEMENTS), 0);
    network.now = end;
    network.turn();
    assert_eq!(left(&mut network, 0, ACKNOWLEDGEMENTS), 1);
    books_balance(&network);
    network.close();
}

/// HT-45: a connection request that may not leave uses up none of its retries.
#[test]
fn connection_messages_wait_for_their_priority() {
    let hasty = EngineConfig {
        cm_timeout: Span::from_millis(1),
        cm_retries: 2,
        ..EngineConfig::default()
    };
    let mut network = Network::new(1, [hasty.clone(), hasty]);
    let qpn = network.hosts[0].queue_pair();
    network.hosts[1].engine.listen(7).expect("free");
    let route = network.hosts[0].route();
    let peer = network.hosts[1].address;
    network.hosts[0]
        .engine
        .set_route(peer, route)
        .expect("legal");
    let parameters = ConnectionParameters::default();
    network.hosts[0]
        .engine
        .connect(qpn, peer, 7, &parameters)
        .expect("legal");
    network.tap = Some(Vec::new());
    pause_for(&mut network, ACKNOWLEDGEMENTS, Span::from_millis(30));
    assert_eq!(left(&mut network, 0, ACKNOWLEDGEMENTS), 0);
    assert!(network.hosts[0].events.is_empty());
    let asked = network.run(Span::from_millis(5), |network| {
        let events = &network.hosts[1].events;
        events
            .iter()
            .any(|event| matches!(event, Event::ConnectRequest { .. }))
    });
    assert!(asked);
    books_balance(&network);
    network.close();
}

/// HT-45: a pause of a second is not taken for a dead peer, neither by who has nothing under way
/// nor by who lost it all; what was lost is sent again after the pause.
#[test]
fn time_outs_do_not_count_paused_time() {
    for multipath in [Some(MultipathConfig::default()), None] {
        for lost in [false, true] {
            let mut network = network();
            let qpns = network.connected(multipath);
            network.turn();
            network.impairment.dead = [lost, false];
            post(
                &mut network,
                0,
                qpns,
                1,
                u32::try_from(MEMORY).expect("small") / 2,
            );
            network.turn();
            let before = counters(&network, 0, qpns[0]).tx_packets;
            assert!(before > 0, "some are under way");
            network.impairment = Impairment::default();
            // Time-outs double up to 17 ms here, and eight of them end the queue pair.
            pause_for(&mut network, DATA, Span::from_secs(1));
            let paused = counters(&network, 0, qpns[0]);
            assert_eq!((paused.tx_packets, paused.timeouts), (before, 0));
            // What was left of the time-out when the pause began is left now.
            network.pass(Span::from_millis(10));
            assert_eq!(counters(&network, 0, qpns[0]).timeouts, 0);
            let done = network.run(Span::from_secs(2), |network| all_good(network, 0, 1));
            let after = counters(&network, 0, qpns[0]);
            assert!(done && all_good(&network, 1, 1), "{after:#?}");
            assert_eq!(after.retransmits > 0, lost, "{after:#?}");
            books_balance(&network);
            network.close();
        }
    }
}

/// HT-43, HT-45: who waits for the answers to a READ does not count the time either in which
/// nothing could be asked.
#[test]
fn questions_do_not_count_paused_time() {
    for multipath in [Some(MultipathConfig::default()), None] {
        let mut network = network();
        let qpns = network.connected(multipath);
        network.turn();
        let mut read = network.hosts[0].send(1, 0, 5_000);
        read.opcode = SendOpcode::RdmaRead;
        read.rkey = network.hosts[1].keys.rkey;
        let engine = &mut network.hosts[0].engine;
        engine.post_send(qpns[0], read).expect("room");
        network.impairment.dead[1] = true;
        network.pass(Span::from_micros(100));
        network.impairment.dead[1] = false;
        // 134 ms of silence end the queue pair.
        pause_for(&mut network, DATA, Span::from_secs(1));
        assert!(network.run(Span::from_millis(100), |network| all_good(network, 0, 1)));
        books_balance(&network);
        network.close();
    }
}

/// HT-43, HT-45: the clocks stand still for as long as the pause took and no longer: not for what
/// left after it, and not for what is still waited for when an acknowledgement comes in the middle
/// of it.
#[test]
fn time_outs_come_in_time_after_a_pause() {
    for multipath in [Some(MultipathConfig::default()), None] {
        let mut network = network();
        let qpns = network.connected(multipath);
        network.turn();
        pause_for(&mut network, DATA, Span::from_secs(1));
        network.pass(time_of(u16::MAX));
        network.impairment.dead = [true, false];
        post(&mut network, 0, qpns, 1, 100);
        network.pass(Span::from_millis(20));
        assert_eq!(counters(&network, 0, qpns[0]).timeouts, 1);
        network.close();

        let mut network = self::network();
        let qpns = network.connected(multipath);
        network.turn();
        network.impairment.delay = Span::from_millis(200);
        post(&mut network, 0, qpns, 1, 100);
        network.turn();
        network.impairment.dead = [true, false];
        post(&mut network, 0, qpns, 2, 100);
        network.turn();
        network.impairment.dead = [false, false];
        pause_for(&mut network, DATA, Span::from_secs(1));
        assert_eq!(network.hosts[0].completions.len(), 1);
        assert_eq!(counters(&network, 0, qpns[0]).tx_packets, 2);
        network.pass(Span::from_millis(30));
        assert!(counters(&network, 0, qpns[0]).timeouts > 0);
        network.close();
    }
}

/// HT-38, HT-45: PAUSE stops classes of several priorities at the same time; the clocks stand still
/// for that time once, not once for each priority.
#[test]
fn a_pause_of_several_classes_counts_once() {
    let config = EngineConfig {
        low_class: 8 << 2 | 0b10,
        ..EngineConfig::default()
    };
    let mut network = Network::new(1, [config.clone(), config]);
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.turn();
    network.impairment.dead = [true, false];
    post(&mut network, 0, qpns, 1, 100);
    network.turn();
    let end = network.now + Span::from_millis(200);
    while network.now < end {
        ask(&mut network, 0, &Control::Pause(u16::MAX));
        network.pass(time_of(u16::MAX) - Span::from_micros(100));
    }
    assert_eq!(counters(&network, 0, qpns[0]).timeouts, 0);
    network.pass(Span::from_millis(30));
    assert!(counters(&network, 0, qpns[0]).timeouts > 0);
    network.close();
}

/// HT-45: a transfer that is paused again and again, for longer than any time-out at times,
/// completes without a single retransmission.
#[test]
fn repeated_pauses_cost_time_and_nothing_else() {
    for seed in 1..=6 {
        for multipath in [Some(MultipathConfig::default()), None] {
            let mut network =
                Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
            let mut random = Pcg64Mcg::new(u128::from(seed));
            let bytes = network.fill(0);
            let qpns = network.connected(multipath);
            let messages = 6;
            for wr_id in 0..messages {
                post(
                    &mut network,
                    0,
                    qpns,
                    wr_id,
                    u32::try_from(MEMORY).expect("small"),
                );
            }
            let limit = network.now + Span::from_secs(20);
            while !all_good(&network, 0, 6) {
                assert!(network.now < limit, "seed {seed}: not done");
                let draw = random.next_u64();
                let wait = Span::from_micros(draw >> 8 & 0x3ff);
                match draw & 7 {
                    // Long enough for several time-outs.
                    0 => pause_for(&mut network, DATA, wait.times(100)),
                    1 => ask(&mut network, 0, &pfc(DATA, 0)),
                    2..5 => ask(&mut network, 0, &pfc(DATA, (draw >> 32 & 0xffff) as u16)),
                    // Where acknowledgements come from: shorter than the wait for a probe.
                    5 => ask(
                        &mut network,
                        1,
                        &Control::Pause((draw >> 32 & 0xfff) as u16),
                    ),
                    _ => ask(
                        &mut network,
                        0,
                        &Control::Pause((draw >> 32 & 0xfff) as u16),
                    ),
                }
                network.pass(wait + Span::from_micros(500));
            }
            let sent = counters(&network, 0, qpns[0]);
            let repeated = (sent.retransmits, sent.timeouts, sent.tail_probes);
            assert_eq!(repeated, (0, 0, 0), "seed {seed}: {sent:#?}");
            let paused = network.hosts[0].engine.statistics().pauses().paused;
            assert!(paused[DATA] > Span::from_millis(20), "{paused:?}");
            assert!(network.hosts[1].memory.to_vec() == bytes, "seed {seed}");
            books_balance(&network);
            network.close();
        }
    }
}

/// HT-45: what is not understood is counted as such, and what is not to be obeyed changes nothing.
#[test]
fn frames_that_do_not_count_pause_nothing() {
    let deaf = EngineConfig {
        flow_control: FlowControl {
            pfc: !(1 << DATA),
            pause: false,
            ..FlowControl::default()
        },
        ..EngineConfig::default()
    };
    let mut network = Network::new(1, [deaf, EngineConfig::default()]);
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.turn();
    let good = pfc(DATA, u16::MAX).emit(Mac([2; 6]));
    for (place, value) in [(0, 3), (15, 9), (16, 1)] {
        let mut frame = good;
        frame[place] = value;
        network.inject(1, &frame);
    }
    network.inject(1, &good[..30]);
    ask(&mut network, 0, &pfc(DATA, u16::MAX));
    ask(&mut network, 0, &Control::Pause(u16::MAX));
    let begin = network.now;
    post(&mut network, 0, qpns, 1, 10_000);
    post(&mut network, 1, qpns, 2, 10_000);
    let done = network.run(Span::from_micros(500), |network| {
        all_good(network, 0, 2) && all_good(network, 1, 2)
    });
    assert!(done && network.now < begin + time_of(u16::MAX));
    let [deaf, other] = [0, 1].map(|n: usize| network.hosts[n].engine.statistics());
    assert_eq!(
        (deaf.pauses().frames(), deaf.pauses().paused),
        (2, [Span::ZERO; 8])
    );
    assert_eq!(other.pauses().malformed, [1, 1, 1, 1]);
    assert_eq!(other.drops.get(DropReason::MalformedControl), 4);
    assert_eq!((other.pauses().frames(), other.drops.total()), (0, 4));
    books_balance(&network);
    network.close();
}

/// HT-45: a pause that comes before any route is of the speed that was configured.
#[test]
fn pauses_before_the_first_route_count() {
    let config = EngineConfig {
        flow_control: FlowControl {
            speed: common::units::Rate::from_gbps(10),
            ..FlowControl::default()
        },
        ..EngineConfig::default()
    };
    let mut network = Network::new(1, [config.clone(), config]);
    let begin: Time = network.now;
    ask(&mut network, 0, &pfc(DATA, 10_000));
    let qpns = network.connected(None);
    network.tap = Some(Vec::new());
    post(&mut network, 0, qpns, 1, 1000);
    let sent = network.run(Span::from_millis(1), |network| left(network, 0, DATA) > 0);
    assert!(sent);
    assert_eq!(network.now, begin + time_of(10_000));
    network.close();
}
