//! Delivery services (HT-39): messages as they become whole, once, and what both sides are told.

use crate::connection::{self, config, connect};
use crate::network::{Host, Impairment, Network, cookie_of};
use common::time::Span;
use common::wire::Mac;
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{Bth, Extension, Flow, Headers, Mpeh, Opcode, Operation, Reth};
use hostd::stats::QueuePairStatistics;
use hostd::verbs::{
    Completion, CompletionOpcode, DropReason, EngineConfig, MultipathConfig, SendOpcode, Service,
    Status,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

/// Bytes between buffers of receives.
const STRIDE: u32 = 0x5000;

/// The first number of a packet between hosts that were connected by hand.
pub(crate) const FIRST: u32 = 0xff_fff0;

const SERVICES: [Service; 2] = [Service::Unordered, Service::Idempotent];

fn with(service: Service) -> MultipathConfig {
    MultipathConfig {
        service,
        ..MultipathConfig::default()
    }
}

fn network(seed: u64, impairment: Impairment) -> Network {
    let mut network = Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
    network.impairment = impairment;
    network
}

fn standing(host: &Host, qpn: u32) -> QueuePairStatistics {
    let statistics = host.engine.queue_pair_statistics(qpn);
    statistics.expect("it is there")
}

fn ids(completions: &[Completion]) -> BTreeSet<u64> {
    completions.iter().map(|it| it.wr_id).collect()
}

/// Messages of one packet and of several, which say who they are by their immediate data.
fn messages(count: u32, seed: u64) -> Vec<(SendOpcode, u32)> {
    let mut random = Pcg64Mcg::new(u128::from(seed));
    let opcodes = [SendOpcode::SendWithImm, SendOpcode::RdmaWriteWithImm];
    let sizes = [0, 1, 900, 1024, 1025, 5000, STRIDE];
    let mut draw = |of: usize| random.next_u32() as usize % of;
    (0..count)
        .map(|_| (opcodes[draw(2)], sizes[draw(sizes.len())]))
        .collect()
}

fn post(network: &mut Network, sender: u32, number: u32, (opcode, len): (SendOpcode, u32)) {
    let rkey = network.hosts[1].keys.rkey;
    let at = u64::from(number) * u64::from(STRIDE);
    let mut request = network.hosts[0].send(number.into(), at, len);
    request.opcode = opcode;
    request.rkey = rkey;
    request.remote_addr = at;
    request.imm = number;
    let posted = network.hosts[0].engine.post_send(sender, request);
    posted.expect("room");
}

fn receive(network: &mut Network, receiver: u32, number: u32) {
    // Behind the place of messages that are written.
    let at = 100 * u64::from(STRIDE) + u64::from(number) * u64::from(STRIDE);
    network.hosts[1].receive_into(receiver, number.into(), at, STRIDE);
}

/// Each message came once and as it was sent, whatever the order.
fn check(network: &Network, sent: &[(SendOpcode, u32)], bytes: &[u8]) {
    let seed = network.seed;
    let memory = network.hosts[1].memory.to_vec();
    let (sends, receives) = (&network.hosts[0].completions, &network.hosts[1].completions);
    for completions in [sends, receives] {
        assert_eq!(completions.len(), sent.len(), "seed {seed}");
        assert_eq!(ids(completions).len(), sent.len(), "seed {seed}: each once");
        assert!(completions.iter().all(|it| it.status == Status::Success));
    }
    let mut told = BTreeSet::new();
    for completion in receives {
        let number = completion.imm.expect("all have some");
        assert!(
            told.insert(number),
            "seed {seed}: message {number} came twice"
        );
        let (opcode, len) = sent[number as usize];
        assert_eq!(completion.byte_len, len, "seed {seed}: message {number}");
        let from = number as usize * STRIDE as usize;
        let to = match opcode {
            SendOpcode::RdmaWriteWithImm => from,
            _ => (100 + usize::try_from(completion.wr_id).expect("small")) * STRIDE as usize,
        };
        let len = len as usize;
        assert_eq!(
            memory[to..to + len],
            bytes[from..from + len],
            "seed {seed}: {number}"
        );
    }
}

/// Loses a fifth of all packets, and brings the others twice.
fn hostile_to_order() -> Impairment {
    Impairment {
        loss: 200,
        duplication: 1000,
        skew: Span::from_micros(20),
        jitter: Span::from_micros(30),
        ..Impairment::default()
    }
}

/// HT-39: exactly once, whole and uncorrupted, in an order of its own, also if receives come late;
/// a request completes when its message was given out, and not before.
#[test]
fn messages_come_once_in_any_order() {
    for (seed, service, late) in [
        (1, Service::Unordered, false),
        (2, Service::Unordered, true),
        (3, Service::Idempotent, false),
        (4, Service::Idempotent, true),
    ] {
        let mut network = network(seed, hostile_to_order());
        let bytes = network.fill(0);
        let [sender, receiver] = network.connected(Some(with(service)));
        let sent = messages(80, seed);
        let count = u32::try_from(sent.len()).expect("few");
        let mut posted = 0;
        for (number, message) in (0..).zip(&sent) {
            post(&mut network, sender, number, *message);
        }
        let done = network.run(Span::from_secs(60), |network| {
            let came = u32::try_from(network.hosts[1].completions.len()).expect("few");
            while posted < count && (!late || posted <= came) {
                receive(network, receiver, posted);
                posted += 1;
            }
            let [sends, receives] = [0, 1].map(|host| &network.hosts[host].completions);
            let given: BTreeSet<_> = receives.iter().filter_map(|it| it.imm).collect();
            let told = |it: &Completion| given.contains(&u32::try_from(it.wr_id).expect("small"));
            assert!(sends.iter().all(told), "seed {seed}: told too early");
            sends.len() == sent.len() && receives.len() == sent.len()
        });
        let standing = standing(&network.hosts[1], receiver);
        assert!(done, "seed {seed}: {standing:#?}");
        check(&network, &sent, &bytes);
        assert!(standing.counters.early_messages > 10, "{standing:#?}");
        assert_eq!(standing.counters.rx_messages, 80, "{standing:#?}");
        let order: Vec<_> = network.hosts[1]
            .completions
            .iter()
            .map(|it| it.imm)
            .collect();
        assert!(!order.is_sorted(), "seed {seed}: nothing was overtaken");
        let order = network.hosts[0].completions.iter().map(|it| it.wr_id);
        assert!(!order.is_sorted(), "seed {seed}: nothing was overtaken");
        let late_drops = &network.hosts[1].engine.statistics().drops;
        assert_eq!(late_drops.get(DropReason::NotYet) > 0, late, "seed {seed}");
        network.close();
    }
}

/// HT-39: without a choice of both sides everything stays in order, over the same network.
#[test]
fn ordered_messages_stay_in_order() {
    let mut network = network(5, hostile_to_order());
    let bytes = network.fill(0);
    let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
    let sent = messages(80, 5);
    for (number, message) in (0..).zip(&sent) {
        receive(&mut network, receiver, number);
        post(&mut network, sender, number, *message);
    }
    let done = network.run(Span::from_secs(60), |network| {
        network
            .hosts
            .iter()
            .all(|host| host.completions.len() == 80)
    });
    assert!(done);
    check(&network, &sent, &bytes);
    for host in &network.hosts {
        assert!(host.completions.iter().map(|it| it.wr_id).is_sorted());
    }
    assert_eq!(
        standing(&network.hosts[1], receiver)
            .counters
            .early_messages,
        0
    );
    network.close();
}

/// HT-39: the side that fails tells of each request once, and of none again that has completed
/// before its turn.
#[test]
fn what_completed_early_is_not_flushed() {
    let mut network = network(6, hostile_to_order());
    let [sender, receiver] = network.connected(Some(with(Service::Unordered)));
    let sent = messages(80, 6);
    for (number, message) in (0..).zip(&sent) {
        receive(&mut network, receiver, number);
        post(&mut network, sender, number, *message);
    }
    // The first is lost for good, as is everything from here on; some behind it have come.
    let came = network.run(Span::from_secs(10), |network| {
        network.hosts[0].completions.len() >= 20
    });
    assert!(came);
    network.impairment.dead = [true; 2];
    let ended = network.run(Span::from_secs(60), |network| {
        network.hosts[0].completions.len() >= 80
    });
    network.pass(Span::from_millis(100));
    assert!(ended);
    let completions = &network.hosts[0].completions;
    assert_eq!((completions.len(), ids(completions).len()), (80, 80));
    let failed = completions.iter().find(|it| it.status != Status::Success);
    assert_eq!(failed.map(|it| it.status), Some(Status::RetryExceeded));
    network.close();
}

/// A frame from host 0 to queue pair `qpn` of host 1, with this packet number and payload.
pub(crate) fn packet(
    network: &Network,
    qpn: u32,
    operation: Operation,
    psn: u32,
    reth: Option<Reth>,
    payload: &[u8],
) -> Vec<u8> {
    let [source, destination] = &network.hosts;
    let flow = Flow {
        src_mac: Mac([2; 6]),
        dst_mac: Mac([2; 6]),
        addresses: Addresses::new(source.address, destination.address).expect("one version"),
        src_port: 0xc000,
        flow_label: 0,
        traffic_class: 0,
        ttl: 64,
    };
    let bth = Bth::new(Opcode::Multipath(operation), qpn, psn & 0xff_ffff);
    let mut headers = Headers::new(bth);
    headers.mpeh = Some(Mpeh::default());
    headers.extension = Some(Extension::new(cookie_of(destination.address)));
    headers.reth = reth;
    headers.immediate = operation.has_immediate().then_some(psn.wrapping_sub(FIRST));
    headers.invalidate = operation.has_invalidate().then_some(7);
    let mut bytes = vec![0; layout(flow.addresses, &headers, payload.len()).len];
    let place = emit(&mut bytes, &flow, &headers, payload.len());
    bytes[place].copy_from_slice(payload);
    seal(&mut bytes).expect("a frame");
    bytes
}

/// HT-39: a message behind a gap is given out when it is whole and a receive is posted; receives
/// are taken in that order. What cannot be given out is not acknowledged, and comes again.
#[test]
fn receives_are_taken_as_messages_become_whole() {
    let mut network = network(7, Impairment::default());
    let [_, receiver] = network.connected(Some(with(Service::Unordered)));
    let inject = |network: &mut Network, operation, ahead: u32, payload: &[u8]| {
        let bytes = packet(network, receiver, operation, FIRST + ahead, None, payload);
        network.inject(1, &bytes);
    };
    let told = |network: &mut Network| -> Vec<(u64, u32)> {
        network.pass(Span::from_micros(10));
        let completions = std::mem::take(&mut network.hosts[1].completions);
        let told = completions.iter().map(|it| (it.wr_id, it.byte_len));
        told.collect()
    };
    // Nothing is posted for the packet that is three ahead.
    inject(&mut network, Operation::SendOnlyImmediate, 3, b"three");
    let drops = |network: &Network| network.hosts[1].engine.statistics().drops.clone();
    assert_eq!(drops(&network).get(DropReason::NotYet), 1);
    for number in 0..4 {
        receive(&mut network, receiver, number);
    }
    assert_eq!(told(&mut network), []);
    inject(&mut network, Operation::SendOnlyImmediate, 3, b"three");
    assert_eq!(told(&mut network), [(0, 5)]);
    // The end before the beginning, with another message in between.
    inject(&mut network, Operation::SendLast, 6, b"tail");
    inject(&mut network, Operation::SendOnly, 4, b"four");
    assert_eq!(told(&mut network), [(1, 4)]);
    assert_eq!(standing(&network.hosts[1], receiver).reordering, 1);
    inject(&mut network, Operation::SendFirst, 5, &[5; 1024]);
    assert_eq!(told(&mut network), [(2, 1028)]);
    // Twice is once.
    inject(&mut network, Operation::SendFirst, 5, &[5; 1024]);
    inject(&mut network, Operation::SendOnlyImmediate, 3, b"three");
    assert_eq!(told(&mut network), []);
    // The gap closes: what is behind it is not given out again.
    for (ahead, operation) in [(0, Operation::SendFirst), (2, Operation::SendLast)] {
        inject(&mut network, operation, ahead, &[9; 1024]);
    }
    assert_eq!(told(&mut network), []);
    inject(&mut network, Operation::SendMiddle, 1, &[9; 1024]);
    assert_eq!(told(&mut network), [(3, 3 * 1024)]);
    let standing = standing(&network.hosts[1], receiver);
    assert_eq!((standing.reordering, standing.receives_posted), (0, 0));
    let counters = standing.counters;
    assert_eq!((counters.early_messages, counters.rx_messages), (3, 4));
    assert_eq!(counters.duplicates, 2);
    inject(&mut network, Operation::SendOnly, 7, b"in order");
    network.pass(Span::from_micros(10));
    assert_eq!(drops(&network).total(), 1, "it waits for a receive");
    network.close();
}

/// HT-39: a request that the peer refuses ends with its error, also if the packets before it are
/// missing when it comes; those behind it that were given out have succeeded.
#[test]
fn what_is_refused_is_refused_in_its_turn() {
    for seed in 20..30 {
        let mut network = network(seed, hostile_to_order());
        let [sender, receiver] = network.connected(Some(with(Service::Unordered)));
        for number in 0..40 {
            receive(&mut network, receiver, number);
        }
        for number in 0..40 {
            let rkey = network.hosts[1].keys.rkey;
            let mut request = network.hosts[0].send(number, 0, 1000);
            request.opcode = SendOpcode::RdmaWrite;
            request.rkey = if number == 20 { rkey ^ 0x100 } else { rkey };
            let posted = network.hosts[0].engine.post_send(sender, request);
            posted.expect("room");
        }
        let ended = network.run(Span::from_secs(10), |network| {
            network.hosts[0].completions.len() == 40
        });
        assert!(ended, "seed {seed}");
        for completion in &network.hosts[0].completions {
            match (completion.wr_id, completion.status) {
                (0..20, Status::Success) | (20, Status::RemoteAccess) => {}
                (21.., Status::Success | Status::WorkRequestFlushed) => {}
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        network.close();
    }
}

/// HT-39: READs are carried out in their turn: after all that was posted before them.
#[test]
fn reads_see_what_was_written_before_them() {
    for service in SERVICES {
        let mut network = network(8, hostile_to_order());
        let bytes = network.fill(0);
        let [sender, _] = network.connected(Some(with(service)));
        let rkey = network.hosts[1].keys.rkey;
        for number in 0..20_u64 {
            let at = number * 10_000;
            let mut request = network.hosts[0].send(number, at, 9_000);
            request.opcode = SendOpcode::RdmaWrite;
            request.rkey = rkey;
            request.remote_addr = at;
            let posted = network.hosts[0].engine.post_send(sender, request);
            posted.expect("room");
            request.wr_id = 100 + number;
            request.opcode = SendOpcode::RdmaRead;
            request.addr = 2_000_000 + at;
            let posted = network.hosts[0].engine.post_send(sender, request);
            posted.expect("room");
        }
        let done = network.run(Span::from_secs(20), |network| {
            network.hosts[0].completions.len() == 40
        });
        assert!(done, "{service:?}");
        let read = network.hosts[0].memory.to_vec();
        for at in (0..200_000).step_by(10_000) {
            let came = &read[2_000_000 + at..2_000_000 + at + 9_000];
            assert_eq!(came, &bytes[at..at + 9_000], "{service:?}: {at}");
        }
        let completions = &network.hosts[0].completions;
        let reads = completions
            .iter()
            .filter(|it| it.opcode == CompletionOpcode::RdmaRead);
        assert!(reads.map(|it| it.wr_id).is_sorted());
        network.close();
    }
}

/// HT-39: each packet of a WRITE of an idempotent queue pair names its place, so that none of them
/// waits for another; those of other services name it once.
#[test]
fn packets_of_idempotent_writes_stand_alone() {
    for (service, names) in [(Service::Unordered, 1), (Service::Idempotent, 80)] {
        let mut network = network(9, Impairment::default());
        network.tap = Some(Vec::new());
        let bytes = network.fill(0);
        let [sender, receiver] = network.connected(Some(with(service)));
        network.impairment.loss = 200;
        let mut request = network.hosts[0].send(1, 0, 80 * 1024);
        request.opcode = SendOpcode::RdmaWrite;
        request.rkey = network.hosts[1].keys.rkey;
        request.remote_addr = 1_000_000;
        let posted = network.hosts[0].engine.post_send(sender, request);
        posted.expect("room");
        let mut waited = 0;
        let done = network.run(Span::from_secs(5), |network| {
            waited = waited.max(standing(&network.hosts[1], receiver).reordering);
            network.hosts[0].completions.len() == 1
        });
        assert!(done, "{service:?}");
        let memory = network.hosts[1].memory.to_vec();
        assert_eq!(memory[1_000_000..1_081_920], bytes[..81_920], "{service:?}");
        assert_eq!(
            waited == 0,
            service == Service::Idempotent,
            "{waited} {service:?}"
        );
        let frames = network.tap.take().expect("was set");
        let opcodes = frames.iter().map(|frame| frame[14 + 20 + 8]);
        let (first, only) = (0xc0 | 0x06, 0xc0 | 0x0a);
        let named = opcodes.filter(|it| [first, only].contains(it)).count();
        assert!(
            named >= names && (names > 1 || named < 10),
            "{named} {service:?}"
        );
        network.close();
    }
}

/// HT-39: both sides have to ask; what both get is the stricter service, and plain peers have
/// ordered ones.
#[test]
fn both_sides_have_to_ask() {
    let multipath = Some(MultipathConfig::default());
    for (index, (plain, own, other)) in [false, true]
        .into_iter()
        .flat_map(|plain| Service::ALL.map(|own| (plain, own)))
        .flat_map(|(plain, own)| Service::ALL.map(|other| (plain, own, other)))
        .enumerate()
    {
        let configs = [config(multipath), config(multipath.filter(|_| !plain))];
        let mut network = Network::new(index as u64, configs);
        let (qpns, _) = connection::connect_with(&mut network, |hosts, qpns| {
            for (host, (qpn, service)) in hosts.iter_mut().zip(qpns.into_iter().zip([own, other])) {
                host.engine.choose_service(qpn, service).expect("in INIT");
            }
        });
        for (host, qpn) in network.hosts.iter_mut().zip(qpns) {
            let agreed = standing(host, qpn).agreed;
            let service = agreed.map(|agreed| agreed.service);
            assert_eq!(
                service,
                (!plain).then_some(own.min(other)),
                "{own:?} {other:?}"
            );
            host.engine.choose_service(qpn, own).expect_err("too late");
        }
        network.close();
    }
    let mut network = Network::new(1, [config(multipath), config(multipath)]);
    let (qpns, _) = connect(&mut network);
    let agreed = standing(&network.hosts[0], qpns[0]).agreed;
    assert_eq!(agreed.map(|it| it.service), Some(Service::Ordered));
    network.close();
}

/// HT-39, HT-3: whatever pieces of messages a peer sends, in whatever order: no frame is lost or
/// kept for good, nothing panics, and the queue pair takes no more than it may.
#[test]
fn nonsense_in_pieces() {
    use Operation as O;
    let operations = [
        O::SendFirst,
        O::SendMiddle,
        O::SendLast,
        O::SendLastImmediate,
        O::SendLastInvalidate,
        O::SendOnly,
        O::WriteFirst,
        O::WriteMiddle,
        O::WriteLast,
        O::WriteLastImmediate,
        O::WriteOnly,
        O::WriteOnlyImmediate,
        O::ReadRequest,
    ];
    let mut given = 0;
    for seed in 0..200_u64 {
        let mut network = network(seed, Impairment::default());
        let [_, receiver] = network.connected(Some(with(SERVICES[(seed % 2) as usize])));
        let mut random = Pcg64Mcg::new(u128::from(seed));
        let mut draw = |of: u32| random.next_u32() % of;
        for number in 0..30 {
            receive(&mut network, receiver, number);
        }
        for _ in 0..300 {
            let operation = operations[draw(13) as usize];
            let len = [0, 1, 1024, 1024, 1024][draw(5) as usize];
            let reth = operation.has_reth().then(|| Reth {
                address: u64::from(draw(9) * 1000),
                rkey: network.hosts[1].keys.rkey ^ u32::from(draw(20) == 0),
                len: [len, 2 * 1024, 3 * 1024, 1025][draw(4) as usize],
            });
            let payload = vec![
                1;
                if operation == O::ReadRequest {
                    0
                } else {
                    len as usize
                }
            ];
            let psn = FIRST + 1 + draw(24);
            let bytes = packet(&network, receiver, operation, psn, reth, &payload);
            network.inject(1, &bytes);
        }
        let standing = standing(&network.hosts[1], receiver);
        assert!(standing.reordering <= 24, "seed {seed}: {standing:#?}");
        given += standing.counters.early_messages;
        let bytes = packet(&network, receiver, O::SendOnly, FIRST, None, b"the gap");
        network.inject(1, &bytes);
        network.pass(Span::from_micros(50));
        network.close();
    }
    assert!(given > 200, "{given} messages were given out early");
}
