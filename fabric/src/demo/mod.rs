//! The demonstration, in five chapters: a real file over every path of a fabric, what many paths
//! give while one of them dies, incast in a lossless class, congestion controls side by side, and
//! vectors that switches add.

mod allreduce;
mod controls;
mod copy;
mod incast;
mod paths;
mod samples;
mod spark;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use common::units::Rate;
use lab::LabError;
use lab::settings::binaries;
use lab::sweep::supervisor;

use crate::interrupts::Interrupts;
use crate::progress::spinner;
use stage::Stage;

/// Move real files across two-leaf, two-spine fabrics and show what happened.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The file to copy in the first chapter; without it, this machine's own shared libraries,
    /// joined
    #[arg(long)]
    file: Option<PathBuf>,
    /// Leave the fabrics up afterwards
    #[arg(long, env = "KEEP", num_args = 0..=1, default_missing_value = "1")]
    keep: Option<String>,
    /// Speed of every link in the first chapter
    #[arg(long, default_value = "1Gbps")]
    speed: Rate,
    /// One chapter only
    #[arg(long, value_enum)]
    only: Option<Chapter>,
    /// Folder for the pictures; without it, `demo` beside the folder of this
    /// program
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// What the demonstration consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Chapter {
    /// A real file over every path at once
    Copy,
    /// One connection on one path, on all, and while a spine is dead
    Paths,
    /// Seven hosts send to one over a class that loses nothing
    Incast,
    /// The same incast with three congestion controls, in virtual time
    Controls,
    /// Vectors of all hosts, added by the switches, one of which is killed
    Allreduce,
}

impl Chapter {
    const ALL: [Chapter; 5] = [
        Chapter::Copy,
        Chapter::Paths,
        Chapter::Incast,
        Chapter::Controls,
        Chapter::Allreduce,
    ];

    /// The chapter's laboratory, if it has one.
    fn laboratory(self) -> Option<&'static str> {
        match self {
            Chapter::Copy => Some(copy::NAME),
            Chapter::Paths => Some(paths::NAME),
            Chapter::Incast => Some(incast::NAME),
            Chapter::Allreduce => Some(allreduce::NAME),
            Chapter::Controls => None,
        }
    }

    /// What to look at in its laboratory when it is left up: a node, and a command there.
    fn sights(self) -> &'static [&'static str] {
        match self {
            Chapter::Copy => &["leaf1 switchctl ecmp", "h1 hostctl show paths"],
            Chapter::Paths => &["leaf1 switchctl ecmp", "h1 hostctl show qps"],
            Chapter::Incast => &[
                "leaf1 switchctl show queues",
                "leaf1 switchctl show pfc",
                "leaf1 switchctl show pg",
                "leaf1 switchctl show events",
                "h5 hostctl show pauses",
            ],
            Chapter::Allreduce => &["leaf1 switchctl inc jobs", "h1 hostctl status"],
            Chapter::Controls => &[],
        }
    }
}

impl Demo {
    /// Runs the demonstration; fails when a copy is not what was sent, or a lossless class has lost
    /// a packet.
    pub(crate) fn run(self) -> Result<ExitCode, LabError> {
        let keep = self.keep.as_deref();
        let keep = keep.is_some_and(|keep| !matches!(keep, "" | "0"));
        let chapters =
            Chapter::ALL.map(|chapter| (chapter, self.only.is_none_or(|o| o == chapter)));
        let chapters = chapters.into_iter().filter(|(_, wanted)| *wanted);
        let chapters: Vec<Chapter> = chapters.map(|(chapter, _)| chapter).collect();
        let names = chapters.iter().filter_map(|chapter| chapter.laboratory());
        let names: Vec<&str> = names.collect();
        // Before minutes are spent on a first chapter, and before signals take it down.
        if let Some(name) = names.iter().find(|name| supervisor(name).is_some()) {
            return Err(LabError::Exists((*name).to_owned()));
        }
        let stage = Stage {
            interrupts: Interrupts::watch(&names)?,
            bar: spinner(),
            keep,
        };
        let fine = chapters.iter().try_fold(true, |fine, chapter| {
            Ok(self.show(*chapter, &stage)? && fine)
        });
        stage.bar.finish_and_clear();
        let fine = fine?;
        farewell(&chapters, keep);
        Ok(if fine {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn show(&self, chapter: Chapter, stage: &Stage) -> Result<bool, LabError> {
        let fine = match chapter {
            Chapter::Copy => copy::run(stage, self.file.as_deref(), self.speed),
            Chapter::Paths => paths::run(stage, &self.folder()),
            Chapter::Incast => incast::run(stage, &self.folder()),
            Chapter::Allreduce => allreduce::run(stage),
            Chapter::Controls => controls::run(stage, &self.folder()),
        };
        stage.interrupts.settle();
        fine
    }

    /// Where the picture goes.
    fn folder(&self) -> PathBuf {
        let beside = || binaries().with_file_name("demo");
        self.plot.clone().unwrap_or_else(beside)
    }
}

/// What is left, and what can be done with it.
fn farewell(chapters: &[Chapter], keep: bool) {
    if keep {
        println!("\nThe fabrics are still up:");
        for chapter in chapters {
            let Some(name) = chapter.laboratory() else {
                continue;
            };
            println!("  fabric lab status --name {name}");
            for sight in chapter.sights() {
                println!("  fabric lab exec --name {name} {sight}");
            }
            println!("  fabric lab down --name {name}");
        }
    } else {
        println!("\nThe fabrics are down again; KEEP=1 leaves them up to look around.");
    }
    println!("Next: README.md has a tour; `make lab` brings a fabric of your own up.");
}
