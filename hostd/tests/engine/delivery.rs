//! Exactly once, in order, uncorrupted: whatever the network does.

use crate::network::{Impairment, Network};
use common::time::Span;
use hostd::verbs::{CompletionOpcode, EngineConfig, MultipathConfig, SendOpcode, Status};
use std::collections::BTreeSet;

fn configs() -> [EngineConfig; 2] {
    [EngineConfig::default(), EngineConfig::default()]
}

/// Sends messages of many sizes through `impairment` and checks what arrives.
fn exchange(seed: u64, multipath: Option<MultipathConfig>, impairment: Impairment) -> Network {
    // No bursts: packets that leave at once are reordered by more than the paths' delays.
    let paced = EngineConfig {
        pacer_burst: 4096,
        ..EngineConfig::default()
    };
    let mut network = Network::new(seed, [paced.clone(), paced]);
    network.impairment = impairment;
    let bytes = network.fill(0);
    let [sender, receiver] = network.connected(multipath);
    let sizes = [0_u32, 1, 1023, 1024, 1025, 5000, 65_536, 100_003, 1];
    let (mut sent, mut posted, mut offset) = (0_u64, 0_u64, 0_u64);
    let mut expected = Vec::new();
    let total = 60;
    let done = network.run(Span::from_secs(60), |network| {
        while posted < total && posted < sent + 8 {
            network.hosts[1].receive_into(receiver, posted, posted * 0x10000, 0x20000);
            posted += 1;
        }
        while sent < total && sent < network.hosts[0].completions.len() as u64 + 6 {
            let len = sizes[usize::try_from(sent).expect("small") % sizes.len()];
            let request = network.hosts[0].send(sent, offset, len);
            network.hosts[0]
                .engine
                .post_send(sender, request)
                .expect("room");
            expected.push((offset, len));
            offset += u64::from(len);
            sent += 1;
        }
        network.hosts[0].completions.len() as u64 == total
            && network.hosts[1].completions.len() as u64 == total
    });
    let stats = network.hosts[0].engine.queue_pair_statistics(sender);
    assert!(done, "seed {seed}: {stats:#?}");
    for (host, opcode) in [(0, CompletionOpcode::Send), (1, CompletionOpcode::Receive)] {
        for (n, completion) in network.hosts[host].completions.iter().enumerate() {
            assert_eq!(completion.status, Status::Success, "seed {seed}");
            assert_eq!(completion.wr_id, n as u64, "seed {seed}: in order");
            assert_eq!(completion.opcode, opcode);
            assert_eq!(completion.byte_len, expected[n].1);
        }
    }
    // Later receives overlap the end of earlier ones, so only the last and the short ones are
    // whole.
    let memory = network.hosts[1].memory.to_vec();
    for (n, &(offset, len)) in expected.iter().enumerate() {
        let whole = usize::try_from(len).expect("small").min(0x10000);
        let at = n * 0x10000;
        let from = usize::try_from(offset).expect("small");
        // A longer message before it wrote here first and was overwritten.
        assert_eq!(
            memory[at..at + whole],
            bytes[from..from + whole],
            "seed {seed}"
        );
    }
    network
}

/// HT-1: without any trouble nothing is sent twice.
#[test]
fn a_good_network_sees_every_packet_once() {
    for multipath in [Some(MultipathConfig::default()), None] {
        let network = exchange(1, multipath, Impairment::default());
        let qpn = network.hosts[0].engine.queue_pairs().next().expect("one");
        let stats = network.hosts[0]
            .engine
            .queue_pair_statistics(qpn)
            .expect("exists");
        assert_eq!(stats.counters.retransmits, 0, "{stats:#?}");
        assert_eq!(network.hosts[1].engine.statistics().drops.total(), 0);
        network.close();
    }
}

/// HT-30: the packets of a queue pair have the numbers of one sequence, each the next one in the
/// order in which they leave, across its wrap, and whichever of many paths they take.
#[test]
fn one_sequence_counts_the_packets_of_all_paths() {
    const LEN: u32 = 300_000;
    for multipath in [Some(MultipathConfig::default()), None] {
        let mut network = Network::new(4, configs());
        let qpns = network.connected(multipath);
        network.tap = Some(Vec::new());
        network.hosts[1].receive_into(qpns[1], 1, 0, LEN);
        let send = network.hosts[0].send(1, 0, LEN);
        let posted = network.hosts[0].engine.post_send(qpns[0], send);
        posted.expect("connected");
        let done = network.run(Span::from_secs(1), |network| {
            !network.hosts[1].completions.is_empty()
        });
        assert!(done);
        let tapped = network.tap.take().expect("was set");
        // By source address and opcode: SEND first, middle and last, with MPEH or without.
        let ours = tapped.iter().filter(|frame| frame[29] == 1);
        let data: Vec<_> = ours.filter(|frame| frame[42] & 0x1f <= 2).collect();
        let number = |frame: &&Vec<u8>| u32::from_be_bytes([0, frame[51], frame[52], frame[53]]);
        let numbers: Vec<_> = data.iter().map(number).collect();
        let first = 0xff_fff0_u32;
        let wanted = (first..first + LEN.div_ceil(1024)).map(|number| number & 0xff_ffff);
        assert_eq!(numbers, wanted.collect::<Vec<_>>());
        if multipath.is_some() {
            let paths: BTreeSet<_> = data.iter().map(|frame| frame[54]).collect();
            assert!(paths.len() > 4, "{paths:?}");
        }
        network.close();
    }
}

/// HT-34, HT-40, HT-41: paths that differ in delay reorder everything; nothing is taken for lost.
#[test]
fn reordering_is_no_loss() {
    let impairment = Impairment {
        skew: Span::from_micros(15),
        ..Impairment::default()
    };
    let network = exchange(2, Some(MultipathConfig::default()), impairment);
    let qpn = network.hosts[1].engine.queue_pairs().next().expect("one");
    let stats = network.hosts[1]
        .engine
        .queue_pair_statistics(qpn)
        .expect("exists");
    assert!(stats.counters.out_of_order > 100, "{stats:#?}");
    assert_eq!(stats.counters.duplicates, 0, "{stats:#?}");
    assert_eq!(stats.counters.loss_reports, 0);
    assert!(stats.counters.reorder_depth_max > 0);
    assert!(stats.counters.reorder_span_max > Span::ZERO);
    network.close();
}

/// HT-40, HT-43: loss, duplication, skew and jitter together.
#[test]
fn everything_arrives_once_and_in_order() {
    for (seed, loss) in [(10, 1), (11, 10), (12, 30), (13, 100)] {
        for multipath in [Some(MultipathConfig::default()), None] {
            let impairment = Impairment {
                loss,
                duplication: loss,
                skew: Span::from_micros(if multipath.is_some() { 20 } else { 0 }),
                jitter: Span::from_micros(if multipath.is_some() { 30 } else { 0 }),
                ..Impairment::default()
            };
            exchange(seed, multipath, impairment).close();
        }
    }
}

/// HT-1: writes land where they are aimed, and with immediate data a receive completes.
#[test]
fn writes_land_where_they_are_aimed() {
    let mut network = Network::new(3, configs());
    let bytes = network.fill(0);
    let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
    network.hosts[1].receive_into(receiver, 5, 0, 0);
    let rkey = network.hosts[1].keys.rkey;
    for (wr_id, opcode) in [
        (1, SendOpcode::RdmaWrite),
        (2, SendOpcode::RdmaWriteWithImm),
    ] {
        let mut request = network.hosts[0].send(wr_id, 100 * wr_id, 70_000);
        request.opcode = opcode;
        request.rkey = rkey;
        request.remote_addr = 100_000 * wr_id;
        request.imm = 0xdead_beef;
        network.hosts[0]
            .engine
            .post_send(sender, request)
            .expect("room");
    }
    let done = network.run(Span::from_millis(100), |network| {
        network.hosts[0].completions.len() == 2
    });
    assert!(done);
    let memory = network.hosts[1].memory.to_vec();
    assert_eq!(memory[100_000..170_000], bytes[100..70_100]);
    assert_eq!(memory[200_000..270_000], bytes[200..70_200]);
    let completion = network.hosts[1].completions[0];
    assert_eq!(network.hosts[1].completions.len(), 1);
    assert_eq!(completion.opcode, CompletionOpcode::ReceiveRdmaWithImm);
    assert_eq!(
        (completion.wr_id, completion.byte_len, completion.imm),
        (5, 70_000, Some(0xdead_beef))
    );
    network.close();
}
