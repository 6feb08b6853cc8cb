//! Which interfaces the ports are.

use super::*;

#[test]
fn ports_come_from_lists_and_patterns() {
    let text = "ports = [\"eth*\", \"up?\"]\n[[port]]\nname = \"eth1\"\nspeed = \"1Gbps\"\n[port_defaults]\nspeed = \"unlimited\"\n";
    let config = load(text, &[]).unwrap();
    let names: Vec<String> = ["lo", "up1", "eth1", "eth0", "up10"]
        .map(str::to_owned)
        .to_vec();
    let ports = config.resolve_ports(&names).unwrap();
    let found: Vec<_> = ports
        .iter()
        .map(|port| (port.name.as_str(), port.speed))
        .collect();
    let gigabit = Speed::Rate(Rate::from_gbps(1));
    assert_eq!(
        found,
        [
            ("eth1", gigabit),
            ("eth0", Speed::Unlimited),
            ("up1", Speed::Unlimited)
        ]
    );
}

/// MG-1: a pattern may match nothing yet; a switch without any port is refused only if none can
/// come, and so is a name that no interface has.
#[test]
fn patterns_may_match_later_and_names_may_not() {
    let names = ["lo", "eth0"].map(str::to_owned);
    let found = |text: &str| load(text, &[]).unwrap().resolve_ports(&names);
    let ports = found("ports = [\"swp*\", \"eth*\"]").unwrap();
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].name, "eth0");
    assert_eq!(found("ports = [\"swp*\", \"up?\"]").unwrap(), []);
    let config = load("ports = [\"swp*\", \"a\", \"b*\"]", &[]).unwrap();
    assert_eq!(
        config.pattern_warnings(&facts()),
        ["ports[0]: no port matches \"swp*\"; there are a, b so far"]
    );
    assert_eq!(
        config.pattern_warnings(&[]),
        [
            "ports[0]: no port matches \"swp*\"; there is none so far",
            "ports[2]: no port matches \"b*\"; there is none so far"
        ]
    );
    let cases = [
        (
            "ports = [\"swp*\", \"up?\"]\nmemory.spare_queues = 0",
            "ports",
            "no interface matches [\"swp*\", \"up?\"], and with memory.spare_queues = 0 none can come",
        ),
        (
            "ports = [\"eth*\", \"up1\"]",
            "ports[1]",
            "no interface is called \"up1\"",
        ),
    ];
    for (text, key, wanted) in cases {
        let error = found(text).unwrap_err();
        assert!(error.reason.contains(wanted), "{text}: {error:?}");
        assert_eq!(error.key, key);
    }
}
