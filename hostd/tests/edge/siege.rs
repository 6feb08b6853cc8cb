//! HT-3: applications that end badly, take all that they may, or attack, many times over.
//!
//! Tests that count what this process holds run in a process of their own: other tests hold
//! things, too. Long versions wait for `make soak`.

use crate::examples::built;
use crate::raw::Raw;
use crate::rig::{Daemon, config, pair};
use crate::storm::Victim;
use hostd::config::Config;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::message::Request;
use hostd_client::abi::types::{Access, ErrorCode};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sessions of a user.
const SESSIONS: usize = 64;

/// Bytes of a region of which only one fits into the quota of these tests.
const LARGE: usize = (1 << 20) + 4096;

/// Whether this is the process that test `name` is alone in; starts it otherwise.
pub(crate) fn alone(name: &str) -> bool {
    const CHILD: &str = "HOSTD_EDGE_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let status = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(CHILD, "1")
        .status();
    assert!(status.expect("started").success(), "{name}");
    false
}

/// What this process and both daemons in it hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    /// Mappings of shared memory: regions, rings and doorbells.
    mappings: usize,
    sessions: [usize; 2],
    queue_pairs: [usize; 2],
    objects: [usize; 2],
}

impl Held {
    fn now(daemons: [&Daemon; 2]) -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("readable");
        let reports = daemons.map(Daemon::report);
        let objects = |report: &hostd::edge::command::Report| {
            let of = report.sessions.iter();
            of.map(|it| it.regions.len() + it.completion_queues + it.listeners.len())
                .sum()
        };
        Self {
            descriptors: descriptors.count(),
            mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
            sessions: reports.each_ref().map(|it| it.sessions.len()),
            queue_pairs: reports.each_ref().map(|it| it.queue_pairs.len()),
            objects: reports.each_ref().map(objects),
        }
    }

    /// What is held once `mappings` are left and nothing changes any more.
    fn settled(daemons: [&Daemon; 2], mappings: usize) -> Self {
        let until = std::time::Instant::now() + crate::rig::PATIENCE;
        let mut last = Self::now(daemons);
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = Self::now(daemons);
            if now == last && now.mappings == mappings {
                return now;
            }
            assert!(std::time::Instant::now() < until, "{now:?}");
            last = now;
        }
    }

    /// Waits until as much is held as before: the unmapping thread and the closing ones take their
    /// time.
    fn returns_to(self, daemons: [&Daemon; 2]) {
        let until = std::time::Instant::now() + crate::rig::PATIENCE;
        loop {
            let now = Self::now(daemons);
            if now == self {
                return;
            }
            assert!(
                std::time::Instant::now() < until,
                "{self:?} before, {now:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Resident memory of this process, in KiB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.expect("a line").parse().expect("a number")
}

/// `hostperf serve` at a daemon; ends when dropped.
struct Server(Child);

impl Server {
    fn start(daemon: &Daemon) -> Self {
        let mut process = Command::new(built("hostperf"))
            .args(["serve", "--port", "7000"])
            .env("HOSTD_SOCKET", &daemon.socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let output = process.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        Self(process)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().expect("it can be ended");
        self.0.wait().expect("it ends");
    }
}

/// Kills `count` applications with SIGKILL in the middle of a transfer, three at a time, beside
/// one that goes on.
fn kill_in_mid_transfer([a, b]: [&Daemon; 2], count: usize, random: &mut Pcg64Mcg) {
    const AT_A_TIME: usize = 3;
    let mut killed = 0;
    while killed < count {
        let mut clients: Vec<Child> = (0..AT_A_TIME)
            .map(|_| {
                let words = [
                    ["write", "--size=65536"],
                    ["write", "--size=1000"],
                    ["send", "--size=100000"],
                    ["lat", "--size=64"],
                ][(random.next_u32() % 4) as usize];
                Command::new(built("hostperf"))
                    .args(words)
                    .args(["--port", "7000", "--duration", "3600"])
                    .arg(b.address.to_string())
                    .env("HOSTD_SOCKET", &a.socket)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("it starts")
            })
            .collect();
        a.wait_for("they transfer", |report| {
            let measured = report.queue_pairs.iter().filter(|it| it.1.rtt.is_some());
            measured.count() > AT_A_TIME
        });
        for client in &mut clients {
            std::thread::sleep(Duration::from_micros((random.next_u32() % 5000).into()));
            client.kill().expect("killed");
            client.wait().expect("ended");
            killed += 1;
        }
        // The server's ends follow, or the next ones find it busy.
        b.wait_for("the peers learn of it", |report| {
            report.queue_pairs.len() == 1
        });
    }
}

/// A flag that is raised at the end, also of a test that fails.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nothing is left of applications that were killed: no descriptor, no mapping, no object, and no
/// memory that grows with their number. What another one sends meanwhile arrives as it was sent.
fn the_killed_leave_nothing(count: usize) {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Pcg64Mcg::new(seed.into());
    let (a, b) = pair(&config());
    let server = Server::start(&b);
    b.wait_for("it listens", |report| report.sessions.len() == 1);
    let mut victim = Victim::new(&a, &b);
    // Its round trip is known.
    for _ in 0..10 {
        victim.transfer();
    }
    let fresh = Held::now([&a, &b]);
    // The first ones make tables grow and threads start.
    kill_in_mid_transfer([&a, &b], 6, &mut random);
    a.wait_for("they have ended", |report| report.sessions.len() == 1);
    let before = Held::settled([&a, &b], fresh.mappings);
    let resident_before = resident();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                victim.transfer();
                count += 1;
            }
            count
        });
        let end = Raised(&stop);
        kill_in_mid_transfer([&a, &b], count, &mut random);
        drop(end);
        let served: usize = served.join().expect("it is served well");
        println!("{served} messages meanwhile");
        assert!(served > count, "{served} messages");
    });
    before.returns_to([&a, &b]);
    let grown = resident() - resident_before;
    println!("{count} killed, {grown} KiB more resident than after the first 6");
    // One lost region of the smallest kind each would be twice as much.
    let most = 4096 + i64::try_from(count).expect("few") * 16;
    assert!(grown < most, "{grown} KiB");
    drop((server, victim));
    a.wait_empty();
    b.wait_empty();
}

/// HT-3: see [`the_killed_leave_nothing`].
#[test]
fn applications_are_killed_in_mid_transfer() {
    if alone("siege::applications_are_killed_in_mid_transfer") {
        the_killed_leave_nothing(36);
    }
}

/// HT-3: the same a thousand times.
#[test]
#[ignore = "takes minutes: make soak"]
fn a_thousand_are_killed_in_mid_transfer() {
    if alone("siege::a_thousand_are_killed_in_mid_transfer") {
        the_killed_leave_nothing(1000);
    }
}

/// Takes everything of one kind until it is refused, by the key of the configuration that says so;
/// how many there were.
fn fill(raw: &Raw, request: &Request, key: &str) -> usize {
    for count in 0..1000 {
        match raw.create(request) {
            Reply::Error { code, text } => {
                assert_eq!(code, ErrorCode::Quota, "{text}");
                assert!(text.contains(key), "{text}");
                return count;
            }
            _ => continue,
        }
    }
    panic!("no end of {key}");
}

/// Quotas that are filled soon.
pub(crate) fn small_quotas() -> Config {
    let mut config = config();
    let quota = &mut config.application.quota;
    quota.sessions = u32::try_from(SESSIONS).expect("few");
    quota.memory_mib = 2;
    quota.regions = 5;
    quota.completion_queues = 3;
    quota.queue_pairs = 3;
    quota.work_requests = 40;
    quota.listeners = 2;
    config
}

/// A session that holds as much of everything as it may.
pub(crate) fn full_session(daemon: &Daemon) -> Raw {
    let raw = Raw::greeted(daemon);
    let register = |length| Request::RegisterRegion {
        length,
        iova: 0,
        access: Access::LOCAL_WRITE,
    };
    let none = fill(&raw, &register(LARGE as u64), "quota.memory_mib");
    let regions = fill(&raw, &register(4096), "quota.regions");
    let queue = Request::CreateCompletionQueue { entries: 16 };
    let reply = raw.create(&queue);
    let Reply::CompletionQueue { handle, .. } = reply else {
        panic!("{reply:?}");
    };
    let queues = fill(&raw, &queue, "quota.completion_queues");
    let pair = |entries| Request::CreateQueuePair {
        send_cq: handle,
        receive_cq: handle,
        send_entries: entries,
        receive_entries: entries,
        shared: 0,
    };
    let deep = fill(&raw, &pair(8), "quota.work_requests");
    let flat = fill(&raw, &pair(1), "quota.queue_pairs");
    let listen = Request::Listen {
        address: "::".parse().expect("any"),
        port: 0,
        backlog: 4,
    };
    let listeners = fill(&raw, &listen, "quota.listeners");
    let taken = [none, regions, queues, deep, flat, listeners];
    assert_eq!(taken, [1, 4, 2, 2, 1, 2]);
    raw
}

/// HT-3: as many sessions as a user may have fill every quota that a session has, and the next one
/// is refused; when they end all is as before, and others can do the same again.
#[test]
fn full_sessions_give_everything_back() {
    if !alone("siege::full_sessions_give_everything_back") {
        return;
    }
    let (a, b) = pair(&small_quotas());
    let fresh = Held::now([&a, &b]);
    let mut before = None;
    for _ in 0..3 {
        let sessions: Vec<Raw> = (0..SESSIONS).map(|_| full_session(&a)).collect();
        let refused = Raw::connect(&a).next();
        assert!(
            matches!(
                &refused,
                Some((
                    hostd_client::abi::answer::FromDaemon::Reply(0, Reply::Error { text, .. }),
                    _
                )) if text.contains("quota.sessions")
            ),
            "{refused:?}"
        );
        let held = Held::now([&a, &b]);
        let [sessions_held, pairs, objects] = [held.sessions, held.queue_pairs, held.objects];
        assert_eq!(
            [sessions_held[0], pairs[0], objects[0]],
            [SESSIONS, 3 * SESSIONS, (5 + 3 + 2) * SESSIONS]
        );
        drop(sessions);
        a.wait_empty();
        match before {
            // After the first time threads and tables are as large as they get.
            None => before = Some(Held::settled([&a, &b], fresh.mappings)),
            Some(before) => before.returns_to([&a, &b]),
        }
    }
}
