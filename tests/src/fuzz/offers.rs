//! Any offer of multipath in the messages that set a connection up, from both sides, and the
//! connection that comes of it.
//!
//! A step is a connection: an offer is written field by field, cut short or raw. Whether the engine
//! takes it, and what it agrees to, is compared with what the bytes say (HT-20).

use super::management::datagram;
use super::program::Program;
use super::victim::{BTH, OWN, PEER, Victim};
use common::time::Span;
use common::wire::cm::{
    Mad, Message, Pair, RELIABLE_CONNECTION, REP_PRIVATE_LEN, REQ_PRIVATE_LEN, Rep, Req, service_id,
};
use common::wire::roce::{Bth, Deth};
use hostd::verbs::{ConnectionId, ConnectionParameters, Event, MultipathConfig, SendRequest};

/// Port of the service that the engine offers.
const SERVICE: u16 = 7471;

/// Where in a datagram of queue pair 1 the message begins.
const MAD: usize = BTH + Bth::LEN + Deth::LEN;

/// Bytes of an offer.
const OFFER: usize = 24;

/// Bytes in which TPIDs are told.
const TPIDS: usize = 8;

/// Number of the peer's queue pair.
const PEER_QPN: u32 = 0x2345;

struct Negotiator {
    victim: Victim,
    /// Makes the peer's identifiers.
    count: u32,
    /// Connections that were agreed on, with multipath and without.
    made: [u64; 2],
}

/// See the module.
pub(super) fn negotiations(input: &[u8]) {
    play(input);
}

/// The same; connections with multipath, and without.
fn play(input: &[u8]) -> [u64; 2] {
    let mut victim = Victim::new(1);
    victim.set_route(PEER.into());
    victim.engine.listen(SERVICE).expect("a free port");
    let mut negotiator = Negotiator {
        victim,
        count: 0,
        made: [0; 2],
    };
    let mut program = Program::new(input);
    while !program.is_over() {
        match program.u8() & 1 {
            0 => negotiator.passive(&mut program),
            _ => negotiator.active(&mut program),
        }
        negotiator.use_it(program.u8());
        negotiator.victim.replace(0);
        negotiator.victim.transmit();
        negotiator.victim.events.clear();
    }
    negotiator.victim.settle(|_, _| ());
    negotiator.victim.close();
    negotiator.made
}

/// The private data of a message of the peer, with an offer at its end unless the input has
/// something else in mind.
fn private<const N: usize>(program: &mut Program<'_>) -> [u8; N] {
    let mut private = [0; N];
    let how = program.u8();
    if how & 1 != 0 {
        let bytes = program.block();
        let start = N.saturating_sub(bytes.len());
        let tail = &bytes[bytes.len().saturating_sub(N)..];
        private[start..start + tail.len()].copy_from_slice(tail);
        return private;
    }
    private.fill(program.u8());
    let mut offer = [0; OFFER];
    offer[..5].copy_from_slice(b"MPR1\x02");
    offer[5] = program.u8();
    for word in offer[6..16].chunks_exact_mut(2) {
        word.copy_from_slice(&program.u16().to_be_bytes());
    }
    offer[16..22].fill(program.u8());
    offer[22] = program.u8();
    offer[23] = program.u8();
    if how & 2 != 0 {
        offer[usize::from(program.u8()) % OFFER] ^= program.u8();
    }
    // Cut short at its end, or with something behind it.
    let (cut, shift) = match how & 12 {
        4 => (usize::from(program.u8()) % OFFER, 0),
        8 => (0, usize::from(program.u8()) % OFFER),
        _ => (0, 0),
    };
    let kept = &offer[..OFFER - cut];
    let start = N - kept.len() - shift;
    private[start..start + kept.len()].copy_from_slice(kept);
    if how & 16 != 0 {
        // TPIDs before it.
        let before = &mut private[start - TPIDS..start];
        before[..2].copy_from_slice(b"TP");
        for word in before[2..].chunks_exact_mut(2) {
            word.copy_from_slice(&program.u16().to_be_bytes());
        }
    }
    private
}

/// What the bytes at the end of private data offer, by the description of the offer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offered {
    granularities: u8,
    marks: bool,
    /// Delivery service: none is asked for, so the stricter one is always 0, ordered.
    service: u8,
    mtu: u8,
    /// Sub-paths, tolerance in packets and in µs, reorder buffer, flowlet time-out.
    words: [u16; 5],
}

impl Offered {
    fn read(private: &[u8]) -> Option<Self> {
        let bytes: &[u8; OFFER] = private.last_chunk()?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let offered = Self {
            granularities: bytes[5] & 7,
            marks: bytes[5] & 8 != 0,
            service: bytes[22] >> 6,
            mtu: bytes[5] >> 4,
            words: [6, 8, 10, 12, 14].map(word),
        };
        let right = bytes[..5] == *b"MPR1\x02"
            && offered.granularities != 0
            && (1..=5).contains(&offered.mtu)
            && offered.words[0] > 0
            && offered.words[3] > 0
            && usize::from(bytes[23]) <= private.len() - OFFER;
        right.then_some(offered)
    }

    /// What is agreed on is within what both offered.
    fn is_within(&self, other: &Self) {
        let own = MultipathConfig::default();
        let most = [
            own.paths,
            own.reorder_packets,
            2_000,
            own.reorder_buffer,
            500,
        ];
        for (n, word) in self.words.into_iter().enumerate() {
            // A tolerance below 100 µs is raised to that.
            let theirs = other.words[n].max(if n == 2 { 100 } else { 0 });
            assert!(word <= theirs.min(most[n]), "{self:?} of {other:?}");
        }
        assert!(
            self.mtu <= other.mtu && (!self.marks || other.marks),
            "{self:?} of {other:?}"
        );
        assert_eq!(self.service, 0, "{self:?} of {other:?}");
        // Who knows a granularity knows all that are coarser.
        let finest = u8::MAX >> other.granularities.leading_zeros();
        assert_eq!(self.granularities & !finest, 0, "{self:?} of {other:?}");
    }
}

impl Negotiator {
    /// A peer asks.
    fn passive(&mut self, program: &mut Program<'_>) {
        self.count += 1;
        let private: [u8; REQ_PRIVATE_LEN] = private(program);
        let offered = Offered::read(&private);
        let req = Req {
            local_comm_id: self.count,
            service_id: service_id(SERVICE),
            ca_guid: 0,
            local_qpn: PEER_QPN + self.count,
            responder_resources: 4,
            initiator_depth: 4,
            remote_cm_timeout: 18,
            transport: RELIABLE_CONNECTION,
            starting_psn: 0xff_fff0,
            local_cm_timeout: 18,
            retry_count: 7,
            partition: 0xffff,
            path_mtu: 3,
            rnr_retry_count: 7,
            max_cm_retries: 7,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            ack_timeout: 12,
            src_port: 0,
            src: PEER.into(),
            dst: OWN.into(),
            private,
        };
        self.say(self.count.into(), Message::Req(Box::new(req)));
        let Some(connection) = self.asked(offered.is_some()) else {
            return;
        };
        let qpn = self.victim.pairs[0].qpn;
        let accepted = self.victim.engine.accept(connection, qpn, &parameters());
        accepted.expect("the queue pair is in INIT");
        let mut agreed = None;
        let mut pair = None;
        for mad in self.heard() {
            if let Message::Rep(rep) = mad.message {
                agreed = Offered::read(&rep.private);
                pair = Some(Pair {
                    local_comm_id: rep.remote_comm_id,
                    remote_comm_id: rep.local_comm_id,
                });
            }
        }
        let pair = pair.expect("it was accepted");
        assert_eq!(agreed.is_some(), offered.is_some(), "{offered:?}");
        if let (Some(agreed), Some(offered)) = (agreed, offered) {
            agreed.is_within(&offered);
        }
        self.say(self.count.into(), Message::Rtu(pair));
        self.established(offered.is_some());
    }

    /// The engine asks, and the peer answers.
    fn active(&mut self, program: &mut Program<'_>) {
        self.count += 1;
        let qpn = self.victim.pairs[0].qpn;
        let begun = self
            .victim
            .engine
            .connect(qpn, PEER.into(), SERVICE, &parameters());
        begun.expect("there is a route");
        let asked = self.heard().into_iter().find_map(|mad| match mad.message {
            Message::Req(req) => Some((mad.transaction, req.local_comm_id, req.private)),
            _ => None,
        });
        let (transaction, theirs, request) = asked.expect("a REQ");
        assert!(Offered::read(&request).is_some(), "the engine offers it");
        let private: [u8; REP_PRIVATE_LEN] = private(program);
        let answered = Offered::read(&private).is_some();
        let rep = Rep {
            local_comm_id: self.count,
            remote_comm_id: theirs,
            local_qpn: PEER_QPN + self.count,
            starting_psn: 0xff_fff0,
            responder_resources: 4,
            initiator_depth: 4,
            rnr_retry_count: 7,
            ca_guid: 0,
            private,
        };
        self.say(transaction, Message::Rep(Box::new(rep)));
        self.established(answered);
    }

    /// The application is asked, and told whether there is an offer.
    fn asked(&mut self, offers: bool) -> Option<ConnectionId> {
        self.victim.collect();
        let events = std::mem::take(&mut self.victim.events);
        let asked = events.into_iter().find_map(|event| match event {
            Event::ConnectRequest {
                connection,
                multipath,
                ..
            } => Some((connection, multipath)),
            _ => None,
        });
        let (connection, multipath) = asked?;
        assert_eq!(multipath, offers);
        Some(connection)
    }

    fn established(&mut self, expected: bool) {
        self.victim.collect();
        let events = std::mem::take(&mut self.victim.events);
        let multipath = events.into_iter().find_map(|event| match event {
            Event::Established { multipath, .. } => Some(multipath),
            _ => None,
        });
        assert_eq!(multipath, Some(expected), "the mode of the connection");
        self.made[usize::from(!expected)] += 1;
    }

    /// Sends over what was agreed on, for some time without an answer.
    fn use_it(&mut self, millis: u8) {
        let request = SendRequest {
            lkey: self.victim.keys.lkey,
            len: 5_000,
            signaled: true,
            ..SendRequest::default()
        };
        self.victim.post_send(0, request);
        self.victim.transmit();
        self.victim.now += Span::from_millis(millis.into());
        self.victim.transmit();
    }

    /// The peer says something.
    fn say(&mut self, transaction: u64, message: Message) {
        let mad = Mad {
            transaction,
            message,
        };
        self.victim.receive(&datagram(PEER.into(), &mad));
    }

    /// The connection messages that leave now.
    fn heard(&mut self) -> Vec<Mad> {
        let sent = self.victim.transmit();
        let mads = sent.iter().filter(|frame| frame.get(BTH) == Some(&0x64));
        mads.map(|frame| Mad::parse(&frame[MAD..]).expect("whole"))
            .collect()
    }
}

fn parameters() -> ConnectionParameters<'static> {
    ConnectionParameters {
        private_data: b"hello",
        timeout: 12,
        ..ConnectionParameters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::victim::reached;
    use super::*;

    /// HT-20: the corpus has offers that are taken and such that are not, from both sides.
    #[test]
    fn the_corpus_reaches_both_modes() {
        let made = reached("host_offers", play);
        let [multipath, plain] = [0, 1].map(|n| made.iter().map(|it| it[n]).sum::<u64>());
        assert!(multipath >= 4 && plain >= 4, "{multipath} and {plain}");
    }
}
