//! The accounts of a fabric: every frame is somewhere, and every counter agrees with what is seen
//! from outside.

use super::check::{Check, Failure};
use super::fabric::{Fabric, Node};
use super::network::NodeId;
use super::simulation::state::Simulation;
use super::switch::Switch;
use super::tester::TesterCount;
use super::wire::WireCount;
use switchd::drop::DropReason;
use switchd::limits::CELL;
use switchd::stats::PortStats;

/// Reasons by which a switch loses packets because it has no room for them.
const FOR_WANT_OF_ROOM: &[DropReason] = &[
    DropReason::QueueFull,
    DropReason::RingFull,
    DropReason::IngressFull,
    DropReason::HeadroomFull,
    DropReason::BufferFull,
];

/// Checks everything that holds at any time.
///
/// # Errors
/// The first check that failed.
pub fn audit<const BYTES: bool>(simulation: &mut Simulation<BYTES>) -> Result<(), Failure> {
    let lossless = simulation.scenario.lossless;
    let kept = books(&mut simulation.fabric, lossless);
    kept.map_err(|failure| simulation.signed(failure))?;
    violations(simulation)
}

/// Checks the books of all nodes and wires; in a lossless fabric, also that nothing was lost for
/// want of room.
///
/// # Errors
/// The first check that failed.
pub fn books<const BYTES: bool>(fabric: &mut Fabric<BYTES>, lossless: bool) -> Result<(), Failure> {
    for index in 0..fabric.nodes.len() {
        let node = NodeId(u32::try_from(index).expect("few nodes"));
        let found = match &fabric.nodes[index] {
            Node::Switch(_) => switch(fabric, lossless, node),
            Node::Host(_) => host(fabric, node),
            Node::Tester(_) => tester(fabric, node),
        };
        if let Some((check, what)) = found {
            let name = fabric.plan.nodes[index].name.clone();
            return Err(fabric.failed(check, &[node], format!("{name}: {what}")));
        }
    }
    wires(fabric, lossless)?;
    frames(fabric)
}

/// Frames that arrived at and left from the ports of a node, as its wires have counted.
fn passed<const BYTES: bool>(fabric: &Fabric<BYTES>, node: NodeId) -> [u64; 2] {
    let mut sums = [0; 2];
    for port in 0..fabric.plan.nodes[node.index()].ports.len() {
        let out = fabric.wire_from(node, u16::try_from(port).expect("few ports"));
        // The other direction of a link is its neighbour in the list.
        let (out, back) = (&fabric.wires[out], &fabric.wires[out ^ 1]);
        sums[0] += back.count.delivered;
        sums[1] += out.count.frames - out.injected;
    }
    sums
}

type Finding = Option<(Check, String)>;

fn differs(what: &str, seen: u64, counted: u64) -> Finding {
    (seen != counted).then(|| {
        let text = format!("{what}: {seen} from outside, {counted} by its own counters");
        (Check::Conservation, text)
    })
}

fn switch<const BYTES: bool>(fabric: &mut Fabric<BYTES>, lossless: bool, node: NodeId) -> Finding {
    let [arrived, left] = passed(fabric, node);
    let Node::Switch(switch) = &mut fabric.nodes[node.index()] else {
        return None;
    };
    let [held, waiting, _] = switch.holdings();
    let received = switch.sum(|port| port.rx_packets.get());
    let sent = switch.sum(|port| port.tx_packets.get());
    let made = switch.sum(PortStats::made);
    let ended = switch.sum(PortStats::ended);
    let taken = received + waiting as u64 + switch.lost_in_rings;
    let kept = held as u64 + switch.lost_in_crash;
    differs("frames received", arrived, taken)
        .or_else(|| differs("frames sent", left, sent))
        .or_else(|| {
            let out = sent + ended + kept;
            (received + made != out).then(|| {
                let text = format!(
                    "{received} received and {made} made, but {sent} sent, {ended} ended here, {kept} held"
                );
                (Check::Conservation, text)
            })
        })
        .or_else(|| queues(switch))
        .or_else(|| limits(switch))
        .or_else(|| {
            let lost: u64 = FOR_WANT_OF_ROOM.iter().map(|it| switch.dropped(*it)).sum();
            (lossless && lost > 0)
                .then(|| (Check::Lossless, format!("{lost} packets lost for want of room")))
        })
}

/// What a queue accepted was sent, was lost in it, or is there.
fn queues(switch: &Switch) -> Finding {
    let ports = switch.stats().ports.iter().enumerate();
    let mut queues = ports.flat_map(|(port, stats)| {
        let queues = stats.queues.iter().enumerate();
        queues.map(move |(class, queue)| (port, class, queue))
    });
    queues.find_map(|(port, class, queue)| {
        let (accepted, sent) = (queue.enqueued_packets.get(), queue.sent_packets.get());
        let (discarded, held) = (queue.discarded_packets.get(), queue.depth_packets.get());
        (accepted != sent + discarded + held).then(|| {
            let text = format!(
                "queue {class} of port {port}: {accepted} accepted, but {sent} sent, {discarded} discarded, {held} held"
            );
            (Check::Conservation, text)
        })
    })
}

/// Queues hold no more than they may, and the buffer of a switch that holds nothing accounts for
/// nothing, on either side.
fn limits(switch: &mut Switch) -> Finding {
    let (held, packets) = (switch.holdings()[0], switch.packet_limit());
    if held > packets {
        let text = format!("it holds {held} packets, {packets} are allowed");
        return Some((Check::Limits, text));
    }
    let cells = switch.cells_in_use();
    if held == 0 && cells > 0 && switch.is_running() {
        let text = format!("it holds nothing, but {cells} cells are in the accounts of its buffer");
        return Some((Check::Limits, text));
    }
    let limit = u64::from(switch.queue_limit()?) / CELL as u64;
    let ports = switch.stats().ports.iter().enumerate();
    let mut queues = ports.flat_map(|(port, stats)| {
        let depths = stats.queues.iter().map(|queue| queue.depth_cells.get());
        depths
            .enumerate()
            .map(move |(class, depth)| (port, class, depth))
    });
    let (port, class, depth) = queues.find(|(_, _, depth)| *depth > limit)?;
    let text = format!("queue {class} of port {port} holds {depth} cells, {limit} are allowed");
    Some((Check::Limits, text))
}

fn host<const BYTES: bool>(fabric: &mut Fabric<BYTES>, node: NodeId) -> Finding {
    let [arrived, left] = passed(fabric, node);
    let host = fabric.host(node);
    let [_, waiting, _] = host.holdings();
    let [received, sent] = host.counted();
    let lost = host.past.lost_in_ring;
    let [starved, unknown] = host.worker().map_or([0; 2], |worker| {
        let (engine, statistics) = (worker.engine(), worker.engine().statistics());
        let known = statistics.settled() + engine.held_packets() as u64;
        [statistics.no_frame, statistics.rx_packets.abs_diff(known)]
    });
    differs("frames received", arrived, received + waiting as u64 + lost)
        .or_else(|| differs("frames sent", left, sent))
        .or_else(|| {
            let text = format!("of {unknown} received packets it does not say what became of them");
            (unknown > 0).then_some((Check::Conservation, text))
        })
        .or_else(|| starvation(starved))
}

fn starvation(times: u64) -> Finding {
    let text = format!("{times} times no frame was free");
    (times > 0).then_some((Check::Frames, text))
}

fn tester<const BYTES: bool>(fabric: &mut Fabric<BYTES>, node: NodeId) -> Finding {
    let [arrived, left] = passed(fabric, node);
    let TesterCount {
        sent,
        received,
        starved,
        ..
    } = fabric.tester(node).count;
    differs("frames received", arrived, received)
        .or_else(|| differs("frames sent", left, sent))
        .or_else(|| starvation(starved))
}

fn wires<const BYTES: bool>(fabric: &Fabric<BYTES>, lossless: bool) -> Result<(), Failure> {
    for wire in &fabric.wires {
        let WireCount {
            frames,
            duplicated,
            lost,
            down,
            overrun,
            no_daemon,
            delivered,
            ..
        } = wire.count;
        if lossless && overrun > 0 {
            let what = format!("{overrun} frames found a receive ring full");
            return Err(fabric.failed(Check::Lossless, &[wire.to.node], what));
        }
        let out = lost + down + overrun + no_daemon + delivered + wire.in_flight() as u64;
        if frames + duplicated != out {
            let ends = [wire.from.node, wire.to.node];
            let what =
                format!("{frames} frames sent and {duplicated} doubled, {out} accounted for");
            return Err(fabric.failed(Check::Conservation, &ends, what));
        }
    }
    Ok(())
}

/// Every frame of the fabric's memory has an owner.
fn frames<const BYTES: bool>(fabric: &mut Fabric<BYTES>) -> Result<(), Failure> {
    let (free, all) = fabric.frames();
    let mut found = free + fabric.on_wires();
    for node in &mut fabric.nodes {
        found += match node {
            Node::Switch(switch) => switch.holdings(),
            Node::Host(host) => host.holdings(),
            Node::Tester(_) => [0; 3],
        }
        .iter()
        .sum::<usize>();
    }
    if found == all {
        return Ok(());
    }
    let what = format!("{found} of {all} frames are in somebody's hands");
    Err(fabric.failed(Check::Frames, &[], what))
}

/// What applications noticed.
fn violations<const BYTES: bool>(simulation: &mut Simulation<BYTES>) -> Result<(), Failure> {
    let hosts: Vec<NodeId> = simulation.fabric.plan.host_ids().collect();
    for node in hosts {
        let app = simulation.fabric.host(node).app();
        if let Some((check, what)) = app.and_then(|app| app.violation.clone()) {
            return Err(simulation.failed(check, &[node], what));
        }
    }
    for connection in &simulation.connections {
        if let Some((check, what)) = connection.ledger.borrow().violation.clone() {
            let ends = [connection.from, connection.to];
            return Err(simulation.failed(check, &ends, what));
        }
    }
    Ok(())
}

/// Whether nothing is under way: no frame on a wire, in a queue or in a ring.
pub fn is_at_rest<const BYTES: bool>(fabric: &mut Fabric<BYTES>) -> bool {
    fabric.on_wires() == 0
        && fabric.nodes.iter_mut().all(|node| match node {
            Node::Switch(switch) => {
                let [held, waiting, _] = switch.holdings();
                held + waiting == 0
            }
            Node::Host(host) => host.holdings()[1] == 0,
            Node::Tester(_) => true,
        })
}

/// Checks what holds at the end: nothing is left anywhere, and everything arrived.
///
/// # Errors
/// The first check that failed.
pub fn audit_end<const BYTES: bool>(simulation: &mut Simulation<BYTES>) -> Result<(), Failure> {
    if !is_at_rest(&mut simulation.fabric) {
        let what = "packets are held though nothing happens any more".to_owned();
        return Err(simulation.failed(Check::Liveness, &[], what));
    }
    // Who has lost its peer may keep early packets; who has not delivers all of them.
    let hosts = simulation
        .fabric
        .nodes
        .iter()
        .filter_map(|node| match node {
            Node::Host(host) => host.worker(),
            Node::Switch(_) | Node::Tester(_) => None,
        });
    let early: usize = hosts.map(|worker| worker.engine().held_packets()).sum();
    if early > 0 && !simulation.connections.iter().any(|one| one.over) {
        let what = format!("{early} packets are left in reorder buffers");
        return Err(simulation.failed(Check::Conservation, &[], what));
    }
    for connection in &simulation.connections {
        let left = connection.ledger.borrow().outstanding();
        if left > 0 && !connection.over {
            let ends = [connection.from, connection.to];
            let what = format!("{left} messages were never delivered");
            return Err(simulation.failed(Check::ExactlyOnce, &ends, what));
        }
    }
    Ok(())
}
