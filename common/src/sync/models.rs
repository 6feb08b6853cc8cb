//! Small models of the lock-free cores, of which loom runs every execution: every interleaving of
//! their threads, with every order of memory accesses that the orderings of the atomics allow.
//!
//! Loom finds data races on slots, items that leak, and threads that wait for one another for ever;
//! the assertions find the rest. `make loom` prints how many executions each model has.

#![allow(
    unsafe_code,
    reason = "a cell that loom watches is read and written; see each SAFETY"
)]

use super::primitive::{Arc, UnsafeCell};
use super::snapshot::Publisher;
use super::spsc::ring_from;
use loom::thread;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs every execution of a model.
fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    static RUNNING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = RUNNING.lock().unwrap_or_else(|poison| poison.into_inner());
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{name}: {} executions", executions.load(Ordering::Relaxed));
}

/// Items cross in order, none is lost or doubled, while positions wrap and the ring is full at
/// times.
#[test]
fn single_items_cross_in_order() {
    explore("spsc, items", || {
        let (mut producer, mut consumer) = ring_from(2, usize::MAX);
        let sender = thread::spawn(move || {
            for item in 0..3_usize {
                let mut item = Arc::new(item);
                while let Err(back) = producer.push(item) {
                    item = back;
                    thread::yield_now();
                }
            }
        });
        for expected in 0..3 {
            let item = loop {
                match consumer.pop() {
                    Some(item) => break item,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(*item, expected);
        }
        assert!(consumer.pop().is_none());
        sender.join().expect("no panic");
    });
}

/// As above in batches, which are cut where the ring is full.
#[test]
fn batches_cross_in_order() {
    explore("spsc, batches", || {
        let (mut producer, mut consumer) = ring_from(2, usize::MAX - 1);
        let sender = thread::spawn(move || {
            let mut items: Vec<_> = (0..4_usize).map(Arc::new).collect();
            while !items.is_empty() {
                if producer.push_batch(&mut items) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut taken = Vec::new();
        while taken.len() < 4 {
            if consumer.pop_batch(&mut taken, 3) == 0 {
                thread::yield_now();
            }
        }
        assert!(taken.iter().map(|item| **item).eq(0..4));
        sender.join().expect("no panic");
    });
}

/// Whichever end goes last drops what nobody took, once.
#[test]
fn what_nobody_took_is_dropped_once() {
    explore("spsc, ends", || {
        let witness = Arc::new(());
        let (mut producer, mut consumer) = ring_from(2, usize::MAX);
        let items = [witness.clone(), witness.clone()];
        let sender = thread::spawn(move || {
            for item in items {
                assert!(producer.push(item).is_ok(), "there is room for both");
            }
        });
        drop(consumer.pop());
        drop(consumer);
        sender.join().expect("no panic");
        assert_eq!(Arc::strong_count(&witness), 1);
    });
}

/// What only the tables of epoch 0 name may be used again once epoch 1 has passed: the reader,
/// which parks in between, is never in it then.
#[test]
fn nothing_that_has_passed_is_still_read() {
    explore("snapshot, passing", || {
        // What a table names. The publisher writes to what it uses again, the reader reads.
        let named: Arc<[UnsafeCell<usize>; 2]> = Arc::new([UnsafeCell::new(0), UnsafeCell::new(1)]);
        let publisher = Publisher::new(0_usize);
        let mut reader = publisher.reader();
        let seen = named.clone();
        let worker = thread::spawn(move || {
            for turn in 0..2 {
                let table = **reader.get();
                // SAFETY: the publisher writes to what no reader's table names.
                seen[table].with(|value| assert_eq!(unsafe { *value }, table));
                if turn == 0 {
                    reader.park();
                }
            }
        });
        let epoch = publisher.publish(1);
        if publisher.passed(epoch) {
            // SAFETY: no reader looks at table 0 any more.
            named[0].with_mut(|value| unsafe { *value = 7 });
        }
        worker.join().expect("no panic");
        assert!(
            publisher.passed(epoch),
            "a reader that is gone holds nothing up"
        );
    });
}

/// A table that says which thread made it, which alone may free it.
struct Table(thread::ThreadId);

impl Drop for Table {
    fn drop(&mut self) {
        assert_eq!(self.0, thread::current().id(), "freed by a reader");
    }
}

/// Old tables are freed by the publisher, each once, while a reader moves on and parks.
#[test]
fn only_the_publisher_frees_tables() {
    explore("snapshot, freeing", || {
        let table = || Table(thread::current().id());
        let publisher = Publisher::new(table());
        let mut reader = publisher.reader();
        let worker = thread::spawn(move || {
            reader.get();
            reader.park();
            reader.get();
        });
        publisher.publish(table());
        publisher.publish(table());
        worker.join().expect("no panic");
        assert!(publisher.passed(2));
    });
}
