//! Collectives that switches compute: `[collective]`.

use crate::limits;
use crate::verbs::{CollectiveConfig, Secret};
use common::config::{Refusals, within};
use common::time::Span;
use common::wire::compute::{DSCP, PORT, SLOTS_MAX};
use common::wire::ip::Ecn;
use common::wire::udp::ROCE_PORT;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// `[collective]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Collective {
    /// Address of the switch that members ask; without it there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<IpAddr>,
    /// UDP port of switches, and of this host towards them.
    pub port: u16,
    /// File with the secret of the fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// DSCP of messages.
    pub dscp: u8,
    /// Memberships in all.
    pub memberships: u32,
    /// Slots of a membership at most.
    pub slots: u16,
    /// Memory for results that wait for their turn, in MiB.
    pub staging_mib: u64,
    /// Milliseconds that a job may take to be complete.
    pub join_timeout_ms: u64,
    /// Microseconds after which a contribution is sent again at the earliest.
    pub rto_min_us: u64,
    /// The same before a result came.
    pub rto_initial_us: u64,
}

impl Default for Collective {
    fn default() -> Self {
        Self {
            leaf: None,
            port: PORT,
            secret_file: None,
            dscp: DSCP,
            memberships: 256,
            slots: 512,
            staging_mib: 64,
            join_timeout_ms: 30_000,
            rto_min_us: 2_000,
            rto_initial_us: 20_000,
        }
    }
}

impl Collective {
    pub(super) fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, low, high| {
            refusals.keep(within(&format!("collective.{name}"), value, low, high));
        };
        let slots = u64::try_from(SLOTS_MAX).unwrap_or(u64::MAX);
        check("port", self.port.into(), 1, u16::MAX.into());
        check("dscp", self.dscp.into(), 0, 63);
        check(
            "memberships",
            self.memberships.into(),
            1,
            limits::MEMBERSHIPS.into(),
        );
        check("slots", self.slots.into(), 1, slots);
        check("staging_mib", self.staging_mib, 1, 4096);
        check("join_timeout_ms", self.join_timeout_ms, 100, 600_000);
        check("rto_min_us", self.rto_min_us, 100, 1_000_000);
        let least = self.rto_min_us.clamp(100, 1_000_000);
        check("rto_initial_us", self.rto_initial_us, least, 1_000_000);
        refusals.require(
            self.port != ROCE_PORT,
            "collective.port",
            "is the port of RoCEv2",
        );
        let named = self
            .leaf
            .is_none_or(|it| !it.is_unspecified() && !it.is_multicast());
        refusals.require(named, "collective.leaf", "is no address of a switch");
        refusals.or(())
    }

    /// The UDP port that hostd sends from to the switch; none without a leaf.
    pub fn own_port(&self) -> Option<u16> {
        self.leaf.map(|_| self.port)
    }

    /// What the engine goes by, but for the secret; nothing without a leaf.
    pub fn engine(&self) -> Option<CollectiveConfig> {
        Some(CollectiveConfig {
            leaf: self.leaf?,
            port: self.port,
            secret: None,
            class: self.dscp << 2 | Ecn::Ect0.bits(),
            slots: self.slots,
            memberships: self.memberships,
            staging: self.staging_mib << 20,
            join_timeout: Span::from_millis(self.join_timeout_ms),
            rto_min: Span::from_micros(self.rto_min_us),
            rto_initial: Span::from_micros(self.rto_initial_us),
        })
    }

    /// Reads the secret of the fabric, if there is to be one.
    ///
    /// # Errors
    /// The file cannot be read, or has something else than 64 hexadecimal digits.
    pub fn secret(&self) -> io::Result<Option<Secret>> {
        let Some(path) = self.secret_file.as_ref().filter(|_| self.leaf.is_some()) else {
            return Ok(None);
        };
        let named = |error: &dyn std::fmt::Display| {
            io::Error::other(format!(
                "collective.secret_file {}: {error}",
                path.display()
            ))
        };
        let text = common::config::read_text(path).map_err(|error| named(&error))?;
        let secret = digits(text.trim_end());
        let secret = secret.ok_or_else(|| named(&"it is not 64 hexadecimal digits"))?;
        Ok(Some(Secret(secret)))
    }
}

/// 32 bytes of 64 hexadecimal digits.
fn digits(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        let two = text.get(at..at + 2)?;
        let plain = two.bytes().all(|it| it.is_ascii_hexdigit());
        *byte = u8::from_str_radix(two, 16).ok().filter(|_| plain)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-42: a secret is 64 hexadecimal digits, and an error names the key and the file.
    #[test]
    fn secrets_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let wanted = Collective {
            leaf: Some(IpAddr::from([10, 0, 0, 1])),
            secret_file: Some(path.clone()),
            ..Collective::default()
        };
        let error = wanted.secret().expect_err("there is no file").to_string();
        assert!(error.starts_with("collective.secret_file"), "{error}");
        std::fs::write(&path, format!("{}\n", "0aF1".repeat(16))).expect("written");
        let secret = wanted.secret().expect("a secret").expect("a secret");
        assert_eq!(secret.0[..4], [0x0a, 0xf1, 0x0a, 0xf1]);
        for wrong in [
            "",
            "0a",
            &"+1".repeat(32),
            &"0aF1".repeat(17),
            &"xy".repeat(32),
        ] {
            std::fs::write(&path, wrong).expect("written");
            assert!(wanted.secret().is_err(), "{wrong:?}");
        }
        let none = Collective {
            leaf: None,
            ..wanted
        };
        assert_eq!(none.secret().expect("it is not read"), None);
    }
}
