//! The daemons themselves, in two network namespaces joined by a veth pair, with AF_XDP and the
//! kernel's neighbours and routes: hostcp and hostperf between them.
//!
//! Needs root, `ip`, `ethtool`, and the programs of the workspace beside `hostd`.

mod addresses;
mod asking;
mod changes;
mod collective;
mod following;
mod planes;
mod response;
#[path = "../leaf/mod.rs"]
mod switch;
mod vanished;

use netns::Namespace;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a host counts when a packet comes after its queue pair has ended: one that was sent twice
/// because a processor was late.
const STRAGGLERS: [&str; 2] = ["queue_pair_state", "queue_pair_ended"];

/// Whether these tests can run; when they were promised to, they fail instead.
#[track_caller]
fn possible() -> bool {
    if !netns::privileged() {
        return false;
    }
    let missing: Vec<_> = ["hostcp", "hostperf"]
        .into_iter()
        .filter(|name| !program(name).exists())
        .collect();
    if !missing.is_empty() {
        netns::skip(&format!("{missing:?} not built"));
    }
    missing.is_empty()
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_hostd")).with_file_name(name)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn ip(words: &str) {
    netns::run(&format!("ip {words}")).expect("it succeeds");
}

/// A host: a namespace, a folder, a daemon.
struct Host {
    namespace: Namespace,
    address: String,
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Host {
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", self.namespace.name()])
            .arg(program(name));
        command
            .env("HOSTD_SOCKET", self.folder.path().join("hostd.sock"))
            .env("HOSTCTL_SOCKET", self.folder.path().join("admin.sock"))
            .current_dir(self.folder.path());
        command
    }

    fn start(&mut self) {
        let log = fs::File::create(self.folder.path().join("log")).expect("a log");
        self.start_with(log);
        self.wait_for("ready", || self.log().contains("ready"));
    }

    fn start_with(&mut self, log: fs::File) {
        let config = self.folder.path().join("hostd.toml");
        let mut command = self.command("hostd");
        command
            .arg("-c")
            .arg(config)
            .stderr(log)
            .stdout(Stdio::null());
        self.daemon = Some(command.spawn().expect("it starts"));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds() {
            assert!(
                Instant::now() < until,
                "{}: {what}: {}",
                self.namespace.name(),
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn show(&self, subject: &str) -> Vec<Value> {
        let output = run(self.command("hostctl").args(["--json", "show", subject]));
        match serde_json::from_slice(&output.stdout) {
            Ok(Value::Array(rows)) => rows,
            other => panic!("{other:?}"),
        }
    }

    /// Kills the daemon, and returns when.
    fn kill(&mut self) -> Instant {
        let mut daemon = self.daemon.take().expect("it runs");
        let now = Instant::now();
        daemon.kill().expect("it runs");
        daemon.wait().expect("our child");
        now
    }

    /// Signals the daemon and returns whether it succeeded.
    fn end(&mut self, signal: &str) -> bool {
        let Some(mut daemon) = self.daemon.take() else {
            return true;
        };
        run(Command::new("kill").args([signal, &daemon.id().to_string()]));
        daemon.wait().expect("it ends").success()
    }
}

/// Two hosts on a link.
struct Link {
    hosts: [Host; 2],
}

impl Link {
    fn new() -> Self {
        Self::over(None, "1Gbps")
    }

    /// Two hosts at the ports `m1` and `m2` of a bridge in another namespace, which send as fast as
    /// their links say they are.
    fn between(bridge: &Namespace) -> Self {
        Self::over(Some(bridge), "10Gbps")
    }

    fn over(bridge: Option<&Namespace>, speed: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let hosts = [1, 2].map(|index| Host {
            namespace: Namespace::new("hostd-test", &format!("{number}-{index}"))
                .expect("root may make it"),
            address: format!("10.9.0.{index}"),
            folder: tempfile::tempdir().expect("a folder"),
            daemon: None,
        });
        let mut link = Self { hosts };
        link.set_up(bridge, speed);
        link
    }

    fn set_up(&mut self, bridge: Option<&Namespace>, speed: &str) {
        let [a, b] = [0, 1].map(|index| self.hosts[index].namespace.name());
        if let Some(bridge) = bridge.map(Namespace::name) {
            for (host, port) in [(a, "m1"), (b, "m2")] {
                ip(&format!(
                    "link add eth0 netns {host} type veth peer name {port} netns {bridge}"
                ));
                ip(&format!(
                    "-n {bridge} link set {port} mtu 3000 master br0 up"
                ));
            }
        } else {
            ip(&format!(
                "link add eth0 netns {a} type veth peer name eth0 netns {b}"
            ));
        }
        for (host, index) in self.hosts.iter_mut().zip([1, 2]) {
            let namespace = host.namespace.name().to_owned();
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {namespace} link set eth0 mtu 3000 up"));
            ip(&format!(
                "-n {namespace} addr add {}/24 dev eth0",
                host.address
            ));
            ip(&format!(
                "-n {namespace} addr add fd09::{index}/64 dev eth0 nodad"
            ));
            // AF_XDP neither computes nor checks what the offloads leave out.
            let ethtool = "ethtool -K eth0 tx off rx off gso off tso off gro off";
            let _ = host.namespace.run(ethtool);
            let config = format!(
                "[admin]\nsocket = '{0}/admin.sock'\n[application]\nsocket = '{0}/hostd.sock'\n\
                 groups = []\n[[interface]]\nname = 'eth0'\nspeed = '{speed}'\n",
                host.folder.path().display()
            );
            fs::write(host.folder.path().join("hostd.toml"), config).expect("written");
            host.start();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            if std::thread::panicking() {
                eprintln!("{}:\n{}", host.namespace.name(), host.log());
            }
            host.end("-KILL");
        }
    }
}

/// Starts a daemon again, with more configuration.
fn configure(host: &mut Host, more: &str) {
    assert!(host.end("-TERM"), "{}", host.log());
    let path = host.folder.path().join("hostd.toml");
    let config = fs::read_to_string(&path).expect("readable");
    fs::write(path, more.to_owned() + &config).expect("written");
    host.start();
}

/// A process that is ended with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a receiver or server and waits for its first line.
fn serve(host: &Host, name: &str, words: &[&str]) -> Process {
    use std::io::{BufRead, BufReader};
    let mut command = host.command(name);
    let mut child = command
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(first.contains("port"), "{first}");
    // Read on, so that it never waits for a reader.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    Process(child)
}

fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// HT-1, HT-2, HT-10: files and measurements cross, over IPv4 and IPv6, and nothing is dropped that
/// was not received before; the metrics are clean (MG-5), and the daemon leaves the device as it
/// was.
#[test]
fn files_and_measurements_cross() {
    if !possible() {
        return;
    }
    let mut link = Link::new();
    {
        let [a, b] = &link.hosts;
        let inbox = b.folder.path().join("inbox");
        fs::create_dir_all(inbox.join("sub")).expect("folders");
        let receiver = serve(b, "hostcp", &["serve", "--root", "inbox"]);
        for (len, target, place) in [
            (0, "10.9.0.2:empty", "empty"),
            (1, "10.9.0.2:sub", "sub/file"),
            (262_144, "[fd09::2]:exact", "exact"),
            (20_000_003, "[fd09::2]:large", "large"),
            (30_000_000, "10.9.0.2:large", "large"),
        ] {
            let content = bytes(len);
            fs::write(a.folder.path().join("file"), &content).expect("written");
            let output = run(a.command("hostcp").args(["file", target]));
            println!("{}", String::from_utf8_lossy(&output.stdout));
            assert!(
                fs::read(inbox.join(place)).expect(place) == content,
                "{target}"
            );
        }
        for wrong in [
            "10.9.0.2:../x",
            "10.9.0.2:/etc/x",
            "10.9.0.2:nowhere/x",
            "nobody.invalid:x",
        ] {
            let output = a
                .command("hostcp")
                .args(["file", wrong])
                .output()
                .expect("starts");
            assert!(!output.status.success(), "{wrong}");
            assert!(!output.stderr.is_empty());
        }
        let output = a
            .command("hostcp")
            .args(["file", "10.9.0.77:x"])
            .output()
            .expect("starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.contains("does not answer to address resolution"),
            "{text}"
        );
        drop(receiver);

        let _server = serve(b, "hostperf", &["serve"]);
        for (test, size) in [("write", "65536"), ("send", "65536"), ("lat", "64")] {
            let words = [test, "10.9.0.2", "-s", size, "-D", "0.5", "--json"];
            let output = run(a.command("hostperf").args(words));
            let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            println!("{test}: {rows}");
            assert!(
                rows[0]["messages"].as_u64().is_some_and(|count| count > 10),
                "{rows}"
            );
        }
        let output = run(a
            .command("hostperf")
            .args(["write", "fd09::2", "-D", "0.05", "--all"]));
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 24);

        for host in [a, b] {
            let mut lossy = host.show("drops");
            let is_late = |row: &Value| STRAGGLERS.iter().any(|it| row["reason"] == *it);
            lossy.retain(|row| row["packets"] != 0 && !is_late(row));
            assert!(lossy.is_empty(), "{lossy:?}");
            assert!(!host.show("status").is_empty());
            assert_eq!(host.show("pauses").len(), 8);
            assert!(!host.show("ports").is_empty());
        }
        metrics(a);
    }
    for host in &mut link.hosts {
        assert!(host.end("-TERM"), "{}", host.log());
        let words = ["-n", host.namespace.name(), "link", "show", "eth0"];
        let shown = run(Command::new("ip").args(words));
        assert!(!String::from_utf8_lossy(&shown.stdout).contains("xdp"));
    }
}

/// HT-1: applications of one host reach one another by any of its addresses, also by one that came
/// later, and nothing of it leaves the host. Addresses that are none of hostd's are refused by
/// name.
#[test]
fn a_host_reaches_itself() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let host = &link.hosts[0];
    let sent = || -> u64 {
        let path = "cat /sys/class/net/eth0/statistics/tx_bytes";
        let output = host.namespace.run(path).expect("there");
        output.trim().parse().expect("a number")
    };
    fs::create_dir_all(host.folder.path().join("inbox")).expect("a folder");
    let _receiver = serve(host, "hostcp", &["serve", "--root", "inbox"]);
    let name = host.namespace.name();
    ip(&format!("-n {name} addr add 10.9.0.11/24 dev eth0"));
    let before = sent();
    let content = bytes(3_000_001);
    fs::write(host.folder.path().join("file"), &content).expect("written");
    for (own, file) in [
        ("10.9.0.1", "first"),
        ("[fd09::1]", "second"),
        ("10.9.0.11", "third"),
    ] {
        let target = format!("{own}:{file}");
        run(host.command("hostcp").args(["file", &target]));
        let got = fs::read(host.folder.path().join("inbox").join(file));
        assert!(got.expect(file) == content, "{target}");
    }
    let left = sent() - before;
    assert!(left < 100_000, "{left} bytes left the host");
    let refused = host
        .command("hostcp")
        .args(["file", "127.0.0.1:x"])
        .output();
    let text = String::from_utf8_lossy(&refused.expect("starts").stderr).into_owned();
    assert!(text.contains("is this host itself, by lo"), "{text}");
    let mut lossy = host.show("drops");
    lossy.retain(|row| row["packets"] != 0);
    assert!(lossy.is_empty(), "{lossy:?}");
}

/// HT-3: a sender that holds many places of a receiver, and sends nothing, is refused further ones;
/// a sender with another address still finds one.
#[test]
fn a_sender_cannot_take_all_places_of_a_receiver() {
    use hostd_client::{Context, Error, Private, QueuePairOptions};
    if !possible() {
        return;
    }
    let link = Link::new();
    let [a, b] = &link.hosts;
    fs::create_dir_all(b.folder.path().join("inbox")).expect("a folder");
    let _receiver = serve(b, "hostcp", &["serve", "--root", "inbox"]);
    let context = Context::connect(&a.folder.path().join("hostd.sock")).expect("a daemon");
    let queue = context.create_completion_queue(8).expect("a queue");
    let peer = "10.9.0.2:18516".parse().expect("an address");
    let mut silent = Vec::new();
    let refused = loop {
        let options = QueuePairOptions::default();
        let pair = context.create_queue_pair(&queue, &queue, options);
        let mut pair = pair.expect("a queue pair");
        let magic = Private::new(b"hcp2").expect("short");
        match pair.connect(peer, magic, PATIENCE) {
            Ok(_) => silent.push(pair),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::ConnectFailed { .. }), "{refused}");
    assert_eq!(silent.len(), 8, "half of the places");
    fs::write(b.folder.path().join("file"), bytes(1_000_000)).expect("written");
    run(b.command("hostcp").args(["file", "10.9.0.2:other"]));
    for mut pair in silent {
        pair.disconnect(PATIENCE).expect("closed");
    }
    fs::write(a.folder.path().join("file"), bytes(1_000_000)).expect("written");
    a.wait_for("a place", || {
        let copy = a
            .command("hostcp")
            .args(["file", "10.9.0.2:again"])
            .output();
        copy.expect("starts").status.success()
    });
}

fn scrape(host: &Host) -> String {
    let fetch = "curl -s http://127.0.0.1:9102/metrics";
    host.namespace.run(fetch).expect("the daemon answers")
}

fn metrics(host: &Host) {
    let text = scrape(host);
    let value = |sample: &str| -> f64 {
        let value = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
        let found = text.lines().find_map(value);
        found.unwrap_or_else(|| panic!("{sample}: {text}"))
    };
    let sends = value("hostd_send_completion_seconds_count");
    assert!((1.0..=value("hostd_sends_posted_total")).contains(&sends));
    let round_trips = value("hostd_round_trip_seconds_count");
    assert!((1.0..=value("hostd_acknowledgement_packets_total")).contains(&round_trips));
    for histogram in ["send_completion", "round_trip"] {
        let sum = value(&format!("hostd_{histogram}_seconds_sum"));
        assert!(sum > 0.0, "{text}");
    }
    assert!(value("process_resident_memory_bytes") > 0.0);
    // Nothing lasts longer than the daemon has run; the clock is older by far.
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("after 1970");
    let age = now.as_secs_f64() - value("process_start_time_seconds");
    assert!(
        value("hostd_send_completion_seconds_sum") / sends < age,
        "{text}"
    );
    let mut promtool = Command::new("promtool");
    let child = promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let Ok(mut child) = child.spawn() else {
        return netns::skip("promtool is not installed");
    };
    let mut input = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, text.as_bytes()).expect("read");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// HT-3: a sender that is killed leaves nothing behind, on either side.
#[test]
fn a_killed_sender_leaves_nothing() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let [a, b] = &link.hosts;
    let _receiver = serve(b, "hostcp", &["serve", "--root", "."]);
    fs::write(a.folder.path().join("file"), bytes(400_000_000)).expect("written");
    let mut command = a.command("hostcp");
    command
        .args(["file", "10.9.0.2:arrived"])
        .stdout(Stdio::null());
    let mut sender = Process(command.spawn().expect("starts"));
    b.wait_for("data is coming", || {
        b.show("qps")
            .iter()
            .any(|qp| qp["rx_bytes"].as_u64().is_some_and(|n| n > 1_000_000))
    });
    sender.0.kill().expect("killed");
    sender.0.wait().expect("it ends");
    a.wait_for("everything is released", || {
        ["sessions", "qps", "regions", "paths"]
            .iter()
            .all(|what| a.show(what).is_empty())
    });
    b.wait_for("only the receiver is left", || {
        b.show("qps").is_empty() && b.show("regions").is_empty() && b.show("sessions").len() == 1
    });
    let left: Vec<_> = fs::read_dir(b.folder.path())
        .expect("listed")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".hostcp") || name == "arrived")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// HT-2: a daemon that is killed is an error for its applications and for the peer's, and can be
/// started again at once.
#[test]
fn a_killed_daemon_is_replaced() {
    if !possible() {
        return;
    }
    let mut link = Link::new();
    fs::write(link.hosts[0].folder.path().join("file"), bytes(400_000_000)).expect("written");
    let receiver = serve(&link.hosts[1], "hostcp", &["serve", "--root", "."]);
    let mut command = link.hosts[0].command("hostcp");
    command
        .args(["file", "10.9.0.2:arrived"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut sender = Process(command.spawn().expect("starts"));
    let b = &link.hosts[1];
    b.wait_for("data is coming", || {
        b.show("qps")
            .iter()
            .any(|qp| qp["rx_bytes"].as_u64().is_some_and(|n| n > 1_000_000))
    });
    assert!(!link.hosts[1].end("-KILL"));
    let mut receiver = receiver;
    assert!(
        !receiver.0.wait().expect("it ends").success(),
        "its daemon is gone"
    );
    link.hosts[1].start();
    // The queue pair is unknown to the new daemon: the sender's retries end.
    assert!(!sender.0.wait().expect("it ends").success());
    let _receiver = serve(&link.hosts[1], "hostcp", &["serve", "--root", "."]);
    fs::write(link.hosts[0].folder.path().join("file"), bytes(1_000_000)).expect("written");
    run(link.hosts[0]
        .command("hostcp")
        .args(["file", "10.9.0.2:again"]));
}

/// A daemon whose log is on a full disk starts, works and ends as others do, and counts the events
/// that are lost. Without a log at all, a wrong configuration is still an exit with a status.
#[test]
fn a_full_log_disk_costs_lines_only() {
    if !possible() {
        return;
    }
    let full = || {
        let file = fs::File::options().write(true).open("/dev/full");
        file.expect("/dev/full")
    };
    let mut link = Link::new();
    assert!(link.hosts[0].end("-TERM"));
    link.hosts[0].start_with(full());
    let host = &link.hosts[0];
    let socket = host.folder.path().join("admin.sock");
    host.wait_for("it answers", || {
        let mut command = host.command("hostctl");
        command.args(["--json", "show", "sessions"]);
        socket.exists() && command.output().is_ok_and(|it| it.status.success())
    });
    let _receiver = serve(&link.hosts[1], "hostcp", &["serve", "--root", "."]);
    fs::write(host.folder.path().join("file"), bytes(1_000_000)).expect("written");
    run(host.command("hostcp").args(["file", "10.9.0.2:arrived"]));
    let metrics = scrape(host);
    let lost = metrics
        .lines()
        .find_map(|line| line.strip_prefix("log_lost_events_total "));
    assert!(lost.is_some_and(|lost| lost != "0"), "{metrics}");
    assert!(link.hosts[0].end("-TERM"), "it ends well");

    let mut command = link.hosts[0].command("hostd");
    let wrong = command.args(["check", "-c", "nowhere.toml"]).stderr(full());
    assert_eq!(wrong.status().expect("starts").code(), Some(1));
}

/// MG-1: what cannot work is refused with a reason.
#[test]
fn wrong_configurations_are_refused() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let host = &link.hosts[0];
    let refused = |words: &[&str], what: &str| {
        let output = host.command("hostd").args(words).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains(what),
            "{words:?}: {text}"
        );
    };
    run(host.command("hostd").args(["check", "-c", "hostd.toml"]));
    refused(&["check", "-c", "nowhere.toml"], "nowhere.toml");
    let other = [
        "check",
        "-c",
        "hostd.toml",
        "--set",
        "interface=[{name=\"nowhere0\"}]",
    ];
    refused(&other, "it would not start here and now: nowhere0: no such");
    let unknown = ["check", "-c", "hostd.toml", "--set", "transport.windw=3"];
    refused(&unknown, "windw");
    refused(&["-c", "hostd.toml"], "another");
    let elsewhere = |key: &str| {
        ["-c".to_owned(), "hostd.toml".to_owned()]
            .into_iter()
            .chain([
                "--set".to_owned(),
                "application.socket=/tmp/hostd-t-none.sock".to_owned(),
            ])
            .chain([
                "--set".to_owned(),
                "admin.socket=/tmp/hostd-t-none-admin.sock".to_owned(),
            ])
            .chain(["--set".to_owned(), key.to_owned()])
            .collect::<Vec<_>>()
    };
    for (key, what) in [
        ("interface=[{name=\"eth7\"}]", "eth7"),
        ("interface=[{name=\"lo\"}]", "speed"),
        ("log.level=\"info\"", "eth0"),
    ] {
        let words = elsewhere(key);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        refused(&words, what);
    }
}
