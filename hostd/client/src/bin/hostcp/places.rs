//! Who may send files at a time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Copies that are received at a time; each takes a thread and some MiB of memory.
const PLACES: usize = 16;

/// A share of the places for each sender: whoever has fewer of them than are free gets one more.
/// So one address has half of them at most, and another one finds a place.
#[derive(Debug, Default)]
pub(crate) struct Places {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<IpAddr, usize>,
    refused: u64,
}

/// A place, given back when this goes.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    holder: IpAddr,
}

/// What to say of a copy that finds no place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Places that its address has already.
    pub(crate) held: usize,
    /// Copies that were refused until now, with this one.
    pub(crate) refused: u64,
}

impl Places {
    /// A place for a copy from this address.
    ///
    /// # Errors
    /// The address has as many as are free, or more.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr) -> Result<Place, Full> {
        let holder = network(from);
        let mut table = self.lock();
        let free = PLACES - table.held.values().sum::<usize>();
        let held = table.held.get(&holder).copied().unwrap_or(0);
        if held >= free {
            table.refused += 1;
            let refused = table.refused;
            return Err(Full { held, refused });
        }
        table.held.insert(holder, held + 1);
        drop(table);
        let places = self.clone();
        Ok(Place { places, holder })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.lock();
        let left = table.held.get(&self.holder).map_or(0, |held| held - 1);
        if left == 0 {
            table.held.remove(&self.holder);
        } else {
            table.held.insert(self.holder, left);
        }
    }
}

impl Full {
    /// Whether to say so: each time that the count has doubled, lest refusals fill a log.
    pub(crate) fn is_worth_saying(&self) -> bool {
        self.refused.is_power_of_two()
    }
}

/// An IPv4 address, or the /64 of which an IPv6 host may have every address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(places: &Arc<Places>, address: &str) -> Vec<Place> {
        let address = address.parse().expect("an address");
        std::iter::from_fn(|| places.take(address).ok()).collect()
    }

    #[test]
    fn one_address_leaves_places_to_others() {
        let places = Arc::new(Places::default());
        let first = all_of(&places, "10.0.0.1");
        assert_eq!(first.len(), PLACES / 2);
        let full = places.take([10, 0, 0, 1].into()).expect_err("it has half");
        let refused = 2;
        assert_eq!(full, Full { held: 8, refused });
        assert_eq!(all_of(&places, "::ffff:10.0.0.1").len(), 0, "the same one");
        let second = all_of(&places, "10.0.0.2");
        assert_eq!(second.len(), 4);
        let third = all_of(&places, "fd00::1");
        assert_eq!(all_of(&places, "fd00::2").len(), 0, "the same network");
        let others: Vec<_> = ["fd00:1::1", "10.0.0.3"]
            .map(|it| all_of(&places, it))
            .into();
        let lens = others.iter().map(Vec::len);
        assert_eq!((third.len(), lens.sum::<usize>()), (2, 2));
        assert_eq!(all_of(&places, "10.0.0.4").len(), 0, "there are no more");
        drop(first);
        assert_eq!(all_of(&places, "10.0.0.4").len(), 4, "given back");
        drop((second, third, others));
        assert_eq!(all_of(&places, "10.0.0.1").len(), PLACES / 2);
        assert!(places.lock().held.is_empty(), "nothing is kept of who left");
    }

    #[test]
    fn refusals_are_said_ever_less_often() {
        let said = |refused| Full { held: 8, refused }.is_worth_saying();
        let counts: Vec<_> = (1..=100).filter(|count| said(*count)).collect();
        assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64]);
    }
}
