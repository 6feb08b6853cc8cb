mod aiecn;
mod announced;
mod off;

use super::*;
use crate::config::{PortFacts, Source};
use crate::control::active_config::ActiveConfig;
use crate::control::api::{Answer, ConfigReport, Request, Severity, ShowRequest, Topic};
use crate::control::program::Program;
use crate::control::routing::Routing;
use crate::control::state::{TrafficHandle, WorkerHandle};
use crate::forward::dlb::quality::QualityTable;
use crate::id::PortId;
use crate::limits::PORT_BURST;
use crate::stats::WorkerStats;
use crate::tables::validation::SourceValidation;
use crate::tables::{Hashing, PortEntry};
use crate::traffic::buffer::Ledger;
use common::netlink::{Settings, Watch};
use common::sync::counter::Counter;
use common::sys::Waker;
use common::time::Time;
use common::units::Rate;
use common::xdp::netdev::Device;
use crossbeam_channel::Receiver;
use std::path::Path;
use std::sync::Arc;

const SPEED: Rate = Rate::from_gbps(10);

const LOSSLESS: &str = "ports = [\"p*\"]\n\
    [qos.buffer]\nsize_bytes = 1048576\n\
    [qos.flow_control]\nmode = \"pfc\"\n\
    [[qos.group]]\ngroups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = 131072\n\
    [[qos.queue]]\nqueues = [3]\nlossless = true\nweight = 50\n";

/// The same with computed headroom.
fn auto() -> String {
    LOSSLESS
        .replace("headroom = 131072", "headroom = \"auto\"")
        .replace("size_bytes = 1048576", "size_bytes = 4194304")
}

/// What control knows of a switch of two ports whose packets nobody forwards.
struct Bench {
    state: State,
    commands: Receiver<WorkerCommand>,
    folder: tempfile::TempDir,
}

impl Bench {
    /// The value of a sample, by its name and labels.
    fn metric(&self, sample: &str) -> String {
        let text = self.state.scrape(Time::ZERO).text();
        let value = |line: &str| Some(line.strip_prefix(sample)?.strip_prefix(' ')?.to_owned());
        let found = text.lines().find_map(value);
        found.unwrap_or_else(|| panic!("{sample}: {text}"))
    }

    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Source {
            path: folder.path().join("switchd.toml"),
            overrides: Vec::new(),
        };
        std::fs::write(&source.path, text).unwrap();
        let loaded = source.load().unwrap();
        let config = &loaded.settings;
        let names = ["p1", "p2"];
        let facts = names.map(|name| PortFacts {
            name: name.to_owned(),
            speed: Some(SPEED),
            link: Some(SPEED),
            burst: 10_000,
            mtu: 1500,
            ring: 1024,
            transmit_ring: 1024,
            uplink: false,
            announced: None,
        });
        let entries = names.map(|name| PortEntry {
            name: name.to_owned(),
            ifindex: 1,
            mac: [2; 6],
            up: true,
            mtu: 1500,
            speed: Some(SPEED),
            link: Some(SPEED),
            icmp_v4: None,
            icmp_v6: None,
            mtu_v6: u16::MAX,
            burst: 10_000,
            validation: SourceValidation::Off,
            csig: None,
            int: None,
        });
        let compiled = config.qos.compile(&facts).unwrap();
        let settings = Settings {
            resync: Span::from_secs(30),
        };
        let watch = Watch::open(settings, 65_536).unwrap();
        let policy = Arc::new(compiled.policy.clone());
        let routing = Routing::new(
            watch,
            Program::new(entries.to_vec(), Hashing::default(), policy),
        );
        let ledger = Ledger::new(2, 1);
        let active = ActiveConfig::new(source, loaded, facts.to_vec(), &compiled);
        let (sender, commands) = crossbeam_channel::bounded(4);
        let worker = WorkerHandle {
            queues: crossbeam_channel::bounded(1).0,
            stats: WorkerStats::new(2),
            sleeps: Arc::new(Counter::new()),
            cpu: None,
            commands: sender,
            waker: Waker::new().unwrap(),
        };
        let state = State::new(
            routing,
            Vec::new(),
            vec![worker],
            Arc::new(QualityTable::new(2)),
            active,
            TrafficHandle::new(ledger, vec![0, 0]),
            Time::ZERO,
        );
        Self {
            state,
            commands,
            folder,
        }
    }

    fn write(&self, text: &str) -> &Self {
        std::fs::write(Path::new(self.folder.path()).join("switchd.toml"), text).unwrap();
        self
    }

    fn show(&mut self, topic: Topic) -> Answer {
        self.asked(topic).unwrap()
    }

    fn asked(&mut self, topic: Topic) -> Result<Answer, String> {
        let show = ShowRequest {
            topic,
            prefix: None,
            names: Vec::new(),
            limit: None,
        };
        self.state.answer(&Request::Show(show), Time::from_nanos(1))
    }

    fn last_event(&self) -> Event {
        self.state.events.iter().next_back().unwrap().clone()
    }

    /// Fills group 3 of port 0 with so many cells.
    fn charge(&self, cells: u64) {
        let (policy, ledger) = (self.state.policy(), &self.state.traffic.ledger);
        for _ in 0..cells {
            ledger.charge(policy, PortId(0), 3, 1).unwrap();
        }
    }
}

/// MG-1: a reload puts in force what changed and tells what; what is invalid, or cannot change,
/// changes nothing.
#[test]
fn a_reload_is_all_or_nothing() {
    let mut bench = Bench::new(LOSSLESS);
    let before = bench.state.policy().clone();
    bench.write(&LOSSLESS.replace("weight = 50", "weight = 60"));
    let changes = bench.state.reload().unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].to_string(), "qos.queue[0].weight: 50 -> 60");
    let published = bench.state.routing.publisher().published();
    assert_ne!(*published.traffic, *before);
    assert!(Arc::ptr_eq(&published.traffic, bench.state.policy()));
    assert_eq!(bench.last_event().kind, EventKind::Reload);
    for (wrong, told) in [
        (LOSSLESS.replace("weight = 50", "weight = 0"), "weight"),
        (
            LOSSLESS.replace("xon_bytes = 32768", "xon_bytes = 99999"),
            "qos.group[0].xon_bytes",
        ),
        (
            LOSSLESS.replace("1048576", "2097152"),
            "8192 cells, but the memory was made for 4096",
        ),
        (format!("{LOSSLESS}[ecmp]\nseed = 9\n"), "ecmp.seed: 0 -> 9"),
        (LOSSLESS.replace("[qos.buffer]", "[qos.bufer]"), "bufer"),
    ] {
        let policy = bench.state.policy().clone();
        bench.write(&wrong);
        let reason = bench.state.reload().unwrap_err();
        assert!(reason.contains(told), "{told} is not in {reason}");
        assert!(Arc::ptr_eq(&policy, bench.state.policy()), "{told}");
        let event = bench.last_event();
        assert_eq!(event.kind, EventKind::ReloadRefused);
        assert_eq!(event.severity, Severity::Error, "it is logged as such");
        let text = &event.text;
        assert!(text.contains(told) && !text.contains('\n'), "{text}");
        let refused = bench.metric("switchd_config_last_reload_successful");
        assert_eq!(refused, "0");
    }
    // All faults are told, in one line.
    let wrong = LOSSLESS.replace("weight = 50", "weight = 0\nunknown = 1");
    bench.write(&wrong.replace("groups = [3]", "groups = [9]"));
    bench.state.reload().unwrap_err();
    let text = bench.last_event().text.clone();
    for key in ["2 faults", "unknown", "groups"] {
        assert!(text.contains(key), "{key} is not in {text}");
    }
    assert!(!text.contains("::"), "{text}");
    bench.write(&LOSSLESS.replace("weight = 50", "weight = 60"));
    assert_eq!(bench.state.reload(), Ok(Vec::new()));
    assert_eq!(bench.metric("switchd_config_last_reload_successful"), "1");
    let refused = "switchd_config_reloads_total{result=\"refused\"}";
    assert_eq!(bench.metric(refused), "6");
}

/// MG-1: the buffer may become smaller, and again as large as at the start.
#[test]
fn the_buffer_shrinks_and_grows_within_its_memory() {
    let mut bench = Bench::new(LOSSLESS);
    bench.write(&LOSSLESS.replace("1048576", "655360"));
    assert_eq!(
        bench.state.reload().unwrap()[0].key,
        "qos.buffer.size_bytes"
    );
    let Answer::Buffer(buffer) = bench.show(Topic::Buffer) else {
        panic!()
    };
    assert_eq!(buffer.regions[0].size.bytes, 655_360);
    bench.write(LOSSLESS);
    assert_eq!(bench.state.reload().unwrap().len(), 1);
}

/// SW-15: the owner of a port is told exactly which of its queues are held.
#[test]
fn holds_add_up_and_are_released() {
    let mut bench = Bench::new("ports = [\"p*\"]\n");
    let hold = |port: &str, queue, release| HoldRequest {
        port: port.to_owned(),
        queue,
        release,
    };
    bench.state.hold(&hold("p2", 3, false)).unwrap();
    bench.state.hold(&hold("p2", 0, false)).unwrap();
    bench.state.hold(&hold("p2", 3, true)).unwrap();
    let told = bench.commands.try_iter().map(|command| match command {
        WorkerCommand::Hold { port, classes } => (port, classes),
        other => panic!("{other:?}"),
    });
    let told: Vec<(PortId, u8)> = told.collect();
    let of = |classes| (PortId(1), classes);
    assert_eq!(told, [of(0b1000), of(0b1001), of(0b0001)]);
    let event = bench.last_event();
    assert_eq!((event.kind, event.queue), (EventKind::Release, Some(3)));
    assert_eq!(event.port.as_deref(), Some("p2"));
    assert!(
        bench
            .state
            .hold(&hold("p2", 8, false))
            .unwrap_err()
            .contains("0 to 7")
    );
    assert!(
        bench
            .state
            .hold(&hold("p9", 1, false))
            .unwrap_err()
            .contains("p9")
    );
}

/// SW-15, MG-7: a port that comes in the place of another one has no queue that is held, and its
/// counters are not those that the other one had when they were cleared.
#[test]
fn another_port_has_nothing_of_the_one_before() {
    let mut bench = Bench::new("ports = [\"p*\"]\n");
    let hold = |queue| HoldRequest {
        port: "p1".to_owned(),
        queue,
        release: false,
    };
    bench.state.hold(&hold(3)).unwrap();
    assert_eq!(bench.state.held_queues().count(), 1);
    bench.state.workers[0].stats.ports[0].rx_packets.add(7);
    let clear = Request::ClearCounters;
    bench.state.answer(&clear, Time::ZERO).unwrap();
    bench.state.forget_port(0, "p1");
    assert_eq!(bench.state.held_queues().count(), 0);
    let Answer::Ports(ports) = bench.show(Topic::Ports) else {
        panic!()
    };
    assert_eq!(ports[0].rx_packets, 7);
    bench.state.hold(&hold(0)).unwrap();
    let told = bench
        .commands
        .try_iter()
        .filter_map(|command| match command {
            WorkerCommand::Hold { classes, .. } => Some(classes),
            _ => None,
        });
    assert_eq!(told.collect::<Vec<_>>(), [0b1000, 0b0001]);
}

/// SW-10: regions, groups, thresholds and watermarks are shown as the ledger has them, and
/// watermarks begin anew.
#[test]
fn the_buffer_is_shown() {
    let mut bench = Bench::new(LOSSLESS);
    bench.charge(300);
    let Answer::Pg(groups) = bench.show(Topic::Pg) else {
        panic!()
    };
    let group = groups
        .iter()
        .find(|row| row.port == "p1" && row.group == 3)
        .unwrap();
    assert_eq!(group.priorities, [3]);
    assert!(group.lossless && group.xoff_now);
    assert_eq!((group.used.cells, group.headroom.cells), (256, 44));
    assert_eq!(group.xoff.unwrap().bytes, 65_536);
    assert_eq!(group.xon.unwrap().bytes, 32_768);
    assert_eq!(groups.iter().filter(|row| row.is_remarkable()).count(), 2);
    let Answer::Buffer(buffer) = bench.show(Topic::Buffer) else {
        panic!()
    };
    let region = |name: &str| {
        buffer
            .regions
            .iter()
            .find(|it| it.region == name)
            .unwrap()
            .clone()
    };
    assert_eq!(region("all").used.cells, 300);
    assert_eq!(region("all").size.cells, 4096);
    assert_eq!(region("service").used.cells, 256);
    assert_eq!(region("headroom").size.bytes, 2 * 131_072);
    assert_eq!(region("headroom").watermark.unwrap().cells, 44);
    assert_eq!(buffer.ports[0].ingress.cells, 300);
    let (policy, ledger) = (
        bench.state.policy().clone(),
        bench.state.traffic.ledger.clone(),
    );
    ledger.release(&policy, PortId(0), 3, 300);
    let peak = |bench: &mut Bench| {
        let Answer::Pg(groups) = bench.show(Topic::Pg) else {
            panic!()
        };
        groups[3].watermark.cells
    };
    assert_eq!(peak(&mut bench), 256);
    bench
        .state
        .answer(&Request::ClearWatermarks, Time::ZERO)
        .unwrap();
    assert_eq!(peak(&mut bench), 0);
}

/// SW-31: flow control is shown as it is configured and counted, and counters are shown from where
/// they were cleared.
#[test]
fn flow_control_is_shown() {
    let mut bench = Bench::new(LOSSLESS);
    let stats = bench.state.workers[0].stats.clone();
    stats.ports[1].pauses[3].received_xoff.set(7);
    stats.ports[1].pauses[3].paused_until.set(5);
    stats.ports[1].queues[3].marked_packets.set(4);
    let Answer::Pfc(pfc) = bench.show(Topic::Pfc) else {
        panic!()
    };
    assert_eq!(pfc.ports[0].mode, "pfc");
    assert_eq!(pfc.ports[0].capability, "software");
    let row = pfc
        .priorities
        .iter()
        .find(|row| row.port == "p2" && row.priority == 3)
        .unwrap();
    assert!(row.sends && row.obeys && row.paused);
    assert_eq!(row.received_xoff, 7);
    assert_eq!(
        pfc.priorities
            .iter()
            .filter(|row| row.is_remarkable())
            .count(),
        2
    );
    let Answer::Queues(queues) = bench.show(Topic::Queues) else {
        panic!()
    };
    let queue = &queues[8 + 3];
    assert_eq!(
        (queue.weight, queue.limit_bytes, queue.marked_packets),
        (Some(50), None, 4)
    );
    assert!(queue.paused && !queue.held && !queues[3].paused);
    assert_eq!(queues[0].limit_bytes, Some(1 << 20));
    bench
        .state
        .answer(&Request::ClearCounters, Time::from_nanos(9))
        .unwrap();
    let Answer::Pfc(pfc) = bench.show(Topic::Pfc) else {
        panic!()
    };
    assert_eq!(pfc.priorities[8 + 3].received_xoff, 0);
    let Answer::Queues(queues) = bench.show(Topic::Queues) else {
        panic!()
    };
    assert_eq!(queues[8 + 3].marked_packets, 0);
}

/// MG-7: a worker that looked away for longer than headroom was computed for is warned of, while
/// there is a lossless group.
#[test]
fn long_gaps_are_warned_of() {
    let warned = |bench: &Bench| {
        let all = bench.state.warnings();
        all.iter()
            .any(|it| it.contains("did not look at its ports"))
    };
    let computed = LOSSLESS.replace("headroom = 131072", "headroom = \"auto\"");
    let bench = Bench::new(&computed.replace("1048576", "67108864"));
    let stats = &bench.state.workers[0].stats;
    stats.note_gap(Span::from_micros(100));
    assert!(!warned(&bench));
    stats.note_gap(Span::from_micros(101));
    assert!(warned(&bench));
    bench.state.clear_watermarks();
    assert!(!warned(&bench));
    // Bytes were chosen for whatever their operator planned, or there is no lossless group.
    for text in [LOSSLESS, "ports = [\"p*\"]\n"] {
        let bench = Bench::new(text);
        bench.state.workers[0].stats.note_gap(Span::from_secs(1));
        assert!(!warned(&bench));
    }
}

/// SW-15, SW-32, MG-7: what keeps packets from being sent or held back is in the status: queues
/// that are held, storms, and priorities that PFC is off for, whose pauses are not obeyed then; and
/// who has nothing to turn on is told why.
#[test]
fn what_is_stopped_is_warned_of() {
    let mut bench = Bench::new(LOSSLESS);
    let before = bench.state.warnings();
    let hold = |release| HoldRequest {
        port: "p1".to_owned(),
        queue: 3,
        release,
    };
    bench.state.hold(&hold(false)).unwrap();
    bench.state.workers[0].stats.ports[1].pauses[3]
        .storm_state
        .set(1);
    let warnings = bench.state.warnings();
    let new: Vec<&String> = warnings.iter().filter(|it| !before.contains(it)).collect();
    assert_eq!(
        new,
        [
            "queue 3 of p1 is held: `switchctl hold p1 3 --release`",
            "the peer of p2 pauses priority 3 without end: see `switchctl pfcwd`"
        ]
    );
    bench.state.hold(&hold(true)).unwrap();
    let obeys = |bench: &mut Bench| match bench.show(Topic::Pfc) {
        Answer::Pfc(pfc) => pfc
            .priorities
            .iter()
            .any(|row| row.port == "p2" && row.priority == 3 && row.obeys),
        other => panic!("{other:?}"),
    };
    assert!(obeys(&mut bench));
    bench.state.workers[0].stats.ports[1].pauses[3]
        .storm_state
        .set(2);
    assert!(!obeys(&mut bench));
    let warnings = bench.state.warnings();
    let new: Vec<&String> = warnings.iter().filter(|it| !before.contains(it)).collect();
    assert_eq!(
        new,
        ["PFC is off for priority 3 of p2 after too many storms: `switchctl pfcwd enable p2 3`"]
    );
    let mut refused = |port, priority| bench.state.enable_pfc(port, priority).unwrap_err();
    assert!(refused("p1", 3).ends_with("it is operational"));
    assert!(refused("p1", 2).contains("priority 2 of p1 is not watched"));
}

/// MG-7: a group that crosses its threshold and a buffer that is nearly full are events.
#[test]
fn crossings_are_events() {
    let mut bench = Bench::new(&LOSSLESS.replace("headroom = 131072", "headroom = 11520"));
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    bench.state.sample_thresholds(at(0));
    assert_eq!(bench.state.events.iter().len(), 0);
    bench.charge(300);
    bench.state.sample_thresholds(at(100));
    let event = bench.last_event();
    assert_eq!((event.kind, event.group), (EventKind::Xoff, Some(3)));
    assert_eq!(event.port.as_deref(), Some("p1"));
    let (policy, ledger) = (
        bench.state.policy().clone(),
        bench.state.traffic.ledger.clone(),
    );
    ledger.release(&policy, PortId(0), 3, 300);
    bench.state.sample_thresholds(at(200));
    assert_eq!(bench.state.events.iter().len(), 1);
    bench.state.sample_thresholds(at(1200));
    assert_eq!(bench.last_event().kind, EventKind::Xon);
    ledger.charge(&policy, PortId(0), 0, 3700).unwrap();
    bench.state.sample_thresholds(at(1300));
    assert_eq!(bench.last_event().kind, EventKind::BufferHigh);
    ledger.release(&policy, PortId(0), 0, 3700);
    bench.state.sample_thresholds(at(1400));
    assert_eq!(bench.last_event().kind, EventKind::BufferLow);
    assert_eq!(bench.state.events.iter().len(), 4);
}

/// MG-7: groups and priorities that nothing is configured for and nobody used are no metrics.
#[test]
fn metrics_are_bounded() {
    let lossless = Bench::new(LOSSLESS).state.scrape(Time::ZERO).text();
    for name in [
        "switchd_buffer_cells{region=\"service\"} 0",
        "switchd_pg_headroom_limit_cells{group=\"3\",port=\"p1\"} 512",
        "switchd_pfc_frames_sent_total{kind=\"xoff\",port=\"p2\",priority=\"3\"} 0",
        "switchd_queue_sent_packets_total{port=\"p1\",queue=\"7\"} 0",
    ] {
        let labels = |line: &str| {
            let mut parts: Vec<char> = line.chars().collect();
            parts.sort_unstable();
            parts
        };
        let found = lossless.lines().any(|line| labels(line) == labels(name));
        assert!(found, "{name} is not in {lossless}");
    }
    assert!(!lossless.contains("group=\"4\""));
    let plain = Bench::new("ports = [\"p*\"]\n")
        .state
        .scrape(Time::ZERO)
        .text();
    assert!(
        !plain.contains("switchd_pg_") && !plain.contains("switchd_pfc_"),
        "{plain}"
    );
}

/// The interface of p1.
fn device(mtu: u32, speed: Rate) -> Device {
    Device {
        name: "p1".to_owned(),
        ifindex: 1,
        mac: [2; 6],
        mtu,
        rx_queues: 1,
        tx_queues: 1,
        speed: Some(speed),
        driver: "veth".to_owned(),
        strips_vlan_tags: false,
        up: true,
        running: true,
    }
}

/// SW-12, SW-31: `[qos]` that does not fit a new speed stays a problem, survives a reload that does
/// not help, and ends with one that does, or with the speed.
#[test]
fn a_policy_that_does_not_fit_stays_a_problem() {
    let config = format!("{}[port_defaults]\nspeed = \"device\"\n", auto());
    let problem = |bench: &Bench| {
        let all = bench.state.problems(Time::ZERO);
        all.into_iter().find(|it| it.starts_with("p1: [qos]"))
    };
    let headroom = |bench: &Bench| bench.state.policy().ports[0].groups[3].headroom;
    let mut bench = Bench::new(&config);
    let settings = bench.state.active.config.settings_of("p1").unwrap();
    let before = headroom(&bench);
    let fast = || device(1500, Rate::from_gbps(400));
    bench.state.change_device(0, &settings, fast());
    let told = problem(&bench).expect("a problem");
    assert!(told.contains("headroom"), "{told}");
    assert_eq!(headroom(&bench), before, "the old one is in force");
    bench.state.reload().unwrap();
    assert_eq!(problem(&bench), Some(told), "nothing changed");
    // The larger the gap, the more headroom: it still does not fit.
    let gap = "[qos.headroom]\npoll_gap_microseconds = 110\n[qos.flow_control]";
    bench.write(&config.replace("[qos.flow_control]", gap));
    bench.state.reload().unwrap();
    assert!(problem(&bench).is_some());
    let gap = "[qos.headroom]\npoll_gap_microseconds = 1\n[qos.flow_control]";
    bench.write(&config.replace("[qos.flow_control]", gap));
    bench.state.reload().unwrap();
    assert_eq!(problem(&bench), None);
    assert_ne!(headroom(&bench), before);
    let text = "[qos] is in force for its speed and MTU of now";
    assert!(bench.state.events.iter().any(|event| event.text == text));

    let mut bench = Bench::new(&config);
    bench.state.change_device(0, &settings, fast());
    assert!(problem(&bench).is_some());
    bench.state.change_device(0, &settings, device(1500, SPEED));
    assert_eq!(problem(&bench), None);
    assert_eq!(headroom(&bench), before);
}

/// SW-12, SW-15, SW-31: when a link negotiates another speed, quanta, headroom and the shaper that
/// is to have its speed follow; a shaper of its own stays.
#[test]
fn a_link_that_negotiates_again_is_followed() {
    for (speed, shaper) in [
        ("device", Rate::from_gbps(1)),
        ("5Gbps", Rate::from_gbps(5)),
    ] {
        let text = format!("{}[port_defaults]\nspeed = \"{speed}\"\n", auto());
        let mut bench = Bench::new(&text);
        let headroom = |bench: &Bench| bench.state.policy().ports[0].groups[3].headroom;
        let before = headroom(&bench);
        let settings = bench.state.active.config.settings_of("p1").unwrap();
        let device = device(1500, Rate::from_gbps(1));
        bench.state.change_device(0, &settings, device);
        bench.state.adopt_speed(0, &settings, Rate::from_gbps(1));
        let ports = bench.state.routing.publisher().published().ports.clone();
        assert_eq!(ports[0].link, Some(Rate::from_gbps(1)));
        assert_eq!(ports[0].speed, Some(shaper));
        assert_eq!(u64::from(ports[0].burst), shaper.bytes_in(PORT_BURST));
        assert_eq!(ports[1].link, Some(SPEED), "the other stays");
        assert!(
            headroom(&bench) < before / 2,
            "{} of {before}",
            headroom(&bench)
        );
        let event = bench.last_event();
        assert_eq!(event.port.as_deref(), Some("p1"));
        assert_eq!(event.text, "the link has a speed of 1Gbps now");
        let differs = bench
            .state
            .warnings()
            .iter()
            .any(|it| it.starts_with("p1: it is shaped to"));
        assert_eq!(differs, speed != "device");
    }
}

/// SW-50: a collector is not asked for in vain without a word.
#[test]
fn a_collector_without_analysis_is_warned_of() {
    let text = format!("{LOSSLESS}[flows]\ncollector = \"10.0.0.9:4739\"\n");
    let bench = Bench::new(&text);
    let told = "flows.collector gets nothing, for flows.enabled is false";
    assert!(bench.state.warnings().iter().any(|it| it == told));
    let bench = Bench::new(LOSSLESS);
    assert!(!bench.state.warnings().iter().any(|it| it == told));
}

/// MG-1: what is unwise at a port that comes later is told as it is of those of the start, once.
#[test]
fn warnings_follow_ports_that_come() {
    let gap = "[qos.headroom]\npoll_gap_microseconds = 50\n[qos.flow_control]";
    let lossless = LOSSLESS.replace("[qos.flow_control]", gap);
    let text = format!("{lossless}[ecmp.dlb]\nmode = \"flowlet\"\nidle_time_microseconds = 100\n");
    let mut bench = Bench::new(&text);
    assert_eq!(bench.state.warnings(), Vec::<String>::new());
    let active = &mut bench.state.active;
    let slow = PortFacts {
        name: "p2".to_owned(),
        speed: Some(Rate::from_mbps(100)),
        link: Some(Rate::from_mbps(100)),
        burst: 8192,
        mtu: 1500,
        ring: 1024,
        transmit_ring: 1024,
        uplink: false,
        announced: None,
    };
    let compiled = active.prepare_port(1, &slow).unwrap().expect("another one");
    let told = active.take_port(1, slow.clone(), &compiled);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("p2: too slow to be measured each 16 µs"),
        "{told:?}"
    );
    assert!(
        active.take_port(1, slow, &compiled).is_empty(),
        "told before"
    );
    assert_eq!(bench.state.warnings(), told);
}

/// SW-1, SW-12: `[qos]` reserves nothing for a port that is forgotten. What no other port is meant
/// by is impossible without it: it stays in force, which is said.
#[test]
fn a_forgotten_port_gives_back_what_it_had() {
    let headroom = |bench: &Bench| {
        let ports = &bench.state.policy().ports;
        [0, 1].map(|port: usize| ports[port].groups[3].headroom)
    };
    let mut bench = Bench::new(&auto());
    let [first, second] = headroom(&bench);
    assert!(first > 0 && second > 0);
    bench.state.note_forgotten(1);
    assert_eq!(headroom(&bench), [first, 0]);
    assert!(!bench.last_event().text.contains("[qos]"));
    bench.state.note_forgotten(1);
    assert_eq!(headroom(&bench), [first, 0], "it is gone already");

    let own = "[[qos.headroom.port]]\nports = [\"p2\"]\ncable_metres = 100\n[qos.flow_control]";
    let mut bench = Bench::new(&auto().replace("[qos.flow_control]", own));
    let before = headroom(&bench);
    bench.state.note_forgotten(1);
    assert_eq!(headroom(&bench), before);
    let text = &bench.last_event().text;
    let why = "[qos] stays as it was with it, and is not allowed without: qos.headroom.port[0].ports[0]: \
               no port is called \"p2\"; there are p1";
    assert!(text.contains(why), "{text}");
    bench.state.reload().expect("the same is allowed as before");
}

/// MG-1: the configuration in force is shown with its origin, and what follows from it for the
/// ports as they are now.
#[test]
fn the_configuration_in_force_is_shown() {
    let mut bench = Bench::new(&auto());
    let Answer::Config(before) = bench.show(Topic::Config) else {
        panic!()
    };
    assert!(
        before.toml.contains("xoff_bytes = 65536  # "),
        "{}",
        before.toml
    );
    assert!(before.toml.contains("switchd.toml:"), "{}", before.toml);
    assert!(
        before.toml.contains("cable_metres = 5  # default"),
        "{}",
        before.toml
    );
    let of = |report: &ConfigReport, name: &str| {
        let mut rows = report.derived.iter();
        let row = rows.find(|it| it.port == "p1" && it.name == name);
        row.unwrap_or_else(|| panic!("{name}: {report:?}"))
            .value
            .clone()
    };
    assert_eq!(of(&before, "link_speed"), "10Gbps");
    assert_eq!(of(&before, "burst_bytes"), "10000");
    let headroom = bench.state.policy().ports[0].groups[3].headroom;
    assert_eq!(of(&before, "headroom_bytes"), (headroom * 256).to_string());
    // What it announces to a peer that is told `peer = "switchd"`.
    assert_eq!(of(&before, "peer_response_nanoseconds"), "100000");
    assert_eq!(of(&before, "peer_backlog_bytes"), "10000");
    let gap = "[qos.headroom]\npoll_gap_microseconds = 50\n[qos.flow_control]";
    let later = auto().replace("[qos.flow_control]", gap);
    bench.write(&later);
    bench.state.reload().unwrap();
    let Answer::Config(after) = bench.show(Topic::Config) else {
        panic!()
    };
    assert!(
        after.toml.contains("poll_gap_microseconds = 50  # "),
        "{}",
        after.toml
    );
    assert_eq!(of(&after, "peer_response_nanoseconds"), "50000");
    assert_ne!(of(&after, "headroom_bytes"), of(&before, "headroom_bytes"));
}
