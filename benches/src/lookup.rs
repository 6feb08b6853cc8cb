//! SW-2: longest prefix match on a full Internet table: the route table beside a kept library.

use crate::measure::{Series, busy_time, print_figures, print_ratios};
use crate::routes::{self, FULL_V4, FULL_V6};
use ip_network_table_deps_treebitmap::IpLookupTable;
use ipnet::IpNet;
use rand_core::Rng;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use switchd::ingress::fib::{Fib, FibWriter};
use switchd::ingress::tables::GroupId;

/// Rounds of each contender.
const ROUNDS: usize = 5;
/// Addresses that are looked up, in the order of a random generator: no cache holds their paths.
const ADDRESSES: usize = 1 << 20;
/// Addresses of one batch, as long as a worker's.
const BATCH: usize = switchd::limits::BATCH;

/// The same routes in both tables.
struct Tables {
    fib: FibWriter,
    v4: IpLookupTable<Ipv4Addr, u32>,
    v6: IpLookupTable<Ipv6Addr, u32>,
}

/// Runs the bench and prints its tables.
///
/// # Errors
/// If the route table is too small, or disagrees with the library.
pub fn bench() -> Result<(), String> {
    let mut random = routes::random();
    let table = routes::table(FULL_V4, FULL_V6, &mut random);
    let began = busy_time();
    let tables = Tables::fill(&table)?;
    let filled = busy_time() - began;
    let fib = tables.fib.fib();
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    while v4.len() < ADDRESSES || v6.len() < ADDRESSES {
        let which = usize::try_from(random.next_u64()).expect("64-bit machine") % table.len();
        match routes::inside(table[which], &mut random) {
            IpAddr::V4(address) => v4.push(address),
            IpAddr::V6(address) => v6.push(address),
        }
    }
    v4.truncate(ADDRESSES);
    v6.truncate(ADDRESSES);
    tables.agree(&fib, &v4, &v6)?;
    print_figures(
        "route table",
        "",
        &[
            ("routes".into(), table.len().to_string()),
            ("memory".into(), format!("{} MiB", tables.fib.bytes() >> 20)),
            ("both tables filled in".into(), format!("{filled:.1?}")),
        ],
    );
    compare_v4(&tables, &fib, &v4);
    compare_v6(&tables, &fib, &v6);
    Ok(())
}

impl Tables {
    fn fill(table: &[IpNet]) -> Result<Self, String> {
        let mut tables = Self {
            fib: FibWriter::new(),
            v4: IpLookupTable::new(),
            v6: IpLookupTable::new(),
        };
        for (number, prefix) in (0..).zip(table) {
            let group = number % 1000;
            tables
                .fib
                .insert(*prefix, GroupId(group))
                .map_err(|error| error.to_string())?;
            // Nobody reads yet.
            tables.fib.seal(0);
            tables.fib.reclaim(|_| true);
            let len = u32::from(prefix.prefix_len());
            match prefix {
                IpNet::V4(prefix) => tables.v4.insert(prefix.network(), len, group),
                IpNet::V6(prefix) => tables.v6.insert(prefix.network(), len, group),
            };
        }
        Ok(tables)
    }

    fn agree(&self, fib: &Fib, v4: &[Ipv4Addr], v6: &[Ipv6Addr]) -> Result<(), String> {
        for address in v4 {
            let found = fib.lookup_v4(address.octets()).map(|group| group.0);
            if found != self.v4.longest_match(*address).map(|(_, _, group)| *group) {
                return Err(format!("the library disagrees about {address}"));
            }
        }
        for address in v6 {
            let found = fib.lookup_v6(address.octets()).map(|group| group.0);
            if found != self.v6.longest_match(*address).map(|(_, _, group)| *group) {
                return Err(format!("the library disagrees about {address}"));
            }
        }
        Ok(())
    }
}

/// Million lookups in a second.
fn timed(work: impl FnOnce()) -> f64 {
    let began = busy_time();
    work();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = ADDRESSES as f64 / (busy_time() - began).as_secs_f64() / 1e6;
    rate
}

fn compare_v4(tables: &Tables, fib: &Fib, addresses: &[Ipv4Addr]) {
    let octets: Vec<_> = addresses.iter().map(Ipv4Addr::octets).collect();
    let mut found = vec![None; BATCH];
    let mut series = ["treebitmap", "one by one", "in batches"].map(Series::new);
    for _ in 0..ROUNDS {
        series[0].rounds.push(timed(|| {
            for address in addresses {
                black_box(tables.v4.longest_match(*address));
            }
        }));
        series[1].rounds.push(timed(|| {
            for address in &octets {
                black_box(fib.lookup_v4(*address));
            }
        }));
        series[2].rounds.push(timed(|| {
            for batch in octets.chunks(BATCH) {
                fib.lookup_v4_batch(batch, black_box(&mut found));
            }
        }));
    }
    print_ratios("IPv4 lookup", "M/s", &series);
}

fn compare_v6(tables: &Tables, fib: &Fib, addresses: &[Ipv6Addr]) {
    let octets: Vec<_> = addresses.iter().map(Ipv6Addr::octets).collect();
    let mut found = vec![None; BATCH];
    let mut series = ["treebitmap", "one by one", "in batches"].map(Series::new);
    for _ in 0..ROUNDS {
        series[0].rounds.push(timed(|| {
            for address in addresses {
                black_box(tables.v6.longest_match(*address));
            }
        }));
        series[1].rounds.push(timed(|| {
            for address in &octets {
                black_box(fib.lookup_v6(*address));
            }
        }));
        series[2].rounds.push(timed(|| {
            for batch in octets.chunks(BATCH) {
                fib.lookup_v6_batch(batch, black_box(&mut found));
            }
        }));
    }
    print_ratios("IPv6 lookup", "M/s", &series);
}
