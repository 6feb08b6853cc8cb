//! What a job has to bring to its members, and how far that is.
//!
//! hostd writes results in the order of their bytes, each once (HT-50). So what has come to a
//! member is a prefix of each result. The first member that gets a piece has it checked against the
//! vectors; all others must have the same bits.

use super::values::{self, Order};
use super::{Job, Seating, Task};
use crate::check::Check;
use std::cell::RefCell;
use std::rc::Rc;

/// Where the results of a member begin in its region; its vectors are in front.
const RESULTS: u64 = 1 << 47;

/// Between the vectors of two collectives: more than any is long.
const APART: u32 = 32;

/// What all members of a job have in common.
#[derive(Debug)]
pub struct Ledger {
    seed: u64,
    tasks: Vec<Task>,
    order: Order,
    deterministic: bool,
    /// By collective: members that have posted it.
    posted: Vec<usize>,
    /// By collective: what has come to the member that is furthest.
    came: Vec<Vec<u8>>,
    /// The first thing that was wrong.
    pub violation: Option<(Check, String)>,
}

/// What a member has.
#[derive(Debug)]
pub struct Part {
    ledger: Rc<RefCell<Ledger>>,
    world: u16,
    /// By collective: bytes of its result.
    written: Vec<u32>,
}

impl Ledger {
    /// Nothing has come yet; the vectors follow from `seed`.
    pub fn new(job: &Job, seating: &Seating, seed: u64) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            seed,
            tasks: job.tasks.clone(),
            order: Order::of(seating),
            deterministic: job.deterministic,
            posted: vec![0; job.tasks.len()],
            came: vec![Vec::new(); job.tasks.len()],
            violation: None,
        }))
    }

    /// A collective.
    pub fn task(&self, number: usize) -> Task {
        self.tasks[number]
    }

    /// Collectives.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// A member has posted all its collectives.
    pub fn post(&mut self) {
        self.posted.iter_mut().for_each(|posted| *posted += 1);
    }

    /// Something is wrong.
    pub fn complain(&mut self, check: Check, what: String) {
        self.violation.get_or_insert((check, what));
    }

    /// A piece of a result came to a member that had all before it.
    fn take(&mut self, number: usize, at: usize, data: &[u8]) -> Result<(), String> {
        let task = self.tasks[number];
        let known = self.came[number].len().saturating_sub(at).min(data.len());
        let (old, new) = data.split_at(known);
        if self.came[number][at..at + known] != *old {
            return Err("other members have something else".to_owned());
        }
        if new.is_empty() {
            return Ok(());
        }
        let offset = (at + known) as u64;
        let (seed, order) = (self.seed, &self.order);
        if values::depends_on_order(&task) && !self.deterministic {
            if values::out_of_bounds(seed, &task, order, offset, new).is_some() {
                return Err("no order of the members gives that".to_owned());
            }
        } else {
            let right = values::exact(seed, &task, order, offset, new.len());
            if !values::is_same(&task, &right, new) {
                return Err("that is not what comes of the vectors".to_owned());
            }
        }
        self.came[number].extend_from_slice(new);
        Ok(())
    }
}

impl Part {
    /// That of a member.
    pub fn new(ledger: Rc<RefCell<Ledger>>, world: u16) -> Rc<RefCell<Self>> {
        let written = vec![0; ledger.borrow().tasks.len()];
        Rc::new(RefCell::new(Self {
            ledger,
            world,
            written,
        }))
    }

    /// The world rank.
    pub fn world(&self) -> u16 {
        self.world
    }

    /// What all have in common.
    pub fn ledger(&self) -> &Rc<RefCell<Ledger>> {
        &self.ledger
    }

    /// The place of its vector for a collective.
    pub fn input(number: usize) -> u64 {
        (number as u64) << APART
    }

    /// The place of its result.
    pub fn output(number: usize) -> u64 {
        RESULTS + Self::input(number)
    }

    fn collective(&self, offset: u64) -> usize {
        usize::try_from(offset >> APART).map_or(usize::MAX, |it| it)
    }

    /// Reads its vector.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let ledger = self.ledger.borrow();
        let Some(task) = ledger.tasks.get(self.collective(offset)) else {
            return false;
        };
        let at = offset & ((1 << APART) - 1);
        values::fill(ledger.seed, task, self.world, at, into);
        true
    }

    /// Takes a piece of a result.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let ledger = &mut *self.ledger.borrow_mut();
        let number = offset.checked_sub(RESULTS).map(|it| self.written_place(it));
        let Some((number, at)) = number.filter(|it| it.0 < ledger.tasks.len()) else {
            ledger.complain(Check::InOrder, format!("a result was written at {offset}"));
            return false;
        };
        let (task, world) = (ledger.tasks[number], self.world);
        let what = format!(
            "rank {world}, collective {number} ({:?}): {} bytes at {at}",
            task.work,
            data.len()
        );
        let before = self.written[number] as usize;
        if at != before || !task.gets(world) || at + data.len() > task.len as usize {
            let check = if at < before {
                Check::ExactlyOnce
            } else {
                Check::InOrder
            };
            ledger.complain(
                check,
                format!("{what}; {before} of {} were there", task.len),
            );
            return true;
        }
        if let Err(why) = ledger.take(number, at, data) {
            ledger.complain(Check::Result, format!("{what}: {why}"));
        }
        self.written[number] += u32::try_from(data.len()).expect("a message");
        true
    }

    fn written_place(&self, offset: u64) -> (usize, usize) {
        let at = offset & ((1 << APART) - 1);
        let at = usize::try_from(at).expect("below 2^32");
        (self.collective(offset), at)
    }

    /// A collective has completed, well or not; `byte_len` bytes are said to be in place.
    pub fn complete(&self, number: usize, well: bool, byte_len: u32) {
        let ledger = &mut *self.ledger.borrow_mut();
        let (task, world) = (ledger.tasks[number], self.world);
        let members = ledger.order.members().count();
        let has = self.written[number];
        let what = format!("rank {world}, collective {number} ({:?})", task.work);
        if well && ledger.posted[number] < members {
            let text = format!("{what} completed, and not all have begun it");
            ledger.complain(Check::Result, text);
        }
        let says = if task.gets(world) { byte_len } else { has };
        if says != has || (well && task.gets(world) && has != task.len) {
            let text = format!(
                "{what} completed: {has} of {} bytes are there, {byte_len} are said to be",
                task.len
            );
            ledger.complain(Check::Result, text);
        }
    }
}
