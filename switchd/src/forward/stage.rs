//! The stage itself: what a worker needs to route packets, and keeps from turn to turn.

use crate::forward::batch::Batch;
use crate::forward::choice::{Choice, choose, look_up};
use crate::forward::dlb::balancer::Balancer;
use crate::forward::dlb::gauges::{Gauges, PortReading};
use crate::forward::dlb::quality::QualityTable;
use crate::forward::fib::Fib;
use crate::id::GroupId;
use crate::packet::Parsed;
use crate::stats::{FlowletRow, WorkerStats};
use crate::tables::Tables;
use common::sync::words::prefetch_all;
use common::time::Time;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A worker's forward stage: the routes, which all workers read, its flow table, and the gauges of
/// its ports. The tables are the worker's: a turn lends them.
#[derive(Debug)]
pub struct Forward {
    fib: Arc<Fib>,
    /// Dynamic load balancing: the flow table.
    balancer: Balancer,
    /// Dynamic load balancing: how congested the worker's ports are.
    gauges: Gauges,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routed {
    /// The group of the longest matching route, if there is a route.
    pub group: Option<GroupId>,
    /// What was chosen of it.
    pub choice: Choice,
}

impl Forward {
    /// A stage without flows. `quality` is shared with the other workers; `seed` is that of the
    /// random choices.
    pub fn new(fib: Arc<Fib>, quality: Arc<QualityTable>, seed: u64, stats: &WorkerStats) -> Self {
        Self {
            fib,
            balancer: Balancer::new(quality.clone(), seed, stats),
            gauges: Gauges::new(quality),
        }
    }

    /// Follows the tables. `read` reads the worker's egress port at a place below `count`.
    pub fn configure(
        &mut self,
        tables: &Tables,
        count: usize,
        read: impl Fn(usize) -> PortReading,
        now: Time,
    ) {
        self.balancer.configure(&tables.dlb);
        self.gauges.configure(tables, count, read, now);
    }

    /// Looks the destinations of a batch up. The groups it finds may be newer than the worker's
    /// tables, see [`Self::needs`]; the next step is [`Self::choose`].
    #[inline]
    pub fn look_up(&self, batch: &mut Batch) {
        batch.look_up(&self.fib);
    }

    /// Epoch of the tables that what was looked up so far needs.
    #[inline]
    pub fn needs(&self) -> u64 {
        self.fib.needs()
    }

    /// Chooses the next hops of a batch.
    #[inline]
    pub fn choose(&mut self, batch: &mut Batch, tables: &Tables, now: Time) {
        batch.choose(tables, &mut self.balancer, now);
    }

    /// The group that the route of one packet leads to.
    pub fn look_up_one(&self, parsed: &Parsed) -> Option<GroupId> {
        look_up(&self.fib, parsed)
    }

    /// The group that the route to an IPv4 address leads to.
    pub fn look_up_v4(&self, address: Ipv4Addr) -> Option<GroupId> {
        self.fib.lookup_v4(address.octets())
    }

    /// The group that the route to an IPv6 address leads to.
    pub fn look_up_v6(&self, address: Ipv6Addr) -> Option<GroupId> {
        self.fib.lookup_v6(address.octets())
    }

    /// The choice for a packet outside of a batch.
    pub fn choose_one(
        &mut self,
        tables: &Tables,
        group: Option<GroupId>,
        packet: (&[u8], &Parsed),
        now: Time,
    ) -> Routed {
        let choice = self.balancer.choose_one(tables, group, packet, now);
        Routed { group, choice }
    }

    /// Where a packet of the switch itself goes: by its hash, for no packet of the switch has to
    /// keep behind another.
    pub fn route_own(
        &self,
        tables: &Tables,
        group: Option<GroupId>,
        packet: (&[u8], &Parsed),
        now: Time,
    ) -> Routed {
        let choice = choose(tables, group, packet, now);
        Routed { group, choice }
    }

    /// The flow table, for those who tell how a packet was routed.
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Whether the ports are to be measured now.
    #[inline]
    pub fn is_sample_due(&self, now: Time) -> bool {
        self.gauges.are_due(now)
    }

    /// Measures the ports; `read` is as in [`Self::configure`].
    pub fn sample(&mut self, read: impl Fn(usize) -> PortReading, now: Time) {
        self.gauges.sample(read, now);
    }

    /// The peer of one of the worker's ports began or ended a pause.
    pub fn on_pause(&mut self) {
        self.gauges.on_pause();
    }

    /// When a turn is needed even if nothing arrives.
    pub fn deadline(&self) -> Time {
        self.gauges.deadline()
    }

    /// The flows that have not aged, for operators.
    pub fn rows(&self, tables: &Tables, now: Time) -> Vec<FlowletRow> {
        self.balancer.rows(tables, now)
    }

    /// Starts to bring what the next batch will need into the cache.
    pub fn prefetch(&self) {
        prefetch_all(&*self.fib);
    }
}
