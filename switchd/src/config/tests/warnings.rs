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
