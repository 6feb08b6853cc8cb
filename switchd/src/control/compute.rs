//! In-network compute among the duties of control: the workers get their engines, operators end
//! jobs.

use super::api::{Event, EventKind, JobRow, Severity};
use super::state::State;
use crate::compute::{Engine, Happening, Notice};
use crate::stats;
use crate::worker::events::WorkerCommand;
use common::wire::compute::Reason;
use std::hash::{BuildHasher, RandomState};

/// The first epoch of a switch that begins now, drawn from all that there are: a clock may be set
/// back, and jobs may form faster than it counts. That a job gets the epoch that it had before the
/// start happens once in four billion times.
fn first_epoch() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// A job as operators see it.
fn shown(worker: usize, row: &stats::JobRow) -> JobRow {
    JobRow {
        job: row.job,
        worker,
        epoch: row.epoch,
        generation: row.generation,
        state: row.state.to_owned(),
        blamed: row.blamed,
        members: row.members.0,
        size: row.members.1,
        parents: row.parents,
        slots: row.slots,
        open: row.open,
        memory_bytes: row.memory,
        deterministic: row.deterministic,
        age_seconds: row.age.as_secs_f64(),
    }
}

impl State {
    /// Has the workers reduce for jobs, if that is configured.
    ///
    /// # Errors
    /// The secret cannot be read, or a worker takes no commands.
    pub fn begin_to_compute(&mut self) -> Result<(), String> {
        let config = self.active.config.compute.clone();
        if !config.enabled {
            return Ok(());
        }
        let secret = config.secret()?;
        let settings = config.settings(secret);
        for worker in 0..self.workers.len() {
            let stats = self.workers[worker].stats.compute.clone();
            let engine = Engine::new(settings.clone(), first_epoch(), stats);
            self.command(worker, WorkerCommand::Compute(Box::new(engine)))?;
        }
        Ok(())
    }

    /// Asks the workers for their jobs.
    pub(super) fn ask_for_jobs(&self) {
        for worker in &self.workers {
            worker.stats.compute.rows.ask();
            worker.waker.wake();
        }
    }

    /// The jobs, with their workers.
    ///
    /// # Errors
    /// In-network compute is off.
    pub(super) fn jobs(&self) -> Result<Vec<JobRow>, String> {
        if !self.active.config.compute.enabled {
            return Err("in-network compute is off: see [compute] in the configuration".to_owned());
        }
        let workers = self.workers.iter().enumerate();
        let jobs = workers.flat_map(|(number, worker)| {
            let rows = worker.stats.compute.rows.answered().unwrap_or_default();
            rows.into_iter().map(move |row| shown(number, &row))
        });
        Ok(jobs.collect())
    }

    /// Ends a job: its members get an error. The worker was [asked](Self::ask_for_jobs) for its
    /// jobs, and tells of the end.
    ///
    /// # Errors
    /// In-network compute is off, there is no such job or it is over, or the worker takes no
    /// commands.
    pub(super) fn delete_job(&mut self, job: u32) -> Result<(), String> {
        self.jobs()?;
        let worker = job as usize % self.workers.len().max(1);
        let rows = self
            .workers
            .get(worker)
            .and_then(|it| it.stats.compute.rows.answered());
        let rows = rows.ok_or_else(|| format!("worker {worker} does not answer"))?;
        let row = rows.iter().find(|row| row.job == job);
        let row = row.ok_or_else(|| format!("there is no job {job}"))?;
        if row.is_over {
            return Err(format!("job {job} is over: {}", row.state));
        }
        self.command(worker, WorkerCommand::DeleteJob(job))
    }

    /// Notes what has happened to a job.
    pub(super) fn note_job(&mut self, notice: &Notice) {
        let (text, severity) = told(notice);
        self.note_event(Event::new(EventKind::Compute, text).of_severity(severity));
    }
}

/// The sentence about what has happened to a job, and how much it matters.
fn told(notice: &Notice) -> (String, Severity) {
    let job = notice.job;
    let ended = |how: &str, reason: Reason, blamed: Option<u16>| {
        let blamed = blamed.map_or_else(String::new, |it| format!(", because of world rank {it}"));
        let severity = match reason {
            Reason::Finished | Reason::Deleted | Reason::Superseded => Severity::Info,
            _ => Severity::Warning,
        };
        (
            format!("job {job} {how}: {}{blamed}", reason.label()),
            severity,
        )
    };
    match notice.happening {
        Happening::Runs {
            members,
            slots,
            parents,
        } => (
            format!("job {job} runs: {members} members, {slots} slots, {parents} switches above"),
            Severity::Info,
        ),
        Happening::Over { reason, blamed } => ended("is over", reason, blamed),
        Happening::Refused { reason, blamed } => ended("was refused", reason, blamed),
        Happening::MemberRefused { reason, source } => (
            format!("job {job}: {source} was refused: {}", reason.label()),
            Severity::Warning,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// SW-42: what is told of jobs names job, reason and whose doing it is.
    #[test]
    fn what_happens_to_jobs_is_told() {
        let (reason, blamed) = (Reason::MemberLost, Some(3));
        let source = Ipv4Addr::LOCALHOST.into();
        let finished = Happening::Over {
            reason: Reason::Finished,
            blamed: None,
        };
        let runs = Happening::Runs {
            members: 4,
            slots: 64,
            parents: 2,
        };
        let all = [
            (
                runs,
                "job 7 runs: 4 members, 64 slots, 2 switches above",
                Severity::Info,
            ),
            (finished, "job 7 is over: finished", Severity::Info),
            (
                Happening::Over { reason, blamed },
                "job 7 is over: member_lost, because of world rank 3",
                Severity::Warning,
            ),
            (
                Happening::Refused { reason, blamed },
                "job 7 was refused: member_lost, because of world rank 3",
                Severity::Warning,
            ),
            (
                Happening::MemberRefused { reason, source },
                "job 7: 127.0.0.1 was refused: member_lost",
                Severity::Warning,
            ),
        ];
        for (happening, text, severity) in all {
            let said = told(&Notice { job: 7, happening });
            assert_eq!(said, (text.to_owned(), severity));
        }
    }

    /// Jobs that form between two starts.
    const JOBS: u32 = 100;

    /// SW-42: a switch that is started again within a second, or by a clock that was set back, uses
    /// no epoch again, also if jobs formed faster than seconds pass.
    #[test]
    fn epochs_do_not_come_again_after_a_start() {
        let starts: Vec<u32> = (0..8).map(|_| first_epoch()).collect();
        for (number, one) in starts.iter().enumerate() {
            for other in &starts[..number] {
                let apart = one.wrapping_sub(*other).min(other.wrapping_sub(*one));
                assert!(apart >= JOBS, "{starts:?}");
            }
        }
    }
}
