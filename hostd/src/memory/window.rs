//! Memory windows of type 2 (InfiniBand 10.6.7): keys for peers that a send request gives to a part
//! of a region and takes back, without registering anything.
//!
//! ```text
//!           BIND_MW                     LOCAL_INV, or SEND with invalidate of the peer
//!   free ──────────────▶ bound ────────────────────────────────────────────────────────▶ free
//! ```
//!
//! The upper 24 bits of a window's key are drawn and stay; the lower 8 are chosen by whoever binds
//! it, so that a key that was taken back is another one than the next. A bound window belongs to
//! the queue pair that bound it (type 2B). Who dereferences a key remembers the binding, not the
//! window: a binding that is taken back is noticed at the next packet.

use super::access::RegionMemory;
use super::table::{AccessDenied, Binding, MemoryRange, RegionTable, Side, Window};
use crate::stats::{BoundWindow, WindowStatistics};
use crate::verbs::Access;

/// Bits of a window's key that stay.
const FIXED: u32 = 0xffff_ff00;

/// What a window is to be bound to (`struct ibv_mw_bind_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    /// The window.
    pub(crate) window: u32,
    /// Its next key.
    pub(crate) rkey: u32,
    /// The region, and the range of it in its own address space.
    pub(crate) lkey: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// What peers may do.
    pub(crate) access: Access,
}

impl<M: RegionMemory> RegionTable<M> {
    /// Adds a window that is not bound: its number and its first key. `None` when the table is
    /// full.
    pub(crate) fn create_window(&mut self, domain: u32) -> Option<(u32, u32)> {
        let rkey = self.draw();
        let window = Window {
            domain,
            rkey,
            binding: None,
        };
        let number = self.windows.insert(window).ok()?;
        self.keys.insert(rkey, (number, Side::Window));
        self.enter(domain);
        Some((number, rkey))
    }

    /// How a window stands; `None` if there is no such window.
    pub(crate) fn window(&self, number: u32) -> Option<WindowStatistics> {
        let window = self.windows.get(number)?;
        let binding = window.binding.and_then(|number| self.bindings.get(number));
        let bound = binding.and_then(|binding| {
            let region = self.regions.get(binding.region)?;
            Some(BoundWindow {
                qpn: binding.qpn,
                lkey: region.keys.lkey,
                offset: binding.offset,
                len: binding.len,
                access: binding.access,
            })
        });
        Some(WindowStatistics {
            window: number,
            rkey: window.rkey,
            bound,
        })
    }

    /// Takes a window out, bound or not. Whether there was one.
    pub(crate) fn destroy_window(&mut self, number: u32) -> bool {
        let Some(window) = self.windows.remove(number) else {
            return false;
        };
        self.keys.remove(&window.rkey);
        if let Some(binding) = window.binding {
            self.release(binding);
        }
        self.leave(window.domain);
        true
    }

    /// Binds a window for peers of queue pair `qpn`.
    ///
    /// # Errors
    /// There is no such window, region or range in the domain; the window is bound, or the key is
    /// not one of its others; the region does not allow windows, or to write what they would let
    /// write. Then nothing has changed.
    pub(crate) fn bind(&mut self, domain: u32, qpn: u32, bind: Bind) -> Result<(), AccessDenied> {
        let window = self.windows.get(bind.window).ok_or(AccessDenied)?;
        let old = window.rkey;
        let next = bind.rkey & FIXED == old & FIXED && bind.rkey != old;
        let free = window.domain == domain && window.binding.is_none();
        let taken = self.keys.contains_key(&bind.rkey);
        let &(region, side) = self.keys.get(&bind.lkey).ok_or(AccessDenied)?;
        let target = self.regions.get(region).ok_or(AccessDenied)?;
        let offset = bind.addr.checked_sub(target.base).ok_or(AccessDenied)?;
        let end = offset.checked_add(bind.len).ok_or(AccessDenied)?;
        let changes = bind.access.bits() & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).bits();
        let lawful = side == Side::Local
            && target.domain == domain
            && target.access.allows(Access::BIND)
            && (changes == 0 || target.access.allows(Access::LOCAL_WRITE))
            && bind.len > 0
            && end <= target.memory.len();
        if !next || !free || taken || !lawful {
            return Err(AccessDenied);
        }
        let zero_based = bind.access.allows(Access::ZERO_BASED);
        let binding = Binding {
            qpn,
            region,
            base: if zero_based { 0 } else { bind.addr },
            offset,
            len: bind.len,
            access: bind.access,
        };
        let binding = self.bindings.insert(binding).map_err(|_| AccessDenied)?;
        if let Some(region) = self.regions.get_mut(region) {
            region.bound += 1;
        }
        if let Some(window) = self.windows.get_mut(bind.window) {
            (window.rkey, window.binding) = (bind.rkey, Some(binding));
        }
        self.keys.remove(&old);
        self.keys.insert(bind.rkey, (bind.window, Side::Window));
        Ok(())
    }

    /// Whether a key is that of a bound window of the domain, and of queue pair `qpn` if one is
    /// named.
    pub(crate) fn may_invalidate(&self, domain: u32, qpn: Option<u32>, rkey: u32) -> bool {
        let window = match self.keys.get(&rkey) {
            Some(&(number, Side::Window)) => self.windows.get(number),
            _ => None,
        };
        let Some(window) = window.filter(|window| window.domain == domain) else {
            return false;
        };
        let binding = window.binding.and_then(|number| self.bindings.get(number));
        binding.is_some_and(|binding| qpn.is_none_or(|qpn| qpn == binding.qpn))
    }

    /// Takes a key back, as [`Self::may_invalidate`] allows.
    ///
    /// # Errors
    /// It does not; nothing has changed.
    pub(crate) fn invalidate(
        &mut self,
        domain: u32,
        qpn: Option<u32>,
        rkey: u32,
    ) -> Result<(), AccessDenied> {
        if !self.may_invalidate(domain, qpn, rkey) {
            return Err(AccessDenied);
        }
        let &(number, _) = self.keys.get(&rkey).ok_or(AccessDenied)?;
        let window = self.windows.get_mut(number).ok_or(AccessDenied)?;
        if let Some(binding) = window.binding.take() {
            self.release(binding);
        }
        Ok(())
    }

    /// Ends a binding: peers' messages that are under way through it stop.
    fn release(&mut self, binding: u32) {
        if let Some(binding) = self.bindings.remove(binding)
            && let Some(region) = self.regions.get_mut(binding.region)
        {
            region.bound -= 1;
        }
    }

    /// Checks a range that a peer of queue pair `qpn` named by a window.
    pub(super) fn through_window(
        &self,
        number: u32,
        (domain, qpn): (u32, u32),
        addr: u64,
        len: u32,
        rights: Access,
    ) -> Result<MemoryRange, AccessDenied> {
        let window = self.windows.get(number).ok_or(AccessDenied)?;
        let bound = window.binding.ok_or(AccessDenied)?;
        let binding = self.bindings.get(bound).ok_or(AccessDenied)?;
        let from = addr.checked_sub(binding.base).ok_or(AccessDenied)?;
        let end = from.checked_add(u64::from(len)).ok_or(AccessDenied)?;
        let allowed = window.domain == domain
            && binding.qpn == qpn
            && binding.access.allows(rights)
            && end <= binding.len;
        if !allowed || self.regions.get(binding.region).is_none() {
            return Err(AccessDenied);
        }
        Ok(MemoryRange {
            region: binding.region,
            offset: binding.offset + from,
            binding: Some(bound),
        })
    }
}
