//! Metrics of congestion signals and telemetry. They appear once ports know such.

use crate::control::state::State;
use common::metrics::Families;
use common::time::Time;

impl State {
    pub(super) fn scrape_csig(&self, families: &mut Families, now: Time) {
        let rows = self.csig_rows(now);
        let help = "Bandwidth that the port has available, as it writes it in CSIG tags, in bytes per second.";
        let mut family = families.gauge("switchd_csig_available_bytes", help);
        for row in &rows {
            if let Some(bits) = row.available {
                family.add(&[("port", &row.port)], bits / 8);
            }
        }
        let help = "The same as a share of the capacity of the port, from 0 to 1.";
        let mut family = families.gauge("switchd_csig_available_ratio", help);
        for row in &rows {
            if let Some(percent) = row.available_percent {
                family.add_f64(&[("port", &row.port)], percent / 100.0);
            }
        }
        let help = "Packets with CSIG tags that left by the port, by what became of the tag.";
        let mut family = families.counter("switchd_csig_tags_total", help);
        for row in &rows {
            for (outcome, count) in &row.tags {
                family.add(&[("port", &row.port), ("outcome", outcome)], *count);
            }
        }
        let help = "Packets with INT tags that left by the port, by what became of the tag.";
        let mut family = families.counter("switchd_int_tags_total", help);
        for row in self.int_rows() {
            for (outcome, count) in &row.tags {
                family.add(&[("port", &row.port), ("outcome", outcome)], *count);
            }
        }
    }
}
