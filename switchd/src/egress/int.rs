//! \[9\] The telemetry of a packet that leaves (SW-52): see [`super::signals`].

use crate::packet::Packet;
use crate::stats::Signed;
use crate::tables::csig::Mode;
use crate::tables::int::PortInt;
use common::wire::int::{Hop, Scaled, Written, add};

/// Adds `hop` to the tag at `at`, with `behind` bytes in the queue, if the port is to. What is to
/// be said of it; `None`: the frame ends in the tag.
#[inline]
pub(super) fn sign(
    packet: &mut Packet,
    at: usize,
    port: PortInt,
    hop: Hop,
    behind: u64,
) -> Option<Signed> {
    match port.mode {
        Mode::Strip => return Some(Signed::Stripped),
        Mode::PassThrough => return Some(Signed::Kept),
        Mode::Update => {}
    }
    let tag = packet.frame.bytes_mut().get_mut(at..)?;
    let hop = Hop {
        queue: Scaled::of(behind),
        ..hop
    };
    Some(match add(tag, &hop).ok()? {
        Written::Added => Signed::Updated,
        Written::Full => Signed::Full,
        Written::Kept => Signed::Kept,
    })
}
