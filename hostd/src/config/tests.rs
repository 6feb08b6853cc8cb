use super::*;
use std::path::Path;

const SHIPPED: &str = include_str!("../../../etc/hostd.toml");

fn load(text: &str) -> Result<Config, common::config::ConfigError> {
    common::config::load_text(text, Path::new("hostd.toml"), "HOSTD", [], &[])
}

fn keys(prefix: &str, value: &toml::Value, into: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                keys(&format!("{prefix}.{name}"), value, into);
            }
        }
        toml::Value::Array(list) if list.first().is_some_and(toml::Value::is_table) => {
            list.iter().for_each(|value| keys(prefix, value, into));
        }
        _ => into.push(prefix.to_owned()),
    }
}

/// MG-1: the shipped file has every key, each with its default.
#[test]
fn the_shipped_file_is_complete_and_holds_the_defaults() {
    let shipped = load(SHIPPED).expect("the shipped file is valid");
    let eth0 = Interface {
        name: "eth0".to_owned(),
        speed: None,
        link_speed: None,
        mode: ModeChoice::Best,
    };
    let defaults = Config {
        interface: vec![eth0],
        ..Config::default()
    };
    assert_eq!(shipped, defaults);

    let (mut in_file, mut known) = (Vec::new(), Vec::new());
    keys("", &toml::from_str(SHIPPED).expect("TOML"), &mut in_file);
    keys(
        "",
        &toml::Value::try_from(&defaults).expect("a table"),
        &mut known,
    );
    in_file.sort();
    known.sort();
    assert_eq!(in_file, known);
}

/// MG-1: impossible values are refused with their key.
#[test]
fn impossible_values_are_refused() {
    let eth0 = "[[interface]]\nname = \"eth0\"\n";
    assert!(load(eth0).is_ok());
    let several = |count: usize| {
        let names = (0..count).map(|number| format!("[[interface]]\nname = \"eth{number}\"\n"));
        names.collect::<String>()
    };
    assert!(load(&several(INTERFACES_MAX)).is_ok());
    let refusal = load(&several(INTERFACES_MAX + 1)).expect_err("too many");
    let text = refusal.to_string();
    assert!(
        text.contains("5 interfaces: a daemon serves 4 at most"),
        "{text}"
    );
    for (text, key) in [
        ("", "interface"),
        ("[[interface]]\nname = \"\"\n", "interface[0].name"),
        (
            "[[interface]]\nname = \"a\"\nspeed = \"0Gbps\"\n",
            "interface[0].speed",
        ),
        ("[multipath]\npaths = 0\n", "multipath.paths"),
        ("[multipath]\ngranularity = \"bit\"\n", "granularity"),
        (
            "[multipath]\nsaturation_percent = 0\n",
            "multipath.saturation_percent: 0 is not within 1 to 100",
        ),
        (
            "[multipath]\nsaturation_percent = 101\n",
            "multipath.saturation_percent: 101 is not within 1 to 100",
        ),
        ("[transport]\nwindow = 100000\n", "transport.window"),
        ("[transport]\nwindows = 1\n", "windows"),
        ("[frames]\nring = 1000\n", "frames.ring"),
        (
            "[transport]\npath_mtu = 1500\n",
            "hostd.toml:2:12: transport.path_mtu: 1500 is not a power of two from 256 to 4096",
        ),
        ("[log]\nlevel = \"inof\"\n", "\"inof\" is not a level"),
        ("[flow_control]\npfc = [3, 8]\n", "flow_control.pfc[1]"),
        (
            "[flow_control]\npfc = \"on\"\n",
            "write a list of priorities",
        ),
        (
            "[flow_control.priority_of_dscp]\n64 = 1\n",
            "priority_of_dscp.64: \"64\" is not within 0 to 63",
        ),
        (
            "[flow_control.priority_of_dscp]\n26 = 8\n",
            "priority_of_dscp.26: 8 is not within 0 to 7",
        ),
        ("[log]\nlevel = \"\"\n", "log.level"),
        ("[application.quota]\nqueue_pairs = 5000\n", "queue_pairs"),
        ("[metrics]\nlisten = \"nowhere\"\n", "listen"),
        ("[[interface]]\nname = \"b\"\nmode = \"fast\"\n", "mode"),
    ] {
        let whole = if key.starts_with("interface") {
            text.to_owned()
        } else {
            format!("{text}{eth0}")
        };
        let error = load(&whole).expect_err(text).to_string();
        assert!(error.contains(key), "{text}: {error}");
    }
}

/// HT-45: what hostd cannot ask its switch for.
#[test]
fn impossible_pauses_are_refused() {
    for (key, value) in [
        ("send_pfc", "[9]"),
        ("send_xoff_percent", "96"),
        ("send_xon_percent", "50"),
        ("send_longest_ms", "0"),
    ] {
        let text = format!("[flow_control]\n{key} = {value}\n[[interface]]\nname = \"eth0\"\n");
        let error = load(&text).expect_err(key).to_string();
        assert!(error.contains(&format!("flow_control.{key}")), "{error}");
    }
}

/// CC-2, CC-4, CC-5: what congestion control cannot do is refused, and why.
#[test]
fn impossible_congestion_control_is_refused() {
    for (text, key) in [
        (
            "[transport]\ncongestion = \"dctcp\"\ncongestion_scope = \"path\"\n",
            "transport.congestion_scope",
        ),
        (
            "[transport]\ncongestion = \"swift-csig\"\n",
            "transport.congestion: \"swift-csig\" goes by congestion signals",
        ),
        (
            "[csig]\nenabled = true\nsignals = [\"share\"]\n\
             [transport]\ncongestion = \"swift-csig\"\n",
            "transport.congestion",
        ),
        (
            "[csig]\nhost_locators = [127, 128]\n",
            "csig.host_locators[1]: 128 is not within 0 to 127",
        ),
        (
            "[transport]\nswift_lambda = 5.0\n",
            "transport.swift_lambda: 5 is not within 0 to 4",
        ),
        (
            "[transport]\nswift_lambda = nan\n",
            "transport.swift_lambda",
        ),
        (
            "[transport]\ncongestion = \"poseidon\"\n",
            "transport.congestion: \"poseidon\" goes by congestion signals",
        ),
        (
            "[transport]\ntimely_low_us = 500\n",
            "transport.timely_high_us: 500 is not above timely_low_us, 500",
        ),
        (
            "[transport]\nposeidon_range_us = 0\n",
            "transport.poseidon_range_us: 0 is not within 1 to 1000000",
        ),
        (
            "[transport]\ncongestion = \"hpcc\"\n",
            "transport.congestion: \"hpcc\" goes by telemetry: [int] has to be enabled",
        ),
        (
            "[int]\nenabled = true\n",
            "transport.base_rtt_us: is not set: what telemetry says is reckoned",
        ),
        (
            "[int]\nenabled = true\n[csig]\nenabled = true\n[transport]\nbase_rtt_us = 20\n",
            "int.enabled: a packet has one tag at most",
        ),
    ] {
        let whole = format!("{text}[[interface]]\nname = \"eth0\"\n");
        let error = load(&whole).expect_err(text).to_string();
        assert!(error.contains(key), "{text}: {error}");
    }
}

/// SW-12, HT-45: what the switch is told of pauses: what may lie in the device, if any is obeyed.
#[test]
fn the_switch_is_told_what_follows_a_pause() {
    let terms = |options: &[&str]| {
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        common::config::load_text::<Config>(SHIPPED, Path::new("f"), "HOSTD", [], &options)
            .expect("valid")
            .pause_terms()
    };
    let said = |backlog| {
        Some(PauseTerms {
            response: None,
            backlog,
        })
    };
    assert_eq!(terms(&[]), said(131_072));
    let other = ["transport.pacer_burst=70000", "flow_control.pause=false"];
    assert_eq!(terms(&other), said(70_000));
    let none = ["flow_control.pfc=\"off\"", "flow_control.pause=false"];
    assert_eq!(terms(&none), None);
}

/// HT-45: which priorities are obeyed, and which a packet has, as the engine is told.
#[test]
fn flow_control_is_as_configured() {
    let rules = |options: &[&str]| {
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        common::config::load_text::<Config>(SHIPPED, Path::new("f"), "HOSTD", [], &options)
            .expect("valid")
            .engine([0; 32])
            .flow_control
    };
    assert_eq!(rules(&[]), FlowControl::default());
    let some = rules(&[
        "flow_control.pfc=[3, 5]",
        "flow_control.pause=false",
        "flow_control.priority_of_dscp={\"46\"=6}",
    ]);
    assert_eq!((some.pfc, some.pause), (0b10_1000, false));
    assert_eq!(some.priority_of(46 << 2), 6);
    assert_eq!(some.priority_of(47 << 2), 5);
    assert_eq!(rules(&["flow_control.pfc=off"]).pfc, 0);
    assert_eq!(some.asks, Asks::default());
    let asks = rules(&[
        "flow_control.send_pfc=[3, 5]",
        "flow_control.send_xoff_percent=80",
        "flow_control.send_xon_percent=79",
        "flow_control.send_longest_ms=2",
    ])
    .asks;
    let expected = Asks {
        priorities: 0b10_1000,
        xoff_percent: 80,
        xon_percent: 79,
        longest: Span::from_millis(2),
    };
    assert_eq!(asks, expected);
}
