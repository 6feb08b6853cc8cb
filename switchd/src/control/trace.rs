//! A packet trace for an operator: one at a time, begun and ended by one request.
//!
//! ```text
//!   none ── begin: WorkerCommand::Trace(tracer) to every worker ─────────────────▶ runs
//!    ▲                                                                              │
//!    └── end: WorkerCommand::Trace(None); its time is over, enough packets were ────┘
//!        found, or the client went away and `Running` is dropped
//! ```
//!
//! The state is locked only to begin, to end and to read names. The control thread does other work
//! while a trace runs.

use super::api::{TraceReport, TraceRequest};
use super::pcap;
use super::state::{State, lock};
use crate::id::SESSIONS;
use crate::tables::{NextHop, PortEntry};
use crate::trace::{Collector, Filter, Names, Shown, hexadecimal, session};
use crate::worker::events::WorkerCommand;
use common::sys::monotonic;
use common::time::{Span, Time};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

/// Longest trace. To follow packets for longer, begin another one.
pub const MAX_WAIT: Duration = Duration::from_secs(600);

/// How often the workers' rings are read. They hold the records of several such intervals, even at
/// more than a million packets a second.
const POLL: Duration = Duration::from_millis(10);

/// How long workers have to drop their tracers, as for other reports.
const LET_GO: Duration = Duration::from_millis(20);

/// Packets that are made into text between two looks at other work.
const CHUNK: usize = 64;

impl State {
    /// Has all workers follow the packets that `text` describes, until [`Self::end_trace`], which
    /// is promised for `until`.
    ///
    /// # Errors
    /// The filter is invalid, another trace runs, or a worker takes no commands.
    fn begin_trace(&mut self, text: &str, now: Time, until: Time) -> Result<Collector, String> {
        let ports = self.routing.publisher().ports();
        let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let filter = Filter::parse(text, &names).map_err(|error| error.to_string())?;
        if let Some(ends) = self.trace.until {
            return Err(format!(
                "another trace runs; it ends within {}",
                ends.since(now)
            ));
        }
        let number = (self.trace.session + 1) % SESSIONS;
        self.trace.session = number;
        let (tracers, collector) = session(number, filter, self.workers.len());
        for (worker, tracer) in tracers.into_iter().enumerate() {
            if let Err(error) = self.command(worker, WorkerCommand::Trace(Some(tracer))) {
                self.end_trace();
                return Err(error);
            }
        }
        self.trace.until = Some(until);
        Ok(collector)
    }

    fn end_trace(&mut self) {
        self.trace.until = None;
        for worker in 0..self.workers.len() {
            // A worker that takes no commands keeps its tracer, which soon is full, until the next
            // trace.
            let _ = self.command(worker, WorkerCommand::Trace(None));
        }
    }

    /// Ports and next hops, to name them without the lock.
    fn names(&self) -> (Vec<PortEntry>, Vec<NextHop>) {
        let tables = self.routing.program().tables();
        let ports = self.routing.publisher().ports().to_vec();
        (ports, tables.next_hops.clone())
    }
}

/// A trace that runs. It ends when this is dropped, also because its client went away.
struct Running<'a>(&'a Mutex<State>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(self.0).end_trace();
    }
}

/// Follows packets until enough were found or the time is over.
///
/// # Errors
/// As for `State::begin_trace`, or the time is too long.
pub async fn trace(wanted: &TraceRequest, state: &Mutex<State>) -> Result<TraceReport, String> {
    let wait = Duration::from_millis(wanted.wait_milliseconds);
    if wait.is_zero() || wait > MAX_WAIT {
        return Err(format!(
            "a trace takes more than 0 and at most {} seconds",
            MAX_WAIT.as_secs()
        ));
    }
    let (now, deadline) = (monotonic(), tokio::time::Instant::now() + wait);
    let until = now + Span::from_nanos(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
    let mut collector = lock(state).begin_trace(&wanted.filter, now, until)?;
    let running = Running(state);
    while !collector.is_complete() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep_until(deadline.min(tokio::time::Instant::now() + POLL)).await;
        collector.poll();
    }
    drop(running);
    tokio::time::sleep(LET_GO).await;
    let (traces, totals) = collector.finish();
    let (ports, next_hops) = lock(state).names();
    let names = Names {
        ports: &ports,
        next_hops: &next_hops,
    };
    let mut shown = Vec::with_capacity(traces.len());
    for chunk in traces.chunks(CHUNK) {
        shown.extend(chunk.iter().map(|trace| Shown::new(trace, &names)));
        tokio::task::yield_now().await;
    }
    let pcap = if wanted.pcap {
        let mut file = Vec::new();
        pcap::write(&mut file, &names, epoch(), &traces).map_err(|error| error.to_string())?;
        Some(hexadecimal(&file))
    } else {
        None
    };
    Ok(TraceReport {
        traces: shown,
        totals,
        pcap,
    })
}

/// Time from 1970-01-01 to the zero of the switch's clock.
fn epoch() -> Span {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    Span::from_nanos(nanos.saturating_sub(monotonic().nanos()))
}
