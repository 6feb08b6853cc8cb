//! A switch above, of which this one is a member.

use super::peer::Peer;
use common::time::{Span, Time};
use common::wire::compute::Terms;

/// Least time before something is sent up again: less than the kernel lets a thread wait.
const RETRY_LEAST: Span = Span::from_millis(4);

/// How often a parent is asked until it answers.
pub(super) const ASK_AGAIN: Span = Span::from_millis(50);

/// What is known of a parent.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    pub(super) peer: Peer,
    /// What it granted, with its epoch.
    pub(super) terms: Option<(u32, Terms)>,
    /// When it was heard of last, or asked first.
    pub(super) heard: Time,
    /// When something was sent last.
    pub(super) sent: Time,
    /// It knows that this switch has left.
    pub(super) left: bool,
    /// The smoothed round trip and how it varies (RFC 6298).
    smoothed: Option<(Span, Span)>,
}

impl Parent {
    pub(super) fn new(peer: Peer, now: Time) -> Self {
        Self {
            peer,
            terms: None,
            heard: now,
            sent: now,
            left: false,
            smoothed: None,
        }
    }

    /// Its epoch; zero if it has not granted anything.
    pub(super) fn epoch(&self) -> u32 {
        self.terms.map_or(0, |(epoch, _)| epoch)
    }

    /// Slots that it granted.
    pub(super) fn slots(&self) -> u16 {
        self.terms.map_or(0, |(_, terms)| terms.slots)
    }

    /// Notes how long a result took that was asked for once (RFC 6298 §2).
    pub(super) fn note_round_trip(&mut self, took: Span) {
        let took = took.nanos();
        let (smoothed, varies) = match self.smoothed {
            None => (took, took / 2),
            Some((smoothed, varies)) => {
                let (smoothed, varies) = (smoothed.nanos(), varies.nanos());
                let off = smoothed.abs_diff(took);
                ((7 * smoothed + took) / 8, (3 * varies + off) / 4)
            }
        };
        self.smoothed = Some((Span::from_nanos(smoothed), Span::from_nanos(varies)));
    }

    /// After which time something that was sent up so often is sent again.
    pub(super) fn patience(&self, tries: u8, lease: Span) -> Span {
        let most = lease.nanos() / 4;
        let first = match self.smoothed {
            Some((smoothed, varies)) => smoothed.nanos() + 4 * varies.nanos(),
            None => most / 8,
        };
        let first = first.max(RETRY_LEAST.nanos());
        let doubled = first.saturating_mul(1 << tries.saturating_sub(1).min(6));
        Span::from_nanos(doubled.min(most))
    }
}
