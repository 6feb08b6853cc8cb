//! In-network compute among the duties of control: the workers get their engines, operators end
//! jobs.

use super::api::{Event, EventKind, JobRow};
use super::state::State;
use crate::compute::Engine;
use crate::stats;
use crate::worker::events::WorkerCommand;
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

    /// Ends a job: its members get an error.
    ///
    /// # Errors
    /// In-network compute is off, or the worker takes no commands.
    pub(super) fn delete_job(&mut self, job: u32) -> Result<(), String> {
        self.jobs()?;
        let worker = job as usize % self.workers.len().max(1);
        self.command(worker, WorkerCommand::DeleteJob(job))?;
        let text = format!("job {job} was ended by an operator");
        self.note_event(Event::new(EventKind::Compute, text));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
