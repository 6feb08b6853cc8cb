//! The composition root: opens everything, starts the two threads, drains and closes.

use crate::app::socket::{self, Applications};
use crate::config::{self, Config};
use crate::control::interfaces::{Interface, Interfaces, speeds as speeds_of};
use crate::control::link::{Link, Standing, Wanted};
use crate::control::port::Port;
use crate::control::questions::{self, RouterHandle};
use crate::control::report::{InForce, Sources};
use crate::control::routes::{Router, RouterEnd};
use crate::control::{admin, held, schedulers, telemetry::Telemetry};
use crate::doorbell::Doorbells;
use crate::edge::command::{self, Command, ControlHandle, Notice, Notices, WorkerHandle};
use crate::edge::region::Released;
use crate::limits;
use crate::net::{port::NetPort, sleep::Sleeper};
use crate::verbs::{PortId, Speeds};
use crate::worker::{Published, Worker, thread};
use common::config::Loaded;
use common::sys::Waker;
use common::wire::Mac;
use common::xdp::netdev::Device;
use common::xdp::queue::QueueIo;
use common::xdp::{PortOptions, Role, Umem, XdpError, frames_needed, open_port};
use common::xdp::{frame::FramePool, limits::PACKET_MAX};
use hostd_client::shm::{MemoryError, require_seals};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{thread::JoinHandle, time::Duration};
use tokio::signal::unix::{SignalKind, signal};

/// How long connections may take to close when the daemon ends.
const DRAIN_TIME: Duration = Duration::from_secs(3);

/// What a packet of data has besides its payload at most: Ethernet 14, IPv6 40, UDP 8, BTH 12,
/// MPEH 8, RETH 16, ImmDt 4, ICRC 4.
const HEADERS_MAX: usize = 14 + 40 + 8 + 12 + 8 + 16 + 4 + 4;

/// How often the worker has to show that it lives, when systemd does not say.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// How often the line that `systemctl status` shows is brought up to date.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Regions that may wait to be unmapped; beyond it the worker does it itself.
const RELEASED_REGIONS: usize = 1024;

/// Why the daemon cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// An interface, or packet memory.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// An interface without a speed.
    #[error(
        "interface {0}: the device tells no speed; set interface.speed, which packets are paced to"
    )]
    NoSpeed(String),
    /// A socket.
    #[error("{}: {source}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The metrics listener.
    #[error("metrics.listen {address}: {source}")]
    Metrics {
        /// Its address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The kernel cannot keep the memory of applications where it is.
    #[error(transparent)]
    Seals(#[from] MemoryError),
    /// Something else of the system.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// An interface was deleted and made again: what is open is the old one's.
    #[error(
        "interface {0} was deleted, and there is a new one of that name: hostd ends, and serves the \
         new one when it is started again"
    )]
    InterfaceReplaced(String),
    /// The worker ended by itself.
    #[error("the worker thread has ended")]
    WorkerEnded,
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> HostError {
    move |source| HostError::System { what, source }
}

/// What the configuration says of an interface's speeds.
fn wanted(interface: &config::Interface) -> Wanted {
    Wanted {
        speed: interface.speed,
        link_speed: interface.link_speed,
    }
}

/// The speeds of an interface with this device.
///
/// # Errors
/// Nobody says what packets are to be paced to.
fn speeds(interface: &config::Interface, device: &Device) -> Result<Speeds, HostError> {
    let speeds = wanted(interface).speeds(device.speed);
    speeds.ok_or_else(|| HostError::NoSpeed(interface.name.clone()))
}

/// What follows from `config` for the interfaces that are there now, as comments behind it: what a
/// switch has to know of this daemon as a peer among them.
pub fn derived(config: &Config) -> String {
    let of = |interface: &config::Interface| {
        let device = Device::lookup(&interface.name)?;
        speeds(interface, &device)
    };
    let interfaces = config.interface.iter();
    let lines = interfaces.map(|interface| derived_of(config, &interface.name, of(interface)));
    format!("\n{}", lines.collect::<String>())
}

/// The same of one interface.
fn derived_of(config: &Config, name: &str, speeds: Result<Speeds, HostError>) -> String {
    match speeds {
        Ok(Speeds { pacing, link }) => format!(
            "# {name}: speed = {pacing}  # derived from interface.speed and the device\n\
             # {name}: link_speed = {link}  # derived from interface.link_speed and the device\n\
             # {name}: peer_backlog_bytes = {}  # derived from transport.pacer_burst: what it \
             announces to its switch\n",
            config.transport.pacer_burst
        ),
        Err(error) => format!("# {name}: nothing is derived: {error}\n"),
    }
}

/// Why the daemon would not start with `config` on this machine now, a sentence each, as far as
/// that is seen without opening anything. Empty if nothing is in its way.
pub fn obstacles(config: &Config) -> Vec<String> {
    let secret = config.collective.secret().err();
    let secret = secret.map(|error| error.to_string());
    let interfaces = config.interface.iter().filter_map(|interface| {
        let device = Device::lookup(&interface.name).map_err(HostError::from);
        let speeds = device.and_then(|device| speeds(interface, &device));
        speeds.err().map(|error| error.to_string())
    });
    secret.into_iter().chain(interfaces).collect()
}

/// Runs the daemon with this configuration until a signal ends it.
///
/// # Errors
/// See [`HostError`].
pub fn run(loaded: &Loaded<Config>) -> Result<(), HostError> {
    let config = &loaded.settings;
    require_seals()?;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("tokio"))?;
    let held = config.collective.own_port().map(held::hold).transpose();
    let _held = held.map_err(system("collective.port"))?;
    let opened = open_ports(config)?;
    let result = runtime.block_on(control(loaded, opened));
    // Tasks that are left hold sockets and handles; they end here.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Every session takes some descriptors, and the default limit is for programs with few.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The interfaces, open.
#[derive(Debug)]
struct Opened<Q> {
    ports: Vec<NetPort<Q>>,
    interfaces: Vec<Interface>,
    /// What applications see of them.
    port: Port,
    pool: FramePool,
}

fn open_ports(config: &Config) -> Result<Opened<common::xdp::AfXdpQueue>, HostError> {
    let mut devices = Vec::new();
    for interface in &config.interface {
        let device = Device::lookup(&interface.name)?;
        let speeds @ Speeds {
            pacing: speed,
            link,
        } = speeds(interface, &device)?;
        if link != speed {
            tracing::warn!(
                interface = %interface.name,
                "packets are paced to {speed}, and pauses count by the {link} of the link: if that \
                 is not what bits take there, say so with interface.link_speed, here and at the switch"
            );
        }
        devices.push((interface, device, speeds));
    }
    let queues = devices.iter().map(|(_, device, _)| device.rx_queues).sum();
    let looped = u32::try_from(limits::LOOPED).expect("some hundreds");
    let held = config.frames.reorder.saturating_add(looped);
    let frames = frames_needed(queues, config.frames.ring, 1, held);
    // As long as the packets of the longest path MTU, where links carry them.
    let jumbo = devices
        .iter()
        .any(|(_, device, _)| device.mtu > u32::from(PACKET_MAX));
    let umem = if jumbo {
        Umem::with_long_frames(frames, config.frames.ring)?
    } else {
        Umem::new(frames, config.frames.ring)?
    };
    let pool = FramePool::new(umem.region().clone());
    let (mut ports, mut interfaces) = (Vec::new(), Vec::new());
    for (interface, _, speeds) in devices {
        let mut options = PortOptions::new(Role::Host);
        options.mode = interface.mode;
        let port = open_port(&umem, &interface.name, &options)?;
        let told = config.tell(&port.steering);
        told.map_err(system("settings of the steering program"))?;
        tracing::info!(
            interface = %interface.name,
            mode = %port.mode,
            queues = port.queues.len(),
            speed = %speeds.pacing,
            mtu = port.device.mtu,
            "interface open"
        );
        let queues = port.queues.iter();
        let queues = queues.map(|queue| queue.counters().clone()).collect();
        let mtu = port.device.mtu;
        let standing = Standing { speeds, mtu };
        let link = Arc::new(Link::new(wanted(interface), standing));
        interfaces.push(Interface {
            name: interface.name.clone(),
            ifindex: port.device.ifindex,
            mac: port.device.mac,
            mode: port.mode,
            steering: port.steering,
            queues,
            link,
        });
        ports.push(NetPort::new(port.queues).with_mac(Mac(port.device.mac)));
    }
    let path_mtu = config.transport.path_mtu.min(longest_payload(&pool));
    let links = interfaces.iter().map(|interface| interface.link.clone());
    let first = interfaces.first().expect("at least one interface");
    let port = Port::new(
        &first.name,
        first.mac,
        path_mtu,
        links.collect(),
        config.transport.table(),
    );
    Ok(Opened {
        ports,
        interfaces,
        port,
        pool,
    })
}

/// The longest payload of a packet that a frame has room for.
fn longest_payload(pool: &FramePool) -> u16 {
    let payload = pool.capacity().saturating_sub(HEADERS_MAX);
    u16::try_from(payload).unwrap_or(u16::MAX)
}

/// 32 bytes that nobody can guess.
fn secret() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}

/// The worker's thread and what the control thread holds of it.
#[derive(Debug)]
pub struct Running {
    /// For commands.
    pub worker: WorkerHandle,
    /// What it reports.
    pub notices: Notices,
    /// What it shows.
    pub published: Arc<Published>,
    /// Where applications' doorbells are registered to wake it.
    pub doorbells: Doorbells,
    thread: JoinHandle<()>,
}

/// Starts a worker over `ports`, which have these speeds, one each. `watch` registers the
/// descriptors that wake it besides doorbells.
///
/// # Errors
/// No descriptors, no thread.
pub fn start_worker<Q: QueueIo + Send + 'static>(
    config: &Config,
    seed: [u8; 32],
    speeds: &[Speeds],
    ports: Vec<NetPort<Q>>,
    pool: FramePool,
    watch: impl FnOnce(&Sleeper, &[NetPort<Q>]) -> io::Result<()>,
) -> io::Result<Running> {
    let pacer_burst = config.transport.pacer_burst;
    let waker = Waker::new()?;
    let (worker, notices, control): (WorkerHandle, Notices, ControlHandle) =
        command::channels(waker.clone());
    let sleeper = Sleeper::new(waker)?;
    watch(&sleeper, &ports)?;
    let doorbells = sleeper.doorbells()?;
    let (released_memory, to_unmap) = crossbeam_channel::bounded(RELEASED_REGIONS);
    // It ends when the worker drops its end of the channel.
    std::thread::Builder::new()
        .name("hostd-unmap".to_owned())
        .spawn(move || to_unmap.into_iter().for_each(drop::<Released>))?;
    let mut rules = config.engine_with_secret(seed)?;
    // The MTU of a link may be raised while the daemon runs, its frames stay as long as they are.
    rules.path_mtu = rules.path_mtu.min(longest_payload(&pool));
    let mut engine = Worker::new(rules, ports, pool, control, released_memory);
    for (speeds, port) in speeds.iter().zip((0..).map(PortId::new)) {
        engine.set_speeds(port, *speeds);
    }
    let published = engine.published();
    let thread = std::thread::Builder::new()
        .name("hostd-worker".to_owned())
        .spawn(move || {
            if let Err(error) = thread::run(engine, sleeper, pacer_burst) {
                tracing::error!(%error, "the worker cannot sleep");
            }
        })?;
    Ok(Running {
        worker,
        notices,
        published,
        doorbells,
        thread,
    })
}

impl Running {
    /// Ends the worker and waits for it.
    pub async fn stop(self) {
        self.worker.insist(Command::Stop).await;
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the worker thread ended badly");
        }
    }
}

/// The control thread from beginning to end.
async fn control(
    loaded: &Loaded<Config>,
    opened: Opened<common::xdp::AfXdpQueue>,
) -> Result<(), HostError> {
    use std::os::fd::AsFd;
    let config = &loaded.settings;
    let listeners = Listeners::open(config).await?;
    let interfaces: Interfaces = Arc::new(opened.interfaces);
    let seed = secret().map_err(system("/dev/urandom"))?;
    let speeds = speeds_of(&interfaces);
    let (ports, pool) = (opened.ports, opened.pool);
    let mut running = start_worker(config, seed, &speeds, ports, pool, |sleeper, ports| {
        let mut queues = ports.iter().flat_map(NetPort::queues);
        queues.try_for_each(|queue| sleeper.watch_socket(queue.as_fd()))
    })
    .map_err(system("the worker thread"))?;

    let port = Arc::new(opened.port);
    let (routes, questions) = questions::questions(port.clone());
    let applications = Applications::new(
        &config.application,
        running.worker.clone(),
        routes.clone(),
        running.doorbells.clone(),
    );
    let peers = config.schedulers();
    let announce = schedulers::on_events(applications.clone(), peers.clone());
    let worker = running.worker.clone();
    let router = Router::open(
        interfaces.clone(),
        worker,
        questions,
        port.clone(),
        announce,
    );
    let router = router.map_err(system("netlink"))?;
    listeners.serve(loaded, &running, &applications, (&interfaces, port, peers));
    let mut router = tokio::spawn(router.run());

    tracing::info!(socket = %config.application.socket.display(), "ready");
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let result = tokio::select! {
        ended = pass_notices(&mut running.notices, &applications, &routes) => ended,
        ended = &mut router => match ended {
            Ok(Ok(RouterEnd::Replaced(name))) => Err(HostError::InterfaceReplaced(name)),
            Ok(Err(source)) => Err(HostError::System { what: "netlink", source }),
            _ => Err(HostError::WorkerEnded),
        },
        signal = ended_by_signal() => signal,
    };
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    router.abort();
    finish(running, &applications, &routes, &interfaces).await;
    for path in [&config.application.socket, &config.admin.socket] {
        let _ = std::fs::remove_file(path);
    }
    result
}

/// The sockets that others reach the daemon by. They are opened before the worker starts, so that a
/// path or an address that is taken ends the start early.
struct Listeners {
    application: std::os::fd::OwnedFd,
    admin: common::admin::Listener,
    metrics: Option<tokio::net::TcpListener>,
}

impl Listeners {
    async fn open(config: &Config) -> Result<Self, HostError> {
        let error = |path: &PathBuf| {
            let path = path.clone();
            move |source| HostError::Socket { path, source }
        };
        let (application, admin) = (&config.application.socket, &config.admin.socket);
        Ok(Self {
            application: socket::listen_at(application).map_err(error(application))?,
            admin: admin::bind(admin).map_err(error(admin))?,
            metrics: match config.metrics.enabled {
                true => Some(listen_metrics(config.metrics.listen).await?),
                false => None,
            },
        })
    }

    /// Starts to answer. Liveness is judged from then on.
    fn serve(
        self,
        loaded: &Loaded<Config>,
        running: &Running,
        applications: &Applications,
        (interfaces, port, peers): (&Interfaces, Arc<Port>, schedulers::Peers),
    ) {
        let (worker, published) = (running.worker.clone(), running.published.clone());
        let alive = Arc::new(AtomicBool::new(true));
        let sources = Sources {
            applications: applications.clone(),
            interfaces: interfaces.clone(),
            port,
            published: published.clone(),
            config: in_force(loaded, interfaces.clone()),
            alive: alive.clone(),
            schedulers: peers,
        };
        tokio::spawn(admin::serve(self.admin, sources.clone(), worker.clone()));
        tokio::spawn(applications.clone().serve(self.application));
        tokio::spawn(heartbeat(worker, published, alive));
        tokio::spawn(tell_status(sources.clone()));
        if let Some(shared) = sources.schedulers.clone() {
            tokio::spawn(schedulers::announce(shared, interfaces, &loaded.settings));
        }
        if let Some(listener) = self.metrics {
            let source = Arc::new(Telemetry::new(sources));
            tokio::spawn(common::metrics::serve(listener, source));
        }
    }
}

/// The configuration as TOML, with the place that set each key, and what follows from it for the
/// interfaces as they are when it is asked for.
fn in_force(loaded: &Loaded<Config>, interfaces: Interfaces) -> InForce {
    // A configuration that was read can be written.
    let text = loaded.show().unwrap_or_default();
    let config = loaded.settings.clone();
    InForce::new(move || {
        let derived = |it: &Interface| derived_of(&config, &it.name, Ok(it.link.now().speeds));
        let derived: String = interfaces.iter().map(derived).collect();
        format!("{text}\n{derived}")
    })
}

async fn listen_metrics(address: SocketAddr) -> Result<tokio::net::TcpListener, HostError> {
    let bound = tokio::net::TcpListener::bind(address).await;
    bound.map_err(|source| HostError::Metrics { address, source })
}

/// Hands on what the worker reports; ends only when the worker does.
async fn pass_notices(
    notices: &mut Notices,
    applications: &Applications,
    routes: &RouterHandle,
) -> Result<(), HostError> {
    while let Some(notice) = notices.next().await {
        match notice {
            Notice::Event(session, event) => applications.deliver(session, event),
            Notice::NeedRoute(destination) => routes.need(destination),
            Notice::Reset(answer) => command::confirm(answer),
        }
    }
    Err(HostError::WorkerEnded)
}

async fn ended_by_signal() -> Result<(), HostError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(system("signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("signals"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(system("signals"))?;
    loop {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: closing connections"),
            _ = interrupt.recv() => tracing::info!("SIGINT: closing connections"),
            _ = hangup.recv() => {
                tracing::warn!(
                    "SIGHUP: hostd does not read its configuration again; restart it to change it"
                );
                continue;
            }
        }
        return Ok(());
    }
}

/// Closes connections, ends the worker, and leaves the devices as they were.
async fn finish(
    mut running: Running,
    applications: &Applications,
    routes: &RouterHandle,
    interfaces: &Interfaces,
) {
    let drain = tokio::time::timeout(DRAIN_TIME, running.worker.ask(Command::Drain));
    let drained = tokio::select! {
        drained = drain => drained,
        // Applications learn how their connections end.
        _ = pass_notices(&mut running.notices, applications, routes) => Ok(None),
    };
    if drained.is_err() {
        tracing::warn!("connections did not close in time");
    }
    running.stop().await;
    for interface in interfaces.iter() {
        interface.steering.detach();
    }
    tracing::info!("ended");
}

/// Watches that the worker takes turns, and tells systemd only then.
async fn heartbeat(worker: WorkerHandle, published: Arc<Published>, alive: Arc<AtomicBool>) {
    let watchdog = sd_notify::watchdog_enabled();
    // Two waits a beat.
    let pause = watchdog.map_or(HEARTBEAT, common::sys::watchdog_beat) / 2;
    let turns = || published.turns.load(Ordering::Relaxed);
    let mut moved = true;
    loop {
        let before = turns();
        worker.wake();
        tokio::time::sleep(pause).await;
        // On a busy machine one beat may be missed.
        let stands = !std::mem::replace(&mut moved, turns() != before) && !moved;
        if alive.swap(!stands, Ordering::Relaxed) && stands {
            tracing::error!("the worker stands still");
        }
        if moved && watchdog.is_some() {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Tells systemd how the daemon is, whenever that has changed: `STATUS=` of sd_notify(3).
async fn tell_status(sources: Sources) {
    let mut told = String::new();
    while std::env::var_os("NOTIFY_SOCKET").is_some() {
        let applications = sources.applications.peers().len();
        let mut text = format!(
            "{} interfaces, {applications} applications connected",
            sources.interfaces.len()
        );
        for problem in sources.problems() {
            text += "; ";
            text += &problem;
        }
        if text != told {
            let _ = sd_notify::notify(&[NotifyState::Status(&text)]);
            told = text;
        }
        tokio::time::sleep(STATUS_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-1: `check` names the file of the secret and each interface that would keep the daemon
    /// from starting, all of them at once.
    #[test]
    fn what_is_in_the_way_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        let text = format!(
            "[[interface]]\nname = 'lo'\nspeed = '1Gbps'\n\
             [[interface]]\nname = 'nowhere0'\n\
             [collective]\nleaf = '10.0.0.1'\nsecret_file = '{}'\n",
            secret.display()
        );
        let path = std::path::Path::new("hostd.toml");
        let config: Config =
            common::config::load_text(&text, path, "HOSTD", [], &[]).expect("it is valid");
        let found = obstacles(&config);
        assert_eq!(found.len(), 2, "{found:?}");
        let file = format!("collective.secret_file {}: ", secret.display());
        assert!(found[0].starts_with(&file), "{found:?}");
        assert!(
            found[1].starts_with("nowhere0: no such Ethernet device"),
            "{found:?}"
        );
        std::fs::write(&secret, "07".repeat(32)).expect("written");
        let found = obstacles(&config);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
