//! From `[qos]` to what the engine works with: bytes become cells, patterns become ports, headroom is computed, and
//! what does not fit together is refused with its numbers (SW-11).

use super::headroom::check_pool;
use super::qos::{
    Elephants, Group, HeadroomSize, Hook, MarkAt, Mode, Moves, Qos, Queue, Trust, Wred as RawWred,
};
use super::trim::trim_at;
use super::{matches, within};
use crate::limits::{CELL, CLASSES, MAX_CELLS};
use crate::traffic::elephants;
use crate::traffic::headroom::Breakdown;
use crate::traffic::policy::{
    ALPHA, Classify, Curve, FlowControl, GroupPolicy, Limit, PRIORITIES, Policy, PolicyError,
    PortPolicy, Profile, QueuePolicy, Schedule, Wred,
};
use crate::traffic::scheduler::WEIGHTS;
use crate::traffic::watchdog::{Settings, SettingsError, StormLimit};
use crate::traffic::wred::{EXPONENT_MAX, ONE};
use common::config::{Refusal, require};
use common::time::Span;
use common::units::Rate;
use std::collections::BTreeMap;
use std::num::NonZeroU8;

/// What has to be known of a port to make its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Its name.
    pub name: String,
    /// Its speed, if it has one.
    pub speed: Option<Rate>,
    /// Longest IP packet.
    pub mtu: u16,
    /// Frames that its receive ring holds.
    pub ring: u32,
    /// It leads to the spine.
    pub uplink: bool,
}

/// A policy, and what can be said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The policy.
    pub policy: Policy,
    /// What is possible but unwise.
    pub warnings: Vec<String>,
    /// By port: what headroom was computed from and is made of, if any group of it has computed headroom.
    pub headroom: Vec<Option<Breakdown>>,
}

/// Bytes in whole cells, rounded down: a limit is not exceeded.
fn cells(bytes: u32) -> u32 {
    bytes / u32::try_from(CELL).expect("a small constant")
}

/// Burst of a queue's own shaper that nothing is said of: two of the longest frames, so that it is never too short for one.
const QUEUE_BURST: u32 = 2 * 9216;

impl Qos {
    /// What is to be done at these ports.
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
        policy.hook = self.hook.map(Hook::compile).transpose()?;
        within(
            "qos.base_rtt_microseconds",
            self.base_rtt_microseconds,
            1,
            1_000_000,
        )?;
        policy.elephants = elephants_of(&self.elephants)?;
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
        check_pool(&policy, pool, ports)?;
        policy
            .divide(cells(size), pool)
            .map_err(|error| refused(error, ports))?;
        let mut warnings = super::relations::check(&policy, ports)?;
        warnings.extend(self.lateness_warnings(&policy, ports));
        warnings.extend(super::trim::warnings(&policy));
        Ok(Compiled {
            policy,
            warnings,
            headroom,
        })
    }

    fn classify(&self) -> Result<Classify, Refusal> {
        let mut maps = Classify::default();
        let fill = |name: &str, from: &BTreeMap<String, u8>, to: &mut [u8]| {
            for (number, &value) in from {
                let key = format!("qos.{name}.{number}");
                let place = number.parse::<usize>().ok().filter(|it| *it < to.len());
                let Some(place) = place else {
                    let most = to.len() - 1;
                    return Err(Refusal::new(
                        key,
                        format!("{number:?} is not within 0 to {most}"),
                    ));
                };
                within(&key, u64::from(value), 0, CLASSES as u64 - 1)?;
                to[place] = value;
            }
            Ok(())
        };
        fill(
            "priority_of_dscp",
            &self.priority_of_dscp,
            &mut maps.priority_of_dscp,
        )?;
        fill(
            "class_of_priority",
            &self.class_of_priority,
            &mut maps.class_of_priority,
        )?;
        fill(
            "group_of_priority",
            &self.group_of_priority,
            &mut maps.group_of_priority,
        )?;
        let mut of_pcp = std::array::from_fn(|pcp| u8::try_from(pcp).expect("8"));
        fill("priority_of_pcp", &self.priority_of_pcp, &mut of_pcp)?;
        maps.priority_of_pcp = (self.trust == Trust::Pcp).then_some(of_pcp);
        Ok(maps)
    }

    fn watchdog(&self) -> Result<Option<Settings>, Refusal> {
        let of = &self.watchdog;
        let refuse = |error: SettingsError| {
            Refusal::new(format!("qos.watchdog.{}", error.key()), error.to_string())
        };
        let settings = Settings {
            detection_time: Span::from_millis(of.detection_time_milliseconds),
            restoration_time: Span::from_millis(of.restoration_time_milliseconds),
            poll_interval: Span::from_millis(of.poll_interval_milliseconds),
            action: of.action.parse().map_err(refuse)?,
            control: (of.storms > 0).then_some(StormLimit {
                storms: of.storms,
                window: Span::from_millis(of.window_milliseconds),
            }),
        };
        settings.check().map_err(refuse)?;
        Ok(of.enabled.then_some(settings))
    }

    fn fill_limits(&self, port: &mut PortPolicy) {
        let limit = |bytes: u32| match bytes {
            0 => MAX_CELLS,
            bytes => cells(bytes),
        };
        port.ingress_limit = limit(self.buffer.ingress_limit_bytes);
        port.egress_limit = limit(self.buffer.egress_limit_bytes);
    }

    fn fill_groups(
        &self,
        place: usize,
        group: &Group,
        facts: &PortFacts,
        port: &mut PortPolicy,
    ) -> Result<Option<Breakdown>, Refusal> {
        let key = |name: &str| format!("qos.group[{place}].{name}");
        numbers(&key("groups"), &group.groups)?;
        let computed = match group.headroom {
            HeadroomSize::Auto => Some(self.computed(&key("headroom"), facts)?),
            HeadroomSize::None | HeadroomSize::Bytes(_) => None,
        };
        let headroom = match (group.headroom, &computed) {
            (HeadroomSize::Bytes(bytes), _) => cells(bytes).max(1),
            (_, Some(breakdown)) => u32::try_from(breakdown.cells()).unwrap_or(u32::MAX),
            _ => 0,
        };
        let guaranteed = cells(group.guaranteed_bytes);
        let limit = group_limit(&key, group, guaranteed)?;
        let policy = GroupPolicy {
            guaranteed,
            limit,
            headroom,
            xon: cells(group.xon_bytes),
            xon_offset: cells(group.xon_offset_bytes),
        };
        if policy.is_lossless() {
            check_xon(&key, group, &policy)?;
        }
        for number in &group.groups {
            port.groups[usize::from(*number)] = policy;
        }
        Ok(computed)
    }

    fn fill_queues(
        &self,
        place: usize,
        queue: &Queue,
        facts: &PortFacts,
        port: &mut PortPolicy,
    ) -> Result<(), Refusal> {
        let key = |name: &str| format!("qos.queue[{place}].{name}");
        numbers(&key("queues"), &queue.queues)?;
        let base_rtt = Span::from_micros(self.base_rtt_microseconds);
        let trims = !self.trim.trimmable.is_empty();
        let queue = &super::uet::filled(&key, queue, facts, base_rtt, trims)?;
        let guaranteed = cells(queue.guaranteed_bytes);
        for number in &queue.queues {
            let before = &port.queues[usize::from(*number)];
            let limit = queue_limit(&key, queue, guaranteed, before.limit)?;
            port.queues[usize::from(*number)] = QueuePolicy {
                guaranteed,
                limit,
                schedule: schedule(&key, queue)?,
                shaper: shaper(&key, queue)?,
                wred: queue
                    .wred
                    .as_ref()
                    .map(|it| wred(&key, it, queue.lossless))
                    .transpose()?,
                trim: trim_at(&key, queue, guaranteed, limit)?,
            };
        }
        Ok(())
    }

    fn flow_control(
        &self,
        maps: &Classify,
        port: &PortPolicy,
        facts: &PortFacts,
    ) -> Result<FlowControl, Refusal> {
        let of = &self.flow_control;
        require(
            of.quanta > 0,
            "qos.flow_control.quanta",
            "0 is not a pause: 1 to 65535",
        )?;
        numbers("qos.flow_control.priorities", &of.priorities)?;
        require(
            of.mode == Mode::Off || facts.speed.is_some(),
            "qos.flow_control.mode",
            format_args!(
                "{} has no speed, and pauses are counted in its bits: give it one",
                facts.name
            ),
        )?;
        let lossless = (0..PRIORITIES)
            .filter(|it| port.groups[usize::from(maps.group_of_priority[*it])].is_lossless())
            .fold(0, |mask, priority| mask | 1 << priority);
        let priorities = match of.priorities.as_slice() {
            [] => lossless,
            some => some.iter().fold(0, |mask, priority| mask | 1 << priority),
        };
        require(
            of.mode == Mode::Off || lossless & !priorities == 0 || of.mode == Mode::Pause,
            "qos.flow_control.priorities",
            format_args!(
                "{:?} lack priorities of lossless groups: these are {:?}",
                of.priorities,
                (0..8)
                    .filter(|it| lossless & 1 << it != 0)
                    .collect::<Vec<_>>()
            ),
        )?;
        Ok(match of.mode {
            Mode::Off => FlowControl::Off,
            Mode::Pause => FlowControl::Pause {
                send: of.send && lossless != 0,
                obey: of.obey,
                quanta: of.quanta,
            },
            Mode::Pfc => FlowControl::Pfc {
                send: if of.send { priorities } else { 0 },
                obey: if of.obey { priorities } else { 0 },
                quanta: of.quanta,
            },
        })
    }
}

/// What the engine says of a policy, in the configuration's words.
fn refused(error: PolicyError, ports: &[PortFacts]) -> Refusal {
    match error {
        PolicyError::Wred { port, queue, error } => {
            let reason = format!("{}, queue {queue}: {error}", ports[port].name);
            Refusal::new("qos.queue.wred", reason)
        }
        error => Refusal::new("qos.buffer.size_bytes", error.to_string()),
    }
}

fn group_limit(
    key: &dyn Fn(&str) -> String,
    group: &Group,
    guaranteed: u32,
) -> Result<Limit, Refusal> {
    match (group.xoff_bytes, group.dynamic_th) {
        (Some(_), Some(_)) => Err(Refusal::new(
            key("dynamic_th"),
            "there is xoff_bytes too: a threshold is static or dynamic",
        )),
        (Some(xoff), None) => {
            require(
                cells(xoff) >= guaranteed.max(1),
                &key("xoff_bytes"),
                format_args!(
                    "{xoff} lies below the guarantee of {} bytes, or below a cell",
                    group.guaranteed_bytes
                ),
            )?;
            Ok(Limit::Static(cells(xoff) - guaranteed))
        }
        (None, Some(exponent)) => dynamic(&key("dynamic_th"), exponent),
        (None, None) if group.headroom == HeadroomSize::None => Ok(Limit::Static(MAX_CELLS)),
        (None, None) => Err(Refusal::new(
            key("xoff_bytes"),
            "a lossless group needs a threshold: xoff_bytes or dynamic_th",
        )),
    }
}

fn check_xon(
    key: &dyn Fn(&str) -> String,
    group: &Group,
    policy: &GroupPolicy,
) -> Result<(), Refusal> {
    require(
        policy.xon > 0 || policy.xon_offset > 0,
        &key("xon_bytes"),
        "a lossless group has to resume somewhere: xon_bytes or xon_offset_bytes",
    )?;
    let Some(xoff) = group.xoff_bytes else {
        return Ok(());
    };
    // In cells: less than a cell between them is no distance.
    let below = |name: &str, bytes: u32| {
        require(
            cells(bytes) < cells(xoff),
            &key(name),
            format_args!("{bytes} is not below xoff_bytes, {xoff}, in cells of {CELL} bytes"),
        )
    };
    below("xon_bytes", group.xon_bytes)?;
    below("xon_offset_bytes", group.xon_offset_bytes)
}

fn queue_limit(
    key: &dyn Fn(&str) -> String,
    queue: &Queue,
    guaranteed: u32,
    default: Option<Limit>,
) -> Result<Option<Limit>, Refusal> {
    match (queue.lossless, queue.limit_bytes, queue.dynamic_th) {
        (true, None, None) => Ok(None),
        (false, None, None) => Ok(default),
        (false, None, Some(exponent)) => dynamic(&key("dynamic_th"), exponent).map(Some),
        // What is too much for a lossless queue is a sign that its relations are wrong; they are checked.
        (_, Some(bytes), None) => {
            require(
                cells(bytes) >= guaranteed.max(16),
                &key("limit_bytes"),
                format_args!(
                    "{bytes} is less than a packet, or than the guarantee of {} bytes",
                    queue.guaranteed_bytes
                ),
            )?;
            Ok(Some(Limit::Static(cells(bytes) - guaranteed)))
        }
        (true, None, Some(_)) => Err(Refusal::new(
            key("dynamic_th"),
            "a lossless queue has no dynamic threshold: its packets are held back at the ingress",
        )),
        (_, Some(_), Some(_)) => Err(Refusal::new(
            key("dynamic_th"),
            "there is limit_bytes too: a threshold is static or dynamic",
        )),
    }
}

fn schedule(key: &dyn Fn(&str) -> String, queue: &Queue) -> Result<Schedule, Refusal> {
    let Some(weight) = queue.weight else {
        return Ok(Schedule::Strict);
    };
    require(
        WEIGHTS.contains(&weight),
        &key("weight"),
        format_args!("{weight} is not within 1 to 100"),
    )?;
    Ok(Schedule::Dwrr(weight))
}

fn shaper(key: &dyn Fn(&str) -> String, queue: &Queue) -> Result<Option<(Rate, u32)>, Refusal> {
    let Some(rate) = queue.rate else {
        require(
            queue.burst_bytes.is_none(),
            &key("burst_bytes"),
            "a burst belongs to a rate, and there is none",
        )?;
        return Ok(None);
    };
    require(
        rate > Rate::from_bps(0),
        &key("rate"),
        "a queue of rate 0 sends nothing; switchctl hold holds one for a while",
    )?;
    let burst = queue.burst_bytes.unwrap_or(QUEUE_BURST);
    within(&key("burst_bytes"), u64::from(burst), 1, 1 << 30)?;
    Ok(Some((rate, burst)))
}

fn wred(key: &dyn Fn(&str) -> String, wred: &RawWred, lossless: bool) -> Result<Wred, Refusal> {
    let drop = wred.drop.unwrap_or(!lossless);
    let key = |name: &str| key(&format!("wred.{name}"));
    let (kmin, kmax) = (wred.min_bytes, wred.max_bytes);
    require(
        kmin <= kmax && kmax > 0,
        &key("min_bytes"),
        format_args!("{kmin} exceeds max_bytes, {kmax}, or both are 0"),
    )?;
    let percent = wred.probability_percent;
    require(
        (0.0..=100.0).contains(&percent),
        &key("probability_percent"),
        format_args!("{percent} is not within 0 to 100"),
    )?;
    require(
        wred.ecn || drop,
        &key("ecn"),
        "neither marks nor drops: then leave wred out",
    )?;
    within(
        &key("average_exponent"),
        u64::from(wred.average_exponent),
        0,
        u64::from(EXPONENT_MAX),
    )?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 65536"
    )]
    let pmax = (percent / 100.0 * f64::from(ONE)).round() as u32;
    let curve = if kmin == kmax {
        Curve::Deterministic { threshold: kmin }
    } else {
        Curve::Linear { kmin, kmax, pmax }
    };
    Ok(Wred {
        profile: Profile {
            curve,
            ecn: wred.ecn,
            drop,
            average: NonZeroU8::new(wred.average_exponent),
        },
        at_dequeue: wred.mark_at == MarkAt::Dequeue,
    })
}

/// Longest ageing time: a flow that pauses for longer than a minute is another one.
const AGEING_MAX: u64 = 60_000;

fn elephants_of(all: &[Elephants]) -> Result<Vec<elephants::Settings>, Refusal> {
    let mut compiled = Vec::with_capacity(all.len());
    for (place, one) in all.iter().enumerate() {
        let key = format!("qos.elephants[{place}]");
        let ageing = one.ageing_milliseconds;
        within(&format!("{key}.ageing_milliseconds"), ageing, 1, AGEING_MAX)?;
        compiled.push(elephants::Settings {
            from: one.from,
            to: one.to,
            bytes: one.bytes,
            rate: one.rate,
            ageing: Span::from_millis(ageing),
            moves: match one.moves {
                Moves::Gated => elephants::Moves::Gated,
                Moves::Drained => elephants::Moves::Drained,
            },
        });
        elephants::check(&compiled).map_err(|error| Refusal::new(key, error.to_string()))?;
    }
    Ok(compiled)
}

fn dynamic(key: &str, exponent: i8) -> Result<Limit, Refusal> {
    require(
        ALPHA.contains(&exponent),
        key,
        format_args!("{exponent} is not within -8 to 8: the threshold is 2^n times what is free"),
    )?;
    Ok(Limit::Dynamic(exponent))
}

fn numbers(key: &str, numbers: &[u8]) -> Result<(), Refusal> {
    numbers
        .iter()
        .try_for_each(|number| within(key, u64::from(*number), 0, CLASSES as u64 - 1))
}

/// Whether a table that names `patterns` is about the port `name`.
fn concerns(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
}

/// Every pattern has to match a port, or it is a slip of the pen.
fn known(key: &str, patterns: &[String], ports: &[PortFacts]) -> Result<(), Refusal> {
    let unknown = patterns
        .iter()
        .find(|pattern| !ports.iter().any(|port| matches(pattern, &port.name)));
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
    use crate::traffic::wred::ProfileError;

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
