//! Switches whose ports are in bridges, and what both switchd and the kernel know of them.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use lab::observe::{eventually, rows, switches};
use lab::{Echo, Echoes, Lab, node_dir};
use serde_json::Value;

pub(crate) const SETTLE: Duration = Duration::from_secs(120);
pub(crate) const GAP: Duration = Duration::from_millis(50);

/// Switches whose ports are in a bridge called `br0` each; host n has 192.0.2.n.
pub(crate) struct Rig {
    pub(crate) lab: Lab,
}

impl Rig {
    /// A spine and leaves with two hosts each, all in one network. `options` are those of the
    /// bridges.
    pub(crate) fn new(name: &str, leaves: u8, options: &str) -> Self {
        Self::configured(name, leaves, options, "")
    }

    /// The same with further settings of the leaves.
    pub(crate) fn configured(name: &str, leaves: u8, options: &str, settings: &str) -> Self {
        let rig = Self {
            lab: switches(name).size(leaves, 1, 2 * leaves).up().unwrap(),
        };
        if !settings.is_empty() {
            for leaf in 1..=leaves {
                rig.configure(&format!("leaf{leaf}"), settings);
            }
        }
        for leaf in 1..=leaves {
            let hosts = [2 * leaf - 1, 2 * leaf];
            let [one, other] = hosts.map(|host| format!("h{host}"));
            let node = format!("leaf{leaf}");
            rig.bridge(&node, &[&one, &other, "spine1"], options);
            for host in hosts {
                let words = format!("ip address add 192.0.2.{host}/24 dev {node}");
                rig.on(&format!("h{host}"), &words);
            }
        }
        let leaves: Vec<String> = (1..=leaves).map(|leaf| format!("leaf{leaf}")).collect();
        let names: Vec<&str> = leaves.iter().map(String::as_str).collect();
        rig.bridge("spine1", &names, options);
        rig
    }

    /// Adds settings to those of a switch, and starts it with them.
    pub(crate) fn configure(&self, node: &str, settings: &str) {
        let path = node_dir(self.lab.name(), node).join("switchd.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}\n{settings}\n")).unwrap();
        self.lab.restart(node).unwrap();
        self.lab.wait_ready(SETTLE).unwrap();
    }

    /// Puts ports of a switch into a bridge.
    pub(crate) fn bridge(&self, node: &str, ports: &[&str], options: &str) {
        let own = "forward_delay 0 mcast_snooping 0";
        self.on(
            node,
            &format!("ip link add br0 type bridge {own} {options}"),
        );
        for port in ports {
            self.on(node, &format!("ip address flush dev {port}"));
            self.on(node, &format!("ip link set {port} master br0"));
        }
        self.on(node, "ip link set br0 up");
        eventually("the ports of the bridge", SETTLE, || {
            let rows = self.bridge_rows(node);
            let taken = rows
                .iter()
                .filter(|row| row["left_to_kernel"].is_null() && row["state"] == "forwarding");
            if taken.count() == ports.len() {
                Ok(())
            } else {
                Err(format!("{rows:?}"))
            }
        });
    }

    /// Runs a command on a node.
    pub(crate) fn on(&self, node: &str, line: &str) -> String {
        let output = self.lab.host(node).run(line.split_whitespace()).unwrap();
        output.expect_ok()
    }

    /// What comes of `count` echo requests of a host to an address.
    pub(crate) fn ping(&self, host: &str, destination: &str, count: u16) -> Echoes {
        let echo = Echo::new(destination.parse().unwrap(), count, GAP);
        self.lab.host(host).echo(echo).finish().unwrap()
    }

    /// How many of them are answered.
    pub(crate) fn answers(&self, host: &str, destination: &str, count: u16) -> u16 {
        self.ping(host, destination, count).received
    }

    /// Waits until a host gets answers from an address.
    pub(crate) fn wait_answer(&self, host: &str, destination: &str) {
        eventually("an answer", SETTLE, || {
            match self.ping(host, destination, 2) {
                seen if seen.lost() == 0 => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        });
    }

    /// What an echo request of a host with these options prints.
    pub(crate) fn ping_with(&self, host: &str, destination: &str, options: &[&str]) -> String {
        let words = [&["ping", "-n", "-W", "1"], options, &[destination]].concat();
        self.lab.host(host).run(words).unwrap().stdout
    }

    /// Packets that the ports of a switch have punted.
    pub(crate) fn punted(&self, node: &str) -> u64 {
        let ports = rows(self.lab.switchctl(node, &["show", "ports"]).unwrap());
        ports.iter().filter_map(|row| row["punted"].as_u64()).sum()
    }

    /// Waits until the echo requests of a host to an address are answered, over one router and by
    /// no kernel.
    pub(crate) fn wait_routed(&self, host: &str, destination: &str) {
        eventually(destination, SETTLE, || {
            let before = self.punted("leaf1");
            let seen = self.ping(host, destination, 5);
            let punted = self.punted("leaf1") - before;
            if seen.lost() == 0 && punted == 0 && seen.hops == [63].into() {
                Ok(())
            } else {
                let why = self.lab.switchctl("leaf1", &["routes", "--punted"]);
                Err(format!("{punted} punted: {seen:?} {why:?}"))
            }
        });
    }

    pub(crate) fn bridge_rows(&self, node: &str) -> Vec<Value> {
        rows(self.lab.switchctl(node, &["bridge"]).unwrap())
    }

    /// A count of a port of a bridge.
    pub(crate) fn count(&self, node: &str, port: &str, what: &str) -> u64 {
        let rows = self.bridge_rows(node);
        let row = rows.iter().find(|row| row["port"] == port).unwrap();
        row[what].as_u64().unwrap()
    }

    /// The stations behind ports that switchd knows: address, VLAN, port.
    pub(crate) fn known(&self, node: &str) -> BTreeSet<(String, u64, String)> {
        let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        rows(self.lab.switchctl(node, &["fdb"]).unwrap())
            .iter()
            .filter(|row| row["by"] == "switchd")
            .map(|row| {
                (
                    text(row, "mac"),
                    row["vlan"].as_u64().unwrap_or(0),
                    text(row, "port"),
                )
            })
            .collect()
    }

    /// The same, as `bridge fdb` has it.
    pub(crate) fn known_by_kernel(&self, node: &str) -> BTreeSet<(String, u64, String)> {
        let text = self.on(node, "bridge -j fdb show br br0");
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        rows.iter()
            .filter(|row| row["master"] == "br0" && row["state"] != "permanent")
            .map(|row| {
                (
                    text(row, "mac"),
                    row["vlan"].as_u64().unwrap_or(0),
                    text(row, "ifname"),
                )
            })
            .collect()
    }

    /// Waits until switchd and the kernel know the same stations.
    pub(crate) fn wait_agreement(&self, node: &str) -> BTreeSet<(String, u64, String)> {
        eventually("agreement", SETTLE, || {
            let (ours, kernels) = (self.known(node), self.known_by_kernel(node));
            if ours == kernels {
                Ok(ours)
            } else {
                Err(format!("{ours:?}, but the kernel has {kernels:?}"))
            }
        })
    }

    /// The MAC address of a host.
    pub(crate) fn mac(&self, host: &str) -> String {
        let text = self.on(host, "ip -j link show dev leaf1");
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
        rows[0]["address"].as_str().unwrap().to_owned()
    }
}
