//! Flows: their beginning, their end, and the flows that follow from either.

use super::state::{Simulation, UnderWay};
use crate::app::{ConnectionId, Side};
use crate::check::{Check, Failure};
use crate::flow::{FlowId, Progress, TriggerId};

impl<const BYTES: bool> Simulation<BYTES> {
    pub(super) fn start(&mut self, flow: FlowId) {
        let number = self.connection_of[flow];
        if self.connections[number].over {
            self.abort(flow);
            return;
        }
        self.progress[flow].started = Some(self.fabric.now());
        let bytes = self.workload.flows[flow].bytes;
        let message = self.scenario.message;
        let connection = &mut self.connections[number];
        let first = connection.messages;
        connection.messages += bytes.div_ceil(u64::from(message));
        connection.under_way.push_back(UnderWay {
            flow,
            messages: first..connection.messages,
            left: connection.messages - first,
        });
        if connection.under_way.len() == 1 {
            connection.seen.1 = self.fabric.now();
        }
        let from = connection.from;
        if let Some(app) = self.fabric.host(from).app() {
            if self.scenario.describes {
                app.describe(number, bytes);
            }
            app.send(number, flow, bytes, message, self.scenario.verb);
        }
        self.fabric.rouse(from);
    }

    pub(super) fn pull(&mut self, trigger: Option<TriggerId>) {
        let Some(trigger) = trigger else { return };
        self.starting.extend(self.triggers[trigger].pull());
        // A flow that is aborted as it starts pulls triggers in its turn: a long chain must not
        // take a long stack.
        if !std::mem::replace(&mut self.is_starting, true) {
            while let Some(flow) = self.starting.pop_front() {
                self.start(flow);
            }
            self.is_starting = false;
        }
    }

    /// A flow may be over.
    pub(super) fn close(&mut self, flow: FlowId) {
        let progress = &self.progress[flow];
        if !progress.aborted && progress.sent.is_some() && progress.received.is_some() {
            self.open -= 1;
        }
    }

    fn abort(&mut self, flow: FlowId) {
        let progress = &mut self.progress[flow];
        if !progress.is_over() {
            progress.aborted = true;
            self.open -= 1;
            // Others do not wait for ever for what will not be.
            let Progress { sent, received, .. } = *progress;
            let planned = self.workload.flows[flow];
            if sent.is_none() {
                self.pull(planned.when_sent);
            }
            if received.is_none() {
                self.pull(planned.when_received);
            }
        }
    }

    pub(super) fn ended(
        &mut self,
        number: ConnectionId,
        side: Side,
        why: &str,
    ) -> Result<(), Failure> {
        let connection = &self.connections[number];
        if connection.over {
            return Ok(());
        }
        let (from, to) = (connection.from, connection.to);
        let begun = self.began.is_some();
        if !begun || !self.may_end(number) {
            let check = if begun {
                Check::Liveness
            } else {
                Check::Service
            };
            let what = format!("connection {number} ended at its {side:?}: {why}");
            return Err(self.failed(check, &[from, to], what));
        }
        self.give_up(number);
        Ok(())
    }

    /// A connection is of no use any more.
    pub(super) fn give_up(&mut self, number: ConnectionId) {
        let connection = &mut self.connections[number];
        connection.over = true;
        connection.under_way.clear();
        let flows: Vec<FlowId> = (0..self.workload.flows.len())
            .filter(|flow| self.connection_of[*flow] == number)
            .filter(|flow| self.progress[*flow].started.is_some())
            .collect();
        flows.into_iter().for_each(|flow| self.abort(flow));
    }
}
