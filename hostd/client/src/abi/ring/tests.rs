use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::os::fd::AsFd;

fn pair(entries: u32) -> (Producer<8>, Consumer<8>, RingMemory<8>) {
    let (fd, ours) = RingMemory::<8>::create(c"test", entries).expect("memory");
    let theirs = RingMemory::open(fd.as_fd(), ours.entries()).expect("the same ring");
    (ours.producer(), theirs.consumer(), ours)
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push,
    Publish,
    Pop,
    Release,
}

proptest! {
    /// HT-2: the ring does what a queue with a staging area on each side does.
    #[test]
    fn agrees_with_a_queue(
        entries in 1_u32..9,
        start in prop_oneof![Just(0_u32), Just(u32::MAX - 3)],
        ops in prop::collection::vec(
            prop_oneof![Just(Op::Push), Just(Op::Publish), Just(Op::Pop), Just(Op::Release)], 0..200),
    ) {
        let (mut producer, mut consumer, memory) = pair(entries);
        for word in [TAIL, HEAD] {
            memory.map.word(word).store(start, Ordering::Relaxed);
        }
        (producer.tail, producer.published, producer.head_seen) = (start, start, start);
        (consumer.head, consumer.released, consumer.tail_seen) = (start, start, start);
        let capacity = memory.entries() as usize;
        let (mut staged, mut shown, mut taken) = (VecDeque::new(), VecDeque::new(), 0_usize);
        let mut next = 0_u64;
        for op in ops {
            match op {
                Op::Push => {
                    let fits = staged.len() + shown.len() + taken < capacity;
                    prop_assert_eq!(producer.push(&next.to_le_bytes()), Ok(fits));
                    if fits {
                        staged.push_back(next);
                        next += 1;
                    }
                }
                Op::Publish => {
                    prop_assert_eq!(producer.publish(), !staged.is_empty());
                    shown.append(&mut staged);
                }
                Op::Pop => {
                    let expected = shown.pop_front();
                    taken += usize::from(expected.is_some());
                    prop_assert_eq!(consumer.pop(), Ok(expected.map(u64::to_le_bytes)));
                }
                Op::Release => {
                    consumer.release();
                    taken = 0;
                }
            }
        }
    }

    /// HT-3: whatever indices the other side writes, an end answers with an entry or a fault.
    #[test]
    fn any_indices_are_survived(entries in 1_u32..9, values in prop::collection::vec(any::<(bool, u32)>(), 1..40)) {
        let (mut producer, mut consumer, memory) = pair(entries);
        for (which, value) in values {
            memory.map.word(if which { TAIL } else { HEAD }).store(value, Ordering::Relaxed);
            let _ = producer.push(&[1; 8]);
            let _ = producer.room();
            if let Ok(available) = consumer.available() {
                prop_assert!(available <= memory.entries());
            }
            let _ = consumer.pop();
        }
    }
}

#[test]
fn a_tail_too_far_is_a_fault() {
    let (_, mut consumer, memory) = pair(4);
    memory.map.word(TAIL).store(5, Ordering::Relaxed);
    assert_eq!(consumer.pop(), Err(RingFault));
    memory.map.word(TAIL).store(4, Ordering::Relaxed);
    assert_eq!(consumer.available(), Ok(4));
    memory.map.word(TAIL).store(2, Ordering::Relaxed);
    assert_eq!(consumer.available(), Err(RingFault), "backwards");
}

#[test]
fn a_head_before_its_time_is_a_fault() {
    let (mut producer, _, memory) = pair(4);
    producer.push(&[0; 8]).expect("room");
    memory.map.word(HEAD).store(1, Ordering::Relaxed);
    assert_eq!(
        producer.room(),
        Err(RingFault),
        "taken before it was published"
    );
}

/// HT-2: entries cross between threads in order, and a sleeper is always woken.
#[test]
fn two_threads_lose_nothing() {
    const COUNT: u64 = 200_000;
    let (mut producer, mut consumer, _) = pair(64);
    let (wake, woken) = std::sync::mpsc::channel();
    let sender = std::thread::spawn(move || {
        let mut next = 0_u64;
        while next < COUNT {
            if producer.push(&next.to_le_bytes()).expect("a sound ring") {
                next += 1;
            } else {
                std::thread::yield_now();
            }
            if next.is_multiple_of(7) || next == COUNT {
                producer.publish();
                if producer.take_wake_request(true) {
                    wake.send(()).expect("the consumer lives");
                }
            }
            if producer.room() == Ok(0) {
                producer.publish();
                if producer.take_wake_request(true) {
                    wake.send(()).expect("the consumer lives");
                }
            }
        }
    });
    let mut expected = 0_u64;
    while expected < COUNT {
        match consumer.pop().expect("a sound ring") {
            Some(entry) => {
                assert_eq!(u64::from_le_bytes(entry), expected);
                expected += 1;
            }
            None => {
                consumer.release();
                if !consumer.arm().expect("a sound ring") {
                    let slept = woken.recv_timeout(std::time::Duration::from_secs(20));
                    slept.expect("a wake-up was lost");
                }
            }
        }
    }
    sender.join().expect("the producer");
}

#[test]
fn a_starved_producer_is_woken_once() {
    let (mut producer, mut consumer, _) = pair(1);
    producer.push(&[0; 8]).expect("a sound ring");
    producer.publish();
    assert_eq!(producer.starve(), Ok(false));
    assert!(consumer.pop().expect("a sound ring").is_some());
    consumer.release();
    assert!(consumer.take_starvation());
    assert!(!consumer.take_starvation());
    assert_eq!(producer.starve(), Ok(true));
    assert!(!consumer.take_starvation(), "there is room already");
}

/// HT-1: who waits for urgent entries sleeps on while others come, and is woken once by an urgent
/// one, which may have been published together with others.
#[test]
fn a_consumer_may_wait_for_urgent_entries_only() {
    let (mut producer, mut consumer, _) = pair(8);
    let mut publish = |urgent| {
        producer.push(&[0; 8]).expect("a sound ring");
        producer.publish();
        producer.take_wake_request(urgent)
    };
    assert_eq!(consumer.arm_urgent(), Ok(false));
    assert!(!publish(false) && !publish(false), "nothing urgent");
    assert!(publish(true));
    assert!(!publish(true), "once");
    assert_eq!(consumer.arm_urgent(), Ok(true), "these come first");
    while consumer.pop().expect("a sound ring").is_some() {}
    assert_eq!(consumer.arm(), Ok(false));
    assert!(publish(false), "any entry wakes again");
}
