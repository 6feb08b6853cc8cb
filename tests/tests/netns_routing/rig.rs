//! Three switches with routing daemons, and a host at either end.
//!
//! ```text
//!   h1 ───────── host1 leaf uplink1 ──────────── leaf1a spine    switchd, FRR
//!                      leaf uplink2 ── cable ─── leaf1b spine
//!                                     spine border1 ─── spine1 border    switchd, BIRD
//!                                     spine border2 ─── spine2 border
//!                                                       border host2 ───────── h2
//! ```
//!
//! The leaf has a management interface `mgmt`, which is no port, with a router called `office`.
//!
//! The daemons run with the configurations in `etc/`. The cable is a bridge: when it is cut neither
//! end loses its carrier.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::observe::{eventually, rows};
use lab::settings::binary;
use serde_json::Value;

use super::node::{Node, Process, link, run};

/// Long enough for a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The switches, from one end to the other.
pub(crate) const SWITCHES: [&str; 3] = ["leaf", "spine", "border"];

/// BGP sessions of the boxes with FRR by address family, and their BFD sessions.
const SESSIONS: [(&str, usize, usize); 2] = [("leaf", 4, 2), ("spine", 8, 5)];

/// The shipped configuration `name`.
fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../etc")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The network and what runs in it.
#[derive(Debug)]
pub(crate) struct Rig {
    /// By machine and program.
    pub(crate) running: BTreeMap<(&'static str, &'static str), Process>,
    nodes: BTreeMap<&'static str, Node>,
    _folder: tempfile::TempDir,
}

impl Rig {
    /// Machines and links; nothing runs yet.
    fn wired() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let names = ["leaf", "spine", "border", "h1", "h2", "cable", "office"];
        let node = |name| (name, Node::new(name, folder.path().join(name)));
        let rig = Self {
            nodes: names.map(node).into(),
            running: BTreeMap::new(),
            _folder: folder,
        };
        let [leaf, spine, border, h1, h2, cable, office] = names.map(|name| rig.node(name));
        link((leaf, "uplink1"), (spine, "leaf1a"));
        link((leaf, "uplink2"), (cable, "end1"));
        link((cable, "end2"), (spine, "leaf1b"));
        link((spine, "border1"), (border, "spine1"));
        link((spine, "border2"), (border, "spine2"));
        link((leaf, "host1"), (h1, "eth0"));
        link((border, "host2"), (h2, "eth0"));
        link((leaf, "mgmt"), (office, "eth0"));
        for (switch, ports) in [
            (leaf, &["uplink1", "uplink2", "host1"][..]),
            (spine, &["leaf1a", "leaf1b", "border1", "border2"]),
        ] {
            // Without it veth loses what is just handed over to it when a program is taken off.
            for port in ports {
                switch.run(&format!("ethtool -K {port} gro on"));
            }
        }
        leaf.address("mgmt", &["198.51.100.1/24", "2001:db8:51::1/64"]);
        office.address("eth0", &["198.51.100.2/24", "2001:db8:51::2/64"]);
        cable.run("ip link add name bridge type bridge");
        for end in ["end1", "end2"] {
            cable.run(&format!("ip link set dev {end} master bridge"));
        }
        cable.run("ip link set dev bridge up");
        for switch in SWITCHES {
            for key in [
                "ipv4.ip_forward",
                "ipv6.conf.all.forwarding",
                "ipv4.fib_multipath_hash_policy",
                "ipv6.fib_multipath_hash_policy",
            ] {
                rig.node(switch).run(&format!("sysctl -qw net.{key}=1"));
            }
        }
        // FRR sets those of its machines.
        border.address("lo", &["10.255.0.3/32", "2001:db8:ffff::3/128"]);
        border.address("spine1", &["192.0.2.2/30", "2001:db8:12::2/64"]);
        border.address("host2", &["10.2.0.1/24", "2001:db8:2::1/64"]);
        for (host, number) in [(h1, 1), (h2, 2)] {
            let own = [
                format!("10.{number}.0.2/24"),
                format!("2001:db8:{number}::2/64"),
            ];
            host.address("eth0", &own.each_ref().map(String::as_str));
            host.run(&format!("ip route add default via 10.{number}.0.1"));
            host.run(&format!("ip route add default via 2001:db8:{number}::1"));
        }
        rig
    }

    /// All daemons run as shipped, all sessions are up, and hosts reach each other.
    pub(crate) fn up() -> Self {
        Self::with("", |text| text)
    }

    /// As [`Self::up`], with `more` in the configuration of BIRD, and that of FRR changed.
    pub(crate) fn with(more: &str, change: impl Fn(String) -> String) -> Self {
        let begun = Instant::now();
        let mut rig = Self::wired();
        for switch in SWITCHES {
            rig.start_switch(switch);
        }
        for router in ["leaf", "spine"] {
            rig.start_frr(router, change(shipped(&format!("frr/{router}.conf"))));
        }
        let file = rig.node("border").folder.join("bird.conf");
        fs::write(&file, shipped("bird/bird.conf") + more).expect("our folder");
        rig.start_bird();
        rig.wait_for_sessions();
        for prefix in ["10.2.0.0/24", "2001:db8:2::/64"] {
            rig.wait_for_hops("leaf", prefix, &["uplink1", "uplink2"]);
            rig.wait_for_hops("spine", prefix, &["border1", "border2"]);
        }
        for prefix in ["10.1.0.0/24", "2001:db8:1::/64"] {
            rig.wait_for_hops("spine", prefix, &["leaf1a", "leaf1b"]);
            rig.wait_for_hops("border", prefix, &["spine1", "spine2"]);
        }
        println!("all sessions are up after {:.1?}", begun.elapsed());
        rig
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        &self.nodes[name]
    }

    /// Starts BIRD with the configuration that it was given before.
    pub(crate) fn start_bird(&mut self) {
        let folder = &self.node("border").folder;
        let file = folder.join("bird.conf").display().to_string();
        let socket = self.bird_socket();
        let words = ["bird", "-f", "-c", &file, "-s", &socket];
        let bird = self.node("border").spawn("bird", &words);
        self.running.insert(("border", "bird"), bird);
    }

    /// Starts a daemon of FRR again that has been killed, as watchfrr does.
    pub(crate) fn restart_frr(&mut self, name: &'static str, daemon: &'static str) {
        let folder = self.node(name).folder.join("run/frr");
        let api = if daemon == "zebra" {
            "zserv.api"
        } else {
            "bfdd.sock"
        };
        for socket in [&format!("{daemon}.vty"), api] {
            // Of bgpd there is one only.
            if daemon != "bgpd" || socket.ends_with(".vty") {
                let _ = fs::remove_file(folder.join(socket));
            }
        }
        self.start_frr_daemon(name, daemon);
        self.vtysh_words(name, &["-b"]);
    }

    /// Interfaces by which the kernel of a machine would forward packets of exactly this prefix.
    pub(crate) fn kernel_hops(&self, name: &str, prefix: &str) -> Vec<String> {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let text = self
            .node(name)
            .run(&format!("ip -j {family} route show exact {prefix}"));
        let routes: Value = serde_json::from_str(&text).expect("JSON of ip");
        let mut all = Vec::new();
        for route in routes.as_array().into_iter().flatten() {
            let hops = route["nexthops"].as_array().into_iter().flatten();
            let devices = hops.chain([route]).filter_map(|hop| hop["dev"].as_str());
            all.extend(devices.map(str::to_owned));
        }
        all.sort();
        // The routes of a zebra that has died and those of the next one may be in one.
        all.dedup();
        all
    }

    /// Waits until a switch forwards packets of these prefixes as its kernel would, and returns by
    /// which ports.
    pub(crate) fn agreed(&self, name: &str, prefixes: &[&str]) -> Vec<Vec<String>> {
        let agreed = |prefix: &&str| {
            eventually(
                &format!("{prefix} on {name} as in the kernel"),
                PATIENCE,
                || {
                    let kernel = self.kernel_hops(name, prefix);
                    let hops = self.hops(name, prefix).into_iter();
                    let own: Vec<String> = hops.map(|(port, _)| port).collect();
                    if own == kernel {
                        Ok(own)
                    } else {
                        Err(format!("{own:?}; the kernel has {kernel:?}"))
                    }
                },
            )
        };
        prefixes.iter().map(agreed).collect()
    }

    /// The addresses of a host.
    pub(crate) fn addresses(&self, host: &str) -> [IpAddr; 2] {
        let number = &host[1..];
        let all = [format!("10.{number}.0.2"), format!("2001:db8:{number}::2")];
        all.map(|address| address.parse().expect("an address"))
    }

    /// Starts switchd, and waits until it forwards.
    pub(crate) fn start_switch(&mut self, name: &'static str) {
        let ports: &[&str] = match name {
            "leaf" => &["uplink*", "host1"],
            "spine" => &["leaf1*", "border*"],
            _ => &["spine*", "host2"],
        };
        let socket = self.socket(name);
        let text = format!(
            "ports = {ports:?}\n[admin]\nsocket = {socket:?}\n[workers]\ntakeover_milliseconds = 200\n"
        );
        let node = self.node(name);
        let file = node.folder.join("switchd.toml");
        fs::write(&file, text).expect("our folder");
        let program = binary("switchd")
            .expect("built before")
            .display()
            .to_string();
        let words = [program.as_str(), "run", "-c", &file.display().to_string()];
        let process = node.spawn("switchd", &words);
        self.running.insert((name, "switchd"), process);
        eventually(&format!("switchd on {name}"), PATIENCE, || {
            self.ask(name, &["status"]).map(|_| ())
        });
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.node(name).folder.join("admin.sock")
    }

    /// What `switchctl` answers, as JSON.
    fn ask(&self, name: &str, words: &[&str]) -> Result<Value, String> {
        let program = binary("switchctl")
            .expect("built before")
            .display()
            .to_string();
        let socket = self.socket(name).display().to_string();
        let all = [&[program.as_str(), "--json", "--socket", &socket], words].concat();
        let text = run(&all)?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    /// What `switchctl` answers.
    pub(crate) fn switchctl(&self, name: &str, words: &[&str]) -> Value {
        let answer = self.ask(name, words);
        answer.unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.node(name).log("switchd")))
    }

    /// Ports and next hops by which switchd forwards packets of exactly this prefix.
    pub(crate) fn hops(&self, name: &str, prefix: &str) -> Vec<(String, String)> {
        let routes = rows(self.switchctl(name, &["routes", prefix]));
        let Some(route) = routes.iter().find(|row| row["prefix"] == prefix) else {
            return Vec::new();
        };
        let text = |hop: &Value, field: &str| hop[field].as_str().unwrap_or_default().to_owned();
        let hops = route["next_hops"].as_array().into_iter().flatten();
        let mut hops: Vec<_> = hops
            .map(|hop| (text(hop, "port"), text(hop, "address")))
            .collect();
        hops.sort();
        hops
    }

    /// Waits until a prefix leads to these ports, and no other.
    pub(crate) fn wait_for_hops(&self, name: &str, prefix: &str, ports: &[&str]) {
        eventually(
            &format!("{prefix} on {name} by {ports:?}"),
            PATIENCE,
            || {
                let hops = self.hops(name, prefix);
                let found = hops.iter().map(|(port, _)| port.as_str());
                if found.eq(ports.iter().copied()) {
                    return Ok(());
                }
                let node = self.node(name);
                let kernel = node.run(&format!("ip route show {prefix}"));
                let objects = node.run("ip nexthop");
                let neighbours = self.switchctl(name, &["neighbours"]);
                Err(format!(
                    "{hops:?}; the kernel has {kernel}{objects}{neighbours}"
                ))
            },
        );
    }

    /// A counter of a port.
    pub(crate) fn port(&self, name: &str, port: &str, counter: &str) -> u64 {
        let ports = rows(self.switchctl(name, &["ports"]));
        let row = ports.iter().find(|row| row["name"] == port);
        row.expect("the port")[counter].as_u64().expect("a count")
    }

    /// Packets that a switch left to its kernel to forward.
    pub(crate) fn punted(&self, name: &str) -> u64 {
        let ports = rows(self.switchctl(name, &["ports"]));
        ports.iter().filter_map(|row| row["punted"].as_u64()).sum()
    }

    /// No switch has lost a packet.
    pub(crate) fn assert_nothing_dropped(&self) {
        for switch in SWITCHES {
            let drops = rows(self.switchctl(switch, &["drops"]));
            assert!(drops.is_empty(), "{switch}: {drops:?}");
        }
    }

    /// Starts zebra, bgpd and bfdd as its start script does, and reads the configuration.
    fn start_frr(&mut self, name: &'static str, configuration: String) {
        let node = &self.nodes[name];
        let [run_folder, etc] = ["run/frr", "etc"].map(|folder| node.folder.join(folder));
        for folder in [&run_folder, &etc] {
            fs::create_dir_all(folder).expect("our folder");
        }
        fs::write(etc.join("frr.conf"), configuration).expect("our folder");
        fs::write(etc.join("vtysh.conf"), "").expect("our folder");
        // The daemons give up root's rights.
        let folders = [&run_folder, &etc].map(|folder| folder.display().to_string());
        run(&["chown", "-R", "frr:frr", &folders[0], &folders[1]]).expect("frr is installed");
        for daemon in ["zebra", "bgpd", "bfdd"] {
            self.start_frr_daemon(name, daemon);
        }
        self.vtysh_words(name, &["-b"]);
    }

    fn start_frr_daemon(&mut self, name: &'static str, daemon: &'static str) {
        let node = &self.nodes[name];
        let run_folder = node.folder.join("run/frr");
        let program = format!("/usr/lib/frr/{daemon}");
        let mut words = vec![program.as_str(), "--log", "stdout", "-A", "127.0.0.1"];
        if daemon == "zebra" {
            // Routes stay when it ends.
            words.push("-r");
        }
        let process = node.spawn_as_on_its_own_machine(daemon, &words);
        self.running.insert((name, daemon), process);
        // Those that don't find zebra's socket try again after ten seconds only.
        let sockets = [format!("{daemon}.vty"), "zserv.api".to_owned()];
        eventually(&format!("{daemon} on {name}"), PATIENCE, || {
            let mut sockets = sockets.iter();
            if sockets.all(|socket| run_folder.join(socket).exists()) {
                Ok(())
            } else {
                Err(node.log(daemon))
            }
        });
    }

    fn vtysh_words(&self, name: &str, words: &[&str]) -> String {
        let folder = &self.node(name).folder;
        let [sockets, etc] = ["run/frr", "etc"].map(|it| folder.join(it).display().to_string());
        let own = ["vtysh", "--vty_socket", &sockets, "--config_dir", &etc];
        let answer = run(&[&own, words].concat());
        answer.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Gives FRR commands, one after the other.
    pub(crate) fn vtysh(&self, name: &str, commands: &[&str]) -> String {
        let words: Vec<&str> = commands.iter().flat_map(|line| ["-c", line]).collect();
        self.vtysh_words(name, &words)
    }

    /// What FRR shows as JSON.
    pub(crate) fn frr(&self, name: &str, topic: &str) -> Value {
        let text = self.vtysh(name, &[&format!("show {topic} json")]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{topic}: {error}: {text}"))
    }

    fn bird_socket(&self) -> String {
        self.node("border")
            .folder
            .join("bird.ctl")
            .display()
            .to_string()
    }

    /// Gives BIRD a command.
    pub(crate) fn birdc(&self, command: &str) -> String {
        let socket = self.bird_socket();
        let own = ["birdc", "-s", &socket];
        let words: Vec<&str> = own.into_iter().chain(command.split(' ')).collect();
        run(&words).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Established BGP sessions of a box with FRR, each with how often it has been.
    pub(crate) fn bgp(&self, name: &str) -> BTreeMap<String, u64> {
        let families = self.frr(name, "bgp summary");
        let families = families.as_object().cloned().unwrap_or_default();
        let mut all = BTreeMap::new();
        for (family, summary) in families {
            for (peer, row) in summary["peers"].as_object().into_iter().flatten() {
                if row["state"] == "Established" {
                    let times = row["connectionsEstablished"].as_u64().unwrap_or_default();
                    all.insert(format!("{family} {peer}"), times);
                }
            }
        }
        all
    }

    /// BFD sessions of a box with FRR that are up, each with how often it went down.
    pub(crate) fn bfd(&self, name: &str) -> BTreeMap<String, u64> {
        let rows = self.frr(name, "bfd peers counters");
        let text = |row: &Value| format!("{}%{}", row["peer"], row["interface"]);
        let downs = |row: &Value| row["session-down"].as_u64().unwrap_or_default();
        let rows = rows.as_array().into_iter().flatten();
        let downs: BTreeMap<String, u64> = rows.map(|row| (text(row), downs(row))).collect();
        let states = self.frr(name, "bfd peers");
        let up = states.as_array().into_iter().flatten();
        up.filter(|row| row["status"] == "up")
            .map(|row| {
                (
                    text(row),
                    downs.get(&text(row)).copied().unwrap_or_default(),
                )
            })
            .collect()
    }

    /// Waits until all BGP and BFD sessions are up.
    pub(crate) fn wait_for_sessions(&self) {
        for (name, bgp, bfd) in SESSIONS {
            eventually(&format!("sessions of {name}"), PATIENCE, || {
                let found = (self.bgp(name), self.bfd(name));
                if (found.0.len(), found.1.len()) == (bgp, bfd) {
                    Ok(())
                } else {
                    Err(format!("{found:?}\n{}", self.node(name).log("bgpd")))
                }
            });
        }
    }

    /// Starts lldpd, which tells its neighbours every second who it is.
    pub(crate) fn start_lldpd(&mut self, name: &'static str) {
        let node = &self.nodes[name];
        let settings = node.folder.join("lldpd.conf");
        let text = format!("configure system hostname {name}\nconfigure lldp tx-interval 1\n");
        fs::write(&settings, text).expect("our folder");
        fs::create_dir_all(node.folder.join("run/lldpd")).expect("our folder");
        let settings = settings.display().to_string();
        let words = ["lldpd", "-d", "-O", &settings, "-u", "/run/lldpd.socket"];
        let process = node.spawn_as_on_its_own_machine("lldpd", &words);
        self.running.insert((name, "lldpd"), process);
    }

    /// Who is at the other end of a port, as LLDP tells: the machine, and its port.
    pub(crate) fn lldp_neighbour(
        &self,
        name: &str,
        port: &str,
    ) -> Result<(String, String), String> {
        let socket = self
            .node(name)
            .folder
            .join("run/lldpd.socket")
            .display()
            .to_string();
        let text = run(&["lldpcli", "-u", &socket, "-f", "json0", "show", "neighbors"])?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let rows = answer["lldp"][0]["interface"]
            .as_array()
            .into_iter()
            .flatten();
        let mut here = rows.filter(|row| row["name"] == port);
        let row = here.next().ok_or_else(|| text.clone())?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let machine = text(&row["chassis"][0]["name"][0]["value"]);
        Ok((machine, text(&row["port"][0]["descr"][0]["value"])))
    }
}
