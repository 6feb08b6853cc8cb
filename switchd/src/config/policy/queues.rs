//! `[[qos.queue]]`: limits, schedule, shaper and marks of egress queues.

use super::limit::dynamic;
use super::trim::trim_at;
use super::uet::{self, Plane};
use crate::config::facts::PortFacts;
use crate::config::qos::{self, MarkAt, Qos, Queue};
use crate::config::rules::cells;
use crate::tables::policy::{Limit, PortPolicy, QueuePolicy, Schedule, WEIGHTS, Wred};
use crate::tables::wred::{Curve, EXPONENT_MAX, ONE, Profile};
use common::config::{Refusal, Refusals, require, within};
use common::units::Rate;
use std::num::NonZeroU8;

/// Default burst of a queue's own shaper: two of the longest frames, so that it is
/// never too short for one.
const QUEUE_BURST: u32 = 2 * 9216;

impl Qos {
    /// Puts the queues of a section into a port's policy.
    ///
    /// # Errors
    /// The keys that are impossible or contradict others.
    pub(super) fn fill_queues(
        &self,
        place: usize,
        queue: &Queue,
        facts: &PortFacts,
        port: &mut PortPolicy,
    ) -> Result<(), Refusals> {
        let key = |name: &str| format!("qos.queue[{place}].{name}");
        let mut refusals = Refusals::default();
        let filled = uet::filled(&key, queue, facts, &Plane::of(self, facts));
        let Some(queue) = &refusals.keep(filled) else {
            return refusals.or(());
        };
        refusals.keep(above_guarantee(&key, queue));
        let guaranteed = cells(queue.guaranteed_bytes);
        let schedule = refusals.keep(schedule(&key, queue));
        let shaper = refusals.keep(shaper(&key, queue));
        let wred = queue.wred.as_ref();
        let wred = refusals.keep(wred.map(|it| wred_of(&key, it, queue.lossless)).transpose());
        for number in &queue.queues {
            let Some(before) = port.queues.get_mut(usize::from(*number)) else {
                continue;
            };
            let limit = refusals.keep(queue_limit(&key, queue, guaranteed, before.limit));
            let Some(limit) = limit else { continue };
            let trim = refusals.keep(trim_at(&key, queue, guaranteed, limit));
            *before = QueuePolicy {
                guaranteed,
                limit,
                schedule: schedule.unwrap_or(Schedule::Strict),
                shaper: shaper.flatten(),
                wred: wred.flatten(),
                trim: trim.flatten(),
            };
        }
        refusals.or(())
    }
}

/// Refuses marks, early drops and trimming of what nobody else may use: no threshold lies below a
/// guarantee (SW-10).
fn above_guarantee(key: &dyn Fn(&str) -> String, queue: &Queue) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    let marks = queue.wred.as_ref().map(|it| it.min_bytes);
    for (name, bytes) in [
        ("wred.min_bytes", marks),
        ("trim_bytes", queue.trim_bytes),
        ("trim_rtx_bytes", queue.trim_rtx_bytes),
    ] {
        refusals.keep(require(
            bytes.is_none_or(|bytes| bytes >= queue.guaranteed_bytes),
            &key(name),
            format_args!(
                "{} lies below the guarantee of {} bytes",
                bytes.unwrap_or_default(),
                queue.guaranteed_bytes
            ),
        ));
    }
    refusals.or(())
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
        // What is too much for a lossless queue is a sign that its relations are wrong; they are
        // checked.
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
            "cannot be combined with limit_bytes: a threshold is static or dynamic",
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

fn wred_of(
    key: &dyn Fn(&str) -> String,
    wred: &qos::Wred,
    lossless: bool,
) -> Result<Wred, Refusals> {
    let drop = wred.drop.unwrap_or(!lossless);
    let key = |name: &str| key(&format!("wred.{name}"));
    let mut refusals = Refusals::default();
    let (kmin, kmax) = (wred.min_bytes, wred.max_bytes);
    refusals.require(
        kmin <= kmax && kmax > 0,
        &key("min_bytes"),
        format_args!("{kmin} exceeds max_bytes, {kmax}, or both are 0"),
    );
    let percent = wred.probability_percent;
    if !(0.0..=100.0).contains(&percent) {
        let reason = format!("{percent} is not within 0 to 100");
        refusals.add(Refusal::alone(key("probability_percent"), reason));
    }
    refusals.require(
        wred.ecn || drop,
        &key("ecn"),
        "neither marks nor drops: then leave wred out",
    );
    let (average, most) = (wred.average_exponent, EXPONENT_MAX);
    refusals.keep(within(
        &key("average_exponent"),
        average.into(),
        0,
        most.into(),
    ));
    refusals.check()?;
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
