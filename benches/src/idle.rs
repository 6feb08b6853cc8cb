//! Processor time of daemons that have nothing to do: a whole fabric, up and without traffic.
//!
//! A laboratory puts a dozen daemons on a laptop, and a switch in a rack is idle most of the night. So a daemon
//! without traffic is to use less than a hundredth of a core.

use crate::measure::print_figures;
use crate::rig::processor_seconds;
use lab::Lab;
use std::time::{Duration, Instant};

/// How long the daemons are watched.
const WATCH: Duration = Duration::from_secs(10);

/// What the fabric is given to settle: neighbours are found, tables are programmed.
const SETTLE: Duration = Duration::from_secs(5);

/// The most that a daemon may use, as a share of a core.
const LIMIT: f64 = 0.01;

/// Runs the bench and prints its table.
///
/// # Errors
/// What kept the fabric from coming up, or which daemon used more than it may.
pub fn bench() -> Result<(), String> {
    // Eight characters at most, and a process number has up to seven digits.
    let name = format!("i{}", std::process::id());
    let lab = Lab::builder().name(&name).size(2, 2, 4).up();
    let lab = lab.map_err(|error| error.to_string())?;
    std::thread::sleep(SETTLE);
    let figures = watch(&lab);
    lab.down().map_err(|error| error.to_string())?;
    let figures = figures?;
    print_figures(
        "idle for 10 s, 2 leaves, 2 spines, 4 hosts",
        "share of a core",
        &figures
            .iter()
            .map(|(name, share)| (name.clone(), format!("{:.2} %", share * 100.0)))
            .collect::<Vec<_>>(),
    );
    let busy = figures.iter().find(|(_, share)| *share >= LIMIT);
    busy.map_or(Ok(()), |(name, _)| Err(format!("{name} is not idle")))
}

fn watch(lab: &Lab) -> Result<Vec<(String, f64)>, String> {
    let daemons = lab.daemons().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let spent = || {
        daemons
            .iter()
            .map(|daemon| {
                let pid = daemon
                    .pid
                    .ok_or_else(|| format!("{} is down", daemon.node))?;
                let pid = u32::try_from(pid).map_err(|error| error.to_string())?;
                Ok((
                    format!("{} on {}", daemon.program, daemon.node),
                    processor_seconds(pid)?,
                ))
            })
            .collect::<Result<Vec<_>, String>>()
    };
    let before = spent()?;
    std::thread::sleep(WATCH);
    let elapsed = began.elapsed().as_secs_f64();
    let after = spent()?;
    Ok(before
        .into_iter()
        .zip(after)
        .map(|((name, before), (_, after))| (name, (after - before) / elapsed))
        .collect())
}
