//! In-network compute among the duties of control: the workers get their engines, operators create
//! and end jobs.

use super::api::{CreateJobRequest, Event, EventKind, JobRow, Severity};
use super::state::State;
use crate::compute::{Engine, Happening, NotReserved, Notice, Reservation};
use crate::stats;
use crate::worker::events::{Reserve, WorkerCommand};
use common::time::Span;
use common::wire::compute::{Element, Operation, PAYLOAD_MAX, RANKS, Reason, SLOTS_MAX};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

/// Longest time that a job is reserved for, in seconds: a day.
const LEASE_MAX: u32 = 86_400;

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
        expires_seconds: row.expires.map(Span::as_secs_f64),
    }
}

/// The bits of what is named; all if nothing is.
fn bits<T: Copy>(
    what: &str,
    names: &[String],
    all: &[T],
    of: impl Fn(T) -> (&'static str, u8),
) -> Result<u8, String> {
    let known = all.iter().map(|it| of(*it));
    if names.is_empty() {
        return Ok(known.fold(0, |bits, (_, bit)| bits | bit));
    }
    names.iter().try_fold(0, |bits, name| {
        let mut known = known.clone();
        match known.find(|(label, _)| label == name) {
            Some((_, bit)) => Ok(bits | bit),
            None => {
                let labels: Vec<_> = all.iter().map(|it| of(*it).0).collect();
                Err(format!(
                    "no {what} is called {name:?}: {}",
                    labels.join(", ")
                ))
            }
        }
    })
}

/// What a worker is to reserve.
///
/// # Errors
/// What cannot be, with what can.
fn reservation(wanted: &CreateJobRequest) -> Result<Reservation, String> {
    let within = |what: &str, value: usize, from: usize, to: usize| {
        let is_within = (from..=to).contains(&value);
        is_within
            .then_some(())
            .ok_or_else(|| format!("{what}: {value} is not from {from} to {to}"))
    };
    within("members", wanted.members.into(), 1, RANKS)?;
    within("slots", wanted.slots.into(), 1, SLOTS_MAX)?;
    within("payload", wanted.payload.into(), 8, PAYLOAD_MAX)?;
    within(
        "lease",
        wanted.lease_seconds as usize,
        1,
        LEASE_MAX as usize,
    )?;
    if !wanted.payload.is_multiple_of(8) {
        let text = "payload: not a multiple of 8, so not whole elements of all types";
        return Err(text.to_owned());
    }
    let operations = bits("operation", &wanted.operations, &Operation::ALL, |it| {
        (it.label(), it.bit())
    })?;
    let elements = bits("type", &wanted.types, &Element::ALL, |it| {
        (it.label(), it.bit())
    })?;
    Ok(Reservation {
        job: wanted.job,
        size: wanted.members,
        slots: wanted.slots,
        payload: wanted.payload,
        operations,
        elements,
        deterministic: wanted.deterministic,
        trees: wanted.trees,
        lease: Span::from_secs(wanted.lease_seconds.into()),
    })
}

/// A worker that was asked to reserve a job, and what it said.
pub(super) struct Creating {
    job: u32,
    worker: usize,
    answer: Arc<OnceLock<Result<stats::JobRow, NotReserved>>>,
}

impl Creating {
    /// The row of the job, or why there is none; `None` while the worker has not said so.
    pub(super) fn end(&self) -> Option<Result<JobRow, String>> {
        let job = self.job;
        let refusal = |why: NotReserved| match why {
            NotReserved::Exists(state) => format!("there is a job {job} already: {state}"),
            NotReserved::Refused(reason) => {
                format!(
                    "job {job} is refused: {}: {}",
                    reason.label(),
                    explained(reason)
                )
            }
        };
        let answer = self.answer.get()?.clone();
        Some(answer.map(|row| shown(self.worker, &row)).map_err(refusal))
    }

    /// What an operator is told when the worker says nothing.
    pub(super) fn unanswered(&self) -> String {
        let Self { job, worker, .. } = self;
        format!(
            "worker {worker} does not answer; `switchctl inc jobs` shows whether it has job {job}"
        )
    }
}

/// What an operator can do about a reason for which nothing is reserved.
fn explained(reason: Reason) -> &'static str {
    match reason {
        Reason::Full => "no memory is left for a single slot (compute.memory_megabytes)",
        Reason::TooManyJobs => "no place is left (compute.jobs)",
        Reason::NoParents => "the switch has fewer switches above (compute.parents)",
        _ => "this switch cannot do that",
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

    /// Asks the worker that will have the job to reserve it.
    ///
    /// # Errors
    /// In-network compute is off, there can be no such job, or the worker takes no commands.
    pub(super) fn begin_to_create(
        &mut self,
        wanted: &CreateJobRequest,
    ) -> Result<Creating, String> {
        self.jobs()?;
        let wanted = reservation(wanted)?;
        let (job, answer) = (wanted.job, Arc::default());
        let worker = job as usize % self.workers.len().max(1);
        let creating = Creating {
            job,
            worker,
            answer: Arc::clone(&answer),
        };
        let reserve = Box::new(Reserve { wanted, answer });
        self.command(worker, WorkerCommand::ReserveJob(reserve))?;
        Ok(creating)
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
        Happening::Reserved {
            members,
            slots,
            lease,
        } => (
            format!("job {job} is reserved: {members} members, {slots} slots, for {lease}"),
            Severity::Info,
        ),
        Happening::Unused => (
            format!("job {job} is over: nobody joined what was reserved"),
            Severity::Warning,
        ),
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
        let reserved = Happening::Reserved {
            members: 4,
            slots: 64,
            lease: Span::from_secs(60),
        };
        let all = [
            (
                reserved,
                "job 7 is reserved: 4 members, 64 slots, for 60s",
                Severity::Info,
            ),
            (
                Happening::Unused,
                "job 7 is over: nobody joined what was reserved",
                Severity::Warning,
            ),
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

    /// SW-42: what an operator asks for is understood by its names, and what cannot be is refused
    /// with what can.
    #[test]
    fn what_is_to_be_created_is_checked() {
        let wanted = CreateJobRequest {
            job: 7,
            members: 4,
            slots: 64,
            payload: 1400,
            operations: vec!["sum".to_owned(), "max".to_owned()],
            types: Vec::new(),
            deterministic: false,
            trees: 0,
            lease_seconds: 60,
        };
        let understood = reservation(&wanted).expect("it can be");
        assert_eq!((understood.operations, understood.elements), (0x12, 0xff));
        assert_eq!(understood.lease, Span::from_secs(60));
        type Change = fn(&mut CreateJobRequest);
        let cases: [(Change, &str); 7] = [
            (|it| it.members = 65, "members: 65 is not from 1 to 64"),
            (|it| it.slots = 0, "slots: 0 is not from 1 to 32768"),
            (
                |it| it.payload = 1408,
                "payload: 1408 is not from 8 to 1400",
            ),
            (|it| it.payload = 12, "payload: not a multiple of 8"),
            (|it| it.lease_seconds = 0, "lease: 0 is not from 1 to 86400"),
            (
                |it| it.operations[0].push('s'),
                "no operation is called \"sums\": sum, product",
            ),
            (
                |it| it.types.push("f8".to_owned()),
                "no type is called \"f8\": i32, i64",
            ),
        ];
        for (change, why) in cases {
            let mut wrong = wanted.clone();
            change(&mut wrong);
            let refused = reservation(&wrong).expect_err(why);
            assert!(refused.contains(why), "{refused}");
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
