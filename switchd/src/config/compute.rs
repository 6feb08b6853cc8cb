//! `[compute]`: in-network compute, as it is written, checked, and as the workers need it (SW-40).

use crate::compute::Settings;
use common::config::{Refusal, Refusals, whole_prefix, within};
use common::time::Span;
use common::wire::compute::{DSCP, PAYLOAD_MAX, PORT, SLOTS_MAX};
use common::wire::udp::ROCE_PORT;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// In-network compute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Compute {
    /// The switch reduces for jobs.
    pub enabled: bool,
    /// The UDP port that it is asked at.
    pub port: u16,
    /// The address from which it asks switches above; empty: there are none.
    pub address: String,
    /// Addresses of the switches above.
    pub parents: Vec<IpAddr>,
    /// Sources that may join; empty: all.
    pub members: Vec<IpNet>,
    /// A file with the secret of the fabric; empty: messages are not sealed.
    pub secret_file: PathBuf,
    /// Jobs of a worker at most.
    pub jobs: u32,
    /// Memory that the vectors of a worker's jobs may take.
    pub memory_megabytes: u32,
    /// Slots of a job at most.
    pub slots: u16,
    /// Bytes of a vector in a message at most.
    pub payload_bytes: u16,
    /// How long a member may be silent.
    pub lease_milliseconds: u64,
    /// In which time all members of a job must come.
    pub forming_seconds: u64,
    /// How long it is remembered how a job ended.
    pub remembered_seconds: u64,
    /// Differentiated services code point of what is sent.
    pub dscp: u8,
}

impl Default for Compute {
    fn default() -> Self {
        Self {
            enabled: false,
            port: PORT,
            address: String::new(),
            parents: Vec::new(),
            members: Vec::new(),
            secret_file: PathBuf::new(),
            jobs: 16,
            memory_megabytes: 64,
            slots: 1024,
            #[expect(clippy::cast_possible_truncation, reason = "1400")]
            payload_bytes: PAYLOAD_MAX as u16,
            lease_milliseconds: 2_000,
            forming_seconds: 5,
            remembered_seconds: 10,
            dscp: DSCP,
        }
    }
}

impl Compute {
    pub(super) fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, least, most| {
            refusals.keep(within(&format!("compute.{name}"), value, least, most));
        };
        check("port", self.port.into(), 1, 65_535);
        check("jobs", self.jobs.into(), 1, 1_000);
        check("memory_megabytes", self.memory_megabytes.into(), 1, 65_536);
        check("slots", self.slots.into(), 1, SLOTS_MAX as u64);
        check(
            "payload_bytes",
            self.payload_bytes.into(),
            8,
            PAYLOAD_MAX as u64,
        );
        check("lease_milliseconds", self.lease_milliseconds, 100, 60_000);
        check("forming_seconds", self.forming_seconds, 1, 600);
        check("remembered_seconds", self.remembered_seconds, 1, 600);
        check("dscp", self.dscp.into(), 0, 63);
        refusals.keep(self.check_port());
        refusals.keep(self.check_address());
        for refusal in self.wrong_parents() {
            refusals.keep::<()>(Err(refusal));
        }
        for (at, prefix) in self.members.iter().enumerate() {
            refusals.keep(whole_prefix(&format!("compute.members[{at}]"), *prefix));
        }
        refusals.or(())
    }

    /// The address from which parents are asked.
    ///
    /// # Errors
    /// It is none, it is missing, or it is of another version than that of a parent.
    fn check_address(&self) -> Result<Option<IpAddr>, Refusal> {
        let refused = |reason: String| Err(Refusal::alone("compute.address", reason));
        if self.address.is_empty() {
            return match self.parents.first() {
                None => Ok(None),
                Some(parent) => refused(format!("is missing, and {parent} is a parent")),
            };
        }
        let Ok(address) = self.address.parse::<IpAddr>() else {
            return refused(format!("{:?} is no address", self.address));
        };
        if let Some(fault) = no_switch(address) {
            return refused(format!("{address} {fault}"));
        }
        let mut others = self.parents.iter();
        match others.find(|it| it.is_ipv4() != address.is_ipv4()) {
            Some(other) => refused(format!("{address} is of another version than {other}")),
            None => Ok(Some(address)),
        }
    }

    /// # Errors
    /// The port is that of RoCEv2, whose packets would be taken for messages.
    fn check_port(&self) -> Result<(), Refusal> {
        match self.port {
            ROCE_PORT => Err(Refusal::new("compute.port", "4791 is the port of RoCEv2")),
            _ => Ok(()),
        }
    }

    /// Parents that can be none, each with its fault.
    fn wrong_parents(&self) -> impl Iterator<Item = Refusal> {
        let address = self.address.parse::<IpAddr>().ok();
        let all = self.parents.iter().enumerate();
        all.filter_map(move |(at, parent)| {
            let fault = if let Some(fault) = no_switch(*parent) {
                fault
            } else if Some(*parent) == address {
                "is the address of this switch (compute.address)"
            } else if self.parents[..at].contains(parent) {
                "is there twice"
            } else {
                return None;
            };
            let key = format!("compute.parents[{at}]");
            Some(Refusal::new(key, format!("{parent} {fault}")))
        })
    }

    /// The UDP port that the switch is asked at, if it is.
    pub fn asked_at(&self) -> Option<u16> {
        self.enabled.then_some(self.port)
    }

    /// What a worker needs.
    pub fn settings(&self, secret: Option<[u8; 32]>) -> Settings {
        let parents = self.parents.iter();
        Settings {
            port: self.port,
            address: self.check_address().ok().flatten(),
            parents: parents.map(|it| SocketAddr::new(*it, self.port)).collect(),
            members: self.members.clone(),
            secret,
            jobs: self.jobs as usize,
            memory: (self.memory_megabytes as usize) << 20,
            slots: self.slots,
            payload: self.payload_bytes,
            lease: Span::from_millis(self.lease_milliseconds),
            forming: Span::from_secs(self.forming_seconds),
            remembered: Span::from_secs(self.remembered_seconds),
            dscp: self.dscp,
        }
    }
}

impl Compute {
    /// The secret of the fabric, if messages are to be sealed.
    ///
    /// # Errors
    /// The file cannot be read, or has none.
    pub fn secret(&self) -> Result<Option<[u8; 32]>, String> {
        let path = &self.secret_file;
        if !self.enabled || path.as_os_str().is_empty() {
            return Ok(None);
        }
        let named =
            |error: &dyn Display| format!("compute.secret_file {}: {error}", path.display());
        let text = common::config::read_text(path).map_err(|error| named(&error))?;
        let secret = secret(&text).ok_or_else(|| named(&"no secret of 64 hexadecimal digits"))?;
        Ok(Some(secret))
    }
}

/// Why no switch can have this address, on a link that others share; `None`: one can.
fn no_switch(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("is unspecified"),
        _ if address.is_multicast() => Some("is a multicast address"),
        _ if address.is_loopback() => Some("is a loopback address"),
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("is the broadcast address"),
        _ => None,
    }
}

/// The secret that a file has: 64 hexadecimal digits, and white space around them. `None` if they
/// are something else.
fn secret(text: &str) -> Option<[u8; 32]> {
    let digits = text.trim();
    let mut secret = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-42: a secret is 64 digits, nothing else.
    #[test]
    fn secrets_are_64_digits() {
        let text = format!(" {}ff\n", "0a".repeat(31));
        let mut wanted = [10; 32];
        wanted[31] = 255;
        assert_eq!(secret(&text), Some(wanted));
        for wrong in [
            "",
            "0a",
            &"0g".repeat(32),
            // A number to the standard library.
            &"+a".repeat(32),
            &"0a".repeat(33),
            &"é".repeat(32),
        ] {
            assert_eq!(secret(wrong), None, "{wrong}");
        }
    }

    /// SW-40: parents are asked from an address of their version.
    #[test]
    fn parents_need_an_address() {
        let parent = vec!["10.0.0.1".parse().expect("an address")];
        let with = |address: &str| Compute {
            address: address.to_owned(),
            parents: parent.clone(),
            ..Compute::default()
        };
        for (address, complaint) in [
            ("", "is missing"),
            ("here", "is no address"),
            ("fd00::1", "another version"),
            ("224.0.0.5", "is a multicast address"),
            ("::", "is unspecified"),
            ("127.0.0.1", "is a loopback address"),
            ("255.255.255.255", "is the broadcast address"),
        ] {
            let refused = with(address).validate().expect_err(complaint);
            assert!(format!("{refused:?}").contains(complaint), "{refused:?}");
        }
        let fine = with("10.0.0.9");
        assert!(fine.validate().is_ok() && Compute::default().validate().is_ok());
        let settings = fine.settings(None);
        assert_eq!(
            settings.parents,
            ["10.0.0.1:4795".parse().expect("an address")]
        );
    }

    /// SW-40: what can be no parent is refused, and the port of another protocol.
    #[test]
    fn what_can_be_no_parent_is_refused() {
        for (parents, complaint) in [
            (
                ["10.0.0.1", "0.0.0.0"],
                "parents[1]: 0.0.0.0 is unspecified",
            ),
            (
                ["224.0.0.5", "10.0.0.1"],
                "parents[0]: 224.0.0.5 is a multicast",
            ),
            (
                ["10.0.0.1", "10.0.0.1"],
                "parents[1]: 10.0.0.1 is there twice",
            ),
            (
                ["10.0.0.1", "10.0.0.9"],
                "parents[1]: 10.0.0.9 is the address",
            ),
        ] {
            let compute = Compute {
                address: "10.0.0.9".to_owned(),
                parents: parents.map(|it| it.parse().expect("an address")).to_vec(),
                ..Compute::default()
            };
            let refused = compute.validate().expect_err(complaint).to_string();
            assert!(refused.contains(complaint), "{refused}");
        }
        let roce = Compute {
            port: 4791,
            ..Compute::default()
        };
        let refused = roce.validate().expect_err("the port").to_string();
        assert!(
            refused.contains("compute.port: 4791 is the port of RoCEv2"),
            "{refused}"
        );
    }
}
