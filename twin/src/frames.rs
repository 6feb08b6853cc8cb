//! The memory of all frames that can be under way in a simulation.

use super::collective::Job;
use super::flow::{Flow, Workload};
use common::xdp::frame::Region;
use hostd::verbs::EngineConfig;
use std::collections::HashSet;
use std::sync::Arc;

/// Frames beyond those that connections have under way: what each node keeps at hand, and a margin.
const FRAMES_AT_HAND: usize = 400;

/// Bytes in front of each frame that stay free.
const HEADROOM: u16 = 64;

/// Most bytes of a message of a job in its frame, over IPv6.
const MESSAGE: usize = 14 + 40 + 8 + 48 + 1400;

/// Messages that a member may have under way for each of its slots: those that come twice or late
/// beside the others, up and down, at two levels.
const MESSAGES_A_SLOT: usize = 8;

/// Frames that can be under way between `nodes` nodes, and bytes of each.
fn frames(
    config: &EngineConfig,
    nodes: usize,
    workload: &Workload,
    jobs: &[Job],
) -> (usize, usize) {
    let most = hostd::limits::HEADERS + hostd::limits::TRAILER + usize::from(config.path_mtu);
    // Also what is not a data packet fits, and chunks begin at cache lines.
    let least = if jobs.is_empty() { 600 } else { MESSAGE };
    let chunk = (usize::from(HEADROOM) + most.max(least)).next_multiple_of(64);
    let connections: HashSet<_> = workload.flows.iter().map(Flow::connection).collect();
    let bytes: u64 = workload.flows.iter().map(|flow| flow.bytes).sum();
    let packets = bytes.div_ceil(u64::from(config.path_mtu)) + workload.flows.len() as u64;
    let packets = usize::try_from(packets).unwrap_or(usize::MAX / 4);
    let window = config.window as usize + 32;
    let under_way = (connections.len() * window).min(2 * packets + 32 * connections.len());
    let slots = |job: &Job| job.hosts.len() * usize::from(job.slots);
    let messages: usize = jobs.iter().map(slots).sum::<usize>() * MESSAGES_A_SLOT;
    (under_way + messages + nodes * FRAMES_AT_HAND + 4096, chunk)
}

/// Bytes of all frames that can be under way.
pub fn packet_memory(
    config: &EngineConfig,
    nodes: usize,
    workload: &Workload,
    jobs: &[Job],
) -> u64 {
    let (frames, chunk) = frames(config, nodes, workload, jobs);
    frames as u64 * chunk as u64
}

/// Memory for all frames that can be under way.
pub fn region(
    config: &EngineConfig,
    nodes: usize,
    workload: &Workload,
    jobs: &[Job],
) -> Arc<Region> {
    let (frames, chunk) = frames(config, nodes, workload, jobs);
    Region::heap(
        u32::try_from(frames).unwrap_or(u32::MAX),
        u16::try_from(chunk).expect("less than 64 KiB"),
        HEADROOM,
    )
}
