//! The messages beside the chunks: fixed-width little-endian fields.

use crate::failure::Failure;
use hostd_client::abi::codec::{DecodeError, Reader, Writer};

/// First bytes of a connection's private data and of every message: "hcp2".
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"hcp2");

/// The longest message.
pub(crate) const MESSAGE: usize = 1024;

/// The longest name of a file that is sent.
pub(crate) const NAME: usize = 900;

/// The longest text of a verdict.
const TEXT: usize = 512;

/// A message beside the chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The sender begins.
    Header {
        /// Bytes of the file.
        size: u64,
        /// Its permissions.
        mode: u32,
        /// Where it goes.
        target: String,
        /// Its name at the sender, for targets that are folders.
        name: String,
    },
    /// The receiver is ready.
    Welcome {
        /// Remote key of its memory.
        rkey: u32,
        /// Slots in it.
        slots: u32,
        /// Bytes of a slot.
        chunk: u32,
    },
    /// The receiver has taken this many chunks.
    Credit(u64),
    /// The sender has sent everything; BLAKE3 of it.
    Trailer([u8; 32]),
    /// How it ended: `None` if well, or what went wrong.
    Verdict(Option<String>),
}

impl Message {
    /// The bytes.
    pub(crate) fn encode(&self) -> Writer<MESSAGE> {
        let begin = |kind: u32| Writer::new().u32(MAGIC).u32(kind);
        match self {
            Self::Header {
                size,
                mode,
                target,
                name,
            } => text(
                text(begin(1).u64(*size).u32(*mode), target, NAME / 2),
                name,
                NAME / 2,
            ),
            Self::Welcome { rkey, slots, chunk } => begin(2).u32(*rkey).u32(*slots).u32(*chunk),
            Self::Credit(chunks) => begin(3).u64(*chunks),
            Self::Trailer(digest) => begin(4).bytes(digest),
            Self::Verdict(fault) => text(
                begin(5).u8(u8::from(fault.is_none())),
                fault.as_deref().unwrap_or(""),
                TEXT,
            ),
        }
    }

    /// The message in `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        parse(bytes).map_err(|error| Failure::Protocol(error.to_string()))
    }
}

/// Whether a name fits into a header.
pub(crate) fn fits(name: &str) -> bool {
    name.len() <= NAME / 2
}

fn text(writer: Writer<MESSAGE>, text: &str, most: usize) -> Writer<MESSAGE> {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let len = u16::try_from(end).expect("below MESSAGE");
    writer.u16(len).bytes(&text.as_bytes()[..end])
}

fn read_text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(reader.u16()?);
    if len > MESSAGE {
        return Err(DecodeError::Field("text"));
    }
    let bytes = (0..len)
        .map(|_| reader.u8())
        .collect::<Result<Vec<_>, _>>()?;
    String::from_utf8(bytes).map_err(|_| DecodeError::Field("text"))
}

fn parse(bytes: &[u8]) -> Result<Message, DecodeError> {
    let mut reader = Reader::new(bytes);
    let r = &mut reader;
    if r.u32()? != MAGIC {
        return Err(DecodeError::Field("magic"));
    }
    let message = match r.u32()? {
        1 => Message::Header {
            size: r.u64()?,
            mode: r.u32()?,
            target: read_text(r)?,
            name: read_text(r)?,
        },
        2 => Message::Welcome {
            rkey: r.u32()?,
            slots: r.u32()?,
            chunk: r.u32()?,
        },
        3 => Message::Credit(r.u64()?),
        4 => Message::Trailer(r.bytes()?),
        5 => {
            let well = r.u8()? != 0;
            let fault = read_text(r)?;
            Message::Verdict((!well).then_some(fault))
        }
        _ => return Err(DecodeError::Field("kind")),
    };
    reader.end()?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let messages = [
            Message::Header {
                size: 1 << 40,
                mode: 0o755,
                target: "a/ü".to_owned(),
                name: "x".repeat(NAME / 2),
            },
            Message::Welcome {
                rkey: 1,
                slots: 2,
                chunk: 3,
            },
            Message::Credit(7),
            Message::Trailer([9; 32]),
            Message::Verdict(None),
            Message::Verdict(Some("no room".to_owned())),
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(Message::decode(bytes.as_slice()).expect("decodes"), message);
            let short = &bytes.as_slice()[..bytes.as_slice().len() - 1];
            assert!(Message::decode(short).is_err());
        }
        assert!(Message::decode(b"GET / HTTP/1.1").is_err());
    }
}
