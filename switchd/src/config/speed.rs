//! The speeds of a port in the configuration: a rate, or where the rate comes from.

use common::units::Rate;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The speed of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// The speed that the device reports; no shaper if it reports none.
    Device,
    /// No shaper.
    Unlimited,
    /// This.
    Rate(Rate),
}

impl Speed {
    /// The rate to enforce on a device that reports this speed.
    pub fn of(self, device: Option<Rate>) -> Option<Rate> {
        match self {
            Self::Device => device,
            Self::Unlimited => None,
            Self::Rate(rate) => Some(rate),
        }
    }
}

/// The speed of a port's link: what bits take on it, however slowly they are let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkSpeed {
    /// The speed that the device reports; that of the shaper if it reports none.
    #[default]
    Device,
    /// This.
    Rate(Rate),
}

impl LinkSpeed {
    /// The speed of the link of a device that reports `device`, at a port shaped to `shaper`.
    pub fn of(self, device: Option<Rate>, shaper: Option<Rate>) -> Option<Rate> {
        match self {
            Self::Device => device.or(shaper),
            Self::Rate(rate) => Some(rate),
        }
    }
}

impl FromStr for LinkSpeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "device" => Ok(Self::Device),
            rate => match rate.parse() {
                Ok(rate) if rate > Rate::from_bps(0) => Ok(Self::Rate(rate)),
                Ok(_) => Err("a link of speed 0 carries nothing".to_owned()),
                Err(error) => Err(format!("{error}; or device")),
            },
        }
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("device"),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

impl Serialize for LinkSpeed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LinkSpeed {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "device" => Ok(Self::Device),
            "unlimited" => Ok(Self::Unlimited),
            rate => match rate.parse() {
                Ok(rate) if rate > Rate::from_bps(0) => Ok(Self::Rate(rate)),
                Ok(_) => Err("a port of speed 0 sends nothing".to_owned()),
                Err(error) => Err(format!("{error}; or device, or unlimited")),
            },
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("device"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

impl Serialize for Speed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
