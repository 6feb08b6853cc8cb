//! How long answers take, and after which time one is late (RFC 6298).

use crate::time::Span;

/// Smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttEstimator {
    smoothed: Option<Span>,
    variation: Span,
    shortest: Option<Span>,
}

impl RttEstimator {
    /// Takes one measurement (RFC 6298 2.2 and 2.3). Of a packet that was sent once: an answer to
    /// one that was sent twice says nothing (Karn).
    #[inline]
    pub fn sample(&mut self, rtt: Span) {
        self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variation = rtt.divided_by(2);
            return;
        };
        let deviation = if rtt > smoothed {
            rtt - smoothed
        } else {
            smoothed - rtt
        };
        self.variation = (self.variation.times(3) + deviation).divided_by(4);
        self.smoothed = Some((smoothed.times(7) + rtt).divided_by(8));
    }

    /// The next measurement counts as if it was the first one, but for the shortest: what was known
    /// is old.
    pub const fn restart(&mut self) {
        self.smoothed = None;
    }

    /// The smoothed round-trip time, once measured.
    pub const fn smoothed(&self) -> Option<Span> {
        self.smoothed
    }

    /// The shortest round-trip time, once measured.
    pub const fn shortest(&self) -> Option<Span> {
        self.shortest
    }

    /// The smoothed time and four variations: after that an answer is late (RFC 6298 2.3).
    #[inline]
    pub fn late_after(&self) -> Option<Span> {
        Some(self.smoothed? + self.variation.times(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_rfc_6298() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.late_after(), None);
        rtt.sample(Span::from_micros(800));
        assert_eq!(rtt.smoothed(), Some(Span::from_micros(800)));
        assert_eq!(rtt.late_after(), Some(Span::from_micros(800 + 4 * 400)));
        rtt.sample(Span::from_micros(1600));
        assert_eq!(rtt.smoothed(), Some(Span::from_micros(900)));
        // ¾ · 400 + ¼ · 800 = 500
        assert_eq!(rtt.late_after(), Some(Span::from_micros(900 + 4 * 500)));
        assert_eq!(rtt.shortest(), Some(Span::from_micros(800)));
        rtt.restart();
        rtt.sample(Span::from_micros(2000));
        assert_eq!(rtt.late_after(), Some(Span::from_micros(2000 + 4 * 1000)));
        assert_eq!(rtt.shortest(), Some(Span::from_micros(800)));
    }
}
