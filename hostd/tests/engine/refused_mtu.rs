//! Path MTUs that one side does not accept: the REJ says which one it does, and who asked asks once
//! more.

use crate::connection::{PORT, config, established, has, parameters};
use crate::forge::{forge, overheard, pair, rejection};
use crate::network::Network;
use common::time::Span;
use common::wire::cm::{Mad, Message, REJ_INFO_LEN, Rej, about, reject};
use hostd::verbs::{ConnectionId, DropReason, EngineConfig, Event, MultipathConfig, Route};

/// Host 0, which asks for 2048 bytes, and host 1, whose configuration has `most`. With `routed`
/// host 1 knows the way to its peer before it is asked.
fn network(most: u16, offers: bool, routed: bool) -> (Network, u32) {
    let multipath = Some(MultipathConfig::default()).filter(|_| offers);
    let small = EngineConfig {
        path_mtu: most,
        ..config(None)
    };
    let mut network = Network::new(11, [config(multipath), small]);
    network.hosts[1].engine.listen(PORT).expect("free");
    if routed {
        let (peer, route) = (network.hosts[0].address, network.hosts[1].route());
        let engine = &mut network.hosts[1].engine;
        engine.set_route(peer, route).expect("legal");
    }
    network.tap = Some(Vec::new());
    let qpn = network.hosts[0].queue_pair();
    let peer = network.hosts[1].address;
    let engine = &mut network.hosts[0].engine;
    engine
        .connect(qpn, peer, PORT, &parameters(b"hello"))
        .expect("legal");
    (network, qpn)
}

/// Accepts every request that comes to host 1, until host 0 is connected or refused.
fn meet(network: &mut Network) -> Vec<u32> {
    let mut accepted: Vec<(ConnectionId, u32)> = Vec::new();
    network.run(Span::from_secs(20), |network| {
        let host = &mut network.hosts[1];
        for event in host.events.clone() {
            if let Event::ConnectRequest { connection, .. } = event
                && accepted.iter().all(|(known, _)| *known != connection)
            {
                let qpn = host.queue_pair();
                let given = parameters(b"welcome");
                host.engine.accept(connection, qpn, &given).expect("legal");
                accepted.push((connection, qpn));
            }
        }
        let over = |event: &Event| matches!(event, Event::Rejected { .. });
        has(network, 0, over) || (0..2).all(|host| established(network, host).is_some())
    });
    accepted.into_iter().map(|(_, qpn)| qpn).collect()
}

/// What was said, in short.
struct Said {
    /// The path MTU of each REQ, as its code.
    asked: Vec<u8>,
    /// Of each REJ the reason, and of its additional information the length and the code of an MTU.
    refused: Vec<(u16, u8, u8)>,
    transactions: Vec<u64>,
}

fn said(network: &mut Network) -> Said {
    let all: Vec<Mad> = overheard(network).into_iter().map(|it| it.2).collect();
    let asked = all.iter().filter_map(|mad| match &mad.message {
        Message::Req(req) => Some(req.path_mtu),
        _ => None,
    });
    let refused = all.iter().filter_map(|mad| match &mad.message {
        Message::Rej(rej) => Some((rej.reason, rej.info_len, rej.info[0] >> 4)),
        _ => None,
    });
    let mut transactions: Vec<_> = all.iter().map(|mad| mad.transaction).collect();
    transactions.dedup();
    Said {
        asked: asked.collect(),
        refused: refused.collect(),
        transactions,
    }
}

/// HT-10, HT-20: a REQ whose path MTU is too long for the link of the other side is refused with
/// reason 26, and the additional information has the MTU that is accepted (IBTA 12.6.7.2). This
/// side asks once more with that one, in another transaction, and the connection has it. Who
/// listens hears of the second REQ alone, unless nothing was known of its link before.
#[test]
fn an_mtu_that_is_refused_is_asked_for_once_more() {
    for (most, code, offers, routed) in [
        (1024, 3, false, true),
        (256, 1, true, true),
        (512, 2, false, false),
    ] {
        let (mut network, qpn) = network(most, offers, routed);
        let accepted = meet(&mut network);
        let said = said(&mut network);
        assert_eq!(said.asked, [4, code]);
        assert_eq!(said.refused, [(26, 1, code)]);
        assert_eq!(said.transactions.len(), 2, "one for each REQ");
        assert_eq!(accepted.len(), 1, "the first was refused unheard");
        for (host, qpn) in network.hosts.iter().zip([qpn, accepted[0]]) {
            let pair = host.engine.queue_pair_statistics(qpn).expect("there");
            assert_eq!((pair.path_mtu, pair.agreed.is_some()), (most, false));
        }
        let drops = &network.hosts[1].engine.statistics().drops;
        assert_eq!(drops.get(DropReason::ManagementMtu), 1);
        network.hosts[1].receive_into(accepted[0], 1, 0, 5000);
        let send = network.hosts[0].send(2, 0, 5000);
        network.hosts[0].engine.post_send(qpn, send).expect("room");
        let arrived = |network: &mut Network| network.hosts[1].completions.len() == 1;
        assert!(network.run(Span::from_secs(1), arrived));
        network.close();
    }
}

/// HT-10: a link of which something is known only when the application has accepted: the refusal
/// says the same, and the second REQ is another request.
#[test]
fn an_mtu_is_refused_also_after_the_request_was_accepted() {
    let (mut network, qpn) = network(4096, false, false);
    // What is asked for fits the configuration, and not the link.
    let short = Route {
        mtu: 700,
        ..network.hosts[1].route()
    };
    network.hosts[1].routed = false;
    let mut accepted = Vec::new();
    let met = network.run(Span::from_secs(20), |network| {
        let host = &mut network.hosts[1];
        for event in std::mem::take(&mut host.events) {
            match event {
                Event::ConnectRequest { connection, .. } => {
                    let qpn = host.queue_pair();
                    let given = parameters(b"");
                    host.engine.accept(connection, qpn, &given).expect("legal");
                    accepted.push(qpn);
                }
                Event::NeedRoute { destination } => {
                    host.engine.set_route(destination, short).expect("legal");
                }
                _ => {}
            }
        }
        established(network, 0).is_some()
    });
    assert!(met, "{:?}", network.hosts[0].events);
    let said = said(&mut network);
    assert_eq!(said.asked, [4, 2]);
    assert_eq!(said.refused, [(26, 1, 2)]);
    assert_eq!(accepted.len(), 2);
    let pair = network.hosts[0].engine.queue_pair_statistics(qpn);
    assert_eq!(pair.expect("there").path_mtu, 512);
    network.close();
}

/// HT-10: a REJ about the MTU that says nothing that can be asked for, or says so a second time,
/// ends the attempt; nobody asks a third time.
#[test]
fn refusals_that_lead_nowhere_end_the_attempt() {
    let about_mtu = |rej: &mut Rej, len, code: u8| {
        rej.reason = reject::INVALID_MTU;
        rej.info_len = len;
        rej.info = [0; REJ_INFO_LEN];
        rej.info[0] = code << 4;
    };
    for (len, code, again) in [
        (0, 3, false),
        (1, 0, false),
        (1, 4, false),
        (1, 5, false),
        (1, 6, false),
        (1, 15, false),
        (1, 3, true),
    ] {
        let (mut network, _) = network(4096, false, true);
        network.impairment.dead = [true, true];
        network.pass(Span::from_micros(10));
        let peer = network.hosts[1].address;
        let refuse = |network: &mut Network, code| {
            let (_, _, mad) = overheard(network).pop().expect("a REQ");
            let Message::Req(req) = mad.message else {
                panic!("{:?}", mad.message);
            };
            let pair = pair(0, req.local_comm_id);
            let Message::Rej(mut rej) = rejection(pair, about::REQ, reject::INVALID_MTU) else {
                unreachable!();
            };
            about_mtu(&mut rej, len, code);
            forge(network, 0, peer, mad.transaction, Message::Rej(rej));
            network.pass(Span::from_micros(10));
            req.path_mtu
        };
        let over = |event: &Event| matches!(event, Event::Rejected { reason: 26, .. });
        assert_eq!(refuse(&mut network, code), 4);
        assert_eq!(has(&network, 0, over), !again, "{len} {code}");
        if again {
            assert_eq!(refuse(&mut network, code - 1), code);
            assert!(has(&network, 0, over), "no third time");
        }
        assert_eq!(network.hosts[0].engine.connections(), 0);
        network.close();
    }
}
