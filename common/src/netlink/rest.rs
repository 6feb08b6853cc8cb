//! What tells routes of one key apart in the kernel, and changes nothing here. Without it two of
//! them would be taken for one, and when one goes nobody would know that the other is left.

use super::attribute::Attribute;
use std::hash::{DefaultHasher, Hash, Hasher};

/// [`Route::rest`], as far as it is read: a sum, for the order of hops means nothing.
#[derive(Default)]
pub(super) struct Rest(u32);

/// RTNH_F_ONLINK among the flags of a route or a hop: the gateway is taken to be on the link.
pub(super) fn on_link(flags: u8) -> u8 {
    flags & 4
}

impl Rest {
    /// The sum.
    pub(super) fn number(&self) -> u32 {
        self.0
    }

    /// Adds what tells the hops of a route apart.
    pub(super) fn join(&mut self, other: &Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// Adds what tells a route apart, or its hop by this interface, if there is something.
    pub(super) fn add(&mut self, ifindex: u32, bytes: &[u8]) {
        if bytes.iter().all(|byte| *byte == 0) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        (ifindex, bytes).hash(&mut hasher);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a part of a hash is one, too"
        )]
        let hash = hasher.finish() as u32;
        self.0 = self.0.wrapping_add(hash);
    }

    /// Adds what an attribute says, if that is not read otherwise: RTA_METRICS, RTA_FLOW,
    /// RTA_ENCAP.
    pub(super) fn add_attribute(&mut self, ifindex: u32, attribute: &Attribute<'_>) {
        if matches!(attribute.kind, 8 | 11 | 22) {
            let kind = attribute.kind.to_ne_bytes();
            self.add(ifindex, &[&kind, attribute.value].concat());
        }
    }
}
