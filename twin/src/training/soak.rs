//! Random workloads whose thresholds follow the traffic: nothing may be lost, and no bound may be
//! left, whatever the buffer and the traffic are like.

use super::workloads::{Hosts, Kind, Workload};
use crate::scenario::Scenario;
use crate::simulation;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fmt::Write;

/// What a random workload did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Soaked {
    /// Changes of thresholds.
    pub changes: usize,
    /// Of them, those because of pauses.
    pub fallbacks: usize,
    /// Packets sent.
    pub packets: u64,
}

/// Milliseconds of a workload.
const MILLIS: u64 = 6;

/// Runs the workload of a seed. The scenario is lossless: a packet that a switch has no room for
/// fails it.
///
/// # Errors
/// A check of the twin failed, or a bound was left.
pub fn soak(seed: u64) -> Result<Soaked, String> {
    let text = scenario(&mut Pcg64Mcg::new(u128::from(seed) << 64 | 0xec));
    let parsed = Scenario::parse(&text, "aiecn", &|file| Err(format!("no {file}")));
    let failed = |what: String| format!("seed {seed}: {what}\n{text}");
    let scenario = parsed.map_err(|it| failed(format!("line {}: {}", it.line, it.reason)))?;
    let outcome = simulation::run(&scenario, seed).map_err(|it| failed(it.to_string()))?;
    let violations: u64 = outcome.tuned.iter().map(|it| it.violations).sum();
    let lost: u64 = outcome.totals.switch_drops.values().sum();
    if violations > 0 || lost > 0 {
        return Err(failed(format!(
            "{violations} intervals with thresholds outside of their bounds, {lost} packets lost"
        )));
    }
    let changes = || outcome.tuned.iter().flat_map(|it| &it.changes);
    Ok(Soaked {
        changes: changes().count(),
        fallbacks: changes()
            .filter(|(_, it)| it.why == switchd::insight::ecn::Why::Paused)
            .count(),
        packets: outcome.totals.data_packets,
    })
}

fn scenario(random: &mut Pcg64Mcg) -> String {
    let mut pick = |count: usize| {
        let product = u64::from(random.next_u32()) * count as u64;
        usize::try_from(product >> 32).expect("below count")
    };
    let senders = 2 + pick(20);
    let gbps = [10, 25, 40, 100][pick(4)];
    let delay = [500, 1000, 3000][pick(3)];
    let hosts = [Hosts::Dctcp, Hosts::Dcqcn][pick(2)];
    let kind = match pick(3) {
        0 => Kind::Writers,
        1 => Kind::Mixed([0.1, 0.3][pick(2)]),
        _ => Kind::Step(1 + pick(senders)),
    };
    let workload = Workload::new(kind, senders, hosts, (gbps, delay));
    let bdp = gbps * 1500;
    // Groups that pause early or late, at fixed thresholds or at a part of what is free.
    let group = match pick(2) {
        0 => {
            let xoff = bdp * [1, 2, 8][pick(3)];
            format!("xoff_bytes = {xoff}\nxon_bytes = {}", xoff / 2)
        }
        _ => format!(
            "dynamic_th = {}\nxon_offset_bytes = 9000",
            [-4, -2, 0][pick(3)]
        ),
    };
    let kmax = bdp * [1, 2, 6][pick(3)] / 8;
    let mut text = format!(
        "poll = \"500ns\"\nsample = \"100us\"\nduration = \"60s\"\nlossless = true\n\
         [topology]\nkind = \"star\"\nhosts = {}\nspeed = \"{gbps}Gbps\"\ndelay = \"{delay}ns\"\n\
         [qos.buffer]\nsize_bytes = {}\n\
         [qos.flow_control]\nmode = \"pfc\"\n\
         [qos.headroom]\ncable_metres = 700\npoll_gap_microseconds = 1\n\
         [[qos.group]]\ngroups = [3]\n{group}\nheadroom = \"auto\"\n\
         [[qos.queue]]\nqueues = [3]\nlossless = true\n\
         [qos.queue.wred]\nmin_bytes = {}\nmax_bytes = {kmax}\n\
         [qos.aiecn]\nmode = \"ai\"\ninterval_microseconds = {}\nhold_intervals = {}\n",
        senders + 1,
        [16 << 20, 64 << 20][pick(2)],
        kmax / 4,
        [100, 200, 500][pick(3)],
        [1, 5, 20][pick(3)],
    );
    let name = ["dctcp", "dcqcn"][usize::from(hosts == Hosts::Dcqcn)];
    let _ = write!(text, "[host]\ncongestion = \"{name}\"\n");
    text.push_str(&workload.tables(MILLIS));
    text
}
