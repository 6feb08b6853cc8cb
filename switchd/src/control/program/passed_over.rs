//! Follows which routes are passed over.

use super::idle_links::{IdleLinks, Ipv6Links};
use super::{Program, Work};
use common::netlink::{Hop, Mirror};
use std::collections::BTreeSet;

impl Program {
    /// What `net.ipv6.conf` says of interfaces, from the next update on.
    pub fn set_ipv6_links(&mut self, ipv6: Ipv6Links) {
        if self.ipv6_links != ipv6 {
            self.ipv6_links = ipv6;
            self.pending.ports = true;
        }
    }

    /// Finds out whose routes are not used now, and notes the prefixes for which that is news.
    pub(super) fn refresh_idle_links(&mut self, mirror: &Mirror, work: &mut Work) {
        let now = IdleLinks::of(mirror, &self.ipv6_links);
        if now == *self.prefixes.idle_links() {
            return;
        }
        let before = self.prefixes.set_idle_links(now.clone());
        let changed = |is_v6| -> BTreeSet<u32> {
            let (before, now) = (before.of_family(is_v6), now.of_family(is_v6));
            before.symmetric_difference(now).copied().collect()
        };
        let (v4, v6) = (changed(false), changed(true));
        for (key, _) in mirror.routes() {
            let links = if key.prefix.addr().is_ipv6() {
                &v6
            } else {
                &v4
            };
            let concerns = |hop: &Hop| links.contains(&hop.ifindex);
            let mut all = mirror.routes_of(key);
            if links.is_empty() || !all.any(|route| route.hops.iter().any(concerns)) {
                continue;
            }
            work.prefixes.insert(key.prefix);
            if self.prefixes.update_connected(mirror, key.prefix) {
                work.covering.push(key.prefix);
            }
        }
    }
}
