//! Regions, their keys, and who may touch them.
//!
//! A key is 32 bits of SHA-256 over the engine's secret seed and a counter: neither an application
//! nor a peer can guess one from those it has seen. Keys are looked up once a message; for the rest
//! of the message the region's slot is remembered, and a region that is deregistered meanwhile is
//! noticed by the generation of its slot.

use super::access::RegionMemory;
use crate::limits;
use crate::slab::Slab;
use crate::verbs::{Access, RegionKeys};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Which key a look-up was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Local,
    Remote,
}

#[derive(Debug)]
pub(super) struct Region<M> {
    pub(super) memory: M,
    domain: u32,
    base: u64,
    access: Access,
    keys: RegionKeys,
}

/// A range of a region that was checked: slot, generation and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRange {
    pub(super) region: u32,
    pub(super) offset: u64,
}

/// Why a range of memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessDenied;

/// All regions of an engine.
#[derive(Debug)]
pub(crate) struct RegionTable<M> {
    pub(super) regions: Slab<Region<M>>,
    keys: HashMap<u32, (u32, Side)>,
    /// Regions of each domain that has any.
    domains: HashMap<u32, u32>,
    secret: [u8; 32],
    drawn: u64,
}

impl<M: RegionMemory> RegionTable<M> {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self {
            regions: Slab::new(limits::REGIONS, 32),
            keys: HashMap::new(),
            domains: HashMap::new(),
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
        *self.domains.entry(domain).or_default() += 1;
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
        if let Some(count) = self.domains.get_mut(&region.domain) {
            *count -= 1;
            if *count == 0 {
                self.domains.remove(&region.domain);
            }
        }
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
    pub(crate) fn any_in(&self, domain: u32) -> bool {
        self.domains.contains_key(&domain)
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
}
