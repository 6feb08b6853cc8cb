//! Metrics of in-network compute. They appear once it is on.

use crate::control::state::State;
use crate::stats::ComputeStats;
use common::metrics::Families;
use common::sync::counter::Counter;
use common::wire::compute::Reason;

type OfCompute = (&'static str, &'static str, fn(&ComputeStats) -> &Counter);

const COUNTERS: [OfCompute; 14] = [
    (
        "switchd_compute_messages_total",
        "Messages of jobs that were taken.",
        |it| &it.taken,
    ),
    (
        "switchd_compute_contributions_total",
        "Vectors of members that were added.",
        |it| &it.contributions,
    ),
    (
        "switchd_compute_contributed_bytes_total",
        "Bytes of these vectors.",
        |it| &it.bytes,
    ),
    (
        "switchd_compute_duplicates_total",
        "Contributions that were in already.",
        |it| &it.duplicates,
    ),
    (
        "switchd_compute_retransmissions_total",
        "Contributions that their members had sent before.",
        |it| &it.retransmissions,
    ),
    (
        "switchd_compute_completed_total",
        "Chunks of collectives whose result is complete.",
        |it| &it.completed,
    ),
    (
        "switchd_compute_results_total",
        "Results that were sent to members, also those that were sent again.",
        |it| &it.results,
    ),
    (
        "switchd_compute_served_again_total",
        "Results that were sent again because a member asked again.",
        |it| &it.served_again,
    ),
    (
        "switchd_compute_partial_results_total",
        "Answers to members that asked again before all contributions were in.",
        |it| &it.partials,
    ),
    (
        "switchd_compute_asked_total",
        "Contributions that members were asked for because they were lost.",
        |it| &it.asked,
    ),
    (
        "switchd_compute_sent_up_total",
        "Contributions that were sent to switches above.",
        |it| &it.sent_up,
    ),
    (
        "switchd_compute_sent_up_again_total",
        "Those of them that were sent again.",
        |it| &it.sent_up_again,
    ),
    (
        "switchd_compute_unsent_total",
        "Messages that could not be sent because no frame was free.",
        |it| &it.unsent,
    ),
    (
        "switchd_compute_untold_total",
        "Events of jobs that were left out because there were too many.",
        |it| &it.untold,
    ),
];

const GAUGES: [OfCompute; 4] = [
    (
        "switchd_compute_jobs",
        "Jobs that are reserved, form or run.",
        |it| &it.jobs,
    ),
    (
        "switchd_compute_slots_open",
        "Versions of slots that are in use.",
        |it| &it.slots_open,
    ),
    (
        "switchd_compute_memory_bytes",
        "Bytes that jobs take.",
        |it| &it.memory,
    ),
    (
        "switchd_compute_waiting_messages",
        "Messages that wait for the share of their job.",
        |it| &it.waiting,
    ),
];

impl State {
    pub(super) fn scrape_compute(&self, families: &mut Families) {
        if !self.active.config.compute.enabled {
            return;
        }
        let sum = |of: &dyn Fn(&ComputeStats) -> u64| -> u64 {
            self.workers.iter().map(|it| of(&it.stats.compute)).sum()
        };
        for (name, help, of) in COUNTERS {
            families
                .counter(name, help)
                .add(&[], sum(&|it| of(it).get()));
        }
        for (name, help, of) in GAUGES {
            families.gauge(name, help).add(&[], sum(&|it| of(it).get()));
        }
        let help = "Members and jobs that were refused, by reason.";
        let mut family = families.counter("switchd_compute_refused_total", help);
        for reason in Reason::ALL {
            let count = sum(&|it| it.refused[reason as usize].get());
            family.add(&[("reason", reason.label())], count);
        }
        let help = "Jobs that ran and are over, by reason.";
        let mut family = families.counter("switchd_compute_ended_total", help);
        for reason in Reason::ALL {
            let count = sum(&|it| it.ended[reason as usize].get());
            family.add(&[("reason", reason.label())], count);
        }
    }
}
