//! RTTCC: probes of the round trip, and what answers to them may do.

use crate::forge::drops;
use crate::network::Network;
use common::time::{Span, Time};
use common::wire::roce::frame::seal;
use hostd::stats::QueuePairCounters;
use hostd::verbs::{
    Congestion, DropReason, EngineConfig, MultipathConfig, SendOpcode, SendRequest, Status,
};

/// Where the extension header, and block 0 in it, begin over IPv4.
const EXTENSION: usize = 14 + 20 + 8 + 12 + 8;
const BLOCK: usize = EXTENSION + 8;

/// Kinds of block 0.
const PROBE: u8 = 3;
const ANSWER: u8 = 4;

const LEN: u32 = 65_536;

fn network(seed: u64) -> Network {
    let config = EngineConfig {
        congestion: Congestion::Rttcc,
        ..EngineConfig::default()
    };
    Network::new(seed, [config.clone(), config])
}

fn counters(network: &Network, qpn: u32) -> QueuePairCounters {
    let statistics = network.hosts[0].engine.queue_pair_statistics(qpn);
    statistics.expect("exists").counters
}

fn is_of_kind(frame: &[u8], kind: u8) -> bool {
    frame.len() > BLOCK && frame[EXTENSION + 1] == 1 && frame[BLOCK] == kind
}

fn write(network: &mut Network, qpn: u32, count: u64) {
    let rkey = network.hosts[1].keys.rkey;
    for number in 0..count {
        let place = number % 16 * u64::from(LEN);
        let write = SendRequest {
            opcode: SendOpcode::RdmaWrite,
            rkey,
            remote_addr: place,
            ..network.hosts[0].send(number, place, LEN)
        };
        let engine = &mut network.hosts[0].engine;
        engine.post_send(qpn, write).expect("room");
    }
}

/// Waits for so many completions.
fn finish(network: &mut Network, count: usize) {
    let all = |network: &mut Network| network.hosts[0].completions.len() == count;
    assert!(network.run(Span::from_secs(2), all));
    let ends = &network.hosts[0].completions;
    assert!(ends.iter().all(|end| end.status == Status::Success));
}

/// CC-6, CC-9: while data flows one probe is under way at a time, each path in its turn, in the
/// class of data, and answers come in that of acknowledgements. An idle connection sends none.
#[test]
fn probes_go_with_data() {
    let mut network = network(1);
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.tap = Some(Vec::new());
    let begun = network.now;
    write(&mut network, qpns[0], 100);
    finish(&mut network, 100);
    let round_trip = network.impairment.delay.times(2);
    let most = network.now.since(begun).nanos() / round_trip.nanos() + 1;
    let found = counters(&network, qpns[0]);
    println!("{} probes of {most}", found.round_trip_probes);
    assert!((most / 2..=most).contains(&found.round_trip_probes));
    assert!(found.round_trip_answers + 1 >= found.round_trip_probes);
    assert_eq!(found.path_probes, 0);
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
    assert_eq!((stands.congestion, stands.guided), ("rttcc", Some(true)));
    network.pass(Span::from_millis(1));
    let idle = counters(&network, qpns[0]).round_trip_probes;
    network.pass(Span::from_millis(50));
    assert_eq!(counters(&network, qpns[0]).round_trip_probes, idle);
    let sent = network.tap.take().expect("a tap");
    let of = |kind| sent.iter().filter(move |frame| is_of_kind(frame, kind));
    assert!(of(PROBE).all(|frame| frame.len() == 138 && frame[15] >> 2 == 26));
    assert!(of(ANSWER).count() > 10 && of(ANSWER).all(|frame| frame[15] >> 2 == 46));
    let paths: Vec<u8> = of(PROBE).map(|frame| frame[BLOCK + 1]).collect();
    let turns: Vec<u8> = (0..8).cycle().take(paths.len()).collect();
    assert_eq!(paths, turns);
    network.close();
}

/// CC-6: the target returns a probe at once, before the acknowledgements that it owes to packets
/// that came before.
#[test]
fn the_answer_is_the_first_to_leave() {
    let mut network = network(2);
    let [one, other] = [(); 2].map(|()| network.connected(Some(MultipathConfig::default())));
    network.impairment.dead[0] = true;
    network.tap = Some(Vec::new());
    for qpns in [one, other] {
        write(&mut network, qpns[0], 1);
    }
    network.pass(Span::from_micros(500));
    let sent = network.tap.replace(Vec::new()).expect("a tap");
    let to = |frame: &[u8], qpn: u32| frame[47..50] == qpn.to_be_bytes()[1..];
    let is_data = |frame: &&Vec<u8>| to(frame, one[1]) && frame.len() > 1_000;
    let data: Vec<Vec<u8>> = sent.iter().filter(is_data).cloned().collect();
    let probe = sent
        .iter()
        .find(|it| to(it, other[1]) && is_of_kind(it, PROBE));
    let probe = probe.expect("a probe").clone();
    assert!(data.len() >= 64, "{} packets", data.len());
    for frame in &data {
        network.inject(1, frame);
    }
    network.inject(1, &probe);
    network.turn();
    let sent = network.tap.take().expect("a tap");
    let mut answers = sent.iter().filter(|frame| frame[29] == 2);
    let first = answers.next().expect("an answer");
    assert!(is_of_kind(first, ANSWER), "{first:02x?}");
    assert!(answers.any(|frame| to(frame, one[0])), "an acknowledgement");
}

/// What came of a transfer during which somebody replays each answer and forges others, or nobody
/// does; and how many he sent with the cookie and without.
fn attacked(attack: bool) -> (Network, [u32; 2], Time, [u64; 2]) {
    let mut network = network(3);
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.arrivals = Some(Vec::new());
    write(&mut network, qpns[0], 100);
    let mut sent = [0; 2];
    let mut answers: Vec<Vec<u8>> = Vec::new();
    for _ in 0..100 {
        network.pass(Span::from_micros(37));
        let came = network.arrivals.replace(Vec::new()).expect("a tap");
        answers.extend(came.into_iter().filter(|frame| is_of_kind(frame, ANSWER)));
        let newest = answers.iter().rev().take(20).cloned();
        for replayed in newest.collect::<Vec<_>>() {
            if !attack {
                break;
            }
            network.inject(0, &replayed);
            sent[0] += 1;
            // He guesses the probes that are under way, and not the cookie.
            for more in 0..3 {
                let mut forged = replayed.clone();
                let serial = u16::from_be_bytes([forged[BLOCK + 2], forged[BLOCK + 3]]);
                let serial = serial.wrapping_add(more).to_be_bytes();
                forged[BLOCK + 2..BLOCK + 4].copy_from_slice(&serial);
                forged[BLOCK + 1] = (forged[BLOCK + 1] + u8::try_from(more).expect("few")) % 8;
                forged[EXTENSION + 7] ^= 1;
                seal(&mut forged).expect("a frame");
                network.inject(0, &forged);
                sent[1] += 1;
            }
        }
    }
    finish(&mut network, 100);
    let end = network.now;
    (network, qpns, end, sent)
}

/// CC-6: replayed and forged answers move no rate: all happens as without them, at the same time.
#[test]
fn replayed_and_forged_answers_move_nothing() {
    let (network, qpns, end, sent) = attacked(false);
    let (victim, same, ended, attacks) = attacked(true);
    assert_eq!((qpns, sent), (same, [0; 2]));
    assert!(attacks[0] > 500, "{attacks:?}");
    assert_eq!(end, ended);
    let seen = |network: &Network| {
        let found = counters(network, qpns[0]);
        let answers = (found.round_trip_probes, found.round_trip_answers);
        (answers, found.tx_packets, found.rx_acks)
    };
    assert_eq!(seen(&network), seen(&victim));
    let reasons = [DropReason::UnexpectedChange, DropReason::WrongCookie];
    assert_eq!(reasons.map(|reason| drops(&victim, 0, reason)), attacks);
    network.close();
    victim.close();
}

/// CC-6: a peer that does not know probes gets none, and packets stand in for them; lost probes
/// hold nothing up.
#[test]
fn packets_stand_in_for_probes() {
    let mut network = network(4);
    let old = MultipathConfig {
        changes: false,
        ..MultipathConfig::default()
    };
    let qpns = network.connected(Some(old));
    write(&mut network, qpns[0], 50);
    finish(&mut network, 50);
    assert_eq!(counters(&network, qpns[0]).round_trip_probes, 0);
    let engine = &network.hosts[0].engine;
    let stands = engine.queue_pair_statistics(qpns[0]).expect("exists");
    assert_eq!(stands.guided, Some(false));
    network.close();
    let mut network = self::network(5);
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.impairment.loss = 100;
    write(&mut network, qpns[0], 100);
    finish(&mut network, 100);
    let found = counters(&network, qpns[0]);
    let lost = found.round_trip_probes - found.round_trip_answers;
    assert!(lost > 2 && found.round_trip_answers > 10, "{found:?}");
    network.close();
}
