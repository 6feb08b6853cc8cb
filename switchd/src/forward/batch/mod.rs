//! \[4\] The packets of a batch on their way from the parser to their next hops. Each step is done
//! for all of them before the next, so that the waits for memory overlap.

mod choose;
mod look_up;

use crate::forward::choice::Choice;
use crate::forward::dlb::flowlet;
use crate::id::{GroupId, PortId, TraceId};
use crate::limits::LANES;
use crate::packet::{Parsed, Version};
use common::xdp::frame::Frame;

/// The packets of a batch that the parser accepted, with their routes. The default is empty and
/// allocates nothing; it takes the batch's place in the worker while a turn works on the batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// The packets, and where each arrived.
    pub lanes: Vec<(Frame, PortId)>,
    /// By lane: what the parser found. It stays where it was written: a lane that is taken is
    /// moved, and to move what was just written means to wait until it is in the cache.
    pub parsed: Vec<Parsed>,
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

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    fn push(&mut self, lane: usize, dst: [u8; N]) {
        self.lanes.push(lane);
        self.addresses.push(dst);
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
            parsed: Vec::with_capacity(LANES),
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
            Version::V4 => self.v4.push(self.lanes.len(), parsed.dst.octets_v4()),
            Version::V6 => self.v6.push(self.lanes.len(), parsed.dst.octets_v6()),
        }
        self.lanes.push((frame, ingress));
        self.parsed.push(parsed);
    }
}
