//! Whether a session's bells are listened to.
//!
//! A bell costs the application nothing and the worker a turn. A session that rings without end and
//! posts nothing, or nothing that can be taken, would keep the worker awake, and so from being
//! scheduled at once when others need it. Its bells are left unheard for a while, which becomes
//! longer as long as nothing comes of them. What it has in its rings is served meanwhile as soon as
//! there is room for it, and anything that is taken ends the silence.

use crate::doorbell::Doorbell;
use common::time::{Span, Time};
use std::sync::Arc;

/// Bells in a row of which nothing may come. Some are lawful: for what was taken before the bell
/// was seen, and for what has to wait.
const PATIENCE: u32 = 32;

/// The first silence, and the longest one.
const FIRST: Span = Span::from_micros(100);
const LONGEST: Span = Span::from_millis(10);

/// How far a session's bells are believed.
#[derive(Debug)]
pub(super) struct Hearing {
    /// What wakes the worker, unless the application runs in this process.
    bell: Option<Arc<Doorbell>>,
    /// It woke the worker since it was served last.
    pub(super) rang: bool,
    /// Bells that may come to nothing from now on.
    patience: u32,
    silence: Span,
    deaf_until: Option<Time>,
}

impl Hearing {
    pub(super) fn new(bell: Option<Arc<Doorbell>>) -> Self {
        Self {
            bell,
            rang: false,
            patience: PATIENCE,
            silence: FIRST,
            deaf_until: None,
        }
    }

    /// Whether the application can wake the worker.
    pub(super) fn can_wake(&self) -> bool {
        self.bell.is_some()
    }

    /// Whether bells are listened to.
    pub(super) fn is_open(&self) -> bool {
        self.deaf_until.is_none()
    }

    /// Until when they are not; never, if they are.
    pub(super) fn deaf_until(&self) -> Time {
        self.deaf_until.unwrap_or(Time::NEVER)
    }

    /// Listens again if it is time.
    pub(super) fn look_at(&mut self, now: Time) {
        if self.deaf_until.is_some_and(|end| end <= now) {
            self.listen();
            self.patience = 1;
        }
    }

    /// Something came of its bells, or of what waited.
    pub(super) fn useful(&mut self) {
        self.patience = PATIENCE;
        self.silence = FIRST;
        if !self.is_open() {
            self.listen();
        }
    }

    /// It rang for nothing. Whether that was once too often: then nothing is heard for a while.
    pub(super) fn futile(&mut self, now: Time) -> bool {
        self.patience = self.patience.saturating_sub(1);
        if self.patience > 0 || !self.is_open() {
            return false;
        }
        // At the end of a whole number of silences, so that those of many sessions end together.
        let grid = self.silence.nanos();
        let end = (now.nanos() / grid).saturating_add(2).saturating_mul(grid);
        self.deaf_until = Some(Time::from_nanos(end));
        self.silence = self.silence.times(2).min(LONGEST);
        if let Some(bell) = &self.bell {
            bell.silence();
        }
        true
    }

    fn listen(&mut self) {
        self.deaf_until = None;
        if let Some(bell) = &self.bell {
            bell.listen();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-3: silences double as long as nothing comes of bells, and end when something does.
    #[test]
    fn silences_grow_and_end() {
        let mut hearing = Hearing::new(None);
        let mut now = Time::from_nanos(1_000_000_007);
        for _ in 1..PATIENCE {
            assert!(!hearing.futile(now) && hearing.is_open());
        }
        let mut last = Span::ZERO;
        for _ in 0..10 {
            assert!(hearing.futile(now));
            assert!(!hearing.is_open());
            let end = hearing.deaf_until();
            let silence = end.since(now);
            assert!(silence >= last.min(LONGEST) && silence <= LONGEST.times(2));
            last = silence;
            hearing.look_at(Time::from_nanos(end.nanos() - 1));
            assert!(!hearing.is_open());
            hearing.look_at(end);
            assert!(hearing.is_open());
            now = end;
        }
        assert!(last >= LONGEST);
        assert!(hearing.futile(now) && !hearing.is_open());
        hearing.useful();
        assert!(hearing.is_open() && !hearing.futile(now));
    }
}
