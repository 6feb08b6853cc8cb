//! Any series of well-formed packets, answers, time and requests against two connected queue pairs.
//!
//! A step is a byte, with arguments behind it. Headers are built field by field, so that an input
//! reaches what lies behind their checks: sequence numbers count from where both sides stand, keys
//! and addresses are right unless the input says otherwise.

use super::program::Program;
use super::victim::{BTH, COOKIE, FIRST, MEMORY, MTU, PEER, Victim, frame_of_peer};
use common::time::Span;
use common::wire::roce::frame::seal;
use common::wire::roce::opcode::OPERATIONS;
use common::wire::roce::{
    AckKind, Aeth, AtomicEth, Bth, Cookie, Extension, Headers, Mpeh, NakCode, Opcode, PSN_MASK,
    Reth, Sack,
};
use hostd::stats::EngineStatistics;
use hostd::verbs::{MultipathConfig, SendOpcode, SendRequest, Transition};

/// Numbers of the peer's queue pairs.
const PEERS: [u32; 2] = [0x2345, 0x2346];

/// What the peer knows of a queue pair.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// PSN of the packet that it sends next.
    next: u32,
    /// Newest PSN that the engine sent.
    newest: u32,
}

const FRESH: Standing = Standing {
    next: FIRST,
    newest: FIRST.wrapping_sub(1),
};

struct Attack {
    victim: Victim,
    standings: [Standing; 2],
    last: Vec<u8>,
}

/// See the module.
pub(super) fn packets(input: &[u8]) {
    play(input);
}

/// The same; what the engine counted, and how many windows were bound and keys taken back.
fn play(input: &[u8]) -> (EngineStatistics, [u64; 2]) {
    let mut victim = Victim::new(2);
    victim.set_route(PEER.into());
    let mut attack = Attack {
        victim,
        standings: [FRESH; 2],
        last: Vec::new(),
    };
    (0..2).for_each(|index| attack.connect(index));
    let mut program = Program::new(input);
    while !program.is_over() {
        attack.step(&mut program);
        attack.listen();
    }
    attack.victim.settle(|_, _| ());
    attack.victim.all_ended();
    let windows = attack.victim.windows;
    (attack.victim.close(), windows)
}

impl Attack {
    /// Brings a queue pair from INIT into RTS; the first one is multipath.
    fn connect(&mut self, index: usize) {
        self.standings[index] = FRESH;
        let multipath = (index == 0).then(MultipathConfig::default);
        self.victim.connect(index, PEERS[index], multipath);
    }

    fn step(&mut self, program: &mut Program<'_>) {
        let byte = program.u8();
        let index = usize::from(byte >> 7);
        match byte & 0x0f {
            0..=5 => self.packet(index, byte & 0x10 != 0, program),
            6 => self.victim.now += Span::from_micros(program.u16().into()),
            7 => self.victim.now += Span::from_millis(program.u8().into()),
            8 | 9 => self.post_send(index, program),
            10 => {
                let (addr, len) = (program.u8(), program.u16());
                self.victim.post_receive(index, addr.into(), len.into());
            }
            11 => {
                let last = std::mem::take(&mut self.last);
                self.victim.receive(&last);
                self.last = last;
            }
            12 => {
                let (at, value) = (usize::from(program.u16()), program.u8());
                let mut frame = self.last.clone();
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= value;
                }
                let _ = seal(&mut frame);
                self.victim.receive(&frame);
            }
            13 => {
                let frame = frame_of_peer(&Headers::cnp(self.victim.pairs[index].qpn), 0, 2);
                self.victim.receive(&frame);
            }
            14 => self.upset(index, program.u8()),
            _ => (0..8).for_each(|n| self.victim.post_receive(index, n * 1024, 1024)),
        }
    }

    /// What the application of the engine may do at any time.
    fn upset(&mut self, index: usize, how: u8) {
        match how % 4 {
            0 => {
                let qpn = self.victim.pairs[index].qpn;
                let engine = &mut self.victim.engine;
                let failed = engine.modify_queue_pair(qpn, &Transition::Error);
                failed.expect("from any state");
            }
            1 => {
                self.victim.reset(index);
                self.connect(index);
            }
            2 => {
                self.victim.replace(index);
                self.connect(index);
            }
            _ => self.victim.set_route(PEER.into()),
        }
    }

    fn post_send(&mut self, index: usize, program: &mut Program<'_>) {
        const OPCODES: [SendOpcode; 8] = [
            SendOpcode::Send,
            SendOpcode::SendWithImm,
            SendOpcode::RdmaWrite,
            SendOpcode::RdmaWriteWithImm,
            SendOpcode::RdmaRead,
            SendOpcode::RdmaRead,
            SendOpcode::AtomicCmpAndSwp,
            SendOpcode::AtomicFetchAndAdd,
        ];
        let (how, len, flags) = (program.u8(), program.u16(), program.u8());
        if how & 0x30 == 0x30 {
            return self.post_of_keys(index, how, len, flags);
        }
        let opcode = OPCODES[usize::from(how & 7)];
        let len = if opcode.is_atomic() { 8 } else { len % 0x3000 };
        let lkey = match flags & 0xc0 {
            0xc0 => 1,
            _ => self.victim.keys.lkey,
        };
        let request = SendRequest {
            opcode,
            lkey,
            addr: u64::from(flags & 7) * 8,
            len: len.into(),
            remote_addr: 0x1000,
            rkey: 0x77,
            imm: 5,
            signaled: true,
            solicited: flags & 8 != 0,
            fence: flags & 16 != 0,
            compare_add: u64::from(how),
            swap: if opcode == SendOpcode::AtomicCmpAndSwp {
                u64::from(flags)
            } else {
                0
            },
            ..SendRequest::default()
        };
        self.victim.post_send(index, request);
    }

    /// Binds the window, takes its key or another one back, or has the peer do so.
    fn post_of_keys(&mut self, index: usize, how: u8, len: u16, flags: u8) {
        let (window, key) = self.victim.window;
        let next = key & !0xff | key.wrapping_add(1) & 0xff;
        let key = if how & 0x40 == 0 {
            key
        } else {
            self.victim.keys.rkey
        };
        let (opcode, imm) = match how & 3 {
            0 => (SendOpcode::LocalInv, key),
            1 => (SendOpcode::SendWithInv, key),
            _ => (SendOpcode::BindMw, window),
        };
        let request = SendRequest {
            opcode,
            imm,
            signaled: true,
            ..SendRequest::default()
        };
        let request = match opcode {
            SendOpcode::LocalInv => request,
            SendOpcode::BindMw => SendRequest {
                lkey: self.victim.keys.lkey,
                addr: u64::from(flags) * 8,
                rkey: if how & 0x40 == 0 { next } else { key },
                compare_add: u64::from(how >> 2 & 0x3) << 1 | u64::from(flags & 0x20),
                swap: len.into(),
                ..request
            },
            _ => SendRequest {
                lkey: self.victim.keys.lkey,
                len: u32::from(len % 0x3000),
                ..request
            },
        };
        if opcode == SendOpcode::BindMw && how & 0x40 == 0 {
            self.victim.window.1 = request.rkey;
        }
        self.victim.post_send(index, request);
    }

    /// A packet of the peer. `answers`: its PSN counts from what the engine sent last, otherwise
    /// from what the peer sent.
    fn packet(&mut self, index: usize, answers: bool, program: &mut Program<'_>) {
        let operation = OPERATIONS[usize::from(program.u8()) % OPERATIONS.len()];
        let (flags, shift, size) = (program.u8(), program.u8(), program.u8());
        // The queue pair's own mode, unless the input insists.
        let multipath = (index == 0) != (flags & 0x80 != 0);
        let opcode = match multipath {
            true => Opcode::Multipath(operation),
            false => Opcode::Rc(operation),
        };
        let standing = &mut self.standings[index];
        let offset = i32::from(shift.cast_signed()).cast_unsigned();
        let psn = match answers {
            true => standing.newest.wrapping_sub(offset),
            false => standing.next.wrapping_add(offset),
        } & PSN_MASK;
        if !answers && flags & 1 == 0 {
            standing.next = psn.wrapping_add(1) & PSN_MASK;
        }
        let mut bth = Bth::new(opcode, self.victim.pairs[index].qpn, psn);
        bth.ack_request = flags & 2 == 0;
        bth.solicited = flags & 4 != 0;
        bth.fecn = flags & 8 != 0;
        let len = match size {
            0..=0x7f if !operation.has_payload() => 0,
            0..=0x3f => usize::from(size),
            0x40..=0xbf => usize::from(MTU),
            0xc0 => usize::from(MTU) + 1,
            0xc1 => usize::from(MTU) - 1,
            _ => usize::from(size) * 4,
        };
        let mut headers = Headers::new(bth);
        self.extend(&mut headers, psn, program);
        let frame = frame_of_peer(&headers, len, 2 | u8::from(headers.bth.fecn));
        self.victim.receive(&frame);
        self.last = frame;
    }

    /// Fills in all that follows the BTH; what the opcode does not have is left out later.
    fn extend(&self, headers: &mut Headers, psn: u32, program: &mut Program<'_>) {
        let Some(operation) = headers.bth.opcode.operation() else {
            return;
        };
        let multipath = headers.bth.opcode.is_multipath();
        if multipath {
            let wrong = headers.bth.solicited && headers.bth.fecn;
            let cookie = if wrong { Cookie::new(1) } else { COOKIE };
            headers.extension = Some(Extension::new(cookie));
            headers.mpeh = Some(Mpeh {
                path: program.u8(),
                flags: program.u8() & 0x0f,
                flowlet: program.u8().into(),
                tag: 0,
            });
        }
        if operation.has_reth() || operation.has_atomic() {
            let (address, rkey, len) = self.target(program);
            headers.reth = Some(Reth { address, rkey, len });
            headers.atomic = Some(AtomicEth {
                address,
                rkey,
                swap_or_add: len.into(),
                compare: 0,
            });
        }
        if operation.has_aeth() {
            let (kind, msn) = (program.u8(), program.u8());
            headers.aeth = Some(Aeth {
                kind: kind_of(kind),
                msn: msn.into(),
            });
            let mut sack = Sack {
                trigger: psn.wrapping_add(u32::from(msn)) & PSN_MASK,
                ..Sack::default()
            };
            if multipath {
                sack.bitmap[0] = u64::from(program.u16());
                sack.bitmap[usize::from(msn & 3)] |= u64::from(kind) << 56;
            }
            headers.sack = Some(sack);
        }
        headers.atomic_original = Some(psn.into());
        headers.immediate = Some(psn);
        headers.invalidate = Some(match psn & 1 {
            0 => self.victim.keys.rkey,
            _ => self.victim.window.1,
        });
    }

    /// Memory that a request names: address, key, length.
    fn target(&self, program: &mut Program<'_>) -> (u64, u32, u32) {
        let (which, address, len) = (program.u8(), program.u16(), program.u16());
        let rkey = match which & 7 {
            4 => self.victim.window.1,
            5 => self.victim.secret.rkey,
            6 => self.victim.secret.lkey,
            7 => u32::from(which),
            _ => self.victim.keys.rkey,
        };
        let address = match which >> 3 & 7 {
            5 => u64::from(MEMORY) - u64::from(address & 0xff),
            6 => u64::MAX - u64::from(address),
            7 => u64::from(address) << 16,
            // Mostly aligned, as atomic operations want it.
            _ => u64::from(address & 0x1fff) & !7,
        };
        let len = match which >> 6 {
            3 => u32::from(len) << 16,
            2 => u32::from(MTU) * u32::from(len & 7),
            _ => u32::from(len & 0x1fff),
        };
        (address, rkey, len)
    }

    /// What the engine sends: the peer learns how far it is.
    fn listen(&mut self) {
        for frame in self.victim.transmit() {
            let (headers, _) = Headers::parse(&frame[BTH..]).expect("checked");
            let bth = headers.bth;
            let answer = headers.aeth.is_some()
                || bth.opcode == Opcode::Cnp
                || bth.opcode.operation().is_none_or(|it| it.is_response());
            if let Some(index) = PEERS.iter().position(|&qpn| qpn == bth.dest_qp)
                && !answer
            {
                self.standings[index].newest = bth.psn;
            }
        }
    }
}

/// Any answer that there is.
pub(super) fn kind_of(byte: u8) -> AckKind {
    const CODES: [NakCode; 5] = [
        NakCode::PsnSequenceError,
        NakCode::InvalidRequest,
        NakCode::RemoteAccessError,
        NakCode::RemoteOperationalError,
        NakCode::InvalidRdRequest,
    ];
    let low = byte & 0x1f;
    match byte >> 5 {
        5 => AckKind::ReceiverNotReady { timer: low },
        6 | 7 => AckKind::Nak(CODES[usize::from(low) % CODES.len()]),
        4 => AckKind::Ack { credits: low },
        _ => AckKind::Ack { credits: 31 },
    }
}

#[cfg(test)]
mod tests {
    use super::super::victim::reached;
    use super::*;

    /// The corpus reaches what lies behind the checks of headers: messages are placed, READs and
    /// atomic operations answered, answers taken, and access is refused for its reasons.
    #[test]
    fn the_corpus_reaches_the_engine() {
        let (all, windows): (Vec<_>, Vec<_>) = reached("host_attack", play).into_iter().unzip();
        let of_windows = |n: usize| windows.iter().map(|it| it[n]).sum::<u64>();
        assert!(of_windows(0) > 0, "no window was bound");
        assert!(of_windows(1) > 0, "no key was taken back");
        let sum = |of: fn(&EngineStatistics) -> u64| all.iter().map(of).sum::<u64>();
        assert!(sum(|it| it.delivered) > 10);
        assert!(sum(|it| it.acknowledgements) > 5);
        assert!(sum(|it| it.duplicates) > 0);
        assert!(sum(|it| it.notifications) > 0);
        let mut reasons: Vec<_> = all
            .iter()
            .flat_map(|it| it.drops.iter())
            .filter(|(_, count)| *count > 0)
            .map(|(reason, _)| reason.label())
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        assert!(reasons.len() >= 4, "only {reasons:?}");
    }
}
