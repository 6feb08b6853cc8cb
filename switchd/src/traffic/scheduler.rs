//! \[8\] Which queue is served next.
//!
//! Queues are served in strict priority, or share what those leave by weight; any mix of both.
//!
//! ```text
//!   strict queues, highest class first ──▶ one has a packet: it goes
//!        none ▼
//!   weighted queues in a circle: the one at the pointer goes while it has credit,
//!        then it gets its quantum again and the pointer moves on
//! ```
//!
//! Weighted queues are served by deficit round robin (Shreedhar and Varghese) in the form that lets
//! a queue with any credit left send and carries what it overdraws (surplus round robin): no packet
//! has to be looked at before it is taken, and over time each queue gets its share to the byte.
//! Bytes are counted as the line does, with preamble and gap.

use crate::limits::CLASSES;
use crate::tables::policy::Schedule;

/// Line bytes that a weight of one brings a queue in each round.
const QUANTUM: i64 = 512;

/// The scheduler of one port.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// Bit n: queue n is strict.
    strict: u8,
    /// Line bytes that each queue gets in a round.
    quantum: [i64; CLASSES],
    /// Line bytes that each weighted queue may send before it is the next one's turn.
    credit: [i64; CLASSES],
    /// The weighted queue whose turn it is.
    pointer: u8,
}

const _: () = assert!(CLASSES == u8::BITS as usize, "a bit for each class");

impl Default for Scheduler {
    /// All queues strict.
    fn default() -> Self {
        Self {
            strict: u8::MAX,
            quantum: [QUANTUM; CLASSES],
            credit: [0; CLASSES],
            pointer: 0,
        }
    }
}

impl Scheduler {
    /// Serves the queues so from now on. Credit that was earned or owed stays.
    pub fn configure(&mut self, schedules: &[Schedule; CLASSES]) {
        self.strict = 0;
        for (class, schedule) in schedules.iter().enumerate() {
            match schedule {
                Schedule::Strict => self.strict |= 1 << class,
                Schedule::Dwrr(weight) => {
                    debug_assert!(*weight > 0, "class {class} would never get credit");
                    self.quantum[class] = QUANTUM * i64::from(*weight);
                }
            }
        }
    }

    /// The queue to serve of those whose bit is set in `ready`; `None` if there is none.
    #[inline]
    pub fn next(&mut self, ready: u8) -> Option<usize> {
        let strict = ready & self.strict;
        if strict != 0 {
            return Some(CLASSES - 1 - strict.leading_zeros() as usize);
        }
        if ready == 0 {
            return None;
        }
        Some(self.next_weighted(ready))
    }

    /// The weighted queue of `ready`, which is not empty, whose turn it is.
    #[inline]
    fn next_weighted(&mut self, ready: u8) -> usize {
        // The circle from the pointer on; each round brings credit, so this ends.
        loop {
            let class = usize::from(self.pointer);
            if ready & 1 << class != 0 && self.credit[class] > 0 {
                return class;
            }
            // The next one's turn begins with its quantum.
            let ahead = ready
                .rotate_right(u32::from(self.pointer) + 1)
                .trailing_zeros();
            let next = (class + 1 + ahead as usize) % CLASSES;
            self.pointer = u8::try_from(next).expect("below 8");
            // A queue whose turn ended early, because its shaper or a pause stopped it, has not
            // saved what it did not send.
            let credit = self.credit[next] + self.quantum[next];
            self.credit[next] = credit.min(self.quantum[next]);
        }
    }

    /// A packet of `bytes` on the line was taken from `class`.
    #[inline]
    pub fn spent(&mut self, class: usize, bytes: u64) {
        if self.strict & 1 << class == 0 {
            debug_assert!(self.credit[class] > 0, "{class} was served without credit");
            self.credit[class] -= i64::try_from(bytes).unwrap_or(i64::MAX);
        }
    }

    /// Queue `class` holds no packet any more: credit is not saved, debt is not forgotten.
    #[inline]
    pub fn emptied(&mut self, class: usize) {
        self.credit[class] = self.credit[class].min(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::wire_len;
    use proptest::prelude::*;
    use rand_core::Rng;

    /// Serves queues that always have packets until `packets` were taken; line bytes of each.
    fn serve(
        scheduler: &mut Scheduler,
        packets: usize,
        mut len: impl FnMut(usize) -> u64,
    ) -> [u64; 8] {
        let mut bytes = [0; 8];
        for _ in 0..packets {
            let class = scheduler.next(0b0000_1111).expect("queues are full");
            let line = wire_len(len(class));
            scheduler.spent(class, line);
            bytes[class] += line;
        }
        bytes
    }

    fn weighted(weights: [u8; 4]) -> Scheduler {
        let mut scheduler = Scheduler::default();
        let mut schedules = [Schedule::Strict; 8];
        for (schedule, weight) in schedules.iter_mut().zip(weights) {
            *schedule = Schedule::Dwrr(weight);
        }
        scheduler.configure(&schedules);
        scheduler
    }

    proptest! {
        /// SW-15: shares follow the weights to within a round, whatever the lengths of the packets.
        #[test]
        fn shares_follow_weights(weights in prop::array::uniform4(1..=100_u8), seed: u64) {
            let mut random = rand_pcg::Pcg64Mcg::new(u128::from(seed));
            let mut scheduler = weighted(weights);
            let sizes = [[60, 60], [60, 1514], [1514, 9000], [64, 4096]];
            let bytes = serve(&mut scheduler, 40_000, |class| {
                sizes[class][usize::try_from(random.next_u64() % 2).expect("0 or 1")]
            });
            let rounds = |class: usize| bytes[class] / (u64::from(weights[class]) * 512);
            let (least, most) = (0..4).map(rounds).fold((u64::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
            // A packet of 9000 bytes is up to 18 quanta of weight one.
            prop_assert!(most - least <= 20, "{bytes:?} for {weights:?}");
        }
    }

    /// SW-15: strict queues go first, whatever the others have saved.
    #[test]
    fn strict_queues_go_first() {
        let mut scheduler = weighted([1, 100, 1, 1]);
        assert_eq!(scheduler.next(0b0000_0010), Some(1));
        assert_eq!(scheduler.next(0b0101_0010), Some(6));
        assert_eq!(scheduler.next(0), None);
    }

    /// SW-15: weights can change while queues are served; the new shares hold from then on.
    #[test]
    fn weights_change_live() {
        let mut scheduler = weighted([1, 1, 1, 1]);
        serve(&mut scheduler, 1000, |_| 1500);
        scheduler.configure(&[Schedule::Dwrr(10); 8]);
        let mut schedules = [Schedule::Dwrr(10); 8];
        schedules[0] = Schedule::Dwrr(30);
        scheduler.configure(&schedules);
        let bytes = serve(&mut scheduler, 60_000, |_| 1500);
        let share = |class: usize| bytes[class] * 1000 / bytes.iter().sum::<u64>();
        assert!((499..=501).contains(&share(0)), "{bytes:?}");
    }

    /// SW-15: a queue that is stopped in the middle of each of its turns has saved nothing: it gets
    /// its share, not more.
    #[test]
    fn credit_of_a_stopped_queue_is_not_saved() {
        let mut scheduler = weighted([100, 100, 1, 1]);
        for _ in 0..1000 {
            let first = scheduler.next(0b0011).expect("full");
            scheduler.spent(first, 1000);
            let other = scheduler.next(0b0010).expect("full");
            scheduler.spent(other, 1000);
        }
        let mut bytes = [0_u64; 2];
        for _ in 0..2000 {
            let class = scheduler.next(0b0011).expect("full");
            scheduler.spent(class, 1000);
            bytes[class] += 1000;
        }
        assert!(bytes[0].abs_diff(bytes[1]) <= 2 * 51_200, "{bytes:?}");
    }

    /// SW-15: a queue that was empty has saved nothing: it gets its share, not more.
    #[test]
    fn credit_is_not_saved() {
        let mut scheduler = weighted([1, 1, 1, 1]);
        for _ in 0..1000 {
            let class = scheduler.next(0b0001).expect("full");
            scheduler.spent(class, 1000);
            scheduler.emptied(1);
        }
        let bytes = serve(&mut scheduler, 4000, |_| 976);
        assert!(bytes[1] <= bytes[0] + 2000, "{bytes:?}");
    }
}
