//! Packets that wait for their share of the worker's turns.
//!
//! ```text
//!   port 0 ─┬─ jobs of hash 0 ─┐
//!           ├─ …               ├─ one job after the other ─┐
//!           └─ jobs of hash 15 ┘                           ├─ one port after the other ─▶ turn
//!   port 1 ───────────────────────────────────────────────┘
//! ```
//!
//! A turn takes so many at most, one of each port in turn, and of a port one of each job. So what
//! floods waits behind itself, and forwarding goes on. Nothing is believed of a packet before: it
//! says itself to which job it belongs, but not at which port it arrived.
//!
//! Each port has places of its own, and beyond them as many shared ones as are left free. When it
//! has no more, the job that has most of them loses its oldest packet. From a quarter of that on
//! the port's queue is long: what joins it is marked, but for jobs that have less than their share
//! of it, and the members of the job send less before anything is lost.

use crate::bit_set::BitSet;

/// Queues of a port, a power of two: jobs whose numbers have the same hash share one.
const QUEUES: usize = 16;

/// Most places that a port has whatever the others take: two of each of 64 members, which may come
/// at once.
const OWN: usize = 128;

/// Places that ports have of their own, all of them together: more ports have fewer each.
const OWN_OF_ALL: usize = 2048;

/// Places that all share. Alone, a job of eight members has room for all that they begin with.
const SHARED: usize = 2048;

/// Packets that a turn takes: as many as it takes from a port, so that a saturating job costs
/// forwarding no more than another port would.
pub const TURN: usize = 128;

/// No place.
const NONE: u16 = u16::MAX;

const _: () = assert!(OWN_OF_ALL + SHARED < NONE as usize);
const _: () = assert!(
    crate::limits::MAX_PORTS <= OWN_OF_ALL,
    "each port has a place"
);

/// A place for a packet.
#[derive(Debug)]
struct Place<T> {
    packet: Option<T>,
    /// The place behind it in its queue, or among those that are free.
    next: u16,
}

/// Packets of jobs that wait, the oldest first.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u16,
    last: u16,
    len: u16,
}

/// Packets of a port that wait, by job.
#[derive(Clone, Debug)]
struct PortQueues {
    queues: [Queue; QUEUES],
    /// The one that is served next.
    next: usize,
    len: usize,
}

impl PortQueues {
    /// The queue that has most.
    fn longest(&self) -> usize {
        let all = 0..QUEUES;
        all.max_by_key(|it| self.queues[*it].len).unwrap_or(0)
    }
}

/// Queues of packets, by the port at which they arrived and by job.
#[derive(Debug)]
pub struct Backlog<T> {
    places: Vec<Place<T>>,
    /// The first place that is free.
    vacant: u16,
    ports: Vec<PortQueues>,
    /// Ports that have any.
    waiting: BitSet,
    /// The port that is served next.
    next: usize,
    len: usize,
    /// Places of its own that each port has.
    own: usize,
    /// Shared places that are free.
    free: usize,
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
    pub const MOST: usize = OWN_OF_ALL + SHARED;

    /// Packets of one port that may wait while no other has any, of a switch with few ports.
    pub const ALONE: usize = OWN + SHARED / 2;

    /// Nothing waits; packets arrive at so many ports.
    pub fn new(ports: usize) -> Self {
        let ports = ports.clamp(1, OWN_OF_ALL);
        let none = Queue {
            first: NONE,
            last: NONE,
            len: 0,
        };
        let port = PortQueues {
            queues: [none; QUEUES],
            next: 0,
            len: 0,
        };
        let own = OWN.min(OWN_OF_ALL / ports);
        let places = (1..).take(own * ports + SHARED);
        let mut places: Vec<Place<T>> = places.map(|next| Place { packet: None, next }).collect();
        if let Some(last) = places.last_mut() {
            last.next = NONE;
        }
        Self {
            places,
            vacant: 0,
            ports: vec![port; ports],
            waiting: BitSet::new(ports),
            next: 0,
            len: 0,
            own,
            free: SHARED,
        }
    }

    /// Whether so much waits of what arrived at a port that the members of a job there should send
    /// less: it has its share of that.
    pub fn is_long(&self, port: usize, job: u32) -> bool {
        let port = &self.ports[port % self.ports.len()];
        if port.len < self.own || (port.len - self.own) * 4 < self.free {
            return false;
        }
        let jobs = port.queues.iter().filter(|it| it.len > 0).count();
        usize::from(port.queues[queue_of(job)].len) * jobs >= port.len
    }

    /// Puts a packet behind those of its port and job. If there is no room, it or the oldest of the
    /// job that has most at the port is lost.
    ///
    /// # Errors
    /// The packet that is lost.
    pub fn push(&mut self, port: usize, job: u32, packet: T) -> Result<(), T> {
        let (port, queue) = (port % self.ports.len(), queue_of(job));
        let from = &self.ports[port];
        if from.len < self.own || from.len - self.own < self.free {
            self.put(port, queue, packet);
            return Ok(());
        }
        let longest = from.longest();
        if from.queues[longest].len <= from.queues[queue].len {
            return Err(packet);
        }
        let lost = self.take(port, longest);
        self.put(port, queue, packet);
        lost.map_or(Ok(()), Err)
    }

    /// Fills a free place, of which there is one.
    fn put(&mut self, port: usize, queue: usize, packet: T) {
        let at = self.vacant;
        let place = &mut self.places[usize::from(at)];
        self.vacant = std::mem::replace(&mut place.next, NONE);
        place.packet = Some(packet);
        let to = &mut self.ports[port];
        self.free -= usize::from(to.len >= self.own);
        to.len += 1;
        let queue = &mut to.queues[queue];
        match queue.last {
            NONE => queue.first = at,
            last => self.places[usize::from(last)].next = at,
        }
        (queue.last, queue.len) = (at, queue.len + 1);
        self.waiting.set(port);
        self.len += 1;
    }

    /// Takes the oldest packet of a queue.
    fn take(&mut self, port: usize, queue: usize) -> Option<T> {
        let from = &mut self.ports[port];
        let queue = &mut from.queues[queue];
        let at = queue.first;
        let place = self.places.get_mut(usize::from(at))?;
        let packet = place.packet.take();
        queue.first = std::mem::replace(&mut place.next, self.vacant);
        queue.len -= 1;
        if queue.first == NONE {
            queue.last = NONE;
        }
        self.vacant = at;
        from.len -= 1;
        self.free += usize::from(from.len >= self.own);
        if from.len == 0 {
            self.waiting.clear(port);
        }
        self.len -= 1;
        packet
    }

    /// The next packet, of the next port and of its next job.
    pub fn pop(&mut self) -> Option<T> {
        let port = self.waiting.next(self.next);
        let port = port.or_else(|| self.waiting.next(0))?;
        self.next = port + 1;
        let from = &mut self.ports[port];
        let mut queues = (0..QUEUES).map(|it| (from.next + it) % QUEUES);
        let queue = queues.find(|it| from.queues[*it].len > 0)?;
        from.next = queue + 1;
        self.take(port, queue)
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

    /// SW-42: ports take turns, and jobs at a port, however much of one waits, and what exceeds its
    /// room is lost, the oldest of whichever has most.
    #[test]
    fn ports_and_jobs_take_turns_and_are_bounded() {
        const DEPTH: usize = Backlog::<()>::ALONE;
        let mut backlog = Backlog::new(2);
        for number in 0..DEPTH {
            assert_eq!(backlog.push(0, 1, (0, 1, number)), Ok(()));
        }
        let last = (0, 1, DEPTH);
        assert_eq!(backlog.push(0, 1, last), Err(last));
        assert_eq!(backlog.push(0, 2, (0, 2, 0)), Err((0, 1, 0)));
        assert_eq!(backlog.push(0, 2, (0, 2, 1)), Err((0, 1, 1)));
        assert_eq!(backlog.push(1, 1, (1, 1, 0)), Ok(()));
        let first: Vec<_> = (0..6).map_while(|_| backlog.pop()).collect();
        let expected = [
            (0, 2, 0),
            (1, 1, 0),
            (0, 1, 2),
            (0, 2, 1),
            (0, 1, 3),
            (0, 1, 4),
        ];
        assert_eq!(first, expected);
        assert_eq!(backlog.len(), DEPTH - 5);
        while backlog.pop().is_some() {}
        assert!(backlog.is_empty());
        assert_eq!(backlog.free, SHARED);
    }

    /// SW-42: a job is told to send less long before its packets are lost, and other ports and
    /// jobs, however much of it waits, keep places of their own and a share of the rest, and are
    /// not told; all of them together keep the bound, however many ports there are.
    #[test]
    fn a_long_queue_is_told_and_leaves_room() {
        for ports in [0, 1, 2, 64, 256] {
            let mut backlog = Backlog::new(ports);
            let ports = ports.max(1);
            let fill = |backlog: &mut Backlog<u32>, port, job| {
                let before = backlog.len();
                let mut told = None;
                loop {
                    let waiting = backlog.len() - before;
                    if told.is_none() && backlog.is_long(port, job) {
                        told = Some(waiting);
                    }
                    if backlog.push(port, job, job).is_err() {
                        return (told.expect("it is told first"), waiting);
                    }
                }
            };
            let (told, lost) = fill(&mut backlog, 0, 1);
            assert!(told >= 400 && told * 2 <= lost, "{told} of {lost}");
            let other = (2..).find(|it| queue_of(*it) != queue_of(1)).expect("one");
            assert!(!backlog.is_long(0, other));
            if ports > 1 {
                assert!(!backlog.is_long(1, 1));
                let (_, second) = fill(&mut backlog, 1, 1);
                assert!(second >= backlog.own + SHARED / 4, "{second}");
            }
            for number in 0..10_000 {
                let port = number as usize % ports;
                while backlog.push(port, number, number).is_ok() {}
            }
            assert!(backlog.ports.iter().all(|port| port.len >= backlog.own));
            assert!(backlog.own > 0 && backlog.len() <= Backlog::<u32>::MOST);
            while backlog.pop().is_some() {}
            assert_eq!((backlog.free, backlog.len()), (SHARED, 0));
        }
    }

    /// SW-42: the jobs of a port share its places as they want them.
    #[test]
    fn jobs_of_a_port_share_its_room() {
        let mut backlog = Backlog::new(4);
        let jobs: Vec<u32> = (0..QUEUES)
            .filter_map(|queue| (0..1000).find(|job| queue_of(*job) == queue))
            .collect();
        assert_eq!(jobs.len(), QUEUES);
        for number in 0..100_000 {
            for job in &jobs[..4] {
                let _ = backlog.push(3, *job, (*job, number));
            }
        }
        for job in &jobs[..4] {
            let len = usize::from(backlog.ports[3].queues[queue_of(*job)].len);
            assert!(len.abs_diff(Backlog::<()>::ALONE / 4) <= 1, "{len}");
        }
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
