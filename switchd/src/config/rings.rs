//! `memory.ring`: the rings of a queue, as they are written.

use common::xdp::limits::{RING_MAX, RING_MIN};
use serde::{Deserialize, Serialize};

/// Descriptors on the rings of a queue of which nothing else is known: the transmit ring, and the
/// receive ring of a port that may drop.
pub const RING_DEFAULT: u32 = 1024;

const _: () = assert!(RING_MIN <= RING_DEFAULT && RING_DEFAULT <= RING_MAX);

/// How many descriptors the rings of a queue have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingSize {
    /// [`RING_DEFAULT`], and on the receive ring of a lossless port as many as it needs.
    #[default]
    Auto,
    /// So many on both, whatever the port needs.
    Descriptors(u32),
}

impl RingSize {
    /// Descriptors on the receive ring of a port that `needs` so many, if it must not lose any.
    pub fn receive(self, needs: Option<u64>) -> u32 {
        match (self, needs) {
            (Self::Descriptors(ring), _) => ring,
            (Self::Auto, None) => RING_DEFAULT,
            (Self::Auto, Some(needs)) => u32::try_from(needs)
                .unwrap_or(RING_MAX)
                .min(RING_MAX)
                .next_power_of_two()
                .max(RING_DEFAULT),
        }
    }

    /// Descriptors on the transmit ring.
    pub const fn transmit(self) -> u32 {
        match self {
            Self::Descriptors(ring) => ring,
            Self::Auto => RING_DEFAULT,
        }
    }

    /// Whether it says no number.
    pub const fn is_auto(self) -> bool {
        matches!(self, Self::Auto)
    }
}

impl Serialize for RingSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Descriptors(ring) => serializer.serialize_u32(*ring),
        }
    }
}

impl<'de> Deserialize<'de> for RingSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = RingSize;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of descriptors or \"auto\"")
            }

            fn visit_u64<E: serde::de::Error>(self, ring: u64) -> Result<RingSize, E> {
                let ring = u32::try_from(ring)
                    .map_err(|_| E::custom(format_args!("{ring} descriptors are too many")))?;
                Ok(RingSize::Descriptors(ring))
            }

            fn visit_i64<E: serde::de::Error>(self, ring: i64) -> Result<RingSize, E> {
                let ring = u64::try_from(ring)
                    .map_err(|_| E::custom(format_args!("{ring} is no number of descriptors")))?;
                self.visit_u64(ring)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RingSize, E> {
                match text {
                    "auto" => Ok(RingSize::Auto),
                    _ => Err(E::custom(format_args!(
                        "{text:?} is neither a number of descriptors nor \"auto\""
                    ))),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
