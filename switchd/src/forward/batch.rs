//! \[4\] The packets of a batch on their way from the parser to their next hops. Each step is done
//! for all of them before the next, so that the waits for memory overlap.

use crate::forward::dlb::balancer::Balancer;
use crate::forward::dlb::flowlet;
use crate::forward::ecmp;
use crate::forward::fib::Fib;
use crate::forward::route::{Choice, choose, choose_by};
use crate::id::{GroupId, PortId, TraceId};
use crate::limits::LANES;
use crate::packet::{Parsed, Version};
use crate::tables::Tables;
use common::time::Time;
use common::xdp::frame::Frame;

/// The packets of a batch that the parser accepted, with their routes. The default is empty and
/// allocates nothing; it takes the batch's place in the worker while a turn works on the batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// The packets, and where each arrived.
    pub lanes: Vec<(Frame, PortId, Parsed)>,
    /// By lane: what the lookup found.
    pub groups: Vec<Option<GroupId>>,
    /// By lane: the hash of the flow; empty while neither balancing nor elephants ask for all of
    /// them.
    pub hashes: Vec<u32>,
    /// By lane: the flow, if it is not left to the hash.
    flows: Vec<Option<flowlet::Flow>>,
    /// By lane: where that leads.
    pub choices: Vec<Choice>,
    /// By lane: which traced packet it is; empty while nothing is traced.
    pub traces: Vec<TraceId>,
    v4: Lookups<4>,
    v6: Lookups<16>,
}

/// The lanes of one version of IP.
#[derive(Debug, Default)]
struct Lookups<const N: usize> {
    lanes: Vec<usize>,
    addresses: Vec<[u8; N]>,
    found: Vec<Option<GroupId>>,
}

impl<const N: usize> Lookups<N> {
    fn new() -> Self {
        Self {
            lanes: Vec::with_capacity(LANES),
            addresses: Vec::with_capacity(LANES),
            found: vec![None; LANES],
        }
    }

    fn push(&mut self, lane: usize, dst: &[u8; 16]) {
        self.lanes.push(lane);
        self.addresses
            .push(*dst.first_chunk().expect("N is 4 or 16"));
    }

    /// Writes what was found to the lanes' places and empties itself.
    fn spread(&mut self, groups: &mut [Option<GroupId>]) {
        for (&lane, &found) in self.lanes.iter().zip(&self.found) {
            groups[lane] = found;
        }
        self.lanes.clear();
        self.addresses.clear();
    }
}

impl Batch {
    /// Room for all packets of a batch.
    pub fn new() -> Self {
        Self {
            lanes: Vec::with_capacity(LANES),
            groups: Vec::with_capacity(LANES),
            hashes: Vec::with_capacity(LANES),
            flows: Vec::with_capacity(LANES),
            choices: Vec::with_capacity(LANES),
            traces: Vec::with_capacity(LANES),
            v4: Lookups::new(),
            v6: Lookups::new(),
        }
    }

    /// Adds a packet.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub fn push(&mut self, frame: Frame, ingress: PortId, parsed: Parsed) {
        match parsed.version {
            Version::V4 => self.v4.push(self.lanes.len(), &parsed.dst),
            Version::V6 => self.v6.push(self.lanes.len(), &parsed.dst),
        }
        self.lanes.push((frame, ingress, parsed));
    }

    /// Looks all destinations up together.
    pub fn look_up(&mut self, fib: &Fib) {
        self.groups.clear();
        self.groups.resize(self.lanes.len(), None);
        fib.lookup_v4_batch(&self.v4.addresses, &mut self.v4.found);
        fib.lookup_v6_batch(&self.v6.addresses, &mut self.v6.found);
        self.v4.spread(&mut self.groups);
        self.v6.spread(&mut self.groups);
    }

    /// Whether a route leads to a group that `tables` lack.
    pub fn is_ahead_of(&self, tables: &Tables) -> bool {
        let mut groups = self.groups.iter().flatten();
        groups.any(|group| tables.group(*group).is_none())
    }

    /// Chooses the next hops of all lanes.
    pub fn choose(&mut self, tables: &Tables, balancer: &mut Balancer, now: Time) {
        self.hashes.clear();
        if tables.dlb.is_on() || !tables.traffic.elephants.is_empty() {
            let lanes = self.lanes.iter();
            self.hashes.extend(
                lanes.map(|(frame, _, parsed)| {
                    ecmp::flow_hash(frame.bytes(), parsed, &tables.hashing)
                }),
            );
        }
        if tables.dlb.is_on() {
            return self.balance(tables, balancer, now);
        }
        let mut hashes = self.hashes.iter();
        let lanes = self.lanes.iter().zip(&self.groups);
        self.choices.extend(
            lanes.map(|((frame, _, parsed), group)| match hashes.next() {
                Some(hash) => choose_by(tables, *group, || *hash),
                None => choose(tables, *group, frame.bytes(), parsed),
            }),
        );
    }

    /// As `choose`, where some groups look at more than the hash. First all entries of the flow
    /// table are fetched, so that the waits for them overlap.
    fn balance(&mut self, tables: &Tables, balancer: &mut Balancer, now: Time) {
        self.flows.clear();
        let lanes = self.lanes.iter().zip(&self.groups).zip(&self.hashes);
        self.flows
            .extend(lanes.map(|(((frame, _, parsed), group), hash)| {
                balancer.flow(tables, *group, (frame.bytes(), parsed), *hash)
            }));
        let lanes = self.groups.iter().zip(&self.hashes).zip(&self.flows);
        let choices = lanes.map(|((group, hash), flow)| match flow {
            Some(flow) => balancer.choose(tables, *flow, now),
            None => choose_by(tables, *group, || *hash),
        });
        self.choices.extend(choices);
    }
}

/// The group that the route of one packet leads to.
pub fn look_up(fib: &Fib, parsed: &Parsed) -> Option<GroupId> {
    match parsed.version {
        Version::V4 => fib.lookup_v4(*parsed.dst.first_chunk().expect("4 of 16")),
        Version::V6 => fib.lookup_v6(parsed.dst),
    }
}
