//! What is told, heard and answered.

use super::*;

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn schedulers(role: Role, own: Spread) -> Schedulers {
    let mut known = Schedulers::new(role, own);
    known.set_ports(vec![port(7)], at(0));
    known
}

fn port(ifindex: u32) -> LocalPort {
    LocalPort {
        name: "h1".to_owned(),
        ifindex,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        pauses: None,
    }
}

fn frame(role: Role, spread: Spread, seconds: u16) -> Vec<u8> {
    let said = Announcement {
        role,
        spread,
        seconds,
        pauses: None,
        asks: false,
        name: "peer",
    };
    said.frame(Mac([2, 0, 0, 0, 0, 2]))
}

/// MG-9: what the peer said holds for as long as it said, at ports that there are; what makes
/// no sense is counted and changes nothing.
#[test]
fn what_was_heard_holds_for_a_time() {
    let mut known = schedulers(Role::Switch, Spread::Flowlets);
    known.hear(8, &frame(Role::Host, Spread::Packets, 4), at(1));
    assert_eq!(known.rows(at(1))[0].peer, None);
    known.hear(7, &frame(Role::Host, Spread::Packets, 4), at(1));
    known.hear(7, &[0; 60], at(1));
    known.hear(7, &[0; 3], at(1));
    assert_eq!(known.bad, 2);
    let row = &known.rows(at(4))[0];
    assert_eq!(row.peer.as_deref(), Some("peer"));
    assert_eq!(row.theirs.as_deref(), Some("packets"));
    assert_eq!(
        (row.own.as_str(), row.by_packet.as_str()),
        ("flowlets", "host")
    );
    assert_eq!(known.rows(at(5))[0].theirs, None);
    known.hear(7, &frame(Role::Host, Spread::Packets, 4), at(6));
    known.hear(7, &frame(Role::Host, Spread::Packets, 0), at(6));
    assert_eq!(known.rows(at(6))[0].theirs, None, "it said goodbye");
    known.hear(7, &frame(Role::Host, Spread::Flows, 4), at(6));
    known.set_ports(Vec::new(), at(6));
    assert!(known.rows(at(6)).is_empty() && known.heard.is_empty());
}

/// MG-9: only the neighbour speaks with the address that bridges keep to the link. What a station
/// somewhere behind a bridge says is counted and changes nothing.
#[test]
fn who_is_no_neighbour_is_not_heard() {
    let mut known = schedulers(Role::Switch, Spread::Flowlets);
    known.hear(7, &frame(Role::Host, Spread::Packets, 4), at(1));
    for destination in [[0xff; 6], [2, 0, 0, 0, 0, 1], [1, 0x80, 0xc2, 0, 0, 0]] {
        let mut bytes = frame(Role::Host, Spread::Flows, 0);
        bytes[..6].copy_from_slice(&destination);
        assert!(!known.hear(7, &bytes, at(2)));
    }
    assert_eq!(known.bad, 3);
    assert_eq!(known.rows(at(2))[0].theirs.as_deref(), Some("packets"));
}

/// SW-12: what the peer says of pauses is known as long as the rest; a name is no command to a
/// terminal.
#[test]
fn pauses_are_heard_with_the_rest() {
    let shared = SharedSchedulers::new(Role::Switch, Spread::Flowlets);
    shared.set_ports(vec![port(7)], at(0));
    let terms = PauseTerms {
        response: None,
        backlog: 131_072,
    };
    let said = Announcement {
        role: Role::Host,
        spread: Spread::Packets,
        seconds: 4,
        pauses: Some(terms),
        asks: false,
        name: "h1\x1b[2J\n",
    };
    assert_eq!(shared.pauses(7, at(1)), None);
    let frame = said.frame(Mac([2, 0, 0, 0, 0, 2]));
    shared.lock().hear(7, &frame, at(1));
    let heard = shared.pauses(7, at(4)).expect("it was said");
    assert_eq!((heard.role, heard.terms), (Role::Host, terms));
    assert_eq!(heard.name, "h1\u{fffd}[2J\u{fffd}");
    assert_eq!(shared.rows(at(4))[0].backlog_bytes, Some(131_072));
    assert_eq!(shared.pauses(7, at(5)), None);
    assert_eq!(shared.rows(at(5))[0].backlog_bytes, None);
}

/// MG-9: of two ends that spread packets the host does it, whichever end is asked.
#[test]
fn never_both_spread_packets() {
    use Spread::{Flows, Packets};
    for (host, switch, wanted) in [
        (Packets, Packets, "host"),
        (Packets, Flows, "host"),
        (Flows, Packets, "switch"),
        (Flows, Flows, "nobody"),
    ] {
        let mut at_switch = schedulers(Role::Switch, switch);
        at_switch.hear(7, &frame(Role::Host, host, 4), at(1));
        let mut at_host = schedulers(Role::Host, host);
        at_host.hear(7, &frame(Role::Switch, switch, 4), at(1));
        for known in [at_switch, at_host] {
            assert_eq!(
                known.rows(at(2))[0].by_packet,
                wanted,
                "{host:?} {switch:?}"
            );
        }
    }
}

/// SW-12: two ends know of each other as soon as both are there, whoever is first and whichever
/// frames are lost before: who has heard nothing asks, and is answered at once. Nobody else is,
/// nor who asks again and again.
#[test]
fn a_newcomer_is_answered_at_once() {
    let mut here = schedulers(Role::Switch, Spread::Flowlets);
    let mut there = schedulers(Role::Host, Spread::Packets);
    let frame = |known: &Schedulers, now| known.said(&port(7), "it", now).frame(port(7).mac);
    // Who was first has told already, to nobody.
    let first = frame(&there, at(1));
    assert!(here.hear(7, &first, at(1)), "it asks");
    let answer = frame(&here, at(1));
    assert!(!there.hear(7, &answer, at(1)), "it has heard, and asks not");
    assert!(!here.hear(7, &frame(&there, at(2)), at(2)));
    // One that was started again knows nothing, though it is known.
    let mut again = schedulers(Role::Host, Spread::Packets);
    assert!(here.hear(7, &frame(&again, at(2)), at(2)));
    assert!(!again.hear(7, &frame(&here, at(2)), at(2)));
    let asks = |now| again.said(&port(7), "it", now).asks;
    assert_eq!([5, 6].map(|second| asks(at(second))), [false, true]);

    let asks = frame(&schedulers(Role::Host, Spread::Packets), at(3));
    let answered = (0..1000).filter(|milli| {
        let now = at(3) + Span::from_millis(*milli);
        here.hear(7, &asks, now)
    });
    assert_eq!(answered.count(), 5, "one in 200 ms");
    assert!(!here.hear(8, &asks, at(9)), "there is no such port");
}

/// SW-12: a port that comes up is new, and what was heard there before is forgotten; only when
/// it has been listened to for a while is silence worth something.
#[test]
fn a_port_that_comes_up_is_new() {
    let shared = SharedSchedulers::new(Role::Switch, Spread::Flowlets);
    let set = |ports: &[u32], now| {
        let ports = ports.iter().map(|ifindex| port(*ifindex));
        let new = shared.set_ports(ports.collect(), now);
        new.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(set(&[7, 8], at(1)), [7, 8]);
    assert_eq!(set(&[7, 8, 9], at(2)), [9]);
    shared
        .lock()
        .hear(7, &frame(Role::Host, Spread::Packets, 4), at(2));
    assert!(shared.lock().heard.contains_key(&7));
    assert!(!shared.has_listened(7, at(4)) && shared.has_listened(7, at(5)));
    assert_eq!(set(&[8, 9], at(6)), Vec::<u32>::new());
    assert!(!shared.has_listened(7, at(6)));
    assert_eq!(set(&[7, 8, 9], at(6)), [7]);
    assert!(shared.lock().heard.is_empty());
    assert!(!shared.has_listened(7, at(9)) && shared.has_listened(8, at(9)));
}
