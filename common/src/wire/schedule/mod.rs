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
//!     type 2     any bytes: who says this has heard nothing yet, and asks to be told at once
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

/// Bytes of a frame that are read at most: what is said today takes 98, the rest is for fields that
/// come later.
pub const FRAME_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"FSA1";
const HEAD: usize = 9;

/// Type of a field: there is no more.
const END: u8 = 0;

/// What still follows a pause, and how many bytes tell it.
const PAUSE: u8 = 1;
const PAUSE_LEN: u8 = 8;

/// Type of a field: who says this asks to be told at once.
const ASK: u8 = 2;

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
    /// It has heard nothing from whom it says this to, and asks to be told at once.
    pub asks: bool,
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
        let fields = Fields::parse(&bytes[HEAD + len..])?;
        Ok(Self {
            role,
            spread: spread.ok_or_else(|| refused("spread", bytes[5].into()))?,
            seconds: be16(bytes, 6),
            pauses: fields.pauses,
            asks: fields.asks,
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
        let pauses = self
            .pauses
            .map_or(0, |_| FIELD_HEAD + usize::from(PAUSE_LEN));
        let ask = if self.asks { FIELD_HEAD } else { 0 };
        let len = ethernet::HEADER_LEN + HEAD + name.len() + pauses + ask;
        let mut frame = vec![0; len.max(ethernet::MIN_LEN)];
        ethernet::emit(&mut frame, GROUP, own, ETHERTYPE);
        let body = &mut frame[ethernet::HEADER_LEN..];
        put(body, 0, MAGIC);
        body[4] = self.role as u8;
        body[5] = self.spread as u8;
        put(body, 6, self.seconds.to_be_bytes());
        body[8] = u8::try_from(name.len()).expect("at most 63");
        body[HEAD..HEAD + name.len()].copy_from_slice(name);
        let fields = &mut body[HEAD + name.len()..];
        if let Some(terms) = self.pauses {
            put(fields, 0, [PAUSE, PAUSE_LEN]);
            terms.emit(&mut fields[FIELD_HEAD..]);
        }
        if self.asks {
            put(fields, pauses, [ASK, 0]);
        }
        frame
    }
}

/// What the fields behind a name say; of two of one type the later one counts.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    pauses: Option<PauseTerms>,
    asks: bool,
}

impl Fields {
    fn parse(mut fields: &[u8]) -> Result<Self> {
        const HEADER: &str = "field of an announcement";
        let mut found = Self::default();
        while let Some(kind) = fields.first().copied().filter(|kind| *kind != END) {
            need(HEADER, fields, FIELD_HEAD)?;
            let len = usize::from(fields[1]);
            need(HEADER, fields, FIELD_HEAD + len)?;
            let (value, rest) = fields[FIELD_HEAD..].split_at(len);
            match kind {
                PAUSE => {
                    need(HEADER, value, PAUSE_LEN.into())?;
                    found.pauses = Some(PauseTerms::parse(value));
                }
                ASK => found.asks = true,
                _ => {}
            }
            fields = rest;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
