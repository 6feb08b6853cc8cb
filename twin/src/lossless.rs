//! Lossless incasts: many ports send to one at full rate, and nothing of the lossless class may be
//! lost (SW-12, SW-31).
//!
//! ```text
//!   8, 15, 63 senders ─100G─▶ switch ─100G─▶ tester 0       frames of 64 to 4096 bytes, and mixed
//!                    ◀─ PFC ─
//! ```
//!
//! Tests run them for milliseconds of virtual time. `fabric twin soak --lossless` runs all of them
//! for a second each, seed after seed.

use super::bench::{Bench, Setup, at};
use super::soak::Stop;
use super::switch::SwitchSettings;
use super::tester::{Sizes, Stream};
use common::time::{Span, Time};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use switchd::config::Qos;

/// Numbers of senders of the soak.
const SENDERS: [usize; 3] = [8, 15, 63];

/// Virtual time between two looks of who watches.
const LOOK: Span = Span::from_micros(100);

/// Senders begin within this time.
const BEGIN: Span = Span::from_micros(2);

/// Part of the line's bytes that have to arrive: it is filled after the first round trip.
const BUSY_PERCENT: u64 = 95;

/// Class 3 is lossless: each port pauses its peer from `xoff` bytes on.
///
/// # Panics
/// If that is no configuration.
pub fn qos(xoff: u32, more: &str) -> Arc<Qos> {
    let xon = xoff / 2;
    let group = format!("xoff_bytes = {xoff}\nxon_bytes = {xon}\nheadroom = \"auto\"");
    written(&group, "", "mode = \"pfc\"", more)
}

/// Class 3 is lossless: the keys of its group, more of the buffer, flow control, and more tables.
///
/// # Panics
/// If that is no configuration.
pub fn written(group: &str, buffer: &str, flow_control: &str, more: &str) -> Arc<Qos> {
    let text = format!(
        r#"
[buffer]
size_bytes = 67108864
{buffer}
[headroom]
cable_metres = 100
poll_gap_microseconds = 1
[flow_control]
{flow_control}
[[group]]
groups = [3]
{group}
[[queue]]
queues = [3]
lossless = true
{more}
"#
    );
    Arc::new(toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// A bench whose switches have this `[qos]`, and may lose nothing.
pub fn with(mut setup: Setup, qos: Arc<Qos>) -> Setup {
    setup.lossless = true;
    setup.switch = SwitchSettings {
        packets: 262_144,
        poll: Span::from_nanos(250),
        qos: Some(qos),
        ..setup.switch
    };
    setup
}

/// Testers with links of 100 Gb/s around one such switch.
pub fn star(testers: usize, qos: Arc<Qos>) -> Setup {
    with(Setup::star(testers, at(100)), qos)
}

/// A stream of the lossless class at full rate.
pub fn lossless(to: usize, sizes: Sizes) -> Stream {
    Stream {
        dscp: 24,
        sizes,
        ..Stream::to(to)
    }
}

/// Sizes of frames of the incasts: each alone, a mix, and all between.
pub fn every_size() -> Vec<Sizes> {
    let mut all: Vec<Sizes> = [64, 65, 128, 1500, 4096].map(Sizes::Fixed).into();
    all.push(Sizes::Mix(vec![64, 64, 64, 594, 1518, 4096]));
    all.push(Sizes::Between(64, 4096));
    all
}

/// Many ports send to one at full rate; they begin one after the other within two microseconds.
#[derive(Clone, Debug)]
pub struct Incast {
    /// How many.
    pub senders: usize,
    /// Sizes of all their frames.
    pub sizes: Sizes,
    /// What the beginnings and sizes are drawn from.
    pub seed: u64,
    /// Virtual time.
    pub lasting: Span,
}

impl fmt::Display for Incast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:1 of ", self.senders)?;
        match &self.sizes {
            Sizes::Fixed(size) => write!(f, "{size} bytes"),
            Sizes::Between(low, high) => write!(f, "{low} to {high} bytes"),
            Sizes::InTurn(_) | Sizes::Mix(_) => f.write_str("mixed sizes"),
        }
    }
}

/// What an incast did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Packets that arrived.
    pub packets: u64,
    /// PFC frames that made a sender wait.
    pub pauses: u64,
}

impl Incast {
    /// Runs it. `watch` is told from time to time how much virtual time has passed, and stops it by
    /// returning false: then there are no figures.
    ///
    /// # Panics
    /// If a packet is lost, the receiver's line is idle, a sender is never paused or starves, a
    /// cell stays in use, or a check of the bench fails.
    pub fn run(&self, watch: &mut dyn FnMut(Span) -> bool) -> Option<Figures> {
        let mut setup = star(self.senders + 1, qos(100_000, ""));
        setup.seed = self.seed;
        let mut bench = Bench::new(setup);
        let mut random = Pcg64Mcg::new(u128::from(self.seed));
        let senders = 1..=self.senders;
        let streams = senders.map(|from| {
            let stream = Stream {
                start: Time::from_nanos(random.next_u64() % BEGIN.nanos()),
                ..lossless(0, self.sizes.clone())
            };
            bench.send(from, stream)
        });
        let streams: Vec<_> = streams.collect();
        let mut passed = Span::ZERO;
        while passed < self.lasting {
            let next = (passed + LOOK).min(self.lasting);
            bench.run_until(Time::ZERO + next);
            passed = next;
            if !watch(passed) {
                return None;
            }
        }
        let busy: u64 = streams.iter().map(|it| bench.line_bytes(*it)).sum();
        bench.finish();
        let what = format!("{self}, seed {}", self.seed);
        assert_eq!(bench.cells_in_use(), 0, "{what}");
        let mut figures = Figures::default();
        for &stream in &streams {
            assert_eq!(bench.missing(stream), 0, "{what}");
            let packets = bench.received(stream).packets;
            assert!(packets > 0, "{what}: a sender starves");
            figures.packets += packets;
        }
        let line = bench.speed(0).bytes_in(self.lasting);
        assert!(
            busy * 100 > line * BUSY_PERCENT,
            "{what}: {busy} bytes of {line}"
        );
        let switch = bench.switch(0);
        assert_eq!(switch.sum(|port| port.dropped_in_all()), 0, "{what}");
        figures.pauses = switch.sum(|port| port.pauses[3].sent_xoff.get());
        assert!(figures.pauses >= self.senders as u64, "{what}: no pause");
        Some(figures)
    }
}

/// A series of incasts: all numbers of senders with all sizes, then again with the next seed.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The first seed.
    pub first: u64,
    /// When to stop; each incast counts.
    pub stop: Stop,
    /// Virtual time of each.
    pub lasting: Span,
    /// Only those whose names have this in them.
    pub only: String,
}

/// How far a series is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Incasts that ended well.
    pub incasts: u64,
    /// What they did.
    pub figures: Figures,
    /// What the last of them did.
    pub last: Figures,
    /// The seed of the one that runs.
    pub seed: u64,
    /// Its name.
    pub name: String,
    /// Its virtual time so far.
    pub passed: Span,
}

impl Soak {
    /// Runs until told to stop. `watch` is told how far it is: also before an incast begins, and
    /// when it has ended.
    ///
    /// # Errors
    /// No incast has the name that is wanted.
    ///
    /// # Panics
    /// As [`Incast::run`].
    pub fn run(&self, watch: &mut dyn FnMut(&Progress)) -> Result<Progress, String> {
        let start = Instant::now();
        let stop = self.stop;
        let is_over = || {
            stop.time.is_some_and(|time| start.elapsed() >= time)
                || stop.flag.load(Ordering::Relaxed)
        };
        let all = self.chosen();
        if all.is_empty() {
            return Err(format!("no incast has {:?} in its name", self.only));
        }
        let mut progress = Progress::default();
        for seed in self.first.. {
            for incast in &all {
                if progress.incasts >= stop.count || is_over() {
                    return Ok(progress);
                }
                let incast = Incast {
                    seed,
                    ..incast.clone()
                };
                (progress.seed, progress.name) = (seed, incast.to_string());
                progress.passed = Span::ZERO;
                watch(&progress);
                let figures = incast.run(&mut |passed| {
                    progress.passed = passed;
                    watch(&progress);
                    !is_over()
                });
                let Some(figures) = figures else {
                    return Ok(progress);
                };
                progress.incasts += 1;
                progress.last = figures;
                progress.figures.packets += figures.packets;
                progress.figures.pauses += figures.pauses;
                watch(&progress);
            }
        }
        Ok(progress)
    }

    /// The incasts of one seed.
    fn chosen(&self) -> Vec<Incast> {
        let sizes = every_size();
        let all = SENDERS.into_iter().flat_map(|senders| {
            sizes.iter().map(move |sizes| Incast {
                senders,
                sizes: sizes.clone(),
                seed: self.first,
                lasting: self.lasting,
            })
        });
        all.filter(|incast| incast.to_string().contains(&self.only))
            .collect()
    }
}
