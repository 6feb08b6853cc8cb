//! `[[workload]]`.

use super::definition::Source;
use super::keys::{At, Keys, bytes, place};
use super::raw::{RawWorkload, WorkloadKind};
use super::refusal::{Read, Refusal};
use super::values::Bytes;
use crate::matrix;
use crate::network::{NodeId, Plan};
use crate::workload::{Pattern, Size, Spec};
use common::time::{Span, Time};
use toml::Spanned;

/// Flows at most.
pub(super) const FLOWS: usize = 4_000_000;

fn find_host(plan: &Plan, name: &str, at: usize) -> At<NodeId> {
    let found = plan.node_named(name);
    found
        .filter(|node| node.index() < plan.hosts)
        .ok_or_else(|| {
            (
                at,
                format!("there is no host {name:?}: they are h1 to h{}", plan.hosts),
            )
        })
}

/// The hosts that a list names; without one all.
pub(super) fn hosts(list: Option<&Spanned<Vec<String>>>, plan: &Plan) -> At<Vec<NodeId>> {
    let Some(list) = list else {
        return Ok(plan.host_ids().collect());
    };
    let at = list.span().start;
    let mut hosts = Vec::new();
    for item in list.get_ref() {
        let (first, last) = item.split_once("..").unwrap_or((item, item));
        let (first, last) = (find_host(plan, first, at)?, find_host(plan, last, at)?);
        if first > last {
            return Err((at, format!("{item:?} runs backwards")));
        }
        hosts.extend((first.0..=last.0).map(NodeId));
    }
    let mut sorted = hosts.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != hosts.len() {
        return Err((at, "a host is named twice".to_owned()));
    }
    if hosts.len() < 2 {
        return Err((at, "at least two hosts take part".to_owned()));
    }
    Ok(hosts)
}

pub(super) fn source(
    spanned: &Spanned<RawWorkload>,
    plan: &Plan,
    read: Read<'_>,
    line: &dyn Fn(usize) -> usize,
) -> Result<Source, Refusal> {
    let raw = spanned.get_ref();
    let refuse = |(offset, reason): (usize, String)| Refusal {
        file: None,
        line: line(offset),
        reason,
    };
    let kind = *raw.kind.get_ref();
    let name = raw.name.clone();
    let name = name.unwrap_or_else(|| format!("{kind:?}").to_lowercase());
    if kind != WorkloadKind::Matrix {
        let spec = pattern(raw, plan, name).map_err(refuse)?;
        return Ok(Source::Pattern(spec));
    }
    let mut keys = workload_keys(raw);
    keys.has("file");
    keys.end().map_err(refuse)?;
    let at = raw.kind.span().start;
    let file = raw.file.as_ref();
    let file = file.ok_or_else(|| refuse((at, "Matrix needs file".to_owned())))?;
    let text = read(file.get_ref()).map_err(|error| {
        let reason = format!("{}: {error}", file.get_ref());
        refuse((file.span().start, reason))
    })?;
    let start = Time::ZERO + raw.start.map_or(Span::ZERO, |it| it.0);
    match matrix::read(&text, plan.hosts, start, 0) {
        Ok(workload) => Ok(Source::Flows(workload, name)),
        Err(error) => Err(Refusal {
            file: Some(file.get_ref().clone()),
            line: error.line,
            reason: error.reason,
        }),
    }
}

fn workload_keys(raw: &RawWorkload) -> Keys<'_> {
    Keys::new(raw.kind.span().start, raw.kind.get_ref())
        .with("rounds", &raw.rounds)
        .with("senders", &raw.senders)
        .with("parallel", &raw.parallel)
        .with("count", &raw.count)
        .with_other("hosts", place(&raw.hosts))
        .with_other("size", place(&raw.size))
        .with_other("sizes", place(&raw.sizes))
        .with_other("response", place(&raw.response))
        .with_other("response_sizes", place(&raw.response_sizes))
        .with_other("target", place(&raw.target))
        .with_other("load", place(&raw.load))
        .with_other("file", place(&raw.file))
        .with_other("apart", place(&raw.apart))
}

type Sized<'a, T> = Option<&'a Spanned<T>>;

fn size(fixed: Sized<'_, Bytes>, drawn: Sized<'_, crate::sizes::Sizes>) -> At<Option<Size>> {
    match (fixed, drawn) {
        (Some(fixed), None) => Ok(Some(Size::Fixed(bytes(Some(fixed), 0, 1..=1 << 40)?))),
        (None, Some(drawn)) => Ok(Some(Size::Drawn(*drawn.get_ref()))),
        (None, None) => Ok(None),
        (Some(_), Some(drawn)) => {
            let reason = "either one size for all or a distribution of sizes".to_owned();
            Err((drawn.span().start, reason))
        }
    }
}

fn pattern(raw: &RawWorkload, plan: &Plan, name: String) -> At<Spec> {
    let at = raw.kind.span().start;
    let hosts = hosts(raw.hosts.as_ref(), plan)?;
    let most = hosts.len() as u64;
    let mut keys = workload_keys(raw);
    for common in ["hosts", "size", "sizes", "apart"] {
        keys.has(common);
    }
    let sized = size(raw.size.as_ref(), raw.sizes.as_ref())?;
    let pattern = match *raw.kind.get_ref() {
        WorkloadKind::Permutation => Pattern::Permutation {
            rounds: keys.may("rounds", 1..=1000)?.unwrap_or(1),
        },
        WorkloadKind::Incast => {
            keys.has("target");
            let target = target(raw, plan, &hosts)?;
            let senders = keys.may("senders", 1..=most - 1)?;
            Pattern::Incast {
                senders: senders.unwrap_or(hosts.len() - 1),
                target,
            }
        }
        WorkloadKind::AllToAll => Pattern::AllToAll {
            parallel: keys.may("parallel", 1..=most - 1)?.unwrap_or(1),
        },
        WorkloadKind::RingAllreduce => Pattern::RingAllreduce,
        WorkloadKind::Poisson => {
            for own in ["response", "response_sizes", "load", "target"] {
                keys.has(own);
            }
            Pattern::Poisson {
                load: load(raw, at)?,
                count: keys.need("count", 1..=FLOWS as u64)?,
                response: size(raw.response.as_ref(), raw.response_sizes.as_ref())?,
                target: target(raw, plan, &hosts)?,
            }
        }
        WorkloadKind::Matrix => unreachable!("read elsewhere"),
    };
    keys.end()?;
    let size = sized.ok_or_else(|| (at, "the workload needs size, or sizes".to_owned()))?;
    Ok(Spec {
        pattern,
        size,
        start: raw.start.map_or(Span::ZERO, |it| it.0),
        hosts,
        name,
        apart: raw.apart.as_ref().is_some_and(|it| *it.get_ref()),
    })
}

/// The one that all send to, if there is one.
fn target(raw: &RawWorkload, plan: &Plan, hosts: &[NodeId]) -> At<Option<NodeId>> {
    let Some(name) = &raw.target else {
        return Ok(None);
    };
    let at = name.span().start;
    let target = find_host(plan, name.get_ref(), at)?;
    if hosts.contains(&target) {
        Ok(Some(target))
    } else {
        Err((at, format!("{} takes no part", name.get_ref())))
    }
}

/// The load in thousandths.
fn load(raw: &RawWorkload, at: usize) -> At<u32> {
    let Some(load) = &raw.load else {
        return Err((at, "Poisson needs load".to_owned()));
    };
    let part = *load.get_ref();
    if !(0.001..=2.0).contains(&part) {
        return Err((
            load.span().start,
            format!("load = {part} is not between 0.001 and 2"),
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked"
    )]
    let thousandths = (part * 1000.0).round() as u32;
    Ok(thousandths)
}
