//! Two daemons in one network namespace, each with interfaces of its own, as an operator starts
//! them: the real programs, traffic through both, one that ends and comes back beside the other.
//!
//! ```text
//!   left1 ── l1 ┌─────┐ r1 ── right1      daemon 1 has the interfaces …1, daemon 2 those …2;
//!               │ box │                   a hostd has l1 alone, and its peer in left1 another
//!   left2 ── l2 └─────┘ r2 ── right2
//! ```

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lab::observe::eventually;
use lab::settings::binary;
use lab::{exclusive, privileged};
use netns::{Echo, Namespace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

const SETTLE: Duration = Duration::from_secs(20);

/// How daemons are started in a namespace: with all that root may, and with what a unit leaves.
const RIGHTS: [&[&str]; 2] = [&[], &["setpriv", "--bounding-set", "-sys_admin", "--"]];

/// Which daemon runs on a set of interfaces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Switch,
    Host,
}

/// A program in a namespace, ended with this value.
struct Running(Child);

impl Running {
    /// Asks it to end and returns whether it did so well.
    fn end(mut self) -> bool {
        let id = i32::try_from(self.0.id()).unwrap();
        kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Either it has ended, or it does now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon, its interfaces, and who is at their other ends.
struct Site {
    kind: Kind,
    /// 1 or 2; part of all its names and addresses.
    number: u8,
    left: Namespace,
    right: Namespace,
    folder: TempDir,
    daemon: Option<Running>,
    /// The daemon of the host in `left`, where this one is a hostd.
    peer: Option<Running>,
}

fn command(namespace: &Namespace, words: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace.name()])
        .args(words);
    command
}

fn expect(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn program(name: &str) -> String {
    binary(name).unwrap().display().to_string()
}

impl Site {
    fn new(rig: &Namespace, kind: Kind, number: u8) -> Self {
        let namespace = |side: &str| Namespace::new("beside", &format!("{side}{number}")).unwrap();
        let site = Self {
            kind,
            number,
            left: namespace("left"),
            right: namespace("right"),
            folder: tempfile::tempdir().unwrap(),
            daemon: None,
            peer: None,
        };
        for (side, outside, port) in [(1, &site.left, 'l'), (2, &site.right, 'r')] {
            let device = format!("{port}{number}");
            let network = format!("10.{number}.{side}");
            let name = outside.name();
            rig.run(&format!(
                "ip link add {device} type veth peer name eth0 netns {name}"
            ))
            .unwrap();
            for (node, device, host) in [(rig, device.as_str(), 1), (outside, "eth0", 2)] {
                node.set_up(device).unwrap();
                node.run(&format!("ip address add {network}.{host}/24 dev {device}"))
                    .unwrap();
            }
            outside.run("ip link set lo up").unwrap();
            outside
                .run(&format!("ip route add default via {network}.1"))
                .unwrap();
        }
        site
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.socket("log")).unwrap_or_default()
    }

    /// Starts a daemon in `namespace` with files called after `name`.
    fn launch(&self, namespace: &Namespace, rights: &[&str], name: &str, text: &str) -> Running {
        let (kind, config) = match self.kind {
            Kind::Switch => ("switchd", self.socket("switchd.toml")),
            Kind::Host => ("hostd", self.socket(&format!("{name}.toml"))),
        };
        fs::write(&config, text).unwrap();
        let (daemon, config) = (program(kind), config.display().to_string());
        let words = [rights, &[&daemon, "run", "-c", &config]].concat();
        let log = File::create(self.socket(name)).unwrap();
        Running(command(namespace, &words).stderr(log).spawn().unwrap())
    }

    /// Starts the daemon in the namespace of both, and waits until it works.
    fn start(&mut self, rig: &Namespace, rights: &[&str]) {
        let (number, folder) = (self.number, self.folder.path().display().to_string());
        let metrics = format!("[metrics]\nlisten = '127.0.0.1:91{number}1'\n");
        let text = match self.kind {
            Kind::Switch => format!(
                "ports = ['l{number}', 'r{number}']\n[admin]\nsocket = '{folder}/admin'\n\
                 [workers]\ncount = 1\n{metrics}"
            ),
            Kind::Host => hostd_settings(&folder, "", &format!("l{number}")) + &metrics,
        };
        self.daemon = Some(self.launch(rig, rights, "log", &text));
        if self.kind == Kind::Host && self.peer.is_none() {
            let text = hostd_settings(&folder, "peer-", "eth0");
            self.peer = Some(self.launch(&self.left, &[], "peer-log", &text));
        }
        eventually(&format!("daemon {number}"), SETTLE, || {
            let ready = match self.kind {
                Kind::Switch => self.ask("switchctl", &["status"]).status.success(),
                Kind::Host => ["log", "peer-log"].iter().all(|log| {
                    fs::read_to_string(self.socket(log)).is_ok_and(|it| it.contains("ready"))
                }),
            };
            if ready { Ok(()) } else { Err(self.log()) }
        });
    }

    /// What an operator's program says of this daemon.
    fn ask(&self, name: &str, words: &[&str]) -> Output {
        let mut command = Command::new(program(name));
        let socket = self.socket("admin");
        command.arg("--socket").arg(socket).args(words);
        command.output().unwrap()
    }

    fn json(&self, name: &str, words: &[&str]) -> Value {
        let output = self.ask(name, &[&["--json"], words].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Packets that the daemon itself has transmitted by all its interfaces.
    fn transmitted(&self) -> u64 {
        let rows = match self.kind {
            Kind::Switch => self.json("switchctl", &["ports"]),
            Kind::Host => self.json("hostctl", &["show", "ports"]),
        };
        let rows = rows.as_array().unwrap();
        let count = |row: &Value| row["tx_packets"].as_u64().unwrap();
        rows.iter().map(count).sum()
    }

    /// Moves traffic through the daemon, all of which has to arrive and to be the daemon's own.
    fn carries(&self, rig: &Namespace) {
        let before = self.transmitted();
        match self.kind {
            Kind::Switch => self.ping(),
            Kind::Host => self.copy(rig),
        }
        let carried = self.transmitted() - before;
        assert!(carried >= 100, "daemon {}: {carried}", self.number);
    }

    /// Echo requests from one side to the other; the kernel of the box forwards nothing.
    fn ping(&self) {
        let to = format!("10.{}.2.2", self.number);
        let echo = |count| {
            let echo = Echo::new(to.parse().unwrap(), count, Duration::from_millis(5));
            echo.start(self.left.name()).finish().unwrap()
        };
        // The first ones are for the neighbours to be known.
        echo(3);
        let seen = echo(100);
        assert_eq!(seen.received, 100, "{seen:?}");
    }

    /// A file from the box to the host beyond the daemon's interface.
    fn copy(&self, rig: &Namespace) {
        let (hostcp, inbox) = (program("hostcp"), self.socket("inbox"));
        fs::create_dir_all(&inbox).unwrap();
        let mut receiver = command(&self.left, &[&hostcp, "serve", "--root"]);
        let mut receiver = Running(
            receiver
                .arg(&inbox)
                .env("HOSTD_SOCKET", self.socket("peer-application"))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut said = BufReader::new(receiver.0.stdout.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        assert!(first.contains("port"), "{first}");
        let content = vec![self.number; 1 << 20];
        let source = self.socket("source");
        fs::write(&source, &content).unwrap();
        let to = format!("10.{}.1.2:file", self.number);
        let mut sender = command(rig, &[&hostcp, &source.display().to_string(), &to]);
        expect(sender.env("HOSTD_SOCKET", self.socket("application")));
        let arrived = inbox.join("file");
        assert!(fs::read(&arrived).unwrap() == content, "the same bytes");
        fs::remove_file(arrived).unwrap();
    }

    /// Ends the daemon, which leaves its interfaces as they were.
    fn stop(&mut self, rig: &Namespace) {
        let daemon = self.daemon.take().expect("it runs");
        assert!(daemon.end(), "daemon {}: {}", self.number, self.log());
        let links = rig
            .run(&format!("ip -d link show l{}", self.number))
            .unwrap();
        assert!(!links.contains("xdp"), "{links}");
    }
}

fn hostd_settings(folder: &str, prefix: &str, interface: &str) -> String {
    format!(
        "[admin]\nsocket = '{folder}/{prefix}admin'\n[application]\n\
         socket = '{folder}/{prefix}application'\ngroups = []\n[[interface]]\n\
         name = '{interface}'\nspeed = '1Gbps'\n"
    )
}

/// Two daemons start, carry traffic at once, end and start again beside each other; with all
/// rights no device is left of it, with those of units the pair that the manual names.
fn side_by_side(kinds: [Kind; 2]) {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    for (rights, devices) in RIGHTS.into_iter().zip([0, 2]) {
        let rig = Namespace::new("beside", "box").unwrap();
        rig.run("ip link set lo up").unwrap();
        rig.run("sysctl -qw net.ipv4.ip_forward=0").unwrap();
        let [mut one, mut two] = [1, 2].map(|n| Site::new(&rig, kinds[usize::from(n) - 1], n));
        one.start(&rig, rights);
        two.start(&rig, rights);
        std::thread::scope(|scope| {
            scope.spawn(|| one.carries(&rig));
            two.carries(&rig);
        });
        one.stop(&rig);
        two.carries(&rig);
        one.start(&rig, rights);
        one.carries(&rig);
        two.stop(&rig);
        one.carries(&rig);
        one.stop(&rig);
        let links = rig.run("ip -o link show").unwrap();
        let left = links.matches(": xsk-anchor").count();
        assert_eq!(left, devices, "{kinds:?}, {rights:?}: {links}");
        for site in [&one, &two] {
            let log = site.log();
            assert!(!log.contains("ERROR"), "{log}");
        }
    }
}

/// SW-1, MG-1: two switches run in one network namespace.
#[test]
fn two_switches() {
    side_by_side([Kind::Switch, Kind::Switch]);
}

/// HT-1, MG-1: two hostds run in one network namespace.
#[test]
fn two_hosts() {
    side_by_side([Kind::Host, Kind::Host]);
}

/// SW-1, HT-1, MG-1: a switch and a hostd run in one network namespace, whichever starts first.
#[test]
fn a_switch_and_a_host() {
    side_by_side([Kind::Switch, Kind::Host]);
    side_by_side([Kind::Host, Kind::Switch]);
}
