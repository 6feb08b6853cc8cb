//! SW-2: longest prefix match on a full Internet table: the route table beside a kept library.

use crate::measure::{Better, Group, Subject, busy_time, millions_each_second};
use crate::routes::{self, FULL_V4, FULL_V6};
use ip_network_table_deps_treebitmap::IpLookupTable;
use ipnet::IpNet;
use rand_core::Rng;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;
use switchd::forward::fib::{Fib, FibWriter};
use switchd::id::GroupId;

/// The kept library, and the route table in both ways that it can be asked.
const CONTENDERS: [&str; 3] = ["treebitmap", "one by one", "in batches"];
const LIBRARY: usize = 0;
const ONE_BY_ONE: usize = 1;
/// Addresses that are looked up, in the order of a random generator: no cache holds their paths.
const ADDRESSES: usize = 1 << 20;
/// Addresses of a turn of each contender: 20 to 200 ms.
const PARTS: [usize; 3] = [ADDRESSES / 4, ADDRESSES, ADDRESSES];
/// Addresses of one batch, as long as a worker's.
const BATCH: usize = switchd::limits::BATCH;

/// The same routes in both tables.
struct Tables {
    fib: FibWriter,
    v4: IpLookupTable<Ipv4Addr, u32>,
    v6: IpLookupTable<Ipv6Addr, u32>,
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

/// The bench: the tables, and the addresses of each family.
struct Lookup {
    groups: [Group; 2],
    tables: Tables,
    fib: Arc<Fib>,
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
    /// The same as bytes.
    octets_v4: Vec<[u8; 4]>,
    octets_v6: Vec<[u8; 16]>,
    /// What a batch found.
    found: Vec<Option<GroupId>>,
    /// Which part of the addresses each contender of each group takes next.
    next: [[usize; CONTENDERS.len()]; 2],
}

/// Fills both tables and has them agree.
///
/// # Errors
/// If the route table is too small, or disagrees with the library.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let mut random = routes::random();
    let table = routes::table(FULL_V4, FULL_V6, &mut random);
    let tables = Tables::fill(&table)?;
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
    let group = |family| {
        let title = format!("{family}, {} routes in the table", table.len());
        Group::beside_first(title, "M/s", Better::High, &CONTENDERS)
    };
    Ok(Box::new(Lookup {
        groups: ["IPv4", "IPv6"].map(group),
        octets_v4: v4.iter().map(Ipv4Addr::octets).collect(),
        octets_v6: v6.iter().map(Ipv6Addr::octets).collect(),
        found: vec![None; BATCH],
        next: Default::default(),
        tables,
        fib,
        v4,
        v6,
    }))
}

impl Lookup {
    /// Looks up the addresses of `part` as a contender does.
    fn look_up(&mut self, v4: bool, contender: usize, part: Range<usize>) {
        let (fib, found) = (&self.fib, &mut self.found);
        match (v4, contender) {
            (true, LIBRARY) => {
                for address in &self.v4[part] {
                    black_box(self.tables.v4.longest_match(*address));
                }
            }
            (false, LIBRARY) => {
                for address in &self.v6[part] {
                    black_box(self.tables.v6.longest_match(*address));
                }
            }
            (true, ONE_BY_ONE) => {
                for address in &self.octets_v4[part] {
                    black_box(fib.lookup_v4(*address));
                }
            }
            (false, ONE_BY_ONE) => {
                for address in &self.octets_v6[part] {
                    black_box(fib.lookup_v6(*address));
                }
            }
            (true, _) => {
                for batch in self.octets_v4[part].chunks(BATCH) {
                    fib.lookup_v4_batch(batch, black_box(found));
                }
            }
            (false, _) => {
                for batch in self.octets_v6[part].chunks(BATCH) {
                    fib.lookup_v6_batch(batch, black_box(found));
                }
            }
        }
    }
}

impl Subject for Lookup {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let next = &mut self.next[group][contender];
        let start = *next;
        let part = PARTS[contender];
        *next = (start + part) % ADDRESSES;
        let began = busy_time();
        self.look_up(group == 0, contender, start..start + part);
        Ok(millions_each_second(began, part as u64))
    }

    fn notes(&self, _: usize) -> Vec<String> {
        let mebibytes = self.tables.fib.bytes() >> 20;
        vec![format!("the route table takes {mebibytes} MiB")]
    }
}
