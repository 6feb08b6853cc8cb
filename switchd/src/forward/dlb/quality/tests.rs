use super::*;
use common::time::Span;
use proptest::prelude::*;

const STEP: u64 = 16_000;

fn at(nanos: u64) -> Time {
    Time::from_nanos(1_000_000 + nanos)
}

/// A gauge of a port of 100 Gbit/s, which is 12.5 bytes a nanosecond.
fn gauge() -> Gauge {
    let up = reading(0, 0, 0);
    Gauge::new(Scale::default(), Some(Rate::from_gbps(100)), at(0), up)
}

fn reading(sent: u64, queued: u64, paused: u64) -> Reading {
    Reading {
        sent,
        queued,
        paused,
        up: true,
    }
}

impl Gauge {
    /// The average utilisation in parts per million, pauses included.
    fn utilisation_ppm(&self) -> u32 {
        let share = self.utilised.share(self.scale.exponent);
        u32::try_from((share * 1_000_000 + WHOLE / 2) / WHOLE).unwrap_or(1_000_000)
    }
}

/// Runs the gauge for `steps` intervals in each of which `sent` bytes leave and it is paused so
/// long.
fn run(gauge: &mut Gauge, steps: u64, sent: u64, queued: u64, paused: u64) -> u8 {
    for _ in 0..steps {
        let last = gauge.last;
        let now = gauge.grid + Span::from_nanos(STEP);
        let next = reading(last.sent + sent, queued, last.paused + paused);
        assert!(gauge.is_due(now));
        gauge.sample(now, next);
    }
    gauge.band()
}

/// SW-7: a constant load is measured exactly, from below and from above, and an idle port is
/// idle again.
#[test]
fn converges_to_the_utilisation() {
    let mut gauge = gauge();
    for percent in [30, 100, 70, 1] {
        run(&mut gauge, 120, 2_000 * percent, 0, 0);
        assert_eq!(u64::from(gauge.utilisation_ppm()), percent * 10_000);
    }
    run(&mut gauge, 120, 200_000, 0, 0);
    let before = gauge.utilisation_ppm();
    run(&mut gauge, 1, 0, 0, 0);
    assert_eq!(gauge.utilisation_ppm(), before / 4 * 3);
    assert_eq!(run(&mut gauge, 120, 0, 0, 0), IDLE);
    assert_eq!(gauge.utilised.share(2), 0);
}

/// SW-7: more load, a longer queue, or both, is never better; both in full is the worst.
#[test]
fn load_and_queue_make_the_band() {
    let full = u64::from(Scale::default().queue_max);
    let band = |percent: u64, queued| run(&mut gauge(), 120, 2_000 * percent, queued, 0);
    assert_eq!(band(0, 0), IDLE);
    assert_eq!(band(100, 0), 4);
    assert_eq!(band(0, full), 4);
    assert_eq!(band(100, full), WORST);
    assert_eq!(band(100, u64::MAX), WORST);
    let bands: Vec<u8> = (0..=100).map(|percent| band(percent, full)).collect();
    assert!(bands.is_sorted());
}

/// SW-7: a port that is paused all the time is the worst at once, without a byte in its queue;
/// one that is paused half of the time is in the middle, and the time counts as utilised.
#[test]
fn paused_time_counts() {
    let mut gauge = gauge();
    assert_eq!(run(&mut gauge, 1, 0, 0, STEP), WORST);
    assert_eq!(run(&mut gauge, 60, 0, 0, STEP), WORST);
    assert_eq!(gauge.utilisation_ppm(), 1_000_000);
    assert_eq!(run(&mut gauge, 120, 0, 0, STEP / 2), 4);
    assert_eq!(gauge.utilisation_ppm(), 500_000);
    assert_eq!(run(&mut gauge, 120, 50_000, 0, STEP / 2), 4);
    assert_eq!(gauge.utilisation_ppm(), 750_000);
    assert_eq!(run(&mut gauge, 120, 0, 0, 0), IDLE);
}

/// SW-7: a link that is down is the worst; afterwards what it carried before is forgotten as
/// usual.
#[test]
fn a_link_that_is_down_is_the_worst() {
    let mut gauge = gauge();
    let now = at(STEP);
    let down = Reading::default();
    assert_eq!(gauge.sample(now, down), WORST);
    assert_eq!(run(&mut gauge, 1, 0, 0, 0), IDLE);
    let dead = Gauge::new(Scale::default(), None, now, down);
    assert_eq!(dead.band(), WORST);
}

/// SW-7: between two points of the grid nothing is taken, and what was sent is not lost.
#[test]
fn early_samples_change_nothing() {
    let mut gauge = gauge();
    for nanos in (0..STEP).step_by(1_000) {
        assert!(!gauge.is_due(at(nanos)));
        assert_eq!(
            gauge.sample(at(nanos), reading(nanos, 1 << 20, nanos)),
            IDLE
        );
    }
    gauge.sample(at(STEP), reading(200_000, 0, 0));
    assert_eq!(gauge.utilisation_ppm(), 250_000);
}

#[test]
fn without_a_speed_the_queue_counts() {
    let start = reading(0, 0, 0);
    for speed in [None, Some(Rate::from_bps(0))] {
        let mut gauge = Gauge::new(Scale::default(), speed, at(0), start);
        assert_eq!(run(&mut gauge, 9, 1 << 40, 0, 0), IDLE);
        assert_eq!(run(&mut gauge, 1, 0, 128 << 10, 0), 4);
    }
}

#[test]
fn another_exponent_keeps_what_is_known() {
    let mut gauge = gauge();
    run(&mut gauge, 120, 100_000, 0, 0);
    let slower = Scale {
        exponent: 5,
        ..Scale::default()
    };
    gauge.configure(slower, Some(Rate::from_gbps(100)));
    assert_eq!(gauge.utilisation_ppm(), 500_000);
    run(&mut gauge, 1, 100_000, 0, 0);
    assert_eq!(gauge.utilisation_ppm(), 500_000);
}

/// SW-7: what one worker writes the others read; ports that do not exist are never a good
/// choice.
#[test]
fn the_board_shows_what_was_set() {
    let quality = QualityTable::new(2);
    quality.set(PortId(1), 3);
    quality.set(PortId(9), 3);
    let bands = [0, 1, 2, 9].map(|port| quality.band(PortId(port)));
    assert_eq!(bands, [IDLE, 3, WORST, WORST]);
    quality.set(PortId(1), 200);
    assert_eq!(quality.band(PortId(1)), WORST);
}

proptest! {
    /// SW-7: a sample that comes late has the effect of as many punctual ones, however long the
    /// worker slept.
    #[test]
    fn late_samples_are_exact(
        before in 0_u64..=200_000, load in 0_u64..=200_000, steps in 1_u64..400, late in 0..STEP,
        exponent in 0_u8..=4,
    ) {
        let mut punctual = gauge();
        let scale = Scale { exponent, ..Scale::default() };
        punctual.configure(scale, Some(Rate::from_gbps(100)));
        run(&mut punctual, 3, before, 0, 0);
        let mut sleeper = punctual.clone();
        run(&mut punctual, steps, load, 0, 0);
        let last = sleeper.last;
        let now = sleeper.grid + Span::from_nanos(STEP * steps + late);
        // Evenly: as much in the rest of the interval.
        let sent = last.sent + load * steps + load * late / STEP;
        sleeper.sample(now, reading(sent, 0, 0));
        prop_assert!(sleeper.utilisation_ppm().abs_diff(punctual.utilisation_ppm()) <= 20);
        prop_assert_eq!(sleeper.grid, punctual.grid);
    }

    /// SW-7: no reading, however absurd, is fatal, and every band is one.
    #[test]
    fn survives_anything(
        readings in prop::collection::vec(any::<(u64, u64, u64, u64, bool)>(), 1..20),
        scale in any::<(u64, u8, u16, u16, u32, u32)>(), speed in any::<Option<u64>>(),
    ) {
        let (interval, exponent, past_weight, future_weight, queue_min, queue_max) = scale;
        let scale = Scale {
            interval: Span::from_nanos(interval), exponent, past_weight, future_weight, queue_min, queue_max,
        };
        let speed = speed.map(Rate::from_bps);
        let mut gauge = Gauge::new(scale, speed, Time::ZERO, Reading::default());
        for (now, sent, queued, paused, up) in readings {
            let band = gauge.sample(Time::from_nanos(now), Reading { sent, queued, paused, up });
            prop_assert!(band <= WORST);
            prop_assert!(gauge.utilisation_ppm() <= 1_000_000);
        }
    }
}

/// SW-7: a port is measured in intervals in which it can send four frames, so that one that is used
/// by half is not seen as idle and full in turn.
#[test]
fn slow_ports_are_measured_less_often() {
    let configured = Span::from_micros(16);
    let cases = [
        (100_000_000, 492_160),
        (1_000_000_000, 49_216),
        (10_000_000_000, 16_000),
        (400_000_000_000, 16_000),
    ];
    for (bps, nanos) in cases {
        let interval = sampling_interval(configured, Some(Rate::from_bps(bps)));
        assert_eq!(interval, Span::from_nanos(nanos), "{bps}");
    }
    assert_eq!(sampling_interval(configured, None), configured);
    // Every other frame of 1538 bytes at 100 Mb/s: used by half, in each band that is shown.
    let scale = Scale {
        interval: configured,
        ..Scale::default()
    };
    let speed = Some(Rate::from_mbps(100));
    let mut gauge = Gauge::new(scale, speed, at(0), reading(0, 0, 0));
    let mut bands = Vec::new();
    for micros in 0..20_000 {
        let sent = 1538 * (micros / 246);
        let band = gauge.sample(at(1_000 * micros), reading(sent, 0, 0));
        if micros > 10_000 {
            bands.push(band);
        }
    }
    let (least, most) = (bands.iter().min().unwrap(), bands.iter().max().unwrap());
    assert!(most - least <= 1, "{least} to {most}");
}
