//! A plain peer of host 1, written from the standard (InfiniBand volume 1, 9.7) and not from hostd:
//! a responder that keeps nothing early, and a requester that goes back.

use crate::network::{Host, Network};
use common::time::{Span, Time};
use common::wire::Mac;
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{AckKind, Aeth, Bth, Flow, Headers, NakCode, Opcode, Operation};
use hostd::verbs::{EngineConfig, ReadyToReceive, ReadyToSend, Transition};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Number of the peer's queue pair.
const QPN: u32 = 0x4711;

/// First PSN of what host 1 sends.
pub(crate) const FIRST_OF_HOST: u32 = 0xff_fffa;

/// First PSN of what the peer sends.
pub(crate) const FIRST_OF_PEER: u32 = 0xff_fff0;

/// Payload bytes of a full packet.
pub(crate) const MTU: usize = 256;

/// Packets of the peer that are not acknowledged, at most.
const WINDOW: usize = 24;

const MASK: u32 = 0xff_ffff;

/// The code of the RNR timer that the peer asks for: 1.28 ms.
const RNR_TIMER: u8 = 14;

/// A frame of host 1 as the peer sees it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) headers: Headers,
    pub(crate) payload: Vec<u8>,
}

impl Seen {
    pub(crate) fn psn(&self) -> u32 {
        self.headers.bth.psn
    }

    pub(crate) fn kind(&self) -> Option<AckKind> {
        self.headers.aeth.map(|aeth| aeth.kind)
    }

    pub(crate) fn is_data(&self) -> bool {
        self.headers.aeth.is_none() && self.headers.bth.opcode != Opcode::Cnp
    }
}

/// Reads a frame of host 1, and checks that it is as the standard has it in each bit.
fn read(bytes: &[u8]) -> Seen {
    let bth = &bytes[42..54];
    let opcode = bth[0];
    assert!(opcode <= 0x17 || opcode == 0x81, "opcode {opcode:#x}");
    assert_eq!(bth[1] & 0x0f, 0, "transport version");
    // A ConnectX drops requests of a queue pair that claims to migrate.
    assert_eq!(bth[1] & 0x40 != 0, opcode != 0x81, "migrated");
    assert_eq!(bth[2..4], [0xff, 0xff], "partition");
    let becn = if opcode == 0x81 { 0x40 } else { 0 };
    assert_eq!(bth[4], becn, "FECN, BECN and reserved bits");
    assert_eq!(bth[5..8], QPN.to_be_bytes()[1..], "destination");
    assert_eq!(bth[8] & 0x7f, 0, "reserved bits");
    let (headers, payload) = Headers::parse(&bytes[42..]).expect("a packet");
    let mut again = bytes.to_vec();
    seal(&mut again).expect("a frame");
    assert_eq!(again, bytes, "ICRC");
    assert_eq!(headers.mpeh, None);
    Seen {
        headers,
        payload: bytes[42..][payload].to_vec(),
    }
}

/// See the module.
pub(crate) struct PlainPeer {
    pub(crate) network: Network,
    /// The queue pair of host 1.
    pub(crate) qpn: u32,
    addresses: Addresses,
    /// Traffic class of what the peer sends.
    pub(crate) traffic_class: u8,
    // Responder.
    expected: u32,
    msn: u32,
    told: bool,
    /// Receives that are posted; each message takes one.
    pub(crate) receives: u32,
    /// Tells host 1 how many there are.
    pub(crate) gives_credits: bool,
    message: Vec<u8>,
    pub(crate) messages: Vec<Vec<u8>>,
    // Requester.
    packets: Vec<(Operation, Vec<u8>)>,
    acknowledged: usize,
    sent: usize,
    quiet_until: Time,
    news: Time,
    /// Everything that host 1 sent.
    pub(crate) seen: Vec<Seen>,
}

impl PlainPeer {
    /// A peer that is connected with host 1 by hand.
    pub(crate) fn new(seed: u64, send: ReadyToSend) -> Self {
        Self::of(seed, send, EngineConfig::default())
    }

    /// The same, of a host 1 that behaves so.
    pub(crate) fn of(seed: u64, send: ReadyToSend, config: EngineConfig) -> Self {
        let mut network = Network::new(seed, [config.clone(), config]);
        network.tap = Some(Vec::new());
        network.impairment.dead = [true; 2];
        let qpn = network.hosts[1].queue_pair();
        let [peer, host] = [0, 1].map(|n: usize| network.hosts[n].address);
        let receive = ReadyToReceive {
            max_dest_rd_atomic: 16,
            destination: peer,
            destination_qpn: QPN,
            rq_psn: FIRST_OF_PEER,
            path_mtu: u16::try_from(MTU).expect("small"),
            min_rnr_timer: RNR_TIMER,
            multipath: None,
        };
        for transition in [
            Transition::ReadyToReceive(receive),
            Transition::ReadyToSend(send),
        ] {
            let engine = &mut network.hosts[1].engine;
            engine.modify_queue_pair(qpn, &transition).expect("legal");
        }
        Self {
            qpn,
            addresses: Addresses::new(peer, host).expect("one version"),
            traffic_class: 0b10,
            expected: send.sq_psn,
            msn: 0,
            told: false,
            receives: u32::MAX,
            gives_credits: false,
            message: Vec::new(),
            messages: Vec::new(),
            packets: Vec::new(),
            acknowledged: 0,
            sent: 0,
            quiet_until: Time::ZERO,
            news: network.now,
            seen: Vec::new(),
            network,
        }
    }

    pub(crate) fn host(&mut self) -> &mut Host {
        &mut self.network.hosts[1]
    }

    /// A frame to host 1.
    pub(crate) fn frame(&self, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let flow = Flow {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([2; 6]),
            addresses: self.addresses,
            src_port: 0xd123,
            flow_label: 0,
            traffic_class: self.traffic_class,
            ttl: 64,
        };
        let mut bytes = vec![0; layout(flow.addresses, headers, payload.len()).len];
        let place = emit(&mut bytes, &flow, headers, payload.len());
        bytes[place].copy_from_slice(payload);
        seal(&mut bytes).expect("a frame");
        bytes
    }

    /// A data packet to host 1, `n` after the first one.
    pub(crate) fn data(&self, operation: Operation, n: u32, ack: bool, payload: &[u8]) -> Vec<u8> {
        let psn = (FIRST_OF_PEER + n) & MASK;
        let mut bth = Bth::new(Opcode::Rc(operation), self.qpn, psn);
        bth.ack_request = ack;
        // As rdma_rxe sends it.
        bth.migrated = false;
        self.frame(&Headers::new(bth), payload)
    }

    /// An acknowledgement of any kind.
    pub(crate) fn answer(&self, kind: AckKind, psn: u32) -> Vec<u8> {
        let opcode = Opcode::Rc(Operation::Acknowledge);
        let mut headers = Headers::new(Bth::new(opcode, self.qpn, psn & MASK));
        headers.aeth = Some(Aeth {
            kind,
            msn: self.msn,
        });
        self.frame(&headers, &[])
    }

    /// Lets the host take a frame, and everything happen for `span`; what it sends meanwhile.
    pub(crate) fn after(&mut self, frame: &[u8], span: Span) -> Vec<Seen> {
        self.network.inject(1, frame);
        self.pass(span)
    }

    /// Lets everything happen for `span`; what the host sends meanwhile.
    pub(crate) fn pass(&mut self, span: Span) -> Vec<Seen> {
        self.network.pass(span);
        let frames = self.network.tap.as_mut().map(std::mem::take);
        let frames = frames.expect("was set");
        let seen: Vec<_> = frames.iter().map(|bytes| read(bytes)).collect();
        self.seen.extend_from_slice(&seen);
        seen
    }

    /// What the peer's responder answers.
    pub(crate) fn respond(&mut self, seen: &Seen) -> Option<Vec<u8>> {
        let credits = match self.gives_credits {
            true => Aeth::credit_code(self.receives + u32::from(!self.message.is_empty())),
            false => 31,
        };
        let ack = AckKind::Ack { credits };
        let bth = &seen.headers.bth;
        let operation = bth.opcode.operation().expect("a request");
        let ahead = bth.psn.wrapping_sub(self.expected) & MASK;
        if ahead >= 1 << 23 {
            return Some(self.answer(ack, self.expected.wrapping_sub(1)));
        }
        if ahead > 0 {
            let nak = AckKind::Nak(NakCode::PsnSequenceError);
            let first = !std::mem::replace(&mut self.told, true);
            return first.then(|| self.answer(nak, self.expected));
        }
        let begins = matches!(operation, Operation::SendFirst | Operation::SendOnly);
        if begins && self.receives == 0 {
            self.told = true;
            let kind = AckKind::ReceiverNotReady { timer: RNR_TIMER };
            return Some(self.answer(kind, self.expected));
        }
        self.told = false;
        self.receives -= u32::from(begins);
        assert!(operation.is_last() || seen.payload.len() == MTU);
        self.message.extend_from_slice(&seen.payload);
        self.expected = (self.expected + 1) & MASK;
        if operation.is_last() {
            self.msn += 1;
            let message = std::mem::take(&mut self.message);
            self.messages.push(message);
        }
        let credits = match self.gives_credits {
            true => Aeth::credit_code(self.receives + u32::from(!self.message.is_empty())),
            false => 31,
        };
        bth.ack_request
            .then(|| self.answer(AckKind::Ack { credits }, self.expected.wrapping_sub(1)))
    }

    /// Posts a SEND to the peer's own queue.
    pub(crate) fn post(&mut self, message: &[u8]) {
        use Operation as O;
        let parts: Vec<_> = message.chunks(MTU).collect();
        let count = parts.len().max(1);
        for n in 0..count {
            let operation = match (n == 0, n + 1 == count) {
                (true, true) => O::SendOnly,
                (true, false) => O::SendFirst,
                (false, true) => O::SendLast,
                (false, false) => O::SendMiddle,
            };
            let part = parts.get(n).map_or_else(Vec::new, |part| part.to_vec());
            self.packets.push((operation, part));
        }
    }

    /// Whether the host acknowledged everything that was posted.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.acknowledged == self.packets.len()
    }

    /// What the peer's requester sends now.
    fn request(&mut self) -> Vec<Vec<u8>> {
        let now = self.network.now;
        if now < self.quiet_until {
            return Vec::new();
        }
        if now.since(self.news) > Span::from_millis(5) {
            self.news = now;
            self.sent = self.acknowledged;
        }
        let end = (self.acknowledged + WINDOW).min(self.packets.len());
        let frames = (self.sent..end).map(|n| {
            let (operation, payload) = &self.packets[n];
            let ack = n + 1 == end || n % 8 == 7;
            self.data(*operation, u32::try_from(n).expect("few"), ack, payload)
        });
        let frames = frames.collect();
        self.sent = end;
        frames
    }

    /// Takes an acknowledgement of the host.
    fn acknowledged(&mut self, seen: &Seen) {
        let kind = seen.kind().expect("an answer");
        let acked = match kind {
            AckKind::Ack { .. } => seen.psn() + 1,
            AckKind::ReceiverNotReady { .. } | AckKind::Nak(_) => seen.psn(),
        };
        let acked = (acked.wrapping_sub(FIRST_OF_PEER) & MASK) as usize;
        if acked < self.acknowledged || acked > self.packets.len() {
            return;
        }
        if acked > self.acknowledged {
            self.news = self.network.now;
        }
        self.acknowledged = acked;
        self.sent = self.sent.max(acked);
        match kind {
            AckKind::Ack { .. } => {}
            AckKind::ReceiverNotReady { timer } => {
                self.sent = acked;
                let wait = Span::from_nanos(Aeth::rnr_nanos(timer));
                self.quiet_until = self.network.now + wait;
            }
            AckKind::Nak(code) => {
                assert_eq!(code, NakCode::PsnSequenceError);
                self.sent = acked;
            }
        }
    }

    /// Lets both sides do what they have to for `span`, over a network that loses, repeats and
    /// swaps `bad` of a thousand packets.
    pub(crate) fn talk(&mut self, span: Span, bad: u64, random: &mut Pcg64Mcg) {
        let end = self.network.now + span;
        while self.network.now < end {
            let mut answers = self.request();
            for seen in spoil(self.pass(Span::from_micros(10)), bad, random) {
                if seen.is_data() {
                    answers.extend(self.respond(&seen));
                } else {
                    self.acknowledged(&seen);
                }
            }
            for frame in spoil(answers, bad, random) {
                self.network.inject(1, &frame);
            }
        }
    }
}

/// Loses, repeats and swaps `bad` of a thousand packets each.
fn spoil<T: Clone>(packets: Vec<T>, bad: u64, random: &mut Pcg64Mcg) -> Vec<T> {
    let mut chance = || random.next_u64() % 1000 < bad;
    let mut out = Vec::new();
    for packet in packets {
        if chance() {
            continue;
        }
        if chance() {
            out.push(packet.clone());
        }
        out.push(packet);
        let len = out.len();
        if len > 1 && chance() {
            out.swap(len - 1, len - 2);
        }
    }
    out
}
