//! From `[qos]` to what the engine works with: bytes become cells, patterns become ports, headroom
//! is computed, and what does not fit together is refused with its numbers (SW-11).

mod classify;
mod elephants;
mod flow_control;
mod groups;
mod headroom;
mod limit;
mod ports;
mod queues;
mod relations;
mod sections;
mod trim;
mod uet;

use super::facts::PortFacts;
use super::qos::{self, Qos};
use super::rules::{cells, some_class_numbers};
use crate::limits::{CELL, MAX_CELLS};
use crate::tables::policy::{Policy, PolicyError, PortPolicy};
use common::config::{Refusal, Refusals, require, within};
use common::time::Span;
use common::units::Rate;
pub use headroom::Planned;
use ports::concerns;
pub(super) use ports::nobody;
use sections::Sections;

/// A compiled `[qos]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The policy.
    pub policy: Policy,
    /// What is possible but unwise.
    pub warnings: Vec<String>,
    /// By port: what headroom was computed from and is made of, if any group of it has computed
    /// headroom.
    pub headroom: Vec<Option<Planned>>,
}

impl Compiled {
    /// The same with room for ports that may come: `taken` says of each port number whether one of
    /// the ports, in their order, has it. The others have neither guarantees nor headroom.
    #[must_use]
    pub fn spread(mut self, taken: impl Iterator<Item = bool>) -> Self {
        let vacant = Policy::plain(1, MAX_CELLS).ports.remove(0);
        let mut ports = self.policy.ports.into_iter();
        let mut headroom = self.headroom.into_iter();
        let each = |is_taken: bool| {
            let port = if is_taken { ports.next() } else { None };
            let made_of = if is_taken { headroom.next() } else { None };
            (port.unwrap_or_else(|| vacant.clone()), made_of.flatten())
        };
        (self.policy.ports, self.headroom) = taken.map(each).unzip();
        self
    }
}

impl Qos {
    /// Compiles the policy for these ports. What peers announced is left out as far as it does not
    /// fit: nobody but the operator can make a policy impossible.
    ///
    /// # Errors
    /// The keys that are impossible; if there are none, those that break a relation to others, with
    /// the numbers.
    pub fn compile(&self, ports: &[PortFacts]) -> Result<Compiled, Refusals> {
        let mut refusals = match self.compile_all(ports) {
            Err(refusals) => refusals,
            compiled => return compiled,
        };
        let mut ports = ports.to_vec();
        let mut warnings = Vec::new();
        while let Some(most) = self.most_announced(&ports) {
            let peer = ports[most].announced.take();
            let peer = peer.map(|it| it.name).unwrap_or_default();
            warnings.push(format!(
                "{}: what {peer} announces of pauses does not fit, and is not planned with: {refusals}",
                ports[most].name
            ));
            refusals = match self.compile_all(&ports) {
                Err(refusals) => refusals,
                Ok(mut compiled) => {
                    compiled.warnings.extend(warnings);
                    return Ok(compiled);
                }
            };
        }
        Err(refusals)
    }

    fn compile_all(&self, ports: &[PortFacts]) -> Result<Compiled, Refusals> {
        let (mut policy, headroom, sections) = self.policy(ports)?;
        let mut refusals = Refusals::default();
        let pool = self.buffer.shared_headroom_bytes;
        let pool = (pool > 0).then(|| cells(pool));
        refusals.keep(headroom::check_pool(&policy, pool, ports));
        let divided = policy.divide(cells(self.buffer.size_bytes), pool);
        refusals.keep(divided.map_err(|error| refused(error, ports, &sections)));
        refusals.check()?;
        let base_rtt = Span::from_micros(self.base_rtt_microseconds);
        let mut warnings = relations::check(&policy, ports, &sections, base_rtt)?;
        warnings.extend(self.lateness_warnings(&policy, ports));
        warnings.extend(self.peer_warnings(&headroom, ports));
        let (classes, lacking) = self.aiecn.classes(&policy);
        policy.sketched = classes;
        warnings.extend(lacking);
        warnings.extend(trim::warnings(&policy));
        warnings.extend(self.pattern_warnings(ports));
        Ok(Compiled {
            policy,
            warnings,
            headroom,
        })
    }

    /// The policy before its parts are compared; what computed headroom is made of, by port; and
    /// which sections made it.
    fn policy(
        &self,
        ports: &[PortFacts],
    ) -> Result<(Policy, Vec<Option<Planned>>, Sections), Refusals> {
        let mut refusals = Refusals::default();
        let size = u64::from(self.buffer.size_bytes);
        let most = u64::from(MAX_CELLS) * CELL as u64;
        refusals.keep(within("qos.buffer.size_bytes", size, 16 << 10, most));
        let rtt = self.base_rtt_microseconds;
        refusals.keep(within("qos.base_rtt_microseconds", rtt, 1, 1_000_000));
        refusals.keep(require(
            self.plane_speed != Some(Rate::from_bps(0)),
            "qos.plane_speed",
            "a plane of speed 0 carries nothing",
        ));
        refusals.keep(self.check_headroom());
        refusals.keep(self.check_flow_control());
        // Whether they concern a port or not.
        for (place, queue) in self.queue.iter().enumerate() {
            let key = format!("qos.queue[{place}].queues");
            refusals.keep(some_class_numbers(&key, &queue.queues));
        }
        for (place, group) in self.group.iter().enumerate() {
            let key = format!("qos.group[{place}].groups");
            refusals.keep(some_class_numbers(&key, &group.groups));
        }
        let mut policy = Policy::plain(ports.len(), cells(self.queue_depth_bytes));
        policy.classify = refusals.keep(self.classify()).unwrap_or_default();
        policy.trim = refusals.keep(self.trim.compile()).unwrap_or_default();
        let hook = self.hook.map(qos::Hook::compile).transpose();
        policy.hook = refusals.keep(hook).flatten();
        let elephants = refusals.keep(elephants::compile(&self.elephants));
        policy.elephants = elephants.unwrap_or_default();
        policy.watchdog = refusals.keep(self.watchdog()).flatten();
        refusals.keep(self.aiecn.check());
        let mut headroom: Vec<Option<Planned>> = vec![None; ports.len()];
        let share = self.announced_share(ports);
        let mut sections = Sections::new(ports.len());
        for (number, facts) in ports.iter().enumerate() {
            let port = &mut policy.ports[number];
            self.fill_limits(port);
            port.uplink = facts.uplink;
            for (place, group) in self.group.iter().enumerate() {
                if concerns(&group.ports, &facts.name) {
                    let filled = self.fill_groups(place, group, facts, share, port);
                    if let Some(computed) = refusals.keep(filled).flatten() {
                        headroom[number] = Some(computed);
                    }
                    sections.group_is_from(number, &group.groups, place);
                }
            }
            for (place, queue) in self.queue.iter().enumerate() {
                if concerns(&queue.ports, &facts.name) {
                    refusals.keep(self.fill_queues(place, queue, facts, port));
                    sections.queue_is_from(number, &queue.queues, place);
                }
            }
            refusals.keep(check_egress_limit(port, &facts.name));
            let flow_control = refusals.keep(self.flow_control(&policy.classify, port, facts));
            port.flow_control = flow_control.unwrap_or_default();
        }
        refusals.keep(self.check_names(ports));
        refusals.or((policy, headroom, sections))
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

/// Refuses a limit of a port that its queues' guarantees exceed: nobody else may use them, so they
/// would exceed it without any service (SW-10).
fn check_egress_limit(port: &PortPolicy, name: &str) -> Result<(), Refusal> {
    let guaranteed = port.queues.iter().map(|it| u64::from(it.guaranteed));
    let guaranteed: u64 = guaranteed.sum();
    let bytes = |cells: u64| cells * CELL as u64;
    require(
        guaranteed <= u64::from(port.egress_limit),
        "qos.buffer.egress_limit_bytes",
        format_args!(
            "{} is less than the guarantees of the queues of {name}, {} bytes in all",
            bytes(u64::from(port.egress_limit)),
            bytes(guaranteed)
        ),
    )
}

/// An error of the engine as a refusal that names the key and the port.
fn refused(error: PolicyError, ports: &[PortFacts], sections: &Sections) -> Refusal {
    match error {
        PolicyError::Wred { port, queue, error } => {
            let reason = format!("{}, queue {queue}: {error}", ports[port].name);
            Refusal::new(sections.queue(port, queue, "wred"), reason)
        }
        error => Refusal::new("qos.buffer.size_bytes", error.to_string()),
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
            link: None,
            burst: 0,
            mtu: 1500,
            ring: 1024,
            transmit_ring: 1024,
            uplink: false,
            announced: None,
        };
        let error = PolicyError::Wred {
            port: 0,
            queue: 3,
            error: ProfileError::Order { kmin: 2, kmax: 1 },
        };
        let mut sections = Sections::new(1);
        sections.queue_is_from(0, &[2, 3], 5);
        let refusal = refused(error, &[port], &sections);
        assert_eq!(refusal.key, "qos.queue[5].wred");
        assert!(refusal.reason.starts_with("swp7, queue 3: kmin is 2"));
    }
}
