//! A collective under way.

use super::call::Collective;
use super::failure::{Cause, Failure, GroupError};
use super::flow::{Flow, Stage};
use super::judge::REMEMBERED;
use super::member::Group;
use super::offload::Way;
use super::progress::Progress;
use super::schedule::schedule;
use super::seat::Fallback;
use super::turn::ANSWERS;
use super::vector::{Held, SharedVector, Vector};
use crate::channel::deadline;
use std::time::{Duration, Instant};

/// Bytes of a vector up to which who waits does not sleep at once: what all wait for then
/// is how fast threads are woken, and one that yields its processor needs not be. With longer ones
/// it would take time from the daemons, which have work to do.
const SHORT: u64 = 16 << 10;

/// For so long without a sleep.
const AWAKE: Duration = Duration::from_micros(500);

/// A collective under way. It goes on when it is polled or waited for. Its memory must not be
/// touched before it is over.
///
/// Dropping one that is not over makes the group fail, at all members.
#[derive(Debug)]
pub struct Request<'a> {
    pub(super) group: &'a mut Group,
    flow: Flow<'a>,
    over: bool,
}

impl<'a> Flow<'a> {
    /// A collective begins; its memory is `held`, which `vector` describes.
    fn begin(
        group: &mut Group,
        collective: Collective,
        vector: Option<&Vector<'_>>,
        held: Option<Held<'a>>,
    ) -> Result<Self, GroupError> {
        if let Some(error) = &group.failed {
            return Err(error.clone());
        }
        group.context.inner.channel.check_process()?;
        if group.begun.is_some() {
            let text = "another collective of the group is under way";
            return Err(GroupError::Argument(text.to_owned()));
        }
        let call = group.call(collective, vector)?;
        if let Some(vector) = vector {
            let copied = copy(group, collective, vector);
            copied.map_err(|error| group.broken(error))?;
        }
        group.last = None;
        if let Some(trial) = &mut group.trial {
            // It began while this member called nothing, and who did so, too, can answer now only.
            trial.until = Instant::now() + ANSWERS;
        }
        if let Some(offload) = &mut group.offload {
            offload.part();
        }
        let way = group.way(&call, group.sequence);
        group.note_leafless(&call, group.sequence)?;
        let (stage, steps) = if way == Way::Hosts {
            (Stage::Hosts, schedule(&call, group.rank, group.size))
        } else {
            (Stage::Begin, Vec::new())
        };
        let progress = Progress::new(steps, group.options.segment, call.len == 0);
        let flow = Self {
            call,
            meant: call,
            sequence: group.sequence,
            stage,
            switched: way == Way::Switches,
            unposted: false,
            done: 0,
            complete: false,
            rest: None,
            base: 0,
            numbers: vec![[0; 2]; progress.peers()],
            progress,
            vector: held,
            is_past: false,
            moved: Instant::now(),
            probed: Instant::now(),
            answered: false,
            noted: false,
            appealed: None,
        };
        group.sequence += 1;
        group.history.push_front(call);
        group.history.truncate(REMEMBERED);
        Ok(flow)
    }
}

impl Group {
    /// Begins a collective that goes on in the group itself, when [`Self::poll`] or
    /// [`Self::wait_for`] is called: for callers that cannot keep a [`Request`]. Without a vector
    /// for a barrier. Until it is over no other collective begins, and its memory must not be
    /// touched. Dropping the group before makes it fail, at all members.
    ///
    /// # Errors
    /// As [`Self::start`]; [`GroupError::Argument`] also while another one is under way.
    pub fn begin(
        &mut self,
        collective: Collective,
        vector: Option<SharedVector<'_>>,
    ) -> Result<(), GroupError> {
        let lent = vector.as_ref().map(SharedVector::lent);
        let held = vector.as_ref().map(Held::from);
        let flow = Flow::begin(self, collective, lent.as_ref(), held)?;
        self.begun = Some(Box::new(flow));
        Ok(())
    }

    /// As [`Request::poll`], of the collective that was begun; true also without one.
    ///
    /// Without one it does what others need of this member between two collectives: switches may
    /// have failed when some had their results and others not, who then wait until those say how
    /// far they are. A member that waits for others by other means than the group polls it
    /// meanwhile, some times a second.
    ///
    /// # Errors
    /// The group has failed.
    pub fn poll(&mut self) -> Result<bool, GroupError> {
        // Who polls does not hear when the socket has something to say.
        self.stirred = true;
        if self.begun.is_none() {
            return self.attend().map(|()| true);
        }
        self.go_on_begun(None)
    }

    /// As [`Request::wait_for`], of the collective that was begun; true also without one.
    ///
    /// # Errors
    /// The group has failed.
    pub fn wait_for(&mut self, timeout: Duration) -> Result<bool, GroupError> {
        self.go_on_begun(Some(deadline(timeout)))
    }

    fn go_on_begun(&mut self, until: Option<Instant>) -> Result<bool, GroupError> {
        let Some(mut flow) = self.begun.take() else {
            return match &self.failed {
                Some(error) => Err(error.clone()),
                None => Ok(true),
            };
        };
        let over = match until {
            Some(until) => self.carry_on(&mut flow, until)?,
            None => self.turn_of(&mut flow)?,
        };
        if !over {
            self.begun = Some(flow);
        }
        Ok(over)
    }

    /// Goes on with a collective, sleeping while nothing comes. Whether it is over in time.
    fn carry_on(&mut self, flow: &mut Flow<'_>, until: Instant) -> Result<bool, GroupError> {
        let short = flow.call.len <= SHORT;
        let mut waits = Instant::now();
        while !self.turn_of(flow)? {
            let now = Instant::now();
            if now >= until {
                // Who never sleeps does not hear when the socket has something to say.
                self.stirred = true;
                return Ok(false);
            }
            if short && now.duration_since(waits) < AWAKE {
                std::thread::yield_now();
                continue;
            }
            self.pause(self.deadline(flow).min(until))?;
            waits = Instant::now();
        }
        Ok(true)
    }

    fn turn_of(&mut self, flow: &mut Flow<'_>) -> Result<bool, GroupError> {
        let over = self.turn(flow)?;
        self.switched = flow.complete;
        Ok(over)
    }
}

impl<'a> Request<'a> {
    pub(super) fn begin(
        group: &'a mut Group,
        collective: Collective,
        vector: Option<Vector<'a>>,
    ) -> Result<Self, GroupError> {
        let held = vector.as_ref().map(Held::from);
        let flow = Flow::begin(group, collective, vector.as_ref(), held)?;
        Ok(Self {
            group,
            flow,
            over: false,
        })
    }

    /// As [`Group::fallback`], while the collective is under way.
    pub fn fallback(&self) -> Option<Fallback> {
        self.group.fallback()
    }

    /// Does what can be done without waiting. True when it is over: the result is there, and the
    /// memory may be used.
    ///
    /// # Errors
    /// The group has failed.
    pub fn poll(&mut self) -> Result<bool, GroupError> {
        if self.over {
            return Ok(true);
        }
        // Who polls does not hear when the socket has something to say.
        self.group.stirred = true;
        self.turn()
    }

    fn turn(&mut self) -> Result<bool, GroupError> {
        let result = self.group.turn_of(&mut self.flow);
        self.over = !matches!(result, Ok(false));
        result
    }

    /// Waits until it is over. Sleeps while nothing comes; with vectors of up to 16 KiB it only
    /// yields the processor for the first half of a millisecond.
    ///
    /// # Errors
    /// The group has failed: within [`super::GroupOptions::timeout`] and 3 s of the last that came.
    pub fn wait(mut self) -> Result<(), GroupError> {
        while !self.wait_for(Duration::MAX)? {}
        Ok(())
    }

    /// Waits until it is over, for so long at most. True when it is.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_for(&mut self, timeout: Duration) -> Result<bool, GroupError> {
        if self.over {
            return Ok(true);
        }
        let result = self.group.carry_on(&mut self.flow, deadline(timeout));
        self.over = !matches!(result, Ok(false));
        result
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.over {
            let rank = self.group.rank;
            let cause = Cause::Abandoned;
            self.group.fail(Failure { rank, cause });
        }
    }
}

/// Brings what the member gives to where the collective works.
fn copy(
    group: &mut Group,
    collective: Collective,
    vector: &Vector<'_>,
) -> Result<(), crate::Error> {
    let Some((source, offset)) = vector.source else {
        return Ok(());
    };
    let len = group.source_len(collective, vector.len);
    let to = match collective {
        Collective::Allgather => group.rank * len,
        Collective::Broadcast { root } if root != group.rank => return Ok(()),
        _ => 0,
    };
    let mut done = 0;
    while done < len {
        let bytes = group.scratch[0].len().min(len - done);
        let bytes = &mut group.scratch[0][..bytes];
        source.read(offset + done, bytes)?;
        vector.region.write(vector.offset + to + done, bytes)?;
        done += bytes.len();
    }
    Ok(())
}
