//! In-network compute in whole fabrics (SW-40 to SW-43, HT-50): switchd's engine in the switches,
//! hostd's members in the hosts, and the links, queues and faults of the twin between them.

use std::sync::atomic::AtomicBool;
use twin::collective::soak::Soak;
use twin::outcome::Outcome;
use twin::report;
use twin::scenario::Scenario;
use twin::simulation::run;
use twin::snapshot;
use twin::soak::Stop;

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

/// SW-40: two levels, one tree or two: everybody has the sum, and each leaf sends each chunk up
/// once.
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

/// 16 hosts in four pods, each with two leaves and two switches above them, and two more above each
/// of those.
const PODS: &str = "[topology]\nkind = \"fat-tree\"\nk = 4\n";

/// SW-40: three levels by the same state machine, one tree or two at each: everybody has the sum,
/// each leaf sends each chunk up once, and each pod does, so uplinks carry the vector once at
/// either level.
#[test]
fn members_of_several_pods_have_the_sum() {
    for (trees, deterministic, ip) in [(1, false, 4), (2, true, 6)] {
        let text = format!(
            "{PODS}ip = {ip}\n[[job]]\nsize = \"256KiB\"\ntrees = {trees}\n\
             deterministic = {deterministic}\ncount = 3\n"
        );
        let outcome = outcome(&text);
        time(&outcome);
        let chunks = 3 * (256_u64 << 10).div_ceil(1400);
        let jobs = &outcome.totals.jobs;
        assert_eq!(jobs["sent"], 16 * chunks);
        assert_eq!(jobs["sent_up"], 8 * chunks + 4 * chunks);
        assert_eq!(jobs.get("sent_up_again"), None);
        assert_eq!(outcome.jobs[0].trees, trees);
        for (uplinks, of) in [("uplink_bytes", 8), ("farther_up_bytes", 4)] {
            let each = jobs[uplinks] / of;
            assert!(each * 10 <= 11 * 3 * (256 << 10), "{uplinks}: {each}");
        }
    }
}

/// SW-40: a small collective takes as many exchanges as there are levels: each adds as much as the
/// one before, and more members add next to nothing.
#[test]
fn each_level_is_one_exchange() {
    let small = "[[job]]\nsize = \"1024B\"\n";
    let star = format!("{STAR}{small}");
    let two = format!("{}{small}", leaf_spine(2, 1, 4));
    let many = format!("[topology]\nkind = \"fat-tree\"\nk = 8\n{small}");
    let three = format!("{PODS}{small}");
    let [one, two, three, many] = [star, two, three, many].map(|text| time(&outcome(&text)));
    println!("{one}, {two}, {three} ns at one to three levels, {many} with 128 members");
    let level = two - one;
    assert!((three - two) * 10 <= level * 13, "{one} {two} {three}");
    assert!(many * 10 <= three * 13, "{three} {many}");
}

/// SW-42: with three levels a host that dies is named to all others, in its own pod and elsewhere,
/// within three seconds; for a switch nobody is.
#[test]
fn with_three_levels_all_are_told_the_same() {
    for (node, error) in [
        ("h6", "member_lost (rank 5)"),
        ("edge3", "member_lost"),
        ("aggr3", "parent_lost"),
        ("core1", "parent_lost"),
    ] {
        let text = format!(
            "{PODS}[[job]]\nsize = \"4MiB\"\ncount = 12\ntrees = 2\n\
             [[fault]]\nkind = \"crash\"\nnode = \"{node}\"\nfrom = \"2ms\"\n"
        );
        let outcome = outcome(&text);
        let job = &outcome.jobs[0];
        assert_eq!(job.done, 0, "{node}: {job:?}");
        assert!(job.error.split(", ").any(|it| it == error), "{job:?}");
        assert!(job.time_ns.is_some_and(|it| it < 5_000_000_000), "{job:?}");
        if node == "h6" {
            assert_eq!((job.failed, job.died, &job.error[..]), (15, 1, error));
            assert!(job.time_ns.is_some_and(|it| it < 3_000_000_000), "{job:?}");
        }
    }
}

/// SW-42: what is lost is noticed by what comes after it. Of 48 members each chunk lacks somebody's
/// contribution or result, and yet only what is lost twice, and the end, wait for time-outs; so
/// does joining, which is repeated each tenth of a second.
#[test]
fn few_losses_wait_for_time_outs() {
    let two = leaf_spine(4, 2, 4);
    let star = "[topology]\nkind = \"star\"\nhosts = 16\n".to_owned();
    for (fabric, trees, loss, most) in [
        (&star, 1, 0.01, 20_000_000),
        (&star, 1, 0.05, 300_000_000),
        (&two, 2, 0.05, 500_000_000),
    ] {
        let text = format!(
            "{fabric}[[job]]\nmembers = 3\nsize = \"256KiB\"\ntrees = {trees}\n\
             [[fault]]\nkind = \"impairment\"\nlink = \"*\"\nloss = {loss}\n"
        );
        let took = time(&outcome(&text));
        println!("{loss} is lost: {took} ns");
        assert!(took < most, "{took} ns with {loss}");
    }
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok().and_then(|it| it.parse().ok());
    set.unwrap_or(default)
}

/// SW-42: random jobs, two to eight at once, with loss, duplicates, reordering and deaths: every
/// member ends with the right result or the same named error, and nothing is left. `TWIN_JOBS`
/// says how many, `TWIN_SEED` where they begin, `TWIN_LONGEST` how long vectors are; `fabric twin
/// soak --jobs` runs more, with longer vectors.
#[test]
fn random_jobs_end_with_the_right_result_or_a_named_error() {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let soak = Soak {
        first: number("TWIN_SEED", 1),
        stop: Stop {
            count: number("TWIN_JOBS", 250),
            time: None,
            flag: &NEVER,
        },
        longest: u32::try_from(number("TWIN_LONGEST", 16 << 10)).expect("a length"),
    };
    let done = soak.run(&mut |done| println!("seed {}: {}", done.seed, done.about));
    let done = done.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{done:?}");
    let [done_members, failed, died] = done.members;
    assert!(done_members > failed && failed > 0 && died > 0, "{done:?}");
    assert!(done.sent_again > 0 && done.came_twice > 0, "{done:?}");
}

/// SW-42: a broken packet may name a sender to whom there is no way. The error about the answer to
/// it leaves in the same turn, and is counted: it lay where the next turn's errors lie.
#[test]
fn errors_about_answers_leave_at_once() {
    let scenario = twin::collective::soak::scenario(1194, 16 << 10);
    run(&scenario, 1194).unwrap_or_else(|failure| panic!("{failure}"));
}

/// SW-42: a bit of the port from which a member asks first turns on its way: the rank is still its
/// own when it asks again.
#[test]
fn a_broken_port_takes_no_rank() {
    let scenario = twin::collective::soak::scenario(206, 16 << 10);
    let outcome = run(&scenario, 206).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(outcome.totals.switch_drops["compute_checksum"] > 0);
    for job in &outcome.jobs {
        assert_eq!(job.done, job.members, "{job:?}");
    }
}

/// SW-42: a host that dies is named to all others, at both levels, within three seconds, and those
/// of another job go on.
#[test]
fn a_dead_host_is_named_to_all() {
    let text = format!(
        "{}[[job]]\nname = \"hit\"\nsize = \"4MiB\"\ncount = 64\ntrees = 2\n\
         [[job]]\nname = \"other\"\nhosts = [\"h1\", \"h2\", \"h4\"]\nsize = \"1MiB\"\n\
         [[fault]]\nkind = \"crash\"\nnode = \"h3\"\nfrom = \"2ms\"\n",
        leaf_spine(2, 2, 2)
    );
    let outcome = outcome(&text);
    let [hit, other] = &outcome.jobs[..] else {
        panic!("two jobs");
    };
    assert_eq!((hit.done, hit.failed, hit.died), (0, 3, 1), "{hit:?}");
    assert_eq!(hit.error, "member_lost (rank 2)");
    assert!(hit.time_ns.is_some_and(|it| it < 3_000_000_000), "{hit:?}");
    assert_eq!((other.done, other.failed), (3, 0), "{other:?}");
}

/// SW-42: when a switch is started anew in the middle, or stays dead, all members are told within
/// five seconds.
#[test]
fn a_lost_switch_is_told() {
    for (node, until) in [
        ("leaf1", "20ms"),
        ("leaf1", "8s"),
        ("spine1", "20ms"),
        ("spine2", "8s"),
    ] {
        let text = format!(
            "{}[[job]]\nsize = \"4MiB\"\ncount = 64\ntrees = 2\n\
             [[fault]]\nkind = \"crash\"\nnode = \"{node}\"\nfrom = \"2ms\"\nuntil = \"{until}\"\n",
            leaf_spine(2, 2, 2)
        );
        let outcome = outcome(&text);
        let job = &outcome.jobs[0];
        assert_eq!((job.done, job.failed), (0, 4), "{node}: {job:?}");
        assert!(job.time_ns.is_some_and(|it| it < 5_000_000_000), "{job:?}");
    }
}

/// SW-40, HT-50: with machines of their own, eight members at 100 Gb/s are done in at most two
/// thirds of the time of the ring that hostd's connections make, from 1 to 16 MiB.
#[test]
fn jobs_are_faster_than_the_ring() {
    for size in ["1MiB", "16MiB"] {
        let job = outcome(&format!("{STAR}[[job]]\nsize = \"{size}\"\n"));
        let text = format!("{STAR}[[workload]]\nkind = \"ring-allreduce\"\nsize = \"{size}\"\n");
        let ring = outcome(&text).duration_ns;
        let job = time(&job);
        println!("{size}: {job} ns, {ring} ns by the ring");
        assert!(
            3 * job <= 2 * ring,
            "{size}: {job} ns, {ring} ns by the ring"
        );
    }
}

/// SW-42: two jobs of the same members have the same share, within a fifth.
#[test]
fn two_jobs_share() {
    let job = "[[job]]\nsize = \"8MiB\"\n";
    let both = outcome(&format!("{STAR}{job}{job}"));
    let times: Vec<_> = both.jobs.iter().filter_map(|it| it.time_ns).collect();
    let alone = time(&outcome(&format!("{STAR}{job}")));
    println!("{times:?}, {alone} alone");
    let [one, other] = times[..] else {
        panic!("{:?}", both.jobs);
    };
    assert!(one.abs_diff(other) * 5 <= one.max(other), "{times:?}");
    // They do share: each has half of what one has alone.
    assert!(
        one.min(other) * 10 >= alone * 16,
        "{times:?}, {alone} alone"
    );
}

/// SW-42: flows beside a job that saturates the link of their receiver keep nine tenths of their
/// rate in their class, which is the higher one as shipped.
#[test]
fn forwarding_keeps_its_share() {
    let flow = "[[workload]]\nkind = \"incast\"\nhosts = [\"h1\", \"h7\", \"h8\"]\ntarget = \"h1\"\n\
                size = \"8MB\"\n";
    let job = "[[job]]\nhosts = [\"h1..h4\"]\nsize = \"32MiB\"\n";
    let longest = |text: &str| outcome(text).classes[0].fct_max_ns;
    let (alone, beside) = (
        longest(&format!("{STAR}{flow}")),
        longest(&format!("{STAR}{job}{flow}")),
    );
    println!("{alone} ns alone, {beside} ns beside a job");
    assert!(
        beside * 9 <= alone * 10,
        "{alone} ns alone, {beside} ns beside"
    );
}

/// SW-42: where the results of a job are in the class of the flows, as an operator may have them,
/// it takes no more than another flow would: each flow keeps nine tenths of its share beside one.
#[test]
fn a_job_is_one_among_the_flows_of_its_class() {
    let flow = "[[workload]]\nkind = \"incast\"\nhosts = [\"h1\", \"h7\", \"h8\"]\ntarget = \"h1\"\n\
                size = \"8MB\"\n";
    let job = "[compute]\ndscp = 26\n[[job]]\nhosts = [\"h1..h4\"]\nsize = \"32MiB\"\n";
    let longest = |text: &str| outcome(text).classes[0].fct_max_ns;
    let (alone, beside) = (
        longest(&format!("{STAR}{flow}")),
        longest(&format!("{STAR}{job}{flow}")),
    );
    println!("{alone} ns alone, {beside} ns beside a job in the class");
    // Two flows alone have a half each, beside the job a third.
    assert!(
        beside * 2 * 9 <= alone * 3 * 10,
        "{alone} ns alone, {beside} ns beside"
    );
}

/// SW-40, SW-41, SW-42: the shipped scenarios with jobs end as their names say.
#[test]
fn shipped_jobs_end_as_they_should() {
    let run_file = |name: &str| {
        let scenario = Scenario::load(&snapshot::scenarios().join(name)).expect("a scenario");
        let outcome = run(&scenario, scenario.seed).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{}", report::summary(&outcome));
        outcome.jobs
    };
    let both = run_file("jobs-two-levels.toml");
    assert!(both.iter().all(|it| it.done == it.members), "{both:?}");
    let hit = run_file("jobs-dead-host.toml");
    let ends = hit.iter().map(|it| (it.done, it.failed, it.died));
    assert_eq!(ends.collect::<Vec<_>>(), [(0, 7, 1), (3, 0, 0)]);
}
