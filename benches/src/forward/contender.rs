//! A forwarder, the links between which it forwards, and the traffic that it is offered.

use crate::load::{self, Offer, Sink};
use crate::rig::{FORWARD_CORE, Namespace, Process, mac_bytes, running_seconds, wait_until};
use lab::settings::binary;
use nix::sys::signal::Signal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one measurement lasts, and how long the flow runs before it.
pub(super) const MEASURE: Duration = Duration::from_millis(150);
pub(super) const WARM_UP: Duration = Duration::from_millis(100);

/// The station that offers frames.
const SOURCE: &str = "02:00:00:00:00:01";

/// Different UDP source ports.
const FLOWS: u32 = 64;

/// The longest IP packet of ordinary links.
pub(super) const ORDINARY: u32 = 1500;

/// What one contender reached in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Frames for each second.
    pub(super) per_second: f64,
    /// Share of the time that it ran.
    pub(super) share: f64,
}

/// A forwarder with its own links.
pub(super) struct Contender {
    /// What it is called in results.
    pub(super) name: String,
    // In the order in which they must go: the process, then what it runs on.
    process: Process,
    _helpers: Vec<Process>,
    /// It polls without rest, and so has to be stopped while others are measured.
    polls: bool,
    pub(super) sink: Sink,
    pub(super) link: Links,
}

/// Two namespaces, the forwarder's and the one of both far ends.
pub(super) struct Links {
    /// The forwarder's, with `p0` and `p1`.
    pub(super) forwarder: Namespace,
    pub(super) ends: Namespace,
    /// The longest IP packet.
    mtu: u32,
    /// Station that frames are offered to: `p0`, or the sink itself where they are bridged.
    pub(super) in_mac: String,
    /// Station of `p1`.
    pub(super) out_mac: String,
    /// Station of the sink.
    pub(super) sink_mac: String,
}

impl Links {
    /// Links of a forwarder whose namespace ends in `name`, of this MTU.
    ///
    /// # Errors
    /// When `ip` does not make them.
    pub(super) fn new(name: &str, mtu: u32) -> Result<Self, String> {
        let forwarder = Namespace::new(name)?;
        let ends = Namespace::new(&format!("{name}-ends"))?;
        forwarder.link("p0", &ends, "s0")?;
        forwarder.link("p1", &ends, "k0")?;
        let devices = [(&forwarder, ["p0", "p1"]), (&ends, ["s0", "k0"])];
        for (namespace, names) in devices {
            for name in names {
                namespace.run(&format!("ip link set {name} mtu {mtu}"))?;
            }
        }
        Ok(Self {
            in_mac: forwarder.mac("p0")?,
            out_mac: forwarder.mac("p1")?,
            sink_mac: ends.mac("k0")?,
            forwarder,
            ends,
            mtu,
        })
    }

    /// Makes both ports those of a bridge that knows the stations at both ends. `vlans`: `p0` is
    /// an access port, and `p1` a trunk.
    fn bridge(&mut self, vlans: bool) -> Result<(), String> {
        let filtering = if vlans { " vlan_filtering 1" } else { "" };
        let add = format!("ip link add br0 type bridge forward_delay 0{filtering}");
        self.forwarder.run(&add)?;
        for port in ["p0", "p1"] {
            // A port whose device takes tags off is left to the kernel.
            let keep_tags = format!("ethtool -K {port} rxvlan off txvlan off");
            self.forwarder.run(&keep_tags)?;
            self.forwarder
                .run(&format!("ip link set {port} master br0"))?;
        }
        self.forwarder.run("ip link set br0 up")?;
        let vlan = if vlans { " vlan 5" } else { "" };
        if vlans {
            self.forwarder
                .run("bridge vlan add dev p0 vid 5 pvid untagged")?;
            self.forwarder.run("bridge vlan add dev p1 vid 5")?;
        }
        for (station, port) in [(SOURCE, "p0"), (&self.sink_mac, "p1")] {
            let entry = format!("bridge fdb add {station} dev {port} master static{vlan}");
            self.forwarder.run(&entry)?;
        }
        self.in_mac = self.sink_mac.clone();
        Ok(())
    }

    /// Gives the forwarder addresses, and next hops for what is offered.
    pub(super) fn route(&self, hops: &[&str]) -> Result<(), String> {
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
    /// A forwarder that has been started, once frames come out of it.
    ///
    /// # Errors
    /// When none does.
    pub(super) fn new(
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

    /// This program as the reflector, on links of this MTU.
    ///
    /// # Errors
    /// When it does not start, or forwards nothing.
    pub(super) fn reflector(folder: &Path, mtu: u32) -> Result<Self, String> {
        let short = format!("reflector{mtu}");
        let link = Links::new(&short, mtu)?;
        let myself = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = link.forwarder.command(Some(FORWARD_CORE), &myself);
        command.args(["--reflect", &link.out_mac, &link.sink_mac]);
        let process = Process::start(&mut command, &folder.join(format!("{short}.log")))?;
        Self::new("bare AF_XDP", process, Vec::new(), false, link)
    }

    /// switchd with `more` in its configuration, on links of this MTU. Files and namespaces are
    /// called `short`.
    ///
    /// # Errors
    /// When it does not start, or forwards nothing; with the end of its log.
    pub(super) fn switchd(
        (name, short): (&str, &str),
        folder: &Path,
        mtu: u32,
        more: &str,
    ) -> Result<Self, String> {
        // With load balancing there has to be something to choose.
        let hops = if more.is_empty() {
            &["10.0.1.2"][..]
        } else {
            &["10.0.1.2", "10.0.1.3"][..]
        };
        let link = Links::new(short, mtu)?;
        link.route(hops)?;
        Self::start(name, folder, link, (short, more))
    }

    /// switchd between the stations of a bridge, or of one of its VLANs, where a tag is put in.
    ///
    /// # Errors
    /// When the kernel has no such bridge, and as [`Self::switchd`].
    pub(super) fn bridging(name: &str, folder: &Path, vlans: bool) -> Result<Self, String> {
        let short = if vlans { "vlan" } else { "bridge" };
        let mut link = Links::new(short, ORDINARY)?;
        link.bridge(vlans)?;
        Self::start(name, folder, link, (short, ""))
    }

    /// switchd between links that are there, with `more` in its configuration.
    ///
    /// # Errors
    /// As [`Self::switchd`].
    pub(super) fn start(
        name: &str,
        folder: &Path,
        link: Links,
        (short, more): (&str, &str),
    ) -> Result<Self, String> {
        let program = binary("switchd").map_err(|error| error.to_string())?;
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
            // The program of live frames would refuse the MTU of its peer.
            let start = if self.link.mtu > ORDINARY {
                load::start_by_socket
            } else {
                load::start
            };
            let source = start(scope, &self.link.ends, "s0", offer, &stop);
            let result = during();
            stop.store(true, Ordering::Relaxed);
            let joined = source.join();
            joined
                .map_err(|_| "the source ended".to_owned())?
                .map(|_| result)
        })
    }

    /// Offers it frames of `len` bytes and measures once.
    ///
    /// # Errors
    /// When the source cannot offer, or the process has ended.
    pub(super) fn turn(&self, len: usize) -> Result<Reached, String> {
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
            Ok(Reached {
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
