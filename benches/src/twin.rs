//! The twin: packet-hops a second on one core, over the number of hosts.
//!
//! A permutation on fat trees of 16, 128 and 1,024 hosts, all links at 400 Gb/s, virtual payload. Counted is what happens after
//! all applications are connected, in processor time of this thread.

use crate::measure::{Series, busy_time, print_ratios};
use std::time::Duration;
use twin::scenario::Scenario;
use twin::simulation::{Standing, run_watched};

const ROUNDS: usize = 3;

/// Ports of the switches, and bytes that each host sends: about the same work for each size.
const SIZES: [(&str, u32, &str); 3] = [
    ("16 hosts", 4, "100MB"),
    ("128 hosts", 8, "24MB"),
    ("1024 hosts", 16, "8MB"),
];

fn scenario(k: u32, size: &str) -> Result<Scenario, String> {
    let text = format!(
        "poll = \"1us\"\nsample = \"1ms\"\n[host]\nwindow = 128\n[topology]\nkind = \"fat-tree\"\nk = {k}\n\
         speed = \"400Gbps\"\nfabric_speed = \"400Gbps\"\n\
         [[workload]]\nkind = \"permutation\"\nsize = \"{size}\"\n"
    );
    let none = |file: &str| Err(format!("{file}: no files here"));
    Scenario::parse(&text, "bench", &none).map_err(|refusal| refusal.reason)
}

/// Millions of packet-hops a second.
fn speed(scenario: &Scenario) -> Result<f64, String> {
    let mut begin: Option<(u64, Duration)> = None;
    let mut watch = |standing: Standing| {
        if standing.since.is_some() {
            begin.get_or_insert_with(|| (standing.hops, busy_time()));
        }
    };
    let outcome = run_watched(scenario, 1, &mut watch).map_err(|failure| failure.to_string())?;
    let (hops, since) = begin.ok_or("the run was too short to be measured")?;
    let spent = busy_time() - since;
    #[expect(clippy::cast_precision_loss, reason = "a figure to show")]
    let hops = (outcome.hops - hops) as f64;
    Ok(hops / spent.as_secs_f64() / 1e6)
}

/// Prints millions of packet-hops a second for each size, beside those of the smallest fabric.
pub fn bench() -> Result<(), String> {
    let mut series = SIZES.map(|(name, ..)| Series::new(name));
    for _ in 0..ROUNDS {
        for (one, (_, k, size)) in series.iter_mut().zip(SIZES) {
            one.rounds.push(speed(&scenario(k, size)?)?);
        }
    }
    print_ratios("twin: millions of packet-hops a second", "M/s", &series);
    Ok(())
}
