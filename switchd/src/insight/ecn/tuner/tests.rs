//! One queue in front of a made-up bottleneck.

use super::*;
use crate::tables::wred::ONE;
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Bytes of a bandwidth-delay product.
const UNIT: u64 = 100_000;

const BOUNDS: Bounds = Bounds {
    floor: 0,
    ceiling: 1_000_000,
};

const SETTINGS: Settings = Settings {
    mode: Mode::Ai,
    interval: Span::from_millis(10),
    dwell: 2,
    hold: 5,
    base_rtt: Span::from_micros(12),
};

fn at(kmax: u32) -> Thresholds {
    Thresholds {
        kmin: kmax / 4,
        kmax,
        pmax: ONE,
    }
}

/// Senders that fill the line where Kmax is at least the knee, in bandwidth-delay products.
#[derive(Clone, Copy, Debug)]
struct Plant {
    knee: f64,
    flows: f64,
}

impl Plant {
    fn features(self, kmax: u32) -> Features {
        let in_force = f64::from(kmax) / UNIT as f64;
        Features {
            in_force,
            utilisation: (0.7 + 0.3 * in_force / self.knee).min(0.995),
            queue: 0.3 * in_force,
            marked: 0.05,
            degree: self.flows,
            flows: self.flows,
            evenness: 1.0,
        }
    }
}

struct Rig {
    tuner: Tuner,
    now: Time,
    settings: Settings,
    model: Model,
}

impl Rig {
    fn new(model: Model) -> Self {
        Self {
            tuner: Tuner::new(at(400_000)),
            now: Time::ZERO,
            settings: SETTINGS,
            model,
        }
    }

    fn take(&mut self, features: Option<Features>, alarm: Option<Why>) -> Option<Change> {
        self.take_within(features, alarm, BOUNDS)
    }

    fn take_within(
        &mut self,
        features: Option<Features>,
        alarm: Option<Why>,
        bounds: Bounds,
    ) -> Option<Change> {
        self.now += self.settings.interval;
        let interval = Interval {
            now: self.now,
            features,
            paused: alarm == Some(Why::Paused),
            lost: alarm == Some(Why::Lost),
            bounds,
            unit: UNIT,
        };
        self.tuner.take(&interval, &self.settings, &self.model)
    }

    /// So many intervals of a plant. Returns the changes, with the intervals in which they came.
    fn run(&mut self, plant: Plant, intervals: usize) -> Vec<(usize, Change)> {
        let one = |n| {
            let features = plant.features(self.tuner.in_force().kmax);
            Some((n, self.take(Some(features), None)?))
        };
        (1..=intervals).filter_map(one).collect()
    }
}

fn nobody() -> Model {
    Model::new(0.1, Vec::new())
}

/// A model that knows one plant, under all thresholds of the ladder.
fn knowing(plant: Plant) -> Model {
    let seen = LADDER.map(|kmax| plant.features(shape(kmax, UNIT).kmax).row());
    let scenario = Scenario {
        name: "the plant".to_owned(),
        kmin_bdp: plant.knee / 4.0,
        kmax_bdp: plant.knee,
        pmax_percent: 100.0,
        seen: seen.to_vec(),
    };
    Model::new(0.3, vec![scenario])
}

const FEW: Plant = Plant {
    knee: 1.0,
    flows: 2.0,
};

/// The line is full with thresholds only under which peers are paused.
const DEEP: Plant = Plant {
    knee: 8.0,
    flows: 4.0,
};

const MANY: Plant = Plant {
    knee: 0.25,
    flows: 40.0,
};

/// SW-24: a known scenario gets its thresholds, in steps of a factor of four at most, and then
/// nothing changes.
#[test]
fn a_known_scenario_gets_its_thresholds() {
    let mut rig = Rig::new(knowing(MANY));
    let changes = rig.run(MANY, 200);
    let kmax: Vec<u32> = changes.iter().map(|(_, it)| it.after.kmax).collect();
    assert_eq!(kmax, [100_000, 25_000]);
    assert_eq!(changes[1].1.why, Why::Known("the plant".to_owned()));
    assert!(changes[1].0 <= 20, "{changes:?}");
    assert_eq!(rig.tuner.stage(), "settled");
    assert_eq!(rig.tuner.counts(), (2, 0));
}

/// SW-24: senders that find their rates slowly after thresholds have become lower are waited for,
/// as long as the line gets fuller; if it does not, thresholds become larger again.
#[test]
fn a_line_that_recovers_is_waited_for() {
    for (recovers, ends) in [(0.004, 25_000), (0.0, 50_000)] {
        let mut rig = Rig::new(knowing(MANY));
        let mut since = 0;
        for _ in 0..100 {
            let kmax = rig.tuner.in_force().kmax;
            let mut features = MANY.features(kmax);
            since = if kmax == 25_000 { since + 1 } else { 0 };
            if kmax == 25_000 {
                features.utilisation = (0.95 + recovers * f64::from(since)).min(0.99);
            }
            rig.take(Some(features), None);
        }
        assert_eq!(rig.tuner.in_force().kmax, ends, "{recovers}");
        assert_eq!(rig.tuner.stage(), "settled");
    }
}

/// SW-24: where the line is less used under the thresholds of a scenario, and the traffic shows
/// that it is another one, that one's thresholds are taken.
#[test]
fn a_line_that_is_short_asks_the_model() {
    let (low, high) = (25_000, 400_000);
    let mixed = |kmax: u32| Features {
        utilisation: if kmax < 200_000 { 0.8 } else { 0.99 },
        evenness: 0.3,
        ..MANY.features(kmax)
    };
    let scenario = |name: &str, kmax: u32, row: Features| Scenario {
        name: name.to_owned(),
        kmin_bdp: 0.1,
        kmax_bdp: f64::from(kmax) / 100_000.0,
        pmax_percent: 100.0,
        seen: vec![row.row()],
    };
    // Under larger thresholds it looks like the one, under smaller ones like the other.
    let one = scenario("one", low, mixed(high));
    let other = scenario("other", 300_000, mixed(low));
    let mut rig = Rig::new(Model::new(0.1, vec![one, other]));
    let mut whys = Vec::new();
    for _ in 0..100 {
        let features = mixed(rig.tuner.in_force().kmax);
        whys.extend(rig.take(Some(features), None).map(|it| it.why));
    }
    assert!(whys.contains(&Why::Known("one".to_owned())), "{whys:?}");
    assert_eq!(whys.last(), Some(&Why::Known("other".to_owned())));
    assert_eq!(rig.tuner.in_force().kmax, 300_000);
}

/// SW-24: nothing is decided while senders begin and nothing is marked, and then at once.
#[test]
fn senders_that_begin_are_waited_for() {
    let mut rig = Rig::new(nobody());
    for n in 1..=20 {
        let mut features = FEW.features(400_000);
        (features.utilisation, features.marked) = (0.04 * f64::from(n), 0.0);
        assert_eq!(rig.take(Some(features), None), None);
        assert_eq!(rig.tuner.stage(), "watching");
    }
    let changes = rig.run(FEW, 30);
    assert!(changes[0].0 <= 4, "{changes:?}");
    assert_eq!(rig.tuner.in_force(), shape(FEW.knee, UNIT));
}

/// SW-24: traffic at random is looked at for as long as it takes to tell what it is like.
#[test]
fn traffic_at_random_is_looked_at_for_longer() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut rig = Rig::new(knowing(MANY));
    let mut first = None;
    for n in 1..=100 {
        let mut features = MANY.features(rig.tuner.in_force().kmax);
        let part = f64::from(random.next_u32() % 1000) / 1000.0;
        features.utilisation = (0.995 - 0.5 * part).max(0.0);
        let change = rig.take(Some(features), None);
        first = first.or_else(|| change.map(|_| n));
    }
    assert!(first.is_none_or(|it| it > 20), "{first:?}");
    assert!(rig.tuner.counts().0 <= 4, "{:?}", rig.tuner.counts());
}

/// SW-24: a line that has become much less used under lower thresholds is acted on at once, though
/// the traffic is random enough to be looked at for 20 intervals.
#[test]
fn a_much_shorter_line_is_not_looked_at_for_long() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut rig = Rig::new(knowing(MANY));
    let (mut low, mut up) = (None, None);
    for n in 1..=100 {
        let kmax = rig.tuner.in_force().kmax;
        let mut features = MANY.features(kmax);
        let part = f64::from(random.next_u32() % 1000) / 1000.0;
        let most = if kmax < 50_000 { 0.6 } else { 0.995 };
        features.utilisation = most - 0.15 * part;
        let change = rig.take(Some(features), None);
        let Some(change) = change else { continue };
        if change.after.kmax < 50_000 {
            low = low.or(Some(n));
        } else if low.is_some() {
            up = up.or(Some(n));
        }
    }
    let (low, up) = (low.expect("the scenario's"), up.expect("repaired"));
    assert!(rig.tuner.noise.wanted(2) > 10);
    assert!(up - low <= 8, "{low} {up}");
}

/// SW-24: an unknown scenario is searched, and a step of the load is, too, within 20 intervals;
/// between them nothing changes.
#[test]
fn an_unknown_scenario_is_searched() {
    let mut rig = Rig::new(nobody());
    for plant in [FEW, MANY, FEW] {
        let changes = rig.run(plant, 400);
        let last = changes.last().expect("another scenario");
        assert!(last.0 <= 20, "{plant:?}: {changes:?}");
        assert_eq!(last.1.after, shape(plant.knee, UNIT), "{plant:?}");
        assert_eq!(last.1.why, Why::Found);
    }
}

/// SW-24: from 40 BDP a search does not reach 8 in one change. What it learns with 10 is not taken
/// for what 8 would do: the line is full with 10 only, and that is found.
#[test]
fn a_search_from_far_above_credits_what_was_in_force() {
    let plant = Plant {
        knee: 10.0,
        flows: 4.0,
    };
    let bounds = Bounds {
        floor: 0,
        ceiling: 10_000_000,
    };
    let mut rig = Rig::new(nobody());
    rig.tuner = Tuner::new(at(4_000_000));
    let mut seen = Vec::new();
    for _ in 0..50 {
        let features = plant.features(rig.tuner.in_force().kmax);
        let change = rig.take_within(Some(features), None, bounds);
        seen.extend(change.map(|it| it.after.kmax));
    }
    assert_eq!(seen, [1_000_000, 500_000, 1_000_000]);
    assert_eq!(rig.tuner.stage(), "settled");
}

/// SW-24: traffic that wanders changes thresholds no more than twelve times a minute.
#[test]
fn changes_are_few_where_traffic_wanders() {
    let mut rig = Rig::new(nobody());
    rig.settings.interval = Span::from_millis(100);
    let mut times = Vec::new();
    for n in 0..6000_u32 {
        let knee = if n % 60 < 30 { 1.0 } else { 0.5 };
        let mut features = Plant { knee, flows: 8.0 }.features(rig.tuner.in_force().kmax);
        features.queue *= 1.0 + f64::from(n % 7);
        features.flows += f64::from(n % 120) / 10.0;
        if rig.take(Some(features), None).is_some() {
            times.push(n);
        }
    }
    // The first scenario is searched in any case.
    let crowded = times.windows(13).any(|it| it[12] - it[0] < 600);
    assert!(!crowded, "{times:?}");
    assert!(!times.is_empty());
}

/// SW-24: a pause or a loss brings the configured thresholds back for the hold, and then the
/// traffic is looked at again.
#[test]
fn pauses_and_losses_bring_the_configuration_back() {
    for why in [Why::Paused, Why::Lost] {
        let mut rig = Rig::new(knowing(MANY));
        rig.run(MANY, 50);
        let features = Some(MANY.features(25_000));
        let change = rig.take(features, Some(why.clone())).expect("a change");
        assert_eq!((change.after, &change.why), (at(400_000), &why));
        assert_eq!(rig.tuner.stage(), "fallback");
        assert_eq!(rig.tuner.counts().1, 1);
        // It goes on: the hold begins anew.
        assert_eq!(rig.take(features, Some(why)), None);
        let changes = rig.run(MANY, 30);
        assert!(changes[0].0 > 5, "{changes:?}");
        assert_eq!(rig.tuner.in_force().kmax, 25_000);
    }
}

/// The most changes that came within a minute.
fn crowd(times: &[Time]) -> usize {
    let since = |n: usize| times[n..].iter().map(move |at| at.since(times[n]));
    let within = (0..times.len()).map(|n| since(n).filter(|it| *it < MINUTE).count());
    within.max().unwrap_or(0)
}

/// SW-24: thresholds under which peers are paused are tried again, each time after twice as long,
/// and change twelve times a minute at most: those that the model has as well as those of a search.
#[test]
fn changes_are_few_where_they_cause_pauses() {
    for model in [knowing(DEEP), nobody()] {
        let mut rig = Rig::new(model);
        rig.settings.hold = 100;
        let (mut times, mut falls) = (Vec::new(), Vec::new());
        for _ in 0..60_000 {
            let kmax = rig.tuner.in_force().kmax;
            let alarm = (kmax > 400_000).then_some(Why::Paused);
            if let Some(change) = rig.take(Some(DEEP.features(kmax)), alarm) {
                times.push(change.at);
                falls.extend((change.why == Why::Paused).then_some(change.at));
            }
        }
        println!("{times:?}");
        assert!(crowd(&times) <= CHANGES, "{times:?}");
        assert!(falls.len() >= 8, "{falls:?}: nothing was tried again");
        let waits: Vec<u64> = falls
            .windows(2)
            .map(|it| it[1].since(it[0]).nanos())
            .collect();
        let hold = 100 * 10_000_000;
        assert!((hold..2 * hold).contains(&waits[0]), "{waits:?}");
        assert!((2 * hold..3 * hold).contains(&waits[1]), "{waits:?}");
        let longest = waits.iter().max().expect("some");
        assert!((64 * hold..65 * hold).contains(longest), "{waits:?}");
    }
}

/// SW-24: nor do they change more often where pauses come at random and the buffer leaves now more,
/// now less room, or none.
#[test]
fn changes_are_few_where_room_comes_and_goes() {
    let mut most = 0;
    for seed in 1..=200 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut pick = |most: u32| random.next_u32() % most;
        let plant = [FEW, MANY, DEEP][pick(3) as usize];
        let model = [knowing(plant), nobody()][pick(2) as usize].clone();
        let mut rig = Rig::new(model);
        rig.settings.interval = Span::from_millis(50);
        let (mut bounds, mut times) = (BOUNDS, Vec::new());
        for n in 0..3600 {
            let kmax = rig.tuner.in_force().kmax;
            if n % 8 == 0 {
                bounds.ceiling = [1_000_000, kmax - kmax / 8, kmax / 2, 100][pick(4) as usize];
            }
            let alarm = (pick(100) == 0).then_some(Why::Paused);
            let change = rig.take_within(Some(plant.features(kmax)), alarm, bounds);
            times.extend(change.map(|it| it.at));
        }
        let crowd = crowd(&times);
        assert!(crowd <= CHANGES, "seed {seed}: {crowd}");
        most = most.max(crowd);
    }
    assert!(most > CHANGES / 2, "{most}: little was changed");
}

/// SW-24: frozen thresholds stay whatever the traffic does, but not through a loss; static ones do
/// not move at all.
#[test]
fn modes_are_kept() {
    let mut rig = Rig::new(nobody());
    rig.run(FEW, 50);
    let found = rig.tuner.in_force();
    rig.settings.mode = Mode::Frozen;
    assert!(rig.run(MANY, 100).is_empty());
    assert_eq!(rig.tuner.in_force(), found);
    let change = rig.take(Some(MANY.features(found.kmax)), Some(Why::Lost));
    assert_eq!(change.map(|it| it.after), Some(at(400_000)));
    assert!(rig.run(MANY, 100).is_empty());
    for mode in [Mode::Off, Mode::Static] {
        let mut rig = Rig::new(nobody());
        rig.settings.mode = mode;
        assert!(rig.run(MANY, 100).is_empty());
        assert!(rig.tuner.features().is_some());
        assert_eq!(rig.take(None, Some(Why::Lost)), None);
    }
}

/// SW-24: thresholds make room at once when the buffer leaves less; without any room they are those
/// of the configuration.
#[test]
fn thresholds_make_room() {
    let mut rig = Rig::new(nobody());
    rig.run(FEW, 50);
    let features = Some(FEW.features(100_000));
    let narrow = Bounds {
        floor: 0,
        ceiling: 60_000,
    };
    let change = rig.take_within(features, None, narrow).expect("a change");
    assert_eq!((change.after.kmax, change.why), (30_000, Why::Bounded));
    let none = Bounds {
        floor: 0,
        ceiling: 100,
    };
    let change = rig.take_within(features, None, none).expect("a change");
    assert_eq!(change.after, at(400_000));
    let change = rig.tuner.restore(rig.now);
    assert_eq!(change, None, "they are in force");
}

proptest! {
    /// SW-24: whatever the counters say, thresholds in force are those of the configuration or keep
    /// to their bounds, and change by no more than a factor of four upwards.
    #[test]
    fn no_bound_is_left(
        intervals in proptest::collection::vec(
            (proptest::option::of(proptest::array::uniform7(0.0_f64..8.0)), 0_u8..20,
             (0_u32..200_000, 0_u32..2_000_000)),
            1..200,
        ),
        radius in 0.0_f64..3.0,
    ) {
        let mut model = knowing(MANY);
        model.radius = radius;
        let mut rig = Rig::new(model);
        for (row, alarm, (floor, ceiling)) in intervals {
            let alarm = match alarm {
                0 => Some(Why::Lost),
                1 => Some(Why::Paused),
                _ => None,
            };
            let bounds = Bounds { floor, ceiling };
            let before = rig.tuner.in_force();
            let change = rig.take_within(row.map(Features::of_row), alarm, bounds);
            let after = rig.tuner.in_force();
            prop_assert_eq!(change.is_some(), before != after);
            prop_assert!(after == at(400_000) || bounds.hold(after), "{:?} {:?}", after, bounds);
            prop_assert!(after.kmin <= after.kmax && after.pmax <= ONE);
            let is_free = change.is_some_and(|it| matches!(it.why, Why::Tried | Why::Found | Why::Known(_)));
            if is_free && before.kmax >= floor.max(4096) && before.kmax <= ceiling {
                prop_assert!(u64::from(after.kmax) <= u64::from(before.kmax) * 4);
                prop_assert!(u64::from(after.kmax) >= u64::from(before.kmax) / 4);
            }
        }
    }
}
