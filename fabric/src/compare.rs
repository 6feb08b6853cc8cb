//! `fabric twin compare`: connection matrices beside figures that are given.

use crate::progress::spinner;
use crate::show::counted;
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;
use twin::compare::{Comparison, table};
use twin::simulation::run;

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Folder of connection matrices (*.cm), as in twin/matrices
    #[arg(value_name = "DIR")]
    matrices: PathBuf,
    /// TOML file with the figures to compare with: "NAME.cm" = tail in us; DIR/figures.toml if it
    /// is not given
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// TOML file with tables of a scenario, such as `[host]`, that replace the settings of htsim
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Only matrices with this in their names
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
    /// Each matrix runs with this many seeds, from 1 on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
}

impl Compare {
    pub(crate) fn run(self) -> Result<(), String> {
        let Self {
            matrices,
            beside,
            with,
            only,
            seeds,
        } = self;
        let comparison = Comparison::load(&matrices, beside.as_deref(), with.as_deref(), &only)?;
        let start = Instant::now();
        let bar = spinner();
        let mut rows = Vec::new();
        for file in &comparison.matrices {
            let scenario = comparison.scenario(file)?;
            for seed in 1..=seeds {
                bar.set_message(format!("{}, seed {seed}", scenario.name));
                let refused = |reason| format!("{}: with seed {seed}: {reason}", file.display());
                scenario.check(seed).map_err(refused)?;
                let outcome = run(&scenario, seed).map_err(|failure| failure.to_string())?;
                rows.push(comparison.row(&outcome));
            }
        }
        bar.finish_and_clear();
        common::sys::end_quietly_on_broken_pipe();
        println!("{}", table(&rows));
        let elapsed = start.elapsed().as_secs_f64();
        let runs = counted(rows.len() as u64, "run", "runs");
        println!("{runs} in {elapsed:.1} s of real time");
        Ok(())
    }
}
