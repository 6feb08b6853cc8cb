//! What the two ends of a link tell each other about how they spread packets over paths (MG-9),
//! and about what still follows a pause (SW-12): a message of our own, for no standard has one.
//!
//! ```text
//!   destination  01-80-C2-00-00-0E: no bridge forwards it (IEEE 802.1Q table 8-1)
//!   EtherType    88-B5, for local experiments (IEEE 802 clause 9.2.4)
//!   bytes 0–3    "FSA1": fabric scheduling announcement, version 1
//!   byte  4      who says it: 0 host, 1 switch
//!   byte  5      the finest way in which it spreads packets: 0 none, 1 flow, 2 flowlet, 3 packet
//!   bytes 6–7    seconds for which that holds; zero: not any more
//!   byte  8      bytes of the name that follows, at most 63
//!   bytes 9–     its name, UTF-8
//!   then         fields, each: type, bytes of its value, value;
//!                type 0, or the end of the frame: no more
//!     type 1     at least 8 bytes: nanoseconds until it obeys a pause, 0: it does not know;
//!                bytes that its device still sends then
//! ```
//!
//! Fields of other types are skipped, and so is what is longer than described. A frame without
//! fields, padded with zeros, is what earlier builds say; they ignore what follows the name.

use super::{Error, Mac, Result, be16, be32, ethernet, need, put};
use crate::time::Span;

/// The EtherType.
pub const ETHERTYPE: u16 = 0x88b5;

/// The destination: the nearest bridge.
pub const GROUP: Mac = Mac([0x01, 0x80, 0xc2, 0, 0, 0x0e]);

/// Bytes of a name at most.
pub const NAME_MAX: usize = 63;

/// Bytes of a frame that are read at most: what is said today takes 96, the rest is for fields that
/// come later.
pub const FRAME_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"FSA1";
const HEAD: usize = 9;

/// Type of a field: there is no more.
const END: u8 = 0;

/// What still follows a pause, and how many bytes tell it.
const PAUSE: u8 = 1;
const PAUSE_LEN: u8 = 8;

/// Bytes of a field before its value.
const FIELD_HEAD: usize = 2;

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An end of flows.
    Host,
    /// What forwards them.
    Switch,
}

impl Role {
    /// As it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Switch => "switch",
        }
    }
}

/// What may take different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    /// Nothing is chosen: the hash of a flow decides, or there is one way.
    #[default]
    Nothing,
    /// Flows, each when it begins.
    Flows,
    /// Flowlets.
    Flowlets,
    /// Packets.
    Packets,
}

impl Spread {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Flows, Self::Flowlets, Self::Packets];

    /// As it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Flows => "flows",
            Self::Flowlets => "flowlets",
            Self::Packets => "packets",
        }
    }
}

/// What still comes from the port of a device that was sent a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseTerms {
    /// How long it takes to obey, at most 4.29 s; `None`: it does not know.
    pub response: Option<Span>,
    /// Bytes of line time that its device still sends then, a frame aside.
    pub backlog: u32,
}

impl PauseTerms {
    fn parse(value: &[u8]) -> Self {
        let nanos = be32(value, 0);
        Self {
            response: (nanos > 0).then(|| Span::from_nanos(nanos.into())),
            backlog: be32(value, 4),
        }
    }

    fn emit(self, value: &mut [u8]) {
        // Who obeys at once knows that, too.
        let nanos = |span: Span| u32::try_from(span.nanos().max(1)).unwrap_or(u32::MAX);
        put(value, 0, self.response.map_or(0, nanos).to_be_bytes());
        put(value, 4, self.backlog.to_be_bytes());
    }
}

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement<'a> {
    /// By whom.
    pub role: Role,
    /// The finest that it spreads.
    pub spread: Spread,
    /// Seconds for which it holds.
    pub seconds: u16,
    /// What follows a pause, if it obeys them and says so.
    pub pauses: Option<PauseTerms>,
    /// Its name; what is longer than [`NAME_MAX`] is cut off.
    pub name: &'a str,
}

impl<'a> Announcement<'a> {
    /// Reads what follows the Ethernet header.
    ///
    /// # Errors
    /// If it or a field is cut, it is of another version, or something has no meaning.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        const HEADER: &str = "announcement";
        need(HEADER, bytes, HEAD)?;
        let refused = |field, value: u32| Error::Field {
            header: HEADER,
            field,
            value,
        };
        if bytes[..4] != MAGIC {
            let value = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            return Err(refused("version", value));
        }
        let role = match bytes[4] {
            0 => Role::Host,
            1 => Role::Switch,
            other => return Err(refused("role", other.into())),
        };
        let spread = Spread::ALL.get(usize::from(bytes[5])).copied();
        let len = usize::from(bytes[8]);
        if len > NAME_MAX {
            return Err(refused("name length", bytes[8].into()));
        }
        need(HEADER, bytes, HEAD + len)?;
        let name = std::str::from_utf8(&bytes[HEAD..HEAD + len]);
        Ok(Self {
            role,
            spread: spread.ok_or_else(|| refused("spread", bytes[5].into()))?,
            seconds: be16(bytes, 6),
            pauses: pauses(&bytes[HEAD + len..])?,
            name: name.map_err(|_| refused("name", bytes[HEAD].into()))?,
        })
    }

    /// The frame that says it, from the port with the address `own`.
    pub fn frame(&self, own: Mac) -> Vec<u8> {
        let mut end = self.name.len().min(NAME_MAX);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        let name = &self.name.as_bytes()[..end];
        let field = self
            .pauses
            .map_or(0, |_| FIELD_HEAD + usize::from(PAUSE_LEN));
        let len = ethernet::HEADER_LEN + HEAD + name.len() + field;
        let mut frame = vec![0; len.max(ethernet::MIN_LEN)];
        ethernet::emit(&mut frame, GROUP, own, ETHERTYPE);
        let body = &mut frame[ethernet::HEADER_LEN..];
        put(body, 0, MAGIC);
        body[4] = self.role as u8;
        body[5] = self.spread as u8;
        put(body, 6, self.seconds.to_be_bytes());
        body[8] = u8::try_from(name.len()).expect("at most 63");
        body[HEAD..HEAD + name.len()].copy_from_slice(name);
        if let Some(pauses) = self.pauses {
            let field = &mut body[HEAD + name.len()..];
            put(field, 0, [PAUSE, PAUSE_LEN]);
            pauses.emit(&mut field[FIELD_HEAD..]);
        }
        frame
    }
}

/// The fields behind a name: what they say of pauses; of two that do the later one.
fn pauses(mut fields: &[u8]) -> Result<Option<PauseTerms>> {
    const HEADER: &str = "field of an announcement";
    let mut found = None;
    while let Some(kind) = fields.first().copied().filter(|kind| *kind != END) {
        need(HEADER, fields, FIELD_HEAD)?;
        let len = usize::from(fields[1]);
        need(HEADER, fields, FIELD_HEAD + len)?;
        let (value, rest) = fields[FIELD_HEAD..].split_at(len);
        if kind == PAUSE {
            need(HEADER, value, PAUSE_LEN.into())?;
            found = Some(PauseTerms::parse(value));
        }
        fields = rest;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn said(name: &str) -> Announcement<'_> {
        Announcement {
            role: Role::Switch,
            spread: Spread::Flowlets,
            seconds: 4,
            pauses: None,
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
}
