//! Receive rings that follow from what a port must not lose.

use super::*;
use crate::config::memory::Machine;
use common::schedulers::PauseAnnouncement;
use common::time::Span;
use common::wire::schedule::{PauseTerms, Role};

/// A lossless group at the ports `b*`.
const LOSSLESS: &str = "ports = [\"a\", \"b1\", \"b2\"]\n[qos.buffer]\nsize_bytes = 67108864\n\
    [qos.flow_control]\nmode = \"pfc\"\n[[qos.group]]\nports = [\"b*\"]\ngroups = [3]\n\
    xoff_bytes = 65536\nxon_bytes = 32768\nheadroom = \"auto\"\n\
    [[qos.queue]]\nports = [\"*\"]\nqueues = [3]\nlossless = true\n";

/// What ports of this speed get, as (name, receive ring, transmit ring), and the warnings.
fn fitted(more: &str, gbps: u64, machine: Option<Machine<'_>>) -> (Vec<(u32, u32)>, Vec<String>) {
    let text = format!("{LOSSLESS}{more}");
    let config = load(&text, &[]).unwrap_or_else(|error| panic!("{error}: {text}"));
    let names = ["a", "b1", "b2"].map(str::to_owned);
    let ports = config.resolve_ports(&names).unwrap();
    let speed = Some(Rate::from_gbps(gbps));
    let facts = ports.iter().map(|port| config.facts(port, speed, 1500));
    let fitted = config.fit(facts.collect(), machine).unwrap();
    let rings = fitted.facts.iter().map(|it| (it.ring, it.transmit_ring));
    let mut warnings = fitted.compiled.warnings;
    // That of the port `a` is not about rings.
    warnings.retain(|it| !it.contains("has no headroom"));
    (rings.collect(), warnings)
}

const NOTHING: Vec<String> = Vec::new();

/// SW-12: the receive ring of a lossless port holds what arrives in a poll gap: 1,489 of the
/// shortest frames in 100 µs at 10 Gb/s. That of others is as it always was.
#[test]
fn lossless_ports_have_rings_that_hold_a_poll_gap() {
    let rings = |long| vec![(1024, 1024), (long, 1024), (long, 1024)];
    assert_eq!(fitted("", 10, None), (rings(2048), NOTHING));
    assert_eq!(fitted("", 1, None), (rings(1024), NOTHING));
    assert_eq!(fitted("", 40, None), (rings(8192), NOTHING));
    let short = "[qos.headroom]\npoll_gap_microseconds = 50\n";
    assert_eq!(fitted(short, 10, None), (rings(1024), NOTHING));
    let long = "[qos.headroom]\nshortest_frame_bytes = 512\n";
    assert_eq!(fitted(long, 10, None), (rings(1024), NOTHING));
    // The last table of a group counts.
    let lossy = "[[qos.group]]\nports = [\"b1\"]\ngroups = [3]\n\
                 [[qos.queue]]\nports = [\"b1\"]\nqueues = [3]\nlimit_bytes = 65536\n\
                 [qos.class_of_priority]\n3 = 2\n";
    let (rings, _) = fitted(lossy, 10, None);
    assert_eq!(rings, [(1024, 1024), (1024, 1024), (2048, 1024)]);
}

/// SW-12: what the operator sets holds for every ring, and one that is too short is a warning.
#[test]
fn rings_set_by_hand_stay() {
    let (rings, warnings) = fitted("[memory]\nring = 1024\n", 10, None);
    assert_eq!(rings, [(1024, 1024); 3]);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let wanted = "b1: its receive ring (memory.ring) holds 1024 frames, but up to 1489 arrive in ";
    assert!(warnings[0].starts_with(wanted), "{warnings:?}");
    let (rings, warnings) = fitted("[memory]\nring = 4096\n", 10, None);
    assert_eq!((rings, warnings), (vec![(4096, 4096); 3], NOTHING));
}

/// SW-12: rings that memory or the buffer has no room for are shorter, and that is a warning.
#[test]
fn rings_take_no_more_than_there_is() {
    const MIB: u64 = 1 << 20;
    let machine = |queues, memory| {
        Some(Machine {
            memory: Some(memory),
            queues,
        })
    };
    let frames = 4096 * (2 * (3 * 8192 + 1024) + 4 * 1024);
    let exactly = machine(&[1, 1, 1], 8 * frames);
    let rings = |long| vec![(1024, 1024), (long, 1024), (long, 1024)];
    assert_eq!(fitted("", 40, exactly), (rings(8192), NOTHING));
    for (queues, memory, long) in [
        (&[1, 1, 1], 8 * frames - 1, 4096),
        (&[1, 1, 2], 8 * frames, 4096),
        (&[1, 1, 1], 16 * MIB, 1024),
    ] {
        let (got, warnings) = fitted("", 40, machine(queues, memory));
        assert_eq!(got, rings(long), "{queues:?} {memory}");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
    // Computed headroom holds the cells of what a longer ring holds.
    let (config, facts) = of_buffer(12 << 20, "");
    assert_eq!(facts[1].ring, 16_384);
    assert!(
        config.qos.compile(&facts).is_err(),
        "the buffer is too small"
    );
    let fitted = config.fit(facts, None).unwrap();
    assert_eq!(fitted.facts[1].ring, fitted.longest_ring);
    assert!(fitted.longest_ring < 16_384);
}

/// The first ports of 100 Gb/s with a buffer of so many bytes.
fn of_buffer(bytes: u32, more: &str) -> (Config, Vec<PortFacts>) {
    let size = format!("size_bytes = {bytes}");
    let text = LOSSLESS.replace("size_bytes = 67108864", &size);
    let config = load(&format!("{text}{more}"), &[]).unwrap();
    let names = ["a", "b1", "b2"].map(str::to_owned);
    let ports = config.resolve_ports(&names).unwrap();
    let speed = Some(Rate::from_gbps(100));
    let facts = ports.iter().map(|port| config.facts(port, speed, 1500));
    let facts = facts.collect();
    (config, facts)
}

/// SW-12: what a peer announces follows a pause and comes at the speed of the line, so a receive
/// ring needs no more for it; but the cells of a ring's frames leave room in the buffer for all
/// that peers may announce, if they are listened to and the shortest rings do.
#[test]
fn rings_leave_room_for_what_peers_announce() {
    const LISTENS: &str = "[scheduling]\nannounce = true\n";
    let most = PauseAnnouncement {
        role: Role::Switch,
        name: "peer".to_owned(),
        terms: PauseTerms {
            response: Some(Span::from_secs(1)),
            backlog: 1 << 30,
        },
    };
    let told = |facts: &[PortFacts]| -> Vec<PortFacts> {
        let told = |it: &PortFacts| PortFacts {
            announced: Some(most.clone()),
            ..it.clone()
        };
        facts.iter().map(told).collect()
    };
    let left_out = |config: &Config, facts: &[PortFacts]| {
        let compiled = config.qos.compile(&told(facts)).unwrap();
        let mut warnings = compiled.warnings.iter();
        warnings.any(|it| it.contains("announces of pauses does not fit"))
    };
    let shortest = |facts: &[PortFacts]| -> Vec<PortFacts> {
        let short = |it: &PortFacts| PortFacts {
            ring: 1024,
            ..it.clone()
        };
        facts.iter().map(short).collect()
    };
    // 18 MiB hold the headroom of the longest rings, and not another quarter of the buffer.
    let (deaf, wanted) = of_buffer(18 << 20, "");
    let needs = wanted.iter().map(|port| port.ring);
    let (listens, same) = of_buffer(18 << 20, LISTENS);
    assert!(needs.eq([1024, 16_384, 16_384]));
    assert_eq!(same, wanted);
    for facts in told(&wanted) {
        let needed = listens.qos.ring_needed(&facts);
        let expected = (facts.name != "a").then_some(14_881);
        assert_eq!(needed, expected, "{}", facts.name);
    }
    let longest = deaf.fit(wanted.clone(), None).unwrap();
    assert_eq!(longest.facts, wanted);
    assert!(left_out(&listens, &longest.facts));
    let shorter = listens.fit(wanted.clone(), None).unwrap();
    assert!(shorter.longest_ring < 16_384);
    assert_eq!(shorter.facts[1].ring, shorter.longest_ring);
    assert!(!left_out(&listens, &shorter.facts));
    let twice = |it: &PortFacts| PortFacts {
        ring: (2 * it.ring).min(2 * shorter.longest_ring),
        ..it.clone()
    };
    let twice: Vec<PortFacts> = shorter.facts.iter().map(twice).collect();
    assert!(left_out(&listens, &twice), "rings of twice the length fit");

    let unheeded = format!("{LISTENS}[qos.headroom]\nannounced_percent = 0\n");
    let (unheeded, _) = of_buffer(18 << 20, &unheeded);
    assert_eq!(unheeded.fit(wanted.clone(), None).unwrap().facts, wanted);
    // Where even the shortest leave no room, the longest that fit without it are best.
    let small = "[qos.headroom]\nannounced_percent = 50\n\
                 [[qos.group]]\nports = [\"a\"]\ngroups = [0]\nguaranteed_bytes = 4194304\n";
    let (deaf, _) = of_buffer(18 << 20, small);
    let (listens, _) = of_buffer(18 << 20, &format!("{small}{LISTENS}"));
    assert!(left_out(&listens, &shortest(&wanted)));
    let without = deaf.fit(wanted.clone(), None).unwrap();
    assert!(1024 < without.longest_ring && without.longest_ring < 16_384);
    assert_eq!(listens.fit(wanted, None).unwrap(), without);
}

/// MG-1: receive rings that nobody wrote are shown with what they follow from.
#[test]
fn derived_rings_are_shown() {
    let config = load(LOSSLESS, &[]).unwrap();
    let ports = config
        .resolve_ports(&["a", "b1", "b2"].map(str::to_owned))
        .unwrap();
    let speed = Some(Rate::from_gbps(10));
    let facts: Vec<_> = ports
        .iter()
        .map(|port| config.facts(port, speed, 1500))
        .collect();
    let rows = |config: &Config| {
        let text = comments(&config.derived_of(facts.iter().map(|it| (it, None))));
        let rows = text.lines().filter(|line| line.contains("receive_ring"));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = rows(&config);
    assert!(shown[0].starts_with("# a: receive_ring = 1024  # derived from memory.ring"));
    assert!(shown[1].starts_with("# b1: receive_ring = 2048  # derived from memory.ring"));
    let by_hand = load(&format!("{LOSSLESS}[memory]\nring = 1024\n"), &[]).unwrap();
    assert_eq!(rows(&by_hand), Vec::<String>::new());
}
