//! Flows that get congestion notifications.

use crate::control::api::IqcnRow;
use crate::control::iqcn::Row;
use crate::control::state::State;
use common::time::{Span, Time};

impl State {
    /// The directions in which notifications have passed, those first for which most were made.
    ///
    /// # Errors
    /// The switch makes none.
    pub(in crate::control) fn iqcn_rows(
        &self,
        limit: usize,
        now: Time,
    ) -> Result<Vec<IqcnRow>, String> {
        let Some(keeper) = &self.iqcn else {
            return Err("no notifications are made: see [iqcn] in the configuration".to_owned());
        };
        let rows = keeper.rows().into_iter().take(limit);
        Ok(rows.map(|it| row(&it, now)).collect())
    }
}

fn row(Row { key, sender, times }: &Row, now: Time) -> IqcnRow {
    let since = |at: Time| (at != Time::ZERO).then(|| now.since(at).as_secs_f64());
    IqcnRow {
        sender: key.source().to_string(),
        sender_qp: *sender,
        receiver: key.destination().to_string(),
        receiver_qp: key.qp(),
        passed: times.passed,
        made: times.made,
        interval_nanoseconds: (times.interval != Span::ZERO).then(|| times.interval.nanos()),
        passed_seconds: now.since(times.passed_at).as_secs_f64(),
        made_seconds: since(times.made_at),
        congested_seconds: since(times.congested_at),
    }
}
