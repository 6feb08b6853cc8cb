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

#[cfg(test)]
mod tests {
    use super::super::frame::Region;
    use super::*;

    /// A pool of chunks with room for 4,032 bytes each.
    fn pool() -> FramePool {
        FramePool::new(Region::heap(8, CHUNK, 64))
    }

    /// A packet that arrived in pieces of these lengths, if it is one.
    fn joined(lengths: &[usize], pool: &mut FramePool) -> Option<Frame> {
        let pieces = lengths.iter().map(|len| pool.take_sized(*len));
        let mut pieces: Vec<_> = pieces.collect();
        let first = pieces.remove(0).expect("a free chunk");
        pieces
            .into_iter()
            .try_fold(first, |first, piece| join(first, piece, pool))
    }

    /// SW-1: pieces become a packet while they are as many, and as long together, as a packet can
    /// be, and none is empty; otherwise all of them come home.
    #[test]
    fn pieces_are_joined_while_they_make_sense() {
        let mut pool = pool();
        for (lengths, fits) in [
            (&[4032, 100][..], true),
            (&[4032, 4032, 9238 - 2 * 4032], true),
            (&[4032, 4032, 9239 - 2 * 4032], false),
            (&[60, 60, 60], true),
            (&[60, 60, 60, 60], false),
            (&[4032, 0], false),
        ] {
            let packet = joined(lengths, &mut pool);
            assert_eq!(packet.is_some(), fits, "{lengths:?}");
            if let Some(packet) = packet {
                assert_eq!(packet.len(), lengths.iter().sum::<usize>());
                assert_eq!(packet.pieces().count(), lengths.len());
                pool.give(packet);
            }
            assert_eq!(pool.free_frames(), 8, "{lengths:?}");
        }
        // The kernel's chunk was no good.
        let first = pool.take_sized(60).expect("a free chunk");
        assert!(join(first, None, &mut pool).is_none());
        assert_eq!(pool.free_frames(), 8);
    }

    /// SW-1: a packet needs a descriptor for each of its chunks, and is sent with all of them or
    /// waits; one with an empty chunk is none for the kernel.
    #[test]
    fn descriptors_are_counted_by_chunks() {
        let mut pool = pool();
        let mut three = joined(&[4032, 4032, 100], &mut pool).expect("a packet");
        assert!(!has_gap(&three));
        let rest = [60, 60].map(|len| pool.take_sized(len).expect("a free chunk"));
        let [one, other] = rest;
        let mut batch = vec![one, three, other];
        for (room, fit) in [(0, 0), (1, 1), (3, 1), (4, 2), (5, 3), (9, 3)] {
            assert_eq!(fitting(&batch, room), fit, "{room}");
        }
        three = batch.remove(1);
        three.truncate(5000);
        assert!(has_gap(&three));
        pool.shed(&mut three);
        assert!(!has_gap(&three));
        batch.push(three);
        batch.into_iter().for_each(|frame| pool.give(frame));
        assert_eq!(pool.free_frames(), 8);
    }
}
