//! Hosts at a bridge, and members on them.

use hostd_client::Context;
use hostd_client::group::{Group, GroupError, GroupOptions};
use netns::Namespace;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a daemon may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_hostallreduce")).with_file_name(name)
}

fn ip(words: &str) {
    netns::run(&format!("ip {words}")).expect("it succeeds");
}

struct Host {
    namespace: Namespace,
    folder: tempfile::TempDir,
    daemon: Child,
}

impl Host {
    fn status(&self) -> String {
        let mut command = Command::new(program("hostctl"));
        let socket = self.folder.path().join("admin.sock");
        let command = command.arg("--socket").arg(socket).arg("status");
        let output = command.output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// Hosts 10.31.0.1 and so on; they and their daemons end with this value.
pub(crate) struct Rig {
    hosts: Vec<Host>,
    port: AtomicU16,
    leaf: Option<Leaf>,
    bridge: Namespace,
}

/// A switch at the bridge that computes.
struct Leaf {
    _namespace: Namespace,
    folder: tempfile::TempDir,
    daemon: Child,
}

/// The last byte of its address, and its port at the bridge.
const LEAF: usize = 200;

impl Rig {
    /// Starts `count` hosts; `None` where none can be, as `netns` says.
    #[track_caller]
    pub(crate) fn new(count: usize) -> Option<Self> {
        Self::start(count, false, |_| "")
    }

    /// The same with switchd at the bridge, which all hosts have as their leaf.
    #[track_caller]
    pub(crate) fn with_leaf(count: usize) -> Option<Self> {
        Self::with_leaf_and(count, |_| "[collective]\nleaf = '10.31.0.200'\n")
    }

    /// The same, and `[collective]` of the configuration of each host, from 0 on.
    #[track_caller]
    pub(crate) fn with_leaf_and(count: usize, of: impl Fn(usize) -> &'static str) -> Option<Self> {
        Self::start(count, true, of)
    }

    #[track_caller]
    fn start(count: usize, with_leaf: bool, of: impl Fn(usize) -> &'static str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !netns::privileged() {
            return None;
        }
        if !program("hostd").exists() {
            netns::skip("hostd is not built");
            return None;
        }
        if with_leaf && !program("switchd").exists() {
            netns::skip("switchd is not built");
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let make = |name: String| Namespace::new("hostd-group", &name).expect("root may make it");
        let bridge = make(format!("{number}-br"));
        ip(&format!("-n {} link add br0 type bridge", bridge.name()));
        ip(&format!("-n {} link set br0 mtu 3000 up", bridge.name()));
        let hosts: Vec<_> = (1..=count)
            .map(|index| {
                let namespace = make(format!("{number}-{index}"));
                start(namespace, bridge.name(), index, of(index - 1))
            })
            .collect();
        let leaf = with_leaf.then(|| leaf(make(format!("{number}-leaf")), bridge.name()));
        let rig = Self {
            hosts,
            port: AtomicU16::new(19_000),
            leaf,
            bridge,
        };
        let until = Instant::now() + PATIENCE;
        while !rig.hosts.iter().all(|host| host.log().contains("ready")) {
            assert!(Instant::now() < until, "{:?}", rig.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(rig)
    }

    fn logs(&self) -> Vec<String> {
        self.hosts.iter().map(Host::log).collect()
    }

    /// A session with the daemon of a host; ranks beyond the hosts share them.
    pub(crate) fn session(&self, rank: usize) -> Context {
        let host = &self.hosts[rank % self.hosts.len()];
        Context::connect(&host.folder.path().join("hostd.sock")).expect("it runs")
    }

    /// A port that no group of this rig had.
    pub(crate) fn port(&self) -> u16 {
        self.port.fetch_add(1, Ordering::Relaxed)
    }

    /// Where rank 0 of a group waits.
    pub(crate) fn root(port: u16) -> SocketAddr {
        SocketAddr::new([10, 31, 0, 1].into(), port)
    }

    /// Runs `member` for each of `size` ranks, on a thread of its own, in a group of them all.
    pub(crate) fn group<T: Send>(
        &self,
        size: usize,
        options: GroupOptions,
        member: impl Fn(Context, Group) -> T + Sync,
    ) -> Vec<T> {
        let port = self.port();
        self.members(size, |context, rank| {
            let group = enter(&context, port, rank, size, options).expect("all join");
            member(context, group)
        })
    }

    /// Runs `member` for each of `size` ranks, on a thread of its own.
    pub(crate) fn members<T: Send>(
        &self,
        size: usize,
        member: impl Fn(Context, usize) -> T + Sync,
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..size)
                .map(|rank| {
                    let (context, member) = (self.session(rank), &member);
                    scope.spawn(move || member(context, rank))
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, T>| thread.join();
            let results: Vec<_> = threads.into_iter().map(join).collect();
            let unwind = |panic| std::panic::resume_unwind(panic);
            results
                .into_iter()
                .map(|it| it.unwrap_or_else(unwind))
                .collect()
        })
    }

    /// `hostallreduce` as a rank, on its host.
    pub(crate) fn tool(&self, rank: usize, size: usize, port: u16, words: &[&str]) -> Child {
        let host = &self.hosts[rank];
        Command::new(program("hostallreduce"))
            .arg("--socket")
            .arg(host.folder.path().join("hostd.sock"))
            .args(["--root", "10.31.0.1", "--port", &port.to_string()])
            .args(["--rank", &rank.to_string(), "--ranks", &size.to_string()])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    }

    /// Kills the switch.
    pub(crate) fn kill_leaf(&mut self) {
        let leaf = self.leaf.as_mut().expect("there is one");
        leaf.daemon.kill().expect("it runs");
        leaf.daemon.wait().expect("our child");
    }

    /// What the switch says of its jobs.
    pub(crate) fn jobs(&self) -> String {
        let leaf = self.leaf.as_ref().expect("there is one");
        let socket = leaf.folder.path().join("switchd.sock");
        let mut command = Command::new(program("switchctl"));
        command
            .arg("--socket")
            .arg(socket)
            .args(["--json", "inc", "jobs"]);
        let output = command.output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// How the daemon of a host says it stands.
    pub(crate) fn status(&self, host: usize) -> String {
        self.hosts[host].status()
    }

    /// What the daemon of a host has logged.
    pub(crate) fn log(&self, host: usize) -> String {
        self.hosts[host].log()
    }

    /// Has the bridge lose one packet in a hundred, each way, at each port.
    pub(crate) fn lose(&self) {
        let ports = (1..=self.hosts.len()).chain(self.leaf.iter().map(|_| LEAF));
        let ports: Vec<_> = ports.collect();
        self.classify(LOSE, &ports, &["ingress", "egress"]);
    }

    /// Has the bridge lose all that the leaf sends to a host.
    pub(crate) fn deafen(&self, host: usize) {
        self.classify(DEAFEN, &[host + 1], &["egress"]);
    }

    /// Has a program decide at these ports of the bridge what goes on these ways.
    fn classify(&self, program: &str, ports: &[usize], ways: &[&str]) {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, object) = (folder.path().join("tc.c"), folder.path().join("tc.o"));
        fs::write(&source, program).expect("written");
        let compiled = Command::new("clang")
            .args(["-O2", "-target", "bpf", "-c"])
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .status();
        assert!(compiled.expect("clang is there").success());
        let run = |words: &str| self.bridge.run(words).expect("it succeeds");
        for index in ports {
            run(&format!("tc qdisc add dev p{index} clsact"));
            for way in ways {
                run(&format!(
                    "tc filter add dev p{index} {way} bpf da obj {} sec classifier",
                    object.display()
                ));
            }
        }
    }

    /// Kills the daemon of a host.
    pub(crate) fn kill(&mut self, host: usize) {
        let daemon = &mut self.hosts[host].daemon;
        daemon.kill().expect("it runs");
        daemon.wait().expect("our child");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(leaf) = &mut self.leaf {
            if std::thread::panicking() {
                let log = fs::read_to_string(leaf.folder.path().join("log"));
                eprintln!("leaf:\n{}", log.unwrap_or_default());
            }
            let _ = leaf.daemon.kill();
            let _ = leaf.daemon.wait();
        }
        for host in &mut self.hosts {
            if std::thread::panicking() {
                eprintln!("{}:\n{}", host.namespace.name(), host.log());
            }
            let _ = host.daemon.kill();
            let _ = host.daemon.wait();
        }
    }
}

/// Lets a packet go on, but for one in a hundred.
const LOSE: &str = "
static unsigned int (*random)(void) = (void *)7;
__attribute__((section(\"classifier\"), used)) int lose(void *packet)
{ return random() % 100 == 0 ? 2 : -1; }
char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";
";

/// Lets a packet go on, but for IPv4 from the leaf: its ARP goes on.
const DEAFEN: &str = "
static int (*load)(void *, unsigned int, void *, unsigned int) = (void *)26;
__attribute__((section(\"classifier\"), used)) int deafen(void *packet)
{ unsigned char type[2], from[4];
  return !load(packet, 12, type, 2) && type[0] == 8 && type[1] == 0
    && !load(packet, 26, from, 4) && from[3] == 200 ? 2 : -1; }
char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";
";

/// The switch, at its port of the bridge.
fn leaf(namespace: Namespace, bridge: &str) -> Leaf {
    let name = namespace.name().to_owned();
    attach(&namespace, bridge, LEAF);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("switchd.sock");
    let config = format!(
        "ports = ['eth0']\n[admin]\nsocket = '{}'\n[metrics]\nlisten = ''\n\
         [compute]\nenabled = true\n",
        socket.display()
    );
    let file = folder.path().join("switchd.toml");
    fs::write(&file, config).expect("written");
    let log = File::create(folder.path().join("log")).expect("a log");
    let daemon = Command::new("ip")
        .args(["netns", "exec", &name])
        .arg(program("switchd"))
        .arg("-c")
        .arg(file)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("it starts");
    let until = Instant::now() + PATIENCE;
    while !socket.exists() {
        assert!(Instant::now() < until, "switchd is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    Leaf {
        _namespace: namespace,
        folder,
        daemon,
    }
}

/// A host at port `p{index}` of the bridge, with its daemon.
fn start(namespace: Namespace, bridge: &str, index: usize, collective: &str) -> Host {
    let name = namespace.name().to_owned();
    attach(&namespace, bridge, index);
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = format!(
        "[admin]\nsocket = '{0}/admin.sock'\n[application]\nsocket = '{0}/hostd.sock'\n\
         groups = []\n[[interface]]\nname = 'eth0'\nspeed = '10Gbps'\n",
        folder.path().display()
    );
    config.push_str(collective);
    let file = folder.path().join("hostd.toml");
    fs::write(&file, config).expect("written");
    let log = File::create(folder.path().join("log")).expect("a log");
    let daemon = Command::new("ip")
        .args(["netns", "exec", &name])
        .arg(program("hostd"))
        .arg("-c")
        .arg(file)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("it starts");
    Host {
        namespace,
        folder,
        daemon,
    }
}

/// A namespace at port `p{index}` of the bridge, with the address of that number.
fn attach(namespace: &Namespace, bridge: &str, index: usize) {
    let name = namespace.name();
    ip(&format!(
        "link add eth0 netns {name} type veth peer name p{index} netns {bridge}"
    ));
    ip(&format!(
        "-n {bridge} link set p{index} mtu 3000 master br0 up"
    ));
    ip(&format!("-n {name} link set lo up"));
    ip(&format!("-n {name} link set eth0 mtu 3000 up"));
    ip(&format!("-n {name} addr add 10.31.0.{index}/24 dev eth0"));
    // AF_XDP neither computes nor checks what the offloads leave out.
    let _ = namespace.run("ethtool -K eth0 tx off rx off gso off tso off gro off");
}

/// Joins a group, or makes it as rank 0.
pub(crate) fn enter(
    context: &Context,
    port: u16,
    rank: usize,
    size: usize,
    options: GroupOptions,
) -> Result<Group, GroupError> {
    if rank == 0 {
        Group::create(context, port, size, options)
    } else {
        Group::join(context, Rig::root(port), rank, size, options)
    }
}
