//! How long the ports of a queue pair were paused, all at the same time, whichever those are.

use crate::pauses::Standstill;
use crate::verbs::PortSet;
use common::time::Span;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Stillness {
    ports: PortSet,
    /// What the other ports added up to that the queue pair had before …
    before: Span,
    /// … and these had, before it had them.
    from: Span,
}

impl Stillness {
    /// For how long `ports`, which are those of the queue pair now, and those that it had before
    /// kept it from sending.
    pub(super) fn total(&mut self, ports: PortSet, all: &Standstill) -> Span {
        if ports != self.ports {
            self.before = self.so_far(all);
            self.from = all.of(ports);
            self.ports = ports;
        }
        self.so_far(all)
    }

    fn so_far(&self, all: &Standstill) -> Span {
        self.before + (all.of(self.ports) - self.from)
    }
}
