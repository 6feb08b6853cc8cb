//! `fabric twin train`: makes the table of scenarios of AI ECN, and judges it.

use crate::progress::spinner;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use twin::training::{JUDGED_WITH, Judged, TRAINED_WITH, judge, report, train, trained, untrained};

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// Write the table here, as `qos.aiecn.model` of switchd takes it; etc/aiecn.toml is the one
    /// that ships
    #[arg(value_name = "FILE")]
    model: PathBuf,
    /// Write the report here, too, as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Seeds to train with
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', default_values_t = TRAINED_WITH)]
    train_seeds: Vec<u64>,
    /// Seeds to judge with
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', default_values_t = JUDGED_WITH)]
    seeds: Vec<u64>,
    /// Judge the table that FILE has already, and make none
    #[arg(long)]
    judge: bool,
}

/// In front of the table.
fn head(seeds: &[u64]) -> String {
    let list: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let list = list.join(",");
    let by = if seeds == TRAINED_WITH {
        "fabric twin train etc/aiecn.toml".to_owned()
    } else {
        format!("fabric twin train --train-seeds {list}")
    };
    format!(
        "Known scenarios of AI ECN (docs/aiecn.md), made by\n`{by}` with seeds {list}.\n\n\
         A scenario is known if its features are within `radius` of a row. Thresholds are in bandwidth-delay products: the\n\
         speed of the port times qos.base_rtt_microseconds."
    )
}

impl Train {
    pub(crate) fn run(self) -> Result<(), String> {
        let file = |error: std::io::Error| format!("{}: {error}", self.model.display());
        let is_known = |seed: &&u64| self.train_seeds.contains(seed);
        if let Some(seed) = self.seeds.iter().find(is_known).filter(|_| !self.judge) {
            return Err(format!(
                "--seeds: {seed} is trained with, and cannot judge what it made"
            ));
        }
        let start = Instant::now();
        let bar = spinner();
        let (trained, model) = if self.judge {
            let text = std::fs::read_to_string(&self.model).map_err(file)?;
            let model = switchd::insight::ecn::Model::parse(&text, &self.model);
            (None, model.map_err(|error| error.to_string())?)
        } else {
            let trained = train(&trained(), &self.train_seeds, &|done, all| {
                bar.set_message(format!("training: {done} of {all} trials"));
            })?;
            let model = trained.model.clone();
            std::fs::write(&self.model, model.to_toml(&head(&self.train_seeds))).map_err(file)?;
            (Some(trained), model)
        };
        let judged = judge(&untrained(), &Arc::new(model), &self.seeds, &|done, all| {
            bar.set_message(format!("judging: {done} of {all} trials"));
        })?;
        let text = report(trained.as_ref(), &judged);
        bar.finish_and_clear();
        if let Some(path) = &self.report {
            let refused = |error| format!("{}: {error}", path.display());
            std::fs::write(path, &text).map_err(refused)?;
        }
        common::sys::end_quietly_on_broken_pipe();
        println!(
            "{text}\n{:.0} s of real time",
            start.elapsed().as_secs_f64()
        );
        let missed: Vec<String> = judged.iter().filter_map(Judged::missed).collect();
        if missed.is_empty() {
            return Ok(());
        }
        Err(format!("{}: {}", self.model.display(), missed.join("\n")))
    }
}
