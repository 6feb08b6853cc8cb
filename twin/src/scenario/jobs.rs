//! `[[job]]`, `[compute]` and `[host.collective]`: jobs that switches compute for.

use super::keys::{At, bytes, number, place};
use super::raw::{CollectiveName, Raw, RawJob};
use super::workloads::hosts;
use crate::collective::{Job, RANKS, Task};
use crate::network::{NodeId, Plan};
use common::config::Settings;
use common::reduce::{Element, Operation};
use common::time::Span;
use common::wire::compute::{PAYLOAD_MAX, SLOTS_MAX, Work};
use hostd::config::Collective;
use serde::Deserialize;
use std::sync::Arc;
use switchd::config::{Compute, Config};
use toml::Spanned;

/// Collectives of a job at most.
const TASKS: u64 = 1024;

/// Longest vector.
const VECTOR: u64 = 1 << 30;

/// The jobs.
pub(super) fn jobs(raw: &Raw, plan: &Plan) -> At<Vec<Job>> {
    let all = raw.job.iter().enumerate();
    all.map(|(number, raw)| job(raw, number, plan)).collect()
}

fn small(value: &super::raw::Number, name: &str, default: u16, most: u64) -> At<u16> {
    let number = number(value, name, 1..=most)?;
    Ok(number.map_or(default, |it| u16::try_from(it).expect("in range")))
}

fn job(spanned: &Spanned<RawJob>, place: usize, plan: &Plan) -> At<Job> {
    let (raw, at) = (spanned.get_ref(), spanned.span().start);
    let each = small(&raw.members, "members", 1, RANKS as u64)?;
    let hosts = hosts(raw.hosts.as_ref(), plan)?;
    let of_host = |host: NodeId| std::iter::repeat_n(host, each.into());
    let hosts: Vec<NodeId> = hosts.into_iter().flat_map(of_host).collect();
    let last = hosts.len() as u64 - 1;
    let root = number(&raw.root, "root", 0..=last)?.unwrap_or(0);
    let task = Task {
        work: work(raw, at)?,
        len: u32::try_from(bytes(raw.size.as_ref(), 0, 0..=VECTOR)?).expect("in range"),
        root: u16::try_from(root).expect("few members"),
    };
    let whole = match task.work {
        Work::Allreduce(_, element) | Work::Reduce(_, element) => element.len(),
        Work::Broadcast => 1,
        Work::Barrier => usize::MAX,
    };
    if (task.len > 0 && task.work == Work::Barrier) || !(task.len as usize).is_multiple_of(whole) {
        let reason = format!("{} bytes are no vector of {:?}", task.len, task.work);
        return Err((at, reason));
    }
    let count = number(&raw.count, "count", 1..=TASKS)?.unwrap_or(1);
    let payload = u16::try_from(PAYLOAD_MAX).expect("a short message");
    let job = Job {
        name: raw
            .name
            .clone()
            .unwrap_or_else(|| format!("job {}", place + 1)),
        start: raw.start.map_or(Span::ZERO, |it| it.0),
        hosts,
        trees: small(&raw.trees, "trees", 1, 64)?,
        slots: small(&raw.slots, "slots", 256, SLOTS_MAX as u64)?,
        payload: small(&raw.payload, "payload", payload, PAYLOAD_MAX as u64)?.max(8),
        deterministic: raw.deterministic.unwrap_or(false),
        tasks: vec![task; usize::try_from(count).expect("in range")],
    };
    job.seating(plan).map_err(|reason| (at, reason))?;
    Ok(job)
}

/// What is done.
fn work(raw: &RawJob, at: usize) -> At<Work> {
    let name = raw.collective.unwrap_or(CollectiveName::Allreduce);
    let pair = || -> At<(Operation, Element)> {
        let operation = raw.operation.as_ref().map_or("sum", |it| it.get_ref());
        let element = raw.element.as_ref().map_or("f32", |it| it.get_ref());
        let mut operations = Operation::ALL.into_iter();
        let found = operations.find(|it| format!("{it:?}").to_lowercase() == operation);
        let known = "sum, product, min, max, and, or, xor";
        let place_of = place(&raw.operation).unwrap_or(at);
        let operation = found.ok_or_else(|| (place_of, format!("operations are {known}")))?;
        let mut elements = Element::ALL.into_iter();
        let found = elements.find(|it| format!("{it:?}").to_lowercase() == element);
        let known = "i32, i64, u32, u64, f16, bf16, f32, f64";
        let place_of = place(&raw.element).unwrap_or(at);
        let element = found.ok_or_else(|| (place_of, format!("elements are {known}")))?;
        if operation.takes(element) {
            Ok((operation, element))
        } else {
            Err((place_of, format!("there is no {operation:?} of floats")))
        }
    };
    match name {
        CollectiveName::Allreduce => pair().map(|(one, other)| Work::Allreduce(one, other)),
        CollectiveName::Reduce => pair().map(|(one, other)| Work::Reduce(one, other)),
        CollectiveName::Broadcast => Ok(Work::Broadcast),
        CollectiveName::Barrier => Ok(Work::Barrier),
    }
}

/// Refuses to turn compute off: [`Compute`] does not tell that from nothing said.
fn never_off(text: &str) -> At<()> {
    #[derive(Deserialize)]
    struct Switches {
        compute: Option<Switched>,
    }
    #[derive(Deserialize)]
    struct Switched {
        enabled: Option<Spanned<bool>>,
    }
    let said = toml::from_str::<Switches>(text).ok();
    let enabled = said.and_then(|it| it.compute).and_then(|it| it.enabled);
    match enabled.filter(|it| !it.get_ref()) {
        Some(off) => Err((
            off.span().start,
            "compute.enabled = false: jobs of a scenario need it, leave them out instead"
                .to_owned(),
        )),
        None => Ok(()),
    }
}

/// In-network compute of the switches: on if there are jobs.
pub(super) fn compute(text: &str, raw: &Raw, has_jobs: bool) -> At<Option<Arc<Compute>>> {
    let (given, at) = match &raw.compute {
        Some(table) => (table.get_ref().clone(), table.span().start),
        None => (Compute::default(), 0),
    };
    if !has_jobs {
        return match raw.compute {
            Some(_) => Err((at, "[compute] is for scenarios with a [[job]]".to_owned())),
            None => Ok(None),
        };
    }
    never_off(text)?;
    let shipped = Compute::default();
    let follows = [
        ("address", given.address == shipped.address),
        ("parents", given.parents == shipped.parents),
        ("secret_file", given.secret_file == shipped.secret_file),
    ];
    if let Some((key, _)) = follows.into_iter().find(|it| !it.1) {
        return Err((at, format!("compute.{key} follows from the fabric here")));
    }
    let config = Config {
        ports: vec!["*".to_owned()],
        compute: given,
        ..Config::default()
    };
    config.validate().map_err(|it| (at, it.to_string()))?;
    Ok(Some(Arc::new(Compute {
        enabled: true,
        ..config.compute
    })))
}

/// How hosts take part.
pub(super) fn collective(raw: &Raw) -> At<Collective> {
    let Some(table) = &raw.host.collective else {
        return Ok(Collective::default());
    };
    let (given, at) = (table.get_ref().clone(), table.span().start);
    if given.leaf.is_some() || given.secret_file.is_some() {
        let reason = "host.collective: leaf and secret_file follow from the fabric here";
        return Err((at, reason.to_owned()));
    }
    let config = hostd::config::Config {
        collective: given,
        ..hostd::config::Config::default()
    };
    config.validate().map_err(|it| (at, it.to_string()))?;
    Ok(config.collective)
}
