//! Registered memory: regions, their keys, and who may touch them (HT-1, HT-3).
//!
//! A key is 32 bits of SHA-256 over the engine's secret seed and a counter: neither an application
//! nor a peer can guess one from those it has seen. Keys are looked up once a message; for the rest
//! of the message the region's slot is remembered, and a region that is deregistered meanwhile is
//! noticed by the generation of its slot.

use crate::limits;
use crate::slab::Slab;
use crate::verbs::{Access, RegionKeys};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of an application as the engine sees it: bytes that can be copied out and in.
///
/// The memory is shared with the application, which may write it at any time, so copies take
/// `&self` and what is read is never trusted.
pub trait RegionMemory {
    /// Whether the memory has bytes at all. Simulated memory may have a length only: it reads as zeros, and
    /// neither the copies nor the checksums touch what is not there.
    const HAS_BYTES: bool = true;

    /// Bytes of the region.
    fn len(&self) -> u64;

    /// Copies `into.len()` bytes that begin at `offset` out of the region; `false`, with `into`
    /// undefined, if that is not inside.
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool;

    /// Copies `from` into the region at `offset`; `false`, with nothing written, if that is not inside.
    fn copy_in(&self, offset: u64, from: &[u8]) -> bool;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A region in ordinary memory, for simulated hosts and for tests. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct HeapMemory(Arc<Mutex<Vec<u8>>>);

impl HeapMemory {
    /// A region that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(bytes)))
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn range(offset: u64, len: usize, of: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (end <= of).then_some(start..end)
    }
}

impl RegionMemory for HeapMemory {
    fn len(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(range) = Self::range(offset, into.len(), bytes.len()) else {
            return false;
        };
        into.copy_from_slice(&bytes[range]);
        true
    }

    fn copy_in(&self, offset: u64, from: &[u8]) -> bool {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(range) = Self::range(offset, from.len(), bytes.len()) else {
            return false;
        };
        bytes[range].copy_from_slice(from);
        true
    }
}

/// Which key a look-up was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Local,
    Remote,
}

#[derive(Debug)]
struct Region<M> {
    memory: M,
    domain: u32,
    base: u64,
    access: Access,
    keys: RegionKeys,
}

/// A range of a region that was checked: slot, generation and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRange {
    region: u32,
    offset: u64,
}

/// Why a range of memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessDenied;

/// All regions of an engine.
#[derive(Debug)]
pub(crate) struct RegionTable<M> {
    regions: Slab<Region<M>>,
    keys: HashMap<u32, (u32, Side)>,
    secret: [u8; 32],
    drawn: u64,
}

impl<M: RegionMemory> RegionTable<M> {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self {
            regions: Slab::new(limits::REGIONS, 32),
            keys: HashMap::new(),
            secret,
            drawn: 0,
        }
    }

    /// Adds a region; `None` when the table is full.
    pub(crate) fn register(
        &mut self,
        domain: u32,
        memory: M,
        base: u64,
        access: Access,
    ) -> Option<RegionKeys> {
        let lkey = self.draw();
        let mut rkey = self.draw();
        while rkey == lkey {
            rkey = self.draw();
        }
        let keys = RegionKeys { lkey, rkey };
        let region = Region {
            memory,
            domain,
            base,
            access,
            keys,
        };
        let number = self.regions.insert(region).ok()?;
        self.keys.insert(lkey, (number, Side::Local));
        self.keys.insert(rkey, (number, Side::Remote));
        Some(keys)
    }

    /// Takes the region with this local key out and returns its memory.
    pub(crate) fn deregister(&mut self, lkey: u32) -> Option<M> {
        let &(number, side) = self.keys.get(&lkey)?;
        if side != Side::Local {
            return None;
        }
        let region = self.regions.remove(number)?;
        self.keys.remove(&region.keys.lkey);
        self.keys.remove(&region.keys.rkey);
        Some(region.memory)
    }

    /// A fresh key. Zero is never a key, so that a forgotten field finds nothing.
    fn draw(&mut self) -> u32 {
        loop {
            let digest = Sha256::new()
                .chain_update(self.secret)
                .chain_update(b"key")
                .chain_update(self.drawn.to_be_bytes())
                .finalize();
            self.drawn += 1;
            let key = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
            if key != 0 && !self.keys.contains_key(&key) {
                return key;
            }
        }
    }

    /// Whether `domain` has a region.
    pub(crate) fn any_in(&mut self, domain: u32) -> bool {
        self.regions
            .values_mut()
            .any(|region| region.domain == domain)
    }

    /// Checks a range named by its owner.
    pub(crate) fn local(
        &self,
        domain: u32,
        lkey: u32,
        addr: u64,
        len: u32,
        rights: Access,
    ) -> Result<MemoryRange, AccessDenied> {
        self.check(domain, lkey, Side::Local, addr, len, rights)
    }

    /// Checks a range named by a peer.
    pub(crate) fn remote(
        &self,
        domain: u32,
        rkey: u32,
        addr: u64,
        len: u32,
        rights: Access,
    ) -> Result<MemoryRange, AccessDenied> {
        self.check(domain, rkey, Side::Remote, addr, len, rights)
    }

    fn check(
        &self,
        domain: u32,
        key: u32,
        wanted: Side,
        addr: u64,
        len: u32,
        rights: Access,
    ) -> Result<MemoryRange, AccessDenied> {
        let &(number, side) = self.keys.get(&key).ok_or(AccessDenied)?;
        let region = self.regions.get(number).ok_or(AccessDenied)?;
        let offset = addr.checked_sub(region.base).ok_or(AccessDenied)?;
        let end = offset.checked_add(u64::from(len)).ok_or(AccessDenied)?;
        let allowed = side == wanted
            && region.domain == domain
            && region.access.allows(rights)
            && end <= region.memory.len();
        if allowed {
            Ok(MemoryRange {
                region: number,
                offset,
            })
        } else {
            Err(AccessDenied)
        }
    }

    /// Copies out of a checked range, `skip` bytes after its beginning. Fails if the region is gone.
    pub(crate) fn copy_out(
        &self,
        span: MemoryRange,
        skip: u32,
        into: &mut [u8],
    ) -> Result<(), AccessDenied> {
        let region = self.regions.get(span.region).ok_or(AccessDenied)?;
        let copied = region
            .memory
            .copy_out(span.offset.saturating_add(u64::from(skip)), into);
        if copied { Ok(()) } else { Err(AccessDenied) }
    }

    /// Copies into a checked range, `skip` bytes after its beginning. Fails if the region is gone.
    pub(crate) fn copy_in(
        &self,
        span: MemoryRange,
        skip: u32,
        from: &[u8],
    ) -> Result<(), AccessDenied> {
        let region = self.regions.get(span.region).ok_or(AccessDenied)?;
        let copied = region
            .memory
            .copy_in(span.offset.saturating_add(u64::from(skip)), from);
        if copied { Ok(()) } else { Err(AccessDenied) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> RegionTable<HeapMemory> {
        RegionTable::new([7; 32])
    }

    /// HT-1, HT-3: a key opens its own range, in its own domain, for its own rights, and no more.
    #[test]
    fn keys_open_what_they_were_given_for() {
        let mut table = table();
        let both = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = HeapMemory::new(vec![0; 100]);
        let keys = table
            .register(1, memory.clone(), 0x1000, both)
            .expect("room");
        let span = table
            .remote(1, keys.rkey, 0x1000 + 90, 10, Access::REMOTE_WRITE)
            .expect("inside");
        table.copy_in(span, 0, b"0123456789").expect("inside");
        assert_eq!(&memory.to_vec()[90..], b"0123456789");
        let denied = [
            table.remote(1, keys.lkey, 0x1000, 1, Access::REMOTE_WRITE),
            table.remote(2, keys.rkey, 0x1000, 1, Access::REMOTE_WRITE),
            table.remote(1, keys.rkey, 0x1000, 1, Access::REMOTE_READ),
            table.remote(1, keys.rkey, 0x0fff, 1, Access::REMOTE_WRITE),
            table.remote(1, keys.rkey, 0x1000, 101, Access::REMOTE_WRITE),
            table.remote(1, keys.rkey, u64::MAX, 2, Access::REMOTE_WRITE),
            table.local(1, keys.rkey, 0x1000, 1, Access::NONE),
            table.local(1, 0, 0x1000, 1, Access::NONE),
        ];
        assert!(
            denied.iter().all(|answer| *answer == Err(AccessDenied)),
            "{denied:?}"
        );
    }

    /// HT-3: a range that was checked before its region went away opens nothing afterwards.
    #[test]
    fn deregistering_closes_checked_ranges() {
        let mut table = table();
        let keys = table
            .register(1, HeapMemory::new(vec![0; 8]), 0, Access::LOCAL_WRITE)
            .expect("room");
        let span = table
            .local(1, keys.lkey, 0, 8, Access::LOCAL_WRITE)
            .expect("inside");
        assert!(
            table.deregister(keys.rkey).is_none(),
            "not with the remote key"
        );
        assert!(table.deregister(keys.lkey).is_some());
        assert_eq!(table.copy_in(span, 0, b"x"), Err(AccessDenied));
        assert_eq!(
            table.local(1, keys.lkey, 0, 1, Access::NONE),
            Err(AccessDenied)
        );
        assert!(!table.any_in(1));
    }
}
