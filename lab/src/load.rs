//! How busy the machine is for a laboratory: how long its processes wait for a core.
//!
//! A switch in hardware is never late. A switch in software is late when it waits for a core, and a
//! test or a demonstration has to distinguish a slow machine from a slow program. schedstat(5)
//! counts how long each thread was ready to run and did not.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use super::{Lab, LabError};

/// A time in which a process waited for a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The node that it belongs to, or its own name.
    pub name: String,
    /// The longest time that one of its threads was ready to run and did not.
    pub waited: Duration,
    /// The length of the span in which it waited.
    pub within: Duration,
}

impl Wait {
    /// Whether it had less than half of what it wanted.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.waited * 2 > self.within
    }

    /// Waiting as a share of the time.
    fn share(&self) -> f64 {
        self.waited.as_secs_f64() / self.within.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Looks again and again at how long processes wait.
#[derive(Debug)]
pub struct Watch {
    processes: Vec<(String, u32)>,
    /// The last look, and by thread the time waited in all its life.
    last: (Instant, BTreeMap<u32, Duration>),
    worst: Option<Wait>,
}

impl Watch {
    /// Shorter times say little: any thread waits for the end of another's slice.
    const SPAN: Duration = Duration::from_millis(100);

    /// Begins to watch the daemons of a laboratory.
    ///
    /// # Errors
    /// When its supervisor does not answer.
    pub fn begin(lab: &Lab) -> Result<Watch, LabError> {
        let daemons = lab.daemons()?.into_iter();
        let processes = daemons.filter_map(|daemon| {
            let pid = u32::try_from(daemon.pid?).ok()?;
            Some((daemon.node, pid))
        });
        let mut watch = Watch {
            processes: processes.collect(),
            last: (Instant::now(), BTreeMap::new()),
            worst: None,
        };
        watch.begin_span();
        Ok(watch)
    }

    /// Watches another process, too.
    pub fn add(&mut self, name: &str, pid: u32) {
        self.processes.push((name.to_owned(), pid));
        self.begin_span();
    }

    fn begin_span(&mut self) {
        let waits = self.processes.iter().flat_map(|(_, pid)| waits(*pid));
        self.last = (Instant::now(), waits.collect());
    }

    /// Looks, if it is time to.
    pub fn look(&mut self) {
        let within = self.last.0.elapsed();
        if within < Self::SPAN {
            return;
        }
        for (name, pid) in &self.processes {
            for (thread, total) in waits(*pid) {
                let Some(before) = self.last.1.get(&thread) else {
                    continue;
                };
                let wait = Wait {
                    name: name.clone(),
                    // A wait is counted when it ends: part of it may have been before.
                    waited: total.saturating_sub(*before).min(within),
                    within,
                };
                let worst = self.worst.as_ref().map_or(0.0, Wait::share);
                if wait.share() > worst {
                    self.worst = Some(wait);
                }
            }
        }
        self.begin_span();
    }

    /// The worst that was seen.
    #[must_use]
    pub fn worst(&self) -> Option<&Wait> {
        self.worst.as_ref()
    }
}

/// By thread of a process, how long it was ready to run and did not. Empty when the process has
/// ended.
fn waits(pid: u32) -> Vec<(u32, Duration)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let thread = task.file_name().to_str()?.parse().ok()?;
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((thread, parse(&text)?))
        })
        .collect()
}

/// The second number: nanoseconds of waiting.
fn parse(schedstat: &str) -> Option<Duration> {
    let nanos = schedstat.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_second_number_is_the_time_waited() {
        assert_eq!(
            parse("775509 2399922 2\n"),
            Some(Duration::from_nanos(2_399_922))
        );
        assert_eq!(parse("775509"), None);
    }

    #[test]
    fn more_than_half_of_the_time_is_starvation() {
        let wait = |waited| Wait {
            name: "leaf1".to_owned(),
            waited: Duration::from_millis(waited),
            within: Duration::from_millis(100),
        };
        assert!(!wait(50).is_starved());
        assert!(wait(51).is_starved());
    }

    /// Two threads that share one core wait for each other.
    #[test]
    fn this_process_is_seen_to_wait() {
        let before: Duration = waits(std::process::id())
            .iter()
            .map(|(_, wait)| *wait)
            .sum();
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * 4;
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !end.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let limit = Instant::now() + Duration::from_secs(60);
            let mut after = before;
            // As long as they spin they are there, with what they have waited.
            while after < before + Duration::from_millis(100) && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(20));
                after = waits(std::process::id()).iter().map(|it| it.1).sum();
            }
            end.store(true, Ordering::Relaxed);
            assert!(Instant::now() < limit, "{before:?}, {after:?}");
        });
    }
}
