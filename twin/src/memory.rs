//! Memory of simulated applications. It computes what every byte has to be, so it stores nothing,
//! and it detects data that is delivered twice or changed, or seen too early: messages out of
//! order, or the last bytes of one before its others.

use super::check::Check;
use super::collective::ledger::Part;
use hostd::memory::RegionMemory;
use hostd::verbs::AtomicOperation;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
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

/// What has been written of a message. Its packets may come in any order, but for the last one,
/// which makes it whole (HT-40).
#[derive(Debug)]
struct Arriving {
    message: Expected,
    /// Bytes from its beginning on.
    written: u32,
    /// Where others begin and end that were written before their turn.
    early: BTreeMap<u32, u32>,
}

impl Arriving {
    /// Bytes were written from its byte `from` to its byte `to`.
    ///
    /// # Errors
    /// Which check that breaks; nothing has changed.
    fn wrote(&mut self, from: u32, to: u32) -> Result<(), Check> {
        let before = self.early.range(..to).next_back();
        if from < self.written || before.is_some_and(|(_, end)| *end > from) {
            return Err(Check::ExactlyOnce);
        }
        let whole = self.message.len;
        let missing = || {
            let early = self.early.iter().map(|(from, to)| to - from);
            whole - self.written - early.sum::<u32>()
        };
        if to > whole || (to == whole && missing() > to - from) {
            return Err(Check::InOrder);
        }
        self.early.insert(from, to);
        while let Some(first) = self.early.first_entry()
            && *first.key() == self.written
        {
            self.written = first.remove();
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.written == self.message.len
    }
}

/// What a connection has to deliver, and how far that is: messages in order, unless its service
/// has none.
#[derive(Debug, Default)]
pub struct Ledger {
    seed: u64,
    expected: VecDeque<Arriving>,
    /// Messages may come in any order (HT-39).
    unordered: bool,
    /// Messages that were written whole; all those before them, too, if there is an order.
    pub whole: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// The first thing that was wrong.
    pub violation: Option<(Check, String)>,
    /// A broken engine is simulated: from so many bytes on a packet comes after the last one of its
    /// message.
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
        self.expected.push_back(Arriving {
            message,
            written: 0,
            early: BTreeMap::new(),
        });
        self.skip_whole();
    }

    /// Whether the message with this place at the receiver was written whole.
    pub fn is_whole(&self, target: u64) -> bool {
        self.expected.iter().all(|it| it.message.target != target)
    }

    /// Simulates an engine that swaps the last packet of a message with one before it, after so
    /// many bytes.
    pub fn swap_after(&mut self, bytes: u64) {
        self.swap = Some(bytes);
    }

    /// Messages that were posted and not written whole.
    pub fn outstanding(&self) -> usize {
        self.expected.len()
    }

    fn skip_whole(&mut self) {
        while self.expected.front().is_some_and(Arriving::is_whole) {
            self.expected.pop_front();
            self.whole += 1;
        }
    }

    /// Which of the expected messages bytes at `offset` are of.
    fn message_at(&self, offset: u64) -> usize {
        let ends = |one: &Expected| one.target + u64::from(one.len);
        let mut all = self.expected.iter().map(|it| &it.message);
        let place = all.position(|one| (one.target..ends(one)).contains(&offset));
        place.filter(|_| self.unordered).unwrap_or(0)
    }

    /// Whether bytes that end at `end` are the last of the next message.
    fn ends_message(&self, end: u64) -> bool {
        let next = self.expected.front().map(|it| &it.message);
        next.is_some_and(|it| end == it.target + u64::from(it.len))
    }

    /// Bytes were written at `offset` of the receiver's memory; returns where they begin at the
    /// sender's.
    fn wrote(&mut self, offset: u64, len: usize) -> Option<u64> {
        let index = self.message_at(offset);
        let Some(arriving) = self.expected.get_mut(index) else {
            let what = || format!("{len} bytes at {offset}, though nothing is outstanding");
            self.complain(Check::ExactlyOnce, what);
            return None;
        };
        let Expected { source, target, .. } = arriving.message;
        let (written, total) = (arriving.written, arriving.message.len);
        // What lies before the message was written when it was the turn of that.
        let from = offset.checked_sub(target).ok_or(Check::ExactlyOnce);
        let fits = from.and_then(|from| {
            let ends = |to: u64| Some((u32::try_from(from).ok()?, u32::try_from(to).ok()?));
            let (from, to) = ends(from + len as u64).ok_or(Check::InOrder)?;
            arriving.wrote(from, to)
        });
        if let Err(check) = fits {
            self.complain(check, || {
                format!(
                    "{len} bytes at {offset}; of {total} bytes at {target} {written} were there"
                )
            });
            return None;
        }
        let is_whole = arriving.is_whole();
        self.bytes += len as u64;
        if index > 0 && is_whole {
            self.expected.remove(index);
            self.whole += 1;
        }
        self.skip_whole();
        Some(source + (offset - target))
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
            let ends = ledger.ends_message(offset + from.len() as u64);
            if ledger.held_back.is_none() && !ends {
                ledger.held_back = Some((offset, from.len()));
                return true;
            }
            if ends && let Some((held, len)) = ledger.held_back.take() {
                ledger.swap = None;
                ledger.wrote(offset, from.len());
                ledger.wrote(held, len);
                return true;
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
        for (from, to, len) in [
            (0, 0, 60),
            (60, 60, 40),
            // Packets of one message may come in any order, but for the last one.
            (140, 1040, 30),
            (100, 1000, 20),
            (120, 1020, 20),
            (170, 1070, 30),
        ] {
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
            (1, 100, false),
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
        // Twice the same, in order and early; in part; the last bytes, and the next message, before
        // all is there.
        for (first, second, check) in [
            (0, 0, Check::ExactlyOnce),
            (30, 30, Check::ExactlyOnce),
            (30, 40, Check::ExactlyOnce),
            (40, 30, Check::ExactlyOnce),
            (0, 80, Check::InOrder),
            (20, 1000, Check::InOrder),
        ] {
            let ledger = ledger();
            let memory = Memory::<false>::Stream(ledger.clone());
            memory.copy_in(first, &[0; 20]);
            assert!(ledger.borrow().violation.is_none());
            memory.copy_in(second, &[0; 20]);
            let violation = ledger.borrow().violation.clone();
            assert_eq!(violation.map(|it| it.0), Some(check), "{first} {second}");
        }
    }
}
