//! Elephants and mice in the twin (SW-17): what moving elephants to a lower queue is worth to the
//! mice of a lossless class, and that it costs neither order nor packets nor the peer's pauses;
//! between testers at the speed of the line, and as completion times of hosts.

use common::time::Span;
use common::units::Rate;
use std::sync::Arc;
use switchd::config::Qos;
use switchd::stats::{ElephantRow, QueueStats};
use twin::bench::{Bench, StreamId, micros};
use twin::lossless::star;
use twin::outcome::{ClassFigures, Outcome};
use twin::scenario::Scenario;
use twin::simulation::run;
use twin::snapshot;
use twin::tester::{Bursts, Sizes, Stream};

/// Class 3 is lossless, and so is queue 1, which its elephants go to if there is `more` to say so.
fn qos(more: &str) -> Arc<Qos> {
    let text = format!(
        r#"
[buffer]
size_bytes = 67108864
[headroom]
cable_metres = 100
poll_gap_microseconds = 1
[flow_control]
mode = "pfc"
[[group]]
groups = [3]
xoff_bytes = 400000
xon_bytes = 300000
headroom = "auto"
[class_of_priority]
1 = 0
[[queue]]
queues = [1, 3]
lossless = true
{more}
"#
    );
    Arc::new(toml::from_str(&text).expect("a configuration"))
}

fn elephants(moves: &str) -> String {
    format!(
        r#"
[[elephants]]
from = 3
to = 1
bytes = 30000
rate = "1Gbps"
ageing_milliseconds = 1
moves = "{moves}"
"#
    )
}

/// Elephants from testers 1 and 2 fill the way to tester 0, those of tester 2 with pauses in which
/// they age; mice come from tester 3, and from tester 1 together with elephants.
struct Herd {
    bench: Bench,
    elephants: Vec<StreamId>,
    /// Of tester 3, which is never paused.
    mice: StreamId,
    others: StreamId,
}

impl Herd {
    fn new(qos: Arc<Qos>) -> Self {
        let mut bench = Bench::new(star(4, qos));
        let lossless = Stream {
            dscp: 24,
            ..Stream::to(0)
        };
        let mice = Stream {
            from_ports: (0xd000..0xd040).collect(),
            sizes: Sizes::Fixed(512),
            rate: Some(Rate::from_gbps(1)),
            ..lossless.clone()
        };
        let steady = Stream {
            from_ports: vec![0xc000, 0xc001],
            ..lossless.clone()
        };
        let pausing = Stream {
            from_ports: vec![0xc002],
            bursts: Some(Bursts {
                packets: 400,
                gap: Span::from_micros(1100),
            }),
            ..lossless.clone()
        };
        let steady_too = Stream {
            from_ports: vec![0xc003],
            rate: Some(Rate::from_gbps(30)),
            ..lossless
        };
        let elephants = [(1, steady), (2, pausing), (2, steady_too)];
        Self {
            elephants: elephants.map(|(from, it)| bench.send(from, it)).to_vec(),
            mice: bench.send(3, mice.clone()),
            others: bench.send(1, mice),
            bench,
        }
    }

    fn streams(&self) -> impl Iterator<Item = StreamId> {
        let mice = [self.mice, self.others];
        self.elephants.iter().copied().chain(mice)
    }

    /// A queue of the port to tester 0.
    fn queue(&self, class: usize) -> &QueueStats {
        let port = self.bench.port_to(0, self.bench.tester_id(0));
        &self.bench.switch(0).stats().ports[usize::from(port)].queues[class]
    }

    /// Ends it: nothing was lost, and no flow reordered.
    fn finish(&mut self) {
        self.bench.finish();
        for stream in self.streams() {
            assert!(self.bench.received(stream).packets > 0);
            assert_eq!(self.bench.missing(stream), 0, "{stream:?}");
            assert_eq!(self.bench.received(stream).reordered_in_flow, 0);
        }
        let switch = self.bench.switch(0);
        assert_eq!(switch.sum(|port| port.dropped_in_all()), 0);
    }

    /// What 99 of 100 packets of mice took at most, after some milliseconds.
    fn run(&mut self) -> Span {
        self.bench.run_until(micros(4000));
        let stats = &self.bench.switch(0).stats().elephants;
        stats.rows.ask();
        self.bench.run_until(micros(4010));
        self.finish();
        self.bench.received(self.mice).latency.p99()
    }
}

/// SW-17: mice of a lossless class take a fifth of the time at most when elephants go to a lower
/// queue; nothing is lost, and no flow reordered, neither of mice nor of elephants, which come and
/// go.
#[test]
fn mice_do_not_wait_behind_elephants() {
    let mut off = Herd::new(qos(""));
    let without = off.run();
    let mut on = Herd::new(qos(&elephants("gated")));
    let with = on.run();
    let ratio = without.nanos() / with.nanos().max(1);
    eprintln!("p99 of mice: {without} without, {with} with: {ratio} times better");
    assert!(ratio >= 5, "{without} and {with}");
    let pauses = |herd: &Herd| {
        herd.bench
            .switch(0)
            .sum(|port| port.pauses[3].sent_xoff.get())
    };
    assert!(pauses(&off) > 0 && pauses(&on) > 0, "the line is full");
    assert_eq!(off.queue(1).sent_packets.get(), 0);
    assert!(on.queue(1).sent_packets.get() > 20_000);
    let stats = &on.bench.switch(0).stats().elephants;
    assert!(stats.demoted.get() >= 4 && stats.restored.get() > 0);
    let answer = stats.rows.answered().expect("it was asked");
    let (mice, elephants): (Vec<&ElephantRow>, Vec<&ElephantRow>) =
        answer.iter().partition(|it| it.bytes < 100_000);
    assert!(elephants.len() >= 3 && mice.len() <= 1, "{answer:?}");
    assert!(
        elephants
            .iter()
            .all(|it| it.flow.class == 3 && it.class == 1)
    );
}

/// SW-17: elephants that move only when their queue has none of their packets keep their order too.
#[test]
fn draining_keeps_the_order() {
    let mut herd = Herd::new(qos(&elephants("drained")));
    herd.run();
    let stats = &herd.bench.switch(0).stats().elephants;
    assert!(stats.waiting.get() > 0);
}

/// SW-17, SW-31: a pause of the class holds both queues, and both go on after it.
#[test]
fn a_pause_holds_both_queues() {
    let mut herd = Herd::new(qos(&elephants("gated")));
    herd.bench.hold(0, 1 << 3, (micros(500), micros(600)));
    herd.bench.run_until(micros(599));
    let sent = [1, 3].map(|class| herd.queue(class).sent_packets.get());
    let held = [1, 3].map(|class| herd.queue(class).depth_packets.get());
    assert!(held.iter().all(|packets| *packets > 0), "{held:?}");
    herd.bench.run_until(micros(700));
    let later = [1, 3].map(|class| herd.queue(class).sent_packets.get());
    assert!(later[0] > sent[0] && later[1] > sent[1]);
    for stream in [herd.elephants[0], herd.mice, herd.others] {
        let (from, silence) = herd.bench.received(stream).silence;
        assert!(silence >= Span::from_micros(97), "{stream:?}: {silence}");
        assert!((micros(490)..micros(503)).contains(&from), "{from:?}");
    }
    herd.finish();
}

/// The flows of a class, all of which have completed.
fn class<'a>(outcome: &'a Outcome, name: &str) -> &'a ClassFigures {
    let found = outcome.classes.iter().find(|it| it.class == name);
    let class = found.expect("a class of the scenario");
    assert_eq!(class.aborted, 0, "{name}");
    class
}

/// Runs a scenario, in which all checks pass, and nothing is lost or sent again.
fn undisturbed(scenario: &Scenario, seed: u64) -> Outcome {
    let outcome = run(scenario, seed).unwrap_or_else(|failure| panic!("{failure}"));
    let totals = &outcome.totals;
    let lost = [&totals.switch_drops, &totals.host_drops, &totals.wire];
    assert!(lost.iter().all(|it| it.is_empty()), "{totals:?}");
    assert_eq!((totals.retransmits, totals.duplicates), (0, 0));
    assert!(totals.pauses > 0, "the line is never full");
    outcome
}

/// SW-17: requests of 4 kB to a server to which other hosts write messages of megabytes take a
/// fifth of the time at most (99 of 100 of them) when elephants go to a lower queue, in a lossless
/// class, and with the same flows at the same times. The writers lose nothing by it: the line is as
/// busy, and requests are little.
///
/// Those who ask are not those who write: a pause of the class holds all that a host sends, so mice
/// of a host whose elephants are held back wait with them, whatever the queues of the switch are.
#[test]
fn requests_of_hosts_do_not_wait_behind_their_writes() {
    let file = snapshot::scenarios().join("demoted-elephants.toml");
    let on = Scenario::load(&file).unwrap_or_else(|error| panic!("{error}"));
    let mut off = on.clone();
    let mut qos = Qos::clone(off.switch.qos.as_ref().expect("[qos]"));
    assert_eq!(qos.elephants.len(), 1);
    qos.elephants.clear();
    off.switch.qos = Some(Arc::new(qos));
    for seed in [on.seed, 2, 3] {
        let [without, with] = [&off, &on].map(|scenario| undisturbed(scenario, seed));
        let [slow, fast] = [&without, &with].map(|outcome| class(outcome, "mice"));
        assert_eq!((slow.completed, fast.completed), (1000, 1000));
        // Beside what the device holds, a limit of 1 us and a packet, which no queue orders.
        let held = Rate::from_gbps(100).time_for(12_500 + 4_200).nanos();
        let ratio = slow.fct_p99_ns / (fast.fct_p99_ns - held).max(1);
        eprintln!(
            "p99 FCT of mice, seed {seed}: {} ns without, {} ns with: {ratio} times better",
            slow.fct_p99_ns, fast.fct_p99_ns
        );
        assert!(ratio >= 5, "seed {seed}: {ratio}");
        let [before, after] = [&without, &with].map(|outcome| class(outcome, "elephants"));
        assert_eq!((before.completed, after.completed), (40, 40));
        eprintln!(
            "mean FCT of elephants: {} ns without, {} ns with",
            before.fct_mean_ns, after.fct_mean_ns
        );
        assert!(after.fct_mean_ns * 100 <= before.fct_mean_ns * 105);
    }
}
