//! `fabric twin matrix`: the congestion controls in the same scenarios.

use crate::progress::spinner;
use crate::show::counted;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use twin::congestion::{Congestion, Course, Line, Matrix, draw, markdown, replaced, table};

#[derive(Debug, Args)]
pub(crate) struct MatrixArgs {
    /// Everything runs with this many seeds, from 1 on
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only this algorithm; may be given several times
    #[arg(long, value_name = "ALGORITHM", value_parser = PossibleValuesParser::new(Congestion::ALL.map(Congestion::name)))]
    only: Vec<String>,
    /// Only this scenario; may be given several times
    #[arg(long, value_name = "SCENARIO", value_parser = PossibleValuesParser::new(Course::ALL.map(Course::name)))]
    scenario: Vec<String>,
    /// Write all figures into this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw bars into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Put the table between the marks of this page, as in docs/congestion.md, and draw
    /// images/congestion.svg beside it
    #[arg(long, value_name = "PAGE", conflicts_with_all = ["only", "scenario"])]
    write: Option<PathBuf>,
}

/// Those of all that are wanted; all, if none is named.
fn chosen<T: Copy>(all: &[T], names: &[String], name: fn(T) -> &'static str) -> Vec<T> {
    let wanted = |one: &T| names.is_empty() || names.iter().any(|it| it == name(*one));
    all.iter().copied().filter(wanted).collect()
}

impl MatrixArgs {
    pub(crate) fn run(self) -> Result<(), String> {
        // Before minutes are spent.
        let page = self.write.as_deref().map(Page::read).transpose()?;
        let matrix = Matrix {
            algorithms: chosen(&Congestion::ALL, &self.only, Congestion::name),
            courses: chosen(&Course::ALL, &self.scenario, Course::name),
            seeds: self.seeds,
        };
        let start = Instant::now();
        let bar = spinner();
        let lines = matrix.run(&mut |run| bar.set_message(run.to_owned()));
        bar.finish_and_clear();
        let lines = lines?;
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&lines).map_err(|error| error.to_string())?;
            write(path, &format!("{text}\n"))?;
        }
        if let Some(path) = &self.plot {
            draw(&lines, path).map_err(|error| error.to_string())?;
        }
        if let Some(page) = page {
            page.write(&lines)?;
        }
        common::sys::end_quietly_on_broken_pipe();
        println!("{}", table(&lines));
        let runs = lines.len() as u64 * self.seeds;
        let elapsed = start.elapsed().as_secs_f64();
        let runs = counted(runs, "run", "runs");
        println!("{runs} in {elapsed:.1} s of real time");
        Ok(())
    }
}

/// A page that has the matrix.
struct Page<'a> {
    path: &'a Path,
    text: String,
}

impl<'a> Page<'a> {
    fn read(path: &'a Path) -> Result<Self, String> {
        let of = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
        let text = fs::read_to_string(path).map_err(|error| of(&error))?;
        replaced(&text, "").map_err(|reason| of(&reason))?;
        Ok(Self { path, text })
    }

    fn write(&self, lines: &[Line]) -> Result<(), String> {
        write(self.path, &replaced(&self.text, &markdown(lines))?)?;
        let images = self.path.with_file_name("images");
        let made = fs::create_dir_all(&images);
        made.map_err(|error| format!("{}: {error}", images.display()))?;
        let picture = images.join("congestion.svg");
        draw(lines, &picture).map_err(|error| error.to_string())
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
