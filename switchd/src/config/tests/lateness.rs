//! Where peers are told to go on, and whether they are told to wait in time.

use super::*;

/// SW-10: a dynamic threshold of one group alone is αS ÷ (1 + α) and its guarantee; xon is possible up to that, and not beyond.
#[test]
fn a_dynamic_group_resumes_below_its_largest_threshold() {
    let with = |lines: &str| lossless(&[("xoff_bytes = 1000000\nxon_bytes = 500000", lines)]);
    let compiled = with("dynamic_th = 1\nxon_bytes = 256").unwrap();
    let most = 16 + 2 * compiled.policy.regions.service / 3;
    for key in ["xon_bytes", "xon_offset_bytes"] {
        let with = |cells: u32| with(&format!("dynamic_th = 1\n{key} = {}", cells * 256));
        assert!(with(most - 1).is_ok(), "{key}");
        let wanted = format!(
            "qos.group.{key}: a, group 3: {} is not below {0}, the most",
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

/// SW-11, SW-12: 20 µs at 100 Gb/s are up to 2,977 frames of 60 bytes, which the receive ring of a lossless port should hold.
#[test]
fn a_short_ring_is_a_warning() {
    let qos = |lossless: &str| -> Qos {
        let text = format!("[headroom]\npoll_gap_microseconds = 20\n{lossless}");
        toml::from_str(&text).unwrap()
    };
    let group = "[flow_control]\nmode = \"pfc\"\n[[group]]\nports = [\"b\"]\ngroups = [3]\nxoff_bytes = 65536\nheadroom = 65536";
    let warnings = |text: &str, ring| {
        let mut ports = facts();
        ports.iter_mut().for_each(|port| port.ring = ring);
        qos(text).compile(&ports).unwrap().warnings
    };
    assert_eq!(warnings(group, 2977), Vec::<String>::new());
    assert_eq!(warnings("", 64), Vec::<String>::new());
    let short = warnings(group, 2976);
    assert_eq!(short.len(), 1, "{short:?}");
    let wanted = "b: memory.ring holds 2976 frames, but up to 2977 arrive in \
                  qos.headroom.poll_gap_microseconds, 20µs: ";
    assert!(short[0].starts_with(wanted), "{short:?}");
}

/// SW-11, SW-31: a pause is refreshed at its half, and a worker that is as late as planned must still be in time.
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
