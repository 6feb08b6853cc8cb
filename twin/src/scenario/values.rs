//! Values of scenario files: numbers with their units.

use common::time::Span;
use serde::{Deserialize, Deserializer, de::Error};
use std::fmt::Display;
use std::str::FromStr;

/// A span of time: a number and `ns`, `us`, `ms` or `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Span);

/// A number of bytes: a number and `B`, `kB`, `MB`, `GB` or `KiB`, `MiB`, `GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A part of one, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance(pub f64);

/// Number and unit of a text, and what a unit is worth.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.len() > 9 {
        return None;
    }
    let digits: u128 = format!("{whole}{part}").parse().ok()?;
    let scaled = digits.checked_mul(u128::from(*factor))?;
    let scaled = scaled / 10_u128.pow(u32::try_from(part.len()).ok()?);
    u64::try_from(scaled).ok()
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: &[(&str, u64)] = &[
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
        ];
        scaled(text, UNITS)
            .map(|nanos| Self(Span::from_nanos(nanos)))
            .ok_or_else(|| {
                format!("{text:?} is not a time: write a number and ns, us, ms or s, like 10us")
            })
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: &[(&str, u64)] = &[
            ("B", 1),
            ("kB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
        ];
        scaled(text, UNITS)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a size: write a number and B, kB, MB, GB, KiB, MiB or GiB, like 2MB"))
    }
}

fn from_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: Display,
{
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl<'de> Deserialize<'de> for Chance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(D::Error::custom(format!("{number} is not between 0 and 1")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!("2.5us".parse(), Ok(Period(Span::from_nanos(2500))));
        assert_eq!("10 ms".parse(), Ok(Period(Span::from_millis(10))));
        assert_eq!("2MB".parse(), Ok(Bytes(2_000_000)));
        assert_eq!("0.5KiB".parse(), Ok(Bytes(512)));
        for wrong in [
            "",
            "10",
            "us",
            "-1us",
            "1 hour",
            "99999999999s",
            "1.2.3s",
            "1e3us",
        ] {
            assert!(wrong.parse::<Period>().is_err(), "{wrong}");
        }
        assert!("3 apples".parse::<Bytes>().is_err());
    }
}
