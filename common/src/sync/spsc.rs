//! A bounded ring from one thread to one other.
//!
//! Packets whose egress port belongs to another worker cross such a ring, in batches. Positions
//! run freely and wrap with `usize`; the slot of a position is its low bits. Each side keeps a copy
//! of the other's position and looks at the shared one only when the copy says that there is
//! nothing to do, so a batch costs one line of the cache in each direction.
//!
//! ```text
//!      slots     [ . . x x x x . . ]
//!                      |       |
//!                    head    tail          tail - head = number of items, 0 ..= capacity
//!              the consumer    the producer
//!              writes it       writes it
//! ```

#![allow(
    unsafe_code,
    reason = "slots are written by one thread and read by another; see each SAFETY"
)]

use super::Padded;
use super::primitive::{Arc, AtomicUsize, Ordering, UnsafeCell};
use std::fmt;
use std::mem::MaybeUninit;

struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Position of the next item to take; written by the consumer.
    head: Padded<AtomicUsize>,
    /// Position of the next item to put; written by the producer.
    tail: Padded<AtomicUsize>,
}

// SAFETY: a slot is accessed by the producer while it is outside head..tail and by the consumer
// while it is inside, and the positions are handed over with release and acquire; items move from
// one thread to the other, hence `T: Send`.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above; `&Shared` alone gives access to no item.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    fn slot(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // The number of slots is a power of two, so the mask keeps the index in bounds.
        &self.slots[position & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are gone, and dropping the last one made their writes visible here.
        let mut head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: nobody else is left, and the slots in head..tail hold items nobody took.
            self.slot(head)
                .with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// The end that puts items in.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// A head that was true once; the ring has at least the room that it promises.
    head_seen: usize,
}

/// The end that takes items out.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// A tail that was true once; at least the items before it are there.
    tail_seen: usize,
}

/// A ring of at least `capacity` items (the next power of two).
///
/// # Panics
/// If `capacity` is zero.
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    ring_from(capacity, 0)
}

/// A ring whose positions begin at `origin`: the tests begin just before they wrap.
pub(super) fn ring_from<T: Send>(capacity: usize, origin: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity > 0, "a ring without room");
    let slots = (0..capacity.next_power_of_two())
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    let shared = Arc::new(Shared {
        slots,
        head: Padded(AtomicUsize::new(origin)),
        tail: Padded(AtomicUsize::new(origin)),
    });
    let producer = Producer {
        shared: shared.clone(),
        tail: origin,
        head_seen: origin,
    };
    let consumer = Consumer {
        shared,
        head: origin,
        tail_seen: origin,
    };
    (producer, consumer)
}

impl<T: Send> Producer<T> {
    /// Most items that the ring holds at a time.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Items in the ring; the consumer may be taking some meanwhile.
    pub fn len(&self) -> usize {
        self.tail
            .wrapping_sub(self.shared.head.0.load(Ordering::Relaxed))
    }

    /// Whether the consumer has taken everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items can be put now, looking at the consumer's position only if the last one seen
    /// leaves less room than `wanted`.
    fn room(&mut self, wanted: usize) -> usize {
        let room = self.capacity() - self.tail.wrapping_sub(self.head_seen);
        if room >= wanted {
            return room;
        }
        self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        self.capacity() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Puts one item in.
    ///
    /// # Errors
    /// Gives the item back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room(1) == 0 {
            return Err(item);
        }
        // SAFETY: there is room, so the slot at `tail` is outside head..tail: ours.
        self.shared
            .slot(self.tail)
            .with_mut(|slot| unsafe { (*slot).write(item) });
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Puts in as many items as there is room for, from the front of `items`, and returns how
    /// many. The rest stays in `items`, in order.
    pub fn push_batch(&mut self, items: &mut Vec<T>) -> usize {
        let count = self.room(items.len()).min(items.len());
        if count == 0 {
            return 0;
        }
        for item in items.drain(..count) {
            // SAFETY: `count` slots from `tail` on are outside head..tail: ours.
            self.shared
                .slot(self.tail)
                .with_mut(|slot| unsafe { (*slot).write(item) });
            self.tail = self.tail.wrapping_add(1);
        }
        self.shared.tail.0.store(self.tail, Ordering::Release);
        count
    }
}

impl<T: Send> Consumer<T> {
    /// Most items that the ring holds at a time.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Items in the ring; the producer may be putting more meanwhile.
    pub fn len(&self) -> usize {
        let tail = self.shared.tail.0.load(Ordering::Relaxed);
        tail.wrapping_sub(self.head)
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn available(&mut self, wanted: usize) -> usize {
        let available = self.tail_seen.wrapping_sub(self.head);
        if available >= wanted {
            return available;
        }
        self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Takes the oldest item out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.available(1) == 0 {
            return None;
        }
        // SAFETY: the slot at `head` is inside head..tail and was written before `tail` was
        // released; advancing `head` below makes sure that it is read once.
        let item = self
            .shared
            .slot(self.head)
            .with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release);
        Some(item)
    }

    /// Appends the oldest items to `items`, at most `max`, and returns how many.
    pub fn pop_batch(&mut self, items: &mut Vec<T>, max: usize) -> usize {
        let count = self.available(max).min(max);
        if count == 0 {
            return 0;
        }
        // Before anything is taken: reserving is the one step here that could fail.
        items.reserve(count);
        for _ in 0..count {
            // SAFETY: as in `pop`, for `count` slots.
            items.push(
                self.shared
                    .slot(self.head)
                    .with(|slot| unsafe { (*slot).assume_init_read() }),
            );
            self.head = self.head.wrapping_add(1);
        }
        self.shared.head.0.store(self.head, Ordering::Release);
        count
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("capacity", &self.shared.slots.len())
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("capacity", &self.shared.slots.len())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(common_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Op {
        Push,
        PushBatch(usize),
        Pop,
        PopBatch(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            Just(Op::Push),
            (0..12_usize).prop_map(Op::PushBatch),
            Just(Op::Pop),
            (0..12_usize).prop_map(Op::PopBatch),
        ]
    }

    proptest! {
        /// The model is a deque of bounded length; items are boxed, so a lost or doubled one shows
        /// under the allocator's checks.
        #[test]
        fn behaves_as_a_bounded_queue(
            capacity in 1..20_usize,
            before_wrap in 0..10_usize,
            ops in prop::collection::vec(op(), 0..200),
        ) {
            let (mut producer, mut consumer) =
                ring_from::<Box<u64>>(capacity, usize::MAX - before_wrap);
            let capacity = capacity.next_power_of_two();
            let mut model = VecDeque::new();
            let mut next = 0;
            for op in ops {
                match op {
                    Op::Push => match producer.push(Box::new(next)) {
                        Ok(()) => { model.push_back(next); next += 1; }
                        Err(item) => {
                            prop_assert_eq!(*item, next);
                            prop_assert_eq!(model.len(), capacity);
                        }
                    },
                    Op::PushBatch(count) => {
                        let first = next;
                        let mut items: Vec<_> = (first..).take(count).map(Box::new).collect();
                        let put = producer.push_batch(&mut items);
                        prop_assert_eq!(put, count.min(capacity - model.len()));
                        for _ in 0..put { model.push_back(next); next += 1; }
                        prop_assert_eq!(items.len(), count - put);
                        if let Some(rest) = items.first() { prop_assert_eq!(**rest, next); }
                    }
                    Op::Pop => prop_assert_eq!(consumer.pop().map(|item| *item), model.pop_front()),
                    Op::PopBatch(max) => {
                        let mut items = vec![Box::new(u64::MAX)];
                        let taken = consumer.pop_batch(&mut items, max);
                        prop_assert_eq!(taken, max.min(model.len()));
                        for item in items.drain(..).skip(1) {
                            prop_assert_eq!(Some(*item), model.pop_front());
                        }
                    }
                }
                prop_assert_eq!(producer.len(), model.len());
                prop_assert_eq!(consumer.len(), model.len());
                prop_assert_eq!(consumer.is_empty(), model.is_empty());
                prop_assert_eq!(producer.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn everything_arrives_in_order_between_threads() {
        const ITEMS: u64 = 300_000;
        let (mut producer, mut consumer) = ring_from::<Box<u64>>(64, usize::MAX - 1000);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut batch = Vec::new();
                let mut next = 0;
                while next < ITEMS || !batch.is_empty() {
                    let wanted = 1 + usize::try_from(next % 37).expect("small");
                    while batch.len() < wanted && next < ITEMS {
                        batch.push(Box::new(next));
                        next += 1;
                    }
                    if next % 5 == 0 {
                        let first = batch.remove(0);
                        if let Err(first) = producer.push(first) {
                            batch.insert(0, first);
                        }
                    } else if producer.push_batch(&mut batch) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            let mut batch = Vec::new();
            while expected < ITEMS {
                if consumer.pop_batch(&mut batch, 29) == 0 {
                    std::thread::yield_now();
                }
                batch.extend(consumer.pop());
                for item in batch.drain(..) {
                    assert_eq!(*item, expected);
                    expected += 1;
                }
            }
            assert!(consumer.pop().is_none());
        });
    }

    #[test]
    fn items_that_nobody_took_are_dropped() {
        let witness = Arc::new(());
        let (mut producer, mut consumer) = ring_from(4, usize::MAX);
        for _ in 0..4 {
            assert!(producer.push(witness.clone()).is_ok());
        }
        assert!(producer.push(witness.clone()).is_err());
        drop(consumer.pop());
        assert_eq!(Arc::strong_count(&witness), 4);
        drop(consumer);
        drop(producer);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
