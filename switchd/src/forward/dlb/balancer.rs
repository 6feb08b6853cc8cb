//! The choice of a member in groups with dynamic load balancing: a worker's flow table, and the
//! quality of the ports, which all workers share.

use crate::forward::choice::{Choice, choose_by};
use crate::forward::dlb::flowlet::{Flow, Table};
use crate::forward::dlb::host_sprayed::{Steered, steered};
use crate::forward::dlb::quality::QualityTable;
use crate::forward::ecmp;
use crate::id::{GroupId, NextHopId};
use crate::packet::Parsed;
use crate::stats::{FlowletRow, WorkerStats};
use crate::tables::dlb::{DlbPolicy, Mode};
use crate::tables::{Group, Tables};
use common::time::Time;
use std::sync::Arc;

/// Flows that a worker shows at most when control asks: 40 bytes each.
const SHOWN: usize = 4096;

/// Chooses the members in groups with dynamic load balancing.
#[derive(Debug)]
pub struct Balancer {
    table: Table,
    /// Entries that the table was made for; none while no group is balanced dynamically.
    flows: Option<usize>,
    /// Grows with each change of the tables.
    epoch: u32,
    quality: Arc<QualityTable>,
    seed: u64,
}

impl Balancer {
    /// A balancer without flows; `seed` is that of its random choices.
    pub fn new(quality: Arc<QualityTable>, seed: u64, stats: &WorkerStats) -> Self {
        Self {
            table: Table::counting(0, seed, stats.flowlets.clone()),
            flows: None,
            epoch: 0,
            quality,
            seed,
        }
    }

    /// Follows the tables. The flow table is there only while it is used.
    pub fn configure(&mut self, dlb: &DlbPolicy) {
        self.epoch = self.epoch.wrapping_add(1);
        let flows = dlb.is_on().then_some(dlb.flows);
        if flows != self.flows {
            let stats = self.table.stats().clone();
            self.table = Table::counting(flows.unwrap_or(0), self.seed, stats);
            self.flows = flows;
        }
    }

    /// The flow of a packet with this hash, if it is balanced dynamically. Prefetches its entry.
    #[inline]
    pub fn flow(
        &self,
        tables: &Tables,
        group: Option<GroupId>,
        (frame, parsed): (&[u8], &Parsed),
        hash: u32,
    ) -> Option<Flow> {
        let group = group?;
        let dlb = &tables.dlb;
        if dlb.mode(group) == Mode::Off {
            return None;
        }
        let buckets = tables.group(group).and_then(Group::buckets)?;
        let (hash, advice) = match steered(frame, parsed, &dlb.spray) {
            Steered::ByHost => return None,
            Steered::BySwitch => (hash, None),
            Steered::Advised(advice) => {
                let hash = ecmp::connection_hash(frame, parsed, &tables.hashing);
                (hash, Some(advice))
            }
        };
        let flow = Flow {
            group,
            lineage: buckets.lineage(),
            hash,
            tag: hash,
            advice,
        };
        self.table.prefetch(&flow);
        Some(flow)
    }

    /// The next hop of a packet of such a flow.
    #[inline]
    pub fn choose(&mut self, tables: &Tables, flow: Flow, now: Time) -> Choice {
        let Some(buckets) = tables.group(flow.group).and_then(Group::buckets) else {
            return Choice::Dead;
        };
        let settings = tables.dlb.settings(flow.group);
        let quality = &self.quality;
        let quality = |hop: NextHopId| {
            let port = tables.next_hop(hop).map(|hop| hop.port);
            port.map_or(u8::MAX, |port| quality.band(port))
        };
        let (table, epoch) = (&mut self.table, self.epoch);
        let next_hop = table.choose(flow, buckets, &settings, &quality, epoch, now);
        next_hop.map_or(Choice::Dead, Choice::Hop)
    }

    /// The choice for a packet outside of a batch.
    pub fn choose_one(
        &mut self,
        tables: &Tables,
        group: Option<GroupId>,
        (frame, parsed): (&[u8], &Parsed),
        now: Time,
    ) -> Choice {
        let hash = ecmp::flow_hash(frame, parsed, &tables.hashing);
        match self.flow(tables, group, (frame, parsed), hash) {
            Some(flow) => self.choose(tables, flow, now),
            None => choose_by(tables, group, || hash, now),
        }
    }

    /// Flows in the table that have not aged, for operators.
    pub fn rows(&self, tables: &Tables, now: Time) -> Vec<FlowletRow> {
        self.table.sample(SHOWN, tables.dlb.ageing(), now)
    }
}
