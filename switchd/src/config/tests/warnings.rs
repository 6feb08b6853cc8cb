//! What is possible but unwise, and told.

use super::*;

/// SW-12, MG-1: a section may mean ports that are yet to come, as `ports` may: its pattern is
/// accepted, and told of while no port matches. A name that no port has stays a fault, as does a
/// pattern of which `ports` says that nothing can ever match.
#[test]
fn sections_may_mean_ports_that_come_later() {
    let sections = [
        "[[qos.group]]\ngroups = [1]",
        "[[qos.queue]]\nqueues = [1]",
        "[[qos.headroom.port]]",
        "[[qos.flow_control.port]]",
    ];
    for section in sections {
        let key = section.lines().next().unwrap().replace(['[', ']'], "");
        let loaded = |name: &str| {
            let text = format!("ports = [\"a\", \"b\", \"up*\"]\n{section}\nports = [\"{name}\"]");
            load(&text, &[])
        };
        let compiled = |name: &str| {
            let compiled = loaded(name)?.qos.compile(&facts());
            compiled.map_err(|error| error.to_string())
        };
        assert_eq!(
            compiled("up1?").unwrap().warnings,
            [format!(
                "{key}[0].ports[0]: no port matches \"up1?\"; there are a, b so far"
            )]
        );
        assert_eq!(compiled("?").unwrap().warnings, Vec::<String>::new());
        let error = compiled("up1").unwrap_err();
        let wanted = format!("{key}[0].ports[0]: no port is called \"up1\"; there are a, b");
        assert!(error.contains(&wanted), "{error}");
        let error = loaded("eth*").unwrap_err();
        let wanted = format!("{key}[0].ports[0]: no port matches \"eth*\"; there are a, b, up*");
        assert!(error.contains(&wanted), "{error}");
    }
}

/// SW-4: the sampling interval follows from the speed of a port without a word; one that somebody
/// has set, and that the port is too slow for, is raised with a warning.
#[test]
fn a_sampling_interval_that_is_raised_is_told() {
    let warnings = |more: &str| {
        let text = format!("ports = [\"a\"]\n[ecmp.dlb]\nidle_time_microseconds = 5000\n{more}");
        let mut slow = facts()[0].clone();
        slow.speed = Some(Rate::from_mbps(100));
        load(&text, &[]).unwrap().ecmp.dlb.warnings(&[slow])
    };
    let flowlet = "mode = \"flowlet\"\n";
    assert_eq!(warnings(flowlet), Vec::<String>::new());
    let set = |micros| format!("{flowlet}sampling_interval_microseconds = {micros}");
    assert_eq!(
        warnings(&set(100)),
        ["a: too slow to be measured each 100 µs, it is each 493 µs"]
    );
    assert_eq!(warnings(&set(500)), Vec::<String>::new());
    let off = "sampling_interval_microseconds = 100";
    assert_eq!(warnings(off), Vec::<String>::new(), "nobody measures");
}

/// SW-11, SW-12: a lossless queue whose group has headroom at some ports only is told of, with the
/// others: what arrives there is not held back.
#[test]
fn ports_without_headroom_for_a_lossless_queue_are_told() {
    let headroom = "headroom = \"auto\"";
    let told = |replaced: &[(&str, &str)]| {
        let all = lossless(replaced).unwrap().warnings;
        let headroom = all.into_iter().filter(|it| it.contains("has no headroom"));
        headroom.collect::<Vec<String>>()
    };
    assert_eq!(told(&[]), Vec::<String>::new());
    let other = |ports: &str| format!("{headroom}\nports = [{ports}]");
    let only_b = told(&[(headroom, &other("\"b\""))]);
    assert_eq!(
        only_b,
        [
            "queue 3 is lossless, but group 3, which feeds it, has no headroom at a: what arrives there is lost when the buffer \
             is full; give it some in [[qos.group]]"
        ]
    );
    assert_eq!(told(&[(headroom, &other("\"?\""))]), Vec::<String>::new());
}

/// SW-11: the gap between marks and pauses has to hold what arrives in a round trip, with a shaper
/// or without: then it is the link that says how fast.
#[test]
fn the_gap_before_pauses_follows_the_link_without_a_shaper() {
    let told = |speed: Option<Rate>, link: Option<Rate>| {
        let text = "base_rtt_microseconds = 12\n[buffer]\nsize_bytes = 67108864\n[flow_control]\nmode = \"pfc\"\n\
                    [[group]]\ngroups = [3]\nxoff_bytes = 100000\nxon_offset_bytes = 4096\nheadroom = \"auto\"\n\
                    [[queue]]\nqueues = [3]\nlossless = true\n\
                    [queue.wred]\nmin_bytes = 30000\nmax_bytes = 120000\n";
        let mut ports = facts();
        for port in &mut ports {
            (port.speed, port.link) = (speed, link);
        }
        let qos: Qos = toml::from_str(text).unwrap();
        let all = qos.compile(&ports).unwrap().warnings;
        let gap = all
            .into_iter()
            .filter(|it| it.contains("the gap between marks and pauses"));
        gap.collect::<Vec<String>>()
    };
    let (fast, slow) = (Some(Rate::from_gbps(100)), Some(Rate::from_gbps(10)));
    for (speed, link) in [(fast, fast), (None, fast)] {
        let told = told(speed, link);
        assert_eq!(told.len(), 2, "{speed:?} {link:?}: {told:?}");
        assert!(told[0].contains("but 150000 arrive in 12µs"), "{told:?}");
    }
    for (speed, link) in [(slow, fast), (None, slow)] {
        assert_eq!(told(speed, link), Vec::<String>::new());
    }
}
