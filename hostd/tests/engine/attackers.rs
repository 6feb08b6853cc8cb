//! Connection messages of attackers: none is obeyed, each is counted for its reason, and floods of
//! them leave room for others (HT-3, HT-20).

use crate::connection::{PORT, both, connect, established, has, parameters, request as asked};
use crate::forge::{drops, forge, overheard, pair, read, rejection, reply, request, stranger};
use crate::network::Network;
use common::time::Span;
use common::wire::cm::{Dreq, Lap, Message, Mra, Pair, SidrReq, about, reject, service_id};
use hostd::limits;
use hostd::verbs::{Access, ConnectionId, DropReason, Event, State};
use std::collections::HashSet;
use std::net::IpAddr;

/// What connects host 0 (active) and host 1, as an eavesdropper knows it.
struct Known {
    qpns: [u32; 2],
    connections: [ConnectionId; 2],
    /// The communication identifiers of both.
    ids: [u32; 2],
    transaction: u64,
}

/// A connection, and all that its messages said.
fn connected(seed: u64) -> (Network, Known) {
    let mut network = Network::new(seed, both());
    network.tap = Some(Vec::new());
    let (qpns, connections) = connect(&mut network);
    let messages = overheard(&mut network);
    let request = messages.iter().find_map(|(_, _, mad)| match &mad.message {
        Message::Req(req) => Some((req.local_comm_id, mad.transaction)),
        _ => None,
    });
    let (active, transaction) = request.expect("was sent");
    let known = Known {
        qpns,
        connections,
        ids: [active, connections[1].number()],
        transaction,
    };
    (network, known)
}

fn states(network: &Network, qpns: [u32; 2]) -> [State; 2] {
    [0, 1].map(|host: usize| {
        let engine = &network.hosts[host].engine;
        let standing = engine.queue_pair_statistics(qpns[host]);
        standing.expect("exists").state
    })
}

fn stands(network: &Network, known: &Known) -> bool {
    states(network, known.qpns) == [State::ReadyToSend; 2]
}

/// The wrong ways to say something about host 1's side of a connection: source, pair, reason.
fn wrong_ways(peer: IpAddr, known: &Known) -> [(IpAddr, Pair, DropReason); 4] {
    let [theirs, own] = known.ids;
    [
        (stranger(9), pair(theirs, own), DropReason::ManagementSource),
        (peer, pair(0, own), DropReason::ManagementId),
        (peer, pair(theirs ^ 1, own), DropReason::ManagementId),
        (peer, pair(theirs, own ^ 1), DropReason::UnknownConnection),
    ]
}

/// HT-3: a DREQ ends a connection only from its peer, with both identifiers and the queue pair.
#[test]
fn a_disconnect_request_has_to_know_everything() {
    let (mut network, known) = connected(1);
    let peer = network.hosts[0].address;
    let qpn = known.qpns[1];
    let dreq = |pair, remote_qpn| Message::Dreq(Dreq { pair, remote_qpn });
    for (source, named, reason) in wrong_ways(peer, &known) {
        let before = drops(&network, 1, reason);
        forge(&mut network, 1, source, 5, dreq(named, qpn));
        assert_eq!(drops(&network, 1, reason), before + 1, "{reason}");
    }
    let right = pair(known.ids[0], known.ids[1]);
    for wrong in [0, qpn ^ 1, known.qpns[0]] {
        forge(&mut network, 1, peer, 5, dreq(right, wrong));
    }
    assert_eq!(drops(&network, 1, DropReason::ManagementQueuePair), 3);
    network.pass(Span::from_millis(20));
    assert!(stands(&network, &known));
    // The forger would have been obeyed with all of it.
    forge(&mut network, 1, peer, 5, dreq(right, qpn));
    assert_eq!(states(&network, known.qpns)[1], State::Error);
    let answer = overheard_of(&mut network, |message| matches!(message, Message::Drep(_)));
    assert!(answer.contains(&5), "a DREP repeats the transaction");
    network.close();
}

/// Transactions of the overheard messages that are wanted.
fn overheard_of(network: &mut Network, wanted: impl Fn(&Message) -> bool) -> Vec<u64> {
    network.pass(Span::from_millis(1));
    let messages = overheard(network).into_iter();
    messages
        .filter(|(_, _, mad)| wanted(&mad.message))
        .map(|(_, _, mad)| mad.transaction)
        .collect()
}

/// HT-3: REJ, RTU, MRA, DREP and LAP about a connection that stands change nothing.
#[test]
fn messages_about_others_connections_change_nothing() {
    let (mut network, known) = connected(2);
    let peer = network.hosts[0].address;
    let right = pair(known.ids[0], known.ids[1]);
    let messages = |pair: Pair| {
        [
            rejection(pair, about::OTHER, reject::TIMEOUT),
            Message::Rtu(pair),
            Message::Mra(Mra {
                pair,
                message: about::REP,
                service_timeout: 20,
            }),
            Message::Drep(pair),
            Message::Lap(Lap {
                pair,
                remote_qpn: known.qpns[1],
            }),
            reply(pair, 77),
        ]
    };
    let total = |network: &Network| network.hosts[1].engine.statistics().drops.total();
    for (source, named, reason) in wrong_ways(peer, &known) {
        for message in messages(named) {
            let before = (drops(&network, 1, reason), total(&network));
            forge(&mut network, 1, source, known.transaction, message);
            let after = (drops(&network, 1, reason), total(&network));
            assert_eq!(after, (before.0 + 1, before.1 + 1), "{reason}");
        }
    }
    // Of the right peer, but of another transaction; a LAP begins one.
    for message in messages(right) {
        let begins = matches!(message, Message::Lap(_));
        let before = drops(&network, 1, DropReason::ManagementTransaction);
        forge(&mut network, 1, peer, known.transaction ^ 1, message);
        let after = drops(&network, 1, DropReason::ManagementTransaction);
        assert_eq!(after, before + u64::from(!begins));
    }
    forge(
        &mut network,
        1,
        peer,
        1,
        Message::Lap(Lap {
            pair: right,
            remote_qpn: 3,
        }),
    );
    assert_eq!(drops(&network, 1, DropReason::ManagementQueuePair), 1);
    network.pass(Span::from_millis(20));
    assert!(stands(&network, &known));
    network.close();
}

/// HT-3: neither a forged REJ fails a connect, nor does a forged REP connect it with another queue
/// pair: both need the transaction and the identifier of the REQ, and the address of the peer.
#[test]
fn a_connect_believes_only_its_peer() {
    let mut network = Network::new(3, both());
    network.tap = Some(Vec::new());
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    network.hosts[1].engine.listen(PORT).expect("free");
    let peer = network.hosts[1].address;
    let own = network.hosts[0]
        .engine
        .connect(qpns[0], peer, PORT, &parameters(b""));
    let own = own.expect("legal").number();
    network.pass(Span::from_millis(1));
    let transaction = overheard(&mut network)[0].2.transaction;
    let forged = |pair| {
        [
            rejection(pair, about::REQ, reject::CONSUMER),
            rejection(pair, about::OTHER, reject::TIMEOUT),
            reply(pair, 0x666),
        ]
    };
    let cases = [
        (
            stranger(1),
            transaction,
            7,
            own,
            DropReason::ManagementSource,
        ),
        (
            peer,
            transaction ^ 1,
            7,
            own,
            DropReason::ManagementTransaction,
        ),
        (peer, transaction, 7, own ^ 1, DropReason::UnknownConnection),
        (peer, transaction, 7, 0, DropReason::UnknownConnection),
    ];
    for (source, transaction, local, remote, reason) in cases {
        for message in forged(pair(local, remote)) {
            let before = drops(&network, 0, reason);
            forge(&mut network, 0, source, transaction, message);
            assert_eq!(drops(&network, 0, reason), before + 1, "{reason}");
        }
    }
    // A REP names its sender; only a REJ of the REQ need not.
    forge(
        &mut network,
        0,
        peer,
        transaction,
        reply(pair(0, own), 0x666),
    );
    let other = rejection(pair(0, own), about::OTHER, reject::CONSUMER);
    forge(&mut network, 0, peer, transaction, other);
    assert_eq!(drops(&network, 0, DropReason::ManagementId), 2);
    let (connection, _) = asked(&network, 1).expect("came");
    let accepted = network.hosts[1]
        .engine
        .accept(connection, qpns[1], &parameters(b""));
    accepted.expect("legal");
    assert!(network.run(Span::from_secs(1), |network| {
        established(network, 0).is_some() && established(network, 1).is_some()
    }));
    let standing = network.hosts[0].engine.queue_pair_statistics(qpns[0]);
    assert_eq!(standing.expect("exists").remote_qpn, qpns[1]);
    network.close();
}

/// HT-3: 131,040 REQs in the peer's name, one of them of its queue pair, end no connection. That
/// one is refused as stale, and the queue pair probed: its peer answers.
#[test]
fn blind_requests_end_no_connection() {
    let (mut network, known) = connected(4);
    let peer = network.hosts[0].address;
    let destination = network.hosts[1].address;
    for number in 0..131_040_u32 {
        let qpn = (known.qpns[0].wrapping_add(number * 128)) & 0xff_ffff;
        let message = Message::Req(request(peer, destination, PORT, number + 1, qpn));
        forge(&mut network, 1, peer, u64::from(number), message);
        if number % 4096 == 0 {
            network.pass(Span::from_micros(10));
            network.tap = None;
        }
    }
    let half_open = u64::from(limits::HALF_OPEN_OF_SOURCE);
    let refused = drops(&network, 1, DropReason::HalfOpen);
    let stale = drops(&network, 1, DropReason::StaleConnection);
    let malformed = drops(&network, 1, DropReason::MalformedManagement);
    assert!(stale >= 1, "the queue pair was among them");
    assert_eq!(refused + stale + malformed + half_open, 131_040);
    assert!(drops(&network, 1, DropReason::AnswersFull) > 0);
    network.pass(Span::from_secs(8));
    assert!(stands(&network, &known));
    let counters = network.hosts[1].engine.statistics().transport;
    assert!(counters.keep_alives >= 1, "the queue pair was probed");
    network.close();
}

/// HT-3, InfiniBand 12.9.8.3.1: a queue pair that asks again though it is connected is refused as
/// stale. If its peer has forgotten the connection, the probe finds out, and it can connect.
#[test]
fn a_stale_connection_is_probed_and_ends() {
    let (mut network, known) = connected(5);
    network.impairment.dead = [true, false];
    let peer = network.hosts[0].address;
    let destination = network.hosts[1].address;
    let again = |id| Message::Req(request(peer, destination, PORT, id, known.qpns[0]));
    forge(&mut network, 1, peer, 1, again(1));
    assert_eq!(drops(&network, 1, DropReason::StaleConnection), 1);
    network.pass(Span::from_millis(1));
    let refused = overheard(&mut network).into_iter().any(|(_, to, mad)| {
        to == peer
            && mad.transaction == 1
            && matches!(mad.message, Message::Rej(rej)
                if rej.reason == reject::STALE_CONNECTION && rej.remote_comm_id == 1)
    });
    assert!(refused);
    let gone = |event: &Event| matches!(event, Event::QueuePairFailed { .. });
    assert!(network.run(Span::from_secs(7), |network| has(network, 1, gone)));
    network.pass(Span::from_millis(1));
    network.hosts[1].events.clear();
    forge(&mut network, 1, peer, 2, again(2));
    network.turn();
    assert!(asked(&network, 1).is_some());
    network.close();
}

/// HT-3: a REP of a queue pair that is connected to another queue pair here is refused, too.
#[test]
fn a_reply_of_a_connected_queue_pair_is_stale() {
    let (mut network, known) = connected(6);
    let peer = network.hosts[1].address;
    let fresh = network.hosts[0].queue_pair();
    let engine = &mut network.hosts[0].engine;
    let own = engine
        .connect(fresh, peer, PORT, &parameters(b""))
        .expect("legal")
        .number();
    network.pass(Span::from_millis(1));
    let messages = overheard(&mut network);
    let transaction = messages.last().expect("a REQ").2.transaction;
    let message = reply(pair(99, own), known.qpns[1]);
    forge(&mut network, 0, peer, transaction, message);
    assert_eq!(drops(&network, 0, DropReason::StaleConnection), 1);
    network.turn();
    let stale = |event: &Event| {
        matches!(event, Event::Rejected { qpn, reason: reject::STALE_CONNECTION, .. }
            if *qpn == fresh)
    };
    assert!(has(&network, 0, stale));
    assert!(stands(&network, &known));
    network.close();
}

/// HT-3: REQs of 5,200 strangers for a service that nobody offers are refused the way that they
/// came: no connection, no question for a route, no route. Then a new peer connects.
#[test]
fn strangers_leave_nothing_behind() {
    let mut network = Network::new(7, both());
    network.tap = Some(Vec::new());
    let destination = network.hosts[1].address;
    for number in 0..5_200 {
        let source = stranger(number);
        let message = Message::Req(request(source, destination, 99, number + 1, number + 2));
        forge(&mut network, 1, source, u64::from(number), message);
        if number == 0 {
            network.turn();
            let frames = network.tap.take().expect("was set");
            let answer = &frames[0];
            // The forged frame came from 51 to 52.
            assert_eq!(answer[..12], [2, 0, 0, 0, 0, 0x51, 2, 0, 0, 0, 0, 0x52]);
            let (from, to, mad) = read(answer).expect("a message");
            assert_eq!((from, to, mad.transaction), (destination, source, 0));
            let Message::Rej(rej) = mad.message else {
                panic!("{mad:?}");
            };
            let expected = (0, 1, about::REQ, reject::INVALID_SERVICE_ID);
            let said = (
                rej.local_comm_id,
                rej.remote_comm_id,
                rej.message,
                rej.reason,
            );
            assert_eq!(said, expected);
        }
    }
    assert_eq!(drops(&network, 1, DropReason::NoService), 5_200);
    assert_eq!(network.hosts[1].engine.connections(), 0);
    network.pass(Span::from_millis(1));
    assert!(
        network.hosts[1].events.is_empty(),
        "{:?}",
        network.hosts[1].events[0]
    );
    connect(&mut network);
    network.close();
}

/// HT-3: while REQs of strangers for a service that is offered come faster than the application
/// decides, others connect in both directions. Those that wait longest make way.
#[test]
fn a_flood_of_requests_leaves_room() {
    let mut network = Network::new(8, both());
    let destination = network.hosts[1].address;
    network.hosts[1].engine.listen(PORT).expect("free");
    for number in 0..5_200 {
        let source = stranger(number);
        let message = Message::Req(request(source, destination, PORT, number + 1, number + 2));
        forge(&mut network, 1, source, u64::from(number), message);
        network.turn();
    }
    let half_open = limits::HALF_OPEN as usize;
    assert_eq!(network.hosts[1].engine.connections(), half_open);
    let made_way = drops(&network, 1, DropReason::ConnectionTableFull);
    assert_eq!(made_way, 5_200 - half_open as u64);
    let needs_route = |event: &Event| matches!(event, Event::NeedRoute { .. });
    assert!(!has(&network, 1, needs_route));
    let told = network.hosts[1].events.iter();
    let told = told
        .filter(|event| matches!(event, Event::Unreachable { .. }))
        .count();
    assert_eq!(
        told as u64, made_way,
        "the application need not decide any more"
    );
    network.hosts[1].events.clear();
    network.hosts[1].engine.unlisten(PORT);
    connect(&mut network);
    // The other way round: host 1 has slots for what it begins itself.
    network
        .hosts
        .iter_mut()
        .for_each(|host| host.events.clear());
    let qpns = [network.hosts[1].queue_pair(), network.hosts[0].queue_pair()];
    network.hosts[0].engine.listen(PORT).expect("free");
    let other = network.hosts[0].address;
    let begun = network.hosts[1]
        .engine
        .connect(qpns[0], other, PORT, &parameters(b""));
    begun.expect("room");
    assert!(network.run(Span::from_millis(50), |network| asked(network, 0).is_some()));
    let (connection, _) = asked(&network, 0).expect("just seen");
    let accepted = network.hosts[0]
        .engine
        .accept(connection, qpns[1], &parameters(b""));
    accepted.expect("legal");
    assert!(network.run(Span::from_millis(50), |network| {
        established(network, 1).is_some()
    }));
    network.pass(Span::from_secs(20));
    assert_eq!(
        network.hosts[1].engine.connections(),
        2,
        "nobody decided in time"
    );
    network.close();
}

/// HT-3: one address has a bounded number of half-open connections; another is not concerned.
#[test]
fn one_source_cannot_take_all() {
    let mut network = Network::new(9, both());
    let destination = network.hosts[1].address;
    network.hosts[1].engine.listen(PORT).expect("free");
    let greedy = stranger(1);
    for number in 1..=1000 {
        let message = Message::Req(request(greedy, destination, PORT, number, number + 1));
        forge(&mut network, 1, greedy, u64::from(number), message);
    }
    let most = u64::from(limits::HALF_OPEN_OF_SOURCE);
    assert_eq!(drops(&network, 1, DropReason::HalfOpen), 1000 - most);
    assert_eq!(network.hosts[1].engine.connections() as u64, most);
    network.turn();
    network.hosts[1].events.clear();
    network.hosts[1].engine.unlisten(PORT);
    connect(&mut network);
    network.close();
}

/// HT-3: routes to where no connection leads make way for those that are needed.
#[test]
fn routes_without_a_connection_make_way() {
    let (mut network, known) = connected(10);
    let route = network.hosts[0].route();
    for number in 0..2 * u32::try_from(limits::ROUTES).expect("few") {
        let set = network.hosts[0].engine.set_route(stranger(number), route);
        set.expect("room was made");
    }
    let used = network.hosts[0].engine.evict_routes();
    assert_eq!(used, HashSet::from([network.hosts[1].address]));
    network.hosts[1].receive_into(known.qpns[1], 1, 0, 100);
    let send = network.hosts[0].send(1, 0, 100);
    let posted = network.hosts[0].engine.post_send(known.qpns[0], send);
    posted.expect("connected");
    assert!(network.run(Span::from_millis(20), |network| {
        network.hosts[0].completions.len() == 1
    }));
    let connections = known.connections;
    network.hosts[0]
        .engine
        .disconnect(connections[0])
        .expect("legal");
    network.close();
}

/// HT-3: questions for datagram services are answered that there are none, without state.
#[test]
fn datagram_services_are_not_offered() {
    let mut network = Network::new(11, both());
    network.tap = Some(Vec::new());
    let question = SidrReq {
        request: 0x1234_5678,
        partition: 0xffff,
        service_id: service_id(PORT),
    };
    forge(&mut network, 1, stranger(1), 42, Message::SidrReq(question));
    assert_eq!(drops(&network, 1, DropReason::NoService), 1);
    network.turn();
    let answers = overheard(&mut network);
    let Some((_, to, mad)) = answers.first() else {
        panic!("no answer");
    };
    assert_eq!((*to, mad.transaction), (stranger(1), 42));
    let Message::SidrRep(answer) = &mad.message else {
        panic!("{mad:?}");
    };
    assert_eq!(
        (answer.request, answer.status, answer.qpn),
        (0x1234_5678, 1, 0)
    );
    network.close();
}

/// HT-3: whatever is sent comes from the whole range: identifiers, transactions, queue pairs, first
/// PSNs, cookies and keys of memory, of hosts with different secrets, and of one host one after
/// another.
#[test]
fn numbers_are_drawn_in_full() {
    let mut all: [Vec<u64>; 7] = Default::default();
    for seed in 0..8 {
        let mut network = Network::new(seed, both());
        network.tap = Some(Vec::new());
        let peer = network.hosts[1].address;
        for _ in 0..16 {
            let qpn = network.hosts[0].queue_pair();
            let host = &mut network.hosts[0];
            let asked = host.engine.connect(qpn, peer, PORT, &parameters(b""));
            asked.expect("legal");
            let (memory, access) = (host.memory.clone(), Access::LOCAL_WRITE);
            let keys = host.engine.register(host.domain, memory, 0, access);
            let keys = keys.expect("room");
            all[5].push(keys.lkey.into());
            all[6].push(keys.rkey.into());
        }
        network.turn();
        for (_, _, mad) in overheard(&mut network) {
            if let Message::Req(req) = &mad.message {
                all[0].push(mad.transaction);
                all[1].push(req.local_comm_id.into());
                all[2].push(req.local_qpn.into());
                all[3].push(req.starting_psn.into());
                // The offer is in the last 24 bytes, and the cookie in its bytes 16 to 21.
                let (_, cookie) = req.private.split_at(req.private.len() - 8);
                let cookie = cookie[..6].iter();
                all[4].push(cookie.fold(0, |bits, byte| bits << 8 | u64::from(*byte)));
            }
        }
        network.close();
    }
    for (numbers, bits) in all.into_iter().zip([64, 32, 24, 24, 48, 32, 32]) {
        assert_eq!(numbers.len(), 128);
        let different: HashSet<_> = numbers.iter().collect();
        assert_eq!(different.len(), 128);
        for bit in 0..bits {
            let ones = numbers
                .iter()
                .filter(|&number| number >> bit & 1 == 1)
                .count();
            // 128 fair coins: a bit outside is one in ten billion.
            assert!((28..=100).contains(&ones), "bit {bit} of {bits}: {ones}");
        }
    }
}
