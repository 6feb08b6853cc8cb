mod announced;
mod csig;
mod lateness;
mod limits;
mod pauses;
mod ports;
mod refusals;
mod rings;
mod uet;
mod warnings;

use super::*;
use crate::tables::dlb::Mode;
use crate::tables::validation::SourceValidation;
use common::config::load_text;
use common::units::Rate;
use std::path::Path;

const SHIPPED: &str = include_str!("../../../../etc/switchd.toml");

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
    expected.port.push(PortOverride {
        name: "eth0".to_owned(),
        speed: Some(Speed::Device),
        link_speed: Some(LinkSpeed::Device),
        burst_microseconds: Some(100),
        mode: Some(String::new()),
        source_validation: Some(SourceValidation::Off),
        uplink: false,
    });
    let qos = &mut expected.qos;
    qos.priority_of_dscp.insert("46".to_owned(), 5);
    qos.priority_of_pcp.insert("1".to_owned(), 0);
    qos.class_of_priority.insert("2".to_owned(), 0);
    qos.group_of_priority.insert("2".to_owned(), 0);
    expected.ecmp.dlb.group.push(ecmp::Group {
        prefixes: Vec::new(),
        next_hop_object: Some(1),
        mode: Mode::Off,
    });
    let name = vec!["eth1".to_owned()];
    expected.csig.share_estimator = Some(crate::tables::csig::Estimator::Ewma);
    expected.csig.share_window_microseconds = Some(10);
    expected.csig.port.push(crate::config::csig::Port {
        ports: name.clone(),
        signals: vec![common::csig::SignalName::Delay],
        mode: Some(crate::tables::csig::Mode::Update),
        locator: Some(1),
        expanded_locator: Some(1),
        trusted: Some(true),
    });
    qos.group.push(qos::Group {
        ports: name.clone(),
        groups: vec![3],
        guaranteed_bytes: 0,
        xoff_bytes: Some(1),
        dynamic_th: None,
        headroom: qos::HeadroomSize::Auto,
        xon_bytes: 0,
        xon_offset_bytes: 0,
    });
    qos.queue.push(qos::Queue {
        ports: name,
        queues: vec![3],
        uet: Some(qos::Role::Low),
        uet_marks: Some(qos::Marks::Line),
        guaranteed_bytes: 0,
        lossless: true,
        limit_bytes: None,
        dynamic_th: None,
        weight: Some(1),
        rate: Some(Rate::from_gbps(1)),
        burst_bytes: Some(1),
        wred: Some(qos::Wred {
            min_bytes: 0,
            max_bytes: 0,
            probability_percent: 0.0,
            mark_at: qos::MarkAt::Dequeue,
            ecn: true,
            drop: Some(true),
            average_exponent: 0,
        }),
        trim_bytes: Some(1),
        trim_rtx_bytes: Some(1),
    });
    qos.headroom.port.push(qos::HeadroomPort {
        ports: vec!["eth1".to_owned()],
        cable_metres: Some(0),
        cable_delay_nanoseconds: Some(0),
        peer: Some(qos::Peer::Switchd),
        peer_response_nanoseconds: Some(0),
        peer_backlog_bytes: Some(0),
    });
    qos.flow_control.port.push(qos::FlowControlPort {
        ports: vec!["eth1".to_owned()],
        pause: qos::Directions::Off,
        pfc: qos::Directions::Rx,
    });
    qos.watchdog.priority.push(qos::WatchdogPriority {
        priorities: vec![4],
        detection_time_milliseconds: Some(1),
        restoration_time_milliseconds: Some(1),
    });
    qos.trim.trimmable.insert("10".to_owned(), 42);
    qos.hook = Some(qos::Hook {
        priority: 5,
        dscp: 41,
    });
    qos.elephants.push(qos::Elephants {
        from: 3,
        to: 2,
        bytes: 0,
        rate: Rate::from_gbps(1),
        ageing_milliseconds: 1,
        moves: qos::Moves::Gated,
    });
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
                // Not all keys can stand in one table.
                let tables = found.iter().filter_map(toml::Value::as_table);
                let found: toml::Table = tables.flat_map(Clone::clone).collect();
                if let Some(toml::Value::Table(wanted)) = wanted.first() {
                    compare_keys(&format!("{path}[]."), wanted, &found, missing);
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
            "qos.queue_depth_bytes=100",
            "qos.queue_depth_bytes: 100 is not within",
        ),
        (
            "qos.priority_of_dscp={\"64\"=1}",
            "qos.priority_of_dscp.64: \"64\" is not within 0 to 63",
        ),
        (
            "qos.class_of_priority={\"1\"=8}",
            "qos.class_of_priority.1: 8 is not within 0 to 7",
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
        (
            "ecmp.dlb.idle_time_microseconds=0",
            "ecmp.dlb.idle_time_microseconds: 0 is not within 1 to 4000000",
        ),
        (
            "ecmp.dlb.idle_time_microseconds=10001",
            "ecmp.dlb.ageing_milliseconds: 10 ms are less than idle_time_microseconds, 10001 us",
        ),
        (
            "ecmp.dlb.flows=70000",
            "ecmp.dlb.flows: 70000 is not within 4 to 65536",
        ),
        (
            "ecmp.dlb.mode=best",
            "ecmp.dlb.mode: \"best\" is not \"off\", \"flow\"",
        ),
        (
            "ecmp.dlb.ewma_exponent=9",
            "ecmp.dlb.ewma_exponent: 9 is not within 0 to 8",
        ),
        (
            "ecmp.dlb.hysteresis=8",
            "ecmp.dlb.hysteresis: 8 is not within 0 to 7",
        ),
        (
            "ecmp.dlb.queue_min_bytes=131072",
            "ecmp.dlb.queue_min_bytes: 131072 is not below queue_max_bytes, 131072",
        ),
        (
            "ecmp.dlb.host_sprayed_dscp=[1,64]",
            "ecmp.dlb.host_sprayed_dscp[1]: 64 is not within 0 to 63",
        ),
        (
            "ecmp.dlb.group=[{mode=\"flow\"}]",
            "ecmp.dlb.group[0]: has neither prefixes nor a next_hop_object",
        ),
        ("stop.drain_milliseconds=100000", "stop.drain_milliseconds"),
    ];
    for (option, wanted) in cases {
        let error = load(SHIPPED, &[option]).expect_err(option);
        assert!(error.contains(wanted), "{option}: {error}");
    }
}

/// SW-15: DSCPs are mapped to priorities as configured, and by their upper bits otherwise.
#[test]
fn priorities_follow_the_map() {
    let config = load(SHIPPED, &["qos.priority_of_dscp={\"26\"=6}"]).unwrap();
    let maps = config.qos.compile(&[]).unwrap().policy.classify;
    let of = |dscp: usize| maps.priority_of_dscp[dscp];
    assert_eq!((of(26), of(27), of(46)), (6, 3, 5));
}

/// Two ports of 100 Gb/s.
fn facts() -> Vec<PortFacts> {
    let port = |name: &str| PortFacts {
        name: name.to_owned(),
        speed: Some(Rate::from_gbps(100)),
        link: Some(Rate::from_gbps(100)),
        burst: 1_250_000,
        mtu: 1500,
        ring: 4096,
        transmit_ring: 4096,
        uplink: false,
        announced: None,
    };
    vec![port("a"), port("b")]
}

/// A lossless class, as `[qos]` says it, with some lines replaced.
fn lossless(replaced: &[(&str, &str)]) -> Result<Compiled, String> {
    let mut text = r#"
[buffer]
size_bytes = 67108864
[headroom]
poll_gap_microseconds = 20
[flow_control]
mode = "pfc"
[[group]]
groups = [3]
guaranteed_bytes = 4096
xoff_bytes = 1000000
xon_bytes = 500000
headroom = "auto"
[[queue]]
queues = [3]
lossless = true
weight = 50
[queue.wred]
min_bytes = 30000
max_bytes = 120000
"#
    .to_owned();
    for (from, to) in replaced {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let qos: Qos = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
    qos.compile(&facts()).map_err(|error| error.to_string())
}

/// SW-10, SW-12: a lossless class as it is configured, in cells.
#[test]
fn a_lossless_class_is_compiled() {
    let compiled = lossless(&[]).unwrap();
    let port = &compiled.policy.ports[0];
    let group = &port.groups[3];
    let breakdown = compiled.headroom[0].as_ref().unwrap().made_of;
    assert_eq!((group.guaranteed, group.xon), (16, 1953));
    assert_eq!(group.limit, crate::tables::policy::Limit::Static(3906 - 16));
    assert_eq!(u64::from(group.headroom), breakdown.cells());
    assert!(port.queues[3].limit.is_none() && !port.groups[2].is_lossless());
    let regions = compiled.policy.regions;
    assert_eq!(regions.headroom, 2 * group.headroom);
    assert_eq!(
        regions.service + regions.headroom + 2 * 16,
        (64 << 20) / 256
    );
    assert!(matches!(
        port.flow_control,
        crate::tables::policy::FlowControl::Pfc {
            send: 8,
            obey: 8,
            quanta: 65535
        }
    ));
    assert_eq!(compiled.warnings, Vec::<String>::new());
}

/// What is out of range in `[watchdog]` is refused by its key.
fn watchdog_refusals() {
    for (line, wanted) in [
        (
            "detection_time_milliseconds = 0",
            "detection_time_milliseconds: 0ns is not between 1ms and 5s",
        ),
        (
            "detection_time_milliseconds = 5001",
            "detection_time_milliseconds: 5.001s is not between 1ms and 5s",
        ),
        (
            "restoration_time_milliseconds = 60001",
            "restoration_time_milliseconds: 60.001s is not between 1ms and 60s",
        ),
        (
            "poll_interval_milliseconds = 201",
            "poll_interval_milliseconds: 201ms is not between 1ms and 200ms",
        ),
        (
            "[[watchdog.priority]]\npriorities = [3]\ndetection_time_milliseconds = 99",
            "poll_interval_milliseconds: 100ms is not between 1ms and 99ms",
        ),
        (
            "[[watchdog.priority]]\npriorities = [8]",
            "priority[0].priorities[0]: 8 is not within 0 to 7",
        ),
        (
            "storms = 1\nwindow_milliseconds = 1000\n[[watchdog.priority]]\npriorities = [3]\n\
             restoration_time_milliseconds = 601",
            "window_milliseconds: 1s is not between 1.001s and 86400s",
        ),
        ("storms = 17", "storms: 17 is not between 1 and 16"),
        (
            "storms = 1\nwindow_milliseconds = 799",
            "window_milliseconds: 799ms is not between 800ms and 86400s",
        ),
        (
            "action = \"stop\"",
            "action: \"stop\" is not one of drop, forward, alert",
        ),
    ] {
        let table = format!("[watchdog]\n{line}\n[buffer]");
        let error = lossless(&[("[buffer]", &table)]).expect_err(line);
        assert_eq!(error, format!("qos.watchdog.{wanted}"));
    }
}

/// SW-11, SW-32: every relation that is broken is refused, with names and numbers.
#[test]
fn broken_relations_are_refused() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "xon_bytes = 500000",
            "xon_bytes = 1000000",
            "group[0].xon_bytes: 1000000 is not below xoff_bytes, 1000000",
        ),
        (
            "xon_bytes = 500000",
            "xon_offset_bytes = 2000000",
            "xon_offset_bytes: 2000000 is not below xoff_bytes",
        ),
        // Other bytes, but the same cells.
        (
            "xon_bytes = 500000",
            "xon_bytes = 999937",
            "group[0].xon_bytes: 999937 is not below xoff_bytes, 1000000, in cells of 256 bytes",
        ),
        (
            "guaranteed_bytes = 4096\nxoff_bytes = 1000000\nxon_bytes = 500000",
            "xoff_bytes = 257\nxon_bytes = 256",
            "256 is not below xoff_bytes, 257",
        ),
        (
            "xoff_bytes = 1000000\nxon_bytes = 500000",
            "dynamic_th = 0\nxon_bytes = 32768000",
            "qos.group[0].xon_bytes: a, group 3: 32768000 is not below ",
        ),
        (
            "xoff_bytes = 1000000\nxon_bytes = 500000",
            "dynamic_th = -8\nxon_offset_bytes = 1000000",
            "qos.group[0].xon_offset_bytes: a, group 3: 999936 is not below ",
        ),
        (
            "guaranteed_bytes = 4096",
            "guaranteed_bytes = 2000000",
            "xoff_bytes: 1000000 lies below the guarantee of 2000000",
        ),
        (
            "xoff_bytes = 1000000",
            "xoff_bytes = 1000000\ndynamic_th = 1",
            "a threshold is static or dynamic",
        ),
        (
            "xoff_bytes = 1000000",
            "dynamic_th = 9",
            "dynamic_th: 9 is not within -8 to 8",
        ),
        (
            "xoff_bytes = 1000000\n",
            "",
            "a lossless group needs a threshold",
        ),
        (
            "size_bytes = 67108864",
            "size_bytes = 1048576",
            "exceed the buffer of 4096",
        ),
        (
            "size_bytes = 67108864",
            "size_bytes = 1",
            "size_bytes: 1 is not within",
        ),
        (
            "size_bytes = 67108864",
            "size_bytes = 67108864\nshared_headroom_bytes = 4096",
            "the headroom of a, group 3, ",
        ),
        (
            "size_bytes = 67108864",
            "size_bytes = 67108864\nshared_headroom_bytes = 4096",
            "exceeds the pool of 16 cells",
        ),
        (
            "max_bytes = 120000",
            "max_bytes = 2000000",
            "marks are certain from 2000000 bytes, but the 2 groups that feed it pause at 1999872",
        ),
        (
            "lossless = true",
            "limit_bytes = 2000000",
            "drops at 1999872 bytes, but the 2 lossless groups that feed it let in 1999872 (xoff)",
        ),
        (
            "weight = 50",
            "weight = 0",
            "weight: 0 is not within 1 to 100",
        ),
        ("weight = 50", "rate = \"0bps\"", "rate 0 sends nothing"),
        (
            "weight = 50",
            "burst_bytes = 1",
            "a burst belongs to a rate",
        ),
        (
            "min_bytes = 30000",
            "min_bytes = 130000",
            "130000 exceeds max_bytes, 120000",
        ),
        (
            "min_bytes = 30000",
            "min_bytes = 1\nprobability_percent = 101.0",
            "101 is not within 0 to 100",
        ),
        (
            "min_bytes = 30000",
            "min_bytes = 1\naverage_exponent = 16",
            "16 is not within 0 to 15",
        ),
        (
            "mode = \"pfc\"",
            "mode = \"pfc\"\nquanta = 0",
            "quanta: 0 is not a pause",
        ),
        (
            "mode = \"pfc\"",
            "mode = \"pfc\"\npriorities = [4]",
            "lack priorities of lossless groups: these are [3]",
        ),
        (
            "mode = \"pfc\"",
            "mode = \"both\"",
            "unknown variant `both`",
        ),
        (
            "groups = [3]",
            "groups = [8]",
            "groups[0]: 8 is not within 0 to 7",
        ),
        (
            "groups = [3]",
            "groups = [3]\nports = [\"c\"]",
            "group[0].ports[0]: no port is called \"c\"",
        ),
        (
            "headroom = \"auto\"",
            "headroom = \"much\"",
            "neither a number of bytes nor \"auto\"",
        ),
    ];
    for (from, to, wanted) in cases {
        let error = lossless(&[(from, to)]).expect_err(to);
        assert!(error.contains(wanted), "{to}: {error}");
    }
    watchdog_refusals();
    let dscp = Qos {
        priority_of_dscp: [("64".to_owned(), 1)].into(),
        ..Qos::default()
    };
    let error = dscp.compile(&facts()).unwrap_err();
    assert!(
        error.to_string().contains("is not within 0 to 63"),
        "{error}"
    );
}

/// SW-17: elephants of a lossless class go where nothing is dropped; whatever else is refused, with
/// its numbers.
#[test]
fn elephants_go_where_nothing_is_lost() {
    let elephants = |lines: &str, queues: &str| {
        let tables = format!("[[elephants]]\n{lines}\n[buffer]");
        lossless(&[("[buffer]", &tables), ("queues = [3]", queues)])
    };
    let plain = "from = 3\nto = 2\nbytes = 100000";
    let compiled = elephants(plain, "queues = [2, 3]").unwrap();
    let settings = compiled.policy.elephants[0];
    assert_eq!(
        (settings.from, settings.to, settings.bytes),
        (3, 2, 100_000)
    );
    assert_eq!(settings.rate, Rate::from_bps(0));
    assert_eq!(settings.ageing, common::time::Span::from_millis(10));
    assert_eq!(settings.moves, crate::tables::elephants::Moves::Gated);
    assert!(compiled.policy.watches(3) && !compiled.policy.watches(2));
    // A class that may lose packets has its elephants wherever it likes.
    elephants("from = 5\nto = 4\nbytes = 100000", "queues = [3]").unwrap();
    let cases = [
        (
            plain,
            "queues = [3]",
            "qos.queue_depth_bytes: a, queue 2, with the elephants of class 3: it drops at 1048576 bytes",
        ),
        (
            "from = 3\nto = 4\nbytes = 100000",
            "queues = [3]",
            "qos.elephants[0]: elephants: those of class 3 cannot go to class 4",
        ),
        (
            "from = 3\nto = 8\nbytes = 100000",
            "queues = [3]",
            "qos.elephants[0]: elephants: class 8 does not exist",
        ),
        (
            "from = 3\nto = 2\nbytes = 8191",
            "queues = [3]",
            "qos.elephants[0]: elephants of class 3: threshold is 8191 bytes",
        ),
        (
            "from = 3\nto = 2\nbytes = 100000\nageing_milliseconds = 0",
            "queues = [3]",
            "qos.elephants[0].ageing_milliseconds: 0 is not within 1 to 60000",
        ),
        (
            "from = 3\nto = 2\nbytes = 100000\n[[elephants]]\nfrom = 4\nto = 2\nbytes = 100000",
            "queues = [2, 3]",
            "qos.elephants[1]: elephants of classes 3 and 4 go to class 2",
        ),
        (
            "from = 3\nto = 2\nbytes = 100000\nmoves = \"soon\"",
            "queues = [3]",
            "unknown variant `soon`",
        ),
    ];
    for (lines, queues, wanted) in cases {
        let error = elephants(lines, queues).expect_err(wanted);
        assert!(error.contains(wanted), "{lines}: {error}");
    }
}

/// SW-11: a gap between marks and pauses that is too small for a control loop is a warning.
#[test]
fn a_small_gap_is_a_warning() {
    let compiled = lossless(&[("max_bytes = 120000", "max_bytes = 1900000")]).unwrap();
    assert!(
        compiled.warnings[0].contains("gap between marks and pauses is 99872 bytes, but 150000"),
        "{:?}",
        compiled.warnings
    );
}

/// A queue that trims, and hook flows, with some text replaced.
fn trimming(from: &str, to: &str) -> Result<Compiled, String> {
    let text = r#"
[trim]
trimmable = {"10" = 42, "11" = 42}
rtx = [11]
control = [46]
[hook]
priority = 5
dscp = 41
[[queue]]
queues = [1]
limit_bytes = 400000
trim_bytes = 100000
"#;
    let text = text.replace(from, to);
    let qos: Qos = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
    qos.compile(&facts()).map_err(|error| error.to_string())
}

/// SW-23, SW-33: trimming and hook flows as they are configured.
#[test]
fn trimming_and_hooks_are_compiled() {
    use crate::tables::policy::{Hook, TrimAt};
    let Compiled {
        policy, warnings, ..
    } = trimming("", "").unwrap();
    let trim = &policy.trim;
    assert_eq!((trim.size, trim.trimmable), (128, 0b11 << 10));
    assert_eq!((trim.rtx, trim.control), (1 << 11, 1 << 46));
    assert_eq!((trim.trimmed_of[10], trim.trimmed_of[11]), (42, 42));
    assert_eq!(
        policy.ports[1].queues[1].trim,
        Some(TrimAt {
            bytes: 100_000,
            rtx_bytes: 150_000
        })
    );
    assert_eq!(policy.ports[1].queues[0].trim, None);
    assert_eq!(
        policy.hook,
        Some(Hook {
            priority: 5,
            dscp: 41
        })
    );
    assert_eq!(warnings, Vec::<String>::new());
    let rtx = trimming("trim_bytes", "trim_rtx_bytes = 120000\ntrim_bytes").unwrap();
    let at = rtx.policy.ports[0].queues[1].trim;
    assert_eq!(at.map(|at| at.rtx_bytes), Some(120_000));
    assert_eq!(Qos::default().compile(&facts()).unwrap().policy.hook, None);
}

/// SW-23, SW-33: what cannot be is refused with key and numbers, what is unwise is a warning.
#[test]
fn wrong_trimming_and_hooks_are_refused() {
    let cases = [
        (
            "rtx = [11]",
            "size_bytes = 113",
            "qos.trim.size_bytes: 113 is not within 114 to 4096",
        ),
        (
            "\"10\" = 42",
            "\"64\" = 42",
            "qos.trim.trimmable.64: \"64\" is not within 0 to 63",
        ),
        (
            "\"10\" = 42",
            "\"10\" = 64",
            "qos.trim.trimmable.10: 64 is not within 0 to 63",
        ),
        (
            "\"10\" = 42",
            "\"10\" = 11",
            "qos.trim.trimmable.10: trimmable DSCP 10 becomes 11, which is trimmable itself",
        ),
        (
            "\"10\" = 42",
            "\"10\" = 46",
            "qos.trim.trimmable.10: trimmable DSCP 10 becomes 46, which is for control packets",
        ),
        (
            "rtx = [11]",
            "rtx = [64]",
            "qos.trim.rtx[0]: 64 is not within 0 to 63",
        ),
        ("rtx = [11]", "rtx = [12]", "qos.trim.rtx: DSCP 12 is for"),
        (
            "control = [46]",
            "control = [255]",
            "qos.trim.control[0]: 255 is not within 0 to 63",
        ),
        (
            "control = [46]",
            "control = [10]",
            "qos.trim.control: DSCP 10 is both",
        ),
        (
            "trim_bytes = 100000",
            "trim_bytes = 400001",
            "qos.queue[0].trim_bytes: 400001 exceeds what the queue holds, 399872 bytes",
        ),
        (
            "trim_bytes = 100000",
            "trim_bytes = 300000",
            "qos.queue[0].trim_rtx_bytes: 450000 exceeds what the queue holds, 399872 bytes",
        ),
        (
            "limit_bytes = 400000",
            "trim_rtx_bytes = 99999",
            "qos.queue[0].trim_rtx_bytes: 99999 lies below trim_bytes, 100000",
        ),
        (
            "trim_bytes = 100000",
            "trim_rtx_bytes = 100000",
            "qos.queue[0].trim_rtx_bytes: belongs to trim_bytes",
        ),
        (
            "trim_bytes = 100000",
            "trim_bytes = 0",
            "qos.queue[0].trim_bytes: 0 would trim every packet",
        ),
        (
            "limit_bytes = 400000",
            "lossless = true",
            "qos.queue[0].trim_bytes: 100000, but the queue is lossless",
        ),
        (
            "priority = 5",
            "priority = 8",
            "qos.hook.priority: 8 is not within 0 to 7",
        ),
        (
            "dscp = 41",
            "dscp = 64",
            "qos.hook.dscp: 64 is not within 0 to 63",
        ),
        ("dscp = 41", "", "missing field `dscp`"),
    ];
    for (from, to, wanted) in cases {
        let error = trimming(from, to).expect_err(to);
        assert!(error.contains(wanted), "{to}: {error}");
    }
    let warned = |from, to| trimming(from, to).unwrap().warnings.join("\n");
    let same = warned("\"10\" = 42", "\"10\" = 12");
    assert!(same.contains("DSCP 10 and 12") && same.contains("both belong to queue 1"));
    let other = warned("priority = 5", "priority = 6");
    assert!(other.contains("priority 6 and DSCP 41, whose priority is 5"));
}
