//! Sessions: a tracer for each worker, and control's end of their rings.

use super::collect::Collector;
use super::filter::Filter;
use super::tracer::Tracer;
use crate::id::SESSIONS;
use crate::limits::MAX_WORKERS;

/// A trace by `workers` workers: a tracer for each, in the order of their numbers, and what puts
/// their records together. `session` distinguishes it from the ones before; it counts modulo
/// [`SESSIONS`].
///
/// # Panics
/// If there are more than [`MAX_WORKERS`] workers.
pub fn session(session: u8, filter: Filter, workers: usize) -> (Vec<Box<Tracer>>, Collector) {
    assert!(workers <= MAX_WORKERS, "{workers} workers");
    let ends = (0_u8..).take(workers);
    let ends = ends.map(|worker| Tracer::new(session % SESSIONS, worker, filter));
    let (tracers, sources) = ends.unzip();
    (tracers, Collector::new(filter, sources))
}
