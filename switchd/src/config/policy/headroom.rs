//! `[qos.headroom]`: what lossless groups get beyond their threshold, and whether a shared pool is
//! large enough (SW-12).

use crate::config::facts::PortFacts;
use crate::config::qos::Qos;
use crate::tables::policy::{FlowControl, GroupPolicy, Policy, PortPolicy};
use crate::traffic::headroom::{Breakdown, Cable, Headroom};
use crate::traffic::pfc_tx::quanta_time;
use common::config::{Refusal, Refusals, within};
use common::time::Span;
use common::units::Rate;
use common::wire::ethernet;

impl Qos {
    pub(super) fn check_headroom(&self) -> Result<(), Refusals> {
        let of = &self.headroom;
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, most| {
            refusals.keep(within(&format!("qos.headroom.{name}"), value, 0, most));
        };
        check("cable_metres", u64::from(of.cable_metres), 100_000);
        check(
            "cable_delay_nanoseconds",
            of.cable_delay_nanoseconds,
            1_000_000_000,
        );
        check(
            "peer_response_nanoseconds",
            of.peer_response_nanoseconds,
            1_000_000_000,
        );
        check("poll_gap_microseconds", of.poll_gap_microseconds, 1_000_000);
        refusals.or(())
    }

    /// Headroom of a port, from its speed and what `[qos.headroom]` says.
    pub(super) fn computed(&self, key: &str, facts: &PortFacts) -> Result<Breakdown, Refusal> {
        let Some(speed) = facts.speed else {
            let reason = format!(
                "cannot be computed for {}, which has no speed: give it one, or a number of bytes",
                facts.name
            );
            return Err(Refusal::new(key, reason));
        };
        Ok(self.headroom_of(facts, speed).breakdown())
    }

    /// What the headroom of a port of this speed depends on.
    fn headroom_of(&self, facts: &PortFacts, speed: Rate) -> Headroom {
        let of = &self.headroom;
        let response = of.peer_response_nanoseconds;
        Headroom {
            speed,
            cable: match of.cable_delay_nanoseconds {
                0 => Cable::Metres(of.cable_metres),
                delay => Cable::Delay(Span::from_nanos(delay)),
            },
            longest: u32::from(facts.mtu) + u32::try_from(ethernet::HEADER_LEN).expect("14"),
            shortest: 60,
            response: (response > 0).then(|| Span::from_nanos(response)),
            ring: facts.ring,
            gap: self.poll_gap(),
        }
    }

    /// The longest time between two looks of a worker at a port that is planned for.
    fn poll_gap(&self) -> Span {
        Span::from_micros(self.headroom.poll_gap_microseconds)
    }

    /// What headroom cannot make good at a worker that is as late as planned: a receive ring that
    /// runs over, and pauses that end before they are refreshed.
    pub(super) fn lateness_warnings(&self, policy: &Policy, ports: &[PortFacts]) -> Vec<String> {
        let ports = policy.ports.iter().zip(ports);
        ports
            .filter_map(|(port, facts)| Some((port, facts, facts.speed?)))
            .flat_map(|(port, facts, speed)| {
                let ring = self.short_ring(port, facts, speed);
                [ring, self.short_pause(port, facts, speed)]
            })
            .flatten()
            .collect()
    }

    fn short_ring(&self, port: &PortPolicy, facts: &PortFacts, speed: Rate) -> Option<String> {
        let needed = self.headroom_of(facts, speed).ring_needed();
        let is_lossless = port.groups.iter().any(GroupPolicy::is_lossless);
        // A ring of 0 is none: a frame is accounted when it arrives.
        let is_short = facts.ring > 0 && u64::from(facts.ring) < needed;
        (is_lossless && is_short).then(|| {
            format!(
                "{}: memory.ring holds {} frames, but up to {needed} arrive in qos.headroom.poll_gap_microseconds, {}: what \
                 does not fit is lost where no headroom helps",
                facts.name,
                facts.ring,
                self.poll_gap()
            )
        })
    }

    fn short_pause(&self, port: &PortPolicy, facts: &PortFacts, speed: Rate) -> Option<String> {
        let (FlowControl::Pause { quanta, .. } | FlowControl::Pfc { quanta, .. }) =
            port.flow_control
        else {
            return None;
        };
        let half = quanta_time(quanta, speed).divided_by(2);
        let is_short = port.flow_control.sends() != 0 && half < self.poll_gap();
        is_short.then(|| {
            format!(
                "{}: half a pause of {quanta} qos.flow_control.quanta is {half}, less than qos.headroom.poll_gap_microseconds, \
                 {}: a refresh can come when the peer sends again",
                facts.name,
                self.poll_gap()
            )
        })
    }
}

/// Refuses a pool that is smaller than the headroom of one group.
pub(super) fn check_pool(
    policy: &Policy,
    pool: Option<u32>,
    ports: &[PortFacts],
) -> Result<(), Refusals> {
    let Some(pool) = pool else { return Ok(()) };
    let mut refusals = Refusals::default();
    for (port, facts) in policy.ports.iter().zip(ports) {
        for (group, rules) in port.groups.iter().enumerate() {
            refusals.require(
                rules.headroom <= pool,
                "qos.buffer.shared_headroom_bytes",
                format_args!(
                    "the headroom of {}, group {group}, {} cells, exceeds the pool of {pool} cells",
                    facts.name, rules.headroom
                ),
            );
        }
    }
    refusals.or(())
}
