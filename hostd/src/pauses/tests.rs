use super::*;
use common::wire::Mac;
use proptest::prelude::*;

/// One quantum takes one nanosecond at this speed.
const FAST: Rate = Rate::from_gbps(512);

fn rules(pfc: u8, pause: bool) -> FlowControl {
    FlowControl {
        pfc,
        pause,
        speed: FAST,
        ..FlowControl::default()
    }
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn pfc(times: &[(usize, u16)]) -> Control {
    let mut all = [None; PRIORITIES];
    for &(priority, time) in times {
        all[priority] = Some(time);
    }
    Control::Pfc(all)
}

struct Bed {
    pauses: Pauses,
    counters: PauseCounters,
}

impl Bed {
    fn new(rules: &FlowControl) -> Self {
        Self {
            pauses: Pauses::new(rules),
            counters: PauseCounters::default(),
        }
    }

    fn take(&mut self, control: &Control, now: u64) {
        let frame = control.emit(Mac([2; 6]));
        assert!(is_control(&frame));
        let taken = self.pauses.receive(&frame, at(now), &mut self.counters);
        assert_eq!(taken, Ok(()));
    }

    fn paused(&mut self, now: u64) -> u8 {
        self.pauses.settle(at(now), &mut self.counters)
    }
}

/// HT-45: only the named priority waits, and only for the time that the last frame gave it.
#[test]
fn a_frame_pauses_what_it_names_until_its_time_is_over() {
    let mut bed = Bed::new(&rules(0xff, true));
    assert!(!bed.pauses.any());
    bed.take(&pfc(&[(3, 100), (5, 10)]), 1_000);
    assert_eq!(bed.pauses.deadline(), at(1_010));
    assert_eq!(bed.paused(1_009), 0b10_1000);
    assert_eq!(bed.paused(1_010), 0b00_1000);
    // Shorter than what was left: the new time counts.
    bed.take(&pfc(&[(3, 20)]), 1_050);
    assert_eq!(bed.paused(1_069), 0b1000);
    assert_eq!(bed.paused(1_070), 0);
    bed.take(&pfc(&[(3, 0xffff)]), 2_000);
    bed.take(&pfc(&[(3, 0), (4, 0)]), 2_030);
    assert!(!bed.pauses.any(), "resumed");
    assert_eq!(bed.pauses.deadline(), Time::NEVER);
    assert_eq!(bed.paused(9_000), 0);
    let counters = bed.counters;
    assert_eq!(counters.paused[3], Span::from_nanos(70 + 30));
    assert_eq!(counters.paused[5], Span::from_nanos(10));
    assert_eq!((counters.pfc, counters.frames()), (4, 4));
    assert_eq!(counters.pfc_pausing, [0, 0, 0, 3, 0, 1, 0, 0]);
    assert_eq!(counters.pfc_resuming, [0, 0, 0, 1, 1, 0, 0, 0]);
}

/// HT-45, SW-30: PAUSE is for the whole port, and PFC does not lift it.
#[test]
fn pause_is_for_all_priorities() {
    let mut bed = Bed::new(&rules(0xff, true));
    bed.take(&Control::Pause(100), 1_000);
    bed.take(&pfc(&[(2, 150), (1, 0)]), 1_020);
    assert_eq!(bed.paused(1_099), 0xff);
    assert_eq!(bed.paused(1_100), 0b100);
    bed.take(&Control::Pause(0), 1_110);
    assert_eq!(bed.paused(1_169), 0b100);
    assert_eq!(bed.paused(1_170), 0);
    assert_eq!(bed.counters.paused[1], Span::from_nanos(100));
    assert_eq!(bed.counters.paused[2], Span::from_nanos(170));
    let counted = (bed.counters.pause_pausing, bed.counters.pause_resuming);
    assert_eq!((counted, bed.counters.frames()), ((1, 1), 3));
}

/// HT-45: what is not to be obeyed is counted and has no effect.
#[test]
fn only_what_is_configured_is_obeyed() {
    let mut bed = Bed::new(&rules(0b1000, false));
    bed.take(&Control::Pause(100), 1_000);
    bed.take(&pfc(&[(2, 100), (3, 100)]), 1_000);
    assert_eq!(bed.paused(1_001), 0b1000);
    assert_eq!(bed.counters.frames(), 2);
    assert_eq!(bed.counters.pfc_pausing[2], 1);
}

/// HT-45, SW-31: a quantum is 512 bit times at the port's speed.
#[test]
fn times_are_of_the_ports_speed() {
    let mut bed = Bed::new(&FlowControl::default());
    bed.take(&Control::Pause(10), 500);
    assert_eq!(bed.pauses.until(0), at(500 + 512_000), "no speed is known");
    bed.take(&Control::Pause(0), 600);
    for (speed, nanos) in [
        (Rate::from_gbps(1), 512 * 1000),
        (Rate::from_gbps(25), 20_480),
        (Rate::from_mbps(10), 51_200_000),
    ] {
        bed.pauses.set_speed(speed);
        bed.take(&pfc(&[(0, 1000)]), 7_000);
        assert_eq!(bed.pauses.until(0), at(7_000 + nanos), "{speed}");
    }
}

/// HT-45: frames that are no flow control are told apart, counted and change nothing.
#[test]
fn malformed_frames_are_counted_by_kind() {
    let mut bed = Bed::new(&rules(0xff, true));
    bed.take(&pfc(&[(1, 50)]), 100);
    let good = pfc(&[(1, 0)]).emit(Mac([2; 6]));
    let changed = |place: usize, value: u8| {
        let mut frame = good;
        frame[place] = value;
        frame
    };
    for (reason, frame) in [
        (Malformed::Address, &changed(5, 0x0e)[..]),
        (Malformed::Length, &good[..14 + 19]),
        (Malformed::Length, &good[..14]),
        (Malformed::Opcode, &changed(15, 2)[..]),
        (Malformed::Vector, &changed(16, 1)[..]),
    ] {
        assert!(is_control(frame));
        let taken = bed.pauses.receive(frame, at(110), &mut bed.counters);
        assert_eq!(taken, Err(reason));
    }
    assert_eq!(bed.counters.malformed, [1, 2, 1, 1]);
    assert_eq!(bed.counters.frames(), 1);
    assert_eq!(bed.paused(149), 0b10);
    let labels: Vec<_> = bed
        .counters
        .malformed()
        .map(|(kind, _)| kind.label())
        .collect();
    assert_eq!(labels, ["address", "length", "opcode", "vector"]);
    assert!(!is_control(&changed(13, 9)) && !is_control(&good[..13]));
}

proptest! {
    /// HT-45: at every nanosecond, and summed over all of them, as the frames say.
    #[test]
    fn pauses_and_their_sum_are_exact(
        pfc: u8,
        pause: bool,
        events in proptest::collection::vec(
            (0_u64..40, prop_oneof![
                1 => (0_u16..60).prop_map(|time| Some(Control::Pause(time))),
                4 => proptest::array::uniform8(proptest::option::of(0_u16..60))
                    .prop_map(|times| Some(Control::Pfc(times))),
                2 => Just(None),
            ]),
            1..40,
        ),
    ) {
        let mut bed = Bed::new(&rules(pfc, pause));
        // What is left of PFC's time by priority, and of PAUSE's; the sum by priority.
        let (mut left, mut port, mut sum) = ([0_u16; 8], 0_u16, [0_u64; 8]);
        let mut now = 0;
        for (wait, control) in events {
            for _ in 0..wait {
                for n in 0..PRIORITIES {
                    sum[n] += u64::from(left[n] > 0 || port > 0);
                    left[n] = left[n].saturating_sub(1);
                }
                port = port.saturating_sub(1);
            }
            now += wait;
            match control {
                Some(control) => {
                    bed.take(&control, now);
                    match control {
                        Control::Pause(time) if pause => port = time,
                        Control::Pause(_) => {}
                        Control::Pfc(times) => (0..PRIORITIES)
                            .filter(|n| pfc & 1 << n != 0)
                            .for_each(|n| left[n] = times[n].unwrap_or(left[n])),
                    }
                }
                None => drop(bed.paused(now)),
            }
            let mask = (0..PRIORITIES)
                .filter(|&n| left[n] > 0 || port > 0)
                .fold(0, |mask, n| mask | 1 << n);
            if control.is_some() {
                prop_assert_eq!(bed.pauses.any(), mask != 0);
            }
            prop_assert_eq!(bed.paused(now), mask);
            prop_assert_eq!(bed.counters.paused, sum.map(Span::from_nanos));
            let next = (0..PRIORITIES)
                .filter(|n| mask & 1 << n != 0)
                .map(|n| now + u64::from(left[n].max(port)))
                .min();
            prop_assert_eq!(bed.pauses.deadline(), next.map_or(Time::NEVER, at));
        }
    }

    #[test]
    fn no_bytes_are_too_much(bytes: Vec<u8>, now: u64) {
        let mut bed = Bed::new(&rules(0xff, true));
        let _ = bed.pauses.receive(&bytes, at(now), &mut bed.counters);
        let _ = is_control(&bytes);
    }
}
