//! What is written and read of announcements.

use super::*;
use proptest::prelude::*;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn said(name: &str) -> Announcement<'_> {
    Announcement {
        role: Role::Switch,
        spread: Spread::Flowlets,
        seconds: 4,
        pauses: None,
        asks: false,
        name,
    }
}

fn with_pauses(name: &str) -> Announcement<'_> {
    let pauses = PauseTerms {
        response: Some(Span::from_micros(100)),
        backlog: 0x0102_0304,
    };
    Announcement {
        pauses: Some(pauses),
        ..said(name)
    }
}

/// MG-9: each field is where the page says, and short frames are padded.
#[test]
fn fields_are_where_they_are_described() {
    let frame = said("leaf1").frame(OWN);
    assert_eq!(frame.len(), 60);
    assert_eq!(frame[..6], [1, 0x80, 0xc2, 0, 0, 0x0e]);
    assert_eq!(frame[6..14], [2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    assert_eq!(frame[14..28], *b"FSA1\x01\x02\x00\x04\x05leaf1");
    assert!(frame[28..].iter().all(|byte| *byte == 0));
    assert_eq!(Announcement::parse(&frame[14..]), Ok(said("leaf1")));
    for cut in 0..14 {
        assert!(Announcement::parse(&frame[14..14 + cut]).is_err());
    }
}

/// SW-12: what follows a pause is said behind the name, where who does not know it reads
/// padding; fields of a later version are skipped; a cut one is refused.
#[test]
fn pauses_are_a_field_behind_the_name() {
    let frame = with_pauses("leaf1").frame(OWN);
    let field = [1, 8, 0, 1, 0x86, 0xa0, 1, 2, 3, 4];
    assert_eq!(frame[14..28], *b"FSA1\x01\x02\x00\x04\x05leaf1");
    assert_eq!(frame[28..38], field);
    assert_eq!(Announcement::parse(&frame[14..]), Ok(with_pauses("leaf1")));
    let long = "n".repeat(NAME_MAX);
    let longest = with_pauses(&long).frame(OWN);
    assert!(longest.len() < FRAME_MAX);
    assert_eq!(Announcement::parse(&longest[14..]), Ok(with_pauses(&long)));

    let body = &frame[14..28];
    let read = |fields: &[u8]| {
        let bytes = [body, fields].concat();
        Announcement::parse(&bytes).map(|said| said.pauses)
    };
    let known = with_pauses("leaf1").pauses;
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[&[9, 2, 7, 7], &field[..]].concat()), Ok(known));
    let longer = [&[1, 9], &field[2..], &[5]].concat();
    assert_eq!(read(&longer), Ok(known));
    let unknown = read(&[1, 8, 0, 0, 0, 0, 0, 0, 0, 7]).unwrap().unwrap();
    assert_eq!((unknown.response, unknown.backlog), (None, 7));
    for cut in 1..field.len() {
        assert!(read(&field[..cut]).is_err(), "{cut}");
    }
    assert!(read(&[1, 7, 0, 0, 0, 0, 0, 0, 0]).is_err(), "too short");
    let at_once = Announcement {
        pauses: Some(PauseTerms {
            response: Some(Span::ZERO),
            backlog: 0,
        }),
        ..said("leaf1")
    };
    let frame = at_once.frame(OWN);
    let read = Announcement::parse(&frame[14..]).unwrap().pauses.unwrap();
    assert_eq!(read.response, Some(Span::from_nanos(1)));
}

/// SW-12: who has heard nothing asks, behind what it says of pauses or without, where earlier
/// builds skip it.
#[test]
fn a_newcomer_asks() {
    for (said, at) in [(said("leaf1"), 28), (with_pauses("leaf1"), 38)] {
        let asking = Announcement { asks: true, ..said };
        let frame = asking.frame(OWN);
        assert_eq!((frame.len(), &frame[at..at + 2]), (60, &[2, 0][..]));
        assert_eq!(Announcement::parse(&frame[14..]), Ok(asking));
        let silent = said.frame(OWN);
        assert_eq!(silent[14..at], frame[14..at]);
    }
    let long = "n".repeat(NAME_MAX);
    let longest = Announcement {
        asks: true,
        ..with_pauses(&long)
    };
    let frame = longest.frame(OWN);
    assert_eq!((frame.len(), frame.len() < FRAME_MAX), (98, true));
    assert_eq!(Announcement::parse(&frame[14..]), Ok(longest));
    assert!(Announcement::parse(&frame[14..97]).is_err(), "it is cut");
}

/// MG-9: what has no meaning is refused by its name.
#[test]
fn nonsense_is_refused() {
    let good = said("leaf1").frame(OWN);
    for (at, value, wanted) in [
        (3, b'2', "version"),
        (4, 2, "role"),
        (5, 4, "spread"),
        (8, 64, "name length"),
        (9, 0xff, "name"),
    ] {
        let mut bytes = good[14..].to_vec();
        bytes[at] = value;
        let refused = Announcement::parse(&bytes).expect_err("nonsense");
        assert!(matches!(refused, Error::Field { field, .. } if field == wanted));
    }
    let mut bytes = good[14..].to_vec();
    bytes[8] = 60;
    assert!(Announcement::parse(&bytes).is_err(), "the name is cut");
}

proptest! {
    /// MG-9: whatever comes is read or refused; any name is said, or what fits of it.
    #[test]
    fn anything_is_read_or_refused(bytes: Vec<u8>, name: String) {
        let _ = Announcement::parse(&bytes);
        let frame = with_pauses(&name).frame(OWN);
        let read = Announcement::parse(&frame[14..]).expect("it was written");
        prop_assert!(name.starts_with(read.name) && read.name.len() + 3 >= name.len().min(63));
        prop_assert_eq!(read.pauses, with_pauses("").pauses);
    }
}
