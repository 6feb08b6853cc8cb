//! The four rings that a socket shares with the kernel.
//!
//! The wrappers of xsk-rs cannot describe a packet that begins elsewhere in its chunk than where
//! the kernel put it, and whether the kernel has taken everything is only seen in the rings. So
//! ports have sockets and rings of their own; xsk-rs has the memory and its anchor.
//!
//! ```text
//!             we write            kernel writes       entries
//!   fill      producer            consumer            chunk addresses, for reception
//!   receive   consumer            producer            descriptors
//!   transmit  producer            consumer            descriptors
//!   complete  consumer            producer            chunk addresses, sent
//! ```

#![allow(
    unsafe_code,
    reason = "rings are memory shared with the kernel; see each SAFETY"
)]

use super::limits::FILL_FACTOR;
use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// What an entry of a ring is: plain data, valid whatever the bytes are.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// The rings of one socket.
pub(super) struct Rings {
    pub(super) receive: ConsumerRing<libc::xdp_desc>,
    pub(super) fill: ProducerRing<u64>,
    pub(super) transmit: ProducerRing<libc::xdp_desc>,
    pub(super) complete: ConsumerRing<u64>,
}

impl Rings {
    /// Gives `socket` its rings, with so many descriptors to `receive` and to `send`, and maps
    /// them. It must not be bound yet: before Linux 6.4 rings of a bound socket cannot be mapped
    /// (EBUSY).
    pub(super) fn make(socket: BorrowedFd<'_>, receive: u32, send: u32) -> io::Result<Self> {
        let fill = FILL_FACTOR * receive;
        for (option, size) in [
            (libc::XDP_RX_RING, receive),
            (libc::XDP_UMEM_FILL_RING, fill),
            (libc::XDP_TX_RING, send),
            (libc::XDP_UMEM_COMPLETION_RING, send),
        ] {
            set_option(socket, libc::SOL_XDP, option, size)?;
        }
        // SAFETY: the structure is integers only; all zero is a value of it.
        let offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let offsets = get_option(socket, libc::XDP_MMAP_OFFSETS, offsets)?;
        let place = |place: u64| i64::try_from(place).expect("a small constant");
        let at_fill = place(libc::XDP_UMEM_PGOFF_FILL_RING);
        let at_complete = place(libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let receive = Map::new(socket, &offsets.rx, libc::XDP_PGOFF_RX_RING, receive)?;
        let transmit = Map::new(socket, &offsets.tx, libc::XDP_PGOFF_TX_RING, send)?;
        Ok(Self {
            receive: ConsumerRing::new(receive),
            fill: ProducerRing::new(Map::new(socket, &offsets.fr, at_fill, fill)?),
            transmit: ProducerRing::new(transmit),
            complete: ConsumerRing::new(Map::new(socket, &offsets.cr, at_complete, send)?),
        })
    }
}

/// Reads a socket option of level SOL_XDP into `value`, which must be a plain C structure.
pub(super) fn get_option<T: Copy>(socket: BorrowedFd<'_>, name: i32, value: T) -> io::Result<T> {
    let mut value = value;
    let mut len = libc::socklen_t::try_from(size_of::<T>()).expect("a small structure");
    // SAFETY: `value` is `len` writable bytes; the callers' structures hold integers only, so
    // whatever the kernel writes is a value of them.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an integer socket option.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: u32,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<u32>()).expect("four");
    // SAFETY: `value` is `len` readable bytes.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            len,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A mapped ring. Not Sync: positions are read and written by the one owner (and the kernel).
struct Map<T> {
    base: NonNull<u8>,
    len: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    entry: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process; `&mut` of the owning ring orders all accesses.
unsafe impl<T: Entry> Send for Map<T> {}

impl<T: Entry> Map<T> {
    fn new(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        place: i64,
        size: u32,
    ) -> io::Result<Self> {
        let offset = |offset: u64| usize::try_from(offset).expect("a 64-bit machine");
        let len = offset(offsets.desc) + size as usize * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                place,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("mmap never maps address zero");
        // SAFETY: the kernel laid the ring out: these offsets lie inside the `len` bytes mapped
        // (else its own accesses would fault), aligned for what stands there.
        unsafe {
            Ok(Self {
                base,
                len,
                producer: base.add(offset(offsets.producer)).cast(),
                consumer: base.add(offset(offsets.consumer)).cast(),
                flags: base.add(offset(offsets.flags)).cast(),
                entries: base.add(offset(offsets.desc)).cast(),
                size,
                entry: PhantomData,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, only ever accessed as an atomic on our side.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        let index = (position & (self.size - 1)) as usize;
        // SAFETY: the mask keeps the index below `size`, a power of two.
        unsafe { self.entries.add(index) }
    }
}

impl<T> Drop for Map<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A ring that we fill and the kernel empties.
pub(super) struct ProducerRing<T: Entry> {
    map: Map<T>,
    next: u32,
    /// A consumer position that was true once.
    consumer_seen: u32,
}

impl<T: Entry> ProducerRing<T> {
    fn new(map: Map<T>) -> Self {
        let next = map.producer().load(Ordering::Relaxed);
        let consumer_seen = map.consumer().load(Ordering::Acquire);
        Self {
            map,
            next,
            consumer_seen,
        }
    }

    /// Free entries; looks at the kernel's position only if fewer than `wanted` were free last
    /// time.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let free = self.free();
        if free >= wanted {
            return free;
        }
        self.consumer_seen = self.map.consumer().load(Ordering::Acquire);
        self.free()
    }

    fn free(&self) -> u32 {
        // The kernel never runs ahead of us; if it did, there would be no room to trust in.
        let used = self.next.wrapping_sub(self.consumer_seen);
        self.map.size.saturating_sub(used)
    }

    /// Writes the next entry. The caller has seen to it that there is [`Self::room`].
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: the entry is inside the ring, and with room it is ours until published.
        unsafe { self.map.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the kernel see everything that was put.
    pub(super) fn publish(&mut self) {
        self.map.producer().store(self.next, Ordering::Release);
    }

    /// Published entries that the kernel has not taken.
    pub(super) fn pending(&mut self) -> u32 {
        self.consumer_seen = self.map.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumer_seen)
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.map.needs_wakeup()
    }
}

/// A ring that the kernel fills and we empty.
pub(super) struct ConsumerRing<T: Entry> {
    map: Map<T>,
    next: u32,
    /// A producer position that was true once.
    producer_seen: u32,
}

impl<T: Entry> ConsumerRing<T> {
    fn new(map: Map<T>) -> Self {
        let next = map.consumer().load(Ordering::Relaxed);
        Self {
            map,
            next,
            producer_seen: next,
        }
    }

    /// Entries to take, at most the size of the ring; looks at the kernel's position only if fewer
    /// than `wanted` were there last time.
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        let available = self.seen();
        if available >= wanted {
            return available;
        }
        self.producer_seen = self.map.producer().load(Ordering::Acquire);
        self.seen()
    }

    fn seen(&self) -> u32 {
        let ready = self.producer_seen.wrapping_sub(self.next);
        ready.min(self.map.size)
    }

    /// Position up to which the kernel has written.
    pub(super) fn produced(&self) -> u32 {
        self.map.producer().load(Ordering::Acquire)
    }

    /// Reads the next entry. The caller has seen to it that one is [`Self::available`].
    pub(super) fn take(&mut self) -> T {
        // SAFETY: inside the ring, initialised by the kernel before it advanced its position, and
        // not written again until `release`; any bytes are a valid `T` (`Entry`).
        let entry = unsafe { self.map.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Gives the entries that were taken back to the kernel.
    pub(super) fn release(&mut self) {
        self.map.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A ring in anonymous memory, its positions beginning at `origin`; the test plays the kernel.
    fn ring(size: u32, origin: u32) -> Map<u64> {
        let len = 256 + size as usize * size_of::<u64>();
        // SAFETY: a new mapping touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base = NonNull::new(base.cast::<u8>()).unwrap();
        // SAFETY: all offsets are inside the mapping and aligned.
        let map = unsafe {
            Map {
                base,
                len,
                producer: base.cast(),
                consumer: base.add(64).cast(),
                flags: base.add(128).cast(),
                entries: base.add(256).cast(),
                size,
                entry: PhantomData,
            }
        };
        map.producer().store(origin, Ordering::Relaxed);
        map.consumer().store(origin, Ordering::Relaxed);
        map
    }

    fn read(map: &Map<u64>, position: u32) -> u64 {
        // SAFETY: inside the mapping, which has one thread.
        unsafe { map.entry(position).read() }
    }

    fn write(map: &Map<u64>, position: u32, value: u64) {
        // SAFETY: as above.
        unsafe { map.entry(position).write(value) };
    }

    proptest! {
        #[test]
        fn what_is_put_is_what_the_kernel_takes(
            before_wrap in 0..20_u32,
            steps in prop::collection::vec((0..12_u32, 0..12_u32), 1..60),
        ) {
            let size = 8;
            let origin = u32::MAX - before_wrap;
            let mut producer = ProducerRing::new(ring(size, origin));
            let mut model = VecDeque::new();
            let mut next = 0;
            for (wanted, taken) in steps {
                let room = producer.room(wanted);
                prop_assert!(room <= size - u32::try_from(model.len()).unwrap());
                prop_assert!(room >= wanted.min(size - u32::try_from(model.len()).unwrap()));
                for _ in 0..wanted.min(room) {
                    producer.put(next);
                    model.push_back(next);
                    next += 1;
                }
                producer.publish();
                for _ in 0..taken.min(u32::try_from(model.len()).unwrap()) {
                    let position = producer.map.consumer().load(Ordering::Relaxed);
                    prop_assert_eq!(Some(read(&producer.map, position)), model.pop_front());
                    producer.map.consumer().store(position.wrapping_add(1), Ordering::Relaxed);
                }
                prop_assert_eq!(producer.pending() as usize, model.len());
            }
        }

        #[test]
        fn what_the_kernel_puts_is_what_is_taken(
            before_wrap in 0..20_u32,
            steps in prop::collection::vec((0..12_u32, 0..12_u32), 1..60),
        ) {
            let size = 8;
            let mut consumer = ConsumerRing::new(ring(size, u32::MAX - before_wrap));
            let mut model = VecDeque::new();
            let mut next = 0_u64;
            for (put, wanted) in steps {
                for _ in 0..put.min(size - u32::try_from(model.len()).unwrap()) {
                    let position = consumer.produced();
                    write(&consumer.map, position, next);
                    consumer.map.producer().store(position.wrapping_add(1), Ordering::Relaxed);
                    model.push_back(next);
                    next += 1;
                }
                let available = consumer.available(wanted);
                prop_assert!(available as usize <= model.len());
                prop_assert!(available >= wanted.min(u32::try_from(model.len()).unwrap()));
                for _ in 0..wanted.min(available) {
                    prop_assert_eq!(Some(consumer.take()), model.pop_front());
                }
                consumer.release();
            }
        }
    }

    /// Positions that no honest kernel writes lead to no access outside the ring.
    #[test]
    fn impossible_positions_are_bounded() {
        let mut consumer = ConsumerRing::new(ring(8, 0));
        consumer.map.producer().store(1_000_000, Ordering::Relaxed);
        assert_eq!(consumer.available(1), 8);
        assert_eq!(consumer.available(1), 8);
        let mut producer = ProducerRing::new(ring(8, 0));
        producer.map.consumer().store(1000, Ordering::Relaxed);
        assert_eq!(producer.room(9), 0);
        assert_eq!(producer.room(1), 0);
    }
}
