//! `docs/traffic-manager.md`, the manual of the traffic manager: its configurations are accepted,
//! and the numbers of its examples are true; and the class of jobs in `docs/compute.md`.

use common::config::load_text;
use common::time::{Span, Time};
use common::units::Rate;
use std::path::Path;
use switchd::config::{Compiled, Config, ENV_PREFIX, Speed};
use switchd::drop::DropReason;
use switchd::forward::dlb::quality::{Gauge, Reading};
use switchd::limits::{CELL, PORT_BURST};
use switchd::tables::dlb::{Scale, Settings};
use switchd::tables::policy::{Limit, Schedule};
use switchd::tables::wred::Curve;
use switchd::traffic::device_limit::worst_backlog;
use switchd::traffic::headroom::{Breakdown, Cable, Headroom};
use switchd::traffic::pfc_tx::quanta_time;

const MANUAL: &str = include_str!("../../docs/traffic-manager.md");

/// Where metrics are named.
const METRICS: [&str; 3] = [
    include_str!("../src/control/metrics/mod.rs"),
    include_str!("../src/control/metrics/traffic.rs"),
    include_str!("../src/control/pfc_watchdog.rs"),
];

/// Every configuration in a part of the manual.
fn blocks(text: &str) -> Vec<&str> {
    let parts = text.split("```toml\n").skip(1);
    parts
        .map(|rest| rest.split_once("```").expect("a block ends").0)
        .collect()
}

/// The first configuration under a heading.
fn block_of(heading: &str) -> &'static str {
    let start = format!("\n## {heading}\n");
    let (_, section) = MANUAL.split_once(&start).expect("a heading");
    blocks(section)[0]
}

/// The policy of a switch with eight ports and two more, with an MTU of 3000, of 10 Gb/s where
/// nothing is said.
fn compiled(config: &Config) -> Result<Compiled, String> {
    let numbers = (1..=8).chain([49, 50]);
    let names: Vec<String> = numbers.map(|number| format!("swp{number}")).collect();
    let ports = config
        .resolve_ports(&names)
        .map_err(|refusal| refusal.to_string())?;
    let facts: Vec<_> = ports
        .iter()
        .map(|port| {
            let speed = match port.speed {
                Speed::Rate(rate) => Some(rate),
                Speed::Device => Some(Rate::from_gbps(10)),
                Speed::Unlimited => None,
            };
            config.facts(port, speed, 3000)
        })
        .collect();
    config.qos.compile(&facts).map_err(|it| it.to_string())
}

fn parsed(text: &str) -> Config {
    toml::from_str(text).expect("TOML with known keys")
}

/// A number as the manual writes it: 1,234.
fn written(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// MG-1: every configuration of the manual is accepted, and nothing in it is unwise.
#[test]
fn every_configuration_is_accepted() {
    let blocks = blocks(MANUAL);
    assert!(blocks.len() >= 10, "{} were found", blocks.len());
    for block in blocks {
        assert!(block.starts_with("# switchd.toml\n"), "{block}");
        let path = Path::new("switchd.toml");
        let config: Config = load_text(block, path, ENV_PREFIX, [], &[])
            .unwrap_or_else(|error| panic!("{error}\n{block}"));
        let compiled = compiled(&config).unwrap_or_else(|error| panic!("{error}\n{block}"));
        assert_eq!(compiled.warnings, Vec::<String>::new(), "{block}");
    }
}

/// SW-40: without a configuration jobs have a queue that best effort, hostd's data and its
/// acknowledgements do not have; with that of `docs/compute.md` it has the share and the marks that
/// are written there.
#[test]
fn jobs_have_a_class_of_their_own() {
    let own = |config: &Config| {
        let compiled = compiled(config).expect("accepted");
        assert_eq!(compiled.warnings, Vec::<String>::new());
        let class = |dscp| compiled.policy.classify.class_of_dscp(dscp);
        let jobs = class(config.compute.dscp);
        assert_eq!([0, 26, 46].map(class), [0, 3, 5]);
        assert_eq!(jobs, 2);
        compiled.policy.ports[0].queues[usize::from(jobs)].clone()
    };
    let strict = own(&parsed("ports = [\"swp*\"]\n"));
    assert_eq!(strict.schedule, Schedule::Strict);
    let blocks = blocks(include_str!("../../docs/compute.md")).into_iter();
    let mut blocks = blocks.filter(|block| block.starts_with("# switchd.toml\n"));
    let config = parsed(blocks.next().expect("an example"));
    assert!(config.compute.enabled && blocks.next().is_none());
    let shared = own(&config);
    assert_eq!(shared.schedule, Schedule::Dwrr(30));
    let Curve::Linear { kmin, kmax, .. } = shared.wred.expect("marks").profile.curve else {
        panic!("{shared:?}");
    };
    assert_eq!((kmin, kmax), (30_000, 120_000));
}

/// SW-12: the tables of headroom are what is computed.
#[test]
fn headroom_is_as_it_is_computed() {
    let table = |breakdown: &Breakdown| {
        let mut text = "| term | bytes on the wire | cells |\n|---|---|---|\n".to_owned();
        let mut row = |name: &str, bytes, cells| {
            text += &format!("| {name} | {} | {} |\n", written(bytes), written(cells));
        };
        for (name, term) in breakdown.terms() {
            row(name, term.bytes, term.cells);
        }
        row("all", breakdown.bytes(), breakdown.cells());
        text
    };
    let examples = [
        (10, 100, 1500, 50, 2048, 149_336, 1_769, 745, 94),
        (100, 5, 4096, 20, 4096, 596_700, 7_074, 2_977, 377),
    ];
    for (gbps, metres, mtu, gap, ring, bytes, cells, short, of_wire) in examples {
        let speed = Rate::from_gbps(gbps);
        let burst = u32::try_from(speed.bytes_in(PORT_BURST)).expect("small");
        let headroom = Headroom {
            speed,
            cable: Cable::Metres(metres),
            longest: mtu + 14,
            shortest: 60,
            response: None,
            ring,
            gap: Span::from_micros(gap),
            own: worst_backlog(speed, burst, speed, Span::from_micros(gap)),
            peer: 0,
        };
        let breakdown = headroom.breakdown();
        assert_eq!((breakdown.bytes(), breakdown.cells()), (bytes, cells));
        assert_eq!(headroom.ring_needed(), short);
        let hardware = Headroom {
            gap: Span::ZERO,
            own: 0,
            ..headroom
        };
        assert_eq!(hardware.breakdown().cells(), of_wire);
        assert!(MANUAL.contains(&table(&breakdown)), "{}", table(&breakdown));
    }
    for number in [written(7_074 * CELL as u64), "377 cells".to_owned()] {
        assert!(MANUAL.contains(&number), "{number}");
    }
}

/// SW-10: how far groups with dynamic thresholds grow, cell by cell.
#[test]
fn dynamic_thresholds_share_what_is_free() {
    const SERVICE: u64 = 100_000;
    let filled = |exponent: i8, groups: usize| {
        let limit = Limit::Dynamic(exponent);
        let mut used = vec![0_u64; groups];
        let mut grew = true;
        while grew {
            grew = false;
            for place in 0..groups {
                let free = SERVICE - used.iter().sum::<u64>();
                if free > 0 && used[place] < limit.cells(free) {
                    used[place] += 1;
                    grew = true;
                }
            }
        }
        used
    };
    let rows = [
        (-3, "1/8", [11_111, 10_000, 5_555]),
        (-1, "1/2", [33_333, 25_000, 8_333]),
        (0, "1", [50_000, 33_333, 9_090]),
        (3, "8", [88_888, 47_058, 9_876]),
    ];
    for (exponent, alpha, expected) in rows {
        for (groups, cells) in [1, 2, 10].into_iter().zip(expected) {
            let used = filled(exponent, groups);
            let right = used.iter().all(|used| used.abs_diff(cells) <= 1);
            assert!(right, "{exponent}, {groups}: {used:?}");
        }
        let [one, two, ten] = expected.map(written);
        let row = format!("| {exponent} | {alpha} | {one} | {two} | {ten} |");
        assert!(MANUAL.contains(&row), "{row}");
    }
}

/// SW-10, SW-11: the books of the leaf.
#[test]
fn the_leaf_has_the_buffer_that_is_said() {
    let leaf = parsed(block_of("A lossless class, step by step"));
    let policy = compiled(&leaf).expect("accepted").policy;
    let [spine, host] = [0, 2].map(|port: usize| policy.ports[port].groups[3]);
    assert!(policy.ports[0].uplink && !policy.ports[2].uplink);
    assert_eq!((host.headroom, spine.headroom), (1_778, 6_841));
    assert_eq!(
        (policy.regions.headroom, policy.regions.service),
        (27_906, 102_846)
    );
    let each = u64::from(host.guaranteed) + u64::from(policy.regions.service) / 12;
    assert_eq!(each, 8_586);
    let classify = &policy.classify;
    let queues = [26, 27, 46, 48, 0, 40].map(|dscp| classify.class_of_dscp(dscp));
    assert_eq!(queues, [3, 0, 6, 6, 0, 0]);
    for number in [1_778, 6_841, 27_906, 102_846, each, 10 * each * CELL as u64] {
        assert!(MANUAL.contains(&written(number)), "{number}");
    }
}

/// SW-11: what the manual says would be refused is refused, in these words.
#[test]
fn broken_relations_are_refused_as_is_said() {
    let leaf = block_of("A lossless class, step by step");
    let cases = [
        (
            "max_bytes = 320000",
            "max_bytes = 30000000",
            "marks are certain from 30000000 bytes, but the 10 groups that feed it pause at 21980160 in all",
        ),
        (
            "lossless = true",
            "limit_bytes = 4000000",
            "it drops at 4000000 bytes, but the 10 lossless groups that feed it let in 21980160 (xoff) and 7143936 (headroom)",
        ),
        (
            "size_bytes = 33554432",
            "size_bytes = 4194304",
            "guarantees of 320 and headroom of 27906 cells exceed the buffer of 16384",
        ),
        (
            "xon_offset_bytes = 16384\n",
            "",
            "a lossless group has to resume somewhere",
        ),
        (
            "mode = \"pfc\"",
            "mode = \"pfc\"\npriorities = [4]",
            "lack priorities of lossless groups: these are [3]",
        ),
        (
            "size_bytes = 33554432",
            "size_bytes = 33554432\nshared_headroom_bytes = 1048576",
            "6841 cells, exceeds the pool of 4096 cells",
        ),
        (
            "speed = \"10Gbps\"",
            "speed = \"unlimited\"",
            "which has no speed",
        ),
        (
            "[qos.watchdog]",
            "[[qos.elephants]]\nfrom = 3\nto = 2\nbytes = 1000000\n[qos.watchdog]",
            "queue 2, with the elephants of class 3: it drops at 1048576 bytes",
        ),
    ];
    for (from, to, wanted) in cases {
        assert!(leaf.contains(from), "{from}");
        let error = compiled(&parsed(&leaf.replace(from, to))).expect_err(to);
        assert!(error.contains(wanted), "{to}: {error}");
        assert!(MANUAL.contains(wanted), "{wanted}");
    }
    // The pool that the manual recommends is accepted, and gives back what is said.
    let pool = "size_bytes = 33554432\nshared_headroom_bytes = 3538944";
    let pooled = parsed(&leaf.replace("size_bytes = 33554432", pool));
    let regions = compiled(&pooled).expect("accepted").policy.regions;
    assert_eq!(regions.headroom, 13_824);
    assert_eq!(regions.service - 102_846, 14_082);
}

/// SW-16, SW-22, SW-23: the thresholds of UET's classes at 100 Gb/s and 12 µs.
#[test]
fn uet_classes_have_the_thresholds_that_are_said() {
    let rate = Rate::from_gbps(100);
    assert_eq!(rate.bytes_in(Span::from_micros(12)), 150_000);
    let uet = parsed(block_of("UET's classes"));
    let policy = compiled(&uet).expect("accepted").policy;
    let [low, med, high] = [1, 2, 3].map(|queue: usize| &policy.ports[0].queues[queue]);
    let (marks, trims) = (low.wred.expect("marks"), low.trim.expect("trims"));
    assert_eq!(
        marks.profile.curve,
        Curve::Linear {
            kmin: 30_000,
            kmax: 120_000,
            pmax: 1 << 16
        }
    );
    assert_eq!((trims.bytes, trims.rtx_bytes), (150_000, 225_000));
    let schedules = [low, med, high].map(|queue| queue.schedule);
    let wanted = [Schedule::Dwrr(25), Schedule::Dwrr(75), Schedule::Strict];
    assert_eq!(schedules, wanted);
    let limits = [low, med, high].map(|queue| queue.limit);
    let wanted = [750_000, 150_000, 150_000].map(|bytes| Some(Limit::Static(bytes / 256)));
    assert_eq!(limits, wanted);
}

/// SW-16, SW-22: the shipped profile has the thresholds that it says at the speed of the
/// laboratory.
#[test]
fn the_shipped_profile_has_the_thresholds_that_it_says() {
    const PROFILE: &str = include_str!("../../etc/switchd-uet.toml");
    let lab = "ports = [\"swp*\"]\n[port_defaults]\nspeed = \"1Gbps\"\n";
    let policy = compiled(&parsed(&format!("{lab}{PROFILE}")))
        .expect("accepted")
        .policy;
    let queues = &policy.ports[0].queues;
    let mut said = vec![250_000, 500_000];
    for low in [&queues[0], &queues[2], &queues[3]] {
        let Curve::Linear { kmin, kmax, .. } = low.wred.expect("marks").profile.curve else {
            panic!("{low:?}");
        };
        assert_eq!(low.limit, Some(Limit::Static(1_250_000 / 256)));
        assert_eq!(low.schedule, Schedule::Dwrr(8));
        said.extend([kmin, kmax, 1_250_000]);
    }
    assert_eq!(
        (queues[4].schedule, queues[5].schedule),
        (Schedule::Dwrr(72), Schedule::Strict)
    );
    for queue in [&queues[4], &queues[5]] {
        assert_eq!(queue.limit, Some(Limit::Static(500_000 / 256)));
    }
    let of_priority = policy.classify.class_of_priority;
    assert_eq!(of_priority, [0, 0, 2, 3, 4, 5, 5, 5]);
    for bytes in said {
        assert!(PROFILE.contains(&bytes.to_string()), "{bytes}");
    }
}

/// SW-31: the longest pause at two speeds.
#[test]
fn pauses_are_as_long_as_is_said() {
    let longest = |gbps| quanta_time(u16::MAX, Rate::from_gbps(gbps)).nanos();
    assert_eq!(longest(10), 3_355_392);
    assert_eq!(longest(100), 335_540);
}

/// SW-32: the shortest window in which three storms can be counted.
#[test]
fn the_window_of_storms_has_a_least_length() {
    let text = block_of("The watchdog");
    let with = |window: &str| {
        let key = "window_milliseconds = ";
        let from = format!("{key}60000");
        assert!(text.contains(&from));
        compiled(&parsed(&text.replace(&from, &format!("{key}{window}"))))
    };
    assert!(with("3000").is_ok());
    let error = with("2999").expect_err("too short");
    assert!(
        error.contains("qos.watchdog.window_milliseconds: 2.999s"),
        "{error}"
    );
}

/// SW-7: the bands of the examples, at 10 Gb/s, where 20,000 bytes pass in an interval.
#[test]
fn ports_are_in_the_bands_that_are_said() {
    let band = |sent: u64, queued: u64, paused: u64| {
        let scale = Scale::default();
        let mut reading = Reading {
            queued,
            up: true,
            ..Reading::default()
        };
        let mut gauge = Gauge::new(scale, Some(Rate::from_gbps(10)), Time::ZERO, reading);
        let mut now = Time::ZERO;
        for _ in 0..200 {
            now += scale.interval;
            reading.sent += sent;
            reading.paused += paused;
            gauge.sample(now, reading);
        }
        gauge.band()
    };
    assert_eq!(band(12_000, 65_536, 0), 4, "60 % and half of the queue");
    assert_eq!(band(20_000, 0, 0), 4, "full, nothing waits");
    assert_eq!(band(0, 0, 14_400), 7, "paused 90 %");
    assert_eq!(band(0, 0, 0), 0, "idle");
}

/// SW-4, SW-7: how many samples of nothing it takes until a port that was full, and one that was
/// paused for 75 % of the time, is in band 0 again.
#[test]
fn ports_forget_as_fast_as_is_said() {
    let forgets = |sent: u64, paused: u64| {
        let scale = Scale::default();
        let mut reading = Reading {
            up: true,
            ..Reading::default()
        };
        let mut gauge = Gauge::new(scale, Some(Rate::from_gbps(10)), Time::ZERO, reading);
        let mut now = Time::ZERO;
        let mut sample = |sent, paused| {
            now += scale.interval;
            reading.sent += sent;
            reading.paused += paused;
            gauge.sample(now, reading)
        };
        for _ in 0..200 {
            sample(sent, paused);
        }
        let samples = 1..100;
        let bands = samples.map(|_| sample(0, 0));
        1 + bands.take_while(|band| *band > 0).count()
    };
    let own = forgets(20_000, 0);
    assert_eq!(own, 5, "full");
    assert_eq!(forgets(5_000, 12_000), 7, "paused 75 %");
    let least = Scale::default().interval.times(own as u64 + 1);
    assert_eq!(least.nanos(), 96_000);
    assert!(least <= Settings::default().timeout);
}

/// MG-7: metrics and reasons that the manual names exist.
#[test]
fn what_is_to_be_watched_exists() {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let mut names = 0;
    for name in MANUAL.split(|letter: char| !is_name(letter)) {
        if name.starts_with("switchd_") {
            names += 1;
            // Of amounts in cells and in bytes the code names the family without the unit.
            let family = name.strip_suffix("_cells").unwrap_or(name);
            let family = family.strip_suffix("_bytes").unwrap_or(family);
            let quoted = [name, family].map(|name| format!("\"{name}\""));
            let is_there = |it: &&str| quoted.iter().any(|name| it.contains(name));
            assert!(METRICS.iter().any(is_there), "{name}");
        }
    }
    assert!(names > 30, "{names} were found");
    let reasons = [
        DropReason::HeadroomFull,
        DropReason::IngressFull,
        DropReason::QueueFull,
        DropReason::Wred,
        DropReason::TrimFull,
        DropReason::PfcStorm,
        DropReason::BufferFull,
        DropReason::RingFull,
        DropReason::ControlLength,
        DropReason::ControlOpcode,
        DropReason::ControlVector,
    ];
    for reason in reasons {
        let label = format!("`{}`", reason.label());
        assert!(MANUAL.contains(&label), "{label} is not explained");
    }
}
