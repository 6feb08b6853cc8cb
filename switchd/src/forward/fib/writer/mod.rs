//! The write side of the route table: prefixes in, words out. [`lpm`](super::lpm) says how the
//! words lie.
//!
//! Control owns the only [`FibWriter`]; workers hold the [`Fib`] and read it all the time. A change
//! costs the nodes on its path, and workers see it at once.
//!
//! Lines of nodes that were replaced wait for their readers. After some changes (a batch of netlink
//! messages, or [`FibWriter::retired`] of them) control calls [`FibWriter::seal`] with an epoch
//! that it publishes after those changes, and from time to time [`FibWriter::reclaim`]: a worker
//! that has picked up that epoch began its turn after the nodes had been unlinked.

use crate::forward::fib::lpm::{Fib, LINE, MAX_GROUP, NODES, Root, WORDS, leaf};
use crate::forward::fib::trie::{Change, FibError, Lines, Trie};
use crate::id::GroupId;
use ipnet::IpNet;
use std::collections::HashMap;
use std::sync::Arc;

/// Words of a small arena: the roots, and 1 MiB for nodes.
const SMALL_WORDS: usize = NODES + (1 << 18);

/// Enters and removes routes.
#[derive(Debug)]
pub struct FibWriter {
    fib: Arc<Fib>,
    lines: Lines,
    v4: HashMap<([u8; 4], u8), GroupId>,
    v6: HashMap<([u8; 16], u8), GroupId>,
}

impl Default for FibWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl FibWriter {
    /// An empty table.
    pub fn new() -> Self {
        Self::with_words(WORDS)
    }

    /// An empty table for a fabric of a few thousand routes, in an arena too small to be given huge
    /// pages: a simulation has a table for each of many switches.
    pub fn small() -> Self {
        Self::with_words(SMALL_WORDS)
    }

    /// An empty table in an arena of so many words.
    fn with_words(words: usize) -> Self {
        let lines = Lines::new(NODES / LINE, words / LINE);
        Self {
            fib: Arc::new(Fib::new(words)),
            lines,
            v4: HashMap::new(),
            v6: HashMap::new(),
        }
    }

    /// What workers read.
    pub fn fib(&self) -> Arc<Fib> {
        self.fib.clone()
    }

    /// Says that routes from now on lead to groups of the tables that were published as `epoch`.
    pub fn need(&mut self, epoch: u64) {
        self.fib.set_needs(epoch);
    }

    /// Enters a route or replaces its group; host bits of `prefix` are ignored. Returns the group
    /// that the prefix had before.
    ///
    /// # Errors
    /// [`FibError`]; the table is as it was before.
    pub fn insert(&mut self, prefix: IpNet, group: GroupId) -> Result<Option<GroupId>, FibError> {
        if group.0 > MAX_GROUP {
            return Err(FibError::Group(group.0));
        }
        let put = Change::Put(leaf(prefix.prefix_len(), group.0));
        let len = prefix.prefix_len();
        match prefix.network() {
            std::net::IpAddr::V4(address) => {
                self.trie().apply(Root::V4, &address.octets(), len, put)?;
                Ok(self.v4.insert((address.octets(), len), group))
            }
            std::net::IpAddr::V6(address) => {
                self.trie().apply(Root::V6, &address.octets(), len, put)?;
                Ok(self.v6.insert((address.octets(), len), group))
            }
        }
    }

    /// Removes a route and returns its group, or `None` if there was no such route.
    ///
    /// # Errors
    /// [`FibError::Full`] when the change needs a larger node and there is no place for it; the
    /// route then stays.
    pub fn remove(&mut self, prefix: IpNet) -> Result<Option<GroupId>, FibError> {
        let len = prefix.prefix_len();
        match prefix.network() {
            std::net::IpAddr::V4(address) => {
                let key = (address.octets(), len);
                let Some(&group) = self.v4.get(&key) else {
                    return Ok(None);
                };
                let take = take(&self.v4, &key);
                self.trie().apply(Root::V4, &key.0, len, take)?;
                self.v4.remove(&key);
                Ok(Some(group))
            }
            std::net::IpAddr::V6(address) => {
                let key = (address.octets(), len);
                let Some(&group) = self.v6.get(&key) else {
                    return Ok(None);
                };
                let take = take(&self.v6, &key);
                self.trie().apply(Root::V6, &key.0, len, take)?;
                self.v6.remove(&key);
                Ok(Some(group))
            }
        }
    }

    /// The group of exactly this prefix.
    pub fn get(&self, prefix: IpNet) -> Option<GroupId> {
        let len = prefix.prefix_len();
        match prefix.network() {
            std::net::IpAddr::V4(address) => self.v4.get(&(address.octets(), len)).copied(),
            std::net::IpAddr::V6(address) => self.v6.get(&(address.octets(), len)).copied(),
        }
    }

    /// Number of IPv4 and of IPv6 routes.
    pub fn len(&self) -> (usize, usize) {
        (self.v4.len(), self.v6.len())
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Bytes of the arena that roots and nodes take, those that wait for readers not included.
    pub fn bytes(&self) -> usize {
        4 * (NODES + self.lines.used() * LINE)
    }

    /// Nodes that were replaced and not sealed yet. Worth a seal from a few thousand on.
    pub fn retired(&self) -> usize {
        self.lines.unlinked()
    }

    /// Says that `epoch` was published after all changes so far.
    pub fn seal(&mut self, epoch: u64) {
        self.lines.seal(epoch);
    }

    /// Frees the nodes whose epoch has `passed`. Returns whether none waits any more.
    pub fn reclaim(&mut self, passed: impl Fn(u64) -> bool) -> bool {
        self.lines.reclaim(passed)
    }

    fn trie(&mut self) -> Trie<'_> {
        Trie {
            fib: &self.fib,
            lines: &mut self.lines,
        }
    }
}

/// The change that removes a prefix: its leaves give way to the longest shorter prefix that ends in
/// the same stride. What is shorter still stands in covering leaves and nodes above.
fn take<const N: usize>(routes: &HashMap<([u8; N], u8), GroupId>, key: &([u8; N], u8)) -> Change {
    let (address, len) = *key;
    let shortest = if len <= 16 { 0 } else { (len - 1) / 8 * 8 + 1 };
    let then = (shortest..len).rev().find_map(|shorter| {
        let group = routes.get(&(masked(address, shorter), shorter))?;
        Some(leaf(shorter, group.0))
    });
    Change::Take {
        rank: u32::from(len) + 1,
        then: then.unwrap_or(0),
    }
}

/// The first `len` bits of an address.
fn masked<const N: usize>(mut address: [u8; N], len: u8) -> [u8; N] {
    for (place, byte) in (0_u8..).zip(&mut address) {
        let kept = len.saturating_sub(8 * place).min(8);
        *byte &= !u8::MAX.checked_shr(kept.into()).unwrap_or(0);
    }
    address
}

#[cfg(test)]
mod tests;
