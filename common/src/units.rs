//! Quantities that carry their unit in their type.

use crate::time::Span;
use std::fmt;
use std::str::FromStr;

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// Why a text is not a [`Rate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a data rate: write a whole number and bps, kbps, Mbps, Gbps or Tbps, like 25Gbps"
)]
pub struct RateError(String);

impl Rate {
    /// `n` bits per second.
    pub const fn from_bps(n: u64) -> Self {
        Self(n)
    }

    /// `n` million bits per second.
    pub const fn from_mbps(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// `n` thousand million bits per second.
    pub const fn from_gbps(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// Bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// The time that `bytes` bytes take at this rate, rounded up; [`Span::MAX`] at rate zero.
    pub fn time_for(self, bytes: u64) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let nanos = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The bytes that pass in `span` at this rate, rounded down.
    pub fn bytes_in(self, span: Span) -> u64 {
        let bytes = u128::from(self.0) * u128::from(span.nanos()) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let error = || RateError(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(trimmed.len());
        let number: u64 = trimmed[..digits].parse().map_err(|_| error())?;
        let factor = match trimmed[digits..].trim_start().to_ascii_lowercase().as_str() {
            "bps" | "bit/s" => 1,
            "kbps" | "kbit/s" => 1_000,
            "mbps" | "mbit/s" => 1_000_000,
            "gbps" | "gbit/s" => 1_000_000_000,
            "tbps" | "tbit/s" => 1_000_000_000_000,
            _ => return Err(error()),
        };
        number.checked_mul(factor).map(Self).ok_or_else(error)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000_000, "Tbps"),
            (1_000_000_000, "Gbps"),
            (1_000_000, "Mbps"),
            (1_000, "kbps"),
        ];
        for (factor, unit) in units {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}bps", self.0)
    }
}

impl serde::Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_shown() {
        assert_eq!("25Gbps".parse(), Ok(Rate::from_gbps(25)));
        assert_eq!(Rate::from_mbps(1500).to_string(), "1500Mbps");
        for wrong in [
            "",
            "10",
            "Gbps",
            "-1Gbps",
            "1.5Gbps",
            "99999999999999999999bps",
            "20000000Tbps",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn time_and_bytes_agree() {
        assert_eq!(Rate::from_gbps(1).time_for(125), Span::from_micros(1));
        assert_eq!(Rate::from_gbps(1).bytes_in(Span::from_millis(1)), 125_000);
        assert_eq!(Rate::from_bps(0).time_for(1), Span::MAX);
    }
}
