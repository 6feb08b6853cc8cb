//! The twin runs the shipped defaults, and what follows from them: how much lies in a device, and
//! what waits behind it. Settings that differ are those that `docs/twin.md` lists, each with its
//! reason.

use common::time::Span;
use common::units::Rate;
use common::wire::ip::Ecn;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use switchd::config::{Config, Qos};
use switchd::limits::{DEVICE_LEAST_BYTES, PORT_BURST};
use twin::bench::{Bench, Setup, at, micros};
use twin::scenario::Scenario;
use twin::switch::SwitchSettings;
use twin::tester::{Sizes, Stream};

const SPEED: Rate = Rate::from_gbps(10);

/// A frame of 1500 bytes on the line, with its gap and preamble.
const LINE: u64 = 1520;

/// Looks of a worker at its ports, and the most that a device may hold then: the least limit for a
/// worker that is always there, the burst for one that is seldom.
fn polls() -> [(Span, u64); 2] {
    [
        (Span::ZERO, DEVICE_LEAST_BYTES),
        (Span::from_micros(40), SPEED.bytes_in(PORT_BURST)),
    ]
}

fn bench(testers: usize, poll: Span, qos: &str) -> Bench {
    let mut setup = Setup::star(testers, at(SPEED.bps() / 1_000_000_000));
    let qos: Qos = toml::from_str(qos).unwrap_or_else(|error| panic!("{error}\n{qos}"));
    setup.switch = SwitchSettings {
        poll,
        qos: Some(Arc::new(qos)),
        ..setup.switch
    };
    Bench::new(setup)
}

/// A stream of frames of 1500 bytes to tester 0.
fn bulk(dscp: u8) -> Stream {
    Stream {
        dscp,
        sizes: Sizes::Fixed(1500),
        ..Stream::to(0)
    }
}

/// SW-15: after idleness no more lies in the device than its limit, however late the worker looks,
/// and the line is busy all the same.
#[test]
fn a_device_holds_no_more_than_its_limit() {
    for (poll, most) in polls() {
        let mut bench = bench(3, poll, "");
        bench.run_until(micros(5_000));
        let streams = [1, 2].map(|from| bench.send(from, bulk(0)));
        let mut deepest = 0;
        let mut before = 0;
        let line = |bench: &Bench| {
            streams
                .iter()
                .map(|one| bench.line_bytes(*one))
                .sum::<u64>()
        };
        for step in 0..4_000 {
            bench.run_for(Span::from_nanos(500));
            deepest = deepest.max(bench.switch(0).backlog(0));
            // It has to learn how late the worker is.
            if step == 2_000 {
                before = line(&bench);
            }
        }
        assert!(deepest > LINE, "{deepest}: nothing was sent");
        assert!(deepest < most + LINE, "{deepest} of {most} bytes, {poll}");
        let line = line(&bench) - before;
        let whole = SPEED.bytes_in(Span::from_millis(1));
        assert!(line * 100 > whole * 99, "{line} of {whole}, {poll}");
        streams.iter().for_each(|one| bench.stop(*one));
        bench.finish();
    }
}

/// SW-15: a packet of strict priority that arrives during congestion waits for what the device
/// holds, and for no more.
#[test]
fn strict_priority_waits_for_the_device_alone() {
    for (poll, most) in polls() {
        let mut bench = bench(4, poll, "");
        let all = [1, 2].map(|from| bench.send(from, bulk(0)));
        let probe = Stream {
            dscp: 56,
            sizes: Sizes::Fixed(64),
            rate: Some(Rate::from_mbps(10)),
            ..Stream::to(0)
        };
        let probe = bench.send(3, probe);
        bench.run_until(micros(10_000));
        let latency = &bench.received(probe).latency;
        let (least, worst) = (latency.min(), latency.max());
        // A look to arrive, and a look to leave.
        let allowed = SPEED.time_for(most + 2 * LINE) + poll.times(2);
        assert!(bench.received(probe).packets > 100);
        assert!(worst < least + allowed, "{worst}, {least} + {allowed}");
        all.iter().for_each(|one| bench.stop(*one));
        bench.stop(probe);
        bench.finish();
    }
}

/// SW-31: a port that its peer pauses stops when its device is empty.
#[test]
fn a_pause_stops_all_but_what_the_device_holds() {
    let lossless = "[flow_control]\nmode = \"pfc\"\npriorities = [3]\n";
    for (poll, most) in polls() {
        let mut bench = bench(3, poll, lossless);
        let paused = micros(3_000);
        bench.hold(0, 1 << 3, (paused, micros(4_000)));
        let streams = [1, 2].map(|from| bench.send(from, bulk(24)));
        bench.run_until(micros(3_900));
        let last = streams.map(|one| bench.received(one).last.expect("some"));
        let last = last.into_iter().max().expect("two");
        assert!(last > paused, "nothing was under way");
        // The cable both ways, the pause itself and a look.
        let allowed = SPEED.time_for(most + 2 * LINE) + Span::from_micros(2) + poll;
        assert!(last < paused + allowed, "{last:?}, {allowed}");
        streams.iter().for_each(|one| bench.stop(*one));
        bench.finish();
    }
}

/// SW-20: marks see the queue from the first packets of a burst on.
#[test]
fn marks_see_the_queue_after_idleness() {
    let marks = "[[queue]]\nqueues = [0]\n[queue.wred]\nmin_bytes = 20000\nmax_bytes = 20000\n";
    let qos: Qos = toml::from_str(marks).expect("a configuration");
    let mut setup = Setup::star(2, at(100)).with_speed(0, SPEED);
    setup.switch.qos = Some(Arc::new(qos));
    let mut bench = Bench::new(setup);
    bench.run_until(micros(5_000));
    let stream = Stream {
        ecn: Ecn::Ect0,
        ..bulk(0)
    };
    let stream = bench.send(1, stream);
    bench.run_until(micros(5_200));
    let marks = &bench.received(stream).marks;
    let first = marks.iter().position(|marked| *marked).expect("marks");
    // What the device took at once, and what it sent while 20,000 bytes gathered behind it.
    let most = (DEVICE_LEAST_BYTES + 20_000 / 8) / LINE + 3;
    assert!((first as u64) < most, "{first} of {most}");
    bench.stop(stream);
    bench.finish();
}

/// The rows of the tables of `docs/twin.md` below this heading: what is named first, and the
/// reason.
fn listed(heading: &str) -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/twin.md");
    let text = std::fs::read_to_string(&path).expect("the manual of the twin");
    let (_, rest) = text.split_once(heading).expect("its heading");
    let section = rest.lines().take_while(|line| !line.starts_with('#'));
    let cells = section.filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let row = |row: &str| {
        let (key, rest) = row.split_once("` |").expect("a key");
        let reason = rest.rsplit_once('|').map_or(rest, |(_, reason)| reason);
        (key.to_owned(), reason.trim().to_owned())
    };
    cells.map(row).collect()
}

fn assert_listed(differ: &BTreeSet<String>, heading: &str) {
    let listed = listed(heading);
    let found: BTreeSet<String> = listed.keys().cloned().collect();
    assert_eq!(&found, differ, "docs/twin.md, {heading}");
    for (key, reason) in listed {
        assert!(reason.len() > 20, "{key}: {reason:?} is no reason");
    }
}

const MINIMAL: &str = "[topology]\nkind = \"star\"\nhosts = 2\n[[workload]]\nkind = \"permutation\"\nsize = \"1MB\"\n";

fn scenario() -> Scenario {
    let none = |file: &str| Err(format!("{file} is not there"));
    Scenario::parse(MINIMAL, "minimal", &none).unwrap_or_else(|error| panic!("{error:?}"))
}

/// SW-12, SW-15, SW-20: what a switch of the twin is configured with is what switchd ships, but for
/// the keys that the manual lists: a scenario's without `[qos]`, and a bench's.
#[test]
fn switches_run_the_shipped_defaults() {
    let differ = |settings: &SwitchSettings| {
        let mut setup = Setup::star(2, at(100));
        setup.switch = settings.clone();
        let seed = setup.plan.nodes.last().expect("a switch").hash_seed;
        let config = Bench::new(setup).switch(0).config().clone();
        let changes = Config::default().changes_to(&config);
        let keys = changes.into_iter().map(|change| change.key);
        let mut keys: BTreeSet<String> = keys.collect();
        // Too large for TOML, so the plan has it.
        if seed != config.ecmp.seed {
            keys.insert("ecmp.seed".to_owned());
        }
        if settings.packets != config.buffer_packets() {
            keys.insert("packets".to_owned());
        }
        keys
    };
    assert_listed(&differ(&scenario().switch), "### Switches");
    let bench = differ(&SwitchSettings::default());
    assert!(bench.is_subset(&differ(&scenario().switch)), "{bench:?}");
}

/// Every field of a structure that is printed over several lines, by its path.
fn fields(debug: &str) -> BTreeMap<String, String> {
    let (mut path, mut all) = (Vec::new(), BTreeMap::new());
    for line in debug.lines().map(str::trim) {
        if line.ends_with(['{', '(', '[']) {
            path.push(line.split(':').next().unwrap_or_default().to_owned());
        } else if line.starts_with(['}', ')', ']']) {
            path.pop();
        } else if let Some((name, value)) = line.split_once(": ") {
            let names = path.iter().skip(1).filter(|it| !it.contains(' '));
            let names: Vec<&str> = names.map(String::as_str).chain([name]).collect();
            all.insert(names.join("."), value.to_owned());
        } else {
            // The only value of a tuple.
            let names = path.iter().skip(1).filter(|it| !it.contains(' '));
            let names: Vec<&str> = names.map(String::as_str).collect();
            all.insert(names.join("."), line.to_owned());
        }
    }
    all
}

/// And what a host is configured with is what hostd ships, but for what the manual lists.
#[test]
fn hosts_run_the_shipped_defaults() {
    let shipped = fields(&format!("{:#?}", hostd::verbs::EngineConfig::default()));
    let host = fields(&format!("{:#?}", scenario().host));
    assert!(shipped.len() > 15, "{shipped:?}");
    let keys: BTreeSet<&String> = shipped.keys().chain(host.keys()).collect();
    let differ = keys
        .into_iter()
        .filter(|key| shipped.get(*key) != host.get(*key));
    assert_listed(&differ.cloned().collect(), "### Hosts");
}
