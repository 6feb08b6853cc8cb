//! Receive rings that follow from what a port must not lose.

use super::*;
use crate::config::memory::Machine;

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
    let small = ("size_bytes = 67108864", "size_bytes = 12582912");
    let text = LOSSLESS.replace(small.0, small.1);
    assert!(text.contains(small.1));
    let config = load(&text, &[]).unwrap();
    let ports = config
        .resolve_ports(&["a", "b1", "b2"].map(str::to_owned))
        .unwrap();
    let speed = Some(Rate::from_gbps(100));
    let facts = ports.iter().map(|port| config.facts(port, speed, 1500));
    let facts: Vec<PortFacts> = facts.collect();
    assert_eq!(facts[1].ring, 16_384);
    assert!(
        config.qos.compile(&facts).is_err(),
        "the buffer is too small"
    );
    let fitted = config.fit(facts, None).unwrap();
    assert_eq!(fitted.facts[1].ring, fitted.longest_ring);
    assert!(fitted.longest_ring < 16_384);
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
