//! The states of a queue pair (`ibv_modify_qp`), and what may be posted in them.

use crate::abi::answer::{Event, Reply};
use crate::abi::attributes::{QueuePairAttributes, QueuePairState};
use crate::abi::message::Request;
use crate::channel::{deadline, in_time};
use crate::session::unexpected;
use crate::{Error, QueuePair};
use std::sync::OnceLock;
use std::time::Duration;

impl QueuePair {
    /// Takes the queue pair to another state, or changes attributes in INIT, RTS or SQD
    /// (`ibv_modify_qp`). `docs/transport.md` has the table of what each change takes. RTR and the
    /// first RTS are for queue pairs without connection management, whose peers are plain ones.
    ///
    /// RESET is possible from every state. What was posted never completes, a connection is closed,
    /// and what was chosen (address, partition, service, options) is forgotten. From there INIT
    /// begins anew, also for a queue pair that was connected: it may connect again.
    /// Completions of before stay in the completion queue.
    ///
    /// # Errors
    /// The daemon names the attribute or the change that it refuses.
    pub fn modify(
        &mut self,
        next: QueuePairState,
        attributes: &QueuePairAttributes,
    ) -> Result<(), Error> {
        let request = Request::ModifyQueuePair {
            qp: self.handle,
            next,
            attributes: *attributes,
        };
        self.context.channel.call(&request, None)?;
        match next {
            QueuePairState::Reset => self.begin_anew(),
            QueuePairState::Init => self.stage.init(),
            _ => self.begin_sends(),
        }
        Ok(())
    }

    /// The daemon has forgotten all that was posted and happened.
    fn begin_anew(&mut self) {
        self.stage.reset();
        self.sends.forget();
        self.receives.forget();
        self.ended = OnceLock::new();
        self.forget_events();
    }

    /// The state and the attributes as they stand (`ibv_query_qp`).
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn query(&self) -> Result<(QueuePairState, QueuePairAttributes), Error> {
        let request = Request::QueryQueuePair { qp: self.handle };
        match self.context.channel.call(&request, None)? {
            (Reply::QueuePairState { state, attributes }, _) => Ok((state, attributes)),
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    /// Waits until all that had begun before SQD is acknowledged (`IBV_EVENT_SQ_DRAINED`), if
    /// `notify_drained` asked for it. True once; false when the time is over.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn wait_drained(&self, timeout: Duration) -> Result<bool, Error> {
        let drained = |event: &Event| self.drained(event);
        let channel = &self.context.channel;
        in_time(channel.wait_event(deadline(timeout), drained))
    }

    /// Whether an event says that the send queue is drained.
    pub(crate) fn drained(&self, event: &Event) -> Option<()> {
        (*event == Event::SendQueueDrained { qp: self.handle }).then_some(())
    }

    /// Forgets events that were not asked for yet.
    pub(crate) fn forget_events(&self) {
        let ours = Some(self.handle);
        let concerns = |event: &Event| event.queue_pair() == ours;
        self.context.channel.forget_events(concerns);
    }

    /// Sends may be posted from now on.
    pub(crate) fn begin_sends(&self) {
        self.stage.begin();
    }

    /// Whether sends may be posted: once a connection was asked for.
    pub(crate) fn may_send(&self) -> Result<(), Error> {
        self.stage.may_send()
    }

    /// Whether receives may be posted here.
    pub(crate) fn may_receive(&self) -> Result<(), Error> {
        if self.shares() {
            return Err(Error::SharedReceives);
        }
        self.stage.may_receive()
    }
}
