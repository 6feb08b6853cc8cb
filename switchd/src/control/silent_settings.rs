//! Settings of the kernel of which it tells in no message: they are read from its files.

use super::program::{AcceptOwn, Ipv6Links};
use crate::tables::errors::{ErrorRules, PeerRules, TTL};
use common::time::Span;
use std::path::Path;

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentSettings {
    /// `net.ipv4.conf.*.accept_local`.
    pub accept_own: AcceptOwn,
    /// `net.ipv6.conf.*.disable_ipv6`, `ignore_routes_with_linkdown`, `hop_limit` and
    /// `mtu`.
    pub ipv6: Ipv6Links,
    /// `net.ipv4.icmp_*` and `net.ipv6.icmp.*`.
    pub errors: ErrorRules,
}

/// Messages in a row, and a second, that Linux sends in all where it does not say otherwise.
const BURST: u64 = 50;
const PER_SECOND: u64 = 1000;

impl SilentSettings {
    /// Reads those of this namespace, of these interfaces by number, name and MTU, and for so many
    /// workers that share what the machine may send.
    pub fn read(links: impl Iterator<Item = (u32, String, u32)>, workers: usize) -> Self {
        Self::read_from(Path::new("/proc/sys/net"), links, workers)
    }

    fn read_from(
        folder: &Path,
        links: impl Iterator<Item = (u32, String, u32)>,
        workers: usize,
    ) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let is_set = |name: &str| number(name).map(|number| number != 0);
        let mut accept_own = AcceptOwn {
            all: is_set("ipv4/conf/all/accept_local").unwrap_or(false),
            ..AcceptOwn::default()
        };
        let mut ipv6 = Ipv6Links::default();
        for (ifindex, name, link_mtu) in links {
            let accepts = is_set(&format!("ipv4/conf/{name}/accept_local"));
            accept_own.of.extend(accepts.map(|it| (ifindex, it)));
            // What is set for all interfaces the kernel sets for each of them.
            let of_it = |setting| is_set(&format!("ipv6/conf/{name}/{setting}")) == Some(true);
            if of_it("disable_ipv6") {
                ipv6.disabled.insert(ifindex);
            }
            let hop_limit = number(&format!("ipv6/conf/{name}/hop_limit"));
            if let Some(hop_limit) = hop_limit.and_then(|it| u8::try_from(it).ok()) {
                ipv6.hop_limits.insert(ifindex, hop_limit);
            }
            let mtu = number(&format!("ipv6/conf/{name}/mtu"));
            if let Some(mtu) = mtu.and_then(|it| u16::try_from(it).ok())
                && u32::from(mtu) < link_mtu
            {
                ipv6.mtus.insert(ifindex, (link_mtu, mtu));
            }
            if of_it("ignore_routes_with_linkdown") {
                ipv6.ignore_linkdown.insert(ifindex);
            }
        }
        let workers = u64::try_from(workers).unwrap_or(1).max(1);
        let per_second = number("ipv4/icmp_msgs_per_sec").unwrap_or(PER_SECOND);
        let burst = number("ipv4/icmp_msgs_burst").unwrap_or(BURST) / workers;
        let interval = |name: &str| Span::from_millis(number(name).unwrap_or(PER_SECOND));
        let types = text("ipv6/icmp/ratemask").map_or(1 << 1 | 1 << 3, |it| types_in(&it));
        let errors = ErrorRules {
            interval: Span::from_nanos(1_000_000_000 * workers / per_second.max(1)),
            burst: u32::try_from(burst).unwrap_or(u32::MAX).max(1),
            v4: PeerRules {
                interval: interval("ipv4/icmp_ratelimit"),
                types: number("ipv4/icmp_ratemask").unwrap_or(1 << 3 | 1 << 4 | 1 << 11 | 1 << 12),
            },
            v6: PeerRules {
                interval: interval("ipv6/icmp/ratelimit"),
                types,
            },
            ttl: number("ipv4/ip_default_ttl")
                .and_then(|it| u8::try_from(it).ok())
                .unwrap_or(TTL),
            are_inbound: is_set("ipv4/icmp_errors_use_inbound_ifaddr").unwrap_or(false),
        };
        Self {
            accept_own,
            ipv6,
            errors,
        }
    }
}

/// The types below 64 in a list like "0-1,3-127".
fn types_in(list: &str) -> u64 {
    let bits = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        Some((first..=last.min(63)).fold(0, |bits, number| bits | 1 << number))
    };
    let parts = list.trim().split(',').filter_map(bits);
    parts.fold(0, |all, bits: u64| all | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-1: the kernel's files, and what Linux does without them.
    #[test]
    fn settings_are_read_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let links = || [(3, "swp1".to_owned(), 1500), (4, "gone".to_owned(), 1500)].into_iter();
        let read = |workers| SilentSettings::read_from(folder.path(), links(), workers);
        let errors = read(1).errors;
        assert_eq!(errors.interval, Span::from_millis(1));
        assert_eq!((errors.burst, errors.v4.types), (50, 6168));
        assert_eq!(errors.v4.interval, Span::from_secs(1));
        assert_eq!(errors.v6.interval, Span::from_secs(1));
        assert_eq!(read(1).accept_own, AcceptOwn::default());
        for (name, text) in [
            ("ipv4/conf/all/accept_local", "0\n"),
            ("ipv4/conf/swp1/accept_local", "1\n"),
            ("ipv6/conf/swp1/disable_ipv6", "1\n"),
            ("ipv6/conf/swp1/hop_limit", "99\n"),
            ("ipv6/conf/swp1/mtu", "1400\n"),
            ("ipv4/ip_default_ttl", "77\n"),
            ("ipv6/conf/swp1/ignore_routes_with_linkdown", "0\n"),
            ("ipv4/icmp_msgs_per_sec", "500\n"),
            ("ipv4/icmp_msgs_burst", "3\n"),
            ("ipv4/icmp_ratelimit", "0\n"),
            ("ipv4/icmp_ratemask", "2048\n"),
            ("ipv6/icmp/ratemask", "1,3-4,60-127\n"),
            ("ipv4/icmp_errors_use_inbound_ifaddr", "1\n"),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let SilentSettings {
            accept_own,
            ipv6,
            errors,
        } = read(4);
        assert_eq!(accept_own.of, [(3, true)].into());
        assert_eq!(ipv6.disabled, [3].into());
        assert_eq!(ipv6.ignore_linkdown, [].into());
        assert_eq!((&ipv6.hop_limits, errors.ttl), (&[(3, 99)].into(), 77));
        assert_eq!(ipv6.mtus, [(3, (1500, 1400))].into());
        assert_eq!((errors.interval, errors.burst), (Span::from_millis(8), 1));
        assert_eq!((errors.v4.interval, errors.v4.types), (Span::ZERO, 1 << 11));
        assert_eq!(errors.v6.types, 0b11010 | 0b1111 << 60);
        assert!(errors.are_inbound);
    }
}
