//! Processor time of daemons that have nothing to do: a whole fabric, up and without traffic.
//!
//! A laboratory puts a dozen daemons on a laptop, and a switch in a rack is idle most of the night.
//! So a daemon without traffic is to use less than a hundredth of a core. All are watched at the
//! same time, for a second a pass.

use crate::measure::{Better, Bound, Figure, Group, Subject, Term};
use crate::rig::thread_seconds;
use lab::Lab;
use std::time::{Duration, Instant};

/// How long the daemons are watched in a pass.
const WATCH: Duration = Duration::from_secs(1);

/// What the fabric is given to settle: neighbours are found, tables are programmed.
const SETTLE: Duration = Duration::from_secs(5);

/// The most that a daemon may use, in hundredths of a core.
const PERCENT_MAX: f64 = 1.0;

/// The bench.
struct Idle {
    groups: [Group; 1],
    /// Process numbers, in the order of the contenders.
    pids: Vec<u32>,
    /// None once it is down.
    lab: Option<Lab>,
}

/// Brings a fabric up and lets it settle.
///
/// # Errors
/// What kept it from coming up.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    // Eight characters at most, and a process number has up to seven digits.
    let name = format!("i{}", std::process::id());
    let lab = Lab::builder().name(&name).size(2, 2, 4).up();
    let lab = lab.map_err(|error| error.to_string())?;
    match Idle::new(&lab) {
        Ok(mut idle) => {
            std::thread::sleep(SETTLE);
            idle.lab = Some(lab);
            Ok(Box::new(idle))
        }
        Err(why) => {
            let down = lab.down().map_err(|error| error.to_string());
            Err(down.err().unwrap_or(why))
        }
    }
}

impl Idle {
    fn new(lab: &Lab) -> Result<Self, String> {
        let (mut pids, mut contenders, mut figures) = (Vec::new(), Vec::new(), Vec::new());
        for daemon in lab.daemons().map_err(|error| error.to_string())? {
            let pid = daemon
                .pid
                .ok_or_else(|| format!("{} is down", daemon.node))?;
            let name = format!("{} on {}", daemon.program, daemon.node);
            figures.push(Figure {
                name: name.clone(),
                unit: "% of a core",
                of: vec![Term::of(pids.len())],
                to: Vec::new(),
                bound: Some(Bound::AtMost(PERCENT_MAX)),
            });
            pids.push(u32::try_from(pid).map_err(|error| error.to_string())?);
            contenders.push(name);
        }
        let group = Group {
            title: "2 leaves, 2 spines, 4 hosts without traffic".to_owned(),
            unit: "% of a core".to_owned(),
            better: Better::Low,
            contenders,
            figures,
        };
        Ok(Self {
            groups: [group],
            pids,
            lab: None,
        })
    }
}

impl Subject for Idle {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        Ok(self.pass(group, &[contender])?[0])
    }

    fn pass(&mut self, _: usize, order: &[usize]) -> Result<Vec<f64>, String> {
        let spent = || -> Result<Vec<f64>, String> {
            let pids = order.iter().map(|contender| self.pids[*contender]);
            pids.map(thread_seconds).collect()
        };
        let (began, before) = (Instant::now(), spent()?);
        std::thread::sleep(WATCH);
        let elapsed = began.elapsed().as_secs_f64();
        let pairs = spent()?.into_iter().zip(before);
        Ok(pairs
            .map(|(after, before)| (after - before) / elapsed * 100.0)
            .collect())
    }

    fn finish(&mut self) -> Result<(), String> {
        let down = self.lab.take().map(Lab::down);
        down.unwrap_or(Ok(())).map_err(|error| error.to_string())
    }
}
