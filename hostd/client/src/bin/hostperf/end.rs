//! One end of a measurement, and what the two agree on.

use crate::measurement::{DEPTH_MAX, Failure, SIZE_MAX, Test};
use hostd_client::abi::codec::{Reader, Writer};
use hostd_client::{
    Access, Completion, CompletionQueue, Context, Error, Private, QueuePair, QueuePairOptions,
    Region,
};
use std::time::Duration;

/// How long nothing may happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of memory that messages of one measurement share at most: slots beyond it are used twice.
const MEMORY: u64 = 64 << 20;

const MAGIC: u32 = u32::from_le_bytes(*b"hpf1");

/// What is measured, in the private data of the connection's set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) test: Test,
    pub(crate) size: u32,
    pub(crate) depth: u32,
}

impl Plan {
    /// For the other side.
    pub(crate) fn to_private(self) -> Private {
        let test = match self.test {
            Test::Send => 0,
            Test::Write => 1,
            Test::Latency => 2,
        };
        let plan = Writer::<16>::new()
            .u32(MAGIC)
            .u32(test)
            .u32(self.size)
            .u32(self.depth);
        Private::new(plan.as_slice()).unwrap_or_default()
    }

    /// From the other side.
    pub(crate) fn from_private(private: &Private) -> Option<Self> {
        let mut reader = Reader::new(private.as_slice());
        if reader.u32().ok()? != MAGIC {
            return None;
        }
        let test = match reader.u32().ok()? {
            0 => Test::Send,
            1 => Test::Write,
            2 => Test::Latency,
            _ => return None,
        };
        let (size, depth) = (reader.u32().ok()?, reader.u32().ok()?);
        let possible = (1..=SIZE_MAX).contains(&size) && (1..=DEPTH_MAX).contains(&depth);
        possible.then_some(Self { test, size, depth })
    }

    /// Messages that have bytes of their own.
    fn slots(self) -> u32 {
        let fit = u32::try_from(MEMORY / u64::from(self.size)).unwrap_or(u32::MAX);
        fit.clamp(1, self.depth)
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair,
    pub(crate) queue: CompletionQueue,
    pub(crate) memory: Region,
    pub(crate) plan: Plan,
}

impl End {
    pub(crate) fn new(context: &Context, plan: Plan) -> Result<Self, Failure> {
        // Beside the messages: a credit for each, both ways.
        let entries = 2 * plan.depth + 2;
        let queue = context.create_completion_queue(2 * entries)?;
        let options = QueuePairOptions {
            send_entries: entries,
            receive_entries: entries,
        };
        let queue_pair = context.create_queue_pair(&queue, &queue, options)?;
        let bytes = u64::from(plan.slots()) * u64::from(plan.size);
        let bytes = usize::try_from(bytes).map_err(|error| Failure::Usage(error.to_string()))?;
        let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
        let memory = context.allocate(bytes, access)?;
        Ok(Self {
            queue_pair,
            queue,
            memory,
            plan,
        })
    }

    /// Where message `number` lies.
    pub(crate) fn offset(&self, number: u64) -> usize {
        let slot = number % u64::from(self.plan.slots());
        usize::try_from(slot * u64::from(self.plan.size)).unwrap_or(0)
    }

    /// The next completion, which is a success.
    pub(crate) fn next(&mut self) -> Result<Completion, Failure> {
        let completion = self.queue.next(PATIENCE).map_err(|error| match error {
            Error::TimedOut => Failure::Silent(PATIENCE),
            other => other.into(),
        })?;
        if completion.is_success() {
            Ok(completion)
        } else if self.queue.daemon_is_gone() {
            Err(Error::DaemonGone.into())
        } else {
            Err(Failure::Work(completion.status))
        }
    }

    /// The bytes of message `number`.
    pub(crate) fn message(&self, number: u64) -> Result<hostd_client::Slice, Failure> {
        let size = usize::try_from(self.plan.size).unwrap_or(0);
        Ok(self.memory.slice(self.offset(number), size)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_round_trip() {
        for test in [Test::Send, Test::Write, Test::Latency] {
            let plan = Plan {
                test,
                size: SIZE_MAX,
                depth: 7,
            };
            assert_eq!(Plan::from_private(&plan.to_private()), Some(plan));
            assert!(plan.slots() <= 7);
        }
        assert_eq!(Plan::from_private(&Private::EMPTY), None);
        let none = Plan {
            test: Test::Send,
            size: 0,
            depth: 7,
        };
        assert_eq!(Plan::from_private(&none.to_private()), None);
    }
}
