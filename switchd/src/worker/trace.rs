//! What a worker tells of traced packets: see [`crate::trace`].
//!
//! ```text
//!   batch with its routes ─▶ numbers ─▶ Packet::trace ─▶ each stage: step ─▶ sent, or loss
//! ```
//!
//! Nothing of this is looked at for a packet without a number, and none has one while there is no
//! tracer.

use crate::drop::DropReason;
use crate::forward::batch::Batch;
use crate::forward::bridge::Bridged;
use crate::forward::choice::Choice;
use crate::forward::ecmp;
use crate::forward::stage::{Forward, Routed};
use crate::id::{PortId, TraceId};
use crate::ingress::classify::{by_priority, priority};
use crate::ingress::parse::{parse_any, parse_bridged};
use crate::packet::{NO_PCP, Parsed};
use crate::tables::dlb::Mode;
use crate::tables::policy::Classify;
use crate::tables::reading::Reading;
use crate::tables::{Group, Tables};
use crate::trace::probe::{Lost, Probe};
use crate::trace::{Arrival, How, Step};
use common::xdp::frame::Frame;

/// What routes are told by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routing<'a> {
    pub(super) tables: &'a Tables,
    pub(super) forward: &'a Forward,
}

/// Offers the packets of a batch to the tracer, and tells how those that are followed were
/// classified and routed.
#[cold]
pub(super) fn batch(probe: &mut Probe, routing: Routing<'_>, batch: &mut Batch) {
    let maps = &routing.tables.traffic.classify;
    let Batch {
        lanes,
        parsed,
        groups,
        choices,
        traces,
        ..
    } = batch;
    let routes = groups.iter().zip(choices.iter());
    let lanes = lanes.iter().zip(parsed.iter());
    for (((frame, ingress), parsed), (group, choice)) in lanes.zip(routes) {
        let priority = priority(maps, parsed);
        let arrival = Arrival {
            port: *ingress,
            priority: Some(priority),
        };
        let id = probe.begin(arrival, frame, Some(parsed));
        traces.push(id);
        if !id.is_some() {
            continue;
        }
        let (class, of_ingress) = by_priority(maps, parsed);
        let step = Step::Classified {
            dscp: parsed.dscp,
            pcp: (parsed.pcp != NO_PCP).then_some(parsed.pcp),
            priority,
            class,
            group: of_ingress,
        };
        probe.step(id, step);
        let routed = Routed {
            group: *group,
            choice: *choice,
        };
        route(probe, routing, id, routed, (frame.bytes(), parsed));
    }
}

/// Offers a frame that is bridged to the tracer, as it arrived, and tells where it goes if it is
/// followed.
#[cold]
pub(super) fn bridged(
    probe: &mut Probe,
    (maps, reading): (&Classify, Option<Reading>),
    (ingress, frame): (PortId, &Frame),
    bridged: &Bridged,
) -> TraceId {
    let Ok(parsed) = parse_bridged(frame.bytes(), frame.len(), reading) else {
        // It is lost in a moment.
        return TraceId::NONE;
    };
    let parsed = Parsed {
        pcp: bridged.pcp,
        ..parsed
    };
    let priority = priority(maps, &parsed);
    let arrival = Arrival {
        port: ingress,
        priority: Some(priority),
    };
    // What is no IP packet has nothing else to be told of.
    let is_ip = usize::from(parsed.network) < frame.bytes().len();
    let id = probe.begin(arrival, frame, is_ip.then_some(&parsed));
    if id.is_some() {
        let (class, group) = by_priority(maps, &parsed);
        let step = Step::Classified {
            dscp: parsed.dscp,
            pcp: (parsed.pcp != NO_PCP).then_some(parsed.pcp),
            priority,
            class,
            group,
        };
        probe.step(id, step);
        let step = Step::Bridged {
            vlan: bridged.vlan,
            egress: bridged.egress,
            untagged: bridged.leaves_untagged,
        };
        probe.step(id, step);
    }
    id
}

/// Tells which next hop was chosen for a packet; nothing if none was: it is dropped, and why is
/// told then.
#[cold]
pub(super) fn route(
    probe: &mut Probe,
    routing: Routing<'_>,
    id: TraceId,
    routed: Routed,
    (frame, parsed): (&[u8], &Parsed),
) {
    let Routing { tables, forward } = routing;
    let (Some(group), Choice::Hop(next_hop)) = (routed.group, routed.choice) else {
        return;
    };
    let Some(hop) = tables.next_hop(next_hop) else {
        return;
    };
    let hash = ecmp::flow_hash(frame, parsed, &tables.hashing);
    let flow = forward
        .balancer()
        .flow(tables, Some(group), (frame, parsed), hash);
    let advice = flow.and_then(|flow| flow.advice);
    let how = match tables.group(group) {
        Some(Group::Balance(_) | Group::Resilient(_)) if flow.is_none() => How::Ecmp,
        Some(Group::Balance(_) | Group::Resilient(_)) => match (advice, tables.dlb.mode(group)) {
            (Some(advice), _) if advice.switched => How::Switched,
            (Some(_), _) => How::Hinted,
            (None, Mode::Packet) => How::Sprayed,
            (None, Mode::Off | Mode::Flow | Mode::Flowlet) => How::Flowlet,
        },
        _ => How::Single,
    };
    let egress = hop.port;
    let step = Step::Route {
        group,
        next_hop,
        egress,
        how,
    };
    probe.step(id, step);
}

/// Tells of a loss. Of a packet that was not followed so far the filter may ask for the priority.
#[cold]
pub(super) fn loss(
    probe: &mut Probe,
    (maps, reading): (&Classify, Option<Reading>),
    frame: &Frame,
    lost: Lost,
    reason: DropReason,
) {
    let parsed = parse_any(frame.bytes(), frame.len(), reading);
    let priority = parsed.map(|parsed| priority(maps, &parsed));
    probe.lost(lost, reason, frame, parsed.as_ref(), priority);
}
