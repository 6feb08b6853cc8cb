//! Values that follow from the configuration and from what the ports are: for who wants to see the
//! numbers that are in force.

use super::facts::PortFacts;
use super::policy::Planned;
use super::schema::Config;
use crate::limits::CELL;
use crate::tables::dlb::{Mode, sampling_interval};
use common::time::Span;
use common::units::Rate;
use common::wire::schedule::PauseTerms;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A value of a port that nobody wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DerivedValue {
    /// Interface.
    pub port: String,
    /// What it is, with its unit.
    pub name: String,
    /// The value.
    pub value: String,
    /// The keys and facts that it follows from.
    pub from: String,
}

/// These values as comments behind a configuration that is TOML.
pub fn comments(values: &[DerivedValue]) -> String {
    let mut text = String::new();
    for it in values {
        let _ = writeln!(
            text,
            "# {}: {} = {}  # derived from {}",
            it.port, it.name, it.value, it.from
        );
    }
    text
}

impl Config {
    /// What follows for these ports, each with what its headroom was computed to be made of, if it
    /// was.
    pub fn derived_of<'a>(
        &self,
        ports: impl Iterator<Item = (&'a PortFacts, Option<&'a Planned>)>,
    ) -> Vec<DerivedValue> {
        let rows = ports.flat_map(|(facts, headroom)| {
            let mut rows = self.of_port(facts);
            if let Some(planned) = headroom {
                let from =
                    "qos.headroom, the speed of the link and the MTU; see `switchctl headroom`";
                let bytes = planned.made_of.cells() * CELL as u64;
                rows.push(("headroom_bytes", bytes.to_string(), from));
            }
            let row = |(name, value, from): (&str, String, &str)| DerivedValue {
                port: facts.name.clone(),
                name: name.to_owned(),
                value,
                from: from.to_owned(),
            };
            rows.into_iter().map(row).collect::<Vec<_>>()
        });
        rows.collect()
    }

    fn of_port(&self, facts: &PortFacts) -> Vec<(&'static str, String, &'static str)> {
        let mut rows = Vec::new();
        let rate = |speed: Option<Rate>| {
            speed.map_or_else(|| "unlimited".to_owned(), |speed| speed.to_string())
        };
        rows.push(("speed", rate(facts.speed), "speed and the device"));
        if facts.link.is_some() {
            rows.push(("link_speed", rate(facts.link), "link_speed and the device"));
        }
        if facts.speed.is_some() {
            let from = "burst_microseconds and speed";
            rows.push(("burst_bytes", facts.burst.to_string(), from));
        }
        if let Some(PauseTerms { response, backlog }) = self.qos.pause_terms(facts) {
            let nanos = response.map_or(0, Span::nanos);
            let from = "qos.headroom.poll_gap_microseconds: what it announces to its peer";
            rows.push(("peer_response_nanoseconds", nanos.to_string(), from));
            let from =
                "burst_bytes and qos.headroom.poll_gap_microseconds: what it announces to its peer";
            let from = match facts.speed {
                Some(_) => from,
                None => "memory.ring and the MTU: what it announces to its peer",
            };
            rows.push(("peer_backlog_bytes", backlog.to_string(), from));
        }
        if self.memory.ring.is_auto() {
            let from = "memory.ring: for lossless groups from the speed of the link, \
                        qos.headroom.poll_gap_microseconds and shortest_frame_bytes";
            rows.push(("receive_ring", facts.ring.to_string(), from));
        }
        let dlb = &self.ecmp.dlb;
        if dlb.mode != Mode::Off || !dlb.group.is_empty() {
            let configured = Span::from_micros(dlb.sampling_interval_microseconds);
            let interval = sampling_interval(configured, facts.speed);
            let micros = interval.nanos().div_ceil(1_000).to_string();
            let from = "ecmp.dlb.sampling_interval_microseconds and speed";
            rows.push(("sampling_interval_microseconds", micros, from));
        }
        rows
    }
}
