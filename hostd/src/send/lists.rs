//! \[1\] The pieces and inline data of requests that were posted.
//!
//! ```text
//!            oldest request          newest
//!   pieces   ┌───┬───┬───┬─┬───────┬───┐
//!            └───┴───┴───┴─┴───────┴───┘   of the requests that have lists
//!   bytes    ┌─────────┬──────┐
//!            └─────────┴──────┘            of those with inline data
//! ```
//!
//! Both are queues as the requests are: what a request put in is taken out when it completes. They
//! grow to what the application uses at a time, and no further.

use crate::limits;
use crate::memory::{AccessDenied, MemoryRange, Part, RegionMemory, RegionTable};
use crate::verbs::{Access, Local, Sge};
use std::collections::VecDeque;

/// Where the bytes of a request are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Nowhere: it has none, or was not checked yet.
    #[default]
    None,
    /// In one range.
    Range(MemoryRange),
    /// In this many pieces from this one on, as they are counted.
    Pieces(u32, u8),
    /// In the copy that was made when it was posted, from this byte on, as they are counted.
    Inline(u32),
}

/// A piece of a request that was posted.
#[derive(Clone, Copy, Debug)]
struct Piece {
    sge: Sge,
    /// Once it was checked.
    part: Option<Part>,
}

/// Pieces and inline data of the requests of one queue.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pieces: VecDeque<Piece>,
    /// How many were taken out so far: the number of the oldest.
    pieces_taken: u32,
    bytes: VecDeque<u8>,
    bytes_taken: u32,
}

impl Lists {
    /// Takes in what a request consists of.
    pub(super) fn push(&mut self, local: Local<'_>) -> Payload {
        match local {
            Local::Named => Payload::None,
            Local::Pieces(list) => {
                let at = number(self.pieces_taken, self.pieces.len());
                let pieces = list.iter().map(|&sge| Piece { sge, part: None });
                self.pieces.extend(pieces);
                Payload::Pieces(at, u8::try_from(list.len()).expect("checked before"))
            }
            Local::Inline(bytes) => {
                let at = number(self.bytes_taken, self.bytes.len());
                self.bytes.extend(bytes);
                Payload::Inline(at)
            }
        }
    }

    /// Takes out what the oldest request consists of.
    pub(super) fn pop(&mut self, payload: Payload, len: u32) {
        match payload {
            Payload::None | Payload::Range(_) => {}
            Payload::Pieces(_, count) => {
                self.pieces.drain(..usize::from(count));
                self.pieces_taken = self.pieces_taken.wrapping_add(u32::from(count));
            }
            Payload::Inline(_) => {
                self.bytes.drain(..len as usize);
                self.bytes_taken = self.bytes_taken.wrapping_add(len);
            }
        }
    }

    /// Checks all pieces of a request.
    pub(super) fn check<M: RegionMemory>(
        &mut self,
        at: u32,
        count: u8,
        rights: Access,
        domain: u32,
        regions: &RegionTable<M>,
    ) -> Result<(), AccessDenied> {
        let from = at.wrapping_sub(self.pieces_taken) as usize;
        let mut pieces = self.pieces.range_mut(from..from + usize::from(count));
        pieces.try_for_each(|piece| {
            piece.part = regions.part(domain, &piece.sge, rights)?;
            Ok(())
        })
    }

    pub(super) fn parts(&self, at: u32, count: u8) -> impl Iterator<Item = Part> + '_ {
        let from = at.wrapping_sub(self.pieces_taken) as usize;
        let pieces = self.pieces.range(from..from + usize::from(count));
        pieces.filter_map(|piece| piece.part)
    }

    pub(super) fn copy_inline(&self, at: u32, into: &mut [u8]) {
        let from = at.wrapping_sub(self.bytes_taken) as usize;
        let (front, back) = self.bytes.as_slices();
        let split = front.len().saturating_sub(from).min(into.len());
        let (head, tail) = into.split_at_mut(split);
        if !head.is_empty() {
            head.copy_from_slice(&front[from..from + split]);
        }
        if !tail.is_empty() {
            let from = (from + split) - front.len();
            tail.copy_from_slice(&back[from..from + tail.len()]);
        }
    }
}

fn number(taken: u32, place: usize) -> u32 {
    taken.wrapping_add(u32::try_from(place).expect("bounded by the queue's capacity"))
}

const _: () = assert!(limits::SGE <= u8::MAX as usize);
