use super::*;
use common::config::load_text;
use std::path::Path;

const SHIPPED: &str = include_str!("../../../etc/switchd.toml");

fn load(text: &str, options: &[&str]) -> Result<Config, String> {
    let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
    let path = Path::new("switchd.toml");
    load_text(text, path, ENV_PREFIX, [], &options).map_err(|error| error.to_string())
}

/// MG-1: the shipped file is the manual: it is accepted, and it shows every key with its default.
#[test]
fn the_shipped_file_lists_every_key_with_its_default() {
    let shipped = load(SHIPPED, &[]).unwrap();
    let mut expected = Config {
        ports: shipped.ports.clone(),
        ..Config::default()
    };
    assert_eq!(shipped, expected);
    // Keys that the file shows in comments, because their absence is the default.
    let all = SHIPPED
        .lines()
        .map(|line| line.strip_prefix("#| ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    let full: toml::Table = toml::from_str(&all).expect("also with the examples in force");
    load(&all, &[]).expect("the examples are accepted");
    expected.port.push(Port {
        name: "eth0".to_owned(),
        speed: Some(Speed::Device),
        mode: Some(String::new()),
        queue_depth_bytes: Some(1),
    });
    expected.queues.class_of_dscp.insert("46".to_owned(), 5);
    let defaults = toml::Table::try_from(&expected).unwrap();
    let mut missing = Vec::new();
    compare_keys("", &defaults, &full, &mut missing);
    assert!(missing.is_empty(), "not in etc/switchd.toml: {missing:?}");
}

fn compare_keys(path: &str, wanted: &toml::Table, found: &toml::Table, missing: &mut Vec<String>) {
    for (key, value) in wanted {
        let path = format!("{path}{key}");
        match (value, found.get(key)) {
            (_, None) => missing.push(path),
            (toml::Value::Table(wanted), Some(toml::Value::Table(found))) => {
                compare_keys(&format!("{path}."), wanted, found, missing);
            }
            (toml::Value::Array(wanted), Some(toml::Value::Array(found))) => {
                let tables = wanted.first().zip(found.first());
                if let Some((toml::Value::Table(wanted), toml::Value::Table(found))) = tables {
                    compare_keys(&format!("{path}[]."), wanted, found, missing);
                }
            }
            _ => {}
        }
    }
}

/// MG-1: impossible values are refused with key and reason.
#[test]
fn impossible_values_are_refused() {
    let cases = [
        ("ports=[]", "ports: names no interface"),
        ("workers.count=0", "workers.count: 0 is not within 1 to 64"),
        ("workers.cpus=[1,2]", "workers.cpus: 2 CPUs for 1 workers"),
        (
            "memory.ring=1000",
            "memory.ring: 1000 is not a power of two",
        ),
        (
            "queues.depth_bytes=100",
            "queues.depth_bytes: 100 is not within",
        ),
        ("queues.class_of_dscp={\"64\"=1}", "is not a DSCP"),
        (
            "queues.class_of_dscp={\"10\"=8}",
            "queues.class_of_dscp.10: 8 is not within 0 to 7",
        ),
        ("metrics.listen=localhost", "metrics.listen"),
        ("log.level=x=loud", "log.level"),
        ("port_defaults.speed=fast", "not a data rate"),
        ("port_defaults.speed=0bps", "sends nothing"),
        (
            "port_defaults.mode=quick",
            "port_defaults.mode: \"quick\" is not an AF_XDP mode",
        ),
        (
            "port=[{name=\"a\"},{name=\"a\"}]",
            "port[1].name: a is there twice",
        ),
        ("port=[{name=\"\"}]", "port[0].name"),
        ("port=[{name=\"a\", colour=1}]", "colour"),
        ("ecmp.sede=1", "ecmp.sede"),
        ("stop.drain_milliseconds=100000", "stop.drain_milliseconds"),
    ];
    for (option, wanted) in cases {
        let error = load(SHIPPED, &[option]).expect_err(option);
        assert!(error.contains(wanted), "{option}: {error}");
    }
}

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
    let error = config.resolve_ports(&names[..1]).unwrap_err();
    assert!(
        error.reason.contains("no interface is called \"eth*\""),
        "{error:?}"
    );
    assert!(matches("*", "x") && matches("a*b*c", "a-b-b-c") && !matches("a*b", "abc"));
}

#[test]
fn classes_follow_the_map() {
    let config = load(SHIPPED, &["queues.class_of_dscp={\"26\"=6}"]).unwrap();
    let table = config.class_table().unwrap();
    assert_eq!((table[26], table[27], table[46]), (6, 3, 5));
}
