//! HT-50, SW-40, SW-41: allreduce through the switches, beside hostd's own algorithms between the
//! hosts, Open MPI and gloo.
//!
//! A laboratory for each setting: ranks on one leaf, or on two leaves with a spine, each on a host
//! of its own. The packets of all contenders go through the same switches. Each contender has its
//! processes or threads, one a rank, which sleep while others have their turn.
//!
//! ```text
//!   contender who takes part
//!   setting   the laboratory, and who calls in it
//!   crew      ranks of one contender, and what they are told
//!   members   hostd's ranks, as threads
//!   peers     Open MPI's and gloo's, as processes
//! ```

mod contender;
mod crew;
mod members;
mod peers;
mod setting;

use crate::measure::{Better, Bound, Figure, Group, Subject};
use contender::{Contender, WITH_LONG, WITH_SHORT};
use crew::Turn;
use peers::Peers;
use setting::{SETTINGS, Setting};
use std::collections::HashMap;
use std::time::Duration;

/// How long a turn is meant to last; one of a long vector takes one call.
const TURN: Duration = Duration::from_millis(100);

/// Calls in a turn at most.
const CALLS: u32 = 10_000;

/// Bytes of vectors whose latency counts, and of those whose rate counts.
const SHORT: [usize; 3] = [8, 4 << 10, 64 << 10];
const LONG: [usize; 2] = [1 << 20, 16 << 20];

/// What the way through the switches takes at most of another's latency, and reaches at least of
/// its rate.
const LATENCY: f64 = 0.67;
const RATE: f64 = 1.0;

/// A group of contenders: where, who and on how many bytes.
struct Case {
    setting: usize,
    bytes: usize,
    contenders: Vec<Contender>,
}

/// The bench.
struct Allreduce {
    groups: Vec<Group>,
    cases: Vec<Case>,
    peers: Peers,
    /// The laboratory that is up, and the number of its setting.
    setting: Option<(usize, Setting)>,
    /// What a call took last, by case and contender, in seconds.
    took: HashMap<(usize, Contender), f64>,
}

/// Finds out who is there to compare with.
///
/// # Errors
/// If a program for one that is there cannot be made.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let peers = Peers::find()?;
    for missing in peers.missing() {
        eprintln!("bench: allreduce: {missing}");
    }
    let lengths = SHORT.into_iter().chain(LONG);
    let case = |setting, bytes| {
        let all: &[Contender] = if SHORT.contains(&bytes) {
            &WITH_SHORT
        } else {
            &WITH_LONG
        };
        let here = all.iter().copied().filter(|it| peers.has(*it));
        Case {
            setting,
            bytes,
            contenders: here.collect(),
        }
    };
    let cases: Vec<Case> = (0..SETTINGS.len())
        .flat_map(|setting| lengths.clone().map(move |bytes| (setting, bytes)))
        .map(|(setting, bytes)| case(setting, bytes))
        .collect();
    Ok(Box::new(Allreduce {
        groups: cases.iter().map(group).collect(),
        cases,
        peers,
        setting: None,
        took: HashMap::new(),
    }))
}

fn group(case: &Case) -> Group {
    let names: Vec<String> = case.contenders.iter().map(|it| it.name()).collect();
    let short = SHORT.contains(&case.bytes);
    let (unit, better, bound) = if short {
        ("µs", Better::Low, Bound::AtMost(LATENCY))
    } else {
        ("MB/s", Better::High, Bound::AtLeast(RATE))
    };
    let figures = (1..names.len()).map(|other| Figure::ratio(&names, 0, other, Some(bound)));
    Group {
        title: format!("{} bytes, {}", case.bytes, SETTINGS[case.setting].name),
        unit: unit.to_owned(),
        better,
        figures: figures.collect(),
        contenders: names,
    }
}

impl Allreduce {
    /// The laboratory of a setting; the one before is taken down.
    fn at(&mut self, number: usize) -> Result<&mut Setting, String> {
        if self.setting.as_ref().is_none_or(|(up, _)| *up != number) {
            if let Some((_, before)) = self.setting.take() {
                before.down()?;
            }
            let setting = Setting::up(&SETTINGS[number], &self.peers)?;
            self.setting = Some((number, setting));
        }
        let (_, setting) = self.setting.as_mut().expect("just brought up");
        Ok(setting)
    }
}

impl Subject for Allreduce {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let Case { setting, bytes, .. } = self.cases[group];
        let contender = self.cases[group].contenders[contender];
        let before = self.took.get(&(group, contender)).copied();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates"
        )]
        let calls = before.map_or(1, |took| (TURN.as_secs_f64() / took) as u32);
        let turn = Turn {
            bytes,
            calls: calls.clamp(1, CALLS),
        };
        let took = self.at(setting)?.turn(contender, turn)?;
        self.took.insert((group, contender), took);
        #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
        let rate = bytes as f64 / took / 1e6;
        Ok(if SHORT.contains(&bytes) {
            took * 1e6
        } else {
            rate
        })
    }

    fn notes(&self, _: usize) -> Vec<String> {
        let mut notes: Vec<String> = self.peers.missing().map(str::to_owned).collect();
        let setting = self.setting.as_ref();
        notes.extend(setting.and_then(|(_, setting)| setting.spent()));
        notes
    }

    fn finish(&mut self) -> Result<(), String> {
        self.setting
            .take()
            .map_or(Ok(()), |(_, setting)| setting.down())
    }
}
