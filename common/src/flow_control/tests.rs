use super::frame::{Malformed, is_control, read};
use super::pfc_rx::*;
use crate::time::Time;
use crate::units::Rate;
use crate::wire::ethernet::Mac;
use crate::wire::pause::{self, Control, PRIORITIES};
use proptest::prelude::*;

/// A speed at which a quantum takes 512 ns.
const GIGABIT: Rate = Rate::from_gbps(1);

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// A frame that names the priorities of `mask`, all with the same time.
fn pfc(mask: u8, quanta: u16) -> Control {
    Control::Pfc(std::array::from_fn(|n| {
        (mask & 1 << n != 0).then_some(quanta)
    }))
}

/// SW-31: a frame pauses the named priorities alone, for its time, which ends by itself.
#[test]
fn only_the_named_priorities_wait_and_a_lost_xon_heals() {
    let mut paused = PfcReceiver::new(0xff, false);
    paused.receive(&pfc(0b0001_1000, 2), at(100), GIGABIT);
    assert_eq!(paused.mask(at(100)), 0b0001_1000);
    assert_eq!(paused.next_expiry(at(100)), at(1124));
    assert_eq!(paused.mask(at(1123)), 0b0001_1000);
    assert_eq!(paused.mask(at(1124)), 0);
    assert_eq!(paused.next_expiry(at(1124)), Time::NEVER);
    assert_eq!(paused.paused_total(3, at(9999)), 1024);
    assert_eq!(paused.paused_total(2, at(9999)), 0);
}

/// SW-31: xon resumes at once what it names, and a new time replaces the old one, longer or
/// shorter.
#[test]
fn a_new_frame_replaces_the_time() {
    let mut paused = PfcReceiver::new(0xff, false);
    paused.receive(&pfc(0xff, 100), at(0), GIGABIT);
    paused.receive(&pfc(0b1, 0), at(500), GIGABIT);
    paused.receive(&pfc(0b10, 1), at(500), GIGABIT);
    assert_eq!(paused.mask(at(600)), 0b1111_1110);
    assert_eq!(paused.mask(at(1012)), 0b1111_1100);
    assert_eq!(paused.paused_total(0, at(100_000)), 500);
    assert_eq!(paused.paused_total(1, at(100_000)), 1012);
    assert_eq!(paused.paused_total(2, at(100_000)), 51_200);
    let counted = paused.pfc_counters(0);
    assert_eq!(
        (counted.pausing, counted.resuming, counted.ignored),
        (1, 1, 0)
    );
}

/// SW-30: PAUSE pauses all; neither it nor PFC takes back what the other asked for.
#[test]
fn pause_and_pfc_do_not_take_back_each_other() {
    let mut paused = PfcReceiver::new(0b1000, true);
    paused.receive(&Control::Pause(4), at(0), GIGABIT);
    paused.receive(&pfc(0b1000, 10), at(1), GIGABIT);
    assert_eq!(paused.mask(at(2)), 0xff);
    paused.receive(&pfc(0b1000, 0), at(3), GIGABIT);
    assert_eq!(paused.mask(at(4)), 0xff, "PAUSE still runs");
    paused.receive(&pfc(0b1000, 10), at(5), GIGABIT);
    paused.receive(&Control::Pause(0), at(6), GIGABIT);
    assert_eq!(paused.mask(at(7)), 0b1000, "PFC still runs");
    assert_eq!(paused.request(3, at(7)).since, Some(at(0)));
    assert_eq!(paused.paused_total(0, at(9999)), 6);
    let counted = paused.pause_counters();
    assert_eq!(
        (counted.pausing, counted.resuming, counted.ignored),
        (1, 1, 0)
    );
}

/// SW-31: what the port is not configured to obey is counted and pauses nothing.
#[test]
fn what_is_not_obeyed_is_counted() {
    let mut paused = PfcReceiver::new(0b1000, false);
    paused.receive(&Control::Pause(9), at(0), GIGABIT);
    paused.receive(&pfc(0b0100, 9), at(0), GIGABIT);
    assert_eq!(paused.mask(at(1)), 0);
    assert_eq!(paused.request(2, at(99)).total, 0);
    assert_eq!(paused.request(2, at(99)), PauseRequest::default());
    assert_eq!(paused.pfc_counters(2).ignored, 1);
    assert_eq!(paused.pause_counters().ignored, 1);

    paused.receive(&pfc(0b1000, 9), at(100), GIGABIT);
    paused.configure(0b0100, true, at(200));
    assert_eq!(
        paused.mask(at(200)),
        0,
        "the pause ends with its permission"
    );
    assert_eq!(paused.paused_total(3, at(9999)), 100);
}

/// SW-32: while the watchdog ignores a priority nothing is paused, what is asked is counted, and
/// afterwards the pause that still runs is obeyed again.
#[test]
fn what_the_watchdog_ignores_goes_on_being_asked() {
    let mut paused = PfcReceiver::new(0xff, false);
    paused.receive(&pfc(0b1001, 10), at(0), GIGABIT);
    paused.ignore(0b1000, at(1000));
    assert_eq!(paused.mask(at(1000)), 0b0001);
    paused.receive(&pfc(0b1000, 10), at(2000), GIGABIT);
    assert_eq!(paused.mask(at(2001)), 0b0001);
    assert_eq!(paused.next_expiry(at(5200)), Time::NEVER);
    paused.ignore(0, at(7000));
    assert_eq!(paused.mask(at(7000)), 0b1000);
    assert_eq!(paused.next_expiry(at(7000)), at(7120));
    assert_eq!(paused.paused_total(3, at(9999)), 1120);
    assert_eq!(paused.request(3, at(9999)).total, 7120);
    assert_eq!(paused.pfc_counters(3).pausing, 2);
}

/// SW-32: a refresh that comes in time continues the pause, one that comes late begins another.
#[test]
fn a_gap_begins_another_pause() {
    let mut paused = PfcReceiver::new(0xff, false);
    let since = |paused: &PfcReceiver, now| paused.request(0, at(now)).since;
    paused.receive(&pfc(1, 1), at(10), GIGABIT);
    paused.receive(&pfc(1, 1), at(522), GIGABIT);
    assert_eq!(since(&paused, 1033), Some(at(10)), "at the very end");
    assert_eq!(since(&paused, 1034), None);
    paused.receive(&pfc(1, 1), at(1035), GIGABIT);
    assert_eq!(since(&paused, 1035), Some(at(1035)));
    paused.receive(&pfc(1, 0), at(2000), GIGABIT);
    paused.receive(&pfc(1, 1), at(2000), GIGABIT);
    assert_eq!(since(&paused, 2000), Some(at(2000)), "an xon that was late");
    assert_eq!(paused.request(0, at(2000)).total, 1024 + 512);
}

/// How long a pause of so many quanta lasts on a port of this speed.
fn length(quanta: u16, speed: Rate) -> u64 {
    let mut paused = PfcReceiver::new(0xff, true);
    paused.receive(&Control::Pause(quanta), at(0), speed);
    paused.paused_until(0).nanos()
}

/// SW-31: quanta are of 512 bit times at every speed.
#[test]
fn quanta_are_exact_from_10_megabits_to_1600_gigabits() {
    assert_eq!(length(1, SLOWEST), 51_200);
    assert_eq!(length(u16::MAX, SLOWEST), 3_355_392_000);
    assert_eq!(length(1, Rate::from_gbps(100)), 6, "5.12 ns");
    assert_eq!(
        length(u16::MAX, Rate::from_gbps(100)),
        335_540,
        "335539.2 ns"
    );
    assert_eq!(
        length(u16::MAX, Rate::from_gbps(1600)),
        20_972,
        "20971.2 ns"
    );
}

/// SW-31, HT-45: with an unknown speed a pause is neither ignored nor endless: it lasts as long as
/// on the slowest link, and XON ends it.
#[test]
fn at_an_unknown_speed_a_pause_lasts_as_on_the_slowest_link() {
    let unknown = Rate::default();
    assert_eq!(length(0, unknown), 0);
    assert_eq!(length(1, unknown), 51_200);
    assert_eq!(length(u16::MAX, unknown), length(u16::MAX, SLOWEST));
    let mut paused = PfcReceiver::new(0xff, true);
    paused.receive(&pfc(0b11, u16::MAX), at(0), unknown);
    paused.receive(&pfc(0b01, 0), at(1000), unknown);
    assert_eq!(paused.mask(at(1000)), 0b10);
    assert_eq!(paused.next_expiry(at(1000)), at(3_355_392_000));
    assert_eq!(paused.mask(at(3_355_392_000)), 0);
}

proptest! {
    /// SW-31: never shorter than asked and never a whole nanosecond longer.
    #[test]
    fn quanta_are_rounded_up_to_a_nanosecond(quanta: u16, bps in 10_000_000..=1_600_000_000_000_u64) {
        let nanos = u128::from(length(quanta, Rate::from_bps(bps)));
        let bits = u128::from(quanta) * 512 * 1_000_000_000;
        prop_assert!(nanos * u128::from(bps) >= bits);
        prop_assert!(nanos.saturating_sub(1) * u128::from(bps) <= bits);
    }

    /// SW-31, SW-32: integrals, masks and ends are those of a model that looks at every nanosecond,
    /// while nobody looks at the port but at the end.
    #[test]
    fn integrals_are_exact(
        steps in prop::collection::vec((0..40_u64, 0..6_u8, any::<u8>(), 0..30_u16), 0..40),
        rest in 0..60_u64,
    ) {
        // A quantum takes one nanosecond.
        let speed = Rate::from_gbps(512);
        let mut paused = PfcReceiver::new(0xff, true);
        let (mut pfc_until, mut link_until) = ([0_u64; PRIORITIES], 0_u64);
        let (mut obeyed, mut link, mut ignored) = (0xff_u8, true, 0_u8);
        let (mut asked, mut was_paused) = ([0_u64; PRIORITIES], [0_u64; PRIORITIES]);
        let mut now = 0_u64;
        let steps = steps.into_iter().chain([(rest, 0, 0, 0)]);
        for (gap, kind, mask, quanta) in steps {
            for nano in now..now + gap {
                for n in 0..PRIORITIES {
                    if nano < pfc_until[n].max(link_until) {
                        asked[n] += 1;
                        was_paused[n] += u64::from(ignored & 1 << n == 0);
                    }
                }
            }
            now += gap;
            match kind {
                0..=2 => {
                    paused.receive(&pfc(mask, quanta), at(now), speed);
                    for (n, until) in pfc_until.iter_mut().enumerate() {
                        if mask & obeyed & 1 << n != 0 {
                            *until = now + u64::from(quanta);
                        }
                    }
                }
                3 => {
                    paused.receive(&Control::Pause(quanta), at(now), speed);
                    if link {
                        link_until = now + u64::from(quanta);
                    }
                }
                4 => {
                    paused.ignore(mask, at(now));
                    ignored = mask;
                }
                _ => {
                    (obeyed, link) = (mask, quanta % 2 == 0);
                    paused.configure(obeyed, link, at(now));
                    for (n, until) in pfc_until.iter_mut().enumerate() {
                        if obeyed & 1 << n == 0 {
                            *until = 0;
                        }
                    }
                    if !link {
                        link_until = 0;
                    }
                }
            }
        }
        let mut next = u64::MAX;
        for n in 0..PRIORITIES {
            let until = pfc_until[n].max(link_until);
            let waits = now < until && ignored & 1 << n == 0;
            prop_assert_eq!(paused.request(n, at(now)).total, asked[n]);
            prop_assert_eq!(paused.paused_total(n, at(now)), was_paused[n]);
            prop_assert_eq!(paused.mask(at(now)) & 1 << n != 0, waits);
            if waits {
                next = next.min(until);
            }
        }
        prop_assert_eq!(paused.next_expiry(at(now)), at(next));
    }
}
/// SW-30, HT-45: frames that are no flow control are told apart.
#[test]
fn malformed_frames_are_told_apart() {
    let good = pfc(1, 0).emit(Mac([2; 6]));
    let changed = |place: usize, value: u8| {
        let mut frame = good;
        frame[place] = value;
        frame
    };
    assert_eq!(read(&good, None), Ok(pfc(1, 0)));
    for (reason, frame) in [
        (Malformed::Address, &changed(5, 0x0e)[..]),
        (Malformed::Length, &good[..13]),
        (Malformed::Length, &good[..14]),
        (Malformed::Length, &good[..14 + 19]),
        (Malformed::Opcode, &changed(15, 2)[..]),
        (Malformed::Vector, &changed(16, 1)[..]),
    ] {
        assert_eq!(read(frame, None), Err(reason));
    }
    assert!(is_control(&good));
    assert!(!is_control(&changed(13, 9)) && !is_control(&good[..13]));
}

/// IEEE 802.3 annex 31B.3.3: a station takes frames to the group address and to its own.
#[test]
fn frames_to_the_own_address_are_taken_where_it_is_given() {
    let own = Mac([2, 0, 0, 0, 0, 7]);
    let mut frame = Control::Pause(9).emit(Mac([2; 6]));
    assert_eq!(frame[..6], pause::DESTINATION.0);
    frame[..6].copy_from_slice(&own.0);
    assert_eq!(read(&frame, Some(own)), Ok(Control::Pause(9)));
    assert_eq!(read(&frame, None), Err(Malformed::Address));
    assert_eq!(read(&frame, Some(Mac([2; 6]))), Err(Malformed::Address));
}
