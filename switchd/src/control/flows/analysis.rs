//! All of flow analysis together, as control keeps it.

use super::book::Book;
use super::exporter::Exporter;
use common::time::Time;

/// Flow analysis as control has it.
#[derive(Debug)]
pub(in crate::control) struct Analysis {
    /// The flows.
    pub(in crate::control) book: Book,
    /// The way to a collector, if there is one.
    pub(in crate::control) exporter: Option<Exporter>,
    /// When the slots are to be read.
    pub(super) due: Time,
}
