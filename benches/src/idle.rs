//! Processor time of daemons that have nothing to do: a whole fabric, up and without traffic.
//!
//! A laboratory puts a dozen daemons on a laptop, and a switch in a rack is idle most of the night.
//! So a daemon without traffic may use half of what a thread uses that wakes a thousand times a
//! second and does nothing. The price of a wake-up depends on the machine; the ratio to that thread
//! does not. Daemons and thread are watched at the same time, for a second a pass.

use crate::measure::{Better, Bound, Figure, Group, Subject};
use crate::rig::{ran, thread_seconds};
use lab::Lab;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the daemons are watched in a pass.
const WATCH: Duration = Duration::from_secs(1);

/// What the fabric is given to settle: neighbours are found, tables are programmed.
const SETTLE: Duration = Duration::from_secs(5);

/// The most that a daemon may use, as a ratio to the reference.
const RATIO_MAX: f64 = 0.5;

/// How long the reference sleeps at a time.
const NAP: Duration = Duration::from_millis(1);

/// The reference: a thread that wakes after each [`NAP`] and does nothing.
struct Sleeper {
    /// Its folder in `/proc`.
    folder: PathBuf,
    end: Arc<AtomicBool>,
    /// None once it is joined.
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    fn start() -> Result<Self, String> {
        let end = Arc::new(AtomicBool::new(false));
        let (named, name) = mpsc::channel();
        let ended = end.clone();
        let thread = std::thread::Builder::new()
            .name("sleeper".to_owned())
            .spawn(move || {
                // Whoever started the thread waits for its number.
                let _ = named.send(nix::unistd::gettid());
                while !ended.load(Ordering::Relaxed) {
                    std::thread::sleep(NAP);
                }
            })
            .map_err(|error| format!("a thread: {error}"))?;
        let number = name.recv().map_err(|error| error.to_string())?;
        Ok(Self {
            folder: PathBuf::from(format!("/proc/self/task/{number}")),
            end,
            thread: Some(thread),
        })
    }

    /// Seconds of processor time that it has used.
    fn seconds(&self) -> Result<f64, String> {
        ran(&self.folder).ok_or_else(|| format!("{} is gone", self.folder.display()))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // It cannot panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The bench.
struct Idle {
    groups: [Group; 1],
    /// The first contender.
    sleeper: Sleeper,
    /// Process numbers of the others, in their order.
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
        let sleeper = Sleeper::start()?;
        let (mut pids, mut contenders) = (Vec::new(), vec!["reference".to_owned()]);
        for daemon in lab.daemons().map_err(|error| error.to_string())? {
            let pid = daemon
                .pid
                .ok_or_else(|| format!("{} is down", daemon.node))?;
            contenders.push(format!("{} on {}", daemon.program, daemon.node));
            pids.push(u32::try_from(pid).map_err(|error| error.to_string())?);
        }
        let bound = Some(Bound::AtMost(RATIO_MAX));
        let figures = (1..contenders.len()).map(|one| Figure::ratio(&contenders, one, 0, bound));
        let figures = figures.collect();
        let group = Group {
            title: "2 leaves, 2 spines, 4 hosts without traffic".to_owned(),
            unit: "% of a core".to_owned(),
            better: Better::Low,
            contenders,
            figures,
        };
        Ok(Self {
            groups: [group],
            sleeper,
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
            let seconds = |contender: &usize| match contender.checked_sub(1) {
                None => self.sleeper.seconds(),
                Some(daemon) => thread_seconds(self.pids[daemon]),
            };
            order.iter().map(seconds).collect()
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
