//! A synthetic table of the Internet.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Routes of the full IPv4 table, rounded up.
pub const FULL_V4: usize = 1_000_000;
/// Routes of the full IPv6 table, rounded up.
pub const FULL_V6: usize = 250_000;

/// Prefix lengths of the IPv4 table, in thousandths, as BGP collectors saw it in 2025.
const LENGTHS_V4: &[(u8, u32)] = &[
    (24, 600),
    (23, 100),
    (22, 120),
    (21, 50),
    (20, 45),
    (19, 25),
    (18, 15),
    (17, 10),
    (16, 14),
    (15, 5),
    (14, 6),
    (13, 5),
    (12, 3),
    (11, 1),
    (10, 1),
];

/// The same for IPv6.
const LENGTHS_V6: &[(u8, u32)] = &[
    (48, 480),
    (32, 120),
    (40, 100),
    (44, 100),
    (36, 50),
    (29, 30),
    (33, 20),
    (34, 20),
    (38, 20),
    (46, 20),
    (47, 15),
    (42, 15),
    (64, 10),
];

/// Allocations of registries, inside of which the IPv6 routes are.
const ALLOCATIONS_V6: u64 = 30_000;

/// A table of so many routes of each family, all different, in no order.
pub fn table(v4: usize, v6: usize, random: &mut Pcg64Mcg) -> Vec<IpNet> {
    let mut table = HashSet::new();
    while table.len() < v4 {
        let len = pick(LENGTHS_V4, random);
        // Unicast space: 1.0.0.0 to 223.255.255.255.
        let address = Ipv4Addr::from_bits(0x0100_0000 + random.next_u32() % 0xdf00_0000);
        table.insert(Ipv4Net::new_assert(address, len).trunc().into());
    }
    while table.len() < v4 + v6 {
        let len = pick(LENGTHS_V6, random);
        let allocation =
            0x2000_0000 | (random.next_u64() % ALLOCATIONS_V6 * 0x1_2345) & 0x0fff_ffff;
        let address = u128::from(allocation) << 96 | u128::from(random.next_u32()) << 64;
        table.insert(
            Ipv6Net::new_assert(Ipv6Addr::from_bits(address), len)
                .trunc()
                .into(),
        );
    }
    let mut table: Vec<_> = table.into_iter().collect();
    // A hash set has its own order on each run.
    table.sort_unstable();
    table
}

/// An address that `prefix` covers.
pub fn inside(prefix: IpNet, random: &mut Pcg64Mcg) -> std::net::IpAddr {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    match prefix {
        IpNet::V4(prefix) => {
            let host = u32::try_from(bits & 0xffff_ffff).expect("32 bits");
            let host = host & prefix.hostmask().to_bits();
            Ipv4Addr::from_bits(prefix.network().to_bits() | host).into()
        }
        IpNet::V6(prefix) => {
            let host = bits & prefix.hostmask().to_bits();
            Ipv6Addr::from_bits(prefix.network().to_bits() | host).into()
        }
    }
}

/// The generator of a bench: the same in each run.
pub fn random() -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(2025)
}

fn pick(lengths: &[(u8, u32)], random: &mut Pcg64Mcg) -> u8 {
    let total: u32 = lengths.iter().map(|(_, share)| share).sum();
    let mut dice = random.next_u32() % total;
    for (len, share) in lengths {
        if dice < *share {
            return *len;
        }
        dice -= share;
    }
    unreachable!("the dice is below the total")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use switchd::forward::fib::FibWriter;
    use switchd::id::GroupId;

    /// SW-1: a full table of the Internet, 1 M IPv4 and 250 k IPv6 routes, in less than 512 MiB.
    #[test]
    fn a_full_internet_table_fits() {
        let table = table(FULL_V4, FULL_V6, &mut random());
        let mut writer = FibWriter::new();
        for (group, prefix) in (0..).zip(&table) {
            writer.insert(*prefix, GroupId(group % 1000)).expect("room");
            if writer.retired() > 1000 {
                writer.seal(0);
                writer.reclaim(|_| true);
            }
        }
        assert_eq!(writer.len(), (FULL_V4, FULL_V6));
        let bytes = writer.bytes();
        println!("{} MiB", bytes >> 20);
        assert!(
            bytes < 256 << 20,
            "{bytes} bytes: half of the bound is left for growth"
        );
        let fib = writer.fib();
        for (group, prefix) in (0..).zip(&table).step_by(997) {
            // The last address of a prefix, unless a longer one has it.
            let found = match prefix.broadcast() {
                IpAddr::V4(address) => fib.lookup_v4(address.octets()),
                IpAddr::V6(address) => fib.lookup_v6(address.octets()),
            };
            let longer = (prefix.prefix_len() + 1..=64).any(|len| {
                IpNet::new(prefix.broadcast(), len.min(prefix.max_prefix_len()))
                    .is_ok_and(|longer| writer.get(longer.trunc()).is_some())
            });
            let own = found == Some(GroupId(group % 1000));
            assert!(found.is_some() && (longer || own), "{prefix}");
        }
    }
}
