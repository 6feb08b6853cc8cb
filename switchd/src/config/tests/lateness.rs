//! Where peers are told to go on, whether they are told to wait in time, and what would be lost
//! nevertheless.

use super::*;

/// SW-10: a dynamic threshold of one group alone is αS ÷ (1 + α) and its guarantee; xon is possible
/// up to that, and not beyond.
#[test]
fn a_dynamic_group_resumes_below_its_largest_threshold() {
    let with = |lines: &str| lossless(&[("xoff_bytes = 1000000\nxon_bytes = 500000", lines)]);
    let compiled = with("dynamic_th = 1\nxon_bytes = 256").unwrap();
    let most = 16 + 2 * compiled.policy.regions.service / 3;
    for key in ["xon_bytes", "xon_offset_bytes"] {
        let with = |cells: u32| with(&format!("dynamic_th = 1\n{key} = {}", cells * 256));
        assert!(with(most - 1).is_ok(), "{key}");
        let wanted = format!(
            "qos.group[0].{key}: a, group 3: {} is not below {0}, the most",
            most * 256
        );
        let error = with(most).expect_err(key);
        assert!(error.starts_with(&wanted), "{error}");
    }
}

/// SW-11: headroom without anybody who is told to stop is a warning.
#[test]
fn headroom_without_pauses_is_a_warning() {
    for off in ["mode = \"off\"", "mode = \"pfc\"\nsend = false"] {
        let compiled = lossless(&[("mode = \"pfc\"", off)]).unwrap();
        assert!(
            compiled.warnings[0]
                .contains("a: group 3 has headroom, but qos.flow_control does not pause"),
            "{:?}",
            compiled.warnings
        );
    }
}

/// SW-11, SW-12: 20 µs at 100 Gb/s are up to 2,977 frames of 60 bytes, which the receive ring of a
/// lossless port should hold.
#[test]
fn a_short_ring_is_a_warning() {
    let qos = |lossless: &str| -> Qos {
        let text = format!("[headroom]\npoll_gap_microseconds = 20\n{lossless}");
        toml::from_str(&text).unwrap()
    };
    let group = "[flow_control]\nmode = \"pfc\"\n[[group]]\nports = [\"b\"]\ngroups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = 65536";
    let warnings = |text: &str, ring| {
        let mut ports = facts();
        ports.iter_mut().for_each(|port| port.ring = ring);
        qos(text).compile(&ports).unwrap().warnings
    };
    assert_eq!(warnings(group, 2977), Vec::<String>::new());
    assert_eq!(warnings("", 64), Vec::<String>::new());
    let short = warnings(group, 2976);
    assert_eq!(short.len(), 1, "{short:?}");
    let wanted = "b: its receive ring (memory.ring) holds 2976 frames, but up to 2977 arrive in \
                  qos.headroom.poll_gap_microseconds, 20µs: ";
    assert!(short[0].starts_with(wanted), "{short:?}");
}

/// SW-11, SW-31: a pause is refreshed at its half, and a worker that is as late as planned must
/// still be in time.
#[test]
fn a_pause_shorter_than_two_gaps_is_a_warning() {
    // A quantum is 5.12 ns: 7,813 of them are 40.002 µs.
    let warnings = |lines: &str| {
        let lines = format!("mode = \"pfc\"\n{lines}");
        lossless(&[("mode = \"pfc\"", &lines)]).unwrap().warnings
    };
    assert_eq!(warnings("quanta = 7813"), Vec::<String>::new());
    let short = warnings("quanta = 7812");
    assert_eq!(short.len(), 2, "{short:?}");
    for (warning, name) in short.iter().zip(["a", "b"]) {
        let wanted = format!("{name}: half a pause of 7812 qos.flow_control.quanta is 19.99");
        assert!(warning.starts_with(&wanted), "{short:?}");
    }
    let silent = warnings("quanta = 7812\nsend = false");
    assert!(silent.iter().all(|it| !it.contains("quanta")), "{silent:?}");
}

/// SW-12: headroom follows from the measured delay of a cable instead of its length: light takes
/// 500 ns through 99 m.
#[test]
fn a_cable_can_be_measured() {
    let with = |cable: &str| {
        let text = format!(
            "[headroom]\npoll_gap_microseconds = 1\n{cable}\n[flow_control]\nmode = \"pfc\"\n[[group]]\ngroups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = \"auto\"\n[[queue]]\nqueues = [3]\nlossless = true"
        );
        let qos: Qos = toml::from_str(&text).unwrap();
        qos.compile(&facts())
            .map(|it| it.policy.ports[0].groups[3].headroom)
    };
    let far = with("cable_metres = 99").unwrap();
    assert_eq!(with("cable_delay_nanoseconds = 500").unwrap(), far);
    assert!(with("cable_delay_nanoseconds = 5000").unwrap() > far);
    assert!(with("cable_metres = 0").unwrap() < far);
    // A length that is said of one port is not that of a delay that was measured of all.
    let one =
        "cable_delay_nanoseconds = 5000\n[[headroom.port]]\nports = [\"a\"]\ncable_metres = 99";
    assert_eq!(with(one).unwrap(), far);
    let error = with("cable_delay_nanoseconds = 2000000000").expect_err("two seconds");
    assert_eq!(
        error.iter().next().map(|it| it.key.as_str()),
        Some("qos.headroom.cable_delay_nanoseconds")
    );
}

/// SW-33: a lossless flow that goes back to the spine through a queue which drops is a warning.
#[test]
fn a_hook_into_a_queue_that_drops_is_a_warning() {
    let warnings = |uplink: bool, more: &str| {
        let text = format!(
            "[headroom]\npoll_gap_microseconds = 1\n[flow_control]\nmode = \"pfc\"\n[hook]\npriority = 5\ndscp = 41\n\
             [[group]]\ngroups = [3, 5]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = \"auto\"\n\
             [[queue]]\nqueues = [3]\nlossless = true\n{more}"
        );
        let qos: Qos = toml::from_str(&text).unwrap();
        let mut ports = facts();
        ports[1].uplink = uplink;
        qos.compile(&ports).unwrap().warnings
    };
    let lossless = "[[queue]]\nqueues = [5]\nlossless = true";
    let drops = "[[queue]]\nqueues = [5]\nlimit_bytes = 1048576";
    assert_eq!(warnings(true, lossless), Vec::<String>::new());
    assert_eq!(warnings(false, drops), Vec::<String>::new());
    let found = warnings(true, drops);
    assert!(
        found.len() == 1 && found[0].starts_with("b, queue 5: hook flows of the lossless group 3"),
        "{found:?}"
    );
}
