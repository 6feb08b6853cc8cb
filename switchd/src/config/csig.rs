//! `[csig]`: congestion signals in the tags of packets, as they are written, checked, and as the
//! workers need them (CS-1 to CS-7).

use super::rules::{check_patterns, matches_pattern};
use crate::tables::csig::{Domain, Estimator, Measure, Mode, PortCsig, Rule};
use common::config::{Refusals, within};
use common::csig::{Bandwidth, Delay, Share, SignalName, check_scales, check_tpids, scales};
use common::time::Span;
use common::wire::csig::{Form, Signal, Tpids};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Congestion signals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Csig {
    /// Tags are known.
    pub enabled: bool,
    /// TPID of compact tags.
    pub compact_tpid: u16,
    /// TPID of expanded tags.
    pub expanded_tpid: u16,
    /// How the load of a port is measured,
    pub estimator: Estimator,
    /// and over which time.
    pub window_microseconds: u64,
    /// The same for the share of the capacity, where it is measured otherwise than the bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_estimator: Option<Estimator>,
    /// As `share_estimator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_window_microseconds: Option<u64>,
    /// How available bandwidth is written.
    pub bandwidth: Bandwidth,
    /// How the available share of the capacity is written.
    pub share: Share,
    /// How delays are written.
    pub delay: Delay,
    /// Ports that do not just update all tags.
    pub port: Vec<Port>,
}

/// What some ports do with tags. Of several sections about a port and a signal the last that says
/// something holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Names or patterns; empty: all.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Signals that mode and locators are about; empty: all.
    #[serde(default)]
    pub signals: Vec<SignalName>,
    /// What becomes of tags of packets that leave there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Locator in compact tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locator: Option<u16>,
    /// Locator in expanded tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expanded_locator: Option<u16>,
    /// Tags of packets that arrive there are believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
}

impl Default for Csig {
    fn default() -> Self {
        let tpids = Tpids::default();
        Self {
            enabled: false,
            compact_tpid: tpids.compact,
            expanded_tpid: tpids.expanded,
            estimator: Estimator::Window,
            window_microseconds: 100,
            share_estimator: None,
            share_window_microseconds: None,
            bandwidth: Bandwidth::default(),
            share: Share::default(),
            delay: Delay::default(),
            port: Vec::new(),
        }
    }
}

fn key(name: &str) -> String {
    format!("csig.{name}")
}

impl Csig {
    pub(super) fn validate(&self, is_port: impl Fn(&str) -> bool) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.keep(check_tpids(self.tpids()));
        for (name, window) in [
            ("window_microseconds", Some(self.window_microseconds)),
            ("share_window_microseconds", self.share_window_microseconds),
        ] {
            refusals.keep(window.map_or(Ok(()), |it| within(&key(name), it, 10, 1_000_000)));
        }
        refusals.keep(check_scales(&self.bandwidth, &self.share, &self.delay));
        for (place, port) in self.port.iter().enumerate() {
            refusals.keep(port.validate(&format!("port[{place}]"), &is_port));
        }
        refusals.or(())
    }

    /// What the port `name` does with tags; `None` while nobody knows any.
    pub fn of_port(&self, name: &str) -> Option<Arc<PortCsig>> {
        self.enabled.then(|| {
            let mut port = PortCsig {
                domain: Arc::new(self.domain()),
                is_trusted: true,
                rules: [Rule::default(); Signal::ALL.len()],
            };
            let its = |it: &&Port| {
                it.ports.is_empty() || it.ports.iter().any(|form| matches_pattern(form, name))
            };
            self.port
                .iter()
                .filter(its)
                .for_each(|it| it.fill(&mut port));
            Arc::new(port)
        })
    }

    /// What all devices agree on.
    pub fn domain(&self) -> Domain {
        Domain {
            tpids: self.tpids(),
            measures: self.measures(),
            scales: scales(&self.bandwidth, &self.share, &self.delay),
        }
    }

    /// How load is measured: for the bandwidth that is available, and for its share.
    fn measures(&self) -> [Measure; 2] {
        let measure = |estimator, microseconds| Measure {
            estimator,
            window: Span::from_micros(microseconds),
        };
        let window = self.window_microseconds;
        [
            measure(self.estimator, window),
            measure(
                self.share_estimator.unwrap_or(self.estimator),
                self.share_window_microseconds.unwrap_or(window),
            ),
        ]
    }

    const fn tpids(&self) -> Tpids {
        Tpids {
            compact: self.compact_tpid,
            expanded: self.expanded_tpid,
            ..Tpids::NONE
        }
    }
}

impl Port {
    fn validate(&self, place: &str, is_port: impl Fn(&str) -> bool) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let key = |name: &str| key(&format!("{place}.{name}"));
        refusals.keep(check_patterns(&key("ports"), &self.ports, is_port));
        for (name, form, locator) in [
            ("locator", Form::Compact, self.locator),
            ("expanded_locator", Form::Expanded, self.expanded_locator),
        ] {
            let most = form.locator_max().into();
            let locator = locator.unwrap_or_default().into();
            refusals.keep(within(&key(name), locator, 0, most));
        }
        refusals.or(())
    }

    /// Fills in what this section says.
    fn fill(&self, port: &mut PortCsig) {
        port.is_trusted = self.trusted.unwrap_or(port.is_trusted);
        for signal in Signal::ALL {
            let is_about = |name: &SignalName| Signal::from(*name) == signal;
            if !self.signals.is_empty() && !self.signals.iter().any(is_about) {
                continue;
            }
            let rule = &mut port.rules[usize::from(signal.number())];
            rule.mode = self.mode.unwrap_or(rule.mode);
            let [compact, expanded] = rule.locators;
            rule.locators = [
                self.locator.unwrap_or(compact),
                self.expanded_locator.unwrap_or(expanded),
            ];
        }
    }
}
