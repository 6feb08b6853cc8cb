//! Congestion signals from host to host, through the switches that ship. Each statement holds for
//! the seeds 1 to 3.

use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::run;

const SEEDS: [u64; 3] = [1, 2, 3];

fn done(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, "test", &|file| Err(format!("{file}: no files here")));
    let scenario = scenario.unwrap_or_else(|refusal| panic!("{}\n{text}", refusal.reason));
    run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Two leaves with four hosts each over four spines, all of 100 Gb/s; each host sends to another.
fn leaves(more: &str) -> String {
    format!(
        r#"
duration = "100ms"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 4
hosts_per_leaf = 4
speed = "100Gbps"
[host]
message = "1MiB"
[[workload]]
kind = "permutation"
size = "4MiB"
{more}
"#
    )
}

const SIGNALS: &str = "[csig]\nenabled = true\nwindow_microseconds = 10\n[host.csig]\n";

/// The longest completion time in nanoseconds.
fn tail(outcome: &Outcome) -> u64 {
    let classes = outcome.classes.iter();
    classes
        .map(|class| class.fct_max_ns)
        .max()
        .expect("a class")
}

/// CS-8, CS-11: every data packet has a tag, through two tiers and in both forms; what comes back
/// is never empty; and all that it costs are the bytes of the tags, less than 0.2 %.
#[test]
fn all_packets_have_tags_and_nothing_else_changes() {
    for seed in SEEDS {
        let plain = done(&leaves(""), seed);
        assert_eq!((plain.totals.tags, plain.totals.signals), (0, 0));
        for form in ["compact", "expanded"] {
            let signed = done(&leaves(&format!("{SIGNALS}form = \"{form}\"")), seed);
            let totals = &signed.totals;
            assert_eq!(totals.tags, totals.data_packets, "seed {seed}");
            assert!(totals.signals > totals.data_packets / 20, "seed {seed}");
            assert_eq!(totals.unsigned, 0, "seed {seed}");
            let longer = tail(&signed) as f64 / tail(&plain) as f64;
            eprintln!("seed {seed}, {form}: {longer:.4} times as long");
        }
    }
    // Of a packet with 4 KiB in it, with the headers of the link and all above.
    let (tag, packet) = (8.0, 4096.0 + 14.0 + 20.0 + 8.0 + 12.0 + 8.0 + 8.0 + 4.0);
    assert!(tag / packet < 0.002);
}

/// CS-9: a fabric that takes tags off carries all the same; hosts notice, and put fewer on.
#[test]
fn a_fabric_that_strips_is_noticed() {
    for seed in SEEDS {
        let strips = "[[csig.port]]\nmode = \"strip\"\n";
        let text = leaves(&SIGNALS.replace("[host.csig]", &format!("{strips}[host.csig]")));
        let totals = done(&text, seed).totals;
        assert_eq!(totals.signals, 0, "seed {seed}");
        assert!(
            totals.unsigned > 0 && totals.tags < totals.data_packets,
            "seed {seed}"
        );
    }
}
