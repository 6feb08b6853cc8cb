//! A table of 100,000 routes, the same in each run: prefixes as long as those of the Internet are.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Routes of IPv4, and of IPv6.
pub(crate) const ROUTES: [usize; 2] = [80_000, 20_000];

/// All prefixes are inside of these.
pub(crate) const WITHIN: [&str; 2] = ["16.0.0.0/4", "3fff::/20"];

const SEED: u64 = 12;

/// The prefixes of IPv4, and of IPv6.
pub(crate) fn prefixes() -> [BTreeSet<IpNet>; 2] {
    println!("seed of the table: {SEED}");
    let mut random = Pcg64::seed_from_u64(SEED);
    let mut all = [BTreeSet::new(), BTreeSet::new()];
    for (set, (within, count)) in all.iter_mut().zip(WITHIN.into_iter().zip(ROUTES)) {
        let within: IpNet = within.parse().expect("a prefix");
        while set.len() < count {
            // Three of five are as long as a network may be announced, the rest shorter.
            let (longest, spread) = if within.addr().is_ipv4() {
                (24, 9)
            } else {
                (48, 17)
            };
            let shorter = random.next_u32() % (5 * spread / 2);
            let len = longest - u8::try_from(shorter % spread).expect("a few");
            let len = if shorter < spread { len } else { longest };
            set.insert(inside(&within, len, &mut random));
        }
    }
    all
}

/// A random prefix of this length inside of another.
fn inside(within: &IpNet, len: u8, random: &mut Pcg64) -> IpNet {
    match within {
        IpNet::V4(within) => {
            let bits = random.next_u32() >> within.prefix_len();
            let address = u32::from(within.network()) | bits;
            let prefix = Ipv4Net::new(address.into(), len).expect("a length of IPv4");
            prefix.trunc().into()
        }
        IpNet::V6(within) => {
            let bits = u128::from(random.next_u64()) << 64 >> within.prefix_len();
            let address = u128::from(within.network()) | bits;
            let prefix = Ipv6Net::new(address.into(), len).expect("a length of IPv6");
            prefix.trunc().into()
        }
    }
}

/// An address in each of `count` prefixes that are far from one another.
pub(crate) fn samples(prefixes: &[BTreeSet<IpNet>; 2], count: usize) -> Vec<IpAddr> {
    let mut random = Pcg64::seed_from_u64(SEED + 1);
    let total: usize = prefixes.iter().map(BTreeSet::len).sum();
    let all = prefixes.iter().flatten().step_by(total / count);
    let host = |prefix: &IpNet| inside(prefix, prefix.max_prefix_len(), &mut random).addr();
    all.map(host).collect()
}

/// The table as static routes of BIRD by the two hosts, in protocols `full4` and `full6` that wait
/// to be enabled.
pub(crate) fn for_bird(prefixes: &[BTreeSet<IpNet>; 2], hosts: [&str; 2]) -> String {
    let mut text = String::new();
    for (family, (set, host)) in [4, 6].into_iter().zip(prefixes.iter().zip(hosts)) {
        writeln!(
            text,
            "protocol static full{family} {{\n  disabled;\n  ipv{family};"
        )
        .expect("a string grows");
        for prefix in set {
            writeln!(text, "  route {prefix} via {host};").expect("a string grows");
        }
        text.push_str("}\n");
    }
    text
}
