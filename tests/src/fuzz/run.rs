//! Replays what is kept and looks for more.

use super::Target;
use super::mutate::Mutator;
use crate::wire::samples;
use nix::time::ClockId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An input that takes the thread longer makes a daemon stop for as long: that is a finding, too.
/// It is time of a core, because others may use the machine.
const SLOWEST: Duration = Duration::from_secs(1);

/// An input on which a target failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Name of the target.
    pub target: &'static str,
    /// Where the input is kept.
    pub path: PathBuf,
    /// What went wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { target, path, what } = self;
        write!(f, "{target}: {what}\n    input: {}", path.display())
    }
}

/// Inputs of `target` that are kept, with their files.
///
/// # Panics
/// If the corpus is missing or cannot be read.
fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target.name);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a readable folder").path();
            let bytes = std::fs::read(&path).expect("a readable input");
            (path, bytes)
        })
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{}: no input", folder.display());
    inputs
}

/// What this thread has had of a core.
fn busy() -> Duration {
    let time = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    time.expect("Linux has this clock").into()
}

/// What goes wrong with `input`, if anything does.
fn fault(target: &Target, input: &[u8]) -> Option<String> {
    let begin = busy();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = busy() - begin;
    match outcome {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("of an unknown kind")))
        }
        Ok(()) if took > SLOWEST => Some(format!("took {took:?}")),
        Ok(()) => None,
    }
}

/// Runs `target` on every input that is kept, and returns how many there are.
///
/// # Errors
/// The first input that fails.
pub fn replay(target: &Target) -> Result<usize, Failure> {
    let corpus = corpus(target);
    for (path, input) in &corpus {
        if let Some(what) = fault(target, input) {
            return Err(Failure {
                target: target.name,
                path: path.clone(),
                what,
            });
        }
    }
    Ok(corpus.len())
}

/// Runs `target` on mutations of its corpus and of real frames, from `seed`, for `budget`, and
/// returns how many there were. An input that fails is kept in `found`.
///
/// # Errors
/// The first input that fails.
///
/// # Panics
/// If `found` cannot be written.
pub fn explore(
    target: &Target,
    seed: u64,
    budget: Duration,
    found: &Path,
) -> Result<usize, Failure> {
    let mut inputs: Vec<_> = corpus(target).into_iter().map(|(_, input)| input).collect();
    let kept = inputs.len();
    inputs.extend(samples().into_iter().map(|sample| sample.bytes));
    let mut mutator = Mutator::new(seed);
    let end = Instant::now() + budget;
    let mut runs = 0;
    while Instant::now() < end {
        // The target's own corpus is what it understands best.
        let choice = if mutator.below(4) == 0 {
            inputs.len()
        } else {
            kept
        };
        let mut input = inputs[mutator.below(choice)].clone();
        mutator.mutate(&mut input, &inputs);
        runs += 1;
        if let Some(what) = fault(target, &input) {
            let path = found.join(format!("{}-{seed}-{runs}", target.name));
            std::fs::write(&path, &input).expect("the finding is kept");
            return Err(Failure {
                target: target.name,
                path,
                what,
            });
        }
    }
    Ok(runs)
}
