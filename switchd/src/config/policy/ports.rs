//! Which ports a section of `[qos]` is about.

use crate::config::facts::PortFacts;
use crate::config::qos::Qos;
use crate::config::rules::{is_pattern, matches_pattern};
use common::config::{Refusal, Refusals};

/// Whether a section with these `patterns` applies to the port `name`.
pub(super) fn concerns(patterns: &[String], name: &str) -> bool {
    patterns.is_empty()
        || patterns
            .iter()
            .any(|pattern| matches_pattern(pattern, name))
}

impl Qos {
    /// The names and patterns of ports in all sections, with their keys.
    pub(in crate::config) fn named_ports(&self) -> impl Iterator<Item = (String, &str)> {
        let of = self.group.iter().map(|it| &it.ports).enumerate();
        let groups = of.map(|(place, ports)| (format!("qos.group[{place}]"), ports));
        let of = self.queue.iter().map(|it| &it.ports).enumerate();
        let queues = of.map(|(place, ports)| (format!("qos.queue[{place}]"), ports));
        let of = self.headroom.port.iter().map(|it| &it.ports).enumerate();
        let cables = of.map(|(place, ports)| (format!("qos.headroom.port[{place}]"), ports));
        let of = self
            .flow_control
            .port
            .iter()
            .map(|it| &it.ports)
            .enumerate();
        let pauses = of.map(|(place, ports)| (format!("qos.flow_control.port[{place}]"), ports));
        let sections = groups.chain(queues).chain(cables).chain(pauses);
        sections.flat_map(|(section, ports)| {
            let names = ports.iter().enumerate();
            names.map(move |(place, name)| (format!("{section}.ports[{place}]"), name.as_str()))
        })
    }

    /// Refuses names that no port has: they are most likely mistyped. What matches a pattern may
    /// come later.
    pub(super) fn check_names(&self, ports: &[PortFacts]) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let unknown = self.nobodys(ports).filter(|(_, name)| !is_pattern(name));
        for (key, name) in unknown {
            refusals.add(Refusal::new(key, nobody(name, ports)));
        }
        refusals.or(())
    }

    /// A warning for each pattern that no port matches yet.
    pub fn pattern_warnings(&self, ports: &[PortFacts]) -> Vec<String> {
        self.idle_patterns(ports)
            .map(|(key, name)| format!("{key}: {} so far", nobody(name, ports)))
            .collect()
    }

    /// The patterns that no port matches, with their keys.
    pub fn idle_patterns(&self, ports: &[PortFacts]) -> impl Iterator<Item = (String, &str)> {
        self.nobodys(ports).filter(|(_, name)| is_pattern(name))
    }

    fn nobodys(&self, ports: &[PortFacts]) -> impl Iterator<Item = (String, &str)> {
        self.named_ports().filter(move |(_, name)| {
            let is_port = |port: &PortFacts| matches_pattern(name, &port.name);
            // Without ports there is nothing to compare with.
            !ports.is_empty() && !ports.iter().any(is_port)
        })
    }
}

/// What is wrong with the name or pattern of no port.
pub(in crate::config) fn nobody(name: &str, ports: &[PortFacts]) -> String {
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let what = match is_pattern(name) {
        true => "no port matches",
        false => "no port is called",
    };
    let there = match names.is_empty() {
        true => "is none".to_owned(),
        false => format!("are {}", names.join(", ")),
    };
    format!("{what} {name:?}; there {there}")
}
