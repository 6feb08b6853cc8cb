//! From `[qos]` to what the engine works with: bytes become cells, patterns become ports, headroom
//! is computed, and what does not fit together is refused with its numbers (SW-11).

mod classify;
mod elephants;
mod flow_control;
mod groups;
mod headroom;
mod limit;
mod queues;
mod relations;
mod trim;
mod uet;

use super::facts::PortFacts;
use super::qos::{self, Qos};
use super::rules::{cells, matches_pattern, within};
use crate::limits::{CELL, MAX_CELLS};
use crate::tables::policy::{Policy, PolicyError, PortPolicy};
use crate::traffic::headroom::Breakdown;
use common::config::Refusal;

/// A compiled `[qos]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The policy.
    pub policy: Policy,
    /// What is possible but unwise.
    pub warnings: Vec<String>,
    /// By port: what headroom was computed from and is made of, if any group of it has computed
    /// headroom.
    pub headroom: Vec<Option<Breakdown>>,
}

impl Qos {
    /// Compiles the policy for these ports.
    ///
    /// # Errors
    /// The first key that is impossible, or breaks a relation to others, with the numbers.
    pub fn compile(&self, ports: &[PortFacts]) -> Result<Compiled, Refusal> {
        let size = self.buffer.size_bytes;
        let most = u64::from(MAX_CELLS) * CELL as u64;
        within("qos.buffer.size_bytes", u64::from(size), 16 << 10, most)?;
        let mut policy = Policy::plain(ports.len(), cells(self.queue_depth_bytes));
        policy.classify = self.classify()?;
        policy.trim = self.trim.compile()?;
        policy.hook = self.hook.map(qos::Hook::compile).transpose()?;
        within(
            "qos.base_rtt_microseconds",
            self.base_rtt_microseconds,
            1,
            1_000_000,
        )?;
        policy.elephants = elephants::compile(&self.elephants)?;
        self.check_headroom()?;
        policy.watchdog = self.watchdog()?;
        let mut headroom = vec![None; ports.len()];
        for (number, facts) in ports.iter().enumerate() {
            let port = &mut policy.ports[number];
            self.fill_limits(port);
            port.uplink = facts.uplink;
            for (place, group) in self.group.iter().enumerate() {
                if concerns(&group.ports, &facts.name) {
                    let computed = self.fill_groups(place, group, facts, port)?;
                    headroom[number] = computed.or(headroom[number]);
                }
            }
            for (place, queue) in self.queue.iter().enumerate() {
                if concerns(&queue.ports, &facts.name) {
                    self.fill_queues(place, queue, facts, port)?;
                }
            }
            port.flow_control = self.flow_control(&policy.classify, port, facts)?;
        }
        for (place, group) in self.group.iter().enumerate() {
            known(&format!("qos.group[{place}].ports"), &group.ports, ports)?;
        }
        for (place, queue) in self.queue.iter().enumerate() {
            known(&format!("qos.queue[{place}].ports"), &queue.ports, ports)?;
        }
        let pool = self.buffer.shared_headroom_bytes;
        let pool = (pool > 0).then(|| cells(pool));
        headroom::check_pool(&policy, pool, ports)?;
        policy
            .divide(cells(size), pool)
            .map_err(|error| refused(error, ports))?;
        let mut warnings = relations::check(&policy, ports)?;
        warnings.extend(self.lateness_warnings(&policy, ports));
        warnings.extend(trim::warnings(&policy));
        Ok(Compiled {
            policy,
            warnings,
            headroom,
        })
    }

    fn fill_limits(&self, port: &mut PortPolicy) {
        let limit = |bytes: u32| match bytes {
            0 => MAX_CELLS,
            bytes => cells(bytes),
        };
        port.ingress_limit = limit(self.buffer.ingress_limit_bytes);
        port.egress_limit = limit(self.buffer.egress_limit_bytes);
    }
}

/// An error of the engine as a refusal that names the key and the port.
fn refused(error: PolicyError, ports: &[PortFacts]) -> Refusal {
    match error {
        PolicyError::Wred { port, queue, error } => {
            let reason = format!("{}, queue {queue}: {error}", ports[port].name);
            Refusal::new("qos.queue.wred", reason)
        }
        error => Refusal::new("qos.buffer.size_bytes", error.to_string()),
    }
}

/// Whether a section with these `patterns` applies to the port `name`.
fn concerns(patterns: &[String], name: &str) -> bool {
    patterns.is_empty()
        || patterns
            .iter()
            .any(|pattern| matches_pattern(pattern, name))
}

/// Refuses a pattern that matches no port: it is most likely mistyped.
fn known(key: &str, patterns: &[String], ports: &[PortFacts]) -> Result<(), Refusal> {
    let unknown = patterns.iter().find(|pattern| {
        !ports
            .iter()
            .any(|port| matches_pattern(pattern, &port.name))
    });
    match unknown {
        // Before the devices are known there are no ports to compare with.
        Some(pattern) if !ports.is_empty() => {
            Err(Refusal::new(key, format!("no port is called {pattern:?}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::wred::ProfileError;

    /// SW-11: what the engine refuses about a queue names its port as the operator does.
    #[test]
    fn ports_are_called_by_their_names() {
        let port = PortFacts {
            name: "swp7".to_owned(),
            speed: None,
            mtu: 1500,
            ring: 1024,
            uplink: false,
        };
        let error = PolicyError::Wred {
            port: 0,
            queue: 3,
            error: ProfileError::Order { kmin: 2, kmax: 1 },
        };
        let refusal = refused(error, &[port]);
        assert_eq!(refusal.key, "qos.queue.wred");
        assert!(refusal.reason.starts_with("swp7, queue 3: kmin is 2"));
    }
}
