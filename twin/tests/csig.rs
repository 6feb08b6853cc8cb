//! Congestion signals from host to host, through the switches that ship. Each statement holds for
//! the seeds 1 to 3.

use common::csig::Delay;
use common::time::Time;
use common::wire::csig::{Form, Kind, Tag, Tpids, walk};
use std::collections::BTreeMap;
use twin::fabric::Tapped;
use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::{run, run_tapped};

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

/// Of what each node sent of each packet with a tag, in order: the key is what no node changes,
/// from the UDP header on.
type Journeys<'a> = BTreeMap<&'a [u8], Vec<(&'a Tapped, Tag)>>;

fn journeys(tapped: &[Tapped], form: Form) -> Journeys<'_> {
    let mut journeys = Journeys::new();
    for it in tapped {
        let walked = walk(&it.bytes, Tpids::default()).expect("whole tags");
        let Some((kind, at)) = walked.signal else {
            continue;
        };
        assert_eq!(kind, Kind::Csig(form));
        let tag = Tag::read(form, &it.bytes[at..]).expect("a whole tag");
        let ip = walked.stack.payload_at;
        journeys
            .entry(&it.bytes[ip + 20..])
            .or_default()
            .push((it, tag));
    }
    journeys
}

/// CS-5: the delay in the tag of every packet is, behind every switch, the longest time from the
/// moment in which a switch had all of it to that in which the switch handed it to the next device,
/// by the twin's own clock, which switches read in steps of 16 ns: exactly that in an expanded tag,
/// its bucket in a compact one. Where switches look at their ports each microsecond, what a packet
/// waited for that is not in it.
#[test]
fn delays_are_the_times_in_the_switches() {
    let network =
        "kind = \"leaf-spine\"\nleaves = 2\nspines = 1\nhosts_per_leaf = 3\nspeed = \"100Gbps\"\n";
    let room = "[qos]\nqueue_depth_bytes = 8000000\n[qos.buffer]\nsize_bytes = 67108864\n";
    let lows = Delay::default().buckets_microseconds;
    // How often switches look, and how late they see a packet at most, in steps.
    for (seed, (poll, late)) in SEEDS.into_iter().zip([(0, 0), (0, 0), (1000, 1016)]) {
        for (form, name) in [(Form::Expanded, "expanded"), (Form::Compact, "compact")] {
            let text = format!(
                "poll = \"{poll}ns\"\n[topology]\n{network}{room}\
                 [csig]\nenabled = true\n[csig.delay]\nunit_nanoseconds = 1\n\
                 [host]\nmessage = \"64KiB\"\n[host.csig]\nform = \"{name}\"\nsignals = [\"delay\"]\n\
                 [[workload]]\nkind = \"incast\"\ntarget = \"h1\"\nsize = \"256KiB\"\n"
            );
            let scenario = Scenario::parse(&text, "delays", &|file| Err(format!("no {file}")));
            let scenario = scenario.unwrap_or_else(|it| panic!("{}\n{text}", it.reason));
            let (outcome, tapped) = run_tapped(&scenario, seed).expect("all checks pass");
            assert_eq!(outcome.totals.retransmits, 0, "seed {seed}");
            let written = |nanos: u64| match form {
                Form::Expanded => nanos,
                Form::Compact => lows.partition_point(|low| low * 1000 <= nanos) as u64 - 1,
            };
            let journeys = journeys(&tapped, form);
            assert_eq!(journeys.len() as u64, outcome.totals.tags);
            let (mut hops, mut waited) = (0, 0);
            for journey in journeys.values() {
                assert_eq!(journey[0].1.value, 0, "a host begins with nothing");
                for pair in journey.windows(2) {
                    let [(before, old), (after, new)] = pair else {
                        unreachable!("two");
                    };
                    let step = |at: Time| at.nanos() / 16 * 16;
                    let wait = step(after.sent) - step(before.arrives);
                    let [most, least] = [wait, wait.saturating_sub(late)]
                        .map(|wait| written(wait).max(old.value.into()));
                    let found = u64::from(new.value);
                    assert!(
                        (least..=most).contains(&found),
                        "seed {seed}, {name}, poll {poll} ns: {found} after {wait} ns, {old:?}"
                    );
                    hops += 1;
                    waited += u32::from(new.value > old.value);
                }
            }
            println!(
                "seed {seed}, {name}, poll {poll} ns: {hops} hops, at {waited} the longest wait"
            );
            // Two of the senders are behind the same leaf as the receiver.
            assert_eq!(hops, 64 * (2 + 3 * 3));
            assert!(waited > 100, "{waited}");
        }
    }
}
