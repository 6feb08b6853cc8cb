//! A switch with a host on one side and, over two links, another on the other side, in network
//! namespaces, with the real daemon.
//!
//! ```text
//!    a  e1 10.1.0.2 ───── 10.1.0.1 p1 ┌────┐ p2 10.2.0.1 ───── 10.2.0.2 e2  b  (lo: 10.9.0.1,
//!                                     │ sw │                                       2001:db8:9::1)
//!                                     └────┘ p3 10.3.0.1 ───── 10.3.0.2 e3
//! ```

pub(crate) use netns::privileged;

use netns::{Echo, Namespace, Pinging};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything in these tests may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The rig's nodes: the switch and two hosts.
const NODES: [&str; 3] = ["sw", "a", "b"];

pub(crate) struct Rig {
    /// Of the nodes, in the order of [`NODES`].
    namespaces: [Namespace; 3],
    folder: tempfile::TempDir,
    daemon: Option<Child>,
    /// Lines of the configuration beyond the rig's own.
    settings: String,
}

impl Rig {
    /// Namespaces and links; the daemon does not run yet. `name` says whose they are; others of the
    /// same name may be there.
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let rig = Self {
            namespaces: NODES.map(|node| {
                let name = format!("{name}{number}-{node}");
                Namespace::new("switchd-test", &name).expect("root may make it")
            }),
            folder: tempfile::tempdir().expect("a temporary folder"),
            daemon: None,
            settings: String::new(),
        };
        for node in NODES {
            rig.ip(node, "link set lo up");
            // Without a link-local address, that is until duplicates of it are ruled out, the
            // kernel asks for no neighbour.
            rig.on(
                node,
                "sysctl",
                &["-qw", "net.ipv6.conf.default.accept_dad=0"],
            );
        }
        for (number, node) in [(1, "a"), (2, "b"), (3, "b")] {
            rig.link(number, node);
        }
        rig.ip("a", "route add default via 10.1.0.1");
        rig.ip("a", "-6 route add default via 2001:db8:1::1");
        rig.ip("b", "address add 10.9.0.1/32 dev lo");
        rig.ip("b", "-6 address add 2001:db8:9::1/128 dev lo");
        rig.ip("b", "route add default via 10.2.0.1");
        rig.ip("b", "-6 route add default via 2001:db8:2::1");
        rig
    }

    pub(crate) fn link(&self, number: u8, node: &str) {
        let (port, end) = (format!("p{number}"), format!("e{number}"));
        let (inside, outside) = (self.namespace("sw"), self.namespace(node));
        let words = format!("link add {port} netns {inside} type veth peer {end} netns {outside}");
        self.must("ip", &words.split(' ').collect::<Vec<_>>());
        for (node, interface, host) in [("sw", &port, 1), (node, &end, 2)] {
            self.ip(node, &format!("link set {interface} up"));
            self.ip(
                node,
                &format!("address add 10.{number}.0.{host}/24 dev {interface}"),
            );
            let address = format!("2001:db8:{number}::{host}/64");
            self.ip(
                node,
                &format!("-6 address add {address} dev {interface} nodad"),
            );
            let offloads = format!("-K {interface} tx off tso off gso off gro off");
            let words: Vec<&str> = offloads.split(' ').collect();
            self.on(node, "ethtool", &words);
        }
    }

    fn namespace(&self, node: &str) -> &str {
        let place = NODES.iter().position(|name| *name == node);
        self.namespaces[place.expect("a node of the rig")].name()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    fn must(&self, program: &str, words: &[&str]) -> String {
        let output = Command::new(program).args(words).output().expect(program);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A command in a namespace.
    pub(crate) fn command(&self, node: &str, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace(node), program]);
        command.args(words);
        command
    }

    /// Runs a program in a namespace; it has to succeed.
    pub(crate) fn on(&self, node: &str, program: &str, words: &[&str]) -> String {
        let output: Output = self.command(node, program, words).output().expect(program);
        let errors = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{program} {words:?}: {text}{errors}"
        );
        text
    }

    pub(crate) fn ip(&self, node: &str, words: &str) {
        let namespace = self.namespace(node);
        let words = ["-n", namespace]
            .into_iter()
            .chain(words.split(' '))
            .collect::<Vec<_>>();
        self.must("ip", &words);
    }

    /// Writes the daemon's configuration: the rig's own, and these lines.
    pub(crate) fn settings(&mut self, lines: &str) {
        lines.clone_into(&mut self.settings);
        self.write_configuration();
    }

    fn write_configuration(&self) -> PathBuf {
        let config = self.folder.path().join("switchd.toml");
        let text = format!(
            "ports = [\"p*\"]\n[admin]\nsocket = \"{}\"\n[workers]\ncount = 2\n{}",
            self.socket().display(),
            self.settings
        );
        std::fs::write(&config, text).expect("the folder is ours");
        config
    }

    /// The daemon's command with a configuration of the rig's own and `options` beyond.
    pub(crate) fn daemon_command(&self, options: &[&str]) -> Command {
        let config = self.write_configuration();
        let config = config.display().to_string();
        let mut words = vec!["run", "-c", config.as_str()];
        words.extend(options.iter().flat_map(|option| ["--set", option]));
        self.command("sw", env!("CARGO_BIN_EXE_switchd"), &words)
    }

    /// Starts the daemon and waits until it forwards.
    pub(crate) fn start(&mut self, options: &[&str]) {
        self.start_until(options, "status", Stdio::inherit());
    }

    /// The same with a log of its own.
    pub(crate) fn start_logging(&mut self, options: &[&str], log: impl Into<Stdio>) {
        self.start_until(options, "status", log);
    }

    /// Starts the daemon and waits until it answers, whether it is well or not.
    pub(crate) fn start_unwell(&mut self, options: &[&str]) {
        self.start_until(options, "ports", Stdio::inherit());
    }

    fn start_until(&mut self, options: &[&str], topic: &str, log: impl Into<Stdio>) {
        let mut command = self.daemon_command(options);
        self.daemon = Some(command.stderr(log).spawn().expect("switchd"));
        eventually("answer of the daemon", || {
            self.ctl_output(&[topic]).status.success()
        });
    }

    /// The process of the daemon.
    pub(crate) fn daemon_id(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon runs").id()
    }

    /// Sends SIGHUP.
    pub(crate) fn hang_up(&self) {
        let daemon = self.daemon.as_ref().expect("the daemon runs");
        let id = i32::try_from(daemon.id()).expect("a process number");
        let id = nix::unistd::Pid::from_raw(id);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGHUP).expect("it runs");
    }

    /// Sends SIGTERM and waits for the end; the exit status.
    pub(crate) fn stop(&mut self) -> std::process::ExitStatus {
        let mut daemon = self.daemon.take().expect("the daemon runs");
        let id = i32::try_from(daemon.id()).expect("a process number");
        let id = nix::unistd::Pid::from_raw(id);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it runs");
        daemon.wait().expect("our child")
    }

    /// Ends the daemon as a crash would.
    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon runs");
        daemon.kill().expect("it runs");
        daemon.wait().expect("our child");
    }

    pub(crate) fn ctl_output(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_switchctl"))
            .arg("--socket")
            .arg(self.socket())
            .args(words)
            .output()
            .expect("switchctl")
    }

    /// What `switchctl --json` says.
    pub(crate) fn ctl(&self, words: &[&str]) -> serde_json::Value {
        let words: Vec<&str> = std::iter::once("--json")
            .chain(words.iter().copied())
            .collect();
        let output = self.ctl_output(&words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Pings from `a`; how many of `count` were answered.
    pub(crate) fn ping(&self, to: &str, count: u16, milliseconds: u32) -> u16 {
        let pinging = self.start_ping(to, count, milliseconds);
        pinging.finish().expect("possible").received
    }

    /// Begins to ping from `a`.
    pub(crate) fn start_ping(&self, to: &str, count: u16, milliseconds: u32) -> Pinging {
        let interval = Duration::from_millis(milliseconds.into());
        let to = to.parse().expect("an address");
        self.echo("a", Echo::new(to, count, interval))
    }

    /// Begins to send echo requests.
    pub(crate) fn echo(&self, node: &str, echo: Echo) -> Pinging {
        echo.start(self.namespace(node))
    }

    /// Packets sent by each port since the counters were cleared.
    pub(crate) fn sent(&self, port: &str) -> u64 {
        let ports = self.ctl(&["ports"]);
        let row = ports
            .as_array()
            .expect("rows")
            .iter()
            .find(|row| row["name"] == port);
        row.expect("the port")["tx_packets"]
            .as_u64()
            .expect("a count")
    }

    /// Sends one UDP datagram from each of `flows` source ports of `a` to 10.9.0.1.
    pub(crate) fn flows(&self, flows: u16) {
        let script = format!(
            "import socket\nfor n in range({flows}):\n s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n \
             s.bind(('',20000+n))\n s.sendto(b'x',('10.9.0.1',9))\n s.close()\n"
        );
        self.on("a", "python3", &["-c", &script]);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < limit, "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
