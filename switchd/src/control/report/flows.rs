//! RoCEv2 flows.

use crate::control::api::{FlowDirection, FlowRow};
use crate::control::event_log::wall_clock_at;
use crate::control::flows::{Direction, Flow};
use crate::control::state::State;
use common::time::Time;

impl State {
    /// The flows, those that sent most first.
    ///
    /// # Errors
    /// They are not followed.
    pub(in crate::control) fn flow_rows(
        &self,
        limit: usize,
        now: Time,
    ) -> Result<Vec<FlowRow>, String> {
        let Some(analysis) = &self.flows else {
            return Err("flows are not followed: see [flows] in the configuration".to_owned());
        };
        let mut flows: Vec<Flow<'_>> = analysis.book.flows().collect();
        let bytes = |flow: &Flow<'_>| {
            let backward = flow.backward.map_or(0, |it| it.counts.bytes);
            flow.forward.counts.bytes + backward
        };
        flows.sort_unstable_by_key(|flow| (std::cmp::Reverse(bytes(flow)), flow.forward.key));
        flows.truncate(limit);
        Ok(flows.iter().map(|flow| self.flow_row(flow, now)).collect())
    }

    fn flow_row(&self, flow: &Flow<'_>, now: Time) -> FlowRow {
        let key = flow.forward.key;
        let first = flow.backward.map_or(Time::NEVER, |it| it.first);
        FlowRow {
            source: key.source().to_string(),
            source_qp: flow.other.map(|(other, _)| other.qp()),
            destination: key.destination().to_string(),
            destination_qp: key.qp(),
            learned: flow.other.map(|(_, learned)| learned.name().to_owned()),
            age_seconds: now.since(flow.forward.first.min(first)).as_secs_f64(),
            idle_seconds: now.since(flow.last()).as_secs_f64(),
            forward: self.flow_direction(flow, flow.forward),
            backward: flow.backward.map(|it| self.flow_direction(flow, it)),
        }
    }

    fn flow_direction(&self, flow: &Flow<'_>, direction: &Direction) -> FlowDirection {
        let active = direction.in_active_time();
        let has_nak = direction.nak_at != Time::ZERO;
        let nak = has_nak.then(|| wall_clock_at(direction.nak_at));
        let is_forward = direction.key == flow.forward.key;
        FlowDirection {
            port: self.port_name(direction.ingress),
            packets: direction.counts.packets,
            bytes: direction.counts.bytes,
            naks: active.naks,
            last_nak: nak,
            refusals: active.refusals,
            cnps: active.cnps,
            rtt_nanoseconds: flow.rtt(is_forward).map(|it| it.nanos()),
            rate: direction.rate.map(|it| it.bps()),
        }
    }
}
