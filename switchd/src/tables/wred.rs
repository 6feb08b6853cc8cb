//! Profiles of weighted random early detection (SW-20, SW-21): at which depth a queue marks or
//! drops.

use std::num::NonZeroU8;

/// Probability 1 in the unit of [`Curve::Linear`]: parts of 2¹⁶.
pub const ONE: u32 = 1 << 16;

/// Largest exponent of the average's weight. SAI allows 15 (`SAI_WRED_ATTR_WEIGHT`), and an average
/// over more than some 2¹⁵ packets is older than the queue can be.
pub const EXPONENT_MAX: u8 = 15;

/// How the probability follows the depth of the queue, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// 0 up to `kmin`, rising in a line to `pmax` at `kmax`, 1 above it.
    Linear {
        /// Depth above which packets are chosen at all.
        kmin: u32,
        /// Depth above which every packet is chosen.
        kmax: u32,
        /// Probability at `kmax`, in parts of 2¹⁶: 0 to [`ONE`].
        pmax: u32,
    },
    /// 0 up to `threshold`, 1 above it.
    Deterministic {
        /// Depth above which every packet is chosen.
        threshold: u32,
    },
}

impl Curve {
    /// Depth above which every packet is chosen, in bytes.
    pub const fn certain(self) -> u64 {
        (match self {
            Self::Linear { kmax, .. } => kmax,
            Self::Deterministic { threshold } => threshold,
        }) as u64
    }
}

/// What a queue does with packets before it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The probability.
    pub curve: Curve,
    /// Chosen packets that are ECN-capable are marked.
    pub ecn: bool,
    /// Chosen packets that are not marked are dropped.
    pub drop: bool,
    /// The depth is averaged with a weight of 2⁻ⁿ, n up to [`EXPONENT_MAX`]; `None` takes it as it
    /// is.
    pub average: Option<NonZeroU8>,
}

/// Why a [`Profile`] makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The line would go backwards.
    #[error("kmin is {kmin} bytes, above kmax, {kmax} bytes")]
    Order {
        /// Where the line begins.
        kmin: u32,
        /// Where it ends.
        kmax: u32,
    },
    /// More than certain.
    #[error("pmax is {pmax}, above {ONE}, which is 100 %")]
    Probability {
        /// The probability.
        pmax: u32,
    },
    /// The average would not follow the queue.
    #[error("the average has a weight of 2^-{exponent}; 2^-1 to 2^-{EXPONENT_MAX} are possible")]
    Weight {
        /// The exponent of the weight.
        exponent: u8,
    },
}

impl Profile {
    /// The default of a queue: ECT packets are marked and others dropped, from 0.2 to 0.8 ×
    /// `plane_bdp`, the bytes under way at the bandwidth and base round trip of the plane. The line
    /// ends at probability 1, so that it has no step.
    pub const fn derived(plane_bdp: u32) -> Self {
        Self::of(Curve::Linear {
            kmin: tenths(plane_bdp, 2),
            kmax: tenths(plane_bdp, 8),
            pmax: ONE,
        })
    }

    /// The same with one threshold, at 0.5 × `plane_bdp`.
    pub const fn deterministic(plane_bdp: u32) -> Self {
        Self::of(Curve::Deterministic {
            threshold: tenths(plane_bdp, 5),
        })
    }

    /// This curve, with marks for those that understand them and drops for the others.
    pub(crate) const fn of(curve: Curve) -> Self {
        Self {
            curve,
            ecn: true,
            drop: true,
            average: None,
        }
    }

    /// Refuses numbers that contradict each other.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self) -> Result<(), ProfileError> {
        if let Curve::Linear { kmin, kmax, pmax } = self.curve {
            if kmin > kmax {
                return Err(ProfileError::Order { kmin, kmax });
            }
            if pmax > ONE {
                return Err(ProfileError::Probability { pmax });
            }
        }
        match self.average.map(NonZeroU8::get) {
            Some(exponent) if exponent > EXPONENT_MAX => Err(ProfileError::Weight { exponent }),
            _ => Ok(()),
        }
    }
}

/// `n` tenths of `bytes`.
const fn tenths(bytes: u32, n: u32) -> u32 {
    // Without overflow: the quotient and the remainder each fit.
    bytes / 10 * n + bytes % 10 * n / 10
}
