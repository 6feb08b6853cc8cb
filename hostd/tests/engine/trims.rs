//! Packets that switches trim, and forged ones that only look so.

use crate::network::{Network, trim};
use common::time::Span;
use common::wire::roce::Headers;
use hostd::verbs::{
    Congestion, DropReason, EngineConfig, MultipathConfig, SendOpcode, Status, Transition,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::collections::HashSet;

fn configs(congestion: Congestion) -> [EngineConfig; 2] {
    let config = EngineConfig {
        congestion,
        // No time-out and no probe may take the place of what is shown here.
        rto_min: Span::from_millis(400),
        ..EngineConfig::default()
    };
    [config.clone(), config]
}

/// Writes 64 KiB so often, one after the other; the time that it took.
fn writes(network: &mut Network, qpn: u32, count: u64) -> Span {
    moves(network, qpn, SendOpcode::RdmaWrite, count)
}

/// Moves 64 KiB so often by an operation, one after the other; the time that it took.
fn moves(network: &mut Network, qpn: u32, opcode: SendOpcode, count: u64) -> Span {
    let start = network.now;
    let rkey = network.hosts[1].keys.rkey;
    for number in 0..count {
        let mut request = network.hosts[0].send(number, 0, 65_536);
        (request.opcode, request.rkey) = (opcode, rkey);
        network.hosts[0]
            .engine
            .post_send(qpn, request)
            .expect("room");
        let done = network.run(Span::from_secs(1), |network| {
            network.hosts[0].completions.len() as u64 == number + 1
        });
        assert!(done, "{opcode:?} {number}");
        assert_eq!(
            network.hosts[0].completions.last().map(|it| it.status),
            Some(Status::Success)
        );
    }
    network.now.since(start)
}

/// HT-42, HT-43: a trimmed packet is answered at once and sent again, with each window and whether
/// it is the first or the last of its message: no time-out, no probe, and no wait for a tolerance.
#[test]
fn trimmed_packets_come_again_at_once() {
    for congestion in [Congestion::Fixed, Congestion::Nscc] {
        let mut network = Network::new(31, configs(congestion));
        let bytes = network.fill(0);
        let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
        let whole = writes(&mut network, sender, 20);
        network.hosts[0].completions.clear();
        network.impairment.trims = 200;
        let trimmed = writes(&mut network, sender, 20);
        let sent = network.hosts[0].engine.queue_pair_statistics(sender);
        let sent = sent.expect("exists").counters;
        let engine = &network.hosts[1].engine;
        let received = engine.queue_pair_statistics(receiver).expect("exists");
        let dropped = engine.statistics().drops.get(DropReason::Trimmed);
        println!("{whole} and {trimmed}, {sent:#?}");
        assert!(dropped > 200, "{dropped} trimmed");
        assert_eq!(received.counters.trimmed, dropped);
        assert_eq!(sent.rx_trims, dropped, "each is reported");
        assert_eq!(sent.retransmits, dropped, "and sent again once");
        assert_eq!(sent.timeouts + sent.tail_probes, 0);
        assert_eq!(received.counters.duplicates, 0, "nothing was spurious");
        // 1 in 5 lost, again and again: about two more round trips for each message. Congestion
        // control slows down besides, as it should when so much is trimmed.
        let most = whole.times(if congestion == Congestion::Fixed {
            6
        } else {
            30
        });
        assert!(trimmed < most, "{trimmed}, {whole} without trims");
        let memory = network.hosts[1].memory.to_vec();
        assert_eq!(memory[..65_536], bytes[..65_536]);
        network.close();
    }
}

/// HT-42: a trimmed answer to an RDMA READ is asked for again at once: no time-out, no probe, and
/// no wait for a tolerance. Congestion control hears of it.
#[test]
fn trimmed_answers_come_again_at_once() {
    for congestion in [Congestion::Fixed, Congestion::Nscc] {
        let mut network = Network::new(36, configs(congestion));
        let bytes = network.fill(1);
        let [reader, _] = network.connected(Some(MultipathConfig::default()));
        let whole = moves(&mut network, reader, SendOpcode::RdmaRead, 20);
        network.hosts[0].completions.clear();
        let window = |network: &Network| {
            let queue_pair = network.hosts[0].engine.queue_pair_statistics(reader);
            queue_pair.expect("exists").window
        };
        let before = window(&network);
        let rto = |network: &Network| {
            let queue_pair = network.hosts[0].engine.queue_pair_statistics(reader);
            queue_pair.expect("exists").rto
        };
        let waited = rto(&network);
        network.impairment.trims = 200;
        let trimmed = moves(&mut network, reader, SendOpcode::RdmaRead, 20);
        let engine = &network.hosts[0].engine;
        let read = engine.queue_pair_statistics(reader).expect("exists");
        let read = read.counters;
        let drops = &engine.statistics().drops;
        println!(
            "{whole} and {trimmed}, {before} and {}, {read:#?}",
            window(&network)
        );
        assert!(read.trimmed > 200, "{}", read.trimmed);
        assert_eq!(drops.get(DropReason::Trimmed), read.trimmed);
        assert_eq!(read.timeouts + read.tail_probes, 0);
        // If others of its question were asked for again just before, the report of one that is
        // trimmed a second time cannot be told from a late one: that waits for the tolerance.
        let late = read.fast_retransmits;
        assert!(
            late <= 4 && drops.get(DropReason::BadIcrc) == late,
            "{late}"
        );
        assert_eq!(read.duplicates, 0, "nothing was asked for in vain");
        // Nor does the reader take what it asks for again for sent again in vain, and wait longer.
        let waits = rto(&network);
        assert!(waits < waited.times(4), "{waited} before, {waits} after");
        let most = whole.times(if congestion == Congestion::Fixed {
            6
        } else {
            30
        });
        assert!(trimmed < most, "{trimmed}, {whole} without trims");
        if congestion == Congestion::Nscc {
            assert!(window(&network) < before / 2, "{before}");
        }
        let memory = network.hosts[0].memory.to_vec();
        assert_eq!(memory[..65_536], bytes[..65_536]);
        network.close();
    }
}

/// CC-8: who is told how many share the link of the peer: those in the middle of a message, but not
/// those whose packets wait for a receive that nobody posts, nor those that stopped in the middle.
/// They load nothing, and anybody can have hundreds.
#[test]
fn who_waits_or_is_silent_is_no_crowd() {
    for crowd in ["starved", "silent", "sending"] {
        let starved = crowd == "starved";
        let mut network = Network::new(38, configs(Congestion::Nscc));
        network.tap = Some(Vec::new());
        let all = [0; 30].map(|_| network.connected(Some(MultipathConfig::default())));
        let writer = all[0][0];
        for [sender, _] in &all[1..] {
            let mut send = network.hosts[0].send(7, 0, 200_000);
            if !starved {
                (send.opcode, send.rkey) = (SendOpcode::RdmaWrite, network.hosts[1].keys.rkey);
            }
            let posted = network.hosts[0].engine.post_send(*sender, send);
            posted.expect("room");
        }
        network.pass(Span::from_micros(if starved { 2_000 } else { 100 }));
        if crowd == "silent" {
            for [sender, _] in &all[1..] {
                let engine = &mut network.hosts[0].engine;
                let ended = engine.modify_queue_pair(*sender, &Transition::Error);
                ended.expect("legal");
            }
            network.pass(Span::from_millis(101));
        }
        network.impairment.trims = 200;
        let mut write = network.hosts[0].send(1, 0, 65_536);
        (write.opcode, write.rkey) = (SendOpcode::RdmaWrite, network.hosts[1].keys.rkey);
        let posted = network.hosts[0].engine.post_send(writer, write);
        posted.expect("room");
        network.run(Span::from_secs(1), |network| {
            network.hosts[0].completions.iter().any(|it| it.wr_id == 1)
        });
        let mut told = 0;
        for frame in network.tap.take().expect("a tap") {
            let headers = Headers::parse(&frame[42..]).map(|it| it.0);
            let Ok(headers) = headers else { continue };
            let marks = headers.sack.and_then(|it| it.marks);
            let count = marks.and_then(|it| it.crowd.count());
            told = told.max(count.filter(|_| headers.bth.dest_qp == writer).unwrap_or(0));
        }
        println!("{told} are told of, {crowd}");
        let expected = if crowd == "sending" { 16..31 } else { 0..1 };
        assert!(expected.contains(&told), "{told}, {crowd}");
        network.close();
    }
}

/// CC-7: marks of answers to RDMA READs make the window of what is asked for smaller.
#[test]
fn marked_answers_slow_the_reader_down() {
    for congestion in [Congestion::Auto, Congestion::Dctcp] {
        let windows = [0, 900].map(|marks| {
            let mut network = Network::new(37, configs(congestion));
            let [reader, _] = network.connected(Some(MultipathConfig::default()));
            network.impairment.marks = marks;
            moves(&mut network, reader, SendOpcode::RdmaRead, 50);
            let read = network.hosts[0].engine.queue_pair_statistics(reader);
            let read = read.expect("exists");
            assert_eq!(read.counters.marked > 500, marks > 0);
            network.close();
            read.window
        });
        println!("{congestion:?}: {windows:?}");
        assert!(windows[1] < windows[0] / 2, "{congestion:?}: {windows:?}");
    }
}

/// HT-38: data has the code point of trimmable packets, what is sent again that of trimmable
/// retransmissions, and acknowledgements and connection set-up that of control, each packet.
#[test]
fn classes_have_code_points() {
    // The network of these tests trims what has this one.
    const DATA: u8 = 26 << 2 | 2;
    const AGAIN: u8 = 10 << 2 | 2;
    const CONTROL: u8 = 48 << 2;
    let configs = configs(Congestion::Fixed).map(|mut config| {
        (config.data_class, config.control_class) = (DATA, CONTROL);
        (config.low_class, config.high_class) = (DATA, DATA);
        config.again_class = Some(AGAIN);
        config
    });
    let mut network = Network::new(35, configs);
    network.tap = Some(Vec::new());
    let [sender, _] = network.connected(Some(MultipathConfig::default()));
    network.impairment.trims = 100;
    writes(&mut network, sender, 10);
    let tapped = network.tap.take().expect("a tap");
    let (mut left, mut again) = (HashSet::new(), 0);
    for frame in &tapped {
        // IPv4 behind 14 bytes, BTH behind 42: operation, and the number of the packet.
        let (class, operation) = (frame[15], frame[42]);
        let number = [frame[51], frame[52], frame[53]];
        let expected = match operation {
            0xd1 | 0x64 => CONTROL,
            _ if left.insert(number) => DATA,
            _ => AGAIN,
        };
        again += usize::from(expected == AGAIN);
        assert_eq!(class, expected, "{operation:#x} {number:?}");
    }
    let sent = network.hosts[0].engine.queue_pair_statistics(sender);
    let retransmits = sent.expect("exists").counters.retransmits;
    assert!(again > 5 && again as u64 == retransmits, "{again}");
    network.close();
}

/// HT-42: a peer that does not understand marks is told nothing: its time-outs repair what is lost.
#[test]
fn peers_without_marks_are_not_told() {
    let mut network = Network::new(32, configs(Congestion::Fixed));
    let agreed = MultipathConfig {
        marks: false,
        ..MultipathConfig::default()
    };
    let [sender, _] = network.connected(Some(agreed));
    network.impairment.trims = 20;
    network.impairment.marks = 500;
    writes(&mut network, sender, 5);
    let engine = &network.hosts[1].engine;
    let drops = &engine.statistics().drops;
    assert_eq!(drops.get(DropReason::Trimmed), 0);
    assert!(drops.get(DropReason::BadIcrc) > 0, "they are bad packets");
    network.close();
}

/// HT-42: 10,000 forged trims of random numbers, paths and queue pairs cost no more than a
/// retransmission each; data and neighbours are unharmed.
#[test]
fn forged_trims_cost_little() {
    let mut network = Network::new(33, configs(Congestion::Nscc));
    let bytes = network.fill(0);
    network.tap = Some(Vec::new());
    let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
    writes(&mut network, sender, 1);
    let tapped = network.tap.take().expect("a tap");
    let long = tapped.into_iter().find(|frame| frame.len() > 1_000);
    let model = long.expect("a data packet");
    let mut random = Pcg64Mcg::new(33);
    network.hosts[0].completions.clear();
    let rkey = network.hosts[1].keys.rkey;
    let (mut posted, mut forged) = (0, 0);
    let done = network.run(Span::from_secs(5), |network| {
        while posted < 200 && posted < network.hosts[0].completions.len() as u64 + 4 {
            let mut write = network.hosts[0].send(posted, 0, 65_536);
            write.opcode = SendOpcode::RdmaWrite;
            write.rkey = rkey;
            network.hosts[0]
                .engine
                .post_send(sender, write)
                .expect("room");
            posted += 1;
        }
        for _ in 0..20 {
            let mut frame = model.clone();
            trim(&mut frame);
            // BTH: destination queue pair and PSN; MPEH: the path.
            let draw = random.next_u64().to_be_bytes();
            match draw[0] % 4 {
                0 => frame[54..75].fill_with(|| (random.next_u64() & 0xff) as u8),
                1 => frame[47..50].copy_from_slice(&draw[1..4]),
                _ => frame[51] = draw[1],
            }
            // The newest of what is under way is the likeliest to be hit.
            frame[52..54].copy_from_slice(&draw[4..6]);
            network.inject(1, &frame);
            forged += 1;
        }
        network.hosts[0].completions.len() == 200
    });
    assert!(done && forged >= 10_000, "{forged} forged");
    let sent = network.hosts[0].engine.queue_pair_statistics(sender);
    let sent = sent.expect("exists").counters;
    let trims = &network.hosts[1].engine.statistics().drops;
    println!("{forged} forged: {trims:?}, {sent:#?}");
    assert!(
        sent.retransmits <= forged,
        "{} sent again",
        sent.retransmits
    );
    assert_eq!(sent.timeouts, 0);
    let received = network.hosts[1].engine.queue_pair_statistics(receiver);
    assert_eq!(received.expect("exists").counters.rx_bytes, 201 * 65_536);
    let memory = network.hosts[1].memory.to_vec();
    assert_eq!(memory[..65_536], bytes[..65_536]);
    network.close();
}
