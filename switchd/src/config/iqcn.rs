//! `[iqcn]`: congestion notifications that senders miss, as it is written and checked (SW-25).

use super::flows::Flows;
use crate::iqcn::Rules;
use common::config::{Refusal, Refusals, within};
use common::time::Span;
use serde::{Deserialize, Serialize};

/// The most flows that may be asked for: their entries take 100 MB.
const FLOWS_MAX: u64 = 200_000;

/// What the switch adds to the notifications of receivers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Iqcn {
    /// Missing notifications are made.
    pub enabled: bool,
    /// Flows for which they are, at most.
    pub max_flows: u32,
    /// After so long without a notification senders raise their rate.
    pub increase_microseconds: u64,
    /// None is made sooner after the last one.
    pub min_interval_microseconds: u64,
    /// A flow that has got none of its receiver for so long gets none of the switch.
    pub forget_milliseconds: u64,
    /// A queue is congested above this share of the depth at which it marks all packets.
    pub congested_percent: u32,
    /// DSCP of notifications.
    pub dscp: u8,
}

impl Default for Iqcn {
    fn default() -> Self {
        Self {
            enabled: false,
            max_flows: 10_000,
            increase_microseconds: 50,
            min_interval_microseconds: 50,
            forget_milliseconds: 100,
            congested_percent: 100,
            dscp: 48,
        }
    }
}

impl Iqcn {
    pub(super) fn validate(&self, flows: &Flows) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, least, most| {
            refusals.keep(within(&format!("iqcn.{name}"), value, least, most));
        };
        check("max_flows", self.max_flows.into(), 16, FLOWS_MAX);
        let increase = self.increase_microseconds;
        check("increase_microseconds", increase, 1, 1_000_000);
        let least = self.min_interval_microseconds;
        check("min_interval_microseconds", least, 1, 1_000_000);
        check("forget_milliseconds", self.forget_milliseconds, 1, 60_000);
        let percent = self.congested_percent.into();
        check("congested_percent", percent, 1, 1_000);
        check("dscp", self.dscp.into(), 0, 63);
        if self.enabled && !flows.enabled {
            let reason = "needs flows.enabled: flow analysis finds out which queue pairs \
                          notifications are for";
            refusals.add(Refusal::alone("iqcn.enabled", reason));
        }
        let interval = self.rules().interval();
        if self.rules().forget < interval {
            let reason = format!(
                "{} ms are less than the interval after which a notification is missing, {interval}",
                self.forget_milliseconds
            );
            refusals.add(Refusal::alone("iqcn.forget_milliseconds", reason));
        }
        refusals.or(())
    }

    /// As the workers follow it.
    pub fn rules(&self) -> Rules {
        Rules {
            increase: Span::from_micros(self.increase_microseconds),
            least: Span::from_micros(self.min_interval_microseconds),
            forget: Span::from_millis(self.forget_milliseconds),
            congested_percent: self.congested_percent,
            dscp: self.dscp,
        }
    }
}
