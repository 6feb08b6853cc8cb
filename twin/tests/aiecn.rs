//! AI ECN in the twin: thresholds of a lossless queue follow the traffic, with the model that ships
//! (SW-24).

use common::time::Span;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use switchd::insight::ecn::{Change, Model, Why};
use twin::scenario::Scenario;
use twin::simulation;
use twin::training::{
    FIXED, Hosts, Kind, Thresholds, Workload, judge, report, run, soak, train, trained, untrained,
};

/// SW-24: on workloads that the model was not trained on, throughput and queue are those of the
/// best of three fixed settings or better, and none of those is good everywhere.
#[test]
fn other_workloads_do_as_well_as_with_the_best_fixed_thresholds() {
    let known: Vec<_> = trained().into_iter().map(|it| it.name).collect();
    let workloads = untrained();
    assert!(workloads.iter().all(|it| !known.contains(&it.name)));
    let judged = judge(&workloads, &Model::shipped(), 1, &|_, _| {}).expect("trials");
    println!("{}", report(None, &judged));
    for one in &judged {
        let (throughput, queue) = one.beside_best(&one.following);
        assert!(throughput >= 0.97, "{}: {throughput}", one.name);
        assert!(queue <= 1.10, "{}: {queue}", one.name);
        assert_eq!(one.following.harm.1, 0, "{}: lost", one.name);
        assert_eq!(one.following.violations, 0, "{}", one.name);
    }
    for (place, kmax) in FIXED.iter().enumerate() {
        let loses = judged.iter().any(|one| {
            let (throughput, queue) = one.beside_best(&one.fixed[place]);
            throughput < 0.9 || queue > 1.1
        });
        assert!(loses, "{kmax} would do everywhere");
    }
}

/// SW-24: the same seed makes the same file and the same report, though trials run side by side;
/// with another one random traffic is another.
#[test]
fn the_same_seed_makes_the_same_file() {
    let small = |kind| Workload::new(kind, 2, Hosts::Dctcp, (10, 1000));
    let workloads = [small(Kind::Writers), small(Kind::Mixed(0.2))];
    let made = |seed| {
        let trained = train(&workloads, seed, &|_, _| {}).expect("trials");
        let file = trained.model.to_toml("a test");
        (file, report(Some(&trained), &[]))
    };
    let first = made(1);
    assert!(first.0.contains("2 writers"), "{}", first.0);
    assert!(made(1) == first, "{}\n{}", first.0, first.1);
    assert_ne!(made(2).0, first.0);
}

fn end_of(changes: &[(Span, Change)]) -> Option<(Span, u32)> {
    changes.last().map(|(at, it)| (*at, it.after.kmax))
}

/// SW-24: 20 intervals after a step of the load thresholds have settled.
#[test]
fn a_step_of_the_load_settles() {
    let model = Model::shipped();
    for (first, senders) in [(2, 16), (4, 32)] {
        let kind = Kind::Step(first);
        let workload = Workload::new(kind, senders, Hosts::Dctcp, (100, 1000));
        let way = Thresholds::Following(1.0, model.clone());
        let trial = run(&workload, &way, 1).expect("a trial");
        println!("{}: {:?}", workload.name, trial.changes);
        // Half of the 42 ms are over when the others begin; then some end before others.
        let (step, end) = (Span::from_millis(21), Span::from_millis(42));
        let within: Vec<_> = trial.changes.into_iter().filter(|it| it.0 <= end).collect();
        let (at, kmax) = end_of(&within).expect("another scenario");
        assert!(at > step, "{at}");
        assert!(at < step + Span::from_millis(20), "{at}");
        assert!(kmax <= 75_000, "{kmax}");
        assert!(trial.throughput > 0.97, "{}", trial.throughput);
    }
}

/// SW-24: a scenario that no model knows is searched, and does as well.
#[test]
fn an_unknown_scenario_is_searched() {
    let nobody = Arc::new(Model::new(0.0, Model::shipped().scenarios.clone()));
    for senders in [4, 16] {
        let workload = Workload::new(Kind::Writers, senders, Hosts::Dctcp, (100, 1000));
        let judged = judge(&[workload], &nobody, 1, &|_, _| {}).expect("trials");
        let following = &judged[0].following;
        println!("{}", report(None, &judged));
        let (throughput, queue) = judged[0].beside_best(following);
        assert!(throughput >= 0.97 && queue <= 1.10, "{throughput} {queue}");
        let (at, _) = end_of(&following.changes).expect("another scenario");
        assert!(at <= Span::from_millis(20), "{at}");
        let is_found = |(_, it): &(Span, Change)| it.why == Why::Found || it.why == Why::Tried;
        assert!(following.changes.iter().all(is_found));
    }
}

/// SW-24: in a minute of steady traffic thresholds change twelve times at most.
#[test]
fn steady_traffic_changes_little() {
    let mut text = "poll = \"20us\"\nsample = \"10ms\"\nduration = \"200s\"\nlossless = true\n\
         [topology]\nkind = \"star\"\nhosts = 7\nspeed = \"500Mbps\"\n\
         [qos]\nbase_rtt_microseconds = 200\n\
         [qos.flow_control]\nmode = \"pfc\"\n\
         [[qos.group]]\ngroups = [3]\nxoff_bytes = 250000\nxon_bytes = 100000\nheadroom = \"auto\"\n\
         [[qos.queue]]\nqueues = [3]\nlossless = true\n\
         [qos.queue.wred]\nmin_bytes = 20000\nmax_bytes = 80000\n\
         [qos.aiecn]\nmode = \"ai\"\n\
         [host]\ncongestion = \"dctcp\"\n"
        .to_owned();
    for sender in 2..=7 {
        let _ = write!(
            text,
            "[[workload]]\nkind = \"incast\"\nhosts = [\"h1\", \"h{sender}\"]\ntarget = \"h1\"\nsize = \"680MB\"\n"
        );
    }
    let scenario = Scenario::parse(&text, "steady", &|file| Err(format!("no {file}")));
    let scenario = scenario.unwrap_or_else(|it| panic!("line {}: {}", it.line, it.reason));
    let outcome = simulation::run(&scenario, 1).unwrap_or_else(|failure| panic!("{failure}"));
    let minute = 60_000_000_000;
    assert!(outcome.duration_ns > minute + 2_000_000_000);
    let tuned = outcome.tuned.iter().find(|it| !it.changes.is_empty());
    let changes = tuned.map(|it| it.changes.clone()).unwrap_or_default();
    println!("{changes:?}");
    assert!(!changes.is_empty(), "nothing followed the traffic");
    let settled = Span::from_secs(2);
    let steady = changes.iter().filter(|(at, _)| *at > settled).count();
    assert!(steady <= 12, "{steady}");
    let windows = changes.windows(13);
    let crowded = windows.filter(|it| (it[12].0 - it[0].0).nanos() < minute);
    assert_eq!(crowded.count(), 0);
}

/// Runs random workloads, none of which may lose anything or leave a bound; changes of thresholds,
/// and those because of pauses.
fn soak_all(seeds: RangeInclusive<u64>) -> (usize, usize) {
    let mut sum = (0, 0);
    for seed in seeds {
        let done = soak(seed).unwrap_or_else(|failure| panic!("{failure}"));
        sum = (sum.0 + done.changes, sum.1 + done.fallbacks);
    }
    println!("{sum:?} changes and fallbacks");
    sum
}

/// SW-24: random traffic in front of random buffers loses nothing, and thresholds stay within their
/// bounds.
#[test]
fn random_workloads_lose_nothing() {
    let sum = soak_all(1..=30);
    assert!(sum.0 > 30 && sum.1 > 0, "{sum:?}: nothing was tried");
}

/// SW-24: nor do a thousand of them.
#[test]
#[ignore = "takes minutes: make soak"]
fn a_thousand_random_workloads_lose_nothing() {
    let sum = soak_all(1..=1_000);
    assert!(sum.0 > 1_000 && sum.1 > 30, "{sum:?}: nothing was tried");
}
