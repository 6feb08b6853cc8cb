//! hostd over all paths of a fabric with two leaves and four spines, on two cores: what the paths
//! give together, spines that die in turn, and workers that are late.
//!
//! The links are slow enough that the daemons keep up. Claims are ratios within one run, or counts.
//! A ratio that fails while the daemons waited too long for a core is measured again; a machine
//! that is always too busy gets no verdict, and is told so.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::load::Watch;
use lab::observe::{eventually, fabric, gain, received, rows};
use lab::topology::Qos;
use lab::traffic::{Iperf, Receiver};
use lab::{Lab, exclusive, node_dir, privileged};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;

/// Senders and receivers on different leaves.
const PAIRS: [(&str, &str); 4] = [("h1", "h5"), ("h2", "h6"), ("h3", "h7"), ("h4", "h8")];

/// Seconds of a measurement.
const SECONDS: &str = "3";

/// How long a process stands still: longer than a retransmission time-out at these speeds.
const STILL: Duration = Duration::from_millis(800);

/// `hostperf serve` on a host; ends when dropped.
struct Server(Child);

impl Server {
    fn start(lab: &Lab, host: &str) -> Self {
        let mut server = lab.host(host).spawn(["hostperf", "serve"]).unwrap();
        let mut line = String::new();
        let output = server.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving"), "{line}");
        Self(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes that want all of a core each; they end when dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn new(count: usize) -> Self {
        let one = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).spawn().expect("a shell")
        };
        Self((0..count).map(one).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// This thread, and what it starts, has the first two of its cores from now on.
fn two_cores() {
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut two = CpuSet::new();
    let cores = (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap_or(false));
    for core in cores.take(2) {
        two.set(core).unwrap();
    }
    sched_setaffinity(Pid::from_raw(0), &two).unwrap();
}

/// Writes of 64 KiB from the first to the second of each pair, all at once: Mbit/s of all together.
/// `look` is called again and again meanwhile.
fn throughput(lab: &Lab, pairs: &[(&str, &str)], mut look: impl FnMut()) -> f64 {
    let to: BTreeSet<_> = pairs.iter().map(|(_, to)| *to).collect();
    let servers: Vec<_> = to.iter().map(|to| Server::start(lab, to)).collect();
    let clients: Vec<_> = pairs
        .iter()
        .map(|(from, to)| {
            let address = lab.host(to).address(false).to_string();
            let words = [
                "hostperf", "write", "--json", "-D", SECONDS, "-t", "16", &address,
            ];
            lab.host(from).spawn(words).unwrap()
        })
        .collect();
    let mut total = 0.0;
    for mut client in clients {
        while client.try_wait().unwrap().is_none() {
            look();
            std::thread::sleep(Duration::from_millis(50));
        }
        let output = client.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
        let figures: Value = serde_json::from_str(&text).unwrap();
        total += figures[0]["mbit_per_second"].as_f64().expect("a figure");
    }
    drop(servers);
    total
}

/// Whether the machine was too busy for a verdict, with a word about it.
fn too_busy(watch: &Watch) -> bool {
    let starved = watch.worst().filter(|wait| wait.is_starved());
    if let Some(wait) = starved {
        println!("no verdict: {wait:?} for a core");
    }
    starved.is_some()
}

/// Times that a measurement is repeated which a busy machine has spoilt.
const ATTEMPTS: u32 = 3;

/// HT-34, HT-60: four hosts send to four on the other leaf at once. Together they have 0.90 of four
/// times what one pair has alone, whose own link is as fast as one path; each spine carries about a
/// quarter.
#[test]
fn four_paths_together_give_their_sum() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hofour")
        .size(2, 4, 8)
        .speed(20_000_000)
        .qos(Qos::Plain)
        .up()
        .unwrap();
    for _ in 0..ATTEMPTS {
        let mut watch = Watch::begin(&lab).unwrap();
        let alone = throughput(&lab, &PAIRS[..1], || watch.look());
        let before = received(&lab).unwrap();
        let together = throughput(&lab, &PAIRS, || watch.look());
        let carried = gain(&before, &received(&lab).unwrap());
        let by_spine: Vec<u64> = (1..=4)
            .map(|n| carried[&(format!("spine{n}"), "leaf1".to_owned())])
            .collect();
        println!("one path: {alone:.1} Mbit/s; four: {together:.1}; packets by spine {by_spine:?}");
        let (least, most) = (by_spine.iter().min(), by_spine.iter().max());
        let (least, most) = (*least.unwrap(), *most.unwrap());
        assert!(least * 4 > most * 3, "{by_spine:?}");
        if together >= 0.90 * 4.0 * alone {
            return;
        }
        assert!(too_busy(&watch), "{together} of 4 × {alone}");
    }
}

/// What becomes of a copy of `length` bytes while spines are killed and return.
fn copy_through_trouble(name: &str, speed: u64, length: usize) {
    let _alone = exclusive().unwrap();
    let lab = fabric(name).size(2, 4, 4).speed(speed).up().unwrap();
    let root = node_dir(lab.name(), "h4").join("files");
    let receiver = Receiver::start(lab.host("h4"), &root).unwrap();
    let source = node_dir(lab.name(), "h1").join("source");
    fill(&source, length);
    let target = format!("{}:copy", lab.host("h4").address(false));
    let file = source.display().to_string();
    let words = ["hostcp", &file, &target];
    let mut copy = lab.host("h1").spawn(words).unwrap();
    let began = Instant::now();
    let mut progress = Progress::default();
    let mut until = |copy: &mut Child, lab: &Lab, part: f64| {
        while copy.try_wait().unwrap().is_none() {
            progress.look(lab);
            #[expect(clippy::cast_precision_loss, reason = "a part")]
            if progress.delivered as f64 >= part * length as f64 {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    // By what has come, and not by time: a slow machine takes longer.
    until(&mut copy, &lab, 0.1);
    lab.stop("spine1").unwrap();
    until(&mut copy, &lab, 0.3);
    lab.start("spine1").unwrap();
    until(&mut copy, &lab, 0.5);
    lab.kill("spine2").unwrap();
    until(&mut copy, &lab, 0.7);
    let running = copy.try_wait().unwrap().is_none();
    assert!(running, "the copy was over too soon to tell");
    until(&mut copy, &lab, 2.0);
    let output = copy.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    println!(
        "{length} bytes in {:?}; the longest time without a byte was {:?}",
        began.elapsed(),
        progress.longest
    );
    let same = Command::new("cmp")
        .arg(&source)
        .arg(receiver.root().join("copy"))
        .status();
    assert!(same.unwrap().success(), "the same bytes");
    // Whoever was killed is back, and is used.
    eventually("all daemons", Duration::from_secs(20), || {
        let daemons = lab.daemons().map_err(|error| error.to_string())?;
        match daemons.iter().find(|daemon| !daemon.ready) {
            Some(missing) => Err(format!("{missing:?}")),
            None => Ok(()),
        }
    });
    lab.wait_ready(Duration::from_secs(20)).unwrap();
    fs::remove_file(receiver.root().join("copy")).unwrap();
    let before = received(&lab).unwrap();
    fill(&source, 4 << 20);
    let again = lab.host("h1").spawn(words).unwrap().wait_with_output();
    assert!(again.unwrap().status.success());
    let carried = gain(&before, &received(&lab).unwrap());
    for n in 1..=4 {
        let spine = format!("spine{n}");
        let packets = carried[&(spine.clone(), "leaf1".to_owned())];
        assert!(packets > 100, "{spine} carries {packets} packets");
    }
}

/// Bytes that cannot be guessed.
fn fill(path: &Path, length: usize) {
    let mut random = Pcg64::seed_from_u64(14);
    let mut file = fs::File::create(path).unwrap();
    let mut block = vec![0; 1 << 20];
    for at in (0..length).step_by(block.len()) {
        random.fill_bytes(&mut block);
        let rest = block.len().min(length - at);
        std::io::Write::write_all(&mut file, &block[..rest]).unwrap();
    }
}

/// What a receiver has got so far, and for how long it got nothing.
#[derive(Default)]
struct Progress {
    delivered: u64,
    last: Option<Instant>,
    longest: Duration,
}

impl Progress {
    fn look(&mut self, lab: &Lab) {
        let pairs = rows(lab.hostctl("h4", &["show", "qps"]).unwrap());
        let sum = pairs
            .iter()
            .filter_map(|row| row["rx_bytes"].as_u64())
            .sum();
        let now = Instant::now();
        if sum > self.delivered {
            if let Some(last) = self.last {
                self.longest = self.longest.max(now - last);
            }
            self.delivered = sum;
            self.last = Some(now);
        }
    }
}

/// HT-24, HT-36, HT-63: two of four spines are killed in turn in the middle of a copy, and return:
/// no byte is lost, the longest time without a byte is told, and both are used again.
#[test]
fn a_copy_survives_spines_that_die_in_turn() {
    if !privileged() {
        return;
    }
    copy_through_trouble("hospines", 50_000_000, 48 << 20);
}

/// The same with 1 GB over links of 1 Gb/s.
#[test]
#[ignore = "takes a minute of a quiet machine; see tests/README.md"]
fn a_copy_of_a_gigabyte_survives_spines_that_die_in_turn() {
    if !privileged() {
        return;
    }
    copy_through_trouble("hogiga", 1_000_000_000, 1_000_000_000);
}

/// Expiries of retransmission timers that a host has counted in all its life.
fn timeouts(lab: &Lab, host: &str) -> u64 {
    let fetch = ["curl", "-s", "http://127.0.0.1:9102/metrics"];
    let text = lab.host(host).run(fetch).unwrap().stdout;
    let name = "hostd_retransmission_timeouts_total ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.expect(name).parse().expect("a number")
}

/// HT-43, HT-60: eight hostds and six switches on two cores, beside two processes that want a core
/// each. Together the hosts are at least about as fast as TCP of the kernel with a connection for
/// each pair, measured before and after, and no retransmission timer expires.
#[test]
fn busy_cores_do_not_cost_time_outs() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    two_cores();
    let lab = fabric("holate")
        .size(2, 4, 8)
        .speed(20_000_000)
        .qos(Qos::Plain)
        .up()
        .unwrap();
    let _busy = Busy::new(2);
    let tcp = |lab: &Lab| -> f64 {
        let all: Vec<_> = PAIRS
            .iter()
            .map(|(from, to)| Iperf::start(lab.host(from), lab.host(to), &["-t", SECONDS]))
            .collect();
        let figures = all.into_iter().map(|it| it.unwrap().finish().unwrap());
        figures.map(|it| it.bits_per_second / 1e6).sum()
    };
    for _ in 0..ATTEMPTS {
        let senders = PAIRS.map(|(from, _)| from);
        let count = || -> u64 { senders.iter().map(|host| timeouts(&lab, host)).sum() };
        let begun = count();
        let mut watch = Watch::begin(&lab).unwrap();
        let before = tcp(&lab);
        let together = throughput(&lab, &PAIRS, || watch.look());
        let after = tcp(&lab);
        let (kernel, expired) = (f64::midpoint(before, after), count() - begun);
        println!(
            "hostd {together:.1} Mbit/s, TCP {before:.1} and {after:.1}; {expired} time-outs; \
             longest wait {:?}",
            watch.worst()
        );
        if expired == 0 && together >= 0.9 * kernel {
            return;
        }
        assert!(
            too_busy(&watch),
            "{together}, TCP {kernel}; {expired} time-outs"
        );
    }
}

/// A process that stands still until this is dropped.
struct Still(Pid);

impl Still {
    fn new(pid: Pid) -> Self {
        kill(pid, Signal::SIGSTOP).unwrap();
        Self(pid)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// HT-43: a hostd that sends, and that three others send to, is kept from its core for longer than
/// a retransmission time-out, again and again. It finds the answers to its packets among those of
/// the others, and does not take its own lateness for silence of its peer: none of its timers
/// expires, while those of the others do, whom it did not answer.
#[test]
fn a_late_worker_does_not_time_out() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("hostill")
        .size(2, 4, 8)
        .speed(20_000_000)
        .qos(Qos::Plain)
        .up()
        .unwrap();
    let daemons = lab.daemons().unwrap();
    let late = daemons.iter().find(|it| it.node == "h1").unwrap();
    let late = Pid::from_raw(late.pid.unwrap());
    let others = ["h2", "h3", "h4"];
    let pairs = [("h1", "h5"), ("h2", "h1"), ("h3", "h1"), ("h4", "h1")];
    let mut rounds = 0;
    let mut longest = 0.0_f64;
    throughput(&lab, &pairs, || {
        let sends = |row: &Value| row["tx_bytes"].as_u64().is_some_and(|sent| sent > 0);
        let rows = rows(lab.hostctl("h1", &["show", "qps"]).unwrap());
        let Some(row) = rows.iter().find(|row| sends(row)) else {
            return;
        };
        longest = longest.max(row["rtt_us"].as_f64().unwrap_or(0.0));
        let still = Still::new(late);
        std::thread::sleep(STILL);
        drop(still);
        rounds += 1;
    });
    let others: u64 = others.iter().map(|host| timeouts(&lab, host)).sum();
    let own = timeouts(&lab, "h1");
    println!("{rounds} times {STILL:?}; RTT {longest} µs; time-outs: own {own}, others {others}");
    assert!(rounds > 0 && longest > 0.0);
    assert_eq!(own, 0, "of the one that was late");
    assert!(others > 0, "it was late for longer than a time-out");
}
