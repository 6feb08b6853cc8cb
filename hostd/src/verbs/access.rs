//! Rights to memory, and the keys that name it.

use std::ops::BitOr;

/// Rights to a region or of a queue pair: `enum ibv_access_flags`, same bits. Local reading is
/// always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u32);

impl Access {
    /// Local reading only.
    pub const NONE: Self = Self(0);
    /// The owner may receive into it.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write it.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Peers may read it.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Peers may do atomic operations on it.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);

    /// Windows may be bound to it (`IBV_ACCESS_MW_BIND`).
    pub const BIND: Self = Self(1 << 4);
    /// Of a window: its first byte has address zero (`IBV_ACCESS_ZERO_BASED`).
    pub const ZERO_BASED: Self = Self(1 << 5);

    /// Peers may read and write it, and do atomic operations on it.
    pub const ALL_REMOTE: Self =
        Self(Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0 | Self::REMOTE_ATOMIC.0);

    /// The rights in this one that are not in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The rights of libibverbs' flags; `None` if a bit is unknown.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits < 1 << 6 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Libibverbs' flags.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `rights` are among these.
    pub const fn allows(self, rights: Self) -> bool {
        self.0 & rights.0 == rights.0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The two keys of a region. Both are drawn, so knowing one says nothing about the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKeys {
    /// For the owner's work requests.
    pub lkey: u32,
    /// For the peers' work requests.
    pub rkey: u32,
}
