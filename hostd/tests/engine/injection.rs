//! Blind injection: an attacker who knows everything of a connection but its cookies.

use crate::network::{COOKIES, MEMORY, Network, cookie_of};
use crate::plain_peer::{FIRST_OF_HOST, PlainPeer};
use common::time::Span;
use common::wire::Mac;
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::opcode::OPERATIONS;
use common::wire::roce::{
    AckKind, Aeth, AtomicEth, Bth, Cookie, Extension, Flow, Headers, Mpeh, NakCode, Opcode,
    Operation, Reth, Sack,
};
use hostd::verbs::{
    DropReason, EngineConfig, MultipathConfig, ReadyToSend, SendOpcode, SendRequest, State, Status,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Frames of the attacker.
const FRAMES: u64 = 1_000_000;

/// How often the connection goes on between them.
const ROUNDS: u64 = 500;

/// First PSN of both directions.
const FIRST: u32 = 0xff_fff0;

const NAKS: [NakCode; 4] = [
    NakCode::PsnSequenceError,
    NakCode::InvalidRequest,
    NakCode::RemoteAccessError,
    NakCode::RemoteOperationalError,
];

/// A connection that carries messages of all kinds, both ways.
fn transfer(seed: u64) -> (Network, [u32; 2]) {
    let mut network = Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
    let qpns = network.connected(Some(MultipathConfig::default()));
    // Gaps are open most of the time.
    network.impairment.jitter = Span::from_micros(40);
    network.impairment.loss = 20;
    for (host, qpn) in qpns.into_iter().enumerate() {
        network.fill(host);
        for wr_id in 0..8 {
            network.hosts[host].receive_into(qpn, wr_id, 1 << 21, 100_000);
        }
        let rkey = network.hosts[1 - host].keys.rkey;
        let opcodes = [
            SendOpcode::Send,
            SendOpcode::RdmaWrite,
            SendOpcode::RdmaRead,
            SendOpcode::AtomicFetchAndAdd,
        ];
        for n in 0..32_u64 {
            let opcode = opcodes[usize::try_from(n % 4).expect("below four")];
            let len = if opcode == SendOpcode::AtomicFetchAndAdd {
                8
            } else {
                60_000
            };
            let request = SendRequest {
                opcode,
                rkey,
                remote_addr: (3 << 20) + 8 * n,
                compare_add: n,
                ..network.hosts[host].send(100 + n, 1 << 20, len)
            };
            let engine = &mut network.hosts[host].engine;
            engine.post_send(qpn, request).expect("room");
        }
    }
    (network, qpns)
}

/// All that an attacker might have changed.
fn standing(network: &Network, qpns: [u32; 2]) -> [String; 2] {
    [0, 1].map(|n: usize| {
        let host = &network.hosts[n];
        let statistics = host.engine.queue_pair_statistics(qpns[n]);
        let paths = host.engine.path_statistics(qpns[n]);
        format!(
            "{statistics:?} {paths:?} {:?} {:?} {}",
            host.completions,
            host.events,
            host.engine.held_frames(),
        )
    })
}

/// What the attacker draws a frame from.
struct Attacker {
    random: Pcg64Mcg,
    qpns: [u32; 2],
    rkeys: [u32; 2],
}

impl Attacker {
    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let place = self.below(all.len() as u64);
        all[usize::try_from(place).expect("a place")]
    }

    /// A frame to `host` that would be taken, but for the cookie.
    fn frame(&mut self, network: &Network, host: usize) -> Vec<u8> {
        let operation = self.one_of(&OPERATIONS);
        let near = u32::try_from(self.below(1024)).expect("small");
        let psn = (FIRST + near) & 0xff_ffff;
        let opcode = match self.below(8) {
            0 => Opcode::Rc(operation),
            1 => Opcode::Cnp,
            _ => Opcode::Multipath(operation),
        };
        let mut headers = Headers::new(Bth::new(opcode, self.qpns[host], psn));
        headers.bth.ack_request = self.below(2) == 0;
        if opcode.is_multipath() {
            headers.mpeh = Some(Mpeh {
                path: u8::try_from(self.below(8)).expect("small"),
                flags: u8::try_from(self.below(8)).expect("small"),
                ..Mpeh::default()
            });
            let guess = Cookie::new(self.random.next_u64());
            assert_ne!(guess, COOKIES[host], "once in 10⁸ runs");
            headers.extension = Some(Extension::new(guess));
        }
        let rkey = self.rkeys[host];
        headers.reth = operation.has_reth().then_some(Reth {
            address: 0,
            rkey,
            len: 8,
        });
        headers.atomic = operation.has_atomic().then_some(AtomicEth {
            address: 0,
            rkey,
            swap_or_add: 7,
            compare: 0,
        });
        let kind = match self.below(6) {
            0 | 1 => AckKind::Ack { credits: 31 },
            2 => AckKind::ReceiverNotReady { timer: 31 },
            _ => AckKind::Nak(self.one_of(&NAKS)),
        };
        headers.aeth = operation.has_aeth().then_some(Aeth { kind, msn: 1 });
        headers.sack = (operation == Operation::Acknowledge).then_some(Sack {
            bitmap: [self.random.next_u64(); 4],
            trigger: psn,
            ..Sack::default()
        });
        headers.atomic_original = (operation == Operation::AtomicAcknowledge).then_some(9);
        let forged: &[u8] = if operation.has_payload() && opcode != Opcode::Cnp {
            b"forged!!"
        } else {
            b""
        };
        sealed(network, host, &headers, forged)
    }
}

/// A sealed frame to `host` from the other one.
pub(crate) fn sealed(network: &Network, host: usize, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let [source, destination] = [1 - host, host].map(|n| network.hosts[n].address);
    let flow = Flow {
        src_mac: Mac([2; 6]),
        dst_mac: Mac([2; 6]),
        addresses: Addresses::new(source, destination).expect("one version"),
        src_port: 0xc000,
        flow_label: 0,
        traffic_class: 3,
        ttl: 64,
    };
    let mut bytes = vec![0; layout(flow.addresses, headers, payload.len()).len];
    let place = emit(&mut bytes, &flow, headers, payload.len());
    bytes[place].copy_from_slice(payload);
    seal(&mut bytes).expect("a frame");
    bytes
}

/// HT-3: 10⁶ forged packets of every kind, with all that an attacker could know but the cookies,
/// change nothing: memory, completions, events, states and counters of the queue pairs are those of
/// the same transfer without an attacker, and all of them are counted.
#[test]
fn blind_injection_changes_nothing() {
    let seed = 13;
    let (mut quiet, _) = transfer(seed);
    let (mut network, qpns) = transfer(seed);
    let rkeys = [0, 1].map(|n: usize| network.hosts[n].keys.rkey);
    let mut attacker = Attacker {
        random: Pcg64Mcg::new(seed.into()),
        qpns,
        rkeys,
    };
    for round in 0..ROUNDS {
        for n in 0..FRAMES / ROUNDS {
            let host = usize::from(n % 2 == 0);
            let frame = attacker.frame(&network, host);
            network.inject(host, &frame);
        }
        assert_eq!(
            standing(&network, qpns),
            standing(&quiet, qpns),
            "round {round}"
        );
        network.pass(Span::from_micros(10));
        quiet.pass(Span::from_micros(10));
    }
    for network in [&mut network, &mut quiet] {
        let done = |network: &mut Network| {
            let sends = |n: usize| {
                network.hosts[n]
                    .completions
                    .iter()
                    .filter(|it| it.wr_id >= 100)
            };
            sends(0).count() + sends(1).count() == 64
        };
        assert!(network.run(Span::from_secs(2), done));
        network.pass(Span::from_millis(50));
    }
    assert_eq!(standing(&network, qpns), standing(&quiet, qpns));
    for (attacked, host) in network.hosts.iter().zip(&quiet.hosts) {
        assert!(attacked.memory.to_vec() == host.memory.to_vec(), "memory");
        assert!(attacked.memory.to_vec().len() == MEMORY);
        let success = |it: &hostd::verbs::Completion| it.status == Status::Success;
        assert!(attacked.completions.iter().all(success));
    }
    let lost = |network: &Network, reason: DropReason| {
        let of = |n: usize| network.hosts[n].engine.statistics().drops.get(reason);
        of(0) + of(1)
    };
    let forged = lost(&network, DropReason::WrongCookie);
    let plain = lost(&network, DropReason::UnknownOpcode);
    assert_eq!(forged + plain, FRAMES);
    assert!(forged > FRAMES / 2, "{forged}");
    network.close();
    quiet.close();
}

/// HT-3: the attack of the test above is one: with the cookie such a packet is taken.
#[test]
fn with_the_cookie_a_forged_packet_is_taken() {
    let (mut network, qpns) = transfer(14);
    let opcode = Opcode::Multipath(Operation::WriteOnly);
    let mut headers = Headers::new(Bth::new(opcode, qpns[1], FIRST));
    headers.extension = Some(Extension::new(cookie_of(network.hosts[1].address)));
    headers.reth = Some(Reth {
        address: 0,
        rkey: network.hosts[1].keys.rkey,
        len: 8,
    });
    let bytes = sealed(&network, 1, &headers, b"forged!!");
    network.inject(1, &bytes);
    assert_eq!(network.hosts[1].memory.to_vec()[..8], *b"forged!!");
}

/// HT-3, HT-10: a NAK is believed only about a packet that is on its way, also of a plain peer, and
/// a notification of congestion only while one is.
#[test]
fn refusals_of_what_is_not_outstanding() {
    let send = ReadyToSend {
        sq_psn: FIRST_OF_HOST,
        timeout: 12,
        retry_count: 7,
        rnr_retry: 0,
        max_rd_atomic: 16,
    };
    let mut peer = PlainPeer::new(15, send);
    let refusals = [AckKind::ReceiverNotReady { timer: 1 }]
        .into_iter()
        .chain(NAKS.map(AckKind::Nak));
    let impossible = |peer: &PlainPeer, reason| {
        let statistics = peer.network.hosts[1].engine.statistics();
        statistics.drops.get(reason)
    };
    let state = |peer: &PlainPeer| {
        let standing = peer.network.hosts[1].engine.queue_pair_statistics(peer.qpn);
        standing.expect("exists").state
    };
    // Nothing was sent, and then three packets: the next one was not.
    for sent in [0, 3] {
        for _ in 0..sent {
            let request = peer.host().send(1, 0, 10);
            let qpn = peer.qpn;
            peer.host().engine.post_send(qpn, request).expect("room");
        }
        peer.pass(Span::from_micros(10));
        let before = impossible(&peer, DropReason::ImpossibleAcknowledgement);
        for kind in refusals.clone() {
            for ahead in [0, 1, 100, 1 << 22] {
                let frame = peer.answer(kind, FIRST_OF_HOST.wrapping_add(sent + ahead));
                peer.after(&frame, Span::from_micros(1));
                assert_eq!(state(&peer), State::ReadyToSend, "{kind:?} {sent} {ahead}");
            }
        }
        let after = impossible(&peer, DropReason::ImpossibleAcknowledgement);
        assert_eq!(after - before, 20);
        let cnp = peer.frame(&Headers::cnp(peer.qpn), &[]);
        peer.after(&cnp, Span::from_micros(1));
        let unexpected = impossible(&peer, DropReason::UnexpectedNotification);
        assert_eq!(
            unexpected, 1,
            "while packets are on their way it is expected"
        );
    }
    assert!(peer.host().completions.is_empty());
    // About a packet that is on its way it is.
    let nak = AckKind::Nak(NakCode::RemoteAccessError);
    let frame = peer.answer(nak, FIRST_OF_HOST + 1);
    peer.after(&frame, Span::from_micros(1));
    let statuses: Vec<_> = peer.host().completions.iter().map(|it| it.status).collect();
    let expected = [
        Status::Success,
        Status::RemoteAccess,
        Status::WorkRequestFlushed,
    ];
    assert_eq!(statuses, expected);
}
