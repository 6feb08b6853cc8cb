//! Packets that take several descriptors: put together when they are received, and counted when
//! they are sent.

use super::frame::{Frame, FramePool};
use super::limits::{CHUNK, JUMBO_MAX, PIECES_MAX};

/// A packet that comes in several chunks.
pub(super) enum Assembly {
    /// There is none.
    Idle,
    /// What has come of it.
    Begun(Frame),
    /// The rest of a packet that is lost.
    Skipped,
}

/// Puts a further piece behind the first ones of a packet, unless that makes no sense: then all is
/// given back.
pub(super) fn join(mut first: Frame, piece: Option<Frame>, pool: &mut FramePool) -> Option<Frame> {
    let fits = piece.as_ref().is_some_and(|piece| {
        let len = first.len() + piece.len();
        (first.len() + 1..=usize::from(JUMBO_MAX)).contains(&len)
            && first.pieces().count() < PIECES_MAX as usize
    });
    let left = match piece {
        Some(piece) if fits => match first.append(piece) {
            Ok(()) => return Some(first),
            Err(piece) => Some(piece),
        },
        piece => piece,
    };
    left.into_iter().for_each(|piece| pool.give(piece));
    pool.give(first);
    None
}

/// Whether a chunk of the packet is empty: the kernel would take it for the end.
#[inline]
pub(super) fn has_gap(frame: &Frame) -> bool {
    frame.is_chained() && frame.pieces().any(<[u8]>::is_empty)
}

/// How many packets at the front of `batch` fit in so many descriptors.
#[inline]
pub(super) fn fitting(batch: &[Frame], room: u32) -> usize {
    let room = room as usize;
    if batch.len() * PIECES_MAX as usize <= room {
        return batch.len();
    }
    let mut left = room;
    let fits = |frame: &&Frame| {
        let needed = if frame.is_chained() {
            frame.pieces().count()
        } else {
            1 + usize::from(usize::from(frame.start()) + frame.len() > usize::from(CHUNK))
        };
        let fits = needed <= left;
        left = left.saturating_sub(needed);
        fits
    };
    batch.iter().take_while(fits).count()
}
