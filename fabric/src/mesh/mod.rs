//! Probes between hosts, as a matrix (CS-10): how long messages take, and which port on the way was
//! the worst.
//!
//! ```text
//!   laboratory  all hosts of one, one after the other          fabric lab mesh
//!   hosts       from this host to others                       fabric mesh probe
//!               what several hosts have found, put together    fabric mesh matrix
//!   matrix      what came of it, as text and as a picture
//! ```

pub(crate) mod hosts;
pub(crate) mod laboratory;
mod matrix;

use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use lab::LabError;
use lab::observe::rows;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::processes::Processes;

/// Port of the probes' servers: not that of hostperf, which may serve somebody else.
const PORT: u16 = 18_999;

/// Hosts that are probed at once: each probe keeps a process busy.
const AT_ONCE: usize = 16;

/// Reads the seconds for which hosts are probed.
fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| format!("{text} is not a number"))?;
    if (0.1..=60.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{text} is not within 0.1 to 60"))
    }
}

/// What one host learnt of the way to another one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Probed {
    from: String,
    to: String,
    /// Half of the round trip of a message of 64 bytes, µs; none if it did not arrive.
    median_us: Option<f64>,
    p99_us: Option<f64>,
    /// What is worst of all sub-paths.
    #[serde(flatten)]
    worst: Bottleneck,
    /// Each sub-path.
    #[serde(default)]
    paths: Vec<Way>,
    /// Why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What devices on the way have written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Bottleneck {
    /// The longest time in a device, µs, and whose port that was.
    delay_us: Option<f64>,
    delayed_at: Option<String>,
    /// Percent of the fullest link that are free, and whose port that is.
    free_percent: Option<f64>,
    fullest: Option<String>,
}

/// A sub-path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Way {
    path: u64,
    /// Its round trip as the transport measures it, µs.
    rtt_us: Option<f64>,
    #[serde(flatten)]
    worst: Bottleneck,
}

/// A host that probes others.
trait Prober {
    /// Starts hostperf with these words; both of its outputs are to be read.
    fn hostperf(&self, words: &[&str]) -> Result<Child, LabError>;

    /// What `hostctl --json` answers.
    fn hostctl(&self, words: &[&str]) -> Result<Value, LabError>;

    /// Whose port a locator is.
    fn place(&self, locator: u16, is_last_hop: bool) -> String;
}

/// A host that is probed.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    name: String,
    address: String,
}

/// Lets one host probe others, several at once, for some seconds each.
fn probe(
    prober: &impl Prober,
    from: &str,
    to: &[Target],
    (port, duration): (u16, f64),
) -> Result<Vec<Probed>, LabError> {
    let mut all = Vec::new();
    for some in to.chunks(AT_ONCE) {
        all.extend(probe_at_once(prober, from, some, (port, duration))?);
    }
    Ok(all)
}

fn probe_at_once(
    prober: &impl Prober,
    from: &str,
    to: &[Target],
    (port, duration): (u16, f64),
) -> Result<Vec<Probed>, LabError> {
    let (seconds, port) = (duration.to_string(), port.to_string());
    let mut clients = Processes(Vec::new());
    for target in to {
        let words = ["lat", "--json", "-s", "64", "--port", &port];
        let words = [&words[..], &["-D", &seconds, &target.address]].concat();
        clients.0.push(prober.hostperf(&words)?);
    }
    // What the network says is known of connections that there are.
    sleep(Duration::from_secs_f64(duration * 0.7));
    let pairs = rows(prober.hostctl(&["show", "qps"])?);
    let paths = rows(prober.hostctl(&["show", "paths"])?);
    let signals = rows(prober.hostctl(&["show", "csig"])?);
    let mut all = Vec::new();
    for target in to {
        // The others end with this function, whatever becomes of this one.
        let output = clients.0.remove(0).wait_with_output();
        let output = output.map_err(LabError::io(format!("hostperf on {from}")))?;
        let said: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let latency = |key: &str| said.as_ref()?.get(0)?.get(key)?.as_f64();
        let own: Vec<&Value> = pairs
            .iter()
            .filter(|pair| pair["peer"] == target.address.as_str())
            .map(|pair| &pair["qpn"])
            .collect();
        let of = |all: &'_ [Value]| -> Vec<Value> {
            let own = all.iter().filter(|row| own.contains(&&row["qpn"]));
            own.cloned().collect()
        };
        let heard = of(&signals);
        let answered = latency("median_us").is_some();
        let errors = String::from_utf8_lossy(&output.stderr);
        all.push(Probed {
            from: from.to_owned(),
            to: target.name.clone(),
            median_us: latency("median_us"),
            p99_us: latency("p99_us"),
            worst: bottleneck(prober, heard.iter()),
            paths: ways(prober, &of(&paths), &heard),
            error: errors
                .lines()
                .last()
                .filter(|_| !answered)
                .map(str::to_owned),
        });
    }
    Ok(all)
}

/// What is known of each sub-path, in order; of several connections the worst.
fn ways(prober: &impl Prober, paths: &[Value], heard: &[Value]) -> Vec<Way> {
    let numbers = paths.iter().chain(heard);
    let mut numbers: Vec<u64> = numbers.filter_map(|row| row["path"].as_u64()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let way = |path: u64| {
        let is_it = |row: &&Value| row["path"] == path;
        let of = paths.iter().filter(is_it);
        let rtts = of.filter_map(|row| row["rtt_us"].as_f64());
        Way {
            path,
            rtt_us: rtts.max_by(f64::total_cmp),
            worst: bottleneck(prober, heard.iter().filter(is_it)),
        }
    };
    numbers.into_iter().map(way).collect()
}

/// What is worst by what devices wrote.
fn bottleneck<'a>(prober: &impl Prober, heard: impl Iterator<Item = &'a Value>) -> Bottleneck {
    let heard: Vec<&Value> = heard.collect();
    let delay = worst(&heard, "delay", |raw| raw);
    let free = worst(&heard, "share", |raw| -raw);
    // Nothing where no device wrote a value.
    let place = |row: &Value| {
        let is_last_hop = row["where"] == "last hop";
        if !is_last_hop && row["where"] != "fabric" {
            return None;
        }
        let locator = u16::try_from(row["locator"].as_u64()?).ok()?;
        Some(prober.place(locator, is_last_hop))
    };
    Bottleneck {
        delay_us: delay.map(|(raw, _)| raw / 1e3),
        delayed_at: delay.and_then(|(_, row)| place(row)),
        free_percent: free.map(|(raw, _)| raw / 1e4),
        fullest: free.and_then(|(_, row)| place(row)),
    }
}

/// The value of a signal that is worst by `badness`, of those that a device wrote.
fn worst<'a>(
    heard: &[&'a Value],
    signal: &str,
    badness: impl Fn(f64) -> f64,
) -> Option<(f64, &'a Value)> {
    let of = heard.iter().filter(|row| row["signal"] == signal);
    let values = of.filter_map(|row| Some((row["raw_smoothed"].as_f64()?, *row)));
    values.max_by(|(one, _), (other, _)| badness(*one).total_cmp(&badness(*other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Nobody;

    impl Prober for Nobody {
        fn hostperf(&self, _: &[&str]) -> Result<Child, LabError> {
            unreachable!("it is not asked")
        }

        fn hostctl(&self, _: &[&str]) -> Result<Value, LabError> {
            unreachable!("it is not asked")
        }

        fn place(&self, locator: u16, is_last_hop: bool) -> String {
            format!("{locator} {is_last_hop}")
        }
    }

    /// CS-10: of all sub-paths the worst one counts, by the signal's own direction, and each has
    /// what is known of it.
    #[test]
    fn the_worst_sub_path_counts() {
        let row = |path: u64, signal: &str, raw: f64, place: &str| {
            json!({"path": path, "signal": signal, "raw_smoothed": raw, "where": place,
                   "locator": path + 7})
        };
        let heard = [
            row(0, "delay", 2e3, "fabric"),
            row(2, "delay", 9e3, "last hop"),
            row(0, "share", 8e5, "fabric"),
            row(2, "share", 1e5, "nowhere: no device wrote a value"),
        ];
        let found = bottleneck(&Nobody, heard.iter());
        let place = |text: &str| Some(text.to_owned());
        let expected = Bottleneck {
            delay_us: Some(9.0),
            delayed_at: place("9 true"),
            free_percent: Some(10.0),
            fullest: None,
        };
        assert_eq!(found, expected);
        let path = |path: u64, rtt: f64| json!({"path": path, "rtt_us": rtt});
        let ways = ways(
            &Nobody,
            &[path(1, 30.0), path(0, 20.0), path(0, 25.0)],
            &heard,
        );
        let summary = ways
            .iter()
            .map(|way| (way.path, way.rtt_us, way.worst.delay_us));
        let summary: Vec<_> = summary.collect();
        assert_eq!(
            summary,
            [
                (0, Some(25.0), Some(2.0)),
                (1, Some(30.0), None),
                (2, None, Some(9.0))
            ]
        );
        assert_eq!(ways[0].worst.delayed_at, place("7 false"));
    }
}
