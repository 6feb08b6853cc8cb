//! The twin: its checkers, its determinism, its scenarios.

use std::sync::atomic::AtomicBool;
use twin::check::{Check, Failure};
use twin::fabric::Mutation;
use twin::outcome::Outcome;
use twin::scenario::{BEGINNING, Refusal, Scenario};
use twin::simulation::{Edge, run, run_broken};
use twin::snapshot;
use twin::soak::{Soak, Stop};
use twin::{plot, report};

fn parse(text: &str) -> Result<Scenario, Refusal> {
    Scenario::parse(text, "test", &|file| Err(format!("{file}: no files here")))
}

fn scenario(text: &str) -> Scenario {
    parse(text).unwrap_or_else(|refusal| panic!("line {}: {}", refusal.line, refusal.reason))
}

fn done(scenario: &Scenario, seed: u64) -> Outcome {
    run(scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The soak is not interrupted.
static NEVER: AtomicBool = AtomicBool::new(false);

const LEAF_SPINE: &str = r#"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 2
[host]
message = "16KiB"
[[workload]]
kind = "permutation"
size = "400kB"
"#;

/// All shipped scenarios pass all checks and behave as reviewed. The digest of every frame on every
/// wire is part of the figures, so this is also the comparison between builds: `fabric twin check`
/// does the same in release.
#[test]
fn shipped_scenarios_behave_as_reviewed() {
    let found = snapshot::figures(&mut |name| println!("{name}")).expect("all checks pass");
    let reviewed = std::fs::read_to_string(snapshot::reviewed()).expect("snapshot.txt");
    if let Some(difference) = snapshot::difference(&reviewed, &found) {
        panic!("{difference}\nif that is wanted: cargo run --bin fabric -- twin check --update");
    }
}

#[test]
fn large_scenarios_can_be_read() {
    for file in snapshot::files(&snapshot::scenarios().join("large")).expect("a folder") {
        let scenario = Scenario::load(&file).unwrap_or_else(|error| panic!("{error}"));
        assert!(!scenario.about.is_empty(), "{}", scenario.name);
    }
}

/// The same seed gives the same trace, another seed another one; carrying bytes changes nothing of
/// either.
#[test]
fn a_simulation_is_a_function_of_its_seed() {
    let with_faults = format!(
        "{LEAF_SPINE}\n[[fault]]\nkind = \"impairment\"\nlink = \"*\"\nloss = 0.01\nreordering = 0.01\n\
         lateness = \"10us\"\n"
    );
    let mut scenario = scenario(&with_faults);
    let [first, second, other] = [7, 7, 8].map(|seed| done(&scenario, seed));
    assert_eq!(first.digest, second.digest);
    assert_eq!(report::summary(&first), report::summary(&second));
    assert_ne!(first.digest, other.digest);
    scenario.carries = true;
    let carried = done(&scenario, 7);
    assert_eq!(
        carried.duration_ns, first.duration_ns,
        "only the ICRCs differ"
    );
    assert_eq!(carried.hops, first.hops);
}

/// A fixed set of random scenarios, as the soak runs them for hours.
#[test]
fn random_scenarios_pass_all_checks() {
    let stop = Stop {
        count: 25,
        time: None,
        flag: &NEVER,
    };
    let soak = Soak { first: 1, stop };
    let run = soak.run(&mut |done| println!("seed {}: {}", done.seed, done.scenario));
    let run = run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(run.faults > 20 && run.flows > 300, "{run:?}");
}

fn broken(text: &str, mutation: Option<Mutation>, edge: Option<Edge>) -> Failure {
    let failure = run_broken(&scenario(text), 1, mutation, edge).expect_err("it is broken");
    println!("{failure}");
    failure
}

/// A switch that loses a frame and counts it as sent.
#[test]
fn a_lost_frame_is_noticed() {
    let failure = broken(LEAF_SPINE, Some(Mutation::LoseFrame(300)), None);
    assert_eq!(failure.check, Check::Conservation);
    assert_eq!(failure.seed, 1);
}

/// A host that delivers a message twice.
#[test]
fn a_message_that_comes_twice_is_noticed() {
    let failure = broken(LEAF_SPINE, None, Some(Edge::DeliverTwice(3)));
    assert_eq!(failure.check, Check::ExactlyOnce);
    assert!(failure.history.contains("last at"), "what happened before");
}

/// A host that swaps the last packet of a message with one before it.
#[test]
fn swapped_packets_are_noticed() {
    let failure = broken(LEAF_SPINE, None, Some(Edge::SwapPackets(50_000)));
    assert_eq!(failure.check, Check::InOrder);
}

/// A daemon that forgets a buffer.
#[test]
fn a_leaked_buffer_is_noticed() {
    let failure = broken(LEAF_SPINE, Some(Mutation::LeakBuffer(200)), None);
    assert_eq!(failure.check, Check::Frames);
    assert!(failure.history.contains("last anywhere"), "{failure}");
}

/// An engine whose timers do not fire: after a pause of the link nobody sends again.
#[test]
fn a_missed_timer_is_noticed() {
    let text = r#"
[topology]
kind = "pair"
[host]
window = 16
[[workload]]
kind = "incast"
size = "1MB"
[[fault]]
kind = "link-down"
link = "h1-h2"
from = "20us"
until = "60us"
"#;
    let whole = done(&scenario(text), 1);
    assert!(
        whole.totals.timeouts > 0,
        "the time-out is needed: {:?}",
        whole.totals
    );
    let from = BEGINNING + common::time::Span::from_micros(20);
    let failure = broken(text, Some(Mutation::MissTimers(from)), None);
    assert_eq!(failure.check, Check::Liveness);
}

/// What goes wrong elsewhere does not excuse who stands still.
#[test]
fn a_link_that_is_down_elsewhere_excuses_nobody() {
    let text = r#"
[topology]
kind = "star"
hosts = 4
[host]
window = 16
[[workload]]
kind = "incast"
hosts = ["h1", "h2"]
target = "h2"
size = "1MB"
[[fault]]
kind = "link-down"
link = "h1-s1"
from = "20us"
until = "60us"
[[fault]]
kind = "link-down"
link = "h4-s1"
from = "0us"
until = "5s"
count = 50
lasting = "1ms"
"#;
    done(&scenario(text), 1);
    let from = BEGINNING + common::time::Span::from_micros(20);
    let failure = broken(text, Some(Mutation::MissTimers(from)), None);
    assert_eq!(failure.check, Check::Liveness);
    assert!(failure.what.contains("stands still"), "{failure}");
    let of_h1 = failure.history.split("last at h1").nth(1);
    assert!(
        of_h1.is_some_and(|text| text.contains("by h1")),
        "{failure}"
    );
}

/// A class that is declared lossless and is not.
#[test]
fn a_loss_in_a_lossless_class_is_noticed() {
    let text = r#"
lossless = true
[topology]
kind = "star"
hosts = 8
[switch]
queue = "64KiB"
[[workload]]
kind = "incast"
size = "200kB"
"#;
    let failure = broken(text, None, None);
    assert_eq!(failure.check, Check::Lossless);
}

/// HT-10: a flipped bit never reaches an application, whatever it hits, and every byte is looked
/// at.
#[test]
fn the_icrc_catches_flipped_bits() {
    for (payload, ip) in [("carried", 4), ("virtual", 6)] {
        let text = format!(
            "payload = \"{payload}\"\n[topology]\nkind = \"pair\"\nip = {ip}\n[[workload]]\n\
             kind = \"permutation\"\nsize = \"2MB\"\n[[fault]]\nkind = \"impairment\"\nlink = \"*\"\n\
             corruption = 0.05\n"
        );
        let outcome = done(&scenario(&text), 3);
        assert!(
            outcome.totals.wire["corrupted"] > 30,
            "{:?}",
            outcome.totals
        );
        assert!(
            outcome.totals.host_drops["bad_icrc"] > 20,
            "{:?}",
            outcome.totals
        );
        assert_eq!(outcome.classes[0].completed, 2);
    }
}

/// Every refusal names the line and the reason.
#[test]
fn scenarios_that_make_no_sense_are_refused() {
    let workload = "[[workload]]\nkind = \"permutation\"\nsize = \"1MB\"\n";
    let star = "[topology]\nkind = \"star\"\nhosts = 4\n";
    let with = |more: &str| format!("{star}{workload}{more}");
    for (text, line, reason) in [
        (
            "colour = 1\n".to_owned() + star + workload,
            1,
            "unknown field `colour`",
        ),
        (with("[host]\npath = 3\n"), 8, "unknown field `path`"),
        (with("[qos]\nhops = 3\n"), 8, "unknown field `hops`"),
        (with("[qos.buffer]\nsize = 3\n"), 8, "unknown field `size`"),
        (
            with("[qos]\nqueue_depth_bytes = 100\n"),
            7,
            "qos.queue_depth_bytes: 100 is not within",
        ),
        (
            with("[qos]\n[[qos.queue]]\nports = [\"swp*\"]\nqueues = [3]\n"),
            7,
            "qos.queue[0].ports",
        ),
        (
            with("[switch]\nqueue = \"1MB\"\n[qos]\ntrust = \"dscp\"\n"),
            8,
            "say qos.queue_depth_bytes",
        ),
        (
            with("[ecmp]\ndlb = { hysteresis = 200 }\n"),
            7,
            "ecmp.dlb.hysteresis: 200 is not within",
        ),
        (with("[ecmp]\nseed = 3\n"), 8, "unknown field `seed`"),
        (
            with("[host]\npaths = 300\n"),
            8,
            "paths = 300 is not in 1..=256",
        ),
        (with("[host]\npath_mtu = 1000\n"), 8, "path_mtu = 1000"),
        (
            "[topology]\nkind = \"star\"\n".to_owned() + workload,
            2,
            "Star needs hosts",
        ),
        (
            "[topology]\nkind = \"star\"\nhosts = 0\n".to_owned() + workload,
            3,
            "not in 2..=250",
        ),
        (
            "[topology]\nkind = \"star\"\nhosts = 4\nspines = 2\n".to_owned() + workload,
            4,
            "Star has no spines",
        ),
        (
            "[topology]\nkind = \"fat-tree\"\nk = 3\n".to_owned() + workload,
            2,
            "odd",
        ),
        (
            "[topology]\nkind = \"torus\"\n".to_owned() + workload,
            2,
            "unknown variant",
        ),
        (
            format!("{star}speed = \"fast\"\n{workload}"),
            4,
            "not a data rate",
        ),
        (
            format!("{star}speed = \"9999999Gbps\"\n{workload}"),
            4,
            "not between",
        ),
        (
            format!("{star}delay = \"1 parsec\"\n{workload}"),
            4,
            "not a time",
        ),
        (star.to_owned(), 1, "no [[workload]]"),
        (
            with("[[job]]\nsize = \"1kB\"\n[compute]\nslots = 8\nenabled = false\n"),
            11,
            "compute.enabled = false",
        ),
        (
            format!("{star}[[workload]]\nkind = \"incast\"\n"),
            5,
            "needs size",
        ),
        (
            format!("{star}[[workload]]\nkind = \"incast\"\nsize = \"1kB\"\ntarget = \"h9\"\n"),
            7,
            "no host \"h9\"",
        ),
        (
            format!("{star}[[workload]]\nkind = \"incast\"\nsize = \"1kB\"\nsenders = 4\n"),
            7,
            "senders = 4 is not in 1..=3",
        ),
        (
            format!("{star}[[workload]]\nkind = \"incast\"\nsize = \"1kB\"\nload = 0.5\n"),
            7,
            "Incast has no load",
        ),
        (
            format!("{star}[[workload]]\nkind = \"matrix\"\nfile = \"a.cm\"\n"),
            6,
            "no files here",
        ),
        (
            with("[[fault]]\nkind = \"link-down\"\nlink = \"h1-h2\"\n"),
            9,
            "no link \"h1-h2\"",
        ),
        (
            with("[[fault]]\nkind = \"crash\"\nnode = \"s9\"\n"),
            9,
            "no node \"s9\"",
        ),
        (
            with("[[fault]]\nkind = \"impairment\"\nlink = \"*\"\nloss = 2.0\n"),
            10,
            "between 0 and 1",
        ),
        (
            with("[[fault]]\nkind = \"impairment\"\nlink = \"*\"\n"),
            8,
            "without loss",
        ),
        (
            with("[[fault]]\nkind = \"crash\"\nnode = \"s1\"\nfrom = \"2us\"\nuntil = \"1us\"\n"),
            11,
            "until is not after from",
        ),
        (
            with("[[fault]]\nkind = \"pfc-storm\"\nnode = \"s1\"\n"),
            9,
            "comes from a host",
        ),
        (
            with("[[fault]]\nkind = \"path-changes\"\nnode = \"s1\"\n"),
            9,
            "are those of hosts",
        ),
        (
            with("[[fault]]\nkind = \"drift\"\nnode = \"h1\"\n"),
            8,
            "needs ppm",
        ),
        (
            with("[[fault]]\nkind = \"drift\"\nnode = \"h1\"\nppm = 5\nfrom = \"1us\"\n"),
            11,
            "neither from nor until",
        ),
        (
            format!(
                "{star}[host]\nmessage = \"1B\"\n{}",
                workload.replace("1MB", "20GB")
            ),
            6,
            "messages of 1 bytes",
        ),
        (
            format!("{star}[host]\nrto_min = \"0ns\"\n{workload}"),
            5,
            "rto_min of",
        ),
        (
            format!("{star}[host]\nrto_min = \"2ms\"\nrto_initial = \"1ms\"\n{workload}"),
            6,
            "rto_initial of",
        ),
        (
            format!("sample = \"1ns\"\n{star}{workload}"),
            1,
            "sample of",
        ),
        (
            format!("seed = 2\npoll = \"2ms\"\n{star}{workload}"),
            2,
            "poll of 2ms",
        ),
        (format!("{star}delay = \"2s\"\n{workload}"), 4, "a delay of"),
        (
            format!("duration = \"1ms\"\n{star}{workload}start = \"1ms\"\n"),
            5,
            "when all is over",
        ),
    ] {
        let refusal = parse(&text).expect_err(&text);
        assert_eq!(refusal.line, line, "{text}\n{refusal:?}");
        assert!(refusal.reason.contains(reason), "{text}\n{refusal:?}");
    }
    let error = Scenario::load("/nowhere/at.toml".as_ref()).expect_err("no file");
    assert!(error.to_string().contains("/nowhere/at.toml"), "{error}");
}

/// Switches of a scenario do what its `[qos]` and `[ecmp.dlb]` say: the incast that drops without
/// them loses nothing.
#[test]
fn switches_of_a_scenario_have_a_qos() {
    let plain = r#"
[topology]
kind = "star"
hosts = 9
[[workload]]
kind = "incast"
target = "h1"
size = "500kB"
"#;
    let qos = r#"
[qos.buffer]
size_bytes = 33554432
[qos.headroom]
cable_metres = 200
poll_gap_microseconds = 1
[qos.flow_control]
mode = "pfc"
[[qos.group]]
groups = [3]
xoff_bytes = 100000
xon_bytes = 50000
headroom = "auto"
[[qos.queue]]
queues = [3]
lossless = true
[ecmp.dlb]
mode = "flowlet"
"#;
    let lost = |outcome: &Outcome| -> u64 { outcome.totals.switch_drops.values().sum() };
    let dropped = done(&scenario(plain), 1);
    assert!(lost(&dropped) > 0);
    let kept = scenario(&format!("lossless = true\n{plain}{qos}"));
    assert!(kept.switch.dlb.is_some());
    let kept = done(&kept, 1);
    assert_eq!(lost(&kept), 0);
    assert!(kept.totals.pauses > 0, "hosts hear no pause");
}

/// A matrix is refused with its own name and line.
#[test]
fn a_matrix_is_refused_by_its_own_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.toml");
    let text = "[topology]\nkind = \"star\"\nhosts = 4\n[[workload]]\nkind = \"matrix\"\nfile = \"m.cm\"\n";
    std::fs::write(&path, text).expect("written");
    let matrix = "Nodes 4\nConnections 1\n0->7 start 0 size 5\n";
    std::fs::write(folder.path().join("m.cm"), matrix).expect("written");
    let error = Scenario::load(&path).expect_err("host 7 does not exist");
    let text = error.to_string();
    assert!(text.contains("m.cm:3: host 7 does not exist"), "{text}");
}

/// Figures are written as JSON, CSV and SVG that other programs read.
#[test]
fn figures_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let outcome = done(&scenario(LEAF_SPINE), 1);
    let json = folder.path().join("all.json");
    report::write_json(&outcome, &json).expect("written");
    let text = std::fs::read_to_string(json).expect("read");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["classes"][0]["completed"], 4);
    assert_eq!(value["digest"], format!("{:016x}", outcome.digest));
    report::write_csv(&outcome, folder.path()).expect("written");
    let mut flows = csv::Reader::from_path(folder.path().join("flows.csv")).expect("CSV");
    assert_eq!(flows.records().count(), 4);
    let mut totals = csv::Reader::from_path(folder.path().join("totals.csv")).expect("CSV");
    let sent = totals
        .records()
        .map(|record| record.expect("a line"))
        .find(|record| &record[0] == "data_packets")
        .expect("a total");
    assert_eq!(sent[2], outcome.totals.data_packets.to_string());
    let link = &value["series"]["links"][0];
    assert_eq!(
        link["queue_bytes"].as_array().map(Vec::len),
        value["series"]["time_ns"].as_array().map(Vec::len)
    );
    let series = csv::Reader::from_path(folder.path().join("series.csv")).expect("CSV");
    assert!(series.into_records().count() > 10);
    let drawn = plot::draw(&outcome, folder.path()).expect("drawn");
    assert!(drawn.len() >= 3, "{drawn:?}");
    for file in drawn {
        let text = std::fs::read_to_string(&file).expect("read");
        assert!(
            text.starts_with("<svg") && text.trim_end().ends_with("</svg>"),
            "{file:?}"
        );
        assert!(text.contains("polyline"), "{file:?}: a line");
    }
}

/// A scenario that cannot be read is named without a line, one with a mistake with it.
#[test]
fn a_scenario_file_that_is_refused_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nope.toml");
    let refusal = || {
        twin::scenario::Scenario::load(&path)
            .unwrap_err()
            .to_string()
    };
    let place = path.display();
    let missing = format!("{place}: it cannot be read: No such file or directory");
    assert!(refusal().starts_with(&missing), "{}", refusal());
    std::fs::write(&path, "about = \"\"\nunknown = 1\n").unwrap();
    assert!(
        refusal().starts_with(&format!("{place}:2: ")),
        "{}",
        refusal()
    );
}

/// HT-32, HT-22: operators of all hosts take sub-paths out, put them in force, weigh them and set
/// another granularity again and again, under load, over links that lose and overtake packets and
/// while a spine dies. All checks hold: each message arrives once, in order, whole; both sides make
/// every change; none is refused.
#[test]
fn sub_paths_change_under_load() {
    let hosts = ["h1", "h2", "h3", "h4"];
    let changes: String = hosts
        .iter()
        .map(|host| {
            format!(
                "[[fault]]\nkind = \"path-changes\"\nnode = \"{host}\"\ninterval = \"20us\"\n\
                 until = \"5ms\"\n"
            )
        })
        .collect();
    let trouble = "[[fault]]\nkind = \"impairment\"\nlink = \"*\"\nloss = 0.002\nreordering = 0.01\n\
                   lateness = \"20us\"\n[[fault]]\nkind = \"crash\"\nnode = \"spine1\"\n\
                   from = \"500us\"\nuntil = \"900us\"\n";
    let load = LEAF_SPINE
        .replace("400kB", "4MB")
        .replace("[host]", "speed = \"10Gbps\"\n[host]");
    for (seed, trouble) in [(1, ""), (2, ""), (3, trouble), (4, trouble)] {
        let calm = done(&scenario(&format!("{load}{trouble}")), seed);
        let busy = done(&scenario(&format!("{load}{changes}{trouble}")), seed);
        let totals = &busy.totals;
        println!("seed {seed}: {} changes, {totals:?}", totals.changes);
        assert_eq!((calm.totals.changes, totals.changes_refused), (0, 0));
        assert!(totals.changes > 100, "seed {seed}: {totals:?}");
        assert!(busy.classes.iter().all(|class| class.completed == 4));
        if trouble.is_empty() {
            assert_eq!(totals.changes % 2, 0, "seed {seed}: by both sides");
        }
    }
}
