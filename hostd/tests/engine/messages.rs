//! Every kind of connection message in every phase of a connection: what is answered, what the
//! application is told, and what is lost for which reason.

use crate::connection::{PORT, both, parameters, request as asked};
use crate::forge::{forge, frame, overheard, pair, rejection, reply, request};
use crate::network::Network;
use common::time::Span;
use common::wire::Mac;
use common::wire::cm::{
    Apr, Dreq, Lap, Mad, Message, Mra, Pair, SidrRep, SidrReq, about, reject, service_id,
};
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{Bth, Flow, Headers, Opcode, Operation, Reth};
use hostd::verbs::{DropReason, Event, State};
use std::net::IpAddr;

/// The peer's queue pair and identifier.
const PEER_QPN: u32 = 0x77;
const PEER_ID: u32 = 0x1234;
/// The transaction of the peer's REQ.
const TRANSACTION: u64 = 0x4242;
/// The transaction of what the peer begins later.
const LATER: u64 = 0x4343;

/// A host in some phase of a connection, whose peer says what the test says.
pub(crate) struct Subject {
    pub(crate) network: Network,
    pub(crate) host: usize,
    pub(crate) peer: IpAddr,
    /// Own identifier, and transaction of the REQ.
    id: u32,
    transaction: u64,
    qpn: u32,
    /// Transaction of the DREQ that was sent.
    closing: u64,
}

type Reach = fn() -> Subject;

/// The phases, as the connection manager names them, and how a host gets there.
const PHASES: [(&str, Reach); 9] = [
    ("Requesting", requesting),
    ("Waiting", waiting),
    ("Replying", replying),
    ("Established", established),
    ("Established, active", active),
    ("Draining", draining),
    ("Refusing", refusing),
    ("Disconnecting", disconnecting),
    ("TimeWait", time_wait),
];

pub(crate) fn requesting() -> Subject {
    let mut network = Network::new(1, both());
    network.tap = Some(Vec::new());
    network.impairment.dead = [false, true];
    let qpn = network.hosts[0].queue_pair();
    let peer = network.hosts[1].address;
    let engine = &mut network.hosts[0].engine;
    let connection = engine.connect(qpn, peer, PORT, &parameters(b""));
    let id = connection.expect("legal").number();
    network.pass(Span::from_micros(10));
    let transaction = overheard(&mut network)[0].2.transaction;
    Subject {
        network,
        host: 0,
        peer,
        id,
        transaction,
        qpn,
        closing: 0,
    }
}

pub(crate) fn listening() -> Subject {
    let mut network = Network::new(1, both());
    network.tap = Some(Vec::new());
    // What host 0 says itself does not arrive.
    network.impairment.dead = [true, false];
    network.hosts[1].engine.listen(PORT).expect("free");
    let peer = network.hosts[0].address;
    Subject {
        network,
        host: 1,
        peer,
        id: 0,
        transaction: TRANSACTION,
        qpn: 0,
        closing: 0,
    }
}

pub(crate) fn waiting() -> Subject {
    let mut subject = listening();
    let message = subject.request();
    subject.say(TRANSACTION, message);
    let (connection, _) = asked(&subject.network, 1).expect("came");
    subject.id = connection.number();
    subject
}

pub(crate) fn replying() -> Subject {
    let mut subject = waiting();
    let qpn = subject.network.hosts[1].queue_pair();
    let (connection, _) = asked(&subject.network, 1).expect("came");
    let engine = &mut subject.network.hosts[1].engine;
    let accepted = engine.accept(connection, qpn, &parameters(b""));
    accepted.expect("legal");
    subject.qpn = qpn;
    subject.network.pass(Span::from_micros(10));
    subject
}

pub(crate) fn established() -> Subject {
    let mut subject = replying();
    let message = Message::Rtu(subject.pair());
    subject.say(TRANSACTION, message);
    subject
}

/// The REQ of such a connection is another one of the peer, for a service that is not offered.
fn active() -> Subject {
    let mut subject = requesting();
    let message = reply(subject.pair(), PEER_QPN);
    subject.say(subject.transaction, message);
    subject
}

fn draining() -> Subject {
    let mut subject = established();
    let host = &mut subject.network.hosts[1];
    let send = host.send(1, 0, 100);
    host.engine.post_send(subject.qpn, send).expect("connected");
    subject.disconnect();
    subject
}

fn refusing() -> Subject {
    let mut subject = established();
    let messages = overheard(&mut subject.network);
    let first = messages.iter().find_map(|(_, _, mad)| match &mad.message {
        Message::Rep(rep) => Some(rep.starting_psn),
        _ => None,
    });
    let bytes = subject.forbidden_write(first.expect("a REP was sent"));
    subject.network.inject(1, &bytes);
    subject.network.pass(Span::from_micros(10));
    subject
}

pub(crate) fn disconnecting() -> Subject {
    let mut subject = established();
    subject.disconnect();
    subject.network.pass(Span::from_micros(10));
    let messages = overheard(&mut subject.network);
    let dreq = messages
        .iter()
        .find(|(_, _, mad)| matches!(mad.message, Message::Dreq(_)));
    subject.closing = dreq.expect("was sent").2.transaction;
    subject
}

fn time_wait() -> Subject {
    let mut subject = disconnecting();
    let message = Message::Drep(subject.pair());
    subject.say(subject.closing, message);
    subject
}

impl Subject {
    /// As the peer writes it.
    fn pair(&self) -> Pair {
        pair(PEER_ID, self.id)
    }

    fn request(&self) -> Message {
        let destination = self.network.hosts[self.host].address;
        let qpn = if self.host == 0 {
            PEER_QPN + 1
        } else {
            PEER_QPN
        };
        Message::Req(request(self.peer, destination, PORT, PEER_ID, qpn))
    }

    fn say(&mut self, transaction: u64, message: Message) {
        forge(
            &mut self.network,
            self.host,
            self.peer,
            transaction,
            message,
        );
        self.network.pass(Span::from_micros(10));
    }

    fn disconnect(&mut self) {
        let (connection, _) = asked(&self.network, 1).expect("came");
        let engine = &mut self.network.hosts[1].engine;
        engine.disconnect(connection).expect("legal");
    }

    /// A WRITE to memory that nobody registered.
    fn forbidden_write(&self, psn: u32) -> Vec<u8> {
        let opcode = Opcode::Rc(Operation::WriteOnly);
        let mut headers = Headers::new(Bth::new(opcode, self.qpn, psn));
        headers.reth = Some(Reth {
            address: 0,
            rkey: 1,
            len: 4,
        });
        let destination = self.network.hosts[1].address;
        let flow = Flow {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([2; 6]),
            addresses: Addresses::new(self.peer, destination).expect("one version"),
            src_port: 0xc000,
            flow_label: 0,
            traffic_class: 0,
            ttl: 64,
        };
        let mut bytes = vec![0; layout(flow.addresses, &headers, 4).len];
        emit(&mut bytes, &flow, &headers, 4);
        seal(&mut bytes).expect("a frame");
        bytes
    }

    /// The peer's message of each kind, with its transaction, as it has to be.
    pub(crate) fn messages(&self) -> [(&'static str, u64, Message); 12] {
        let pair = self.pair();
        let transaction = self.transaction;
        let mra = |message| {
            Message::Mra(Mra {
                pair,
                message,
                service_timeout: 18,
            })
        };
        let dreq = Dreq {
            pair,
            remote_qpn: self.qpn,
        };
        let lap = Lap {
            pair,
            remote_qpn: self.qpn,
        };
        let question = SidrReq {
            request: 1,
            partition: 0xffff,
            service_id: service_id(PORT),
        };
        let answer = SidrRep {
            request: 1,
            status: 0,
            qpn: 2,
            service_id: service_id(PORT),
            qkey: 3,
        };
        [
            ("REQ", transaction, self.request()),
            ("REP", transaction, reply(pair, PEER_QPN)),
            ("RTU", transaction, Message::Rtu(pair)),
            (
                "REJ",
                transaction,
                rejection(pair, about::OTHER, reject::CONSUMER),
            ),
            ("MRA of REQ", transaction, mra(about::REQ)),
            ("MRA of REP", transaction, mra(about::REP)),
            ("LAP", LATER, Message::Lap(lap)),
            ("APR", LATER, Message::Apr(Apr { pair, status: 0 })),
            ("DREQ", LATER, Message::Dreq(dreq)),
            ("DREP", self.closing, Message::Drep(pair)),
            ("SIDR REQ", LATER, Message::SidrReq(question)),
            ("SIDR REP", LATER, Message::SidrRep(answer)),
        ]
    }

    /// The frame with a message of the peer.
    pub(crate) fn frame(&self, transaction: u64, message: Message) -> Vec<u8> {
        let destination = self.network.hosts[self.host].address;
        let mad = Mad {
            transaction,
            message,
        };
        frame(self.peer, destination, &mad)
    }

    /// What comes of the frame of a message: "taken" or why it is lost, what is answered, what the
    /// application is told, and the state of the queue pair.
    pub(crate) fn outcome(&mut self, frame: &[u8]) -> String {
        let drops = |network: &Network, host: usize| {
            let drops = network.hosts[host].engine.statistics().drops.clone();
            drops
                .iter()
                .map(|(reason, count)| (reason.label(), count))
                .collect::<Vec<_>>()
        };
        let before = drops(&self.network, self.host);
        overheard(&mut self.network);
        self.network.hosts[self.host].events.clear();
        self.network.inject(self.host, frame);
        self.network.pass(Span::from_micros(10));
        let after = drops(&self.network, self.host);
        let lost = before
            .iter()
            .zip(&after)
            .find(|(before, after)| before != after);
        let mut text = lost.map_or("taken", |((label, _), _)| label).to_owned();
        for (from, _, mad) in overheard(&mut self.network) {
            if from != self.peer {
                text += " > ";
                text += &name(&mad.message);
            }
        }
        for event in &self.network.hosts[self.host].events {
            text += " ! ";
            text += told(event);
        }
        text + " = " + self.state()
    }

    /// The state of the queue pair; `-` before there is one.
    pub(crate) fn state(&self) -> &'static str {
        let engine = &self.network.hosts[self.host].engine;
        let standing = engine.queue_pair_statistics(self.qpn);
        standing.map_or("-", |standing| State::name(standing.state))
    }
}

/// What a message is, and what it says of the one that it answers.
fn name(message: &Message) -> String {
    let name = match message {
        Message::Req(_) => "REQ",
        Message::Rej(_) => "REJ",
        Message::Rep(_) => "REP",
        Message::Rtu(_) => "RTU",
        Message::Dreq(_) => "DREQ",
        Message::Drep(_) => "DREP",
        Message::Mra(mra) => return format!("MRA {}", mra.message),
        Message::Lap(_) => "LAP",
        Message::Apr(apr) => return format!("APR {}", apr.status),
        Message::SidrReq(_) => "SIDR REQ",
        Message::SidrRep(rep) => return format!("SIDR REP {}", rep.status),
    };
    name.to_owned()
}

fn told(event: &Event) -> &'static str {
    match event {
        Event::NeedRoute { .. } => "need route",
        Event::ConnectRequest { .. } => "request",
        Event::Established { .. } => "established",
        Event::Rejected { .. } => "rejected",
        Event::Unreachable { .. } => "unreachable",
        Event::Disconnected { .. } => "disconnected",
        Event::QueuePairFailed { .. } => "failed",
        Event::SharedLimitReached { .. } => "limit",
        Event::SendQueueDrained { .. } => "drained",
        Event::LastReceiveTaken { .. } => "last taken",
    }
}

/// Most messages have one place only: elsewhere they are lost, and nothing changes.
const OUT: &str = "out of place";

/// Columns as in [`Subject::messages`], then the state of the queue pair.
#[rustfmt::skip]
const TABLE: [(&str, [&str; 12], &str); 9] = [
    ("Requesting", [
        "no_service > REJ = INIT", "taken > RTU ! established = RTS", OUT,
        "taken ! rejected = ERR", "taken = INIT", OUT, OUT, OUT, OUT, OUT,
        "no_service > SIDR REP 1 = INIT", OUT,
    ], "INIT"),
    ("Waiting", [
        "taken > MRA 0 = -", OUT, OUT,
        "taken ! unreachable = -", OUT, OUT, "cm_wrong_queue_pair = -", OUT,
        "cm_wrong_queue_pair = -", OUT, "no_service > SIDR REP 1 = -", OUT,
    ], "-"),
    ("Replying", [
        "taken > REP = RTS", OUT, "taken ! established = RTS",
        "taken ! rejected = ERR", OUT, "taken = RTS", OUT, OUT,
        "taken > DREP ! disconnected = ERR", OUT, "no_service > SIDR REP 1 = RTS", OUT,
    ], "RTS"),
    ("Established", [
        "taken = RTS", OUT, "taken = RTS",
        "taken ! disconnected = ERR", OUT, OUT, "taken > APR 2 = RTS", OUT,
        "taken > DREP ! disconnected = ERR", OUT, "no_service > SIDR REP 1 = RTS", OUT,
    ], "RTS"),
    ("Established, active", [
        "no_service > REJ = RTS", "taken > RTU > RTU = RTS", OUT,
        "taken ! disconnected = ERR", OUT, OUT, "taken > APR 2 = RTS", OUT,
        "taken > DREP ! disconnected = ERR", OUT, "no_service > SIDR REP 1 = RTS", OUT,
    ], "RTS"),
    ("Draining", [
        "taken = RTS", OUT, "taken = RTS",
        "taken ! disconnected = ERR", OUT, OUT, "taken > APR 2 = RTS", OUT,
        "taken > DREP ! disconnected = ERR", OUT, "no_service > SIDR REP 1 = RTS", OUT,
    ], "RTS"),
    ("Refusing", [
        OUT, OUT, "taken = ERR",
        "taken ! disconnected = ERR", OUT, OUT, OUT, OUT,
        "taken > DREP ! disconnected = ERR", OUT, "no_service > SIDR REP 1 = ERR", OUT,
    ], "ERR"),
    ("Disconnecting", [
        OUT, OUT, OUT, OUT, OUT, OUT, OUT, OUT,
        "taken > DREP ! disconnected = ERR", "taken ! disconnected = ERR",
        "no_service > SIDR REP 1 = ERR", OUT,
    ], "ERR"),
    ("TimeWait", [
        OUT, OUT, OUT, OUT, OUT, OUT, OUT, OUT,
        "taken > DREP = ERR", OUT, "no_service > SIDR REP 1 = ERR", OUT,
    ], "ERR"),
];

/// HT-10, HT-23, InfiniBand 12.9: every cell of the table of phase and message.
#[test]
fn every_message_in_every_phase() {
    let mut wrong = Vec::new();
    for ((phase, reach), (named, row, state)) in PHASES.into_iter().zip(TABLE) {
        assert_eq!(phase, named);
        for (index, expected) in row.into_iter().enumerate() {
            let mut subject = reach();
            let (kind, transaction, message) = subject.messages()[index].clone();
            let frame = subject.frame(transaction, message);
            let found = subject.outcome(&frame);
            let expected = match expected {
                OUT => format!("{} = {state}", DropReason::ManagementPhase),
                other => other.to_owned(),
            };
            if found != expected {
                wrong.push(format!(
                    "{phase}, {kind}: {found:?} instead of {expected:?}"
                ));
            }
            subject.network.close();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
