//! What acknowledgements say beyond their number, when it is wrong: bitmaps, marks and trims of
//! packets, paths; and congestion that somebody made up.

use crate::connection::{PORT, both, established, parameters, request};
use crate::forge::{frame as message_frame, read};
use crate::injection::sealed;
use crate::network::{COOKIES, Network};
use common::time::Span;
use common::wire::cm::Message;
use common::wire::roce::{
    AckKind, Aeth, Bth, Crowd, Extension, Headers, MARK_BITS, Marks, Mpeh, Opcode, Operation, Sack,
};
use hostd::stats::QueuePairCounters;
use hostd::verbs::{
    Congestion, CongestionScope, DropReason, EngineConfig, MultipathConfig, SendOpcode, Status,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Where BTH begins over IPv4.
const BTH: usize = 14 + 20 + 8;

const ALGORITHMS: [Congestion; 10] = [
    Congestion::Auto,
    Congestion::Fixed,
    Congestion::Nscc,
    Congestion::Swift,
    Congestion::SwiftCsig,
    Congestion::Dctcp,
    Congestion::Dcqcn,
    Congestion::Timely,
    Congestion::Poseidon,
    Congestion::Rttcc,
];

/// Messages of a transfer, and the bytes of each.
const MESSAGES: u64 = 100;
const BYTES: u32 = 65_536;

fn network(seed: u64, congestion: Congestion) -> Network {
    let per_path = matches!(congestion, Congestion::Swift);
    let config = EngineConfig {
        congestion,
        congestion_scope: if per_path {
            CongestionScope::Path
        } else {
            CongestionScope::Connection
        },
        // A time-out would hide what went wrong.
        rto_min: Span::from_millis(400),
        ..EngineConfig::default()
    };
    Network::new(seed, [config.clone(), config])
}

/// Writes from host 0 to host 1 on every queue pair of `qpns`, four messages at a time on each,
/// while `meanwhile` happens in each turn. The time that it took.
fn transfer(network: &mut Network, qpns: &[u32], mut meanwhile: impl FnMut(&mut Network)) -> Span {
    let start = network.now;
    let rkey = network.hosts[1].keys.rkey;
    let mut posted = vec![0; qpns.len()];
    let of = |network: &Network, n: usize| {
        let all = &network.hosts[0].completions;
        all.iter().filter(|it| it.wr_id >> 32 == n as u64).count() as u64
    };
    network.hosts[0].completions.clear();
    let done = network.run(Span::from_secs(20), |network| {
        for (n, qpn) in qpns.iter().enumerate() {
            while posted[n] < MESSAGES && posted[n] < of(network, n) + 4 {
                let mut write = network.hosts[0].send((n as u64) << 32 | posted[n], 0, BYTES);
                write.opcode = SendOpcode::RdmaWrite;
                write.rkey = rkey;
                let engine = &mut network.hosts[0].engine;
                engine.post_send(*qpn, write).expect("room");
                posted[n] += 1;
            }
        }
        meanwhile(network);
        (0..qpns.len()).all(|n| of(network, n) == MESSAGES)
    });
    let all = &network.hosts[0].completions;
    assert!(done, "{} of {} messages", all.len(), MESSAGES);
    assert!(all.iter().all(|it| it.status == Status::Success));
    network.now.since(start)
}

fn counters(network: &Network, host: usize, qpn: u32) -> QueuePairCounters {
    let statistics = network.hosts[host].engine.queue_pair_statistics(qpn);
    statistics.expect("exists").counters
}

/// An acknowledgement to host 0 that would be right if its parts were.
fn acknowledgement(network: &Network, qpn: u32, psn: u32, sack: Sack, path: u8) -> Vec<u8> {
    let opcode = Opcode::Multipath(Operation::Acknowledge);
    let mut headers = Headers::new(Bth::new(opcode, qpn, psn & 0xff_ffff));
    headers.mpeh = Some(Mpeh {
        path,
        ..Mpeh::default()
    });
    headers.extension = Some(Extension::new(COOKIES[0]));
    headers.aeth = Some(Aeth {
        kind: AckKind::Ack { credits: 31 },
        msn: 0,
    });
    headers.sack = Some(sack);
    sealed(network, 0, &headers, b"")
}

/// HT-42, HT-43: marks of packets in which each field is wrong in turn, about packets that were
/// never sent, that are long acknowledged, and on paths that nobody announced, beside a transfer:
/// nothing is retransmitted for them but what is under way and called trimmed, once a copy, and
/// everything arrives. The neighbour notices nothing.
#[test]
fn wrong_marks_cost_little() {
    for congestion in ALGORITHMS {
        let mut network = network(41, congestion);
        let bytes = network.fill(0);
        let multipath = Some(MultipathConfig::default());
        let pairs = [network.connected(multipath), network.connected(multipath)];
        let qpns = pairs.map(|[sender, _]| sender);
        let mut random = Pcg64Mcg::new(41);
        let mut forged = 0;
        network.tap = Some(Vec::new());
        let mut newest = 0xff_ffef_u32;
        transfer(&mut network, &qpns, |network| {
            for frame in network.tap.replace(Vec::new()).expect("was set") {
                let (headers, _) = Headers::parse(&frame[BTH..]).expect("a packet");
                if headers.bth.dest_qp == pairs[0][1] {
                    newest = headers.bth.psn;
                }
            }
            let draw = random.next_u64();
            let near = u32::try_from(draw & 0x3ff).expect("small");
            let all = random.next_u64();
            let wide = u128::from(all) << (draw >> 10 & 63);
            // Each has one thing that is wrong; what it acknowledges, nothing, is not.
            let mut marks = Marks::default();
            match draw >> 16 & 7 {
                // Never sent, or so long ago that the number is another packet's.
                0 => marks.base = newest.wrapping_add(1 + near) & 0xff_ffff,
                1 => marks.base = newest.wrapping_sub(512 + MARK_BITS + near) & 0xff_ffff,
                2 => marks.base = u32::try_from(all & 0xff_ffff).expect("24 bits"),
                3 => marks.crowd = Crowd::from_code(draw.to_be_bytes()[0]),
                // Under way: forged trims and marks that hit.
                4 => marks.base = newest.wrapping_sub(64) & 0xff_ffff,
                _ => marks.base = newest.wrapping_sub(near) & 0xff_ffff,
            }
            (marks.marked, marks.trimmed) = (wide, wide.rotate_left(7) & !wide);
            if draw >> 24 & 7 != 0 {
                // Mostly without trims: those cost something.
                marks.trimmed = 0;
            }
            let sack = Sack {
                trigger: newest.wrapping_sub(300) & 0xff_ffff,
                marks: Some(marks),
                ..Sack::default()
            };
            let frame = acknowledgement(
                network,
                qpns[0],
                newest.wrapping_sub(300),
                sack,
                draw.to_be_bytes()[1],
            );
            network.inject(0, &frame);
            forged += 1;
        });
        let [hit, neighbour] = qpns.map(|qpn| counters(&network, 0, qpn));
        println!("{congestion:?}: {forged} forged, {hit:#?}");
        assert!(forged > 1_000 && hit.rx_acks > forged / 2, "{forged}");
        assert_eq!(neighbour.retransmits + neighbour.timeouts, 0);
        // What comes before it is sent again need not be.
        let called = hit.rx_trims;
        assert!(hit.retransmits <= called, "only what was called trimmed");
        assert_eq!(hit.timeouts, 0);
        let received = counters(&network, 1, pairs[0][1]);
        assert_eq!(received.rx_bytes, MESSAGES * u64::from(BYTES));
        let memory = network.hosts[1].memory.to_vec();
        assert_eq!(memory[..BYTES as usize], bytes[..BYTES as usize]);
        network.close();
    }
}

/// HT-43: acknowledgements that come again, the newest first and up to 50 times, say nothing new:
/// they are taken for overtaken ones, nothing is sent again, and no controller slows down.
#[test]
fn acknowledgements_that_go_backwards_change_nothing() {
    for congestion in ALGORITHMS {
        let run = |again: bool| {
            let mut network = network(42, congestion);
            // Bitmaps that say something.
            network.impairment.jitter = Span::from_micros(10);
            let [sender, _] = network.connected(Some(MultipathConfig::default()));
            network.tap = Some(Vec::new());
            let mut old: Vec<Vec<u8>> = Vec::new();
            let mut repeated = 0_u64;
            let took = transfer(&mut network, &[sender], |network| {
                for frame in network.tap.replace(Vec::new()).expect("was set") {
                    let (headers, _) = Headers::parse(&frame[BTH..]).expect("a packet");
                    if headers.sack.is_some() {
                        old.push(frame);
                    }
                }
                // The newest ones are still under way.
                let known = old.len().saturating_sub(40);
                for frame in old[..known].iter().rev().take(if again { 50 } else { 0 }) {
                    network.inject(0, frame);
                    repeated += 1;
                }
            });
            let counted = counters(&network, 0, sender);
            network.close();
            (took, counted, repeated)
        };
        let (clean, before, _) = run(false);
        let (took, counted, repeated) = run(true);
        println!("{congestion:?}: {clean}, {took} with {repeated} repeated");
        assert!(repeated > 10_000, "{repeated}");
        assert_eq!(counted.retransmits, before.retransmits);
        assert_eq!(counted.timeouts, 0);
        assert!(
            took <= clean.times(6).divided_by(5),
            "{took}, {clean} without"
        );
    }
}

/// CC-1, CC-7, CC-8: somebody on the way marks every packet, and floods both sides with CNPs, ten
/// in each turn. With each algorithm the transfer ends without a time-out or a retransmission; CNPs
/// for a connection with multipath are counted as what has no place there. A neighbour that is not
/// marked is as fast as it was without that.
#[test]
fn forged_congestion_slows_and_ends_nothing() {
    for congestion in ALGORITHMS {
        let run = |forged: bool| {
            let mut network = network(43, congestion);
            network.impairment.marks = if forged { 1_000 } else { 0 };
            let multipath = Some(MultipathConfig::default());
            let [sender, receiver] = network.connected(multipath);
            let took = transfer(&mut network, &[sender], |network| {
                for (host, qpn) in [(0, sender), (1, receiver)] {
                    let cnp = sealed(network, host, &Headers::cnp(qpn), b"");
                    (0..if forged { 10 } else { 0 }).for_each(|_| network.inject(host, &cnp));
                }
            });
            let counted = counters(&network, 0, sender);
            assert_eq!(counted.retransmits + counted.timeouts, 0, "{congestion:?}");
            let drops = &network.hosts[0].engine.statistics().drops;
            let refused = drops.get(DropReason::UnknownOpcode);
            assert_eq!(refused > 1_000, forged, "{refused} CNPs");
            assert_eq!(counted.rx_cnps, 0);
            network.impairment.marks = 0;
            let [neighbour, _] = network.connected(multipath);
            let beside = transfer(&mut network, &[neighbour], |_| ());
            network.close();
            (took, beside)
        };
        let (clean, beside) = run(false);
        let (took, still) = run(true);
        println!("{congestion:?}: {clean}, {took} forged; its neighbour {beside}, {still}");
        assert!(
            still <= beside.times(11).divided_by(10),
            "{still}, {beside}"
        );
    }
}

/// HT-20: the offer of a REQ or a REP cut short by 1 to 24 bytes, at its end or in front, is no
/// offer: the connection is plain, and carries data. The application gets the whole field then.
#[test]
fn offers_that_are_cut_short_are_none() {
    for (host, front) in [(0, false), (0, true), (1, false), (1, true)] {
        for cut in 0..=24 {
            let mut network = Network::new(44, both());
            let bytes = network.fill(0);
            let qpns = connect_through(&mut network, host, |private| {
                let from = private.len() - 24;
                let offer = private[from..].to_vec();
                private[from..].fill(0);
                if front {
                    // What is left stands where it stood.
                    private[from + cut..].copy_from_slice(&offer[cut..]);
                } else {
                    let end = private.len();
                    private[from + cut..end].copy_from_slice(&offer[..24 - cut]);
                }
            });
            let statistics = [0, 1].map(|host: usize| {
                let engine = &network.hosts[host].engine;
                engine.queue_pair_statistics(qpns[host]).expect("exists")
            });
            let what = format!("host {host}, front {front}, {cut} bytes cut");
            // A passive side whose REP is spoiled believes in what it sent.
            let judge = if host == 0 { 1 } else { 0 };
            assert_eq!(statistics[judge].agreed.is_some(), cut == 0, "{what}");
            if host == 1 && cut > 0 {
                continue;
            }
            network.hosts[1].receive_into(qpns[1], 1, 0, 100_000);
            let send = network.hosts[0].send(1, 0, 90_000);
            let posted = network.hosts[0].engine.post_send(qpns[0], send);
            posted.expect("room");
            let done = network.run(Span::from_millis(50), |network| {
                network.hosts[1].completions.len() == 1
            });
            assert!(done, "{what}");
            assert_eq!(network.hosts[1].memory.to_vec()[..90_000], bytes[..90_000]);
            network.close();
        }
    }
}

/// Connects host 0 to host 1 over a way on which the private data of `host`'s message is spoiled.
fn connect_through(network: &mut Network, host: usize, spoil: impl Fn(&mut [u8])) -> [u32; 2] {
    network.tap = Some(Vec::new());
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    network.hosts[1].engine.listen(PORT).expect("free");
    let peer = network.hosts[1].address;
    let begun = network.hosts[0]
        .engine
        .connect(qpns[0], peer, PORT, &parameters(b"hello"));
    begun.expect("legal");
    // What leaves host `host` arrives as this function says only.
    network.impairment.dead[host] = true;
    let mut accepted = false;
    let done = network.run(Span::from_secs(5), |network| {
        for frame in network.tap.replace(Vec::new()).expect("was set") {
            let Some((source, destination, mut mad)) = read(&frame) else {
                continue;
            };
            if source != network.hosts[host].address {
                continue;
            }
            match &mut mad.message {
                Message::Req(req) => spoil(&mut req.private),
                Message::Rep(rep) => spoil(&mut rep.private),
                _ => {}
            }
            network.inject(1 - host, &message_frame(source, destination, &mad));
        }
        if let (false, Some((connection, _))) = (accepted, request(network, 1)) {
            let engine = &mut network.hosts[1].engine;
            let taken = engine.accept(connection, qpns[1], &parameters(b""));
            taken.expect("legal");
            accepted = true;
        }
        established(network, 0).is_some() && established(network, 1).is_some()
    });
    assert!(done, "{:?}", network.hosts[0].events);
    network.impairment.dead = [false; 2];
    network.tap = None;
    qpns
}
