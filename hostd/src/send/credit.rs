//! \[1\] End-to-end credits: how many of the requests that take a receive a plain peer has receives
//! for, as its acknowledgements say (InfiniBand 9.7.7.2).
//!
//! Requests are numbered from 1 on. An acknowledgement names how many the peer completed (MSN) and
//! how many receives it has besides; the sum is the last number that may be sent. A peer that uses
//! no credits says so in each acknowledgement. Nothing limits what is sent before the first one.

use common::wire::roce::Aeth;

/// Message sequence numbers have 24 bits.
const MASK: u32 = (1 << 24) - 1;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credits {
    /// Requests of the queue pair that ended before the connection began.
    before: u32,
    /// Number of the last request that may be sent; `None`: any.
    limit: Option<u32>,
}

impl Credits {
    /// No limit yet. `completed`: requests that ended before the connection began.
    pub(crate) const fn new(completed: u32) -> Self {
        Self {
            before: completed,
            limit: None,
        }
    }

    /// A request was sent in one more part than counted: the peer takes each part of a READ for a
    /// message of its own.
    pub(crate) fn sent_part(&mut self) {
        self.before = self.before.wrapping_sub(1);
    }

    /// A request was carried out that the peer does not hear of.
    pub(crate) fn sent_nothing(&mut self) {
        self.before = self.before.wrapping_add(1);
    }

    /// The newest acknowledgement says this.
    pub(crate) fn update(&mut self, msn: u32, code: u8) {
        self.limit = Aeth::credits(code).map(|credits| msn.wrapping_add(credits) & MASK);
    }

    /// Requests that may be sent from number `request` on, this one included; `None`: any. The
    /// first request of the queue pair has number zero.
    fn left(&self, request: u32) -> Option<u32> {
        let number = request.wrapping_sub(self.before).wrapping_add(1);
        let ahead = self.limit?.wrapping_add(1).wrapping_sub(number) & MASK;
        Some(if ahead > MASK / 2 { 0 } else { ahead })
    }

    /// Whether request `request` may be sent without limits.
    pub(crate) fn allow(&self, request: u32) -> bool {
        self.left(request) != Some(0)
    }

    /// Whether the request after `request` may not.
    pub(crate) fn end_at(&self, request: u32) -> bool {
        self.left(request).is_some_and(|left| left <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-10: the limit is the number of completed messages and the receives besides, also across
    /// the wrap of message numbers.
    #[test]
    fn what_may_be_sent() {
        for before in [0, 0x00ff_fffd, u32::MAX - 1] {
            let mut credits = Credits::new(before);
            let request = |n: u32| before.wrapping_add(n);
            assert!(credits.allow(request(1000)) && !credits.end_at(request(1000)));
            credits.update(0, Aeth::credit_code(2));
            assert!(credits.allow(request(0)) && !credits.end_at(request(0)));
            assert!(credits.allow(request(1)) && credits.end_at(request(1)));
            assert!(!credits.allow(request(2)) && !credits.allow(request(500)));
            credits.update(0x00ff_fffe, 2);
            assert!(credits.allow(request(0x00ff_ffff)) && !credits.allow(request(0x0100_0000)));
            credits.update(3, Aeth::NO_CREDIT_LIMIT);
            assert!(credits.allow(request(1 << 22)));
        }
    }
}
