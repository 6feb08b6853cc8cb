//! `bench [NAME]…` runs the named benches, or all of them without names, and prints their results.

use clap::Parser;
use clap::builder::PossibleValuesParser;
use common::sys::alloc::Counting;
use fabric_benches::report::{GroupResult, Report};
use fabric_benches::run::{BENCHES, Bench, Limits};
use fabric_benches::{against, forward, peer};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The daemons' allocator, and a count of what is asked of it.
#[global_allocator]
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting(mimalloc::MiMalloc);

/// Measures switchd and hostd beside something that runs on the same machine at the same time.
///
/// Contenders take turns, for as many rounds as it takes to say whether a bound holds. A bound
/// fails only when the whole confidence interval of the median lies beyond it; when the bound lies
/// inside, it is undecided: the machine is too noisy, so run again, alone or longer.
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    version,
    after_help = "Exit status: 0 if all bounds hold or are undecided, 1 if one failed or a bench could not run, \
                  2 for a wrong command line."
)]
struct Cli {
    /// Benches to run; all of them if none is named.
    #[arg(value_name = "NAME", value_parser = names())]
    names: Vec<String>,

    /// List the benches and end.
    #[arg(long)]
    list: bool,

    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Measure exactly so many rounds instead of as many as it takes (fewer than 11 decide
    /// nothing).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,

    /// Begin no more rounds of a group of contenders after so many seconds.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,

    /// Compare each contender with itself in another build: the path of that build's bench. Its
    /// daemons are those beside it.
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,

    /// Measure what is asked for on standard input: the other side of --against.
    #[arg(long, value_name = "NAME", value_parser = names(), hide = true)]
    serve: Option<String>,

    /// What the forwarding bench runs as one of its contenders: forward from p0 to p1, from the
    /// first of these stations to the second.
    #[arg(long, num_args = 2, value_names = ["SOURCE", "DESTINATION"], hide = true)]
    reflect: Option<Vec<String>>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(BENCHES.iter().map(|bench| bench.name))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = if let Some([source, destination]) = cli.reflect.as_deref() {
        forward::reflect(source, destination).map(|()| true)
    } else if let Some(name) = &cli.serve {
        let bench = Bench::named(name).expect("clap knows the names");
        peer::serve(bench).map(|()| true)
    } else if cli.list {
        list();
        Ok(true)
    } else {
        run(&cli)
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for bench in BENCHES {
        let root = if bench.privileged { " (as root)" } else { "" };
        println!("{:10} {}{root}", bench.name, bench.about);
    }
}

/// Runs what is named; whether all is good.
fn run(cli: &Cli) -> Result<bool, String> {
    let limits = Limits {
        rounds: cli.rounds.map(usize::from),
        seconds: cli.seconds,
    };
    let mut report = Report::new();
    println!("{}\n", report.machine);
    for bench in BENCHES {
        if !cli.names.is_empty() && !cli.names.iter().any(|name| name == bench.name) {
            continue;
        }
        let mut groups = Vec::new();
        let mut show = |result: GroupResult| {
            println!("{}", result.text());
            groups.push(result);
        };
        let outcome = match &cli.against {
            Some(other) => against::run(bench, other, limits, &mut show),
            None => bench.run(limits, &mut show),
        };
        report.groups.append(&mut groups);
        // One that goes wrong says so at the end, and does not keep the others from running.
        if let Err(why) = outcome {
            eprintln!("bench: {}: {why}", bench.name);
            report.faults.push(format!("{}: {why}", bench.name));
        }
    }
    print!("{}", report.summary());
    if let Some(path) = &cli.json {
        write(&report, path)?;
    }
    Ok(report.is_good())
}

fn write(report: &Report, path: &Path) -> Result<(), String> {
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    std::fs::write(path, json + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_in_order() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["bench", "twin", "lookup", "--rounds", "3"]).unwrap();
        assert_eq!((cli.names.len(), cli.rounds), (2, Some(3)));
    }

    #[test]
    fn what_is_no_bench_is_a_wrong_command_line() {
        let error = Cli::try_parse_from(["bench", "speed"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("pipeline"), "{error}");
    }
}
