//! `fabric twin`: fabrics in virtual time.

use crate::compare::Compare;
use crate::matrix::MatrixArgs;
use crate::progress::spinner;
use crate::train::Train;
use clap::{Args, Subcommand};
use console::style;
use indicatif::ProgressBar;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use twin::scenario::Scenario;
use twin::scenario::values::{Bytes, Period};
use twin::simulation::{Standing, run_watched};
use twin::soak::{Soak, Stop};
use twin::{collective, lossless, plot, report, snapshot};

/// Fabrics in virtual time, run by the daemons' own engines.
#[derive(Debug, Subcommand)]
pub(crate) enum Twin {
    /// Run a scenario and show its figures
    Run(Run),
    /// Run all shipped scenarios and compare their figures with the reviewed ones
    Check(CheckArgs),
    /// Run random scenarios until a check fails, the time is over, or Ctrl-C
    Soak(SoakArgs),
    /// Run the connection matrices of a folder with htsim's settings, beside given figures
    Compare(Compare),
    /// Make the table of scenarios of switchd's AI ECN from simulated workloads, and judge it
    Train(Train),
    /// Run all congestion controls in the same scenarios and show their figures side by side
    Matrix(MatrixArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The scenario: a TOML file, as in twin/scenarios
    scenario: PathBuf,
    /// Another seed than the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Carry and check every byte of payload, whatever the scenario says
    #[arg(long)]
    carry: bool,
    /// Draw completion times, queues and links into this folder, as SVG
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Write flows, classes, links, totals and series into this folder, as CSV
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write all figures into this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Take what is found as reviewed
    #[arg(long)]
    update: bool,
}

impl CheckArgs {
    fn run(&self) -> Result<(), String> {
        let bar = spinner();
        let found = snapshot::figures(&mut |name| bar.set_message(name.to_owned()))?;
        bar.finish_and_clear();
        let path = snapshot::reviewed();
        let file = |error: std::io::Error| format!("{}: {error}", path.display());
        if self.update {
            return std::fs::write(&path, found).map_err(file);
        }
        let reviewed = std::fs::read_to_string(&path).map_err(file)?;
        match snapshot::difference(&reviewed, &found) {
            None => {
                println!("all scenarios behave as reviewed, to the last byte on every wire");
                Ok(())
            }
            Some(difference) => Err(format!(
                "figures differ from {}: {difference}\nif that is wanted: fabric twin check --update",
                path.display()
            )),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Seed of the first scenario; each further one has the next. Drawn if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many scenarios
    #[arg(long)]
    count: Option<u64>,
    /// How long: a number and m, s, ms, us or ns, like 30m or 90s
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Lossless incasts instead: 8, 15 and 63 to one at 100 Gb/s, frames of all sizes
    #[arg(long)]
    lossless: bool,
    /// Random jobs of in-network compute instead, with loss, duplicates and deaths; --count is of
    /// jobs
    #[arg(long, conflicts_with = "lossless")]
    jobs: bool,
    /// Longest vector of a job
    #[arg(long, requires = "jobs", default_value = "16MiB", value_name = "BYTES")]
    longest: Bytes,
    /// Only incasts with this in their names, such as "63:1", "of 1500 bytes", "mixed"
    #[arg(long, requires = "lossless", default_value = "", value_name = "TEXT")]
    only: String,
    /// Virtual time of each incast
    #[arg(long, requires = "lossless", default_value = "1s", value_name = "TIME")]
    lasting: Period,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is not a time: write a number and m, s, ms, us or ns, like 30m");
    let minutes = text.strip_suffix('m');
    if let Some(minutes) = minutes.filter(|rest| !rest.ends_with(char::is_alphabetic)) {
        let minutes: u64 = minutes.trim().parse().map_err(|_| wrong())?;
        return Ok(Duration::from_secs(minutes.saturating_mul(60)));
    }
    let period = text.parse::<Period>().map_err(|_| wrong())?;
    Ok(period.0.into())
}

impl Twin {
    /// Does what is asked.
    pub(crate) fn run(self) -> ExitCode {
        let result = match self {
            Self::Run(run) => run.run(),
            Self::Check(check) => check.run(),
            Self::Soak(soak) => soak.run(),
            Self::Compare(compare) => compare.run(),
            Self::Train(train) => train.run(),
            Self::Matrix(matrix) => matrix.run(),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("{} {text}", style("fabric:").red().bold());
                ExitCode::FAILURE
            }
        }
    }
}

impl Run {
    fn run(self) -> Result<(), String> {
        let mut scenario = Scenario::load(&self.scenario).map_err(|error| error.to_string())?;
        scenario.carries |= self.carry;
        let seed = self.seed.unwrap_or(scenario.seed);
        let file = self.scenario.display();
        let refused = |reason| format!("{file}: with seed {seed}: {reason}");
        scenario.check(seed).map_err(refused)?;
        let start = Instant::now();
        let bar = spinner();
        let outcome = run_watched(&scenario, seed, &mut |standing| show(&bar, standing, start));
        bar.finish_and_clear();
        let outcome = outcome.map_err(|failure| failure.to_string())?;
        let elapsed = start.elapsed();
        let aborted: usize = outcome.classes.iter().map(|class| class.aborted).sum();
        common::sys::end_quietly_on_broken_pipe();
        println!("{}", style(&scenario.about).dim());
        print!("{}", report::summary(&outcome));
        println!("{}", report::busiest_links(&outcome, 6));
        println!(
            "{}",
            style(format!(
                "all checks passed{}; {:.2} s of real time, {:.2} million packet-hops a second",
                match aborted {
                    0 => String::new(),
                    count => format!(", {count} flows ended by faults"),
                },
                elapsed.as_secs_f64(),
                millions(outcome.hops, elapsed)
            ))
            .green()
        );
        let written =
            |path: &PathBuf, error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(path) = &self.json {
            report::write_json(&outcome, path).map_err(|error| written(path, error))?;
        }
        if let Some(folder) = &self.csv {
            report::write_csv(&outcome, folder).map_err(|error| written(folder, error))?;
        }
        if let Some(folder) = &self.plot {
            let drawn = plot::draw(&outcome, folder).map_err(|error| error.to_string())?;
            for file in drawn {
                println!("drawn: {}", file.display());
            }
        }
        Ok(())
    }
}

/// A flag that Ctrl-C sets.
fn end_on_interrupt() -> Result<&'static AtomicBool, String> {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("event loop: {error}"))?;
    std::thread::spawn(move || {
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            INTERRUPTED.store(true, Ordering::Relaxed);
        }
    });
    Ok(&INTERRUPTED)
}

#[expect(clippy::cast_precision_loss, reason = "a figure to show")]
fn millions(hops: u64, elapsed: Duration) -> f64 {
    hops as f64 / elapsed.as_secs_f64() / 1e6
}

fn show(bar: &ProgressBar, standing: Standing, start: Instant) {
    let (done, all) = standing.flows;
    let at = match standing.since {
        Some(since) => format!("{since} of virtual time"),
        None => "applications connect".to_owned(),
    };
    let speed = millions(standing.hops, start.elapsed());
    bar.set_message(format!(
        "{at}, {done} of {all} flows done, {speed:.2} M packet-hops/s"
    ));
}

/// Options with which `fabric twin soak` repeats what runs now.
static RUNNING: Mutex<String> = Mutex::new(String::new());

fn note_running(options: String) {
    if let Ok(mut running) = RUNNING.lock() {
        *running = options;
    }
}

/// A daemon's code that panics has to be found again too.
fn tell_how_to_repeat_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        if let Ok(options) = RUNNING.lock() {
            eprintln!("again: fabric twin soak {options}");
        }
    }));
}

/// A seed that differs from run to run, short enough to be read out.
fn drawn_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) % 1_000_000_000
}

impl SoakArgs {
    fn run(self) -> Result<(), String> {
        let first = self.seed.unwrap_or_else(drawn_seed);
        println!("seeds from {first}");
        tell_how_to_repeat_panics();
        let stop = Stop {
            count: self.count.unwrap_or(u64::MAX),
            time: self.time,
            flag: end_on_interrupt()?,
        };
        if self.jobs {
            let longest = u32::try_from(self.longest.0).map_err(|error| error.to_string())?;
            let soak = collective::soak::Soak {
                first,
                stop,
                longest,
            };
            jobs(soak)
        } else if self.lossless {
            self.incasts(first, stop)
        } else {
            scenarios(Soak { first, stop })
        }
    }

    fn incasts(self, first: u64, stop: Stop) -> Result<(), String> {
        let start = Instant::now();
        let bar = spinner();
        let lasting = self.lasting.0;
        let soak = lossless::Soak {
            first,
            stop,
            lasting,
            only: self.only,
        };
        let (mut ended, mut since) = (0, start);
        let done = soak.run(&mut |progress| {
            let lossless::Progress { seed, name, .. } = progress;
            if progress.incasts > ended {
                (ended, since) = (progress.incasts, told(&bar, progress, since));
                return;
            }
            note_running(format!(
                "--lossless --only {name:?} --lasting {lasting} --seed {seed} --count 1"
            ));
            bar.set_message(format!(
                "{} incasts, {} M packets; seed {seed}: {name}, {} of {lasting}",
                progress.incasts,
                progress.figures.packets / 1_000_000,
                progress.passed
            ));
        });
        bar.finish_and_clear();
        let done = done?;
        println!(
            "{} incasts of {lasting} in {:.0} s, seeds {first} to {}: {} packets, {} pauses; nothing lost",
            done.incasts,
            start.elapsed().as_secs_f64(),
            done.seed,
            done.figures.packets,
            done.figures.pauses
        );
        Ok(())
    }
}

/// Tells of an incast that has ended, which began at `since`; the present.
fn told(bar: &ProgressBar, progress: &lossless::Progress, since: Instant) -> Instant {
    let lossless::Figures { packets, pauses } = progress.last;
    let (seed, name) = (progress.seed, &progress.name);
    let real = since.elapsed().as_secs_f64();
    bar.suspend(|| {
        println!(
            "seed {seed}: {name}: {packets} packets, {pauses} pauses, {real:.1} s of real time"
        );
    });
    Instant::now()
}

fn jobs(soak: collective::soak::Soak) -> Result<(), String> {
    let (start, longest) = (Instant::now(), soak.longest);
    let bar = spinner();
    let result = soak.run(&mut |done| {
        note_running(format!(
            "--jobs --longest {longest}B --seed {} --count 1",
            done.seed
        ));
        bar.set_message(format!(
            "{} jobs; seed {}: {}",
            done.jobs, done.seed, done.about
        ));
    });
    bar.finish_and_clear();
    let done = result.map_err(|failure| {
        let seed = failure.seed;
        format!(
            "{failure}\nagain: fabric twin soak --jobs --longest {longest}B --seed {seed} --count 1"
        )
    })?;
    let [right, told, died] = done.members;
    println!(
        "{} random jobs in {} cases in {:.0} s, seeds {} to {}: {} collectives of {} MB in all; {right} \
         members had the right result, {told} were told why not, {died} died; {} daemons died; {} \
         contributions sent again, {} came twice; nothing was left",
        done.jobs,
        done.cases,
        start.elapsed().as_secs_f64(),
        soak.first,
        done.seed,
        done.collectives,
        done.bytes / 1_000_000,
        done.deaths,
        done.sent_again,
        done.came_twice,
    );
    Ok(())
}

fn scenarios(soak: Soak) -> Result<(), String> {
    let start = Instant::now();
    let first = soak.first;
    let bar = spinner();
    let result = soak.run(&mut |done| {
        note_running(format!("--seed {} --count 1", done.seed));
        bar.set_message(format!(
            "{} scenarios, {} flows, {} M packet-hops; seed {}: {}",
            done.scenarios,
            done.flows,
            done.hops / 1_000_000,
            done.seed,
            done.scenario
        ));
    });
    bar.finish_and_clear();
    match result {
        Ok(done) => {
            println!(
                "{} random scenarios in {:.0} s, seeds {} to {}: {} flows ({} ended by faults), {} \
                 packet-hops, {} faults; no check failed",
                done.scenarios,
                start.elapsed().as_secs_f64(),
                first,
                done.seed,
                done.flows,
                done.aborted,
                done.hops,
                done.faults,
            );
            Ok(())
        }
        Err(failure) => Err(format!(
            "{failure}\nagain: fabric twin soak --seed {} --count 1",
            failure.seed
        )),
    }
}
