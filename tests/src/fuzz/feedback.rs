//! Any acknowledgements with selective bitmaps and marks of packets, in any order, against queue
//! pairs that send with any algorithm of congestion control and of spraying.
//!
//! The first byte chooses the algorithms. A step is a byte, with arguments behind it. Fields count
//! from what the engine sent, so that an input reaches what lies behind the checks: packets that
//! were never sent, numbers that go backwards, marks and trims of what has long come, crowds,
//! answers to probes of the round trip that are late or are of others.

use super::attack::kind_of;
use super::program::Program;
use super::victim::{BTH, COOKIE, FILL, FIRST, MTU, PEER, Victim, frame_of_peer};
use common::time::Span;
use common::wire::csig::{Form, Tag};
use common::wire::roce::frame::seal;
use common::wire::roce::{
    AckKind, Aeth, Bth, Change, Crowd, Extension, Headers, Marks, Mpeh, Opcode, Operation,
    PSN_MASK, Reflection, Reth, Sack, Utilisation,
};
use hostd::config::{Csig, Int};
use hostd::stats::{EngineStatistics, QueuePairCounters};
use hostd::verbs::{
    Congestion, CongestionScope, EngineConfig, MultipathConfig, SendOpcode, SendRequest, Spraying,
};

/// Numbers of the peer's queue pairs: the second one understands no marks.
const PEERS: [u32; 2] = [0x2345, 0x2346];

/// Acknowledgements that may come once more.
const HISTORY: usize = 8;

/// By number: what seeds name. New ones go to the end.
const CONGESTION: [Congestion; 11] = [
    Congestion::Fixed,
    Congestion::Nscc,
    Congestion::Swift,
    Congestion::Dctcp,
    Congestion::Dcqcn,
    Congestion::SwiftCsig,
    Congestion::Poseidon,
    Congestion::Timely,
    Congestion::Hpcc,
    Congestion::Rttcc,
    Congestion::Auto,
];

const SPRAYING: [Spraying; 4] = [
    Spraying::Oblivious,
    Spraying::Bitmap,
    Spraying::Recycling,
    Spraying::Combined,
];

struct Peer {
    victim: Victim,
    /// Acknowledgements speak of congestion signals.
    signals: bool,
    /// They speak of telemetry.
    telemetry: bool,
    /// Newest PSN that each queue pair sent.
    newest: [u32; 2],
    /// PSN of the peer's own next packet.
    next: [u32; 2],
    /// Data packets that each queue pair sent.
    sent: [u64; 2],
    history: Vec<Vec<u8>>,
    /// Path and serial of the last probe of the round trip that each queue pair sent.
    probes: [Option<(u8, u16)>; 2],
    /// Congestion control went by what the network tells.
    guided: bool,
}

/// What an input did.
#[cfg_attr(not(test), expect(dead_code, reason = "tests look at it"))]
struct Played {
    engine: EngineStatistics,
    /// Of the first queue pair.
    pair: QueuePairCounters,
    guided: bool,
    congestion: Congestion,
}

/// The blocks of an acknowledgement by themselves: what is read is written again as it was, and a
/// cut one is refused.
pub(super) fn blocks(input: &[u8]) {
    if let Ok((extension, len)) = Extension::parse(input) {
        assert!((Extension::LEN..=Extension::LEN_MAX).contains(&len) && len.is_multiple_of(4));
        assert_eq!(Extension::announced_len(input), len);
        let mut again = [0; Extension::LEN_MAX];
        extension.emit(&mut again);
        let known = Extension::announced_len(&again);
        assert!(known <= len);
        assert_eq!(Extension::parse(&again), Ok((extension, known)));
        assert!(Extension::parse(&input[..len - 1]).is_err());
    }
    let Ok(sack) = Sack::parse(input) else { return };
    let mut again = vec![0; sack.len()];
    sack.emit(&mut again);
    assert_eq!(again, input[..sack.len()]);
    assert!(Sack::parse(&again[..sack.len() - 1]).is_err());
    assert_eq!(sack.highest().is_none(), sack.is_empty());
    assert!(sack.highest().is_none_or(|offset| sack.has(offset)));
    if let Some(marks) = sack.marks {
        let named: u128 = (0..128).fold(0, |all, n| all | marks.bit(marks.base.wrapping_add(n)));
        assert_eq!(named, u128::MAX, "each bit has a packet");
        assert_eq!(marks.bit(marks.base.wrapping_sub(1)), 0);
        let told = marks.crowd.count().map(Crowd::new);
        assert!(told.is_none_or(|told| told.code() <= marks.crowd.code()));
    }
}

/// See the module.
pub(super) fn acknowledgements(input: &[u8]) {
    play(input);
}

/// The same; what it did.
fn play(input: &[u8]) -> Played {
    let mut program = Program::new(input);
    let config = config(program.u8());
    let congestion = config.congestion;
    let (signals, telemetry) = (config.csig.is_some(), config.int.is_some());
    let mut victim = Victim::with(config, 2);
    victim.set_route(PEER.into());
    for (index, qpn) in PEERS.into_iter().enumerate() {
        let agreed = MultipathConfig {
            marks: index == 0,
            signals,
            telemetry,
            ..MultipathConfig::default()
        };
        victim.connect(index, qpn, Some(agreed));
    }
    let mut peer = Peer {
        victim,
        signals,
        telemetry,
        newest: [FIRST.wrapping_sub(1) & PSN_MASK; 2],
        next: [FIRST; 2],
        sent: [0; 2],
        history: Vec::new(),
        probes: [None; 2],
        guided: false,
    };
    while !program.is_over() {
        peer.step(&mut program);
        peer.listen();
    }
    let (pair, guided) = (peer.counters(), peer.guided);
    peer.victim.settle(|_, _| ());
    peer.victim.all_ended();
    Played {
        engine: peer.victim.close(),
        pair,
        guided,
        congestion,
    }
}

fn config(byte: u8) -> EngineConfig {
    let congestion = CONGESTION[usize::from(byte & 0x0f) % CONGESTION.len()];
    let per_path = congestion.may_be_of_a_path() && byte & 0x40 != 0;
    let is_hpcc = congestion == Congestion::Hpcc;
    let csig = Csig {
        enabled: !is_hpcc && congestion.missing(None, None).is_some(),
        ..Csig::default()
    };
    let int = Int {
        enabled: is_hpcc,
        ..Int::default()
    };
    EngineConfig {
        congestion,
        congestion_scope: if per_path {
            CongestionScope::Path
        } else {
            CongestionScope::Connection
        },
        csig: csig.signalling(),
        int: int.terms(),
        spraying: SPRAYING[usize::from(byte >> 4 & 3)],
        // A round trip is known before one is measured, or it is not.
        base_rtt: if byte & 0x80 != 0 {
            Span::from_micros(20)
        } else {
            Span::ZERO
        },
        ..EngineConfig::default()
    }
}

/// Any tag of any path, in both forms, or none.
fn reflection(program: &mut Program<'_>) -> Reflection {
    let how = program.u8();
    let (form, value) = match how & 0x10 {
        0 => (Form::Compact, u32::from(program.u8() & 0x1f)),
        _ => (Form::Expanded, u32::from(program.u16()) << 4),
    };
    let tag = Tag {
        kind: how >> 5 & 3,
        value,
        locator: 1,
        is_final: false,
        reserved: 0,
    };
    Reflection {
        path: how & 0x0f,
        tag: (how & 0x80 == 0).then_some((form, tag)),
    }
}

/// Anything that can be said of the worst link of a path.
fn utilisation(program: &mut Program<'_>) -> Utilisation {
    let bytes: [u8; Utilisation::LEN] = std::array::from_fn(|_| program.u8());
    Utilisation::parse(&bytes).expect("long enough")
}

impl Peer {
    fn step(&mut self, program: &mut Program<'_>) {
        let byte = program.u8();
        let index = usize::from(byte >> 7);
        match byte & 0x0f {
            0..=5 => self.acknowledge(index, program),
            6 => self.victim.now += Span::from_micros(program.u8().into()),
            7 => self.victim.now += Span::from_millis(program.u8().into()),
            8 | 9 => self.post(index, program.u16()),
            // What came before comes again: everything in it goes backwards.
            10 | 11 => {
                if let Some(last) = self.history.len().checked_sub(1) {
                    let frame = self.history[last - usize::from(program.u8()) % (last + 1)].clone();
                    self.victim.receive(&frame);
                }
            }
            12 => {
                let (at, flip) = (usize::from(program.u8()), program.u8());
                let Some(mut frame) = self.history.last().cloned() else {
                    return;
                };
                if let Some(byte) = frame.get_mut(BTH + at) {
                    *byte ^= flip;
                }
                let _ = seal(&mut frame);
                self.victim.receive(&frame);
            }
            13 => {
                for _ in 0..program.u8() {
                    let cnp = Headers::cnp(self.victim.pairs[index].qpn);
                    self.victim.receive(&frame_of_peer(&cnp, 0, 2));
                }
            }
            14 => self.write(index, program.u8()),
            15 if byte & 0x10 != 0 => self.answer(index, program.u8()),
            _ => (0..4).for_each(|n| self.victim.post_receive(index, n * 1024, 1024)),
        }
        let counters = self.counters();
        assert!(
            counters.rx_trims <= self.sent[0],
            "a copy was told of twice"
        );
    }

    fn counters(&mut self) -> QueuePairCounters {
        let qpn = self.victim.pairs[0].qpn;
        let statistics = self.victim.engine.queue_pair_statistics(qpn);
        let statistics = statistics.expect("exists");
        self.guided |= statistics.guided == Some(true);
        statistics.counters
    }

    /// An answer to the last probe of the round trip; `how`: to one with a later serial, or of
    /// another path.
    fn answer(&mut self, index: usize, how: u8) {
        let Some((path, serial)) = self.probes[index] else {
            return;
        };
        let (path, serial) = (path ^ how >> 4, serial.wrapping_add((how & 0x0f).into()));
        let psn = self.next[index].wrapping_sub(1) & PSN_MASK;
        let opcode = Opcode::Multipath(Operation::WriteOnly);
        let mut headers = Headers::new(Bth::new(opcode, self.victim.pairs[index].qpn, psn));
        headers.mpeh = Some(Mpeh {
            path,
            ..Mpeh::default()
        });
        let answered = Change::ProbeAnswered { path, serial };
        headers.extension = Some(Extension::new(COOKIE).with_change(answered));
        headers.reth = Some(Reth {
            address: 0,
            rkey: 0,
            len: 0,
        });
        self.victim.receive(&frame_of_peer(&headers, 0, 2));
    }

    fn post(&mut self, index: usize, len: u16) {
        let request = SendRequest {
            opcode: if len & 0x8000 == 0 {
                SendOpcode::RdmaWrite
            } else {
                SendOpcode::Send
            },
            lkey: self.victim.keys.lkey,
            len: u32::from(len & 0x3fff),
            remote_addr: 0x1000,
            rkey: 0x77,
            signaled: true,
            ..SendRequest::default()
        };
        self.victim.post_send(index, request);
    }

    /// A WRITE of the peer, with Congestion Experienced or without.
    fn write(&mut self, index: usize, how: u8) {
        let psn = self.next[index].wrapping_add(u32::from(how >> 4)) & PSN_MASK;
        if how >> 4 == 0 {
            self.next[index] = psn.wrapping_add(1) & PSN_MASK;
        }
        let opcode = Opcode::Multipath(Operation::WriteOnly);
        let mut headers = Headers::new(Bth::new(opcode, self.victim.pairs[index].qpn, psn));
        headers.mpeh = Some(Mpeh {
            path: how & 7,
            ..Mpeh::default()
        });
        headers.extension = Some(Extension::new(COOKIE));
        headers.reth = Some(Reth {
            address: 0,
            rkey: self.victim.keys.rkey,
            len: MTU.into(),
        });
        let class = if how & 8 == 0 { 2 } else { 3 };
        let frame = frame_of_peer(&headers, usize::from(MTU), class);
        self.victim.receive(&frame);
    }

    fn acknowledge(&mut self, index: usize, program: &mut Program<'_>) {
        let (how, back) = (program.u8(), program.u8());
        let newest = self.newest[index];
        let psn = newest.wrapping_sub(signed(back)) & PSN_MASK;
        let opcode = Opcode::Multipath(Operation::Acknowledge);
        let mut headers = Headers::new(Bth::new(opcode, self.victim.pairs[index].qpn, psn));
        let mut extension = Extension::new(COOKIE);
        if self.signals {
            extension.reflection = Some(reflection(program));
        }
        if self.telemetry {
            extension.utilisation = Some(utilisation(program));
        }
        headers.extension = Some(extension);
        let mut mpeh = Mpeh {
            path: how & 7,
            ..Mpeh::default()
        };
        if how & 0x08 != 0 {
            mpeh = Mpeh {
                path: program.u8(),
                flags: program.u8() & 0x0f,
                flowlet: program.u16(),
                tag: program.u16(),
            };
        }
        headers.mpeh = Some(mpeh);
        let kind = match how & 0x10 {
            0 => AckKind::Ack { credits: 31 },
            _ => kind_of(program.u8()),
        };
        headers.aeth = Some(Aeth { kind, msn: 0 });
        let mut sack = Sack {
            trigger: psn.wrapping_add(u32::from(program.u8() & 0x3f)) & PSN_MASK,
            ..Sack::default()
        };
        sack.bitmap[0] = u64::from(program.u16());
        if how & 0x20 != 0 {
            sack.trigger = newest.wrapping_sub(signed(program.u8())) & PSN_MASK;
            let word = program.u8();
            sack.bitmap[usize::from(word & 3)] |= u64::from(program.u16()) << (word >> 2 & 0x3f);
        }
        if how & 0x40 != 0 {
            let base = newest.wrapping_sub(signed(program.u8())) & PSN_MASK;
            let crowd = Crowd::from_code(program.u8());
            let (marked, trimmed) = (program.u16(), program.u16());
            let shift = u32::from(program.u8() & 0x7f);
            sack.marks = Some(Marks {
                base,
                crowd,
                marked: u128::from(marked) << shift,
                trimmed: u128::from(trimmed) << shift,
            });
        }
        headers.sack = Some(sack);
        let mut frame = frame_of_peer(&headers, 0, 2);
        if how & 0x80 != 0 {
            // More or less than the blocks take, with lengths that fit.
            let spare = usize::from(program.u8() % 96);
            frame = resized(&frame, spare);
        }
        self.victim.receive(&frame);
        if self.history.len() == HISTORY {
            self.history.remove(0);
        }
        self.history.push(frame);
    }

    /// What the engine sends.
    fn listen(&mut self) {
        for frame in self.victim.transmit() {
            let (headers, _) = Headers::parse(&frame[BTH..]).expect("checked");
            let Some(index) = PEERS.iter().position(|&qpn| qpn == headers.bth.dest_qp) else {
                continue;
            };
            let mpeh = headers.mpeh.expect("it is multipath");
            assert!(mpeh.path < 8, "path {} was never agreed on", mpeh.path);
            if let Some(change) = headers.extension.and_then(|it| it.change) {
                if let Change::Probe { path, serial } = change {
                    self.probes[index] = Some((path, serial));
                }
                continue;
            }
            if let Some(sack) = headers.sack {
                assert!(index == 0 || sack.marks.is_none(), "nobody asked for marks");
            } else if headers.bth.opcode != Opcode::Cnp {
                self.newest[index] = headers.bth.psn;
                self.sent[index] += 1;
            }
        }
    }
}

/// A byte with its sign, modulo 2³².
fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

/// The frame with its transport `spare` bytes shorter, or longer if that is above 47.
fn resized(frame: &[u8], spare: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame.resize(frame.len() + (spare % 48) * usize::from(spare >= 48), FILL);
    if spare < 48 {
        frame.truncate(frame.len().saturating_sub(spare).max(BTH + 16));
    }
    relabel(&mut frame);
    let _ = seal(&mut frame);
    frame
}

/// Makes the lengths of IPv4 and UDP those of the frame, and the header's checksum right.
pub(super) fn relabel(frame: &mut [u8]) {
    let len = |from: usize| {
        u16::try_from(frame.len() - from)
            .expect("a frame")
            .to_be_bytes()
    };
    let (ip, udp) = (len(14), len(34));
    frame[16..18].copy_from_slice(&ip);
    frame[38..40].copy_from_slice(&udp);
    frame[24..26].fill(0);
    let checksum = common::wire::checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::victim::reached;
    use super::*;
    use hostd::verbs::DropReason;

    /// HT-42, CC-1 to CC-8: the corpus reaches what acts on marks, trims and bitmaps, each
    /// algorithm with what it goes by, and the checks in front.
    #[test]
    fn the_corpus_reaches_congestion_control() {
        let all = reached("host_feedback", play);
        let sum = |of: fn(&Played) -> u64| all.iter().map(of).sum::<u64>();
        assert!(sum(|it| it.engine.acknowledgements) > 50);
        assert!(sum(|it| it.pair.rx_trims) > 10);
        assert!(sum(|it| it.pair.rx_signals) > 10);
        assert!(sum(|it| it.pair.rx_bad_signals) > 3);
        assert!(sum(|it| it.pair.round_trip_answers) > 3);
        assert!(sum(|it| it.pair.fast_retransmits) > 0);
        assert!(sum(|it| it.pair.tx_messages) > 5);
        for reason in [
            DropReason::ImpossibleAcknowledgement,
            DropReason::MalformedTransport,
            // Of a probe that was not sent.
            DropReason::UnexpectedChange,
            // CNPs have no place with multipath.
            DropReason::UnknownOpcode,
        ] {
            let reached = all.iter().any(|it| it.engine.drops.get(reason) > 0);
            assert!(reached, "{reason:?}");
        }
        for congestion in CONGESTION {
            let guided = matches!(
                congestion,
                Congestion::SwiftCsig | Congestion::Poseidon | Congestion::Hpcc | Congestion::Rttcc
            );
            let runs = all.iter().any(|it| {
                it.congestion == congestion
                    && it.engine.acknowledgements > 3
                    && it.pair.tx_messages > 0
                    && it.guided == guided
            });
            assert!(runs, "{congestion:?}");
        }
    }

    /// A seed that is named after an algorithm runs it.
    #[test]
    fn seeds_run_the_algorithms_that_they_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/host_feedback");
        let mut named = 0;
        for entry in std::fs::read_dir(folder).expect("the corpus") {
            let path = entry.expect("readable").path();
            let name = path.file_name().expect("a file").to_string_lossy();
            let wanted = name.split('_').next().expect("one part");
            let congestion = CONGESTION.iter().find(|it| it.name() == wanted);
            let Some(congestion) = congestion else {
                continue;
            };
            let seed = std::fs::read(&path).expect("readable");
            assert_eq!(config(seed[0]).congestion, *congestion, "{name}");
            named += 1;
        }
        assert!(named >= CONGESTION.len(), "{named}");
    }
}
