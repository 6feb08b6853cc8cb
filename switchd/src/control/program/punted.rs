//! Which prefixes are not all forwarded by the workers, for the steering programs: those whose
//! packets are the kernel's, and those inside of them that are not.
//!
//! ```text
//!   prefix                  verdict      told to the steering programs
//!   10.0.0.0/8 by tun0      punted       10.0.0.0/8   punt
//!   10.1.0.0/16 by a port   forwarded    10.1.0.0/16  forward: a shorter one says otherwise
//!   11.0.0.0/8 by a port    forwarded    nothing: what nobody tells of is forwarded
//! ```
//!
//! Inside a prefix that is local nothing is forwarded: whether the kernel asks the table `local`
//! first, or both tables for the longest prefix, depends on its version and on its rules.

use common::xdp::Verdict;
use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap, HashSet};

/// A prefix, and what the steering programs are to be told of it; `None`: nothing any more.
pub(crate) type VerdictChange = (IpNet, Option<Verdict>);

/// What the steering programs are told.
#[derive(Debug, Default)]
pub(super) struct Punted {
    /// Prefixes whose packets are the kernel's.
    kept: HashMap<IpNet, Verdict>,
    /// Prefixes inside of those that are forwarded.
    inside: HashSet<IpNet>,
    /// Lengths of `kept`, of both families.
    lens: BTreeSet<(bool, u8)>,
}

impl Punted {
    /// Prefixes whose packets are the kernel's, in no order.
    pub(super) fn kept(&self) -> impl Iterator<Item = (IpNet, Verdict)> {
        self.kept
            .iter()
            .map(|(prefix, verdict)| (*prefix, *verdict))
    }

    /// Whether there are any of IPv4, and of IPv6.
    pub(super) fn families(&self) -> (bool, bool) {
        let has = |is_v6| self.lens.range((is_v6, 0)..=(is_v6, 128)).next().is_some();
        (has(false), has(true))
    }

    /// Follows changes of the prefixes `changed`. `verdict` says what a prefix is now: `None` if it
    /// leads nowhere. `all` are all prefixes that lead somewhere. Returns what is to be told, in an
    /// order in which no packet goes wrong that went right before and after.
    pub(super) fn refresh(
        &mut self,
        changed: &HashSet<IpNet>,
        verdict: impl Fn(&IpNet) -> Option<Verdict>,
        all: impl Iterator<Item = IpNet>,
    ) -> Vec<VerdictChange> {
        // The last word on each prefix. Found by prefix, as a full table may be told of at once.
        let mut told = HashMap::new();
        let mut moved = HashSet::new();
        for prefix in changed {
            match verdict(prefix).filter(|verdict| *verdict != Verdict::Forward) {
                Some(verdict) => {
                    let before = self.kept.insert(*prefix, verdict);
                    self.inside.remove(prefix);
                    if before != Some(verdict) {
                        told.insert(*prefix, Some(verdict));
                        moved.insert(*prefix);
                    }
                }
                None => {
                    if self.kept.remove(prefix).is_some() {
                        told.insert(*prefix, None);
                        moved.insert(*prefix);
                    }
                }
            }
        }
        if !moved.is_empty() {
            let len = |prefix: &IpNet| (prefix.addr().is_ipv6(), prefix.prefix_len());
            self.lens = self.kept.keys().map(len).collect();
        }
        if self.kept.is_empty() && self.inside.is_empty() && moved.is_empty() {
            return Vec::new();
        }
        let mut affected = changed.clone();
        if !moved.is_empty() {
            let lens: BTreeSet<u8> = moved.iter().map(IpNet::prefix_len).collect();
            affected.extend(all.filter(|prefix| {
                shorter(prefix, lens.iter().copied()).any(|network| moved.contains(&network))
            }));
        }
        for prefix in affected {
            let is_exception =
                verdict(&prefix) == Some(Verdict::Forward) && self.is_inside_punted(&prefix);
            if is_exception && self.inside.insert(prefix) {
                told.insert(prefix, Some(Verdict::Forward));
            } else if !is_exception && self.inside.remove(&prefix) {
                told.insert(prefix, None);
            }
        }
        // What is forwarded inside of something else is told of before that, and forgotten after.
        let mut told: Vec<VerdictChange> = told.into_iter().collect();
        told.sort_unstable_by_key(|(prefix, verdict)| {
            let step = match verdict {
                Some(Verdict::Forward) => 0,
                Some(_) => 1,
                None => 2,
            };
            (step, prefix.prefix_len(), *prefix)
        });
        told
    }

    /// Whether a shorter prefix is punted, and none is local.
    fn is_inside_punted(&self, prefix: &IpNet) -> bool {
        let is_v6 = prefix.addr().is_ipv6();
        let lens = self.lens.range((is_v6, 0)..(is_v6, prefix.prefix_len()));
        let mut found = false;
        for network in shorter(prefix, lens.map(|(_, len)| *len)) {
            match self.kept.get(&network) {
                Some(Verdict::Local) => return false,
                Some(_) => found = true,
                None => {}
            }
        }
        found
    }
}

/// The networks of these lengths, shorter than that of `prefix`, that contain it.
fn shorter(prefix: &IpNet, lens: impl Iterator<Item = u8>) -> impl Iterator<Item = IpNet> {
    let (address, own) = (prefix.addr(), prefix.prefix_len());
    lens.filter(move |len| *len < own)
        .filter_map(move |len| IpNet::new(address, len).ok())
        .map(|network| network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::xdp::PuntReason;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const PUNT: Verdict = Verdict::Punt(PuntReason::NotAPort);

    /// Prefixes of few bits, so that many are inside others.
    fn any_prefix() -> impl Strategy<Value = IpNet> {
        (0_u32..16, 0_u8..=4).prop_map(|(bits, len)| {
            let address = Ipv4Addr::from(bits << 28);
            IpNet::new(address.into(), len).unwrap().trunc()
        })
    }

    fn any_verdict() -> impl Strategy<Value = Option<Verdict>> {
        prop_oneof![
            Just(None),
            Just(Some(Verdict::Forward)),
            Just(Some(Verdict::Local)),
            Just(Some(PUNT)),
        ]
    }

    fn longest(table: &HashMap<IpNet, Verdict>, address: Ipv4Addr) -> Option<&Verdict> {
        let all = table
            .iter()
            .filter(|(it, _)| it.contains(&IpNet::from(std::net::IpAddr::from(address))));
        all.max_by_key(|(it, _)| it.prefix_len())
            .map(|(_, verdict)| verdict)
    }

    proptest! {
        /// SW-1: what the programs are told means what the routes mean, for every destination and
        /// after every change, and nothing is told that means nothing.
        #[test]
        fn what_is_told_means_what_the_routes_mean(
            steps in proptest::collection::vec(
                proptest::collection::vec((any_prefix(), any_verdict()), 1..4), 1..30),
        ) {
            let mut punted = Punted::default();
            let (mut routes, mut told) = (HashMap::new(), HashMap::new());
            for step in steps {
                let mut changed = HashSet::new();
                for (prefix, verdict) in step {
                    match verdict {
                        Some(verdict) => routes.insert(prefix, verdict),
                        None => routes.remove(&prefix),
                    };
                    changed.insert(prefix);
                }
                let verdict = |prefix: &IpNet| routes.get(prefix).copied();
                for (prefix, verdict) in punted.refresh(&changed, verdict, routes.keys().copied()) {
                    match verdict {
                        Some(verdict) => told.insert(prefix, verdict),
                        None => told.remove(&prefix),
                    };
                }
                for bits in 0..16 {
                    let address = Ipv4Addr::from(bits << 28 | 1);
                    let in_local = routes.iter().any(|(prefix, verdict)| {
                        *verdict == Verdict::Local && prefix.contains(&std::net::IpAddr::from(address))
                    });
                    let means = *longest(&told, address).unwrap_or(&Verdict::Forward);
                    let wanted = *longest(&routes, address).unwrap_or(&Verdict::Forward);
                    if in_local {
                        prop_assert_ne!(means, Verdict::Forward);
                    } else {
                        prop_assert_eq!(means, wanted);
                    }
                }
                let any = routes.values().any(|verdict| *verdict != Verdict::Forward);
                prop_assert!(any || told.is_empty(), "{:?}", told);
                prop_assert_eq!(punted.families(), (any, false));
            }
        }
    }
}
