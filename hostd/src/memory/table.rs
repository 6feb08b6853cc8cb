//! Regions, their keys, and who may touch them.
//!
//! A key is 32 bits of SHA-256 over the engine's secret seed and a counter: neither an application
//! nor a peer can guess one from those it has seen. Keys are looked up once a message; for the rest
//! of the message the region's slot is remembered, and a region that is deregistered meanwhile is
//! noticed by the generation of its slot.

use super::access::RegionMemory;
use crate::limits;
use crate::slab::Slab;
use crate::verbs::{Access, EngineError, RegionKeys};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Which key a look-up was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Local,
    Remote,
    /// The key of a window; its number is that of the window.
    Window,
}

#[derive(Debug)]
pub(super) struct Region<M> {
    pub(super) memory: M,
    pub(super) domain: u32,
    pub(super) base: u64,
    pub(super) access: Access,
    pub(super) keys: RegionKeys,
    /// Windows that are bound to it.
    pub(super) bound: u32,
}

/// A memory window.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) domain: u32,
    pub(super) rkey: u32,
    /// What it is bound to, if it is.
    pub(super) binding: Option<u32>,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub(super) qpn: u32,
    pub(super) region: u32,
    /// What peers call the first byte.
    pub(super) base: u64,
    /// Where that is in the region.
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) access: Access,
}

/// A range of a region that was checked: slot, generation and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRange {
    pub(super) region: u32,
    pub(super) offset: u64,
    /// The binding of a window, if it was named by one: it counts only while that lasts.
    pub(super) binding: Option<u32>,
}

/// Why a range of memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessDenied;

/// All regions of an engine.
#[derive(Debug)]
pub(crate) struct RegionTable<M> {
    pub(super) regions: Slab<Region<M>>,
    pub(super) windows: Slab<Window>,
    pub(super) bindings: Slab<Binding>,
    pub(super) keys: HashMap<u32, (u32, Side)>,
    /// Regions and windows of each domain that has any.
    domains: HashMap<u32, u32>,
    secret: [u8; 32],
    drawn: u64,
}

impl<M: RegionMemory> RegionTable<M> {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self {
            regions: Slab::new(limits::REGIONS, 32),
            windows: Slab::new(limits::WINDOWS, 32),
            bindings: Slab::new(limits::WINDOWS, 32),
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
            bound: 0,
        };
        let number = self.regions.insert(region).ok()?;
        self.keys.insert(lkey, (number, Side::Local));
        self.keys.insert(rkey, (number, Side::Remote));
        self.enter(domain);
        Some(keys)
    }

    /// Takes the region with this local key out and returns its memory.
    ///
    /// # Errors
    /// There is none, or windows are bound to it.
    pub(crate) fn deregister(&mut self, lkey: u32) -> Result<M, EngineError> {
        let number = self.number_of(lkey)?;
        let region = self.regions.remove(number).ok_or(EngineError::Unknown)?;
        self.keys.remove(&region.keys.lkey);
        self.keys.remove(&region.keys.rkey);
        self.leave(region.domain);
        Ok(region.memory)
    }

    /// Forbids windows for a region that is going to be deregistered, not quite at once.
    ///
    /// # Errors
    /// There is none, or windows are bound to it.
    pub(crate) fn forbid_windows(&mut self, lkey: u32) -> Result<(), EngineError> {
        let number = self.number_of(lkey)?;
        let region = self.regions.get_mut(number).ok_or(EngineError::Unknown)?;
        region.access = region.access.without(Access::BIND);
        Ok(())
    }

    /// The number of the region with this local key, to which no window is bound.
    fn number_of(&self, lkey: u32) -> Result<u32, EngineError> {
        let known = self.keys.get(&lkey);
        let &(number, _) = known
            .filter(|(_, side)| *side == Side::Local)
            .ok_or(EngineError::Unknown)?;
        match self.regions.get(number) {
            Some(region) if region.bound == 0 => Ok(number),
            Some(_) => Err(EngineError::Busy),
            None => Err(EngineError::Unknown),
        }
    }

    pub(super) fn enter(&mut self, domain: u32) {
        *self.domains.entry(domain).or_default() += 1;
    }

    pub(super) fn leave(&mut self, domain: u32) {
        if let Some(count) = self.domains.get_mut(&domain) {
            *count -= 1;
            if *count == 0 {
                self.domains.remove(&domain);
            }
        }
    }

    /// The region of a checked range, if both it and the binding that named it are still there.
    pub(super) fn region(&self, range: MemoryRange) -> Result<&Region<M>, AccessDenied> {
        let bound = |binding| self.bindings.get(binding).is_some();
        let region = self.regions.get(range.region);
        region
            .filter(|_| range.binding.is_none_or(bound))
            .ok_or(AccessDenied)
    }

    /// A fresh key. Zero is never a key, so that a forgotten field finds nothing.
    pub(super) fn draw(&mut self) -> u32 {
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

    /// Whether `domain` has a region or a window.
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

    /// Checks a range named by a peer of a queue pair: its domain and its number.
    pub(crate) fn remote(
        &self,
        (domain, qpn): (u32, u32),
        rkey: u32,
        addr: u64,
        len: u32,
        rights: Access,
    ) -> Result<MemoryRange, AccessDenied> {
        if let Some(&(number, Side::Window)) = self.keys.get(&rkey) {
            return self.through_window(number, (domain, qpn), addr, len, rights);
        }
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
                binding: None,
            })
        } else {
            Err(AccessDenied)
        }
    }
}
