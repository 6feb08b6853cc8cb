use super::*;
use crate::memory::HeapMemory;
use crate::verbs::AtomicOperation;

const MTU: u16 = 256;

struct Bed {
    regions: RegionTable<HeapMemory>,
    rkey: u32,
    lkey: u32,
    answers: Answers,
    access: Access,
}

impl Bed {
    fn new(most: u8) -> Self {
        let mut regions = RegionTable::new([3; 32]);
        let rights = Access::LOCAL_WRITE | Access::ALL_REMOTE;
        let memory = HeapMemory::new(vec![0; 4096]);
        let keys = regions.register(1, memory, 0, rights).expect("room");
        Self {
            regions,
            rkey: keys.rkey,
            lkey: keys.lkey,
            answers: Answers::new(most, MTU, false),
            access: Access::ALL_REMOTE,
        }
    }

    fn read(&self, address: u64, len: u32) -> IncomingQuestion {
        IncomingQuestion {
            question: Question::Read,
            address,
            rkey: self.rkey,
            len,
        }
    }

    fn add(&self, address: u64, n: u64) -> IncomingQuestion {
        IncomingQuestion {
            question: Question::Atomic(AtomicOperation::FetchAdd(n)),
            ..self.read(address, ATOMIC_LEN)
        }
    }

    fn ask(&mut self, asked: &IncomingQuestion, psn: u32) -> Result<(), Refusal> {
        let permit = Permit {
            domain: 1,
            qpn: 1,
            access: self.access,
        };
        let place = (Psn::new(psn), 1);
        self.answers.ask(asked, place, permit, &self.regions)
    }

    fn send_all(&mut self) -> Vec<(u32, AnswerKind, u32, u16)> {
        let mut sent = Vec::new();
        while let Some(next) = self.answers.next() {
            sent.push((next.psn.value(), next.kind, next.offset, next.len));
            self.answers.sent();
        }
        assert!(!self.answers.wait());
        sent
    }
}

use AnswerKind::{Atomic, Read};
use Position::{First, Last, Middle, Only};

/// HT-1: a READ is answered in full packets at the numbers that it took, and again from anywhere
/// within, as a request of its own.
#[test]
fn reads_are_answered_at_their_numbers() {
    let mut bed = Bed::new(4);
    let whole = bed.read(100, 700);
    bed.ask(&whole, 0xff_ffff).expect("allowed");
    let empty = bed.read(0, 0);
    bed.ask(&empty, 2).expect("allowed");
    let first = [
        (0xff_ffff, Read(First), 0, 256),
        (0, Read(Middle), 256, 256),
        (1, Read(Last), 512, 188),
    ];
    let mut all = first.to_vec();
    all.push((2, Read(Only), 0, 0));
    assert_eq!(bed.send_all(), all);
    assert!(bed.answers.ask_again(&whole, Psn::new(0xff_ffff)));
    assert_eq!(bed.send_all(), first);
    let rest = bed.read(100 + 256, 256);
    assert!(bed.answers.ask_again(&rest, Psn::new(0)));
    assert_eq!(bed.send_all(), [(0, Read(Only), 256, 256)]);
    // Nothing that was not asked for and allowed before.
    let strange = [
        (bed.read(100, 256), 0),
        (bed.read(100 + 256, 600), 0),
        (bed.read(100, 700), 3),
        (bed.add(104, 1), 0xff_ffff),
    ];
    for (asked, psn) in strange {
        assert!(!bed.answers.ask_again(&asked, Psn::new(psn)), "{asked:?}");
    }
    let mut other_key = rest;
    other_key.rkey ^= 1;
    assert!(!bed.answers.ask_again(&other_key, Psn::new(0)));
}

/// HT-41: what is asked for again while the rest of an answer leaves is sent again alone if the
/// peer takes packets in any order, and with all that follows it otherwise.
#[test]
fn parts_are_asked_for_again_while_the_rest_leaves() {
    for selective in [true, false] {
        let mut bed = Bed::new(4);
        bed.answers = Answers::new(4, MTU, selective);
        bed.ask(&bed.read(0, 6 * 256), 10).expect("allowed");
        let mut sent = Vec::new();
        let mut send = |bed: &mut Bed, count: usize| {
            for _ in 0..count {
                let next = bed.answers.next().expect("more to send");
                assert_eq!(
                    u32::from(next.len) + next.offset,
                    256 * (next.psn.value() - 9)
                );
                sent.push(next.psn.value());
                let is_first = !sent[..sent.len() - 1].contains(&next.psn.value());
                assert!(!selective || next.again != is_first);
                bed.answers.sent();
            }
        };
        send(&mut bed, 4);
        for (from, count) in [(1, 2), (2, 1)] {
            let part = bed.read(u64::from(from) * 256, count * 256);
            assert!(bed.answers.ask_again(&part, Psn::new(10 + from)));
        }
        let rest = if selective { 4 } else { 5 };
        send(&mut bed, rest);
        assert!(!bed.answers.wait());
        // Once all has left parts are asked for in any order.
        for from in [5, 0] {
            let part = bed.read(u64::from(from) * 256, 256);
            assert!(bed.answers.ask_again(&part, Psn::new(10 + from)));
        }
        let rest = if selective { 2 } else { 6 };
        send(&mut bed, rest);
        assert!(!bed.answers.wait() && bed.answers.next().is_none());
        let expected: &[u32] = match selective {
            true => &[10, 11, 12, 13, 11, 12, 14, 15, 10, 15],
            false => &[10, 11, 12, 13, 11, 12, 13, 14, 15, 10, 11, 12, 13, 14, 15],
        };
        assert_eq!(sent, expected);
    }
}

/// HT-1: an atomic operation is done once, however often it comes.
#[test]
fn atomic_operations_are_done_once() {
    let mut bed = Bed::new(2);
    for (psn, before) in [(5, 0), (6, 3), (7, 6)] {
        let add = bed.add(8, 3);
        bed.ask(&add, psn).expect("allowed");
        for _ in 0..2 {
            assert_eq!(bed.send_all(), [(psn, Atomic(before), 0, 0)]);
            assert!(bed.answers.ask_again(&add, Psn::new(psn)));
        }
        bed.send_all();
    }
    let add = bed.add(8, 3);
    assert!(!bed.answers.ask_again(&add, Psn::new(5)), "forgotten");
}

/// HT-1: what may not be done, with the refusal of InfiniBand 9.7.5.2.8.
#[test]
fn questions_are_refused() {
    use Refusal::{InvalidRequest, RemoteAccess};
    let mut bed = Bed::new(1);
    let cases = [
        (bed.add(4, 1), InvalidRequest),
        (bed.add(4096, 1), RemoteAccess),
        (bed.read(0, 4097), RemoteAccess),
        (bed.read(u64::MAX, 2), RemoteAccess),
        (bed.read(0, u32::MAX), InvalidRequest),
    ];
    for (asked, refusal) in cases {
        assert_eq!(bed.ask(&asked, 1), Err(refusal), "{asked:?}");
    }
    let read = bed.read(0, 1);
    bed.access = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    assert_eq!(bed.ask(&read, 1), Err(InvalidRequest), "no right to read");
    bed.access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let add = bed.add(0, 1);
    assert_eq!(bed.ask(&add, 1), Err(InvalidRequest), "no right to add");
    assert_eq!(bed.ask(&read, 1), Ok(()));
    assert_eq!(bed.ask(&read, 2), Err(InvalidRequest), "more than agreed");
    bed.send_all();
    assert_eq!(bed.ask(&read, 2), Ok(()));
    assert!(bed.regions.deregister(bed.lkey).is_ok());
    assert!(bed.answers.fail() && !bed.answers.wait());
}
