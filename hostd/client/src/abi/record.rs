//! The form of every message.
//!
//! A message is one SOCK_SEQPACKET record: kind (u16), two reserved bytes, tag (u32), then the
//! fixed-width body of the kind. A reply bears the tag of its request; events have tag zero, and so
//! has the refusal of a session that was not even asked what it wants.

use super::MESSAGE_MAX;
use super::codec::{DecodeError, Reader, Writer};

/// The tag of what answers no request.
pub const TAG_NONE: u32 = 0;

/// A message being written.
pub type Record = Writer<MESSAGE_MAX>;

/// Begins a record of this kind.
pub(super) fn header(kind: u16, tag: u32) -> Record {
    Record::new().u16(kind).u16(0).u32(tag)
}

/// The kind and the tag of a record, and a reader at its body.
pub(super) fn open(bytes: &[u8]) -> Result<(u16, u32, Reader<'_>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let kind = reader.u16()?;
    reader.reserved::<2>()?;
    let tag = reader.u32()?;
    Ok((kind, tag, reader))
}

/// The tag of a request that may be malformed otherwise, so that its refusal can be matched.
pub fn tag_of(bytes: &[u8]) -> u32 {
    open(bytes).map_or(TAG_NONE, |(_, tag, _)| tag)
}
