//! Simulated programs on simulated machines.

use super::*;
use crate::measure::bound::Bound;
use crate::measure::subject::Better;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Two programs whose true costs are known, on a machine with troubles.
struct Machine {
    groups: Vec<Group>,
    costs: [f64; 2],
    /// Greatest share by which a single turn is slowed down.
    noise: f64,
    /// Share by which each turn is slower than the one before.
    drift: f64,
    turns: i32,
    /// Every so many turns, one takes twenty times as long.
    stall: Option<i32>,
    random: Pcg64Mcg,
    order: Vec<usize>,
}

impl Machine {
    /// The second program takes `cost` times as long as the first, and must take at most 1.1 times
    /// as long.
    fn new(cost: f64, noise: f64) -> Self {
        let names = ["reference", "ours"];
        let bound = Some(Bound::AtMost(1.1));
        let group = Group {
            title: "made up".to_owned(),
            unit: "ns".to_owned(),
            better: Better::Low,
            contenders: names.map(str::to_owned).to_vec(),
            figures: vec![Figure::ratio(&names, 1, 0, bound)],
        };
        Self {
            groups: vec![group],
            costs: [100.0, 100.0 * cost],
            noise,
            drift: 0.0,
            turns: 0,
            stall: None,
            random: Pcg64Mcg::seed_from_u64(11),
            order: Vec::new(),
        }
    }

    /// Measures for so many seconds at most, a second for each round. The rounds and the verdict.
    fn measure(&mut self, seconds: u64) -> (usize, Verdict, Known) {
        let plan = Plan {
            rounds: None,
            seconds: Duration::from_secs(seconds),
            precision: None,
        };
        self.measure_as(&plan)
    }

    fn measure_as(&mut self, plan: &Plan) -> (usize, Verdict, Known) {
        let mut now = Duration::ZERO;
        let mut clock = || {
            now += Duration::from_secs(1);
            now
        };
        let rounds = measure(self, 0, plan, &mut clock, &mut |_| {}).unwrap();
        let known = rounds.known(&self.groups[0].figures[0]);
        (rounds.values.len(), known.verdict.unwrap(), known)
    }
}

impl Subject for Machine {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, _: usize, contender: usize) -> Result<f64, String> {
        self.turns += 1;
        self.order.push(contender);
        let uniform = f64::from(self.random.next_u32()) / f64::from(u32::MAX);
        let stalled = self.stall.is_some_and(|every| self.turns % every == 0);
        let slowed = (1.0 + self.noise * uniform) * if stalled { 20.0 } else { 1.0 };
        Ok(self.costs[contender] * slowed * (1.0 + self.drift).powi(self.turns))
    }
}

#[test]
fn contenders_take_turns_there_and_back() {
    assert_eq!(order(3, 0), [0, 1, 2]);
    assert_eq!(order(3, 4), [1, 2, 0]);
    let mut machine = Machine::new(1.0, 0.0);
    machine.measure(100);
    // The round to warm up, then the first two.
    assert_eq!(machine.order[..12], [0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1]);
}

#[test]
fn a_slow_program_fails_and_a_fast_one_holds() {
    assert_eq!(Machine::new(1.15, 0.02).measure(100).1, Verdict::Fails);
    assert_eq!(Machine::new(1.05, 0.02).measure(100).1, Verdict::Holds);
}

#[test]
fn a_noisy_machine_is_undecided() {
    // At the bound itself nothing can be decided, by however many rounds.
    let (rounds, verdict, known) = Machine::new(1.1, 0.8).measure(200);
    assert_eq!(verdict, Verdict::Undecided);
    assert_eq!(rounds, 200, "it goes on until the time is up");
    let interval = known.interval.unwrap();
    assert!(interval.low < 1.1 && interval.high > 1.1, "{interval:?}");
    // Near the bound, a short time does not suffice.
    assert_eq!(Machine::new(1.05, 0.8).measure(12).1, Verdict::Undecided);
    assert_eq!(Machine::new(1.15, 0.8).measure(12).1, Verdict::Undecided);
}

#[test]
fn more_rounds_decide_what_few_did_not() {
    let (rounds, verdict, _) = Machine::new(1.0, 0.8).measure(10_000);
    assert_eq!(verdict, Verdict::Holds);
    assert!((24..=ROUNDS_MAX).contains(&rounds), "{rounds}");
    let (rounds, verdict, _) = Machine::new(1.2, 0.8).measure(10_000);
    assert_eq!(verdict, Verdict::Fails);
    assert!((24..=ROUNDS_MAX).contains(&rounds), "{rounds}");
}

#[test]
fn too_few_rounds_decide_nothing() {
    let (rounds, verdict, known) = Machine::new(2.0, 0.0).measure(5);
    assert_eq!((rounds, verdict), (5, Verdict::Undecided));
    assert_eq!(known.interval, None);
    assert!((known.median - 2.0).abs() < 1e-9);
}

#[test]
fn a_machine_that_slows_down_steadily_changes_nothing() {
    let mut machine = Machine::new(1.05, 0.0);
    // Thirty times as slow within the first twelve rounds.
    machine.drift = 0.07;
    let (_, verdict, known) = machine.measure(12);
    assert_eq!(verdict, Verdict::Holds);
    assert!((known.median - 1.05).abs() < 0.01, "{}", known.median);
}

#[test]
fn stalls_change_little() {
    let mut machine = Machine::new(1.05, 0.02);
    machine.stall = Some(29);
    let (_, verdict, known) = machine.measure(10_000);
    assert_eq!(verdict, Verdict::Holds);
    assert!((known.median - 1.05).abs() < 0.03, "{}", known.median);
}

#[test]
fn rounds_can_be_ordered() {
    let mut plan = Plan {
        rounds: Some(3),
        seconds: Duration::ZERO,
        precision: None,
    };
    assert_eq!(Machine::new(1.0, 0.0).measure_as(&plan).0, 3);
    plan.rounds = Some(40);
    assert_eq!(Machine::new(1.0, 0.0).measure_as(&plan).0, 40);
}

#[test]
fn precision_takes_more_rounds() {
    let plan = |precision| Plan {
        rounds: None,
        seconds: Duration::from_secs(10_000),
        precision,
    };
    let (few, ..) = Machine::new(1.0, 0.05).measure_as(&plan(None));
    let (more, _, known) = Machine::new(1.0, 0.05).measure_as(&plan(Some(0.01)));
    assert!(few < more, "{few} and {more}");
    assert!(known.interval.unwrap().half_width(known.median) <= 0.01);
}

#[test]
fn an_error_ends_the_rounds() {
    struct Broken(Machine);
    impl Subject for Broken {
        fn groups(&self) -> &[Group] {
            self.0.groups()
        }
        fn turn(&mut self, _: usize, _: usize) -> Result<f64, String> {
            Err("a packet was lost".to_owned())
        }
    }
    let plan = Plan {
        rounds: None,
        seconds: Duration::from_secs(1),
        precision: None,
    };
    let mut broken = Broken(Machine::new(1.0, 0.0));
    let result = measure(&mut broken, 0, &plan, &mut || Duration::ZERO, &mut |_| {});
    assert_eq!(result.unwrap_err(), "a packet was lost");
}
