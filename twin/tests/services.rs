//! Delivery services in the twin (HT-39): messages beside lost ones. Each statement holds for the
//! seeds 1 to 3.

use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::run;

const SEEDS: [u64; 3] = [1, 2, 3];

fn done(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, "test", &|file| Err(format!("{file}: no files here")));
    let scenario = scenario.unwrap_or_else(|refusal| panic!("{}\n{text}", refusal.reason));
    run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Two hosts over two leaves and four spines of 100 Gb/s; one sends messages of this size to the
/// other over one connection, at random times, and each of the four links on the way loses this
/// part of the packets, in both directions.
fn messages(service: &str, size: &str, loss: f64) -> String {
    format!(
        r#"
duration = "1s"
payload = "carried"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 4
hosts_per_leaf = 1
speed = "100Gbps"
[host]
service = "{service}"
message = "{size}"
[[workload]]
kind = "poisson"
target = "h2"
size = "{size}"
load = 0.2
count = 4000
[[fault]]
kind = "impairment"
link = "*"
loss = {loss}
"#
    )
}

/// How many times shorter the completion times without an order are that 50, 99 and 99.9 of 100
/// messages do not exceed.
fn gained(size: &str, loss: f64, seed: u64) -> [f64; 3] {
    let times = ["ordered", "unordered"].map(|service| {
        let outcome = done(&messages(service, size, loss), seed);
        assert!(outcome.totals.retransmits > 5, "nothing was lost");
        let class = &outcome.classes[0];
        assert_eq!((class.completed, class.aborted), (4000, 0));
        [class.fct_p50_ns, class.fct_p99_ns, class.fct_p999_ns]
    });
    eprintln!("seed {seed}, {size}, {loss}: {times:?} ns");
    let [ordered, unordered] = times;
    // Who lost nothing does not wait for who did.
    let alone = 2 * unordered[1] < 3 * unordered[0];
    assert!(alone || size != "4KiB", "seed {seed}: {times:?}");
    std::array::from_fn(|n| ordered[n] as f64 / unordered[n] as f64)
}

/// HT-39: a lost packet keeps all messages behind it from those who want them in order. Where each
/// comes as it is whole, it keeps its own: 99 of 100 messages of one packet, and of four, come
/// sooner if some are lost.
#[test]
fn lost_packets_delay_their_own_message_only() {
    for seed in SEEDS {
        let short = gained("4KiB", 0.00125, seed);
        let long = gained("16KiB", 0.0025, seed);
        eprintln!("seed {seed}: {short:.2?}, {long:.2?} times shorter");
        assert!(short[1] > 3.0 && short[2] > 0.9, "seed {seed}: {short:?}");
        assert!(long[1] > 1.1 && long[2] > 0.9, "seed {seed}: {long:?}");
    }
}
