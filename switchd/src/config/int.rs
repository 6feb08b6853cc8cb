//! `[int]`: telemetry in the tags of packets, as it is written, checked, and as the workers need it
//! (SW-52).

use super::rules::{check_patterns, matches_pattern};
use crate::tables::csig::Mode;
use crate::tables::int::PortInt;
use common::config::Refusals;
use common::csig::check_tpid;
use common::wire::int::TPID;
use serde::{Deserialize, Serialize};

/// In-band telemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Int {
    /// Tags are known.
    pub enabled: bool,
    /// Their TPID.
    pub tpid: u16,
    /// Ports that do not just write themselves into all tags.
    pub port: Vec<Port>,
}

/// What some ports do with tags. Of several sections about a port the last that says something
/// holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Names or patterns; empty: all.
    #[serde(default)]
    pub ports: Vec<String>,
    /// What becomes of tags of packets that leave there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Tags of packets that arrive there are believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
}

impl Default for Int {
    fn default() -> Self {
        Self {
            enabled: false,
            tpid: TPID,
            port: Vec::new(),
        }
    }
}

impl Int {
    /// `others`: the TPIDs of other tags, with the keys that say so.
    pub(super) fn validate(
        &self,
        others: &[(&str, u16)],
        is_port: impl Fn(&str) -> bool,
    ) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.keep(check_tpid("int.tpid", self.tpid, others));
        for (place, port) in self.port.iter().enumerate() {
            let key = format!("int.port[{place}].ports");
            refusals.keep(check_patterns(&key, &port.ports, &is_port));
        }
        refusals.or(())
    }

    /// What the port `name` does with tags; `None` while nobody knows any.
    pub fn of_port(&self, name: &str) -> Option<PortInt> {
        self.enabled.then(|| {
            let its = self.port.iter().filter(|it| {
                it.ports.is_empty() || it.ports.iter().any(|form| matches_pattern(form, name))
            });
            let port = PortInt {
                tpid: self.tpid,
                mode: Mode::default(),
                is_trusted: true,
            };
            its.fold(port, |port, it| PortInt {
                mode: it.mode.unwrap_or(port.mode),
                is_trusted: it.trusted.unwrap_or(port.is_trusted),
                ..port
            })
        })
    }
}
