//! What a simulation has to remember: connections, and the frames that they have under way.

use super::Connection;
use crate::app::ConnectionId;
use crate::flow::{Flow, Workload};
use crate::memory::Ledger;
use crate::scenario::{BEGINNING, Scenario};
use common::xdp::frame::Region;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Frames beyond those that connections have under way: what each node keeps at hand, and a margin.
const FRAMES_AT_HAND: usize = 400;

/// The connections of a workload, and by flow which one it uses.
pub(super) fn connections(workload: &Workload, seed: u64) -> (Vec<Connection>, Vec<ConnectionId>) {
    let mut numbers = HashMap::new();
    let mut connections = Vec::new();
    let mut of_flow = Vec::with_capacity(workload.flows.len());
    for flow in &workload.flows {
        let number = *numbers.entry(flow.connection()).or_insert_with(|| {
            let own = seed ^ (connections.len() as u64).rotate_left(32);
            connections.push(Connection {
                from: flow.from,
                to: flow.to,
                ledger: Rc::new(RefCell::new(Ledger::new(own))),
                up: 0,
                over: false,
                messages: 0,
                under_way: VecDeque::new(),
                seen: (0, BEGINNING),
            });
            connections.len() - 1
        });
        of_flow.push(number);
    }
    (connections, of_flow)
}

/// Bytes in front of each frame that stay free.
const HEADROOM: u16 = 64;

/// Frames that can be under way, and bytes of each.
fn frames(scenario: &Scenario, workload: &Workload) -> (usize, usize) {
    let config = &scenario.host;
    let most = hostd::limits::HEADERS + hostd::limits::TRAILER + usize::from(config.path_mtu);
    // Also what is not a data packet fits, and chunks begin at cache lines.
    let chunk = (usize::from(HEADROOM) + most.max(600)).next_multiple_of(64);
    let connections: HashSet<_> = workload.flows.iter().map(Flow::connection).collect();
    let bytes: u64 = workload.flows.iter().map(|flow| flow.bytes).sum();
    let packets = bytes.div_ceil(u64::from(config.path_mtu)) + workload.flows.len() as u64;
    let packets = usize::try_from(packets).unwrap_or(usize::MAX / 4);
    let window = config.window as usize + 32;
    let under_way = (connections.len() * window).min(2 * packets + 32 * connections.len());
    let nodes = scenario.plan().nodes.len();
    (under_way + nodes * FRAMES_AT_HAND + 4096, chunk)
}

/// Bytes of all frames that can be under way.
pub fn packet_memory(scenario: &Scenario, workload: &Workload) -> u64 {
    let (frames, chunk) = frames(scenario, workload);
    frames as u64 * chunk as u64
}

/// Memory for all frames that can be under way.
pub(super) fn region(scenario: &Scenario, workload: &Workload) -> Arc<Region> {
    let (frames, chunk) = frames(scenario, workload);
    Region::heap(
        u32::try_from(frames).unwrap_or(u32::MAX),
        u16::try_from(chunk).expect("less than 64 KiB"),
        HEADROOM,
    )
}
