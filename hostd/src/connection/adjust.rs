//! Attributes that change while a queue pair sends, and the draining of its send queue.

use super::{QueuePair, ack_timeout};
use crate::verbs::{Attributes, EngineConfig, State, Traffic};

impl QueuePair {
    /// Takes attributes over that were checked against the change of state.
    pub(crate) fn adjust(&mut self, given: &Attributes) {
        let all = &mut self.attributes;
        if let Some(access) = given.access {
            self.access = access;
            all.access = Some(access);
        }
        if let (Some(code), Some(peer)) = (given.min_rnr_timer, &mut self.peer) {
            peer.min_rnr_timer = code;
            all.min_rnr_timer = Some(code);
        }
        all.timeout = given.timeout.or(all.timeout);
        all.retry_count = given.retry_count.or(all.retry_count);
        all.rnr_retry = given.rnr_retry.or(all.rnr_retry);
        all.max_rd_atomic = given.max_rd_atomic.or(all.max_rd_atomic);
        let requester = &mut self.requester;
        let (Some(sends), Some(sender), Some(awaited)) = (
            all.ready_to_send(),
            &mut requester.sender,
            &mut requester.awaited,
        ) else {
            return;
        };
        let timeout = ack_timeout(sends.timeout);
        let rnr_retry = (sends.rnr_retry < 7).then_some(sends.rnr_retry);
        sender.set_patience(timeout, sends.retry_count, rnr_retry);
        let retries = u64::from(sends.retry_count) + 1;
        let give_up = timeout.map(|timeout| timeout.times(retries));
        awaited.set_patience(usize::from(sends.max_rd_atomic), give_up);
    }

    /// The attributes as they stand.
    pub(crate) fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// The application tells of its traffic (HT-46): packets that leave from now on have the class
    /// of its priority, tell their peer and the switches, and blocks take paths of their own.
    pub(crate) fn describe(&mut self, traffic: Traffic, config: &EngineConfig) {
        self.traffic = traffic;
        let Some(peer) = &mut self.peer else { return };
        peer.traffic = traffic;
        peer.steering.describe(&traffic, peer.path_mtu);
        peer.ways.set_class(config.class_of(traffic.priority));
    }

    /// No other message begins from now on; `tell`: the end of those that have begun is an event.
    pub(super) fn drain(&mut self, tell: bool) {
        self.requester.held = true;
        self.tell_drained |= tell;
    }

    /// Whether the application is to be told now that the send queue is drained.
    pub(crate) fn take_drained(&mut self) -> bool {
        if !self.tell_drained {
            return false;
        }
        let over = self.state == State::SendQueueDrained && self.requester.is_drained();
        // One that goes on, or fails, before it is drained says nothing.
        self.tell_drained = self.state == State::SendQueueDrained && !over;
        over
    }
}
