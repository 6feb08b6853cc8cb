use super::*;
use crate::tables::watchdog::SettingsError;
use common::flow_control::PfcReceiver;
use common::units::Rate;
use common::wire::pause::Control;
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A speed at which the longest pause of one frame takes 335.54 µs.
const SPEED: Rate = Rate::from_gbps(100);
/// How often a peer that wants silence says so again.
const REFRESH: u64 = 150_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// A frame that names the priorities of `mask`, all with the same time.
fn pfc(mask: u8, quanta: u16) -> Control {
    Control::Pfc(std::array::from_fn(|n| {
        (mask & 1 << n != 0).then_some(quanta)
    }))
}

fn limited(storms: u8, window: Span) -> Settings {
    Settings {
        control: Some(StormLimit { storms, window }),
        ..Settings::default()
    }
}

/// What happens at a port besides polls.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Frame(Control),
    /// A packet of this queue leaves.
    Sent(usize),
}

/// Things that happen, in order.
type Script = Vec<(u64, Happening)>;

/// Endless pause for the priorities of `mask`, refreshed in time, that an xon ends at `to`.
fn storm(mask: u8, from: u64, to: u64) -> Script {
    let mut script = storm_without_end(mask, from, to);
    script.push((to, Happening::Frame(pfc(mask, 0))));
    script
}

/// The same, but the last frame runs out.
fn storm_without_end(mask: u8, from: u64, to: u64) -> Script {
    let step = usize::try_from(REFRESH).expect("small");
    (from..to)
        .step_by(step)
        .map(|nanos| (nanos, Happening::Frame(pfc(mask, u16::MAX))))
        .collect()
}

/// A port with its pauses and its watchdog, polled on time.
struct Rig {
    pfc_rx: PfcReceiver,
    watchdog: Watchdog,
    sent: [u64; CLASSES],
}

impl Rig {
    fn new(settings: Settings) -> Self {
        settings.check().expect("settings of a test are allowed");
        Self {
            pfc_rx: PfcReceiver::new(0xff, false),
            watchdog: Watchdog::new(Some(settings), at(0)),
            sent: [0; CLASSES],
        }
    }

    fn happen(&mut self, nanos: u64, happening: Happening) {
        match happening {
            Happening::Frame(control) => self.pfc_rx.receive(&control, at(nanos), SPEED),
            Happening::Sent(n) => self.sent[n] += 1,
        }
    }

    fn poll(&mut self, nanos: u64) -> Steps {
        let inputs = std::array::from_fn(|n| Input {
            request: self.pfc_rx.request(n, at(nanos)),
            sent_packets: self.sent[n],
        });
        let steps = self.watchdog.poll(at(nanos), &inputs);
        self.pfc_rx.ignore(steps.masks.ignoring, at(nanos));
        steps
    }

    /// Plays a script and polls when it is due, to `until`; returns the polls that changed
    /// something.
    fn run(&mut self, script: Script, until: u64) -> Vec<(u64, Steps)> {
        let mut changes = Vec::new();
        let end = (until, None);
        let script = script.into_iter().map(|(nanos, what)| (nanos, Some(what)));
        for (nanos, what) in script.chain([end]) {
            assert!(nanos <= until, "a script goes beyond its run");
            while self.watchdog.deadline() <= at(nanos) {
                let now = self.watchdog.deadline().nanos();
                let steps = self.poll(now);
                if steps.any() {
                    changes.push((now, steps));
                }
            }
            if let Some(what) = what {
                self.happen(nanos, what);
            }
        }
        changes
    }

    fn state(&self, n: usize) -> State {
        self.watchdog.status(n).state
    }
}

/// Time from the begin of a storm of priority 3 to its detection, and from there to the end of
/// recovery. The storm is over before that.
fn measure(settings: Settings, start: u64) -> (Span, Span) {
    let mut rig = Rig::new(settings);
    let detection = settings.detection_time.nanos();
    let poll = settings.poll_interval.nanos();
    let end = start + detection + 2 * poll;
    let until = end + settings.restoration_time.nanos() + 3 * poll;
    let changes = rig.run(storm(0b1000, start, end), until);
    let (found, steps) = changes[0];
    assert_eq!((steps.storm, steps.restored), (0b1000, 0));
    assert!(changes.len() >= 2, "never over: {changes:?}");
    let (over, steps) = changes[1];
    assert_eq!((steps.storm, steps.restored), (0, 0b1000));
    (at(found).since(at(start)), at(over).since(at(found)))
}

fn is_found_on_time(measured: Span, settings: &Settings) -> bool {
    let detection = settings.detection_time;
    detection < measured && measured <= detection + settings.poll_interval
}

fn is_over_on_time(measured: Span, settings: &Settings) -> bool {
    let recovery = settings.restoration_time;
    recovery <= measured && measured < recovery + settings.poll_interval
}

/// SW-32, SW-34: in 20 of 20 storms of any phase, detection and recovery take the configured time
/// and at most one poll interval more; the queue is idle and stormed all the same.
#[test]
fn both_times_are_kept_in_20_of_20_storms() {
    let settings = Settings::default();
    let mut random = Pcg64Mcg::seed_from_u64(32);
    for round in 0..20 {
        let start = random.next_u64() % (2 * settings.poll_interval.nanos());
        let (detected, recovered) = measure(settings, start);
        assert!(
            is_found_on_time(detected, &settings),
            "round {round}, begin {start}: detected after {detected}"
        );
        assert!(
            is_over_on_time(recovered, &settings),
            "round {round}, begin {start}: recovered after {recovered}"
        );
    }
}

/// SW-32: a storm that begins just after a poll, in what still counts as all of its interval, is
/// measured from its begin and not from that poll.
#[test]
fn a_storm_just_after_a_poll_is_not_found_early() {
    let settings = Settings {
        detection_time: Span::from_micros(199_700),
        ..Settings::default()
    };
    let (detected, _) = measure(settings, 100_500_000);
    assert_eq!(detected, Span::from_micros(299_500));
}

prop_compose! {
    /// Settings that are allowed, short enough to be played.
    fn any_settings()(poll in MS..5 * MS)(
        poll in Just(poll),
        detection in poll..20 * MS,
        restoration in poll..20 * MS,
        action in prop::sample::select(vec![Action::Drop, Action::Forward]),
    ) -> Settings {
        Settings {
            detection_time: Span::from_nanos(detection),
            restoration_time: Span::from_nanos(restoration),
            poll_interval: Span::from_nanos(poll),
            action,
            ..Settings::default()
        }
    }
}

proptest! {
    /// SW-32: the same for any times that are allowed, also those that are no multiples of each
    /// other.
    #[test]
    fn both_times_are_kept_with_any_settings(settings in any_settings(), start in 0..30 * MS) {
        let (detected, recovered) = measure(settings, start);
        prop_assert!(is_found_on_time(detected, &settings));
        prop_assert!(is_over_on_time(recovered, &settings));
    }

    /// SW-32: a pause that is no longer than the detection time is none of the watchdog's business.
    #[test]
    fn a_pause_of_the_detection_time_is_no_storm(
        settings in any_settings(),
        start in 0..30 * MS,
        shorter in prop_oneof![Just(0), 0..MS],
    ) {
        let mut rig = Rig::new(settings);
        let end = start + settings.detection_time.nanos() - shorter;
        let changes = rig.run(storm(0b1000, start, end), end + 50 * MS);
        prop_assert!(changes.is_empty(), "{changes:?}");
    }

    /// SW-32: a queue that sends one packet now and then is not deadlocked, however short the gaps
    /// between the pauses are.
    #[test]
    fn a_packet_in_the_gap_proves_that_the_queue_moves(
        settings in any_settings(),
        start in 0..30 * MS,
        gap in 2..1_000_u64,
        share in 1..=100_u64,
    ) {
        let mut rig = Rig::new(settings);
        let length = (settings.detection_time.nanos() * share / 100).max(REFRESH);
        let mut script = Script::new();
        let mut now = start;
        while now < start + 5 * settings.detection_time.nanos() {
            script.extend(storm(0b1000, now, now + length));
            script.push((now + length + gap / 2, Happening::Sent(3)));
            now += length + gap;
        }
        let changes = rig.run(script, now + 50 * MS);
        prop_assert!(changes.is_empty(), "{changes:?}");
    }

    /// SW-32: pauses of which each refresh comes a little late are a storm nevertheless if nothing
    /// is sent, found one poll interval later at most.
    #[test]
    fn late_refreshes_do_not_hide_a_storm(settings in any_settings(), start in 0..30 * MS, gap in 1..2_500_u64) {
        let mut rig = Rig::new(settings);
        let (detection, poll) = (settings.detection_time.nanos(), settings.poll_interval.nanos());
        let latest = start + detection + 2 * poll + poll / 50;
        let step = usize::try_from(335_540 + gap).expect("small");
        let script: Script = (start..latest + poll)
            .step_by(step)
            .map(|nanos| (nanos, Happening::Frame(pfc(0b1000, u16::MAX))))
            .collect();
        let changes = rig.run(script, latest + poll);
        prop_assert_eq!(changes.first().map(|it| it.1.storm), Some(0b1000));
        prop_assert!((start + detection + 1..=latest).contains(&changes[0].0), "{changes:?}");
    }

    /// SW-32: polls that come late neither find what is not there nor lose count.
    #[test]
    fn late_polls_use_the_time_that_passed(
        late in prop::collection::vec(0..300 * MS, 1..30),
        start in 0..SECOND,
        length in 1..2 * SECOND,
    ) {
        let settings = Settings { action: Action::Alert, ..Settings::default() };
        let (detection, poll) = (settings.detection_time.nanos(), settings.poll_interval.nanos());
        let mut rig = Rig::new(settings);
        let mut script = storm(0b1, start, start + length).into_iter().peekable();
        let (mut polls, mut found) = (Vec::new(), None);
        for late in late {
            let now = rig.watchdog.deadline().nanos() + late;
            while let Some((nanos, what)) = script.next_if(|(nanos, _)| *nanos <= now) {
                rig.happen(nanos, what);
            }
            if rig.poll(now).storm != 0 {
                prop_assert_eq!(found, None, "one storm");
                found = Some(now);
            }
            polls.push(now);
        }
        // Found by the first poll that can know: all of its interval, which is not the first, was
        // paused, and what was paused until then is longer than the detection time.
        let paused = start..start + length;
        let expected = polls.windows(2).find(|pair| {
            let (from, to) = (pair[0], pair[1]);
            let asked = to.min(paused.end).saturating_sub(from.max(paused.start));
            let stuck = to.min(paused.end).saturating_sub(paused.start);
            asked * 100 >= (to - from) * 99 && stuck > detection
        });
        prop_assert_eq!(found, expected.map(|pair| pair[1]));
        prop_assert!(found.is_none_or(|found| found > start + detection));
        prop_assert!(polls.windows(2).all(|pair| pair[1] - pair[0] >= poll));
    }
}

/// SW-32: an endless pause is one round after the other: detection, recovery, and the peer is
/// obeyed again for the whole detection time. `alert` changes nothing, and so is one storm.
#[test]
fn an_endless_pause_is_round_after_round() {
    for action in Action::ALL {
        let settings = Settings {
            detection_time: Span::from_millis(20),
            restoration_time: Span::from_millis(40),
            poll_interval: Span::from_millis(10),
            action,
            ..Settings::default()
        };
        let mut rig = Rig::new(settings);
        let changes = rig.run(storm_without_end(0xff, 5 * MS, 400 * MS), 400 * MS);
        let steps: Vec<_> = changes
            .iter()
            .map(|(now, steps)| (now / MS, steps.storm, steps.restored))
            .collect();
        let expected: Vec<_> = match action {
            Action::Alert => vec![(30, 0xff, 0)],
            // 20 ms more than 20 ms after the peer is obeyed again is the third poll.
            Action::Drop | Action::Forward => (0..6)
                .flat_map(|round| {
                    let found = 30 + 70 * round;
                    [(found, 0xff, 0), (found + 40, 0, 0xff)]
                })
                .filter(|(now, ..)| *now < 400)
                .collect(),
        };
        assert_eq!(steps, expected, "{action}");
    }
}

/// SW-32: the rounds of an endless pause are counted: one more than is allowed turns flow control
/// off, and then nothing happens any more.
#[test]
fn an_endless_pause_turns_flow_control_off() {
    let mut rig = Rig::new(limited(2, Span::from_secs(10)));
    let changes = rig.run(storm_without_end(0b1000, 0, 5 * SECOND), 5 * SECOND);
    let found = changes.iter().filter(|(_, it)| it.storm != 0).count();
    assert_eq!((found, changes.len()), (3, 5), "{changes:?}");
    let (now, last) = changes[4];
    assert_eq!(last.turned_off, 0b1000);
    // Detection 300, recovery 400, detection 300, recovery 400, detection 300.
    assert_eq!(now, 1_700 * MS);
    assert_eq!(rig.state(3), State::Off);
    assert_eq!(rig.pfc_rx.mask(at(5 * SECOND - 1)), 0, "nobody waits");
}

/// SW-32: each priority has its own times.
#[test]
fn priorities_have_times_of_their_own() {
    let mut settings = Settings::default();
    settings.own[4] = Some(Times {
        detection: Span::from_millis(600),
        recovery: Span::from_millis(1_500),
    });
    let mut rig = Rig::new(settings);
    let changes = rig.run(storm(0b11000, 0, 800 * MS), 3 * SECOND);
    let steps: Vec<_> = changes
        .iter()
        .map(|(now, steps)| (now / MS, steps.storm, steps.restored))
        .collect();
    let (three, four) = (0b01000, 0b10000);
    assert_eq!(
        steps,
        [(300, three, 0), (700, four, three), (2_200, 0, four)]
    );
}

/// SW-30, SW-32: PAUSE frames without end storm every priority.
#[test]
fn an_endless_pause_of_the_link_storms_all_priorities() {
    let mut rig = Rig::new(Settings::default());
    rig.pfc_rx = PfcReceiver::new(0, true);
    let step = usize::try_from(REFRESH).expect("small");
    let script = (0..SECOND)
        .step_by(step)
        .map(|nanos| (nanos, Happening::Frame(Control::Pause(u16::MAX))))
        .collect();
    let changes = rig.run(script, SECOND);
    assert_eq!((changes[0].0, changes[0].1.storm), (300 * MS, 0xff));
}

/// SW-32: time in which the worker read no frames is no part of a pause, neither before the poll
/// nor across several; without such gaps the same pause is a storm.
#[test]
fn a_worker_that_was_away_counts_none_of_it() {
    // At 10 Mb/s one frame pauses for 3.4 s: a resumption may wait in the ring of one that is away.
    let slow = Rate::from_mbps(10);
    let found = |gaps: &[(u64, u64)], until: u64| {
        let mut rig = Rig::new(Settings::default());
        rig.pfc_rx
            .receive(&pfc(0b1000, u16::MAX), at(50 * MS), slow);
        let mut changes = Vec::new();
        for &(from, to) in gaps {
            changes.extend(rig.run(Script::new(), from * MS));
            let Rig {
                pfc_rx, watchdog, ..
            } = &mut rig;
            watchdog.away(at(from * MS), at(to * MS), |n, now| pfc_rx.request(n, now));
        }
        changes.extend(rig.run(Script::new(), until * MS));
        changes.first().map(|(now, _)| now / MS)
    };
    assert_eq!(found(&[], 1_000), Some(300));
    assert_eq!(
        found(&[(60, 800)], 900),
        None,
        "10 ms and 100 ms are known of"
    );
    assert_eq!(found(&[(60, 800)], 2_000), Some(1_040));
    assert_eq!(found(&[(160, 190), (230, 260)], 1_000), Some(360));
    assert_eq!(
        found(&[(20, 80), (280, 290)], 1_000),
        Some(370),
        "before it began, too"
    );
}

/// SW-32: a pause that ended while the worker was away is no storm, as soon as it is known.
#[test]
fn what_ended_while_the_worker_was_away_is_no_storm() {
    let mut rig = Rig::new(Settings::default());
    let slow = Rate::from_mbps(10);
    rig.pfc_rx
        .receive(&pfc(0b1000, u16::MAX), at(50 * MS), slow);
    assert_eq!(rig.run(Script::new(), 210 * MS), []);
    let Rig {
        pfc_rx, watchdog, ..
    } = &mut rig;
    watchdog.away(at(210 * MS), at(700 * MS), |n, now| pfc_rx.request(n, now));
    rig.happen(700 * MS, Happening::Frame(pfc(0b1000, 0)));
    assert_eq!(rig.run(Script::new(), 2 * SECOND), []);
}

/// SW-32, SW-34: a storm touches its own priority alone, and does what the action says.
#[test]
fn the_action_is_done_to_the_stormed_priority_alone() {
    let bit = 0b1000;
    for (action, dropping, ignoring) in [
        (Action::Drop, bit, 0),
        (Action::Forward, 0, bit),
        (Action::Alert, 0, 0),
    ] {
        let mut rig = Rig::new(Settings {
            action,
            ..Settings::default()
        });
        let changes = rig.run(storm_without_end(bit, 0, 600 * MS), 600 * MS);
        assert_eq!(changes.len(), 1);
        let expected = Masks {
            dropping,
            ignoring,
            off: 0,
        };
        assert_eq!(changes[0].1.masks, expected, "{action}");
        assert_eq!(rig.watchdog.masks(), expected, "{action}");
        assert_eq!(rig.pfc_rx.mask(at(600 * MS)), bit & !ignoring, "{action}");
    }
}

/// SW-32: with `alert` the storm is over as soon as a packet leaves, or the pause ends.
#[test]
fn an_alert_ends_with_its_storm() {
    let mut rig = Rig::new(Settings {
        action: Action::Alert,
        ..Settings::default()
    });
    let mut script = storm(0b11, 0, 550 * MS);
    script.push((550 * MS, Happening::Sent(0)));
    script.extend(storm_without_end(0b11, 551 * MS, SECOND));
    let changes = rig.run(script, SECOND);
    let steps: Vec<_> = changes
        .iter()
        .map(|(now, steps)| (now / MS, steps.storm, steps.restored))
        .collect();
    // The gap of 1 ms is 1 % of the interval: for the queue of which nothing left it is none.
    assert_eq!(
        steps,
        [(300, 0b11, 0), (600, 0, 0b01), (800, 0b01, 0)],
        "{changes:?}"
    );
}

/// A script of storms of priority 3 that each last 400 ms, beginning at these times.
fn storms(begins: &[u64]) -> Script {
    begins
        .iter()
        .flat_map(|&begin| storm(0b1000, begin, begin + 400 * MS))
        .collect()
}

/// SW-32: one storm more than is allowed in the window turns PFC off, and only the operator turns
/// it on.
#[test]
fn too_many_storms_turn_pfc_off_until_the_operator_returns() {
    let settings = limited(2, Span::from_secs(10));
    let mut rig = Rig::new(settings);
    let script = storms(&[0, 3 * SECOND, 6 * SECOND, 9 * SECOND]);
    let changes = rig.run(script, 12 * SECOND);
    let turned_off: Vec<_> = changes
        .iter()
        .map(|(_, steps)| (steps.storm, steps.restored, steps.turned_off))
        .collect();
    let bit = 0b1000;
    assert_eq!(
        turned_off,
        [
            (bit, 0, 0),
            (0, bit, 0),
            (bit, 0, 0),
            (0, bit, 0),
            (bit, 0, bit)
        ],
        "nothing more happens once it is off"
    );
    let off = Masks {
        dropping: 0,
        ignoring: bit,
        off: bit,
    };
    assert_eq!(rig.watchdog.masks(), off);
    assert_eq!(rig.state(3), State::Off);
    assert_eq!(rig.watchdog.status(3).storms, 3);

    assert!(
        !rig.watchdog.enable(2, at(12 * SECOND)).any(),
        "was not off"
    );
    assert!(!rig.watchdog.enable(8, at(12 * SECOND)).any(), "is none");
    assert_eq!(rig.watchdog.masks(), off);
    let steps = rig.watchdog.enable(3, at(12 * SECOND));
    assert_eq!((steps.turned_on, steps.masks), (bit, Masks::default()));
    let changes = rig.run(storms(&[13 * SECOND, 15 * SECOND]), 18 * SECOND);
    assert_eq!(changes.len(), 4, "the storms before are forgotten");
    assert_eq!(rig.state(3), State::Operational);
    rig.run(storms(&[19 * SECOND]), 20 * SECOND);
    assert_eq!(rig.state(3), State::Off);
}

/// SW-32: storms that are further apart than the window allows are just storms.
#[test]
fn storms_that_are_spread_out_do_not_turn_pfc_off() {
    let mut rig = Rig::new(limited(2, Span::from_secs(10)));
    let begins: Vec<u64> = (0..10).map(|n| n * 6 * SECOND).collect();
    let changes = rig.run(storms(&begins), 60 * SECOND);
    assert_eq!(changes.len(), 20);
    assert_eq!(rig.state(3), State::Operational);
    let status = rig.watchdog.status(3);
    assert_eq!((status.storms, status.restored), (10, 10));
}

/// SW-32: as many storms as the window may have at most are allowed, and one more is not.
#[test]
fn the_longest_history_is_counted() {
    let begins: Vec<u64> = (0..=u64::from(MAX_STORMS)).map(|n| n * SECOND).collect();
    let settings = limited(MAX_STORMS, Span::from_secs(60));
    let mut rig = Rig::new(settings);
    let (last, before) = begins.split_last().expect("storms");
    rig.run(storms(before), *last);
    assert_eq!(rig.state(3), State::Operational);
    rig.run(storms(&[*last]), last + SECOND);
    assert_eq!(rig.state(3), State::Off);
}

/// SW-32: an alert never turns PFC off.
#[test]
fn an_alert_leaves_pfc_on() {
    let mut rig = Rig::new(Settings {
        action: Action::Alert,
        ..limited(1, Span::from_secs(60))
    });
    let changes = rig.run(storms(&[0, SECOND, 2 * SECOND, 3 * SECOND]), 5 * SECOND);
    assert_eq!(changes.len(), 8);
    assert!(
        changes
            .iter()
            .all(|(_, steps)| steps.masks == Masks::default())
    );
}

/// SW-32: a storm that goes on when the operator turns PFC on is found the detection time after
/// that.
#[test]
fn a_storm_that_goes_on_is_found_again() {
    for sends in [false, true] {
        let mut rig = Rig::new(limited(1, Span::from_secs(60)));
        let mut script = storms(&[0]);
        script.extend(storm_without_end(0b1000, 2 * SECOND, 3 * SECOND));
        rig.run(script, 3 * SECOND);
        assert_eq!(rig.state(3), State::Off);
        let on = 3_040 * MS;
        let mut before = storm_without_end(0b1000, 3 * SECOND, on);
        if sends {
            before.push((on, Happening::Sent(3)));
        }
        rig.run(before, on);
        assert_eq!(rig.watchdog.enable(3, at(on)).turned_on, 0b1000);
        let until = on + 350 * MS;
        let changes = rig.run(storm_without_end(0b1000, on, until), until);
        assert_eq!(changes.len(), 1);
        let found = changes[0].0;
        assert!(
            (on + 200 * MS + 1..=on + 300 * MS).contains(&found),
            "{found}"
        );
    }
}

/// SW-32: a change of settings keeps what goes on; without settings there is no storm and nothing
/// is off.
#[test]
fn settings_may_change_in_a_storm() {
    let drop = limited(1, Span::from_secs(60));
    let mut rig = Rig::new(drop);
    let mut script = storm(0b11, 0, 400 * MS);
    script.extend(storm_without_end(0b01, SECOND, 1_500 * MS));
    script.extend(storm_without_end(0b11, 1_500 * MS, 2 * SECOND));
    script.extend(storm_without_end(0b100, 2 * SECOND, 2_500 * MS));
    rig.run(script, 2_500 * MS);
    assert_eq!(rig.watchdog.masks().off, 0b011);
    assert_eq!(rig.watchdog.masks().dropping, 0b100);

    let forward = Settings {
        action: Action::Forward,
        poll_interval: Span::from_millis(50),
        ..drop
    };
    let steps = rig.watchdog.configure(Some(forward), at(2_510 * MS));
    assert!(!steps.any());
    assert_eq!((steps.masks.dropping, steps.masks.ignoring), (0, 0b111));
    assert_eq!(rig.watchdog.deadline(), at(2_550 * MS));

    let steps = rig.watchdog.configure(None, at(2_520 * MS));
    assert_eq!((steps.restored, steps.turned_on), (0b100, 0b011));
    assert_eq!(steps.masks, Masks::default());
    assert_eq!(rig.watchdog.deadline(), Time::NEVER);
    let changes = rig.run(storm_without_end(0xff, 2_520 * MS, 4 * SECOND), 4 * SECOND);
    assert!(changes.is_empty());
    assert!(!rig.poll(4 * SECOND).any());

    let steps = rig.watchdog.configure(Some(drop), at(4 * SECOND));
    assert!(!steps.any());
    let until = 4_600 * MS;
    let changes = rig.run(storm_without_end(0xff, 4 * SECOND, until), until);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(
        changes[0].0,
        4_300 * MS,
        "it counts from when it was taken on"
    );
    assert_eq!(changes[0].1.turned_off, 0, "storms before are forgotten");
}

/// SW-32: a poll that comes early changes nothing, and the next is due when it was.
#[test]
fn an_early_poll_does_nothing() {
    let mut rig = Rig::new(Settings::default());
    rig.run(storm_without_end(0b1, 0, 299 * MS), 299 * MS);
    let due = rig.watchdog.deadline();
    assert_eq!(rig.poll(299 * MS), Steps::default());
    assert_eq!(rig.watchdog.deadline(), due);
    assert_eq!(rig.poll(300 * MS).storm, 0b1);
}

/// SW-32: what is not allowed is refused with its name, its value and its range.
#[test]
fn settings_are_checked() {
    let good = Settings::default();
    assert_eq!(good.check(), Ok(()));
    let ms = Span::from_millis;
    let named = |error: SettingsError| format!("{}: {error}", error.key());
    let refused = |settings: Settings| named(settings.check().expect_err("refused"));
    let detection = |time| Settings {
        detection_time: time,
        ..Settings::default()
    };
    let restoration = |time| Settings {
        restoration_time: time,
        ..Settings::default()
    };
    let poll = |time| Settings {
        poll_interval: time,
        ..Settings::default()
    };
    for (settings, expected) in [
        (
            detection(ms(0)),
            "detection_time_milliseconds: 0ns is not between 1ms and 5s",
        ),
        (
            detection(ms(5_001)),
            "detection_time_milliseconds: 5.001s is not between 1ms and 5s",
        ),
        (
            restoration(ms(0)),
            "restoration_time_milliseconds: 0ns is not between 1ms and 60s",
        ),
        (
            restoration(ms(60_001)),
            "restoration_time_milliseconds: 60.001s is not between 1ms and 60s",
        ),
        (
            poll(ms(0)),
            "poll_interval_milliseconds: 0ns is not between 1ms and 200ms",
        ),
        (
            poll(ms(201)),
            "poll_interval_milliseconds: 201ms is not between 1ms and 200ms",
        ),
        (limited(0, ms(9_999)), "storms: 0 is not between 1 and 16"),
        (limited(17, ms(9_999)), "storms: 17 is not between 1 and 16"),
        (
            limited(2, ms(1_599)),
            "window_milliseconds: 1.599s is not between 1.6s and 86400s",
        ),
        (
            limited(2, ms(86_400_001)),
            "window_milliseconds: 86400.001s is not between 1.6s and 86400s",
        ),
    ] {
        assert_eq!(refused(settings), expected);
    }
    let slow = Settings {
        detection_time: ms(5_000),
        restoration_time: ms(60_000),
        poll_interval: ms(1_001),
        ..good
    };
    assert_eq!(
        refused(slow),
        "poll_interval_milliseconds: 1.001s is not between 1ms and 1s"
    );
    for allowed in [
        Settings {
            poll_interval: ms(1_000),
            ..slow
        },
        Settings {
            detection_time: ms(1),
            restoration_time: ms(1),
            poll_interval: ms(1),
            ..good
        },
        limited(MAX_STORMS, ms(16 * 800)),
    ] {
        assert_eq!(allowed.check(), Ok(()));
    }
    for action in Action::ALL {
        assert_eq!(action.name().parse(), Ok(action));
    }
    let error = named("Drop".parse::<Action>().expect_err("refused"));
    assert_eq!(error, "action: \"Drop\" is not one of drop, forward, alert");
}

/// The words that operators see.
#[test]
fn states_have_the_words_of_the_documentation() {
    let words = [State::Operational, State::Stormed, State::Off].map(|state| state.to_string());
    assert_eq!(words, ["operational", "stormed", "off"]);
}
