//! Packets that wait for their share of the worker's turns.
//!
//! A turn takes so many at most, one of each job in turn: a job that floods waits behind itself,
//! and forwarding goes on. Jobs are told apart by their number alone, which costs no look at the
//! jobs; what no job has is bounded like a job.
//!
//! Each queue has places of its own, and beyond them as many shared ones as are left free. From a
//! quarter of that on it is long: what joins it is marked, and the members of the job send less
//! before anything is lost.

use std::collections::VecDeque;

/// Queues, a power of two: jobs whose numbers have the same hash share one.
const QUEUES: usize = 16;

/// Places that a queue has whatever the others take: two of each of 64 members, which may come at
/// once.
const OWN: usize = 128;

/// Places that all share. Alone, a job of eight members has room for all that they begin with.
const SHARED: usize = 2048;

/// Packets that a turn takes: as many as it takes from a port, so that a saturating job costs
/// forwarding no more than another port would.
pub const TURN: usize = 128;

/// Queues of packets, by job.
#[derive(Debug)]
pub struct Backlog<T> {
    queues: Vec<VecDeque<T>>,
    /// The one that is served next.
    next: usize,
    len: usize,
    /// Shared places that are free.
    free: usize,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            queues: (0..QUEUES)
                .map(|_| VecDeque::with_capacity(Self::ALONE))
                .collect(),
            next: 0,
            len: 0,
            free: SHARED,
        }
    }
}

/// The number of the job that a message names; zero if it ends before.
pub fn job_of(message: &[u8]) -> u32 {
    let number = message.get(4..8).and_then(|it| it.first_chunk());
    number.map_or(0, |it| u32::from_be_bytes(*it))
}

/// The queue of a job: the upper bits of a product with the golden ratio. The low bits of the
/// number are the same for many of a worker's jobs, which has them by these.
fn queue_of(job: u32) -> usize {
    (job.wrapping_mul(0x9e37_79b1) >> (u32::BITS - QUEUES.ilog2())) as usize
}

impl<T> Backlog<T> {
    /// Packets that may wait in all.
    pub const MOST: usize = QUEUES * OWN + SHARED;

    /// Packets of one job that may wait while no other has any.
    pub const ALONE: usize = OWN + SHARED / 2;

    /// Whether so much of a job waits that its members should send less.
    pub fn is_long(&self, job: u32) -> bool {
        let waiting = self.queues[queue_of(job)].len();
        waiting >= OWN && (waiting - OWN) * 4 >= self.free
    }

    /// Puts a packet behind those of its job, or gives it back if there is no room.
    ///
    /// # Errors
    /// The packet.
    pub fn push(&mut self, job: u32, packet: T) -> Result<(), T> {
        let queue = &mut self.queues[queue_of(job)];
        if queue.len() >= OWN {
            if queue.len() - OWN >= self.free {
                return Err(packet);
            }
            self.free -= 1;
        }
        queue.push_back(packet);
        self.len += 1;
        Ok(())
    }

    /// The next packet, of the next job.
    pub fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        for _ in 0..QUEUES {
            let queue = &mut self.queues[self.next];
            self.next = (self.next + 1) % QUEUES;
            if let Some(packet) = queue.pop_front() {
                self.len -= 1;
                self.free += usize::from(queue.len() >= OWN);
                return Some(packet);
            }
        }
        None
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-42: jobs take turns, however much of one waits, and what exceeds its room is given back.
    #[test]
    fn jobs_take_turns_and_are_bounded() {
        const DEPTH: usize = Backlog::<()>::ALONE;
        let mut backlog = Backlog::default();
        for number in 0..DEPTH {
            assert_eq!(backlog.push(1, (1, number)), Ok(()));
        }
        assert_eq!(backlog.push(1, (1, DEPTH)), Err((1, DEPTH)));
        assert_eq!(backlog.push(2, (2, 0)), Ok(()));
        assert_eq!(backlog.push(2, (2, 1)), Ok(()));
        let first: Vec<_> = (0..5).map_while(|_| backlog.pop()).collect();
        assert_eq!(first, [(2, 0), (1, 0), (2, 1), (1, 1), (1, 2)]);
        assert_eq!(backlog.len(), DEPTH - 3);
        while backlog.pop().is_some() {}
        assert!(backlog.is_empty());
        assert_eq!(backlog.free, SHARED);
    }

    /// SW-42: a job is told to send less long before its packets are lost, and others, however much
    /// of it waits, keep places of their own and a share of the rest; all of them together keep the
    /// bound.
    #[test]
    fn a_long_queue_is_told_and_leaves_room() {
        let mut backlog = Backlog::default();
        let fill = |backlog: &mut Backlog<u32>, job| {
            let before = backlog.len();
            let mut told = None;
            loop {
                let waiting = backlog.len() - before;
                if told.is_none() && backlog.is_long(job) {
                    told = Some(waiting);
                }
                if backlog.push(job, job).is_err() {
                    return (told.expect("it is told first"), waiting);
                }
            }
        };
        let (told, lost) = fill(&mut backlog, 1);
        assert!(told >= 512 && told * 2 <= lost, "{told} of {lost}");
        let other = (2..).find(|it| queue_of(*it) != queue_of(1)).expect("one");
        assert!(!backlog.is_long(other));
        let (_, second) = fill(&mut backlog, other);
        assert!(second >= OWN + SHARED / 4, "{second}");
        for job in 0..10_000 {
            while backlog.push(job, job).is_ok() {}
        }
        assert!(backlog.queues.iter().all(|queue| queue.len() >= OWN));
        assert!(backlog.len() <= Backlog::<u32>::MOST);
        while backlog.pop().is_some() {}
        assert_eq!((backlog.free, backlog.len()), (SHARED, 0));
    }

    /// SW-42: the jobs of each worker use most queues, however many workers there are.
    #[test]
    fn jobs_of_a_worker_use_most_queues() {
        for workers in 1..=64_u32 {
            for own in 0..workers {
                let jobs = (0..256).map(|number| own + number * workers);
                let queues: std::collections::BTreeSet<_> = jobs.map(queue_of).collect();
                assert!(queues.len() >= QUEUES * 3 / 4, "worker {own} of {workers}");
            }
        }
    }

    /// SW-42: the job is read where the header has it, and a message without one is no panic.
    #[test]
    fn the_job_is_read_from_the_message() {
        assert_eq!(job_of(&[0, 0, 0, 0, 1, 2, 3, 4, 5]), 0x0102_0304);
        assert_eq!(job_of(&[0, 0, 0, 0, 1, 2, 3]), 0);
    }
}
