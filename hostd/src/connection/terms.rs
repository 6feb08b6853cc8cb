//! Agreement on changes of a connection that carries data (HT-22, HT-32), and probes of paths
//! before they carry any (HT-21). It knows no packets and no clock.
//!
//! ```text
//!   asks:      ask ──▶ Asked, repeated until answered ──▶ Done: both have made it
//!                                                     ──▶ Later: asked again after a while
//!                                                     ──▶ Refused: nothing has changed
//!   is asked:  makes the change, then answers; a repetition is answered alike
//! ```
//!
//! Both sides make all changes in the same order. If both ask at the same time, the side with the
//! larger cookie goes first: it answers the other one with Later. An answer that was lost does not
//! disturb the order, because who asks says which change of the other side it made last.

use super::timing::Timing;
use crate::verbs::{ChangeStanding, DropReason};
use common::time::{Span, Time};
use common::wire::roce::{Change, ChangeOutcome, NewTerms, PathIds};

/// Longest time from one repetition to the next.
const WAIT_MAX: Span = Span::from_secs(1);

/// Answers to probes that wait at most.
const ANSWERS: usize = 64;

/// The coarsest, and the finest granularity on the wire.
const GRANULARITIES: std::ops::RangeInclusive<u8> = 0..=2;

/// What is sent until it is answered.
#[derive(Clone, Copy, Debug)]
struct Repeated {
    due: bool,
    /// When it is due again.
    at: Time,
    wait: Span,
    /// How often it left.
    times: usize,
}

impl Repeated {
    const fn new(wait: Span) -> Self {
        Self {
            due: true,
            at: Time::NEVER,
            wait,
            times: 0,
        }
    }

    fn left(&mut self, now: Time) {
        self.due = false;
        self.at = now + self.wait;
        self.wait = self.wait.times(2).min(WAIT_MAX);
        self.times += 1;
    }

    /// Whether it is due again.
    fn expire(&mut self, now: Time) -> bool {
        let over = self.at <= now;
        if over {
            self.due = true;
            self.at = Time::NEVER;
        }
        over
    }
}

/// A change that the peer was asked for.
#[derive(Clone, Debug)]
struct Own {
    terms: NewTerms,
    weights: Vec<(u8, u8)>,
    repeated: Repeated,
}

/// A path that is measured.
#[derive(Clone, Copy, Debug)]
struct Probe {
    path: u8,
    serial: u16,
    sent: Time,
    repeated: Repeated,
    /// Nothing waits for its answer: without one it is forgotten.
    once: bool,
}

/// The way of a packet: Path ID, UDP source port and flow label.
pub(super) type Way = (u8, u16, u32);

/// What is to be made of what the peer said, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    /// What this side had asked for, with the weights that it wanted.
    pub(super) own: Option<(NewTerms, Vec<(u8, u8)>)>,
    /// What the peer asks for.
    pub(super) peers: Option<NewTerms>,
    /// A path was measured.
    pub(super) probed: Option<(u8, Span)>,
    /// A probe for congestion control took this long.
    pub(super) timed: Option<Span>,
    /// A change was refused, by one of both sides.
    pub(super) refused: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Terms {
    /// Sub-paths that there may be.
    most: usize,
    /// This side goes first.
    first: bool,
    /// Of repetitions.
    wait: Span,
    /// Of the own change that was asked for last; 0: none was.
    serial: u16,
    /// The peer's change that was made last; 0: none was.
    made: u16,
    /// The peer's change that was answered last for good, and how.
    answered: (u16, ChangeOutcome),
    own: Option<Own>,
    /// The own change that was refused last; 0: none was.
    refused: u16,
    probes: Vec<Probe>,
    probe_serial: u16,
    /// Probes for congestion control, if that goes by them.
    timing: Option<Box<Timing>>,
    /// Answers that are to leave, and the way of each: that of its question.
    answer: Option<(Change, Way)>,
    probe_answers: Vec<(Change, Way)>,
}

impl Terms {
    /// Terms of a connection with `most` sub-paths. What is not answered is repeated after `wait`,
    /// then after twice as long.
    pub(super) fn new(most: usize, first: bool, wait: Span) -> Self {
        Self {
            most,
            first,
            wait,
            serial: 0,
            made: 0,
            answered: (0, ChangeOutcome::Done),
            own: None,
            refused: 0,
            probes: Vec::new(),
            probe_serial: 0,
            timing: None,
            answer: None,
            probe_answers: Vec::new(),
        }
    }

    /// The same, with probes for congestion control.
    pub(super) fn with_timing(mut self) -> Self {
        self.timing = Some(Box::new(Timing::new(self.wait)));
        self
    }

    /// A data packet leaves.
    #[inline]
    pub(super) fn used(&mut self, now: Time) {
        if let Some(timing) = &mut self.timing {
            timing.used(now);
        }
    }

    /// After a probe for congestion control was answered: the next one leaves `interval` after it.
    /// `idle`: nothing is in flight.
    pub(super) fn go_on(&mut self, interval: Span, idle: bool, now: Time) {
        if let Some(timing) = &mut self.timing {
            timing.go_on(interval, idle, now);
        }
    }

    /// Whether the peer has not answered the last change.
    pub(super) fn is_pending(&self) -> bool {
        self.own.is_some()
    }

    /// Whether the peer refused the last change.
    pub(super) const fn was_refused(&self) -> bool {
        self.refused != 0 && self.refused == self.serial
    }

    /// What became of the own change with this serial.
    pub(super) const fn standing(&self, serial: u16) -> ChangeStanding {
        if serial == self.serial && self.own.is_some() {
            ChangeStanding::Pending
        } else if serial != 0 && serial == self.refused {
            ChangeStanding::Refused
        } else {
            ChangeStanding::Made
        }
    }

    /// Asks the peer for a change; its serial.
    pub(super) fn ask(&mut self, terms: NewTerms, weights: Vec<(u8, u8)>) -> u16 {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        self.own = Some(Own {
            terms,
            weights,
            repeated: Repeated::new(self.wait),
        });
        self.serial
    }

    /// Exactly these paths are measured from now on.
    pub(super) fn measure(&mut self, paths: &PathIds) {
        // What was asked once may be answered still, unless the path is another one now.
        let under_way = |probe: &Probe| probe.once && probe.repeated.times > 0;
        self.probes
            .retain(|probe| match paths.contains(probe.path) {
                true => !probe.once,
                false => under_way(probe),
            });
        for path in paths.iter() {
            self.probe(path, false);
        }
    }

    /// A path is compared with the one that is used: a probe leaves, unless one has.
    pub(super) fn doubt(&mut self, path: u8) {
        self.probe(path, true);
    }

    fn probe(&mut self, path: u8, once: bool) {
        if let Some(probe) = self.probes.iter_mut().find(|probe| probe.path == path) {
            probe.once &= once;
        } else {
            self.probe_serial = self.probe_serial.wrapping_add(1);
            self.probes.push(Probe {
                path,
                serial: self.probe_serial,
                sent: Time::ZERO,
                repeated: Repeated::new(self.wait),
                once,
            });
        }
    }

    /// The peer says something.
    ///
    /// # Errors
    /// It is impossible, or not awaited (any more): nothing has changed.
    pub(super) fn take(&mut self, said: &Change, way: Way, now: Time) -> Result<Made, DropReason> {
        match *said {
            Change::Asked {
                serial,
                made,
                terms,
            } => self.asked(serial, made, &terms, way),
            Change::Answered { serial, outcome } => self.answered(serial, outcome, now),
            Change::Probe { path, serial } => {
                if usize::from(path) >= self.most || path != way.0 {
                    return Err(DropReason::MalformedTransport);
                }
                self.probe_answers.retain(|(_, (other, ..))| *other != path);
                let answer = Change::ProbeAnswered { path, serial };
                if self.probe_answers.len() >= ANSWERS {
                    // Its probe comes again.
                    self.probe_answers.remove(0);
                }
                self.probe_answers.push((answer, way));
                Ok(Made::default())
            }
            Change::ProbeAnswered { path, serial } => {
                let timing = self.timing.as_mut();
                let timed = timing.and_then(|timing| timing.answered(path, serial, now));
                if timed.is_some() {
                    return Ok(Made {
                        timed,
                        ..Made::default()
                    });
                }
                let awaited = |probe: &Probe| {
                    probe.path == path && probe.serial == serial && probe.repeated.times > 0
                };
                let index = self.probes.iter().position(awaited);
                let index = index.ok_or(DropReason::UnexpectedChange)?;
                let probe = self.probes.remove(index);
                if self.probes.is_empty() {
                    // Queue pairs that are set up and do nothing more are small.
                    self.probes = Vec::new();
                }
                Ok(Made {
                    probed: Some((path, now.since(probe.sent))),
                    ..Made::default()
                })
            }
        }
    }

    fn asked(
        &mut self,
        serial: u16,
        made: u16,
        terms: &NewTerms,
        way: Way,
    ) -> Result<Made, DropReason> {
        let mut outcome = Made::default();
        let (last, said) = self.answered;
        let newer = serial != 0 && serial.wrapping_sub(last).cast_signed() > 0;
        if !newer && (serial == 0 || serial != last) {
            return Err(DropReason::UnexpectedChange);
        }
        if made == self.serial
            && let Some(own) = self.own.take()
        {
            // Its answer was lost, or comes later than this.
            outcome.own = Some((own.terms, own.weights));
        }
        let answer = if !newer {
            said
        } else if self.own.is_some() && self.first {
            ChangeOutcome::Later
        } else if !self.is_possible(terms) {
            outcome.refused = true;
            ChangeOutcome::Refused
        } else {
            self.made = serial;
            outcome.peers = Some(*terms);
            ChangeOutcome::Done
        };
        if newer && answer != ChangeOutcome::Later {
            self.answered = (serial, answer);
        }
        let answer = Change::Answered {
            serial,
            outcome: answer,
        };
        self.answer = Some((answer, way));
        Ok(outcome)
    }

    fn answered(
        &mut self,
        serial: u16,
        outcome: ChangeOutcome,
        now: Time,
    ) -> Result<Made, DropReason> {
        let awaited = |own: &mut Own| own.repeated.times > 0 && serial == self.serial;
        let mut own = self
            .own
            .take_if(awaited)
            .ok_or(DropReason::UnexpectedChange)?;
        let mut made = Made::default();
        match outcome {
            ChangeOutcome::Done => made.own = Some((own.terms, own.weights)),
            ChangeOutcome::Later => {
                own.repeated.due = false;
                own.repeated.at = now + self.wait;
                self.own = Some(own);
            }
            ChangeOutcome::Refused => {
                self.refused = serial;
                made.refused = true;
            }
        }
        Ok(made)
    }

    /// Whether what the peer wants can be.
    fn is_possible(&self, terms: &NewTerms) -> bool {
        let possible = PathIds::first(self.most);
        let paths = terms.paths;
        let granularity = terms.granularity;
        paths.is_none_or(|paths| !paths.is_empty() && paths.are_among(&possible))
            && granularity.is_none_or(|it| GRANULARITIES.contains(&it))
    }

    /// Whether something is to be asked now.
    pub(super) fn has_questions(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.repeated.due)
            || self.probes.iter().any(|probe| probe.repeated.due)
            || self.timing.as_ref().is_some_and(|timing| timing.is_due())
    }

    /// What is to be asked now, and the path that it takes: one of those that carry data, another
    /// one with each repetition; a probe its own.
    pub(super) fn question(&self, carrying: &PathIds) -> Option<(Change, u8)> {
        if let Some(own) = self.own.as_ref().filter(|own| own.repeated.due) {
            let turn = own.repeated.times % carrying.count().max(1);
            let asked = Change::Asked {
                serial: self.serial,
                made: self.made,
                terms: own.terms,
            };
            return Some((asked, carrying.iter().nth(turn).unwrap_or(0)));
        }
        if let Some(probe) = self.probes.iter().find(|probe| probe.repeated.due) {
            let Probe { path, serial, .. } = *probe;
            return Some((Change::Probe { path, serial }, path));
        }
        let timing = self.timing.as_ref().filter(|timing| timing.is_due())?;
        let path = timing.next_path(carrying)?;
        let serial = self.probe_serial.wrapping_add(1);
        Some((Change::Probe { path, serial }, path))
    }

    /// The question left, on this path. Whether it was a probe for congestion control.
    pub(super) fn question_left(&mut self, path: u8, now: Time) -> bool {
        if let Some(own) = self.own.as_mut().filter(|own| own.repeated.due) {
            own.repeated.left(now);
        } else if let Some(probe) = self.probes.iter_mut().find(|probe| probe.repeated.due) {
            probe.sent = now;
            probe.repeated.left(now);
        } else if let Some(timing) = &mut self.timing {
            self.probe_serial = self.probe_serial.wrapping_add(1);
            timing.left(path, self.probe_serial, now);
            return true;
        }
        false
    }

    /// Whether an answer is to leave.
    pub(super) fn has_answers(&self) -> bool {
        self.answer.is_some() || !self.probe_answers.is_empty()
    }

    /// Takes the next answer, and its way.
    pub(super) fn next_answer(&mut self) -> Option<(Change, Way)> {
        self.answer.take().or_else(|| {
            let answer = self.probe_answers.pop();
            if self.probe_answers.is_empty() {
                self.probe_answers = Vec::new();
            }
            answer
        })
    }

    /// When the clock has to be looked at.
    pub(super) fn deadline(&self) -> Time {
        let own = self.own.iter().map(|own| own.repeated.at);
        let probes = self.probes.iter().map(|probe| probe.repeated.at);
        let timing = self.timing.iter().map(|timing| timing.deadline());
        own.chain(probes).chain(timing).min().unwrap_or(Time::NEVER)
    }

    /// Does what the clock says. `idle`: nothing is in flight.
    pub(super) fn expire(&mut self, idle: bool, now: Time) {
        if let Some(timing) = &mut self.timing {
            timing.expire(idle, now);
        }
        if let Some(own) = &mut self.own {
            own.repeated.expire(now);
        }
        let serial = &mut self.probe_serial;
        self.probes.retain_mut(|probe| {
            let repeated = probe.repeated.expire(now);
            if repeated {
                // A late answer to the one before would make the path look faster than it is.
                *serial = serial.wrapping_add(1);
                probe.serial = *serial;
            }
            !(repeated && probe.once)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-32: what became of a change is known by its serial, whatever became of others.
    #[test]
    fn a_change_has_its_own_outcome() {
        let mut terms = Terms::new(4, true, Span::from_millis(1));
        let (now, way) = (Time::from_nanos(1), (0, 0, 0));
        let wanted = NewTerms {
            reorder_packets: Some(9),
            ..NewTerms::default()
        };
        let mut ask = |outcome, expected, others: &[(u16, ChangeStanding)]| {
            let serial = terms.ask(wanted, Vec::new());
            assert_eq!(terms.standing(serial), ChangeStanding::Pending);
            terms.question_left(0, now);
            let answer = Change::Answered { serial, outcome };
            terms.take(&answer, way, now).expect("awaited");
            assert_eq!(terms.standing(serial), expected);
            for (other, standing) in others {
                assert_eq!(terms.standing(*other), *standing);
            }
            (serial, terms.was_refused())
        };
        let (made, refused) = (ChangeStanding::Made, ChangeStanding::Refused);
        assert_eq!(ask(ChangeOutcome::Done, made, &[]), (1, false));
        assert_eq!(
            ask(ChangeOutcome::Refused, refused, &[(1, made)]),
            (2, true)
        );
        assert_eq!(ask(ChangeOutcome::Done, made, &[(2, refused)]), (3, false));
    }

    /// HT-31: a path that is compared is probed once, whatever comes back; one that waits for its
    /// probe again and again.
    #[test]
    fn a_doubt_is_probed_once() {
        let mut terms = Terms::new(4, true, Span::from_millis(1));
        let carrying = PathIds::first(4);
        let probes = |terms: &mut Terms, at| {
            let now = Time::ZERO + Span::from_millis(at);
            terms.expire(false, now);
            let mut paths = Vec::new();
            while let Some((_, path)) = terms.question(&carrying) {
                terms.question_left(path, now);
                paths.push(path);
            }
            paths
        };
        terms.doubt(2);
        terms.doubt(2);
        assert_eq!(probes(&mut terms, 1), [2]);
        assert!(probes(&mut terms, 9).is_empty());
        assert_eq!(terms.deadline(), Time::NEVER);
        terms.doubt(3);
        terms.measure(&PathIds::first(1));
        assert_eq!(probes(&mut terms, 10), [0]);
        assert_eq!(probes(&mut terms, 19), [0]);
    }
}
