//! Memory of simulated applications. It computes what every byte has to be, so it stores nothing,
//! and it detects data that is delivered twice, out of order or changed.

use super::check::Check;
use super::collective::ledger::Part;
use hostd::memory::RegionMemory;
use hostd::verbs::AtomicOperation;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes of a region: more than any simulation sends.
const REGION: u64 = 1 << 48;

/// A message that was posted and has not been received whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Where it begins at the sender.
    pub source: u64,
    /// Where it begins at the receiver.
    pub target: u64,
    /// Its bytes.
    pub len: u32,
}

/// What a connection has to deliver, and how far that is: messages in order, unless its service
/// has none, and the bytes of each in order.
#[derive(Debug, Default)]
pub struct Ledger {
    seed: u64,
    /// With the bytes that were written of each.
    expected: VecDeque<(Expected, u32)>,
    /// Messages may come in any order (HT-39).
    unordered: bool,
    /// Messages that were written whole; all those before them, too, if there is an order.
    pub whole: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// The first thing that was wrong.
    pub violation: Option<(Check, String)>,
    /// A broken engine is simulated: the next write but one comes before the next.
    swap: Option<u64>,
    held_back: Option<(u64, usize)>,
}

impl Ledger {
    /// Nothing is expected yet; `seed` says what the bytes are.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Messages may come in any order from now on.
    pub fn allow_any_order(&mut self) {
        self.unordered = true;
    }

    /// Another message was posted.
    pub fn expect(&mut self, message: Expected) {
        self.expected.push_back((message, 0));
        self.skip_empty();
    }

    /// Whether the message with this place at the receiver was written whole.
    pub fn is_whole(&self, target: u64) -> bool {
        self.expected.iter().all(|(one, _)| one.target != target)
    }

    /// Simulates an engine that swaps two packets, after so many bytes.
    pub fn swap_after(&mut self, bytes: u64) {
        self.swap = Some(bytes);
    }

    /// Messages that were posted and not written whole.
    pub fn outstanding(&self) -> usize {
        self.expected.len()
    }

    fn skip_empty(&mut self) {
        while self
            .expected
            .front()
            .is_some_and(|(first, written)| first.len == *written)
        {
            self.expected.pop_front();
            self.whole += 1;
        }
    }

    /// Which of the expected messages bytes at `offset` are of.
    fn message_at(&self, offset: u64) -> usize {
        let ends = |one: &Expected| one.target + u64::from(one.len);
        let mut all = self.expected.iter();
        let place = all.position(|(one, _)| (one.target..ends(one)).contains(&offset));
        place.filter(|_| self.unordered).unwrap_or(0)
    }

    /// Bytes were written at `offset` of the receiver's memory; returns where they begin at the
    /// sender's.
    fn wrote(&mut self, offset: u64, len: usize) -> Option<u64> {
        let index = self.message_at(offset);
        let Some((first, written)) = self.expected.get_mut(index) else {
            let what = || format!("{len} bytes at {offset}, though nothing is outstanding");
            self.complain(Check::ExactlyOnce, what);
            return None;
        };
        let place = first.target + u64::from(*written);
        let source = first.source + u64::from(*written);
        let left = (first.len - *written) as usize;
        if offset != place || len > left {
            let check = if offset < place {
                Check::ExactlyOnce
            } else {
                Check::InOrder
            };
            self.complain(check, || {
                format!("{len} bytes at {offset}; {left} bytes at {place} are to be next")
            });
            return None;
        }
        *written += u32::try_from(len).expect("at most what is left");
        self.bytes += len as u64;
        if index > 0 && len == left {
            self.expected.remove(index);
            self.whole += 1;
        }
        self.skip_empty();
        Some(source)
    }

    fn complain(&mut self, check: Check, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some((check, what()));
        }
    }
}

/// One end's memory of one connection, or that of a member of a job. `BYTES`: payload of
/// connections has bytes, which are made when they are read and checked when they are written;
/// otherwise it has a length only. Vectors of jobs always have bytes.
#[derive(Clone, Debug)]
pub enum Memory<const BYTES: bool> {
    /// Of the connection with this ledger, for either end.
    Stream(Rc<RefCell<Ledger>>),
    /// Of this member.
    Vectors(Rc<RefCell<Part>>),
}

impl<const BYTES: bool> RegionMemory for Memory<BYTES> {
    const HAS_BYTES: bool = BYTES;

    fn len(&self) -> u64 {
        REGION
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool {
        let ledger = match self {
            Self::Stream(ledger) => ledger,
            Self::Vectors(part) => return part.borrow().read(offset, into),
        };
        if BYTES {
            let seed = ledger.borrow().seed;
            for (byte, at) in into.iter_mut().zip(offset..) {
                *byte = pattern(seed, at);
            }
        }
        true
    }

    /// Never: simulated applications do no atomic operations.
    fn atomic(&self, _: u64, _: AtomicOperation) -> Option<u64> {
        None
    }

    fn copy_in(&self, offset: u64, from: &[u8]) -> bool {
        let ledger = match self {
            Self::Stream(ledger) => &mut *ledger.borrow_mut(),
            Self::Vectors(part) => return part.borrow_mut().write(offset, from),
        };
        if ledger.swap.is_some_and(|after| ledger.bytes >= after) {
            match ledger.held_back.take() {
                None => {
                    ledger.held_back = Some((offset, from.len()));
                    return true;
                }
                Some((held, len)) => {
                    ledger.swap = None;
                    ledger.wrote(offset, from.len());
                    ledger.wrote(held, len);
                    return true;
                }
            }
        }
        let source = ledger.wrote(offset, from.len());
        if let (true, Some(source)) = (BYTES, source) {
            let seed = ledger.seed;
            let wrong = from
                .iter()
                .zip(source..)
                .position(|(byte, at)| *byte != pattern(seed, at));
            if let Some(at) = wrong {
                let at = source + at as u64;
                ledger.complain(Check::InOrder, || {
                    format!("byte {at} of the stream is not what was sent")
                });
            }
        }
        true
    }
}

/// Byte `at` of the stream of `seed`.
fn pattern(seed: u64, at: u64) -> u8 {
    let mixed = ((at / 8) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_left(29).to_le_bytes()[(at % 8) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Rc<RefCell<Ledger>> {
        let mut ledger = Ledger::new(7);
        for n in 0..3 {
            ledger.expect(Expected {
                source: 100 * n,
                target: 1000 * n,
                len: 100,
            });
        }
        Rc::new(RefCell::new(ledger))
    }

    #[test]
    fn what_is_in_order_and_unchanged_passes() {
        let ledger = ledger();
        let memory = Memory::<true>::Stream(ledger.clone());
        let mut bytes = [0; 60];
        for (from, to, len) in [(0, 0, 60), (60, 60, 40), (100, 1000, 60), (160, 1060, 40)] {
            memory.copy_out(from, &mut bytes);
            memory.copy_in(to, &bytes[..len]);
        }
        assert_eq!(ledger.borrow().violation, None);
        assert_eq!(
            (ledger.borrow().whole, ledger.borrow().outstanding()),
            (2, 1)
        );
    }

    #[test]
    fn what_is_not_is_noticed() {
        for (offset, len, spoil) in [
            (1, 50, false),
            (0, 101, false),
            (1000, 50, false),
            (0, 50, true),
        ] {
            let ledger = ledger();
            let memory = Memory::<true>::Stream(ledger.clone());
            let mut bytes = vec![0; len];
            memory.copy_out(offset, &mut bytes);
            bytes[3] ^= u8::from(spoil);
            memory.copy_in(offset, &bytes);
            assert!(ledger.borrow().violation.is_some(), "{len} at {offset}");
        }
        // Twice the same, and a swap.
        for (first, second) in [(0, 0), (50, 0)] {
            let ledger = ledger();
            let memory = Memory::<false>::Stream(ledger.clone());
            memory.copy_in(first, &[0; 50]);
            memory.copy_in(second, &[0; 50]);
            assert!(ledger.borrow().violation.is_some());
        }
    }
}
