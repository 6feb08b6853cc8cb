//! A collective under way.

use super::call::Collective;
use super::failure::{Cause, Failure, GroupError};
use super::judge::REMEMBERED;
use super::member::{Group, Vector};
use super::offload::Way;
use super::progress::Progress;
use super::schedule::schedule;
use super::turn::{Flow, Stage};
use std::time::{Duration, Instant};

/// Bytes of a vector up to which [`Request::wait`] does not sleep at once: what all wait for then
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
    group: &'a mut Group,
    flow: Flow<'a>,
    over: bool,
}

impl<'a> Request<'a> {
    pub(super) fn begin(
        group: &'a mut Group,
        collective: Collective,
        vector: Option<Vector<'a>>,
    ) -> Result<Self, GroupError> {
        if let Some(error) = &group.failed {
            return Err(error.clone());
        }
        let call = group.call(collective, vector.as_ref())?;
        if let Some(vector) = &vector {
            let copied = copy(group, collective, vector);
            copied.map_err(|error| group.broken(error))?;
        }
        if let Some(offload) = &mut group.offload {
            offload.part();
        }
        let way = group.way(&call, group.sequence);
        let (stage, steps) = if way == Way::Hosts {
            (Stage::Hosts, schedule(&call, group.rank, group.size))
        } else {
            (Stage::Begin, Vec::new())
        };
        let progress = Progress::new(steps, group.options.segment, call.len == 0);
        let flow = Flow {
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
            vector,
            moved: Instant::now(),
            probed: Instant::now(),
            answered: false,
            appealed: None,
        };
        group.sequence = group.sequence.wrapping_add(1);
        group.history.push_front(call);
        group.history.truncate(REMEMBERED);
        Ok(Self {
            group,
            flow,
            over: false,
        })
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
        let result = self.group.turn(&mut self.flow);
        self.over = !matches!(result, Ok(false));
        result
    }

    /// Waits until it is over. Sleeps while nothing comes; with vectors of up to 16 KiB it only
    /// yields the processor for the first half of a millisecond.
    ///
    /// # Errors
    /// The group has failed: within [`super::GroupOptions::timeout`] and 3 s of the last that came.
    pub fn wait(mut self) -> Result<(), GroupError> {
        let short = self.flow.call.len <= SHORT;
        let mut waits = Instant::now();
        while !self.over && !self.turn()? {
            if short && waits.elapsed() < AWAKE {
                std::thread::yield_now();
                continue;
            }
            let until = self.group.deadline(&self.flow);
            self.group.pause(until)?;
            waits = Instant::now();
        }
        Ok(())
    }

    /// As [`Self::wait`], as a future. One that is dropped before it is over makes the group fail.
    ///
    /// # Errors
    /// As [`Self::wait`].
    #[cfg(feature = "tokio")]
    pub async fn finish(mut self) -> Result<(), GroupError> {
        while !self.poll()? {
            let paused = self.group.queue.pause().await;
            paused.map_err(|error| self.group.broken(error))?;
        }
        Ok(())
    }
}

#[cfg(feature = "tokio")]
impl crate::CompletionQueue {
    /// Waits until there is a completion, or it is time to look whether time is up or connections
    /// are asked for.
    async fn pause(&mut self) -> Result<(), crate::Error> {
        use crate::tasks::{kernel, register};
        const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
        if self.arm()? {
            return Ok(());
        }
        if self.readiness.is_none() {
            self.readiness = Some(register(crate::CompletionQueue::as_fd(self))?);
        }
        let readiness = self.readiness.as_ref().expect("set above");
        if let Ok(ready) = tokio::time::timeout(LOOK, readiness.readable()).await {
            ready.map_err(kernel("epoll_wait"))?.clear_ready();
        }
        Ok(())
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
