//! Any series of connection messages, decisions of the application and time against the connection
//! manager.
//!
//! Every message is well-formed, and fits what the engine said last to somebody: both identifiers,
//! transaction, queue pair and source are right, except for those that the input spoils.

use super::program::Program;
use super::victim::{BTH, OWN, Victim};
use common::time::Span;
use common::wire::Mac;
use common::wire::cm::{
    Apr, Dreq, Lap, Mad, Message, Mra, Pair, REJ_INFO_LEN, REJ_PRIVATE_LEN, REP_PRIVATE_LEN,
    REQ_PRIVATE_LEN, Rej, Rep, Req, SidrRep, SidrReq, service_id,
};
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{Bth, Deth, Flow, Headers, Opcode};
use hostd::stats::EngineStatistics;
use hostd::verbs::{ConnectionId, ConnectionParameters, Event};
use std::net::{IpAddr, Ipv4Addr};

/// Port of the service that the engine offers.
const SERVICE: u16 = 7471;

/// Queue pairs of the engine.
const PAIRS: usize = 4;

/// What was overheard and is remembered.
const VIEWS: usize = 8;

/// Number of the peers' first queue pair.
const PEER_QPN: u32 = 0x2000;

/// Where in a datagram of queue pair 1 the message begins.
const MAD: usize = BTH + Bth::LEN + Deth::LEN;

/// What a peer knows of a connection: what a right message says.
#[derive(Clone, Copy, Debug)]
struct View {
    source: IpAddr,
    transaction: u64,
    /// The peer's own number, and the engine's.
    own: u32,
    theirs: u32,
    /// Queue pair of the engine.
    qpn: u32,
}

/// How an application's request to connect stands.
#[derive(Clone, Copy, Debug)]
struct Begun {
    connection: ConnectionId,
    index: usize,
}

struct Manager {
    victim: Victim,
    views: Vec<View>,
    begun: Vec<Begun>,
    requests: Vec<ConnectionId>,
    known: Vec<ConnectionId>,
    /// Makes what peers choose: numbers, transactions, queue pairs.
    count: u32,
}

fn peer(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 2 + number % 3).into()
}

/// See the module.
pub(super) fn messages(input: &[u8]) {
    play(input);
}

/// The same; how many connections stood at any time, and what the engine counted.
fn play(input: &[u8]) -> (usize, EngineStatistics) {
    let mut victim = Victim::new(PAIRS);
    // There is no way to the third one.
    (0..2).for_each(|number| victim.set_route(peer(number)));
    victim.engine.listen(SERVICE).expect("a free port");
    let mut manager = Manager {
        victim,
        views: Vec::new(),
        begun: Vec::new(),
        requests: Vec::new(),
        known: Vec::new(),
        count: 0,
    };
    let mut program = Program::new(input);
    while !program.is_over() {
        manager.step(&mut program);
        manager.go_on();
    }
    manager.victim.settle(|_, _| ());
    manager.learn();
    let begun = &manager.begun;
    assert!(begun.is_empty(), "nothing came of {begun:?}");
    (manager.known.len(), manager.victim.close())
}

impl Manager {
    fn step(&mut self, program: &mut Program<'_>) {
        let byte = program.u8();
        match byte {
            0..=0xaf => self.message(byte % 11, program),
            0xb0..=0xbf => self.victim.now += Span::from_micros(program.u16().into()),
            0xc0..=0xcf => {
                self.victim.now += Span::from_millis(8 * u64::from(program.u8()));
            }
            0xd0..=0xdf => self.connect(usize::from(byte) % PAIRS, program.u8()),
            0xe0..=0xe7 => {
                let (which, index) = (program.u8(), usize::from(byte) % PAIRS);
                if let Some(&connection) = pick(&self.requests, which) {
                    let qpn = self.victim.pairs[index].qpn;
                    let data = vec![which; usize::from(which % 64)];
                    let _ = self
                        .victim
                        .engine
                        .accept(connection, qpn, &parameters(&data));
                }
            }
            0xe8..=0xeb => {
                if let Some(&connection) = pick(&self.requests, program.u8()) {
                    let _ = self.victim.engine.reject(connection, b"no");
                }
            }
            0xec..=0xf3 => {
                if let Some(&connection) = pick(&self.known, program.u8()) {
                    let _ = self.victim.engine.disconnect(connection);
                }
            }
            0xf4..=0xf9 => {
                let index = usize::from(byte) % PAIRS;
                self.victim.replace(index);
                self.begun.retain(|begun| begun.index != index);
            }
            0xfa..=0xfb => self.victim.set_route(peer(2)),
            0xfc => self.victim.engine.unlisten(SERVICE),
            _ => drop(self.victim.engine.listen(SERVICE)),
        }
    }

    fn connect(&mut self, index: usize, to: u8) {
        let qpn = self.victim.pairs[index].qpn;
        let engine = &mut self.victim.engine;
        let begun = engine.connect(qpn, peer(to), SERVICE, &parameters(b"hello"));
        if let Ok(connection) = begun {
            self.begun.push(Begun { connection, index });
        }
    }

    /// Lets the engine say what it has to say, and learns from it.
    fn go_on(&mut self) {
        for frame in self.victim.transmit() {
            self.overhear(&frame);
        }
        self.learn();
    }

    fn learn(&mut self) {
        self.victim.collect();
        for event in std::mem::take(&mut self.victim.events) {
            match event {
                Event::ConnectRequest { connection, .. } => self.requests.push(connection),
                Event::Established { connection, .. } => {
                    self.known.push(connection);
                    self.begun.retain(|begun| begun.connection != connection);
                }
                Event::Rejected { connection, .. } | Event::Unreachable { connection, .. } => {
                    self.begun.retain(|begun| begun.connection != connection);
                }
                // Who disconnects before it stands is told nothing else.
                _ => {}
            }
        }
        // A connection that its own application ended early ends without an event.
        let pairs = &self.victim.pairs;
        let engine = &self.victim.engine;
        self.begun.retain(|begun| {
            let standing = engine.queue_pair_statistics(pairs[begun.index].qpn);
            standing.is_some_and(|it| it.state != hostd::verbs::State::Error)
        });
    }

    /// Remembers what the engine says to somebody as the view of who hears it.
    fn overhear(&mut self, frame: &[u8]) {
        let Ok(mad) = Mad::parse(frame.get(MAD..).unwrap_or_default()) else {
            return;
        };
        let octets: [u8; 4] = frame[30..34].try_into().expect("four bytes");
        let (theirs, own, qpn) = match &mad.message {
            Message::Req(req) => (req.local_comm_id, 0, req.local_qpn),
            Message::Rep(rep) => (rep.local_comm_id, rep.remote_comm_id, rep.local_qpn),
            Message::Mra(mra) => (mra.pair.local_comm_id, mra.pair.remote_comm_id, 0),
            Message::Rtu(pair) | Message::Drep(pair) => {
                (pair.local_comm_id, pair.remote_comm_id, 0)
            }
            Message::Dreq(dreq) => (dreq.pair.local_comm_id, dreq.pair.remote_comm_id, 0),
            _ => return,
        };
        let known = self.views.iter_mut().find(|view| view.theirs == theirs);
        if let Some(known) = known {
            known.transaction = mad.transaction;
            known.qpn = if qpn == 0 { known.qpn } else { qpn };
            return;
        }
        if self.views.len() == VIEWS {
            self.views.remove(0);
        }
        self.views.push(View {
            source: Ipv4Addr::from(octets).into(),
            transaction: mad.transaction,
            own,
            theirs,
            qpn,
        });
    }

    /// A message of a peer, right but for what the input spoils.
    fn message(&mut self, kind: u8, program: &mut Program<'_>) {
        let (which, wrong, value) = (program.u8(), program.u8(), program.u8());
        self.count += 1;
        let fresh = View {
            source: peer(which),
            transaction: 0x1000 + u64::from(self.count),
            own: self.count,
            theirs: 0,
            qpn: self.victim.pairs[usize::from(which) % PAIRS].qpn,
        };
        let chosen = pick(&self.views, which >> 2).copied();
        // A REQ is mostly a new one.
        let mut view = match chosen {
            Some(view) if kind != 0 || which & 2 != 0 => view,
            _ => fresh,
        };
        if view.own == 0 {
            // Who answers a REQ chooses a number.
            view.own = self.count;
        }
        spoil(&mut view, wrong, value);
        if let Some(known) = self.views.iter_mut().find(|it| it.theirs == view.theirs)
            && known.own == 0
        {
            known.own = view.own;
        }
        let mad = Mad {
            transaction: view.transaction,
            message: compose(kind, &view, PEER_QPN + u32::from(which & 7), value),
        };
        self.victim.receive(&datagram(view.source, &mad));
    }
}

fn pick<T>(list: &[T], which: u8) -> Option<&T> {
    let count = list.len();
    (count > 0).then(|| &list[count - 1 - usize::from(which) % count])
}

fn parameters(private_data: &[u8]) -> ConnectionParameters<'_> {
    ConnectionParameters {
        private_data,
        timeout: 12,
        ..ConnectionParameters::default()
    }
}

/// Makes those parts wrong that the bits of `wrong` name; none in half of all cases.
fn spoil(view: &mut View, wrong: u8, value: u8) {
    if wrong & 0x80 == 0 {
        return;
    }
    let noise = u32::from(value) + 1;
    if wrong & 1 != 0 {
        view.source = peer(value);
    }
    if wrong & 2 != 0 {
        view.own = if value < 0x80 { 0 } else { view.own ^ noise };
    }
    if wrong & 4 != 0 {
        view.theirs = if value < 0x80 { 0 } else { view.theirs ^ noise };
    }
    if wrong & 8 != 0 {
        view.transaction ^= u64::from(noise);
    }
    if wrong & 16 != 0 {
        view.qpn = if value < 0x80 { 0 } else { view.qpn ^ noise };
    }
    if wrong & 32 != 0 {
        std::mem::swap(&mut view.own, &mut view.theirs);
    }
}

fn compose(kind: u8, view: &View, peer_qpn: u32, value: u8) -> Message {
    let pair = Pair {
        local_comm_id: view.own,
        remote_comm_id: view.theirs,
    };
    match kind {
        0 => Message::Req(Box::new(request(view, peer_qpn, value))),
        1 => Message::Rep(Box::new(Rep {
            local_comm_id: view.own,
            remote_comm_id: view.theirs,
            local_qpn: peer_qpn,
            starting_psn: u32::from(value) << 8,
            responder_resources: value,
            initiator_depth: value >> 4,
            rnr_retry_count: value & 7,
            ca_guid: 0,
            private: [value; REP_PRIVATE_LEN],
        })),
        2 => Message::Rtu(pair),
        3 => Message::Rej(Box::new(Rej {
            local_comm_id: view.own,
            remote_comm_id: view.theirs,
            message: value & 3,
            reason: u16::from(value >> 2),
            // Of a refusal for the path MTU: which one is accepted.
            info_len: value & 1,
            info: [(value & 3) << 4; REJ_INFO_LEN],
            private: [value; REJ_PRIVATE_LEN],
        })),
        4 => Message::Mra(Mra {
            pair,
            message: value & 3,
            service_timeout: value >> 3,
        }),
        5 => Message::Dreq(Dreq {
            pair,
            remote_qpn: view.qpn,
        }),
        6 => Message::Drep(pair),
        7 => Message::Lap(Lap {
            pair,
            remote_qpn: view.qpn,
        }),
        8 => Message::Apr(Apr {
            pair,
            status: value,
        }),
        9 => Message::SidrReq(SidrReq {
            request: view.own,
            partition: 0xffff,
            service_id: service_id(SERVICE),
        }),
        _ => Message::SidrRep(SidrRep {
            request: view.own,
            status: value,
            qpn: peer_qpn,
            service_id: service_id(SERVICE),
            qkey: 0,
        }),
    }
}

fn request(view: &View, peer_qpn: u32, value: u8) -> Req {
    Req {
        local_comm_id: view.own,
        service_id: service_id(if value == 0xff { 1 } else { SERVICE }),
        ca_guid: 0,
        local_qpn: peer_qpn,
        responder_resources: value,
        initiator_depth: value >> 4,
        remote_cm_timeout: value & 31,
        transport: u8::from(value == 0xfe),
        starting_psn: u32::from(value) << 16,
        local_cm_timeout: 18,
        retry_count: value & 7,
        partition: 0xffff,
        path_mtu: 1 + value % 6,
        rnr_retry_count: value & 7,
        max_cm_retries: value & 15,
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 64,
        ack_timeout: value & 31,
        src_port: 0,
        src: view.source,
        dst: OWN.into(),
        private: [value & 1; REQ_PRIVATE_LEN],
    }
}

/// A sealed frame for queue pair 1.
pub(super) fn datagram(source: IpAddr, mad: &Mad) -> Vec<u8> {
    let flow = Flow {
        src_mac: Mac([2, 0, 0, 0, 0, 2]),
        dst_mac: Mac([2, 0, 0, 0, 0, 1]),
        addresses: Addresses::new(source, OWN.into()).expect("one version"),
        src_port: 0xc000,
        flow_label: 0,
        traffic_class: 0,
        ttl: 64,
    };
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, 1, 0));
    headers.deth = Some(Deth {
        qkey: Deth::GSI_QKEY,
        src_qp: 1,
    });
    let payload = mad.emit();
    let mut bytes = vec![0; layout(flow.addresses, &headers, payload.len()).len];
    let place = emit(&mut bytes, &flow, &headers, payload.len());
    bytes[place].copy_from_slice(&payload);
    seal(&mut bytes).expect("a frame");
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::victim::reached;
    use super::*;
    use hostd::verbs::DropReason;

    /// The corpus reaches connections from both sides, and most checks of who says something.
    #[test]
    fn the_corpus_reaches_the_connection_manager() {
        let all = reached("host_management", play);
        let established: usize = all.iter().map(|it| it.0).sum();
        assert!(established >= 2, "{established} connections");
        let reached = |reason| all.iter().any(|it| it.1.drops.get(reason) > 0);
        let reasons = [
            DropReason::ManagementSource,
            DropReason::ManagementId,
            DropReason::ManagementTransaction,
            DropReason::ManagementQueuePair,
            DropReason::ManagementPhase,
            DropReason::UnknownConnection,
            DropReason::NoService,
            DropReason::MalformedManagement,
        ];
        let missing: Vec<_> = reasons.iter().filter(|it| !reached(**it)).collect();
        assert!(missing.len() <= 3, "not reached: {missing:?}");
    }
}
