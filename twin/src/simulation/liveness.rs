//! Whether connections make progress, and which faults excuse those that do not.

use super::state::{Connection, Simulation};
use crate::app::ConnectionId;
use crate::audit;
use crate::check::{Check, Failure};
use crate::fault::Trouble;
use crate::paths::Paths;
use common::time::Span;
use std::cell::LazyCell;

/// A connection that has something to send, and no trouble in the fabric to blame, makes progress
/// within this time and some retransmission time-outs.
const PROGRESS_LIMIT: Span = Span::from_millis(500);

/// How many of them: what was sent into trouble may be sent there again before another path is
/// tried.
const TIMEOUTS: u64 = 16;

/// A connection gives its peer up after the seven retries of the applications' attribute `timeout`,
/// about a second each …
const GIVE_UP: Span = Span::from_secs(10);

/// … or after so many initial time-outs of the engine, each time-out twice as long as the last.
const GIVE_UP_TIMEOUTS: u64 = 1 << 8;

impl<const BYTES: bool> Simulation<BYTES> {
    /// Whether every connection that can make progress does.
    ///
    /// # Errors
    /// The first connection that does not.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        let now = self.fabric.now();
        let limit = PROGRESS_LIMIT + self.scenario.host.rto_initial.times(TIMEOUTS);
        let mut stuck = None;
        for number in 0..self.connections.len() {
            let connection = &self.connections[number];
            let bytes = connection.ledger.borrow().bytes;
            let waits = !connection.under_way.is_empty() && bytes == connection.seen.0;
            let excused = waits && self.may_stand_still(number);
            let connection = &mut self.connections[number];
            if !waits || excused {
                connection.seen = (bytes, now);
            } else if now.since(connection.seen.1) > limit {
                stuck = stuck.or(Some(number));
            }
        }
        match stuck {
            None => Ok(()),
            Some(number) => {
                audit::audit(self)?;
                Err(self.stuck(number))
            }
        }
    }

    fn stuck(&self, number: ConnectionId) -> Failure {
        let connection = &self.connections[number];
        let (from, to) = (connection.from, connection.to);
        let names = [from, to].map(|node| &self.fabric.plan.nodes[node.index()].name);
        let bytes = connection.ledger.borrow().bytes;
        let what = format!(
            "the connection from {} to {} stands still after {bytes} bytes",
            names[0], names[1]
        );
        self.failed(Check::Liveness, &[from, to], what)
    }

    pub(super) fn out_of_time(&self) -> Failure {
        if self.began.is_none() {
            let down = |one: &&Connection| one.up < 2;
            let count = self.connections.iter().filter(down).count();
            let first = self.connections.iter().find(down);
            let nodes = first.map_or(Vec::new(), |first| vec![first.from, first.to]);
            let what = format!("{count} connections do not come up");
            return self.failed(Check::Service, &nodes, what);
        }
        let waiting = self
            .connections
            .iter()
            .find(|one| !one.under_way.is_empty());
        let nodes = waiting.map_or(Vec::new(), |one| vec![one.from, one.to]);
        let what = format!(
            "{} flows and members of jobs are not over after {} (duration)",
            self.open, self.scenario.duration
        );
        self.failed(Check::Liveness, &nodes, what)
    }

    /// Whether a trouble cuts a path of this connection now.
    fn may_stand_still(&self, number: ConnectionId) -> bool {
        let troubles = self.troubles.iter().zip(&self.active);
        self.is_cut(
            number,
            troubles.filter_map(|(one, active)| active.then_some(one)),
        )
    }

    /// Whether a connection may end now: a trouble that cuts a path of it has begun, and has not
    /// ended for longer than it takes to give a peer up.
    pub(super) fn may_end(&self, number: ConnectionId) -> bool {
        let Some(began) = self.began else {
            return false;
        };
        let since = self.fabric.now().since(began);
        let give_up = GIVE_UP + self.scenario.host.rto_initial.times(GIVE_UP_TIMEOUTS);
        let recent = |trouble: &&Trouble| since >= trouble.from && since <= trouble.until + give_up;
        self.is_cut(number, self.troubles.iter().filter(recent))
    }

    fn is_cut<'a>(
        &self,
        number: ConnectionId,
        mut troubles: impl Iterator<Item = &'a Trouble>,
    ) -> bool {
        let Connection { from, to, .. } = self.connections[number];
        let paths = LazyCell::new(|| Paths::between(&self.fabric.plan, from, to));
        troubles.any(|trouble| paths.may_be_cut_by(&trouble.fault))
    }
}
