//! All of flow analysis together, as control keeps it.

use super::book::Book;
use super::exporter::Exporter;
use super::ipfix::Here;
use common::time::{Span, Time};

/// How often the workers' slots are read.
const INTERVAL: Span = Span::from_millis(500);

/// How often control looks whether there is something to do, if no records wait.
const LOOK: Span = Span::from_millis(100);

/// Flow analysis as control has it.
#[derive(Debug)]
pub(in crate::control) struct Analysis {
    /// The flows.
    pub(in crate::control) book: Book,
    /// The way to a collector, if there is one.
    pub(in crate::control) exporter: Option<Exporter>,
    /// When the slots are to be read.
    due: Time,
}

impl Analysis {
    /// One that has seen nothing yet.
    pub(super) fn new(book: Book, exporter: Option<Exporter>) -> Self {
        Self {
            book,
            exporter,
            due: Time::ZERO,
        }
    }

    /// Reads what the workers saw, and ends flows that are over, if it is time to. Whether it was,
    /// and whether the workers have something to do then.
    pub(super) fn read(&mut self, now: Time) -> Option<bool> {
        if now < self.due {
            return None;
        }
        self.due = now + INTERVAL;
        Some(self.book.read(now))
    }

    /// Sends some of the records that there are.
    pub(super) fn export(&mut self, here: Here<'_>) {
        if let Some(exporter) = &mut self.exporter {
            exporter.take(&self.book.take_records(), here);
            exporter.send(here.now, here.millis);
        }
    }

    /// When there may be something to do again.
    pub(super) fn next(&self, now: Time) -> Time {
        let exporter = self.exporter.as_ref();
        let sends = exporter.and_then(|exporter| exporter.next(now));
        sends.unwrap_or(now + LOOK)
    }
}
