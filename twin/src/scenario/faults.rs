//! `[[fault]]`.

use super::definition::{PlannedFault, Target};
use super::keys::{At, Keys, period, place};
use super::raw::{FaultKind, RawFault};
use crate::fault::Fault;
use crate::network::{NodeId, Plan};
use crate::wire::Impairment;
use common::time::Span;
use toml::Spanned;

fn find(plan: &Plan, name: &Spanned<String>) -> At<NodeId> {
    plan.node_named(name.get_ref()).ok_or_else(|| {
        let reason = format!("there is no node {:?} in this topology", name.get_ref());
        (name.span().start, reason)
    })
}

/// Reads one `[[fault]]`: a planned fault for each place that it names.
pub(super) fn fault(spanned: &Spanned<RawFault>, plan: &Plan) -> At<Vec<PlannedFault>> {
    let raw = spanned.get_ref();
    let at = raw.kind.span().start;
    let kind = *raw.kind.get_ref();
    let mut keys = Keys::new(at, &kind)
        .with("count", &raw.count)
        .with_other("link", place(&raw.link))
        .with_other("node", place(&raw.node))
        .with_other("lasting", place(&raw.lasting))
        .with_other("loss", place(&raw.loss))
        .with_other("corruption", place(&raw.corruption))
        .with_other("duplication", place(&raw.duplication))
        .with_other("reordering", place(&raw.reordering))
        .with_other("lateness", place(&raw.lateness))
        .with_other("delay", place(&raw.delay))
        .with_other("interval", place(&raw.interval))
        .with_other("part", place(&raw.part))
        .with_other("towards", place(&raw.towards))
        .with_other("ppm", place(&raw.ppm));
    let from = raw.from.as_ref().map_or(Span::ZERO, |it| it.get_ref().0);
    let until = raw.until.as_ref().map_or(Span::MAX, |it| it.get_ref().0);
    if until <= from {
        return Err((
            place(&raw.until).unwrap_or(at),
            "until is not after from".to_owned(),
        ));
    }
    let targets = targets(raw, kind, &mut keys, plan, at)?;
    let timed = place(&raw.from).or_else(|| place(&raw.until));
    if let (FaultKind::Drift, Some(at)) = (kind, timed) {
        return Err((at, "Drift has neither from nor until".to_owned()));
    }
    let random = at_random(raw, kind, &mut keys, at)?;
    keys.end()?;
    if targets.is_empty() {
        return Err((at, format!("{kind:?} needs a place: link, or node")));
    }
    let planned = |fault| PlannedFault {
        fault,
        from,
        until,
        random,
    };
    Ok(targets.into_iter().map(planned).collect())
}

/// What a fault of this kind happens to. Marks the keys that belong to the kind.
fn targets(
    raw: &RawFault,
    kind: FaultKind,
    keys: &mut Keys<'_>,
    plan: &Plan,
    at: usize,
) -> At<Vec<Target>> {
    match kind {
        FaultKind::Impairment => {
            for own in [
                "link",
                "loss",
                "corruption",
                "duplication",
                "reordering",
                "lateness",
                "delay",
            ] {
                keys.has(own);
            }
            let impairment = impairment(raw, at)?;
            let links = links(raw, plan, at)?.unwrap_or_default();
            let harmed = |link| Target::Here(Fault::Impairment(link, impairment));
            Ok(links.into_iter().map(harmed).collect())
        }
        FaultKind::SlowLink => {
            keys.has("link");
            keys.has("part");
            keys.has("towards");
            let part = raw.part.as_ref().map(|it| (*it.get_ref(), it.span().start));
            let (part, place) = part.ok_or_else(|| (at, "SlowLink needs part".to_owned()))?;
            if !(0.000_1..1.0).contains(&part) {
                let reason = format!("part = {part} is not from 0.0001 to below 1");
                return Err((place, reason));
            }
            let links = links(raw, plan, at)?.unwrap_or_default();
            let towards = raw.towards.as_ref().map(|it| find(plan, it)).transpose()?;
            if let (Some(name), Some(end)) = (&raw.towards, towards)
                && links.iter().any(|link| !plan.leads_to(*link, end))
            {
                let reason = format!("{:?} is no end of the link", name.get_ref());
                return Err((name.span().start, reason));
            }
            let slow = |link| Target::Here(Fault::SlowLink(link, towards, part));
            Ok(links.into_iter().map(slow).collect())
        }
        FaultKind::LinkDown => {
            keys.has("link");
            let Some(links) = links(raw, plan, at)? else {
                return Ok(vec![Target::AnyLink]);
            };
            let down = |link| Target::Here(Fault::LinkDown(link));
            Ok(links.into_iter().map(down).collect())
        }
        FaultKind::Crash => {
            keys.has("node");
            match nodes(raw, plan, at)? {
                Some(nodes) => Ok(nodes
                    .into_iter()
                    .map(|node| Target::Here(Fault::Crash(node)))
                    .collect()),
                None if plan.nodes.len() == plan.hosts => {
                    Err((at, "there is no switch to crash".to_owned()))
                }
                None => Ok(vec![Target::AnySwitch]),
            }
        }
        FaultKind::PfcStorm => {
            let (nodes, interval) = hosts(raw, keys, plan, (at, "a storm comes from a host"))?;
            let storm = |node| Target::Here(Fault::PfcStorm(node, interval));
            Ok(nodes.into_iter().map(storm).collect())
        }
        FaultKind::PathChanges => {
            let (nodes, interval) = hosts(raw, keys, plan, (at, "connections are those of hosts"))?;
            let changes = |node| Target::Here(Fault::PathChanges(node, interval));
            Ok(nodes.into_iter().map(changes).collect())
        }
        FaultKind::Drift => drifts(raw, keys, plan, at),
    }
}

/// The hosts that a fault names, and how often it happens to each. `why` no other node can be
/// named.
fn hosts(
    raw: &RawFault,
    keys: &mut Keys<'_>,
    plan: &Plan,
    (at, why): (usize, &str),
) -> At<(Vec<NodeId>, Span)> {
    keys.has("node");
    keys.has("interval");
    let interval = period(
        raw.interval.as_ref(),
        "interval",
        Span::from_micros(10),
        Span::from_nanos(100)..=Span::from_secs(1),
    )?;
    let nodes = nodes(raw, plan, at)?.unwrap_or_default();
    if nodes.is_empty() || nodes.iter().any(|node| node.index() >= plan.hosts) {
        return Err((place(&raw.node).unwrap_or(at), why.to_owned()));
    }
    Ok((nodes, interval))
}

/// The nodes whose clock drifts.
fn drifts(raw: &RawFault, keys: &mut Keys<'_>, plan: &Plan, at: usize) -> At<Vec<Target>> {
    keys.has("node");
    keys.has("ppm");
    let ppm = raw.ppm.as_ref().map(|it| (*it.get_ref(), it.span().start));
    let (ppm, ppm_at) = ppm.ok_or_else(|| (at, "Drift needs ppm".to_owned()))?;
    if !(-100_000..=100_000).contains(&ppm) {
        return Err((ppm_at, format!("ppm = {ppm} is not in -100000..=100000")));
    }
    let nodes = nodes(raw, plan, at)?.unwrap_or_default();
    let drift = |node| Target::Here(Fault::Drift(node, ppm));
    Ok(nodes.into_iter().map(drift).collect())
}

/// How often a fault happens at random times, and how long.
fn at_random(
    raw: &RawFault,
    kind: FaultKind,
    keys: &mut Keys<'_>,
    at: usize,
) -> At<Option<(usize, Span)>> {
    if !matches!(kind, FaultKind::LinkDown | FaultKind::Crash) {
        return Ok(None);
    }
    keys.has("lasting");
    let count = keys.may("count", 1..=10_000)?;
    match (count, &raw.lasting, &raw.until) {
        (None, None, _) => Ok(None),
        (Some(count), Some(lasting), Some(_)) => Ok(Some((count, lasting.get_ref().0))),
        _ => Err((
            at,
            "at random times: count, lasting and until go together".to_owned(),
        )),
    }
}

fn impairment(raw: &RawFault, at: usize) -> At<Impairment> {
    let chance = |value: &Option<Spanned<super::values::Chance>>| {
        value.as_ref().map_or(0.0, |value| value.get_ref().0)
    };
    let time = |value: &Option<Spanned<super::values::Period>>| {
        value.as_ref().map_or(Span::ZERO, |value| value.get_ref().0)
    };
    let impairment = Impairment {
        loss: chance(&raw.loss),
        corruption: chance(&raw.corruption),
        duplication: chance(&raw.duplication),
        reordering: chance(&raw.reordering),
        lateness: time(&raw.lateness),
        delay: time(&raw.delay),
    };
    if impairment.is_none() {
        return Err((
            at,
            "impairment without loss, corruption, duplication, reordering or delay".to_owned(),
        ));
    }
    if impairment.reordering > 0.0 && impairment.lateness == Span::ZERO {
        return Err((at, "reordering needs lateness".to_owned()));
    }
    Ok(impairment)
}

/// The links that a fault names; `None` if any will do.
fn links(raw: &RawFault, plan: &Plan, at: usize) -> At<Option<Vec<usize>>> {
    let Some(name) = &raw.link else {
        return Err((
            at,
            "the fault needs link: A-B, \"*\" for all, \"?\" for any".to_owned(),
        ));
    };
    let text = name.get_ref().as_str();
    let there = name.span().start;
    if text == "*" {
        return Ok(Some((0..plan.links.len()).collect()));
    }
    if text == "?" {
        return Ok(None);
    }
    let nodes = text
        .split_once('-')
        .and_then(|(a, b)| plan.node_named(a).zip(plan.node_named(b)));
    let Some((a, b)) = nodes else {
        return Err((
            there,
            format!("there is no link {text:?}: name two nodes, like leaf1-spine1"),
        ));
    };
    let links: Vec<usize> = plan.links_between(a, b).collect();
    if links.is_empty() {
        return Err((there, format!("there is no link {text:?}")));
    }
    Ok(Some(links))
}

/// The nodes that a fault names; `None` if any switch will do.
fn nodes(raw: &RawFault, plan: &Plan, at: usize) -> At<Option<Vec<NodeId>>> {
    let Some(name) = &raw.node else {
        return Err((
            at,
            "the fault needs node: a name, \"*\" for all, \"?\" for any switch".to_owned(),
        ));
    };
    match name.get_ref().as_str() {
        "*" => {
            let all = 0..u32::try_from(plan.nodes.len()).expect("few nodes");
            Ok(Some(all.map(NodeId).collect()))
        }
        "?" => Ok(None),
        _ => Ok(Some(vec![find(plan, name)?])),
    }
}
