//! Packets that lie in several chunks.
//!
//! The kernel hands a packet that is longer than a chunk over in several (XDP_PKT_CONTD), and takes
//! it so. The frame of the first stands for the packet; it has the frame of the next in its chunk,
//! in front of the packet, and so on. So a packet is one token, whatever its length, and nothing
//! is allocated for it:
//!
//! ```text
//!   Frame ──▶ │ link … │ headers, data … │
//!                └─▶ │ link … │ data … … … … │
//!                       └─▶ │ …      │ data … │
//! ```
//!
//! Headers lie in the first chunk: whoever reads or changes them sees no difference.

#![allow(
    unsafe_code,
    reason = "frames lie in packet memory here; see each SAFETY"
)]

use super::token::{CHAINED, Frame, FramePool, LINK_LEN};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// What a chunk begins with if its frame is chained.
struct Link {
    next: Frame,
    /// Bytes of the packet in all chunks behind this one.
    rest: u16,
}

const _: () = assert!(size_of::<Link>() <= LINK_LEN as usize);

impl Frame {
    /// Whether the packet goes on in another chunk.
    #[inline]
    pub fn is_chained(&self) -> bool {
        self.index & CHAINED != 0
    }

    /// Where the link is. Chunks may begin anywhere: it is not aligned.
    fn link(&self) -> NonNull<Link> {
        self.chunk.cast()
    }

    /// Takes the link out, if there is one. It is put back, or the frame no longer chained.
    fn take_link(&self) -> Option<Link> {
        // SAFETY: a chained frame has a link, which `put_link` wrote; it is read once, and then
        // written again or the mark removed.
        self.is_chained()
            .then(|| unsafe { self.link().read_unaligned() })
    }

    /// Writes the link. Only with room in front of the packet.
    fn put_link(&mut self, link: Link) {
        debug_assert!(self.start >= LINK_LEN, "a link in the packet");
        // SAFETY: the chunk is longer than its start, and the bytes in front of that are in no use.
        unsafe { self.link().write_unaligned(link) };
        self.index |= CHAINED;
    }

    /// Puts the packet of `next` behind this one. The frame is given back if there is no room for
    /// the link in front of this packet, or the packet would be longer than 65,535 bytes.
    ///
    /// # Errors
    /// `next`.
    pub fn append(&mut self, next: Frame) -> Result<(), Frame> {
        let Ok(added) = u16::try_from(next.len()) else {
            return Err(next);
        };
        if self.len() + usize::from(added) > usize::from(u16::MAX) || self.start < LINK_LEN {
            return Err(next);
        }
        let Some(mut link) = self.take_link() else {
            let rest = added;
            self.put_link(Link { next, rest });
            return Ok(());
        };
        let result = link.next.append(next);
        if result.is_ok() {
            link.rest += added;
        }
        self.put_link(link);
        result
    }

    /// Takes the frame off that follows, with all that follow that.
    pub fn detach(&mut self) -> Option<Frame> {
        let link = self.take_link()?;
        self.index &= !CHAINED;
        Some(link.next)
    }

    #[cold]
    pub(super) fn len_of_chain(&self) -> usize {
        let rest = self.is_chained().then(|| {
            // SAFETY: as in `take_link`; a number is copied out of it.
            unsafe { (&raw const (*self.link().as_ptr()).rest).read_unaligned() }
        });
        usize::from(self.len) + usize::from(rest.unwrap_or(0))
    }

    #[cold]
    pub(super) fn truncate_chain(&mut self, len: usize) {
        let Some(mut link) = self.take_link() else {
            return self.truncate(len);
        };
        let own = usize::from(self.len).min(len);
        self.len = u16::try_from(own).expect("no longer than before");
        link.next.truncate(len - own);
        link.rest = u16::try_from(link.next.len()).expect("no longer than before");
        self.put_link(link);
    }

    /// The packet, chunk by chunk.
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces {
            // SAFETY: a copy that is only read, never given away and never dropped, while `self`
            // is borrowed.
            next: Some(unsafe { copy_of(NonNull::from(self)) }),
            life: PhantomData,
        }
    }

    /// Copies the packet to the beginning of `out`, as much as fits. Returns how much.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for piece in self.pieces() {
            let rest = &mut out[copied..];
            let count = piece.len().min(rest.len());
            rest[..count].copy_from_slice(&piece[..count]);
            copied += count;
        }
        copied
    }
}

/// A second token of the same frame.
///
/// # Safety
/// `frame` can be read. The copy is neither dropped nor used but to read what the frame borrows.
unsafe fn copy_of(frame: NonNull<Frame>) -> ManuallyDrop<Frame> {
    // SAFETY: by contract; ManuallyDrop has the layout of what it holds.
    unsafe { frame.cast::<ManuallyDrop<Frame>>().read_unaligned() }
}

/// What lies in each chunk of a packet, in their order.
pub struct Pieces<'a> {
    next: Option<ManuallyDrop<Frame>>,
    life: PhantomData<&'a Frame>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let frame = self.next.take()?;
        self.next = frame.is_chained().then(|| {
            // SAFETY: a chained frame has a link. The copy is only read.
            unsafe {
                let next = &raw mut (*frame.link().as_ptr()).next;
                copy_of(NonNull::new_unchecked(next))
            }
        });
        // SAFETY: the bytes are those of `Frame::bytes`, and the packet that they belong to is
        // borrowed for this long.
        Some(unsafe {
            std::slice::from_raw_parts(
                frame.chunk.as_ptr().add(usize::from(frame.start)),
                usize::from(frame.len),
            )
        })
    }
}

impl std::fmt::Debug for Pieces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").finish_non_exhaustive()
    }
}

impl FramePool {
    /// A packet with the content of `packet`, in as many chunks as it needs; `None` when so many
    /// are not free, or chunks have no room to be chained.
    pub fn take_chain(&mut self, packet: &[u8]) -> Option<Frame> {
        let mut pieces = packet.chunks(self.capacity().max(1));
        let mut frame = self.take_filled(pieces.next().unwrap_or_default())?;
        for piece in pieces {
            let next = self.take_filled(piece);
            if let Err(next) = next.map_or(Err(None), |next| frame.append(next).map_err(Some)) {
                next.into_iter().for_each(|next| self.give(next));
                self.give(frame);
                return None;
            }
        }
        Some(frame)
    }

    /// Takes the chunks back that a packet no longer needs after it was cut.
    #[inline]
    pub fn shed(&mut self, frame: &mut Frame) {
        if frame.is_chained() {
            self.shed_chain(frame);
        }
    }

    #[cold]
    fn shed_chain(&mut self, frame: &mut Frame) {
        let Some(mut link) = frame.take_link() else {
            return;
        };
        if link.rest == 0 {
            frame.index &= !CHAINED;
            return self.give(link.next);
        }
        self.shed(&mut link.next);
        frame.put_link(link);
    }

    /// Copies what lies in further chunks behind what lies in the first, and takes those back.
    /// False, and nothing done, if the first is not long enough.
    #[cold]
    pub fn gather(&mut self, frame: &mut Frame) -> bool {
        let whole = frame.len();
        if usize::from(frame.start) + whole > usize::from(self.region.chunk_len()) {
            return false;
        }
        let mut own = usize::from(frame.len);
        let Some(rest) = frame.detach() else {
            return true;
        };
        self.resize(frame, whole);
        for piece in rest.pieces() {
            frame.bytes_mut()[own..own + piece.len()].copy_from_slice(piece);
            own += piece.len();
        }
        self.give(rest);
        true
    }

    /// Takes back what follows a frame.
    #[cold]
    pub(super) fn give_rest(&mut self, frame: &mut Frame) {
        if let Some(rest) = frame.detach() {
            self.give(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Region;
    use super::*;
    use proptest::prelude::*;

    const FRAMES: u32 = 64;

    fn content(frame: &Frame) -> Vec<u8> {
        frame.pieces().flatten().copied().collect()
    }

    fn bytes(len: usize) -> Vec<u8> {
        let byte = |at: usize| (at * 7 % 251).to_le_bytes()[0];
        (0..len).map(byte).collect()
    }

    proptest! {
        /// Whatever is done to a packet of several chunks, its content is what it should be, and
        /// every chunk comes home.
        #[test]
        fn no_chunk_is_lost(
            len in 0..1200_usize,
            steps in prop::collection::vec((0..7_u8, 0..1300_usize), 0..12),
        ) {
            let mut pool = FramePool::new(Region::heap(FRAMES, 256, 64));
            let mut model = bytes(len);
            let mut frame = pool.take_chain(&model).expect("room for twice as much");
            prop_assert_eq!(frame.is_chained(), len > 192);
            for (step, value) in steps {
                match step {
                    0 => {
                        frame.truncate(value);
                        model.truncate(value);
                    }
                    1 => {
                        let lengths: Vec<_> = frame.pieces().map(<[u8]>::len).collect();
                        let last = lengths.iter().rposition(|len| *len > 0);
                        let kept = last.map_or(1, |last| last + 1);
                        pool.shed(&mut frame);
                        prop_assert_eq!(frame.pieces().count(), kept);
                    }
                    2 => {
                        let count = u16::try_from(value % 16).unwrap();
                        if usize::from(count) < frame.bytes().len() {
                            model.drain(..usize::from(count));
                        }
                        frame.shrink_front(count);
                    }
                    3 => {
                        if frame.grow_front(4) {
                            frame.bytes_mut()[..4].fill(9);
                            model.splice(..0, [9; 4]);
                        } else {
                            prop_assert!(frame.start() < 4 + LINK_LEN);
                        }
                    }
                    4 => {
                        let gone = u16::try_from(value % 16).unwrap();
                        let come = u16::try_from(value / 16 % 20).unwrap();
                        let first = frame.bytes().len();
                        let room = frame.start() + gone;
                        if frame.replace_front(gone, come) {
                            prop_assert!(usize::from(gone) < first && come <= room);
                            frame.bytes_mut()[..usize::from(come)].fill(7);
                            model.splice(..usize::from(gone), vec![7; usize::from(come)]);
                        } else {
                            prop_assert!(usize::from(gone) >= first || room < come + LINK_LEN);
                        }
                    }
                    5 => {
                        let more = pool.take_filled(&model[..model.len().min(value % 192)]).unwrap();
                        let added = content(&more);
                        match frame.append(more) {
                            Ok(()) => model.extend(added),
                            Err(more) => pool.give(more),
                        }
                    }
                    _ => {
                        let fits = usize::from(frame.start()) + model.len() <= 256;
                        prop_assert_eq!(pool.gather(&mut frame), fits);
                        prop_assert!(!fits || !frame.is_chained());
                    }
                }
                prop_assert_eq!(frame.len(), model.len());
                prop_assert_eq!(content(&frame), &model[..]);
                let mut copy = vec![0; value];
                let copied = frame.copy_to(&mut copy);
                prop_assert_eq!(&copy[..copied], &model[..value.min(model.len())]);
                prop_assert!(frame.pieces().count() < 40);
            }
            pool.give(frame);
            prop_assert_eq!(pool.free_frames(), FRAMES as usize);
        }
    }

    #[test]
    fn a_chain_that_finds_no_chunk_gives_back_what_it_had() {
        let mut pool = FramePool::new(Region::heap(3, 256, 64));
        assert!(pool.take_chain(&bytes(3 * 192 + 1)).is_none());
        assert_eq!(pool.free_frames(), 3);
        let mut without_room = FramePool::new(Region::heap(3, 256, LINK_LEN - 1));
        assert!(without_room.take_chain(&bytes(300)).is_none());
        assert_eq!(without_room.free_frames(), 3);
    }

    #[test]
    fn frames_are_detached_one_by_one() {
        let mut pool = FramePool::new(Region::heap(5, 256, 64));
        let mut frame = pool.take_chain(&bytes(500)).expect("three chunks");
        let mut rest = frame.detach().expect("a second");
        assert_eq!((frame.len(), rest.len()), (192, 500 - 192));
        let last = rest.detach().expect("a third");
        assert!(!rest.is_chained() && !last.is_chained());
        assert_eq!(last.bytes(), &bytes(500)[384..]);
        [frame, rest, last].into_iter().for_each(|it| pool.give(it));
        assert_eq!(pool.free_frames(), 5);
    }
}
