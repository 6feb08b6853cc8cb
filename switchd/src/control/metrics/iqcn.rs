//! Metrics of congestion notifications that senders miss. They appear once the switch makes any.

use crate::control::state::State;
use crate::iqcn::Counters;
use common::metrics::Families;

type OfIqcn = (&'static str, &'static str, fn(&Counters) -> u64);

const COUNTERS: [OfIqcn; 5] = [
    (
        "switchd_iqcn_passed_total",
        "Congestion notifications that passed, of flows that are known.",
        |it| it.passed.get(),
    ),
    (
        "switchd_iqcn_passed_unknown_total",
        "Congestion notifications that passed, of other flows.",
        |it| it.passed_unknown.get(),
    ),
    (
        "switchd_iqcn_unknown_packets_total",
        "Packets that found their queue congested, of flows whose sender's queue pair is not known.",
        |it| it.unknown.get(),
    ),
    (
        "switchd_iqcn_limited_total",
        "Times that one was missing but the turn had made enough.",
        |it| it.limited.get(),
    ),
    (
        "switchd_iqcn_no_frame_total",
        "Congestion notifications that were not made because no frame was free.",
        |it| it.no_frame.get(),
    ),
];

impl State {
    pub(super) fn scrape_iqcn(&self, families: &mut Families) {
        let Some(keeper) = &self.iqcn else { return };
        for (name, help, count) in COUNTERS {
            families.counter(name, help).add(&[], keeper.counted(count));
        }
        let help = "Flows that found no room in the table.";
        families
            .counter("switchd_iqcn_table_full_flows_total", help)
            .add(&[], keeper.full());
        let (used, room) = keeper.used();
        let help = "Directions of flows for which notifications can be made.";
        families
            .gauge("switchd_iqcn_directions", help)
            .add(&[], used as u64);
        let help = "Directions of flows for which there is room.";
        families
            .gauge("switchd_iqcn_directions_limit", help)
            .add(&[], room as u64);
    }
}
