//! What can be refused before the devices are known: ranges of values, and `[qos]` as if every
//! named port existed.

use super::facts::PortFacts;
use super::ports::parse_mode;
use super::rules::within;
use super::schema::Config;
use super::speed::Speed;
use crate::limits::{CELL, MAX_PORTS, MAX_WORKERS, PUNT_RATE_MAX};
use common::config::{Refusal, require};
use common::units::Rate;
use common::xdp::limits::{RING_MAX, RING_MIN};
use std::net::SocketAddr;

impl common::config::Settings for Config {
    fn validate(&self) -> Result<(), Refusal> {
        require(
            !self.ports.is_empty() || !self.port.is_empty(),
            "ports",
            "names no interface, and there is no [[port]] either: a switch needs ports",
        )?;
        require(
            !self.ports.iter().any(|pattern| pattern.trim().is_empty()),
            "ports",
            "an empty name is no interface",
        )?;
        require(
            !self.admin.socket.as_os_str().is_empty(),
            "admin.socket",
            "is empty: switchctl has to find the daemon somewhere",
        )?;
        self.validate_workers()?;
        self.validate_ports()?;
        self.validate_sizes()?;
        within(
            "punt.packets_per_second",
            u64::from(self.punt.packets_per_second),
            1,
            PUNT_RATE_MAX,
        )?;
        self.ecmp.dlb.validate()?;
        self.validate_qos()?;
        self.metrics_address()?;
        common::log::check(&self.log.level)
            .map_err(|error| Refusal::new("log.level", error.to_string()))
    }
}

impl Config {
    fn validate_workers(&self) -> Result<(), Refusal> {
        let workers = &self.workers;
        within("workers.count", workers.count as u64, 1, MAX_WORKERS as u64)?;
        require(
            workers.cpus.is_empty() || workers.cpus.len() == workers.count,
            "workers.cpus",
            format_args!("{} CPUs for {} workers", workers.cpus.len(), workers.count),
        )?;
        for (place, cpu) in workers.cpus.iter().enumerate() {
            within(&format!("workers.cpus[{place}]"), *cpu as u64, 0, 1023)?;
        }
        within(
            "workers.spin_microseconds",
            workers.spin_microseconds,
            0,
            1_000_000,
        )
    }

    fn validate_ports(&self) -> Result<(), Refusal> {
        require(
            self.port.len() <= MAX_PORTS,
            "port",
            format_args!(
                "{} ports; at most {MAX_PORTS} are possible",
                self.port.len()
            ),
        )?;
        parse_mode("port_defaults.mode", &self.port_defaults.mode)?;
        for (place, port) in self.port.iter().enumerate() {
            let key = |name: &str| format!("port[{place}].{name}");
            require(
                (1..16).contains(&port.name.len()),
                &key("name"),
                format_args!("{:?} is not the name of an interface", port.name),
            )?;
            let twice = self.port[..place]
                .iter()
                .any(|other| other.name == port.name);
            require(
                !twice,
                &key("name"),
                format_args!("{} is there twice", port.name),
            )?;
            if let Some(mode) = &port.mode {
                parse_mode(&key("mode"), mode)?;
            }
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<(), Refusal> {
        validate_depth("qos.queue_depth_bytes", self.qos.queue_depth_bytes)?;
        let ring = self.memory.ring;
        require(
            ring.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&ring),
            "memory.ring",
            format_args!("{ring} is not a power of two from {RING_MIN} to {RING_MAX}"),
        )?;
        within(
            "netlink.resync_seconds",
            self.netlink.resync_seconds,
            1,
            86_400,
        )?;
        let receive = self.netlink.receive_buffer_bytes as u64;
        within("netlink.receive_buffer_bytes", receive, 4096, 1 << 30)?;
        let keep_alive = self.neighbours.keep_alive_seconds;
        within("neighbours.keep_alive_seconds", keep_alive, 1, 3600)?;
        within(
            "neighbours.retry_seconds",
            self.neighbours.retry_seconds,
            1,
            3600,
        )?;
        within(
            "stop.drain_milliseconds",
            self.stop.drain_milliseconds,
            0,
            60_000,
        )
    }

    /// Checks `[qos]` before the devices are known. Assumes that the ports it names exist, and that
    /// those which take the speed of the device have one.
    fn validate_qos(&self) -> Result<(), Refusal> {
        let speed = |speed: Speed| match speed {
            Speed::Rate(rate) => Some(rate),
            Speed::Device => Some(Rate::from_gbps(1)),
            Speed::Unlimited => None,
        };
        let facts = |name: String, of: Option<Speed>| PortFacts {
            name,
            speed: speed(of.unwrap_or(self.port_defaults.speed)),
            mtu: 1500,
            ring: self.memory.ring,
            uplink: false,
        };
        let listed = self.port.iter().map(|it| facts(it.name.clone(), it.speed));
        let matched = self.ports.iter().map(|it| facts(it.clone(), None));
        let groups = self.qos.group.iter().flat_map(|it| it.ports.clone());
        let queues = self.qos.queue.iter().flat_map(|it| it.ports.clone());
        let named = groups.chain(queues).map(|it| facts(it, None));
        let mut all: Vec<PortFacts> = listed.chain(matched).chain(named).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|a, b| a.name == b.name);
        self.qos.compile(&all).map(|_| ())
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
            Refusal::new("metrics.listen", reason)
        };
        text.parse().map(Some).map_err(wrong)
    }
}

fn validate_depth(key: &str, depth: u32) -> Result<(), Refusal> {
    // At least one packet of the largest size, in whole cells.
    let least = 16 * CELL as u64;
    within(key, u64::from(depth), least, 1 << 30)
}
