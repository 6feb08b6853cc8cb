//! The composition root: opens what the configuration names, starts the threads, stops them in
//! order.
//!
//! ```text
//!   start   capabilities, devices ─▶ packet memory ─▶ kernel's tables ─▶ ports: program, sockets
//!           ─▶ workers, a thread each ─▶ control, this thread ─▶ READY=1
//!   stop    READY gone ─▶ programs detached ─▶ workers drain, bounded ─▶ threads end ─▶ sockets
//!           closed: the devices are as they were
//! ```
//!
//! Nothing of the kernel is changed but this: an XDP program is attached to each port while the
//! daemon runs, the kernel is asked for neighbours, and packet memory may need a device of its own
//! to be bound to (`xsk-anchor0`, which stays). Addresses, routes, sysctls, link states and
//! offloads stay as they are.

use crate::compute::Backlog;
use crate::config::{Compiled, Config, Fitted, PortFacts, PortSettings, Source};
use crate::control::active_config::ActiveConfig;
use crate::control::admin;
use crate::control::opener::Opener;
use crate::control::port_handle::PortHandle;
use crate::control::porter::Porter;
use crate::control::ports::{port_options, warn_of_stripped_tags};
use crate::control::program::Program;
use crate::control::routing::Routing;
use crate::control::slots::Slots;
use crate::control::state::{State, TrafficHandle, WorkerHandle, lock};
use crate::control::thread::Control;
use crate::forward::dlb::quality::QualityTable;
use crate::id::PortId;
use crate::limits::{BATCH, CHANNEL, MAX_PORTS, OUTBOUND, PENDING_TOTAL, RING};
use crate::preflight::{self, SwitchError};
use crate::stats::WorkerStats;
use crate::tables::PortEntry;
use crate::tables::validation::SourceValidation;
use crate::traffic::buffer::Ledger;
use crate::worker::builder::WorkerBuilder;
use crate::worker::events::{Detached, QueueLink, WorkerCommand, WorkerEvent};
use crate::worker::rings::{RingEnds, rings};
use crate::worker::thread::WorkerThread;
use common::config::Loaded;
use common::netlink::{self, Watch};
use common::schedulers::SharedSchedulers;
use common::sync::counter::Counter;
use common::sys::{Waker, monotonic};
use common::time::Span;
use common::wire::compute::RANKS;
use common::wire::schedule::Role;
use common::xdp::limits::{PACKET_MAX, PIECES_MAX};
use common::xdp::netdev::Device;
use common::xdp::{
    AfXdpQueue, BridgeMaps, Port, PortOptions, Prefixes, Umem, frames_beside_rings, mtu_limit,
    open_port,
};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long the kernel may take to report all its tables. A full Internet table takes about two
/// seconds.
const FIRST_SYNC: Span = Span::from_secs(30);

/// How long workers may take to begin. On a busy machine it takes some hundred milliseconds.
const FIRST_TURNS: Span = Span::from_secs(5);

/// How long the threads may take to end after the queues have drained.
const END: Duration = Duration::from_secs(1);

/// How long sockets and packet memory may take to be closed behind them.
const CLOSE: Duration = Duration::from_secs(5);

/// Runs the switch until SIGTERM or SIGINT. `source` is where `loaded` came from and is read again.
///
/// # Errors
/// What prevents the start, or ended the run, in words for the operator.
pub fn run(loaded: &Loaded<Config>, source: Source) -> Result<(), SwitchError> {
    let config = &loaded.settings;
    preflight::capabilities()?;
    let devices = preflight::devices(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(SwitchError::system("event loop"))?;
    // Another daemon that has the socket is found before any interface is touched.
    let listeners = runtime.block_on(async { listeners(config).await })?;
    let ended = forward(loaded, source, &devices, &runtime, listeners);
    let _ = std::fs::remove_file(&config.admin.socket);
    ended
}

/// Forwards between these devices.
fn forward(
    loaded: &Loaded<Config>,
    source: Source,
    devices: &[(PortSettings, Device)],
    runtime: &Runtime,
    (admin, http): Listeners,
) -> Result<(), SwitchError> {
    let config = &loaded.settings;
    let Fitted {
        compiled,
        facts,
        longest_ring,
    } = preflight::fit(config, devices)?;
    let umem = packet_memory(config, devices, &facts)?;
    preflight::warnings(config)
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let spare = spare_slots(config, devices.len());
    let compiled = compiled.spread((0..devices.len() + spare).map(|it| it < devices.len()));
    let receive_rings: Vec<u32> = facts.iter().map(|port| port.ring).collect();
    let spare_frames = config.spare_frames(&facts);
    let active = ActiveConfig::new(source, loaded.clone(), facts, &compiled)
        .with_spare(spare)
        .with_longest_ring(longest_ring);
    let warnings = active.warnings.iter();
    warnings.for_each(|warning| tracing::warn!("{warning}"));
    let mut routing = follow_kernel(config, devices, spare, &compiled)?;
    let steer = routing
        .synchronise(monotonic() + FIRST_SYNC)
        .map_err(SwitchError::Netlink)?;
    let prefixes = Arc::new(Prefixes::new().map_err(SwitchError::system("map of prefixes"))?);
    let bridges = Arc::new(BridgeMaps::new().map_err(SwitchError::system("maps of bridges"))?);
    let shared = (&prefixes, &bridges);
    let devices_and_rings = devices.iter().zip(receive_rings);
    let ports = open_ports(&umem, config, devices_and_rings, &steer.new_locals, shared)?;
    let ledger = Ledger::new(ports.len() + spare, config.workers.count);
    let slots = slots(devices, &ports, spare);
    let (threads, state) = start_workers(&umem, routing, ports, active, ledger)?;
    lock(&state).begin_to_steer((prefixes, bridges), steer);
    let Threads {
        links,
        events,
        detached,
        waker,
    } = threads;
    let opener = Opener::start(umem.clone(), spare_frames, waker.clone())
        .map_err(SwitchError::system("thread"))?;
    let porter = Porter::new(opener, detached);
    lock(&state).begin_to_follow_ports(slots, porter, monotonic());
    begin_functions(config, &mut lock(&state))?;
    await_first_turns(&state);
    let control = Control {
        state: state.clone(),
        events: events.clone(),
        waker,
        keep_alive: Duration::from_secs(config.neighbours.keep_alive_seconds),
        retry: Duration::from_secs(config.neighbours.retry_seconds),
        changed: tokio::sync::Notify::new(),
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tracing::info!("forwarding between {} ports", devices.len());
    let result = runtime.block_on(control.run(admin, http));
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    tracing::info!("stopping: draining the queues");
    // From now on the kernel gets what arrives, and the workers send what they have.
    lock(&state).detach();
    let limit = Duration::from_millis(config.stop.drain_milliseconds);
    // It may be longer than the unit's TimeoutStopSec.
    let _ = sd_notify::notify(&[longest_stop(limit)]);
    stop_workers(links, &events, limit);
    drop((control, state));
    tracing::info!("stopped");
    result.map_err(SwitchError::Netlink)
}

/// Waits until each worker has taken its first turn, from which on its queues get packets: what is
/// told to be ready forwards. Not for ever: a worker that is stuck is seen by its heartbeat.
fn await_first_turns(state: &Mutex<State>) {
    let until = monotonic() + FIRST_TURNS;
    let is_at_work = |worker: &WorkerHandle| {
        // It sleeps after a turn.
        worker.sleeps.get() > 0 || worker.stats.turns.get() > 1
    };
    while !lock(state).workers.iter().all(is_at_work) && monotonic() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has the workers do what is on beside forwarding.
fn begin_functions(config: &Config, state: &mut State) -> Result<(), SwitchError> {
    if config.scheduling.announce {
        let spread = config.ecmp.dlb.finest();
        state.schedulers = Some(SharedSchedulers::new(Role::Switch, spread));
    }
    let fail = |what: &'static str| {
        move |error: String| SwitchError::system(what)(io::Error::other(error))
    };
    // Who could guess it could send flows that all fall into one place of a table.
    let seed = RandomState::new().hash_one(());
    let followed = state.begin_to_follow_flows(seed);
    followed.map_err(fail("flow analysis"))?;
    state.begin_to_compute().map_err(fail("in-network compute"))
}

/// Ports that may come while the switch runs: each has a receive queue at least.
fn spare_slots(config: &Config, ports: usize) -> usize {
    (config.spare_queues() as usize).min(MAX_PORTS - ports)
}

/// The ports of the start, and room for so many more.
fn slots(devices: &[(PortSettings, Device)], ports: &[Port], spare: usize) -> Slots {
    let open = devices.iter().zip(ports).map(|((settings, _), port)| {
        let limit = mtu_limit(port.mode, &port.device.driver);
        (settings.clone(), port.device.ifindex, limit)
    });
    Slots::new(open, spare)
}

/// A port number that no port has yet.
fn vacant() -> PortEntry {
    PortEntry {
        name: String::new(),
        ifindex: 0,
        mac: [0; 6],
        up: false,
        mtu: 0,
        speed: None,
        link: None,
        icmp_v4: None,
        icmp_v6: None,
        mtu_v6: u16::MAX,
        burst: 0,
        validation: SourceValidation::Off,
        csig: None,
        int: None,
    }
}

/// The memory of all frames: a sum of named holders.
fn packet_memory(
    config: &Config,
    devices: &[(PortSettings, Device)],
    facts: &[PortFacts],
) -> Result<Umem, SwitchError> {
    let workers = u32::try_from(config.workers.count).expect("checked: at most 64");
    let limit = |limit: usize| u32::try_from(limit).expect("a small constant");
    // What the engine of one worker holds in addition to the buffer: packets that wait for a MAC
    // address, the rings from the others with what is on its way there, and the batches in its
    // hands.
    let crossing = (limit(RING) + limit(OUTBOUND)) * (workers - 1);
    // With in-network compute those that wait for the share of their job, and results for all
    // members of one.
    let compute = match config.compute.enabled {
        true => limit(Backlog::<()>::MOST + 2 * RANKS),
        false => 0,
    };
    let engine = limit(PENDING_TOTAL) + crossing + 4 * limit(BATCH) + compute;
    // Each may be a jumbo frame, where links carry them. In the buffer such a frame has more cells
    // than chunks.
    let is_jumbo = |device: &Device| device.mtu > u32::from(PACKET_MAX);
    let pieces = if devices.iter().any(|(_, device)| is_jumbo(device)) {
        PIECES_MAX
    } else {
        1
    };
    let rings = config.frames_of_rings(facts, &preflight::rx_queues(devices));
    let engine = config.buffer_packets() + workers * engine * pieces;
    let frames = rings.saturating_add(frames_beside_rings(workers, engine));
    tracing::info!("packet memory: {frames} frames, {} MiB", frames / 256);
    Ok(Umem::new(frames, config.memory.ring.transmit())?)
}

fn follow_kernel(
    config: &Config,
    devices: &[(PortSettings, Device)],
    spare: usize,
    compiled: &Compiled,
) -> Result<Routing, SwitchError> {
    let settings = netlink::Settings {
        resync: config.resync(),
    };
    let watch =
        Watch::open(settings, config.netlink.receive_buffer_bytes).map_err(SwitchError::Netlink)?;
    let entries = devices
        .iter()
        .map(|(port, device)| port.entry(device))
        .chain((0..spare).map(|_| vacant()));
    // Switches that have no port yet must not all hash alike either.
    let random = RandomState::new().hash_one(()).to_ne_bytes();
    let unknown = [
        random[0], random[1], random[2], random[3], random[4], random[5],
    ];
    let macs = devices.iter().map(|(_, device)| device.mac);
    let unknown = devices.is_empty().then_some(unknown);
    let hashing = config.hashing(macs.chain(unknown));
    let dlb = &config.ecmp.dlb;
    let policy = Arc::new(compiled.policy.clone());
    let program = Program::new(entries.collect(), hashing, policy)
        .with_balancing(dlb.policy(), dlb.group_modes())
        .with_bridging(config.bridge.fdb_entries as usize);
    Ok(Routing::new(watch, program))
}

/// Opens the ports, each with the receive rings that it is to have.
fn open_ports<'a>(
    umem: &Umem,
    config: &Config,
    devices: impl Iterator<Item = (&'a (PortSettings, Device), u32)>,
    locals: &[IpAddr],
    (prefixes, bridges): (&Arc<Prefixes>, &Arc<BridgeMaps>),
) -> Result<Vec<Port>, SwitchError> {
    let open = |((port, device), receive): (&(PortSettings, Device), u32)| {
        warn_of_stripped_tags(device);
        let shared = (Some(prefixes.clone()), Some(bridges.clone()));
        let options = PortOptions {
            receive_ring: Some(receive),
            ..port_options(config, port, shared, locals.to_vec())
        };
        Ok(open_port(umem, &port.name, &options)?)
    };
    devices.map(open).collect()
}

/// The admin socket, and where Prometheus asks.
type Listeners = (common::admin::Listener, Option<tokio::net::TcpListener>);

async fn listeners(config: &Config) -> Result<Listeners, SwitchError> {
    let path = &config.admin.socket;
    let admin = admin::bind(path).map_err(|error| SwitchError::Admin {
        path: path.display().to_string(),
        error,
    })?;
    let http = match config.metrics_address().map_err(SwitchError::refused)? {
        None => None,
        Some(address) => {
            let listener = tokio::net::TcpListener::bind(address).await;
            Some(listener.map_err(|error| SwitchError::Metrics {
                address: address.to_string(),
                error,
            })?)
        }
    };
    Ok((admin, http))
}

/// A worker's thread, to stop it.
#[derive(Debug)]
struct Link {
    thread: JoinHandle<()>,
    commands: Sender<WorkerCommand>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    stats: Arc<WorkerStats>,
}

impl Link {
    /// Packets in the worker's egress queues when it last reported.
    fn queued(&self) -> u64 {
        let queues = self.stats.ports.iter().flat_map(|port| &port.queues);
        queues.map(|queue| queue.depth_packets.get()).sum()
    }
}

/// The workers' threads.
#[derive(Debug)]
struct Threads {
    links: Vec<Link>,
    events: Receiver<WorkerEvent>,
    /// Queues that workers let go of.
    detached: Receiver<Detached<AfXdpQueue>>,
    /// Wakes control.
    waker: Waker,
}

/// Which queue goes to which worker: dealt out in turn, and so that the first queues of the ports,
/// and with them the egress ports, are spread evenly.
fn deal(ports: &[u32], workers: usize) -> Vec<Vec<(PortId, usize)>> {
    let mut hands = vec![Vec::new(); workers];
    for (port, (&queues, id)) in ports.iter().zip(0_u16..).enumerate() {
        for queue in 0..queues as usize {
            hands[(port + queue) % workers].push((PortId(id), queue));
        }
    }
    // The owner of a port is the worker that has its queue 0, which must come first there.
    for hand in &mut hands {
        hand.sort_by_key(|&(port, queue)| (queue, port));
    }
    hands
}

/// What all workers are started with.
struct Shared<'a> {
    config: &'a Config,
    umem: &'a Umem,
    routing: &'a Routing,
    ledger: Arc<Ledger>,
    quality: Arc<QualityTable>,
    /// By port: the worker that owns it as egress.
    owners: Vec<usize>,
    /// Wake the workers, by number.
    wakers: Vec<Waker>,
    events: Sender<WorkerEvent>,
    /// Queues that workers let go of.
    detached: Sender<Detached<AfXdpQueue>>,
    /// Wakes control.
    control: Waker,
}

impl Shared<'_> {
    /// Starts the thread of worker `id`, which owns these queues and ring ends.
    fn start(
        &self,
        id: usize,
        queues: Vec<(PortId, AfXdpQueue)>,
        rings: RingEnds,
    ) -> Result<(Link, WorkerHandle), SwitchError> {
        let (queue_commands, queue_command_receiver) = bounded(CHANNEL);
        let stats = WorkerStats::new(self.owners.len());
        stats.heartbeat.set(monotonic().nanos());
        let (commands, command_receiver) = bounded(CHANNEL);
        let builder = WorkerBuilder {
            id,
            queues,
            owners: self.owners.clone(),
            rings,
            region: self.umem.region().clone(),
            packets: self.config.buffer_packets(),
            ledger: self.ledger.clone(),
            quality: self.quality.clone(),
            seed: monotonic().nanos() ^ (id as u64) << 48,
            reader: self.routing.publisher().reader(),
            fib: self.routing.publisher().fib(),
            stats: stats.clone(),
            events: self.events.clone(),
            commands: command_receiver,
            queue_link: QueueLink {
                commands: queue_command_receiver,
                detached: self.detached.clone(),
            },
        };
        let (sleeps, stop) = (Arc::new(Counter::new()), Arc::new(AtomicBool::new(false)));
        let worker_thread = WorkerThread {
            waker: self.wakers[id].clone(),
            stop: stop.clone(),
            sleeps: sleeps.clone(),
            busy_poll: self.config.workers.busy_poll,
            spin: Span::from_micros(self.config.workers.spin_microseconds),
            cpu: self.config.workers.cpus.get(id).copied(),
            others: self.wakers.clone(),
            events: self.events.clone(),
            control: self.control.clone(),
        };
        let handle = WorkerHandle {
            stats: stats.clone(),
            sleeps,
            cpu: worker_thread.cpu,
            commands: commands.clone(),
            queues: queue_commands,
            waker: self.wakers[id].clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{id}"))
            .spawn(move || worker_thread.run(builder.build()))
            .map_err(SwitchError::system("thread"))?;
        let link = Link {
            thread,
            commands,
            waker: handle.waker.clone(),
            stop,
            stats,
        };
        Ok((link, handle))
    }
}

fn start_workers(
    umem: &Umem,
    routing: Routing,
    ports: Vec<Port>,
    active: ActiveConfig,
    ledger: Arc<Ledger>,
) -> Result<(Threads, Arc<Mutex<State>>), SwitchError> {
    let config = &active.config;
    let model = config.qos.aiecn.load();
    let model = model.map_err(|error| SwitchError::refused(config.qos.aiecn.refused(&error)))?;
    let count = config.workers.count;
    let widths: Vec<u32> = ports.iter().map(|port| port.device.rx_queues).collect();
    let (handles, mut queues) = split(ports);
    let (event_sender, events) = bounded(CHANNEL);
    // As many as there are queues, however many ports go at once.
    let (detached_sender, detached) = unbounded();
    let slots = routing.publisher().ports().len();
    let waker = Waker::new().map_err(SwitchError::system("eventfd"))?;
    let wakers: io::Result<Vec<Waker>> = (0..count).map(|_| Waker::new()).collect();
    let shared = Shared {
        config,
        umem,
        routing: &routing,
        ledger: ledger.clone(),
        quality: Arc::new(QualityTable::new(slots)),
        owners: (0..slots).map(|port| port % count).collect(),
        wakers: wakers.map_err(SwitchError::system("eventfd"))?,
        events: event_sender,
        detached: detached_sender,
        control: waker.clone(),
    };
    let (mut links, mut workers) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let hands = deal(&widths, count).into_iter();
    for (id, (hand, rings)) in hands.zip(rings(count)).enumerate() {
        let hand = hand.into_iter().map(|(port, queue)| {
            let io = queues[port.index()][queue].take();
            (port, io.expect("each queue is dealt out once"))
        });
        let (link, worker) = shared.start(id, hand.collect(), rings)?;
        links.push(link);
        workers.push(worker);
    }
    let (quality, owners) = (shared.quality, shared.owners);
    let mut state = State::new(
        routing,
        handles,
        workers,
        quality,
        active,
        TrafficHandle::new(ledger, owners),
        monotonic(),
    );
    state.follow_aiecn(model, monotonic());
    let threads = Threads {
        links,
        events,
        detached,
        waker,
    };
    Ok((threads, Arc::new(Mutex::new(state))))
}

/// The ports as control keeps them, and their queues.
type Queues = Vec<Vec<Option<AfXdpQueue>>>;

fn split(ports: Vec<Port>) -> (Vec<PortHandle>, Queues) {
    let one = |port: Port| {
        let (handle, queues) = PortHandle::split(port);
        (handle, queues.into_iter().map(Some).collect())
    };
    ports.into_iter().map(one).unzip()
}

/// How long systemd is to wait for the end after this, when the queues drain for `limit` at most:
/// the threads end, and devices are closed, behind that.
fn longest_stop(limit: Duration) -> sd_notify::NotifyState<'static> {
    let micros = (limit + END + CLOSE).as_micros();
    sd_notify::NotifyState::ExtendTimeoutUsec(u32::try_from(micros).unwrap_or(u32::MAX))
}

/// Lets the workers send what they hold, then ends their threads.
fn stop_workers(links: Vec<Link>, events: &Receiver<WorkerEvent>, limit: Duration) {
    for link in &links {
        // A worker with a thousand commands queued is stuck and will not drain anyway.
        let _ = link.commands.try_send(WorkerCommand::Drain);
        link.waker.wake();
    }
    let end = std::time::Instant::now() + limit;
    let mut left = links.len();
    while left > 0 {
        match events.recv_deadline(end) {
            Ok(WorkerEvent::Drained { .. }) => left -= 1,
            Ok(_) => {}
            Err(_) => {
                tracing::warn!(
                    "{left} workers did not drain in {limit:?}; what they hold is lost: {} packets in queues",
                    links.iter().map(Link::queued).sum::<u64>()
                );
                break;
            }
        }
    }
    for link in &links {
        link.stop.store(true, Ordering::Release);
        link.waker.wake();
    }
    let end = std::time::Instant::now() + END;
    for link in links {
        while !link.thread.is_finished() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        if link.thread.is_finished() {
            let _ = link.thread.join();
        } else {
            tracing::error!("a worker is stuck; it ends with the process");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-6: systemd waits for the longest drain that can be configured.
    #[test]
    fn a_stop_may_take_as_long_as_the_drain() {
        let told = longest_stop(Duration::from_millis(60_000)).to_string();
        assert_eq!(told, "EXTEND_TIMEOUT_USEC=66000000");
    }

    #[test]
    fn queues_are_dealt_out_evenly_and_owners_have_the_first() {
        let hands = deal(&[2, 2, 2, 1], 2);
        assert_eq!(hands.iter().map(Vec::len).sum::<usize>(), 7);
        assert!(hands.iter().all(|hand| hand.len() >= 3));
        for port in 0..4_u16 {
            let owner = &hands[usize::from(port) % 2];
            let first = owner.iter().find(|(id, _)| *id == PortId(port));
            assert_eq!(first, Some(&(PortId(port), 0)));
        }
    }
}
