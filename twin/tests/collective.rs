//! In-network compute in whole fabrics (SW-40 to SW-43, HT-50): switchd's engine in the switches,
//! hostd's members in the hosts, and the links, queues and faults of the twin between them.

use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::run;

fn scenario(text: &str) -> Scenario {
    let none = |file: &str| Err(format!("{file} is not there"));
    Scenario::parse(text, "collective", &none).unwrap_or_else(|error| panic!("{error:?}"))
}

fn outcome(text: &str) -> Outcome {
    let scenario = scenario(text);
    run(&scenario, scenario.seed).unwrap_or_else(|failure| panic!("{failure}"))
}

const STAR: &str = "[topology]\nkind = \"star\"\nhosts = 8\n";

fn leaf_spine(leaves: usize, spines: usize, hosts: usize) -> String {
    format!(
        "[topology]\nkind = \"leaf-spine\"\nleaves = {leaves}\nspines = {spines}\n\
         hosts_per_leaf = {hosts}\n"
    )
}

/// All members of the only job are done; the time in nanoseconds.
fn time(outcome: &Outcome) -> u64 {
    let job = &outcome.jobs[0];
    assert_eq!((job.done, job.failed), (job.members, 0), "{job:?}");
    job.time_ns.expect("it is over")
}

/// SW-40: one level, no loss: everybody has the sum, and sends and gets each chunk once.
#[test]
fn members_of_a_leaf_have_the_sum() {
    for ip in [4, 6] {
        let text = format!("{STAR}ip = {ip}\n[[job]]\nsize = \"1MiB\"\n");
        let outcome = outcome(&text);
        time(&outcome);
        let chunks = (1_u64 << 20).div_ceil(1400);
        let jobs = &outcome.totals.jobs;
        assert_eq!(jobs["sent"], 8 * chunks);
        assert_eq!(jobs["added"], 8 * chunks);
        assert_eq!(jobs["results"], 8 * chunks);
        assert_eq!(jobs.get("sent_again"), None);
        assert_eq!(jobs.get("sent_up"), None);
    }
}

/// SW-40: two levels, one tree or two: everybody has the sum, and each leaf sends each chunk up once.
#[test]
fn members_of_several_leaves_have_the_sum() {
    for (trees, deterministic, ip) in [(1, false, 4), (2, true, 6)] {
        let text = format!(
            "{}ip = {ip}\n[[job]]\nsize = \"256KiB\"\ntrees = {trees}\n\
             deterministic = {deterministic}\ncount = 3\n",
            leaf_spine(2, 2, 4)
        );
        let outcome = outcome(&text);
        time(&outcome);
        let chunks = 3 * (256_u64 << 10).div_ceil(1400);
        let jobs = &outcome.totals.jobs;
        assert_eq!(jobs["sent"], 8 * chunks);
        assert_eq!(jobs["sent_up"], 2 * chunks);
        assert_eq!(jobs.get("sent_up_again"), None);
        assert_eq!(outcome.jobs[0].trees, trees);
    }
}

/// SW-40: the uplinks of leaves carry little more than the vector, however many members there are,
/// and a small collective takes as long for 64 members as for 4: as many exchanges as levels.
#[test]
fn exchanges_are_levels() {
    let mut times = Vec::new();
    for hosts in [2, 8, 32] {
        let text = |size| {
            let fabric = leaf_spine(2, 1, hosts);
            format!("{fabric}[[job]]\nsize = \"{size}\"\ncollective = \"allreduce\"\n")
        };
        let large = outcome(&text("1MiB"));
        let per_leaf = large.totals.jobs["uplink_bytes"] / 2;
        assert!(per_leaf * 10 <= 11 << 20, "{hosts}: {per_leaf} bytes");
        let small = outcome(&text("1024B"));
        let jobs = &small.totals.jobs;
        assert_eq!((jobs["sent"], jobs["sent_up"]), (2 * hosts as u64, 2));
        times.push(time(&small));
    }
    assert!(times[2] * 10 <= times[0] * 13, "{times:?}");
}
