//! What can be refused before the devices are known: ranges of values, and `[qos]` as if every
//! named port existed.

use super::facts::PortFacts;
use super::policy::nobody;
use super::ports::parse_mode;
use super::rings::RingSize;
use super::rules::{is_pattern, matches_nothing, no_interface, overlap};
use super::schema::{Config, PortOverride};
use super::speed::Speed;
use crate::limits::{CELL, FDB_ENTRIES_MAX, MAX_PORTS, MAX_WORKERS, PUNT_RATE_MAX};
use common::config::{Derived, Refusal, Refusals, Settings, within};
use common::units::Rate;
use common::xdp::ModeChoice;
use common::xdp::limits::{RING_MAX, RING_MIN};
use std::net::SocketAddr;

/// The modules of switchd that log; `log.level` names those and the ones that hold them.
pub const LOGGING: &[&str] = &[
    "switchd::control::admin",
    "switchd::control::event_log",
    "switchd::control::flows::exporter",
    "switchd::control::operation",
    "switchd::control::ports",
    "switchd::control::program::interfaces",
    "switchd::control::publisher",
    "switchd::control::steer",
    "switchd::control::thread",
    "switchd::control::told",
    "switchd::switch",
    "switchd::worker::thread",
];

/// Bytes of the longest path of a socket (`sun_path` of unix(7), less the zero).
const SOCKET_PATH_MAX: usize = 107;

impl Settings for Config {
    const DEPENDENCIES: &'static [(&'static str, &'static str)] = &[
        ("ports", "port"),
        ("qos", "ports"),
        ("qos", "port"),
        ("qos", "port_defaults"),
        ("qos", "memory"),
    ];

    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.require(
            !self.ports.is_empty() || !self.port.is_empty(),
            "ports",
            "names no interface, and there is no [[port]] either: a switch needs ports",
        );
        for (place, pattern) in self.ports.iter().enumerate() {
            if let Some(reason) = matches_nothing(pattern) {
                refusals.add(Refusal::alone(format!("ports[{place}]"), reason));
            }
        }
        let socket = self.admin.socket.as_os_str().len();
        if socket == 0 {
            let reason = "is empty: switchctl has to find the daemon somewhere";
            refusals.add(Refusal::alone("admin.socket", reason));
        }
        if socket > SOCKET_PATH_MAX {
            let reason =
                format!("has {socket} bytes; the path of a socket has at most {SOCKET_PATH_MAX}");
            refusals.add(Refusal::alone("admin.socket", reason));
        }
        refusals.keep(self.validate_workers());
        refusals.keep(self.validate_ports());
        refusals.keep(self.validate_sizes());
        // TOML has no greater numbers, and `show-config` prints TOML.
        refusals.keep(within("ecmp.seed", self.ecmp.seed, 0, i64::MAX as u64));
        refusals.keep(self.ecmp.dlb.validate());
        refusals.keep(self.csig.validate(|name| self.may_be_port(name)));
        let others = [
            ("csig.compact_tpid", self.csig.compact_tpid),
            ("csig.expanded_tpid", self.csig.expanded_tpid),
        ];
        refusals.keep(self.int.validate(&others, |name| self.may_be_port(name)));
        refusals.keep(self.flows.validate());
        refusals.keep(self.iqcn.validate(&self.flows));
        refusals.keep(self.compute.validate());
        refusals.keep(self.validate_qos());
        refusals.keep(self.metrics_address());
        let level = common::log::check(&self.log.level, LOGGING);
        refusals.keep(level.map_err(|error| Refusal::alone("log.level", error.to_string())));
        refusals.or(())
    }

    fn fits_machine(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let usable = common::sys::usable_cpus();
        for (place, cpu) in self.workers.cpus.iter().enumerate() {
            if !usable.is_empty() && !usable.contains(cpu) {
                let reason =
                    format!("CPU {cpu} is not there, or not for this process: {usable:?} are");
                refusals.add(Refusal::alone(format!("workers.cpus[{place}]"), reason));
            }
        }
        refusals.keep(self.fits_memory(common::sys::memory_bytes()));
        refusals.keep(self.qos.aiecn.fits_machine());
        refusals.or(())
    }

    fn derived(&self) -> Vec<Derived> {
        let mut all = Vec::new();
        if self.ecmp.seed == 0 {
            let from = "the MAC addresses of the ports at start";
            all.push(Derived::new("ecmp.seed".to_owned(), 0, from));
        }
        for (place, port) in self.port.iter().enumerate() {
            let key = |name: &str| format!("port[{place}].{name}");
            if port.speed.is_none() {
                let speed = self.port_defaults.speed.to_string();
                all.push(Derived::new(key("speed"), speed, "port_defaults.speed"));
            }
            if port.link_speed.is_none() {
                let speed = self.port_defaults.link_speed.to_string();
                let from = "port_defaults.link_speed";
                all.push(Derived::new(key("link_speed"), speed, from));
            }
            if port.mode.is_none() {
                let mode = self.port_defaults.mode.clone();
                all.push(Derived::new(key("mode"), mode, "port_defaults.mode"));
            }
            if port.source_validation.is_none() {
                let asked = self.port_defaults.source_validation.name().to_owned();
                let from = "port_defaults.source_validation";
                all.push(Derived::new(key("source_validation"), asked, from));
            }
        }
        all
    }
}

impl Config {
    fn validate_workers(&self) -> Result<(), Refusals> {
        let workers = &self.workers;
        let mut refusals = Refusals::default();
        let count = workers.count as u64;
        refusals.keep(within("workers.count", count, 1, MAX_WORKERS as u64));
        refusals.require(
            workers.cpus.is_empty() || workers.cpus.len() == workers.count,
            "workers.cpus",
            format_args!("{} CPUs for {} workers", workers.cpus.len(), workers.count),
        );
        for (place, cpu) in workers.cpus.iter().enumerate() {
            refusals.keep(within(
                &format!("workers.cpus[{place}]"),
                *cpu as u64,
                0,
                1023,
            ));
        }
        let spin = workers.spin_microseconds;
        refusals.keep(within("workers.spin_microseconds", spin, 0, 1_000_000));
        if workers.takeover_milliseconds != 0 {
            // The program's clock goes in steps of up to 10 ms.
            let takeover = workers.takeover_milliseconds;
            refusals.keep(within(
                "workers.takeover_milliseconds",
                takeover,
                20,
                60_000,
            ));
        }
        refusals.or(())
    }

    fn validate_ports(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let count = self.port.len();
        refusals.require(
            count <= MAX_PORTS,
            "port",
            format_args!("{count} ports; at most {MAX_PORTS} are possible"),
        );
        refusals.keep(parse_mode("port_defaults.mode", &self.port_defaults.mode));
        let check_burst = |key: &str, micros: u32| within(key, u64::from(micros), 1, 10_000);
        let burst = self.port_defaults.burst_microseconds;
        refusals.keep(check_burst("port_defaults.burst_microseconds", burst));
        for (place, port) in self.port.iter().enumerate() {
            let key = |name: &str| format!("port[{place}].{name}");
            if let Some(reason) = no_interface(&port.name) {
                refusals.add(Refusal::alone(key("name"), reason));
            }
            if is_pattern(&port.name) {
                let name = &port.name;
                let reason = format!(
                    "{name:?} is a pattern, and a [[port]] is one interface: patterns belong in ports"
                );
                refusals.add(Refusal::alone(key("name"), reason));
            }
            let twice = self.port[..place]
                .iter()
                .any(|other| other.name == port.name);
            refusals.require(
                !twice,
                &key("name"),
                format_args!("{} is there twice", port.name),
            );
            if let Some(burst) = port.burst_microseconds {
                refusals.keep(check_burst(&key("burst_microseconds"), burst));
            }
            if let Some(mode) = &port.mode {
                refusals.keep(parse_mode(&key("mode"), mode));
            }
        }
        refusals.or(())
    }

    fn validate_sizes(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, least, most| {
            refusals.keep(within(name, value, least, most));
        };
        // At least one packet of the largest size, in whole cells.
        let depth = u64::from(self.qos.queue_depth_bytes);
        check("qos.queue_depth_bytes", depth, 16 * CELL as u64, 1 << 30);
        let rate = u64::from(self.punt.packets_per_second);
        check("punt.packets_per_second", rate, 1, PUNT_RATE_MAX);
        let bridge = &self.bridge;
        let entries = u64::from(bridge.fdb_entries);
        check("bridge.fdb_entries", entries, 0, FDB_ENTRIES_MAX);
        for (key, rate) in [
            (
                "bridge.broadcast_packets_per_second",
                bridge.broadcast_packets_per_second,
            ),
            (
                "bridge.multicast_packets_per_second",
                bridge.multicast_packets_per_second,
            ),
            (
                "bridge.unknown_packets_per_second",
                bridge.unknown_packets_per_second,
            ),
            (
                "bridge.control_packets_per_second",
                bridge.control_packets_per_second,
            ),
        ] {
            check(key, u64::from(rate), 1, PUNT_RATE_MAX);
        }
        let moves = u64::from(bridge.flap_moves);
        check("bridge.flap_moves", moves, 1, 1_000_000);
        check("bridge.flap_seconds", bridge.flap_seconds, 1, 86_400);
        check(
            "netlink.resync_seconds",
            self.netlink.resync_seconds,
            1,
            86_400,
        );
        let receive = self.netlink.receive_buffer_bytes as u64;
        check("netlink.receive_buffer_bytes", receive, 4096, 1 << 30);
        let neighbours = &self.neighbours;
        let keep_alive = neighbours.keep_alive_seconds;
        check("neighbours.keep_alive_seconds", keep_alive, 1, 3600);
        check(
            "neighbours.retry_seconds",
            neighbours.retry_seconds,
            1,
            3600,
        );
        let drain = self.stop.drain_milliseconds;
        check("stop.drain_milliseconds", drain, 0, 60_000);
        let spare = u64::from(self.memory.spare_queues);
        check("memory.spare_queues", spare, 0, MAX_PORTS as u64);
        if let RingSize::Descriptors(ring) = self.memory.ring
            && (!ring.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&ring))
        {
            let reason = format!("{ring} is not a power of two from {RING_MIN} to {RING_MAX}");
            refusals.add(Refusal::alone("memory.ring", reason));
        }
        refusals.or(())
    }

    /// Checks `[qos]` before the devices are known. Assumes that the ports it names exist if
    /// `ports` and `[[port]]` leave room for them, that devices have a speed, and that it is the
    /// one that a port is shaped to.
    fn validate_qos(&self) -> Result<(), Refusals> {
        let facts = |name: &String, own: Option<&PortOverride>| {
            let port = self.settings(name, own, ModeChoice::Best);
            let device = match port.speed {
                Speed::Rate(rate) => rate,
                Speed::Device | Speed::Unlimited => Rate::from_gbps(1),
            };
            self.facts(&port, Some(device), 1500)
        };
        let listed = self.port.iter().map(|it| facts(&it.name, Some(it)));
        let matched = self.ports.iter().map(|it| facts(it, None));
        // What a section names is a port of its own if it can be one of those.
        let (can_be, cannot): (Vec<_>, Vec<_>) =
            (self.qos.named_ports()).partition(|(_, name)| self.may_be_port(name));
        let named = can_be
            .iter()
            .map(|(_, name)| facts(&(*name).to_owned(), None));
        let mut all: Vec<PortFacts> = listed.chain(matched).chain(named).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|a, b| a.name == b.name);
        let mut refusals = Refusals::default();
        // Names are refused with the rest.
        for (key, pattern) in cannot.into_iter().filter(|(_, name)| is_pattern(name)) {
            refusals.add(Refusal::new(key, nobody(pattern, &all)));
        }
        // Of queues nothing is known yet.
        refusals.keep(self.fit(all, None));
        refusals.or(())
    }

    /// Whether a port can have this name or form.
    fn may_be_port(&self, name: &str) -> bool {
        let listed = self.port.iter().any(|it| overlap(name, &it.name));
        listed || self.ports.iter().any(|it| overlap(name, it))
    }

    /// Where Prometheus may ask; `None` for nowhere.
    ///
    /// # Errors
    /// The text is not an address with a port.
    pub fn metrics_address(&self) -> Result<Option<SocketAddr>, Refusal> {
        let text = self.metrics.listen.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |_| {
            let reason = format!("{text:?} is not an address with a port, like 127.0.0.1:9101");
            Refusal::alone("metrics.listen", reason)
        };
        text.parse().map(Some).map_err(wrong)
    }
}
