//! Packets that look trimmed, in any way, between others that are whole, against a queue pair with
//! multipath and a plain one.
//!
//! Nothing vouches for a trimmed packet: whatever it says, no memory changes, nothing completes,
//! and it is reported once at most.

use super::feedback::relabel;
use super::program::Program;
use super::victim::{BTH, COOKIE, FIRST, MTU, PEER, Victim, frame_of_peer};
use common::time::Span;
use common::wire::roce::opcode::OPERATIONS;
use common::wire::roce::{
    AckKind, Aeth, AtomicEth, Bth, Cookie, Extension, Headers, Mpeh, Opcode, Operation, PSN_MASK,
    Reth, Sack,
};
use hostd::stats::EngineStatistics;
use hostd::verbs::{EngineConfig, MultipathConfig};

/// Numbers of the peer's queue pairs; the second one is plain.
const PEERS: [u32; 2] = [0x2345, 0x2346];

/// DSCP and ECN of a trimmed packet, as the shipped configuration of switches has it.
const TRIMMED: u8 = 42 << 2 | 2;

/// What the payload of packets is full of that are not whole.
const FORGED: u8 = 0xee;

struct Forger {
    victim: Victim,
    next: [u32; 2],
    last: Vec<u8>,
    /// Packets that were given to the engine, and trims that it reported.
    given: u64,
    reported: u64,
}

/// See the module.
pub(super) fn packets(input: &[u8]) {
    play(input);
}

/// The same; what the engine counted.
fn play(input: &[u8]) -> EngineStatistics {
    let mut program = Program::new(input);
    let config = EngineConfig {
        trimmed: 1 << 42 | u64::from(program.u8()) << 48,
        ..EngineConfig::default()
    };
    let mut victim = Victim::with(config, 2);
    victim.set_route(PEER.into());
    victim.connect(0, PEERS[0], Some(MultipathConfig::default()));
    victim.connect(1, PEERS[1], None);
    let mut forger = Forger {
        victim,
        next: [FIRST; 2],
        last: Vec::new(),
        given: 0,
        reported: 0,
    };
    while !program.is_over() {
        forger.step(&mut program);
        forger.listen();
    }
    forger.victim.settle(|_, _| ());
    let memory = forger.victim.memory.to_vec();
    assert!(!memory.contains(&FORGED), "what is not whole was written");
    let counted = forger.victim.close();
    assert!(forger.reported <= forger.given, "reported more than once");
    counted
}

impl Forger {
    fn step(&mut self, program: &mut Program<'_>) {
        let byte = program.u8();
        let index = usize::from(byte >> 7);
        match byte & 0x0f {
            0..=7 => self.trimmed(index, program),
            8 | 9 => self.whole(index, program.u8()),
            10 => self.victim.now += Span::from_micros(program.u16().into()),
            11 => self.victim.now += Span::from_millis(program.u8().into()),
            12 => {
                let last = std::mem::take(&mut self.last);
                self.give(&last);
                self.last = last;
            }
            13 => (0..4).for_each(|n| self.victim.post_receive(index, n * 1024, 1024)),
            _ => {
                let at = usize::from(program.u8());
                let bytes = program.block();
                let mut frame = self.last.clone();
                for (place, byte) in frame.iter_mut().skip(14 + at).zip(bytes) {
                    *place = *byte;
                }
                self.give(&frame);
            }
        }
    }

    fn give(&mut self, frame: &[u8]) {
        self.given += 1;
        self.victim.receive(frame);
    }

    /// A packet without a checksum that holds, or without much of anything.
    fn trimmed(&mut self, index: usize, program: &mut Program<'_>) {
        let (how, shift, left) = (program.u8(), program.u8(), program.u8());
        let operation = OPERATIONS[usize::from(program.u8()) % OPERATIONS.len()];
        let psn = self.next[index].wrapping_add(i32::from(shift.cast_signed()).cast_unsigned());
        let mut headers = self.headers(index, operation, psn & PSN_MASK);
        if how & 1 != 0 {
            headers.mpeh = headers.mpeh.map(|mpeh| Mpeh {
                path: program.u8(),
                flags: program.u8() & 0x0f,
                ..mpeh
            });
        }
        if how & 2 != 0 {
            let wrong = Extension::new(Cookie::new(u64::from(program.u8())));
            headers.extension = headers.extension.map(|_| wrong);
        }
        let class = match how & 4 {
            0 => TRIMMED,
            _ => program.u8(),
        };
        let whole = headers.len();
        let payload = if operation.has_payload() {
            usize::from(MTU)
        } else {
            0
        };
        let mut frame = frame_of_peer(&headers, payload, class);
        let end = (BTH + whole).min(frame.len());
        frame[end..].fill(FORGED);
        // Zero keeps the whole length; otherwise it is cut, in the headers or behind them.
        if left != 0 {
            let keep = if how & 8 == 0 {
                BTH + whole + usize::from(left)
            } else {
                14 + usize::from(left)
            };
            frame.truncate(keep.max(BTH));
        }
        if how & 16 == 0 {
            relabel(&mut frame);
        }
        self.give(&frame);
        self.last = frame;
    }

    /// A WRITE that arrives as it was sent.
    fn whole(&mut self, index: usize, how: u8) {
        let psn = self.next[index].wrapping_add(u32::from(how & 7)) & PSN_MASK;
        if how & 7 == 0 {
            self.next[index] = psn.wrapping_add(1) & PSN_MASK;
        }
        let headers = self.headers(index, Operation::WriteOnly, psn);
        // Packets that were short enough keep their checksum when they are trimmed.
        let class = if how & 8 == 0 { 2 } else { TRIMMED };
        let frame = frame_of_peer(&headers, usize::from(MTU), class);
        self.give(&frame);
    }

    fn headers(&self, index: usize, operation: Operation, psn: u32) -> Headers {
        let opcode = match index {
            0 => Opcode::Multipath(operation),
            _ => Opcode::Rc(operation),
        };
        let mut headers = Headers::new(Bth::new(opcode, self.victim.pairs[index].qpn, psn));
        if index == 0 {
            headers.mpeh = Some(Mpeh::default());
            headers.extension = Some(Extension::new(COOKIE));
        }
        let (address, rkey) = (0, self.victim.keys.rkey);
        headers.reth = operation.has_reth().then_some(Reth {
            address,
            rkey,
            len: MTU.into(),
        });
        headers.atomic = operation.has_atomic().then_some(AtomicEth {
            address,
            rkey,
            swap_or_add: u64::from(FORGED),
            compare: 0,
        });
        headers.aeth = operation.has_aeth().then_some(Aeth {
            kind: AckKind::Ack { credits: 31 },
            msn: 0,
        });
        headers.sack = (operation == Operation::Acknowledge && index == 0).then(Sack::default);
        headers.atomic_original = Some(0);
        headers.immediate = operation.has_immediate().then_some(1);
        headers.invalidate = operation.has_invalidate().then_some(self.victim.keys.rkey);
        headers
    }

    /// What the engine says of trims.
    fn listen(&mut self) {
        for frame in self.victim.transmit() {
            let (headers, _) = Headers::parse(&frame[BTH..]).expect("checked");
            if let Some(marks) = headers.sack.and_then(|sack| sack.marks) {
                assert_eq!(
                    headers.bth.dest_qp, PEERS[0],
                    "a plain peer is told nothing"
                );
                self.reported += u64::from(marks.trimmed.count_ones());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::victim::reached;
    use super::*;
    use hostd::verbs::DropReason;

    /// HT-42: the corpus has trims that are reported, and reaches each reason not to.
    #[test]
    fn the_corpus_reaches_trims() {
        let all = reached("host_trims", play);
        let dropped = |reason| all.iter().map(|it| it.drops.get(reason)).sum::<u64>();
        for reason in [
            DropReason::Trimmed,
            DropReason::BadIcrc,
            DropReason::WrongCookie,
            DropReason::MalformedTransport,
            DropReason::MalformedHeaders,
        ] {
            assert!(dropped(reason) > 0, "{reason:?}");
        }
        assert!(all.iter().any(|it| it.delivered > 0));
    }
}
