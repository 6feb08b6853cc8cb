//! `[flows]`: RoCEv2 flow analysis, as it is written and checked (SW-50).

use common::config::{Refusal, Refusals, within};
use common::time::Span;
use common::units::Rate;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The most flows that may be asked for: their slots take 90 MB in each worker.
const FLOWS_MAX: u64 = 200_000;

/// Flow analysis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flows {
    /// Flows are followed.
    pub enabled: bool,
    /// Flows that a worker follows at most.
    pub max_flows: u32,
    /// A flow that goes on for this long is told to the collector, and counts its NAKs from zero.
    pub active_seconds: u64,
    /// A flow in which nothing passes for this long is over.
    pub inactive_seconds: u64,
    /// A direction that sends at this rate is an elephant: its rate is shown.
    pub elephant_rate: Rate,
    /// Where records are sent: address and port; empty for none.
    pub collector: String,
    /// How often the collector is told what records have.
    pub template_seconds: u64,
    /// Whose the fields are that IANA does not have.
    pub enterprise: u32,
    /// Tells this switch from others at a collector.
    pub observation_domain: u32,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            enabled: false,
            max_flows: 10_000,
            active_seconds: 60,
            inactive_seconds: 15,
            elephant_rate: Rate::from_mbps(100),
            collector: String::new(),
            template_seconds: 30,
            enterprise: 32_473,
            observation_domain: 1,
        }
    }
}

impl Flows {
    pub(super) fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, least, most| {
            refusals.keep(within(&format!("flows.{name}"), value, least, most));
        };
        check("max_flows", self.max_flows.into(), 16, FLOWS_MAX);
        check("active_seconds", self.active_seconds, 1, 86_400);
        check("inactive_seconds", self.inactive_seconds, 1, 86_400);
        check("template_seconds", self.template_seconds, 1, 86_400);
        check("enterprise", self.enterprise.into(), 1, u32::MAX.into());
        refusals.keep(self.collector());
        refusals.or(())
    }

    /// Where records are sent.
    ///
    /// # Errors
    /// What is written is no address with a port.
    pub fn collector(&self) -> Result<Option<SocketAddr>, Refusal> {
        if self.collector.is_empty() {
            return Ok(None);
        }
        let address = self.collector.parse::<SocketAddr>().ok();
        let address = address.filter(|it| it.port() != 0 && !it.ip().is_unspecified());
        address.map(Some).ok_or_else(|| {
            let reason = format!(
                "{:?} is no address with a port, such as 192.0.2.1:4739 or [2001:db8::1]:4739",
                self.collector
            );
            Refusal::alone("flows.collector", reason)
        })
    }

    /// The active time.
    pub fn active(&self) -> Span {
        Span::from_secs(self.active_seconds)
    }

    /// The inactive time.
    pub fn inactive(&self) -> Span {
        Span::from_secs(self.inactive_seconds)
    }
}
