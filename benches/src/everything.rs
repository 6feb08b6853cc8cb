//! Every feature of the traffic manager and of load balancing at once, for benches that measure
//! their cost.
//!
//! Packets of class 3 belong to tracked flows: elephants move to another queue, the watchdog checks
//! the class, flowlets choose the next hop. Packets that wait are also charged to a lossless group,
//! share the port by weight and are marked by depth. Other queues are shaped, or trim.

use switchd::config::Qos;
use switchd::config::ecmp::Dlb;
use toml::Table;

/// DSCP 24, which is of priority 3 and so of class 3, and ECT(0): the traffic class of the packets.
pub const TRAFFIC_CLASS: u8 = 24 << 2 | 2;

/// `[qos]` of switchd.
const QOS: &str = r#"
[buffer]
size_bytes = 16777216
[headroom]
poll_gap_microseconds = 1
[flow_control]
mode = "pfc"
[trim.trimmable]
10 = 42
[[group]]
groups = [3]
guaranteed_bytes = 4096
dynamic_th = 0
xon_offset_bytes = 8192
headroom = "auto"
[[queue]]
queues = [1, 3]
guaranteed_bytes = 4096
lossless = true
weight = 75
[queue.wred]
min_bytes = 30000
max_bytes = 120000
[[queue]]
queues = [0, 2]
weight = 25
rate = "90Gbps"
dynamic_th = 1
trim_bytes = 100000
[[elephants]]
from = 3
to = 1
bytes = 100000
rate = "100Mbps"
"#;

/// `[ecmp.dlb]` of switchd.
const DLB: &str = r#"mode = "flowlet""#;

/// `[qos]` and `[ecmp.dlb]`, compiled in.
///
/// # Panics
/// If they do not parse.
pub fn settings() -> (Qos, Dlb) {
    let qos = toml::from_str(QOS).expect("a configuration");
    (qos, toml::from_str(DLB).expect("a configuration"))
}

/// Both as text for switchd's configuration file.
///
/// # Panics
/// If they do not parse.
pub fn text() -> String {
    let parse = |text: &str| text.parse::<Table>().expect("a configuration");
    let ecmp = Table::from_iter([("dlb".to_owned(), parse(DLB).into())]);
    let all = Table::from_iter([
        ("qos".to_owned(), parse(QOS).into()),
        ("ecmp".to_owned(), ecmp.into()),
    ]);
    toml::to_string(&all).expect("tables are text")
}
