//! What the traffic manager and the load balancing can do, all at once, for benches that ask what
//! it costs.
//!
//! Packets of class 3 are followed, moved to another queue when they are of an elephant, watched,
//! and spread in flowlets; those that have to wait are also charged to a lossless group, shared out
//! by weight and marked by depth. Queues beside theirs are shaped, or trim.

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
