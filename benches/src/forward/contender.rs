//! SW-1, SW-4, SW-10 to SW-34: a switch on veth under overload: what comes out when more goes in than can be forwarded.
//!
//! ```text
//!     core 0                                        core 1
//!     source  s0 ═ veth ═ p0  forwarder  p1 ═ veth ═ k0  sink
//! ```
//!
//! Every contender does the same: it takes IPv4 frames from `p0`, writes new station addresses (the
//! routers among them also count the TTL down) and sends them out of `p1`. The *reflector* is the
//! AF_XDP layer of this project with nothing on top: what it reaches is what the kernel's copy path
//! allows here, so switchd's ratio to it is the price of the pipeline. switchd runs twice: plain, and with everything on that
//! its traffic manager and its load balancing can do ([`everything`](crate::everything)).
//!
//! The kernel's receive path runs where the source does, all that sending takes where the forwarder does. The
//! source outruns every forwarder; one that had time to rest nevertheless was not the limit, and is named.

use crate::everything;
use crate::load::{self, Offer, Sink};
use crate::measure::{Series, print_ratios};
use crate::rig::{
    FORWARD_CORE, Namespace, Process, SOURCE_CORE, mac_bytes, run, run_first, running_seconds,
    wait_until,
};
use common::sys::{PollSet, monotonic};
use common::time::Span;
use common::xdp::frame::FramePool;
use common::xdp::queue::QueueIo;
use common::xdp::{PortOptions, Role, Umem, frames_needed, open_port};
use lab::settings::binary;
use nix::sys::signal::Signal;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Lengths of frames, without frame check sequence.
const LENGTHS: [usize; 2] = [64, 1500];

/// What switchd has to reach of the reflector.
const RATIO_MIN: f64 = 0.92;

/// What it has to reach with everything on of what it does when it is plain.
const EVERYTHING_MIN: f64 = 0.85;

/// Rounds; each measures every contender once.
const ROUNDS: usize = 21;

/// How long one measurement lasts, and how long the flow runs before it.
const MEASURE: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(200);

/// A forwarder that ran for less than this share of a round was not the bottleneck. (The kernel keeps 5 % of
/// each core for ordinary processes.)
const BUSY_MIN: f64 = 0.85;

/// Different UDP source ports.
const FLOWS: u32 = 64;

/// Descriptors of each ring.
const RING: u32 = 2048;

/// Packets that the reflector handles at once: as many as switchd.
const BATCH: usize = switchd::limits::BATCH;

/// Runs the bench and prints its tables.
///
/// # Errors
/// What could not be set up. A peer that is not installed is named and left out.
pub fn bench() -> Result<(), String> {
    run_first(2)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut contenders = vec![
        Contender::reflector(folder.path())?,
        Contender::switchd("switchd", folder.path(), "")?,
        Contender::switchd(
            "switchd with everything on",
            folder.path(),
            &everything::text(),
        )?,
    ];
    match Contender::open_vswitch(folder.path()) {
        Ok(contender) => contenders.push(contender),
        Err(why) => println!("left out: {why}"),
    }
    let mut faults = Vec::new();
    for len in LENGTHS {
        let mut results: Vec<_> = contenders
            .iter()
            .map(|contender| Rounds::new(&contender.name))
            .collect();
        for _ in 0..ROUNDS {
            for (contender, rounds) in contenders.iter().zip(&mut results) {
                rounds.push(contender.round(len)?);
            }
        }
        let rates: Vec<_> = results.iter().map(|rounds| rounds.rate.clone()).collect();
        print_ratios(&format!("forwarding, {len}-byte frames"), "M/s", &rates);
        results.iter().for_each(Rounds::warn);
        for (one, other, least) in [(1, 0, RATIO_MIN), (2, 1, EVERYTHING_MIN)] {
            let (one, other) = (&rates[one], &rates[other]);
            let ratio = one.ratio_to(other);
            println!(
                "{len}-byte frames: {} is {ratio:.3} of {}, at least {least}",
                one.name, other.name
            );
            if ratio < least {
                faults.push(format!(
                    "{len}-byte frames: {} is {ratio:.3} of {}, not {least}",
                    one.name, other.name
                ));
            }
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("; "))
    }
}

/// What one contender reached in a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Frames for each second.
    per_second: f64,
    /// Share of the time that it ran.
    share: f64,
}

/// All rounds of one contender.
struct Rounds {
    rate: Series,
    share: Series,
}

impl Rounds {
    fn new(name: &str) -> Self {
        Self {
            rate: Series::new(name),
            share: Series::new(name),
        }
    }

    fn push(&mut self, round: Round) {
        self.rate.rounds.push(round.per_second / 1e6);
        self.share.rounds.push(round.share);
    }

    /// Says so if there was time to rest.
    fn warn(&self) {
        let share = self.share.median();
        if share < BUSY_MIN {
            println!(
                "{} ran for {:.0} % of the time only: it was not the limit",
                self.rate.name,
                share * 100.0
            );
        }
    }
}

/// A forwarder with its own links.
struct Contender {
    name: String,
    // In the order in which they must go: the process, then what it runs on.
    process: Process,
    _helpers: Vec<Process>,
    /// It polls without rest, and so has to be stopped while others are measured.
    polls: bool,
    sink: Sink,
    link: Links,
}

/// Two namespaces, the forwarder's and the one of both far ends.
struct Links {
    forwarder: Namespace,
    ends: Namespace,
    in_mac: String,
    out_mac: String,
    sink_mac: String,
}

impl Links {
    fn new(name: &str) -> Result<Self, String> {
        let forwarder = Namespace::new(name)?;
        let ends = Namespace::new(&format!("{name}-ends"))?;
        forwarder.link("p0", &ends, "s0")?;
        forwarder.link("p1", &ends, "k0")?;
        Ok(Self {
            in_mac: forwarder.mac("p0")?,
            out_mac: forwarder.mac("p1")?,
            sink_mac: ends.mac("k0")?,
            forwarder,
            ends,
        })
    }

    /// Gives the forwarder addresses, and next hops for what is offered.
    fn route(&self, hops: &[&str]) -> Result<(), String> {
        self.forwarder.run("sysctl -qw net.ipv4.ip_forward=1")?;
        self.forwarder.run("ip addr add 10.0.0.1/24 dev p0")?;
        self.forwarder.run("ip addr add 10.0.1.1/24 dev p1")?;
        let mut route = "ip route add 10.0.2.0/24".to_owned();
        for address in hops {
            let neighbour = format!("ip neigh add {address} lladdr {} dev p1", self.sink_mac);
            self.forwarder.run(&neighbour)?;
            route += &format!(" nexthop via {address}");
        }
        self.forwarder.run(&route).map(drop)
    }
}

impl Contender {
    fn new(
        name: &str,
        process: Process,
        helpers: Vec<Process>,
        polls: bool,
        link: Links,
    ) -> Result<Self, String> {
        let sink = Sink::attach(&link.ends, "k0", mac_bytes(&link.sink_mac))?;
        let contender = Self {
            name: name.to_owned(),
            process,
            _helpers: helpers,
            polls,
            sink,
            link,
        };
        let forwards = contender.probe()?;
        contender.rest();
        forwards
            .then_some(contender)
            .ok_or_else(|| format!("{name} forwards nothing"))
    }

    fn reflector(folder: &Path) -> Result<Self, String> {
        let link = Links::new("reflector")?;
        let myself = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = link.forwarder.command(Some(FORWARD_CORE), &myself);
        command.args(["reflect", &link.out_mac, &link.sink_mac]);
        let process = Process::start(&mut command, &folder.join("reflector.log"))?;
        Self::new("bare AF_XDP", process, Vec::new(), false, link)
    }

    /// switchd with `more` in its configuration.
    fn switchd(name: &str, folder: &Path, more: &str) -> Result<Self, String> {
        let program = binary("switchd").map_err(|error| error.to_string())?;
        // With load balancing there has to be something to choose.
        let (short, hops) = if more.is_empty() {
            ("plain", &["10.0.1.2"][..])
        } else {
            ("all", &["10.0.1.2", "10.0.1.3"][..])
        };
        let link = Links::new(short)?;
        link.route(hops)?;
        let folder = folder.join(short);
        std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let config = folder.join("switchd.toml");
        // A speed that the shaper never reaches here.
        let text = format!(
            "[admin]\nsocket = \"{}/switchd.sock\"\n\
             [[port]]\nname = \"p0\"\nspeed = \"100Gbps\"\n\
             [[port]]\nname = \"p1\"\nspeed = \"100Gbps\"\n{more}",
            folder.display()
        );
        std::fs::write(&config, text).map_err(|error| error.to_string())?;
        let mut command = link.forwarder.command(Some(FORWARD_CORE), &program);
        command.args(["run", "-c"]).arg(&config);
        let log = folder.join("switchd.log");
        let process = Process::start(&mut command, &log)?;
        Self::new(name, process, Vec::new(), false, link).map_err(|error| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(5).collect();
            format!(
                "{error}; its last words, newest first: {}",
                last.join(" | ")
            )
        })
    }

    fn open_vswitch(folder: &Path) -> Result<Self, String> {
        let link = Links::new("ovs")?;
        let folder = folder.join("ovs");
        std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let (name, ports) = open_vswitch_ports()?;
        let database = start_database(&link.forwarder, &folder)?;
        let remote = format!("unix:{}/db.sock", folder.display());
        // It binds its forwarding thread itself; the others must not be in its way.
        let mut command = link
            .forwarder
            .command(Some(SOURCE_CORE), Path::new("ovs-vswitchd"));
        command
            .arg(&remote)
            .arg(format!("--unixctl={}/switch.ctl", folder.display()))
            .env("OVS_RUNDIR", &folder);
        let process = Process::start(&mut command, &folder.join("vswitchd.log"))?;
        let control = |line: &str| {
            link.forwarder.run(&format!(
                "env OVS_RUNDIR={} ovs-vsctl --timeout=15 --db={remote} {line}",
                folder.display()
            ))
        };
        control("add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure")?;
        for port in ["p0", "p1"] {
            control(&format!(
                "add-port br0 {port} -- set Interface {port} {ports}"
            ))?;
        }
        let flow = format!(
            "in_port=p0,ip,actions=mod_dl_src:{},mod_dl_dst:{},dec_ttl,output:p1",
            link.out_mac, link.sink_mac
        );
        link.forwarder.run(&format!(
            "env OVS_RUNDIR={} ovs-ofctl add-flow br0 {flow}",
            folder.display()
        ))?;
        Self::new(&name, process, vec![database], true, link)
    }

    /// Whether anything comes out within ten seconds.
    fn probe(&self) -> Result<bool, String> {
        let before = self.sink.counts().expected;
        let offer = Offer::udp(64, mac_bytes(&self.link.in_mac), 1);
        self.offer(&offer, || {
            wait_until(Duration::from_secs(10), || {
                self.sink.counts().expected > before
            })
        })
    }

    /// Runs `during` while frames are offered.
    fn offer<T>(&self, offer: &Offer, during: impl FnOnce() -> T) -> Result<T, String> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let source = load::start(scope, &self.link.ends, "s0", offer, &stop);
            let result = during();
            stop.store(true, Ordering::Relaxed);
            let joined = source.join();
            joined
                .map_err(|_| "the source ended".to_owned())?
                .map(|_| result)
        })
    }

    /// Measures once.
    fn round(&self, len: usize) -> Result<Round, String> {
        self.process.signal(Signal::SIGCONT);
        let offer = Offer::udp(len, mac_bytes(&self.link.in_mac), FLOWS);
        let ran = || running_seconds(self.process.pid(), FORWARD_CORE);
        let measured = self.offer(&offer, || {
            std::thread::sleep(WARM_UP);
            let (began, ran_before) = (Instant::now(), ran()?);
            let before = self.sink.counts().expected;
            std::thread::sleep(MEASURE);
            let frames = self.sink.counts().expected - before;
            let elapsed = began.elapsed().as_secs_f64();
            let ran = ran()? - ran_before;
            #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
            let frames = frames as f64;
            Ok(Round {
                per_second: frames / elapsed,
                share: ran / elapsed,
            })
        });
        self.rest();
        measured?
    }

    fn rest(&self) {
        if self.polls {
            self.process.signal(Signal::SIGSTOP);
        }
    }
}

/// What to call Open vSwitch, and the options of its ports: AF_XDP if it was built with it.
fn open_vswitch_ports() -> Result<(String, &'static str), String> {
    let version = run("ovs-vswitchd --version")
        .map_err(|_| "Open vSwitch is not installed (openvswitch-switch)".to_owned())?;
    let number = version.split_whitespace().last().unwrap_or_default();
    let number = version
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().last())
        .unwrap_or(number);
    let libraries = run("which ovs-vswitchd")
        .and_then(|path| run(&format!("ldd {}", path.trim())))
        .unwrap_or_default();
    Ok(if libraries.contains("libxdp") {
        let options = "type=afxdp options:n_rxq=1 options:xdp-mode=native";
        (format!("Open vSwitch {number}, AF_XDP"), options)
    } else {
        let options = "type=system";
        (
            format!("Open vSwitch {number}, AF_PACKET (built without AF_XDP)"),
            options,
        )
    })
}

fn start_database(namespace: &Namespace, folder: &Path) -> Result<Process, String> {
    let shown = folder.display();
    run(&format!(
        "ovsdb-tool create {shown}/conf.db /usr/share/openvswitch/vswitch.ovsschema"
    ))?;
    let mut command = namespace.helper("ovsdb-server");
    command
        .arg(format!("--remote=punix:{shown}/db.sock"))
        .arg(format!("--unixctl={shown}/db.ctl"))
        .arg(folder.join("conf.db"));
    let process = Process::start(&mut command, &folder.join("db.log"))?;
    let socket = folder.join("db.sock");
    if !wait_until(Duration::from_secs(5), || socket.exists()) {
        return Err("ovsdb-server does not answer".to_owned());
    }
    let core = 1_u64 << FORWARD_CORE;
    run(&format!(
        "ovs-vsctl --no-wait --db=unix:{shown}/db.sock -- init \
         -- set Open_vSwitch . other_config:pmd-cpu-mask={core:#x}"
    ))?;
    Ok(process)
}

/// The reflector: forwards between `p0` and `p1` of its namespace until it is terminated. What leaves `p1` goes
/// from the station `source` to the station `destination`.
///
/// # Errors
/// When the ports do not open.
pub fn reflect(source: &str, destination: &str) -> Result<(), String> {
    let addresses = [mac_bytes(destination), mac_bytes(source)].concat();
    let frames = frames_needed(2, RING, 1, 0);
    let umem = Umem::new(frames, RING).map_err(|error| error.to_string())?;
    let open = |name| {
        open_port(&umem, name, &PortOptions::new(Role::Switch)).map_err(|error| error.to_string())
    };
    let mut ports = [open("p0")?, open("p1")?];
    println!("{}, {}", ports[0].mode, ports[1].mode);
    let mut pool = FramePool::new(umem.region().clone());
    let mut batch = Vec::with_capacity(BATCH);
    let mut sleep = PollSet::new();
    loop {
        let mut work = 0;
        let now = monotonic();
        for (from, to) in [(0, 1), (1, 0)] {
            let room = ports[to].queues[0].transmit_room(&mut pool).min(BATCH);
            work += ports[from].queues[0].receive(&mut pool, &mut batch, room);
            for frame in &mut batch {
                if let Some(head) = frame.bytes_mut().get_mut(..12) {
                    head.copy_from_slice(&addresses);
                }
            }
            ports[to].queues[0].transmit(&mut batch);
            ports[to].queues[0].flush(&mut pool, now);
        }
        if work == 0 {
            let fds = ports.iter().map(|port| port.queues[0].as_fd());
            sleep
                .wait(fds, Span::from_millis(1))
                .map_err(|error| error.to_string())?;
        }
    }
}
