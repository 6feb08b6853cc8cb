//! Observations of a laboratory from outside its daemons, and the checks that tests of whole
//! fabrics share.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::control::DaemonStatus;
use super::topology::Daemons;
use super::{Builder, Lab, LabError};

/// The unit of processor time in /proc: USER_HZ, 100 on every architecture that Linux has today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Packets by node and interface.
pub type Counts = BTreeMap<(String, String), u64>;

/// A fabric with switchd only. Names of laboratories have at most 8 letters.
#[must_use]
pub fn switches(name: &str) -> Builder {
    Lab::builder().name(name).daemons(Daemons::Switches)
}

/// A fabric with both daemons.
#[must_use]
pub fn fabric(name: &str) -> Builder {
    Lab::builder().name(name)
}

/// Packets that the kernel has seen arriving at every interface of every switch: counted by the
/// veth driver before XDP, so independent of the daemons' own counters.
///
/// # Errors
/// When `ip` fails or prints something else.
pub fn received(lab: &Lab) -> Result<Counts, LabError> {
    let mut counts = Counts::new();
    for node in lab.plan().nodes.iter().filter(|node| node.role.is_switch()) {
        let text = lab
            .node(&node.name)?
            .run(["ip", "-j", "-s", "link"])?
            .stdout;
        let links: Vec<Value> = serde_json::from_str(&text).map_err(|error| LabError::Answer {
            what: "ip -s link".to_owned(),
            reason: error.to_string(),
        })?;
        for link in &links {
            let name = link["ifname"].as_str().unwrap_or_default().to_owned();
            let packets = link["stats64"]["rx"]["packets"].as_u64().unwrap_or(0);
            counts.insert((node.name.clone(), name), packets);
        }
    }
    Ok(counts)
}

/// What was added from `before` to `after`.
#[must_use]
pub fn gain(before: &Counts, after: &Counts) -> Counts {
    after
        .iter()
        .map(|(key, count)| (key.clone(), count - before.get(key).unwrap_or(&0)))
        .collect()
}

/// Tries until it succeeds, and fails with the last error when it takes longer than `limit`.
///
/// # Panics
/// Then.
pub fn eventually<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) => assert!(
                Instant::now() < deadline,
                "no {what} after {limit:?}: {error}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Packets that the daemons that run have lost, by node and reason; reasons without a packet are
/// left out.
///
/// # Errors
/// When a switchctl or hostctl fails.
pub fn drops(lab: &Lab) -> Result<Counts, LabError> {
    let mut counts = Counts::new();
    for daemon in lab.daemons()?.into_iter().filter(|it| it.pid.is_some()) {
        let node = daemon.node;
        let answer = match daemon.program.as_str() {
            "switchd" => lab.switchctl(&node, &["show", "drops"])?,
            _ => lab.hostctl(&node, &["show", "drops"])?,
        };
        for row in rows(answer) {
            let packets = row["packets"].as_u64().unwrap_or(0);
            let reason = row["reason"].as_str().unwrap_or_default().to_owned();
            if packets > 0 {
                *counts.entry((node.clone(), reason)).or_default() += packets;
            }
        }
    }
    Ok(counts)
}

/// The rows of an answer: a list, alone or under the name of what was asked for.
#[must_use]
pub fn rows(answer: Value) -> Vec<Value> {
    match answer {
        Value::Array(rows) => rows,
        Value::Object(fields) => fields
            .into_iter()
            .flat_map(|(_, value)| rows(value))
            .collect(),
        _ => Vec::new(),
    }
}

/// Every daemon runs since it was started, and none has lost a packet but for reasons in
/// `expected`.
///
/// # Panics
/// When it is otherwise.
pub fn assert_healthy(lab: &Lab, expected: &[&str]) {
    for daemon in lab.daemons().expect("the supervisor answers") {
        assert!(daemon.ready && daemon.restarts == 0, "{daemon:?}");
    }
    let lost = drops(lab).expect("the daemons answer");
    let unexpected: Vec<_> = lost
        .iter()
        .filter(|((_, reason), _)| !expected.contains(&reason.as_str()))
        .collect();
    assert!(unexpected.is_empty(), "lost: {unexpected:?}");
}

/// Every daemon `program` of an idle laboratory uses less than 1 % of a core.
///
/// # Panics
/// When one uses more, or none runs.
pub fn assert_idle(lab: &Lab, program: &str) {
    let daemons: Vec<_> = lab
        .daemons()
        .unwrap()
        .into_iter()
        .filter(|d| d.program == program)
        .collect();
    assert!(!daemons.is_empty());
    std::thread::sleep(Duration::from_secs(1));
    let window = Duration::from_secs(4);
    let before: Vec<f64> = daemons.iter().map(processor_seconds).collect();
    std::thread::sleep(window);
    for (daemon, before) in daemons.iter().zip(before) {
        let share = (processor_seconds(daemon) - before) / window.as_secs_f64();
        assert!(
            share <= 0.01,
            "{program} on {}: {:.1} % of a core",
            daemon.node,
            share * 100.0
        );
    }
}

/// Processor time that a daemon has used, in seconds.
fn processor_seconds(daemon: &DaemonStatus) -> f64 {
    let pid = daemon.pid.expect("the daemon runs");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the daemon runs");
    // The name, in parentheses, may contain spaces; user and system time are fields 14 and 15.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let fields = after.split_whitespace().skip(11).take(2);
    let ticks: u32 = fields.filter_map(|field| field.parse::<u32>().ok()).sum();
    f64::from(ticks) / TICKS_PER_SECOND
}
