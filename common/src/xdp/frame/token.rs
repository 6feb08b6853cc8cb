//! The memory, its tokens, and the pools of free ones.

#![allow(
    unsafe_code,
    reason = "packet memory is shared with the kernel; see each SAFETY"
)]

use crossbeam_queue::ArrayQueue;
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Frames that change hands at once between a pool and the depot.
pub const TRADE: usize = 64;

/// A pool that holds this many frames gives [`TRADE`] of them to the depot.
pub const POOL_FULL: usize = 4 * TRADE;

/// What marks the number of a frame that is followed by another.
pub(super) const CHAINED: u32 = 1 << 31;

/// Bytes at the beginning of a chunk that a packet leaves free if another chunk follows.
pub(super) const LINK_LEN: u16 = 32;

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Frames of this process that were dropped instead of given back. Anything but zero is a bug.
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// The packet memory of one daemon: `frames` chunks of `chunk_len` bytes.
///
/// The bytes belong to `owner` (an AF_XDP UMEM, or a heap block), which lives as long as the
/// region.
pub struct Region {
    base: NonNull<u8>,
    chunk_len: u16,
    headroom: u16,
    frames: u32,
    /// Frames below this number were handed out; the others were never used, so their memory was
    /// never touched.
    fresh: AtomicU32,
    /// Free frames on their way from one pool to another, in batches of [`TRADE`].
    depot: ArrayQueue<Vec<Frame>>,
    /// Emptied batches, so that trading allocates nothing after start.
    shells: ArrayQueue<Vec<Frame>>,
    owner: ManuallyDrop<Box<dyn Any + Send + Sync>>,
}

// SAFETY: the region itself only hands out chunks, each to one holder at a time (`Frame` is
// linear); the depot is a concurrent queue and `owner` is Send and Sync.
unsafe impl Send for Region {}
// SAFETY: as above; no method reads or writes chunk bytes through `&Region`.
unsafe impl Sync for Region {}

impl Region {
    /// A region over memory that `owner` keeps alive, with every frame free.
    ///
    /// # Safety
    /// `base` points at `frames × chunk_len` bytes, readable and writable for as long as `owner`
    /// lives, which nothing but the frames of this region (and the kernel rings that hold their
    /// indices) accesses.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        frames: u32,
        chunk_len: u16,
        headroom: u16,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        assert!(
            headroom < chunk_len,
            "headroom {headroom} leaves nothing of a {chunk_len}-byte chunk"
        );
        assert!(frames > 0, "a region without frames");
        assert!(frames < CHAINED, "too many frames");
        let batches = (frames as usize).div_ceil(TRADE);
        let region = Self {
            base,
            chunk_len,
            headroom,
            frames,
            fresh: AtomicU32::new(0),
            // Pools that are dropped give back batches of any length: one for each frame at worst.
            depot: ArrayQueue::new(frames as usize),
            shells: ArrayQueue::new(2 * batches + 2),
            owner: ManuallyDrop::new(owner),
        };
        for _ in 0..=batches {
            let _ = region.shells.push(Vec::with_capacity(TRADE));
        }
        Arc::new(region)
    }

    /// A region in ordinary memory, for simulated ports and for tests.
    pub fn heap(frames: u32, chunk_len: u16, headroom: u16) -> Arc<Self> {
        let mut block = vec![0_u8; frames as usize * usize::from(chunk_len)].into_boxed_slice();
        let base = NonNull::from(&mut *block).cast::<u8>();
        // SAFETY: the block has this very size, moving its box does not move its bytes, and it is
        // reachable from nowhere else.
        unsafe { Self::new(base, frames, chunk_len, headroom, Box::new(block)) }
    }

    /// Number of frames, free or not.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Bytes of a chunk, headroom included.
    pub fn chunk_len(&self) -> u16 {
        self.chunk_len
    }

    /// Bytes in front of the packet that a fresh frame keeps free.
    pub fn headroom(&self) -> u16 {
        self.headroom
    }

    /// Frames that were never used.
    fn unused(&self) -> u32 {
        self.frames - self.fresh.load(Ordering::Relaxed)
    }

    /// Hands out frames that were never used, at most [`TRADE`].
    fn first_use(&self, free: &mut Vec<Frame>) {
        let some = u32::try_from(TRADE).expect("TRADE is small");
        let next = |first: u32| (first < self.frames).then(|| self.frames.min(first + some));
        let taken = self
            .fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if let Ok(first) = taken {
            let last = self.frames.min(first + some);
            // SAFETY: each index is below `frames`, and `fresh` has passed it, so it is made into a
            // frame once, here.
            free.extend((first..last).map(|index| unsafe { self.frame(index) }));
        }
    }

    /// Whether `frame` is of this region, so that its index means here what it means there.
    pub(crate) fn owns(&self, frame: &Frame) -> bool {
        let offset = frame.index() as usize * usize::from(self.chunk_len);
        frame.index() < self.frames
            && self.base.as_ptr().addr() + offset == frame.chunk.as_ptr().addr()
    }

    /// The token of chunk `index`, empty, its data beginning after the headroom.
    ///
    /// # Safety
    /// `index` is below [`Self::frames`], and no other token of it exists.
    #[inline]
    pub(crate) unsafe fn frame(&self, index: u32) -> Frame {
        debug_assert!(index < self.frames, "frame {index} of {}", self.frames);
        let offset = index as usize * usize::from(self.chunk_len);
        Frame {
            // SAFETY: `offset` is inside the memory that `new` was promised.
            chunk: unsafe { self.base.add(offset) },
            index,
            start: self.headroom,
            len: 0,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let mut home = self.unused() as usize;
        while let Some(batch) = self.depot.pop() {
            home += batch.len();
            batch.into_iter().for_each(std::mem::forget);
        }
        // A frame that is still out there points into this memory: then the memory must stay.
        if home == self.frames as usize {
            // SAFETY: `owner` is dropped once, here, and no token into its memory is left.
            unsafe { ManuallyDrop::drop(&mut self.owner) };
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("frames", &self.frames)
            .field("chunk_len", &self.chunk_len)
            .field("headroom", &self.headroom)
            .finish_non_exhaustive()
    }
}

/// The right to use one chunk of packet memory: a linear token.
///
/// The packet is `bytes()`: `len` bytes that begin at `start` inside the chunk. A packet that is
/// longer than a chunk goes on in the chunks of further frames, which belong to this one.
#[must_use = "a frame that is dropped is lost for good; give it back to a pool"]
pub struct Frame {
    pub(super) chunk: NonNull<u8>,
    /// Number of the chunk, and [`CHAINED`].
    pub(super) index: u32,
    pub(super) start: u16,
    /// Bytes in this chunk.
    pub(super) len: u16,
}

// SAFETY: a frame is the only way to reach its chunk, so whoever holds it may be on any thread.
unsafe impl Send for Frame {}

impl Frame {
    /// Number of the chunk, unique in its region.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index & !CHAINED
    }

    /// Where the packet begins in its chunk.
    pub fn start(&self) -> u16 {
        self.start
    }

    /// Length of the packet in bytes, in all its chunks.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame is a buffer, not a collection"
    )]
    #[inline]
    pub fn len(&self) -> usize {
        if self.is_chained() {
            return self.len_of_chain();
        }
        usize::from(self.len)
    }

    /// The packet; of one in several chunks ([`Self::is_chained`]) what lies in the first.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: start + len stays inside the chunk (checked wherever they change), the chunk is
        // initialised memory of the region, and `&self` excludes writers.
        unsafe {
            std::slice::from_raw_parts(
                self.chunk.as_ptr().add(usize::from(self.start)),
                usize::from(self.len),
            )
        }
    }

    /// The same, to be changed in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` excludes every other access.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.chunk.as_ptr().add(usize::from(self.start)),
                usize::from(self.len),
            )
        }
    }

    /// Sets where the packet lies in the chunk, in a region of `chunk_len`-byte chunks.
    ///
    /// # Panics
    /// If that is outside the chunk.
    pub(crate) fn set_span(&mut self, start: u16, len: u16, chunk_len: u16) {
        assert!(
            u32::from(start) + u32::from(len) <= u32::from(chunk_len),
            "packet {start}+{len} leaves its chunk"
        );
        self.start = start;
        self.len = len;
    }

    /// Cuts the packet to `len` bytes; does nothing when it is not longer. Chunks that are empty
    /// then stay with the frame until [`FramePool::shed`].
    pub fn truncate(&mut self, len: usize) {
        if self.is_chained() {
            self.truncate_chain(len);
        } else if len < usize::from(self.len) {
            self.len = u16::try_from(len).expect("shorter than a u16");
        }
    }

    /// Takes `count` bytes away at the front of the packet; does nothing when its (first) chunk has
    /// no more.
    pub fn shrink_front(&mut self, count: u16) {
        if count < self.len {
            self.start += count;
            self.len -= count;
        }
    }

    /// Puts `count` bytes in front of the packet, with whatever values they have. False, and
    /// nothing done, if its chunk has no such room there.
    pub fn grow_front(&mut self, count: u16) -> bool {
        let taken = if self.is_chained() { LINK_LEN } else { 0 };
        let fits = u32::from(count) + u32::from(taken) <= u32::from(self.start);
        if fits {
            self.start -= count;
            // Start and length together stay what they were.
            self.len += count;
        }
        fits
    }

    /// Puts `come` bytes, with whatever values they have, where the first `gone` bytes of the
    /// packet were. False, and nothing done, if its first chunk has no more than these, or no such
    /// room.
    #[inline]
    pub fn replace_front(&mut self, gone: u16, come: u16) -> bool {
        let taken = if self.is_chained() { LINK_LEN } else { 0 };
        let room = u32::from(self.start) + u32::from(gone);
        let fits = gone < self.len && u32::from(come) + u32::from(taken) <= room;
        if fits {
            // The end, which lies inside the chunk, stays what it was.
            let end = self.start + self.len;
            self.start = self.start + gone - come;
            self.len = end - self.start;
        }
        fits
    }

    /// Asks the processor to fetch the first line of the packet, ahead of its use.
    #[inline]
    pub fn prefetch(&self) {
        self.prefetch_at(self.start);
    }

    /// The same with the line in which the packet begins once it has grown by `count` bytes at its
    /// front.
    #[inline]
    pub fn prefetch_front(&self, count: u16) {
        self.prefetch_at(self.start.saturating_sub(count));
    }

    #[inline]
    fn prefetch_at(&self, at: u16) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint; it reads nothing and faults on nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.chunk.as_ptr().add(usize::from(at)).cast());
        }
    }

    /// Gives the token up without giving the chunk back: its index now stands in a kernel ring.
    pub(crate) fn into_index(self) -> u32 {
        debug_assert!(!self.is_chained(), "further frames would be lost");
        let index = self.index();
        std::mem::forget(self);
        index
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        LEAKED.fetch_add(1, Ordering::Relaxed);
        // With all that follow it.
        drop(self.detach());
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.is_chained() { ", …" } else { "" };
        let (index, start, len) = (self.index(), self.start, self.len);
        write!(f, "Frame({index}, {start}+{len}{more})")
    }
}

/// A worker's free frames. Not shared: trading with other pools goes through the region's depot.
#[derive(Debug)]
pub struct FramePool {
    pub(super) region: Arc<Region>,
    free: Vec<Frame>,
}

impl FramePool {
    /// An empty pool; it fills itself from the depot.
    pub fn new(region: Arc<Region>) -> Self {
        Self {
            region,
            free: Vec::with_capacity(POOL_FULL + TRADE),
        }
    }

    /// The memory that the frames of this pool belong to.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// A free frame of length zero that begins after the headroom, or `None` when this pool and the
    /// depot are empty.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.restock();
        }
        self.free.pop()
    }

    /// A free frame that holds a copy of `packet`; `None` when no frame is free or `packet` does
    /// not fit.
    pub fn take_filled(&mut self, packet: &[u8]) -> Option<Frame> {
        let mut frame = self.take_sized(packet.len())?;
        frame.bytes_mut().copy_from_slice(packet);
        Some(frame)
    }

    /// A free frame of `len` bytes with undefined (old) content; `None` when no frame is free or
    /// `len` does not fit.
    pub fn take_sized(&mut self, len: usize) -> Option<Frame> {
        if len > self.capacity() {
            return None;
        }
        let mut frame = self.take()?;
        let (start, chunk_len) = (self.region.headroom, self.region.chunk_len);
        frame.set_span(
            start,
            u16::try_from(len).expect("a chunk is smaller"),
            chunk_len,
        );
        Some(frame)
    }

    /// The longest packet that fits in a frame.
    pub fn capacity(&self) -> usize {
        usize::from(self.region.chunk_len - self.region.headroom)
    }

    /// Moves the end of the packet; the bytes that are gained are undefined (old) content.
    ///
    /// # Panics
    /// If the packet would leave its chunk, or lies in several.
    pub fn resize(&self, frame: &mut Frame, len: usize) {
        assert!(!frame.is_chained(), "its end is elsewhere");
        let len = u16::try_from(len).expect("packet length above 65535");
        frame.set_span(frame.start, len, self.region.chunk_len);
    }

    /// Takes a frame back, with all that follow it.
    #[inline]
    pub fn give(&mut self, mut frame: Frame) {
        if frame.is_chained() {
            self.give_rest(&mut frame);
        }
        frame.start = self.region.headroom;
        frame.len = 0;
        self.free.push(frame);
        if self.free.len() >= POOL_FULL {
            self.hand_over();
        }
    }

    /// Frames at hand without asking the depot.
    pub fn at_hand(&self) -> usize {
        self.free.len()
    }

    /// Frames that this pool and the depot hold together, and those never used. Walks the depot:
    /// for tests and reports.
    pub fn free_frames(&mut self) -> usize {
        let mut batches: Vec<_> = std::iter::from_fn(|| self.region.depot.pop()).collect();
        let depot: usize = batches.iter().map(Vec::len).sum();
        let free = self.free.len() + depot + self.region.unused() as usize;
        for batch in batches.drain(..) {
            self.region.depot.push(batch).expect("came from there");
        }
        free
    }

    fn restock(&mut self) {
        if let Some(mut batch) = self.region.depot.pop() {
            self.free.append(&mut batch);
            let _ = self.region.shells.push(batch);
        } else {
            self.region.first_use(&mut self.free);
        }
    }

    fn hand_over(&mut self) {
        let mut batch = self
            .region
            .shells
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(TRADE));
        batch.extend(self.free.drain(self.free.len() - TRADE..));
        if let Err(mut batch) = self.region.depot.push(batch) {
            self.free.append(&mut batch);
        }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        while !self.free.is_empty() {
            let keep = self.free.len().saturating_sub(TRADE);
            let batch = self.free.split_off(keep);
            // Full only if frames of another region were given here, which `give` does not allow to
            // pass in tests.
            if let Err(batch) = self.region.depot.push(batch) {
                drop(batch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_home_across_pools() {
        let region = Region::heap(1000, 2048, 256);
        let mut first = FramePool::new(region.clone());
        let mut second = FramePool::new(region);
        for _ in 0..50 {
            for _ in 0..700 {
                let mut frame = first.take_filled(b"hello").expect("a free frame");
                assert_eq!(frame.bytes(), b"hello");
                frame.bytes_mut()[0] = b'j';
                second.give(frame);
            }
        }
        assert!(first.take_sized(2048 - 256 + 1).is_none());
        drop(second);
        assert_eq!(first.free_frames(), 1000);
    }

    #[test]
    fn a_pool_runs_dry_without_harm() {
        let mut pool = FramePool::new(Region::heap(3, 512, 0));
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        let mut indices: Vec<_> = taken.iter().map(Frame::index).collect();
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2]);
        taken.into_iter().for_each(|frame| pool.give(frame));
        assert_eq!(pool.free_frames(), 3);
    }
}
