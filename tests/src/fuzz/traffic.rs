//! What the switch under test is told of its traffic manager, and what has to hold of its books
//! after each turn.
//!
//! ```text
//!   0 plain   1 PFC, storms are dropped    2 PFC, storms are sent through, one pool of headroom
//!             3 PAUSE                      4 PFC, priorities from tags, nobody watches
//! ```
//!
//! All but the first have everything: lossless and lossy groups, DWRR beside strict queues,
//! shapers, marks at both ends of a queue, trimming, hook flows and elephants. The buffer is so
//! small that a burst of 32 frames crosses every threshold.

use common::units::Rate;
use common::wire::pause::PRIORITIES;
use std::sync::{Arc, OnceLock};
use switchd::config::ecmp::Dlb;
use switchd::config::{PortFacts, Qos};
use switchd::id::PortId;
use switchd::stats::WorkerStats;
use switchd::tables::Tables;
use switchd::tables::dlb::DlbPolicy;
use switchd::tables::policy::Policy;
use switchd::traffic::buffer::Ledger;

/// Speeds of the ports in megabits a second while there is flow control: pauses are counted in bits
/// of them, and burst and buffer are full after a few packets.
const SPEEDS: [u64; 4] = [10_000, 1000, 1000, 100];

/// What a port may send at once then: two frames.
const BURST: u32 = 3000;

/// Variants: the lines at the front, then keys of these tables: buffer, flow control, watchdog,
/// elephants, `[ecmp.dlb]`.
const VARIANTS: [[&str; 6]; 4] = [
    [
        "",
        "",
        "mode = \"pfc\"\nquanta = 100",
        "action = \"drop\"\nstorms = 2",
        "moves = \"gated\"\nrate = \"100Mbps\"",
        "mode = \"flowlet\"\nqueue_max_bytes = 8192\nqueue_min_bytes = 0\nhysteresis = 0\nhost_sprayed_udp_port = 4791",
    ],
    [
        "",
        "shared_headroom_bytes = 16384",
        "mode = \"pfc\"\npriorities = [0, 1, 2, 3, 4, 5, 6, 7]",
        "action = \"forward\"",
        "moves = \"drained\"",
        "mode = \"packet\"\nmultipath_hints = true",
    ],
    [
        "",
        "ingress_limit_bytes = 65536\negress_limit_bytes = 32768",
        "mode = \"pause\"\nquanta = 1000",
        "action = \"alert\"",
        "moves = \"gated\"",
        "mode = \"off\"",
    ],
    [
        "trust = \"pcp\"\npriority_of_pcp = { 1 = 3, 2 = 5 }",
        "",
        "mode = \"pfc\"\nquanta = 1",
        "enabled = false",
        "moves = \"gated\"",
        "mode = \"flowlet\"\nidle_time_microseconds = 1\nhysteresis = 0\nmultipath_hints = true",
    ],
];

const COMMON: &str = r#"
[headroom]
poll_gap_microseconds = 10
[trim]
trimmable = { 8 = 48, 9 = 49, 10 = 48 }
rtx = [9]
control = [56]
[hook]
priority = 4
dscp = 32
[[group]]
groups = [3]
guaranteed_bytes = 1024
xoff_bytes = 8192
xon_bytes = 4096
headroom = 8192
[[group]]
groups = [4]
dynamic_th = -2
xon_offset_bytes = 2048
headroom = 8192
[[group]]
groups = [0]
xoff_bytes = 16384
[[queue]]
queues = [3]
lossless = true
weight = 50
wred = { min_bytes = 2048, max_bytes = 8192, probability_percent = 50, average_exponent = 2 }
[[queue]]
queues = [4]
lossless = true
weight = 20
wred = { min_bytes = 4096, max_bytes = 4096, mark_at = "enqueue" }
[[queue]]
queues = [1]
weight = 20
limit_bytes = 16384
trim_bytes = 4096
[[queue]]
queues = [6]
limit_bytes = 9216
[[queue]]
queues = [2]
guaranteed_bytes = 1024
dynamic_th = -1
weight = 10
rate = "500Mbps"
burst_bytes = 4096
wred = { min_bytes = 1024, max_bytes = 16384, mark_at = "enqueue" }
[[queue]]
queues = [5]
limit_bytes = 32768
rate = "200Mbps"
"#;

/// Everything of a variant that tables say.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    policy: Arc<Policy>,
    dlb: Arc<DlbPolicy>,
    /// Ports have speeds, and so flow control.
    paced: bool,
}

fn speed(port: usize) -> Rate {
    Rate::from_mbps(SPEEDS[port])
}

fn compiled(variant: [&str; 6]) -> Variant {
    let [front, buffer, flow_control, watchdog, elephants, dlb] = variant;
    let text = format!(
        "queue_depth_bytes = 32768\n{front}\n[buffer]\nsize_bytes = 262144\n{buffer}\n\
         [flow_control]\n{flow_control}\n\
         [watchdog]\ndetection_time_milliseconds = 2\nrestoration_time_milliseconds = 2\n\
         poll_interval_milliseconds = 1\nwindow_milliseconds = 1000\n{watchdog}\n{COMMON}\
         [[elephants]]\nfrom = 5\nto = 2\nbytes = 8192\nageing_milliseconds = 5\n{elephants}\n"
    );
    let qos: Qos = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let ports = (0..SPEEDS.len()).map(|port| PortFacts {
        name: format!("p{port}"),
        speed: Some(speed(port)),
        link: Some(speed(port)),
        burst: BURST,
        mtu: 1500,
        ring: 64,
        transmit_ring: 64,
        uplink: port < 2,
        announced: None,
    });
    let compiled = qos.compile(&ports.collect::<Vec<_>>());
    let compiled = compiled.unwrap_or_else(|it| panic!("{it}"));
    let dlb: Dlb = toml::from_str(dlb).expect("[ecmp.dlb]");
    Variant {
        policy: Arc::new(compiled.policy),
        dlb: Arc::new(dlb.policy()),
        paced: true,
    }
}

/// The variant that a byte stands for.
pub(super) fn variant(byte: u8) -> &'static Variant {
    static ALL: OnceLock<Vec<Variant>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let plain = Variant {
            policy: Arc::new(Policy::plain(SPEEDS.len(), 128)),
            dlb: Arc::default(),
            paced: false,
        };
        let full = VARIANTS.into_iter().map(compiled);
        std::iter::once(plain).chain(full).collect()
    });
    &all[usize::from(byte) % all.len()]
}

impl Variant {
    /// Puts it in force.
    pub(super) fn apply(&self, tables: &mut Tables) {
        tables.traffic = self.policy.clone();
        tables.dlb = self.dlb.clone();
        for (number, port) in tables.ports.iter_mut().enumerate() {
            if self.paced {
                (port.speed, port.burst) = (Some(speed(number)), BURST);
                port.link = port.speed;
            } else {
                // As the switch begins: one port has a speed.
                port.speed = (number == 2).then(|| Rate::from_gbps(1));
                port.link = port.speed;
                port.burst = 125_000;
            }
        }
    }

    /// What the traffic manager is told.
    pub(super) fn policy(&self) -> Arc<Policy> {
        self.policy.clone()
    }
}

/// The books agree with themselves and with what the queues hold. Between turns of a switch with
/// one worker all packets that are charged are in a queue.
pub(super) fn audit(ledger: &Ledger, stats: &WorkerStats) {
    let (mut in_use, mut in_headroom) = (0, 0);
    for (number, port) in stats.ports.iter().enumerate() {
        let id = PortId(u16::try_from(number).expect("few ports"));
        let [ingress, egress] = ledger.port(id).map(|usage| usage.now);
        let groups = (0..PRIORITIES).map(|group| ledger.group(id, group));
        let (mut charged, mut headroom) = (0, 0);
        for group in groups {
            charged += group.shared.now + group.headroom.now;
            headroom += group.headroom.now;
        }
        assert_eq!(ingress, charged, "port {number}: groups");
        let queued: u64 = port.queues.iter().map(|it| it.depth_cells.get()).sum();
        assert_eq!(egress, queued, "port {number}: queues");
        for (class, queue) in port.queues.iter().enumerate() {
            let cells = queue.depth_cells.get();
            let (packets, bytes) = (queue.depth_packets.get(), queue.depth_bytes.get());
            let empty = [packets, bytes, cells].map(|it| it == 0);
            assert!(empty == [empty[0]; 3], "port {number}, queue {class}");
            let left = queue.sent_packets.get() + queue.discarded_packets.get();
            let accepted = queue.enqueued_packets.get();
            assert_eq!(accepted, left + packets, "port {number}, queue {class}");
        }
        in_use += charged;
        in_headroom += headroom;
    }
    let [service, headroom, _] = ledger.regions().map(|usage| usage.now);
    let leaving: u64 = (0..stats.ports.len())
        .map(|port| ledger.port(PortId(u16::try_from(port).expect("few")))[1].now)
        .sum();
    assert_eq!(leaving, in_use, "charged and queued");
    assert_eq!(headroom, in_headroom, "headroom of all groups");
    assert!(service + headroom <= in_use, "shared cells are charged");
}

/// Nothing is in the buffer any more, and no group waits for its peer to stop.
pub(super) fn is_empty(ledger: &Ledger, policy: &Policy, ports: usize) {
    let regions = ledger.regions().map(|usage| usage.now);
    assert_eq!(regions, [0; 3], "cells after the drain");
    assert_eq!(ledger.in_use(), 0, "cells after the drain");
    for port in 0..ports {
        let id = PortId(u16::try_from(port).expect("few ports"));
        assert_eq!(ledger.wanted(policy, id), 0, "port {port} asks for silence");
    }
}
