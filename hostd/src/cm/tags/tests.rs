//! What two sides with these TPIDs and those agree on.

use super::super::negotiation::{OFFER_LEN, Offer};
use super::*;
use common::wire::cm::{REP_PRIVATE_LEN, REQ_PRIVATE_LEN};
use common::wire::roce::Cookie;

const SHIPPED: Tpids = Tpids {
    compact: 0x9900,
    expanded: 0x9901,
    int: 0,
};
const OTHERS: Tpids = Tpids {
    compact: 0x88b5,
    expanded: 0x88b6,
    int: 0,
};
const INT: Tpids = Tpids {
    int: 0x88b7,
    ..Tpids::NONE
};

/// An offer of a side that is configured with these.
fn of(known: Tpids) -> Offer {
    Offer {
        config: MultipathConfig {
            signals: known.compact != 0,
            telemetry: known.int != 0,
            ..MultipathConfig::default()
        },
        path_mtu: 4096,
        cookie: Cookie::new(1),
        told: None,
    }
}

/// What each side makes of a connection, the asking one first: whether there are tags, and why
/// not. `data`: bytes of the application's data in the REQ; `is_old`: that side does not know
/// the bytes before the offer.
fn meet(
    asks: Tpids,
    answers: Tpids,
    data: usize,
    is_old: [bool; 2],
) -> [(bool, Option<Untagged>); 2] {
    let data = vec![b'T'; data];
    let over_the_wire = |private: &mut [u8], offer: &Offer, deaf: bool| {
        Offer::fill(private, Some(offer), &data);
        let (found, text) = Offer::parse(private);
        assert_eq!(text, data);
        let found = found.expect("an offer");
        Offer {
            told: found.told.filter(|_| !deaf),
            ..found
        }
    };
    let (sent, room) = match is_old[0] {
        true => (of(asks), None),
        false => of(asks).asking(asks, data.len()),
    };
    let mut req = [0; REQ_PRIVATE_LEN];
    let asked = over_the_wire(&mut req, &sent, is_old[1]);
    let (agreed, there) = match is_old[1] {
        // It looks at the blocks alone, whatever its TPIDs are.
        true => (
            of(answers).answering(asked_by_blocks(&asked), &asked).0,
            None,
        ),
        false => of(answers).answering(answers, &asked),
    };
    let mut rep = [0; REP_PRIVATE_LEN];
    let reply = over_the_wire(&mut rep, &agreed, is_old[0]);
    let (end, here) = sent.answered(&reply);
    let has = |offer: &Offer| offer.config.signals || offer.config.telemetry;
    [(has(&end), room.or(here)), (has(&agreed), there)]
}

/// To a side that looks at the blocks alone all TPIDs are the same.
fn asked_by_blocks(asked: &Offer) -> Tpids {
    offered(&asked.config, Tpids::default())
}

/// CS-8, SW-52: tags are agreed on by sides that know them by the same TPIDs, whichever these
/// are. Where they differ there are none, and both sides say why.
#[test]
fn only_tags_that_both_know_are_agreed_on() {
    let now = [false; 2];
    let shipped_int = Tpids {
        int: Tpids::default().int,
        ..Tpids::NONE
    };
    for same in [SHIPPED, OTHERS, INT, shipped_int] {
        assert_eq!(meet(same, same, 5, now), [(true, None); 2], "{same:?}");
    }
    for (own, peer) in [(SHIPPED, OTHERS), (OTHERS, SHIPPED), (INT, shipped_int)] {
        let why = |own, peer| {
            let peer = Some(peer);
            (false, Some(Untagged { own, peer }))
        };
        let found = meet(own, peer, 5, now);
        assert_eq!(found, [why(own, peer), why(peer, own)]);
    }
    // One kind here, another there, or none: nobody misses anything.
    for (own, peer) in [(OTHERS, INT), (OTHERS, Tpids::NONE), (Tpids::NONE, SHIPPED)] {
        assert_eq!(meet(own, peer, 5, now), [(false, None); 2], "{own:?}");
    }
}

/// CS-8: the data of an application goes first. Where it leaves no room for TPIDs there are no
/// tags, unless they are those that ship.
#[test]
fn without_room_only_what_ships_is_agreed_on() {
    let most = REQ_PRIVATE_LEN - OFFER_LEN;
    for (own, data, tags) in [
        (OTHERS, most - LEN, true),
        (OTHERS, most - LEN + 1, false),
        (OTHERS, most, false),
        (SHIPPED, most, true),
    ] {
        let peer = None;
        let why = (!tags).then_some(Untagged { own, peer });
        let found = meet(own, own, data, [false; 2]);
        assert_eq!(found, [(tags, why), (tags, None)], "{data}");
    }
}

/// CS-8: with a peer that does not know these bytes there are tags if TPIDs are those that
/// ship, and none otherwise.
#[test]
fn peers_that_tell_nothing_have_what_ships() {
    for is_old in [[true, false], [false, true]] {
        let has = |own| meet(own, own, 5, is_old).map(|(has, _)| has);
        assert_eq!(has(SHIPPED), [true; 2], "{is_old:?}");
        assert_eq!(has(OTHERS), [false; 2], "{is_old:?}");
    }
}

/// CS-8: cut short, with other letters, or with one form alone, nothing is told.
#[test]
fn what_is_cut_is_not_told() {
    let whole = emit(OTHERS);
    assert_eq!(read(&whole), Some(OTHERS));
    for len in 0..LEN {
        assert_eq!(read(&whole[..len]), None);
        assert_eq!(read(&whole[LEN - len..]), None);
    }
    let half = Tpids {
        expanded: 0,
        ..OTHERS
    };
    assert_eq!(read(&emit(half)), None);
    assert_eq!(read(&[0; LEN]), None);
    assert_eq!(read(&emit(INT)), Some(INT));
}
