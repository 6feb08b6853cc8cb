//! Metrics of marking thresholds that follow the traffic. They appear once they do, or could.

use crate::control::api::AiEcnRow;
use crate::control::state::State;
use common::metrics::Families;
use common::time::Time;

type OfRow = (&'static str, &'static str, fn(&AiEcnRow) -> u64);

const GAUGES: [OfRow; 2] = [
    (
        "switchd_aiecn_min_bytes",
        "Depth from which the queue marks, as AI ECN has set it.",
        |row| row.in_force.min_bytes.into(),
    ),
    (
        "switchd_aiecn_max_bytes",
        "Depth from which the queue marks all packets, as AI ECN has set it.",
        |row| row.in_force.max_bytes.into(),
    ),
];

const COUNTERS: [OfRow; 2] = [
    (
        "switchd_aiecn_changes_total",
        "Changes of the marking thresholds of the queue by AI ECN.",
        |row| row.changes,
    ),
    (
        "switchd_aiecn_fallbacks_total",
        "Those of them that brought the configured thresholds back, because of pauses or losses.",
        |row| row.fallbacks,
    ),
];

impl State {
    pub(super) fn scrape_aiecn(&self, families: &mut Families, now: Time) {
        let rows = self.aiecn_report(now).queues;
        let of = |row: &AiEcnRow| (row.port.clone(), row.queue.to_string());
        for (name, help, value) in GAUGES {
            let mut family = families.gauge(name, help);
            for row in &rows {
                let (port, queue) = of(row);
                family.add(&[("port", &port), ("queue", &queue)], value(row));
            }
        }
        for (name, help, value) in COUNTERS {
            let mut family = families.counter(name, help);
            for row in &rows {
                let (port, queue) = of(row);
                family.add(&[("port", &port), ("queue", &queue)], value(row));
            }
        }
    }
}
