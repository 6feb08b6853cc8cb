//! The routes of all packets of a batch.

use super::Batch;
use crate::forward::fib::Fib;

impl Batch {
    /// Looks all destinations up together.
    pub fn look_up(&mut self, fib: &Fib) {
        self.groups.clear();
        self.groups.resize(self.lanes.len(), None);
        fib.lookup_v4_batch(&self.v4.addresses, &mut self.v4.found);
        fib.lookup_v6_batch(&self.v6.addresses, &mut self.v6.found);
        self.v4.spread(&mut self.groups);
        self.v6.spread(&mut self.groups);
    }
}
