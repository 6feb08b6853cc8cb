//! Every reader of outside bytes, against what is kept in `tests/fuzz/corpus` and against mutations
//! of it. `FUZZ_SECONDS` is the time for mutations of all targets together, `FUZZ_SEED` repeats a
//! run, `FUZZ_TARGET` names the only target.

use std::path::PathBuf;
use std::time::Duration;

use fabric_tests::fuzz::{Failure, TARGETS, Target, explore, replay};

/// Seconds of mutations when nothing else is said.
const SECONDS: f64 = 4.0;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn targets() -> Vec<&'static Target> {
    let only = variable("FUZZ_TARGET");
    let chosen: Vec<_> = TARGETS
        .iter()
        .filter(|target| only.as_ref().is_none_or(|name| name == target.name))
        .collect();
    assert!(!chosen.is_empty(), "no target is called {only:?}");
    chosen
}

fn report(failures: &[Failure]) {
    let list: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "findings:\n  {}", list.join("\n  "));
}

/// What was found once is not found again.
#[test]
fn the_corpus_is_read() {
    let outcomes: Vec<_> = targets().into_iter().map(replay).collect();
    let inputs: usize = outcomes.iter().flatten().sum();
    println!("{inputs} inputs of {} targets", outcomes.len());
    report(
        &outcomes
            .into_iter()
            .filter_map(Result::err)
            .collect::<Vec<_>>(),
    );
}

/// SW-11, HT-10: wire parsing never panics and never trusts a length, and neither does what stands
/// behind it.
#[test]
fn mutations_are_read() {
    let seed = variable("FUZZ_SEED").map_or_else(
        || u64::from(std::process::id()),
        |text| text.parse().expect("FUZZ_SEED is a number"),
    );
    let seconds = variable("FUZZ_SECONDS").map_or(SECONDS, |text| {
        text.parse().expect("FUZZ_SECONDS is a number")
    });
    println!("FUZZ_SEED={seed} repeats this run");
    let chosen = targets();
    let count = u32::try_from(chosen.len()).expect("few targets");
    let budget = Duration::from_secs_f64(seconds) / count;
    let found = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut failures = Vec::new();
    for target in chosen {
        match explore(target, seed, budget, &found) {
            Ok(runs) => println!("{:16} {runs} inputs", target.name),
            Err(failure) => failures.push(failure),
        }
    }
    report(&failures);
}
