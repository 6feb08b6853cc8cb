//! `fabric lab mesh`: every host of a laboratory probes every other one, and what came of it is a
//! matrix (CS-10): how long messages take, and which port on the way was the worst.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use lab::observe::rows;
use lab::settings::located;
use lab::topology::NodeRole;
use lab::{Lab, LabError};
use serde_json::{Value, json};
use twin::heat::{Cell, Heat};

use crate::show;

/// Port of the probes' servers: not that of hostperf, which may serve somebody else.
const PORT: u16 = 18_999;

/// How long servers and connections may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct Mesh {
    /// Name of the laboratory
    #[arg(long, default_value = "fab", env = lab::LAB_VARIABLE)]
    name: String,
    /// Seconds for which each host probes all others, one host after the other
    #[arg(short = 'D', long, default_value_t = 1.0, value_parser = seconds)]
    duration: f64,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Draw the matrix into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

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
#[derive(Debug, Clone, PartialEq)]
struct Probed {
    from: String,
    to: String,
    /// Half of the round trip of a message of 64 bytes, µs; none if it did not arrive.
    median_us: Option<f64>,
    p99_us: Option<f64>,
    /// The longest time in a device, µs, and whose port that was.
    delay_us: Option<f64>,
    /// Percent of the fullest link that are free, and whose port that is.
    free_percent: Option<f64>,
    delayed_at: Option<String>,
    fullest: Option<String>,
}

/// Processes that end with this.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It may have ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Mesh {
    /// Probes, and shows what came of it.
    pub(crate) fn run(&self) -> Result<(), LabError> {
        let lab = Lab::open(&self.name)?;
        let hosts: Vec<&str> = lab.plan().names(NodeRole::Host).collect();
        let _servers = serve(&lab, &hosts)?;
        let mut all = Vec::new();
        for from in &hosts {
            all.extend(self.probe(&lab, &hosts, from)?);
        }
        if let Some(file) = &self.plot {
            draw(&self.name, &hosts, &all, file)?;
        }
        common::sys::end_quietly_on_broken_pipe();
        if self.json {
            println!("{:#}", json!(all.iter().map(object).collect::<Vec<_>>()));
        } else {
            print(&lab, &hosts, &all);
        }
        Ok(())
    }

    /// Lets one host probe all others at once.
    fn probe(&self, lab: &Lab, hosts: &[&str], from: &str) -> Result<Vec<Probed>, LabError> {
        let others: Vec<&str> = hosts.iter().copied().filter(|it| *it != from).collect();
        let duration = self.duration.to_string();
        let port = PORT.to_string();
        let mut clients = Processes(Vec::new());
        for to in &others {
            let address = lab.node(to)?.address(false).to_string();
            let words = ["hostperf", "lat", "--json", "-s", "64", "--port", &port];
            let words = [&words[..], &["-D", &duration, &address]].concat();
            clients.0.push(lab.node(from)?.spawn(words)?);
        }
        // What the network says is known of connections that there are.
        sleep(Duration::from_secs_f64(self.duration * 0.7));
        let pairs = rows(lab.hostctl(from, &["show", "qps"])?);
        let signals = rows(lab.hostctl(from, &["show", "csig"])?);
        let mut all = Vec::new();
        for (to, client) in others.iter().zip(clients.0.drain(..)) {
            let output = client.wait_with_output();
            let output = output.map_err(LabError::io(format!("hostperf on {from}")))?;
            let said: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            let latency = |key: &str| said.as_ref()?.get(0)?.get(key)?.as_f64();
            let address = lab.node(to)?.address(false).to_string();
            let own: Vec<&Value> = pairs
                .iter()
                .filter(|pair| pair["peer"] == address.as_str())
                .map(|pair| &pair["qpn"])
                .collect();
            let heard = signals.iter().filter(|row| own.contains(&&row["qpn"]));
            let heard: Vec<&Value> = heard.collect();
            let name = |row: &Value| place(lab, row);
            let delay = worst(&heard, "delay", |raw| raw);
            let free = worst(&heard, "share", |raw| -raw);
            all.push(Probed {
                from: from.to_owned(),
                to: (*to).to_owned(),
                median_us: latency("median_us"),
                p99_us: latency("p99_us"),
                delay_us: delay.map(|(raw, _)| raw / 1e3),
                free_percent: free.map(|(raw, _)| raw / 1e4),
                delayed_at: delay.and_then(|(_, row)| name(row)),
                fullest: free.and_then(|(_, row)| name(row)),
            });
        }
        Ok(all)
    }
}

/// Starts a server on each host, and waits until all listen.
fn serve(lab: &Lab, hosts: &[&str]) -> Result<Processes, LabError> {
    let mut servers = Processes(Vec::new());
    for host in hosts {
        let words = ["hostperf", "serve", "--port", &PORT.to_string()];
        let mut command = lab.node(host)?.command(words);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = command.spawn();
        servers.0.push(started.map_err(LabError::io("hostperf"))?);
    }
    let until = Instant::now() + PATIENCE;
    for host in hosts {
        loop {
            let sessions = rows(lab.hostctl(host, &["show", "sessions"])?);
            let ports = sessions.iter().filter_map(|it| it["listeners"].as_array());
            if ports.flatten().any(|port| *port == PORT) {
                break;
            }
            if Instant::now() > until {
                return Err(LabError::Answer {
                    what: format!("hostperf on {host}"),
                    reason: "it does not listen".to_owned(),
                });
            }
            sleep(LOOK);
        }
    }
    Ok(servers)
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

/// Whose port a locator is; nothing where no device wrote a value.
fn place(lab: &Lab, row: &Value) -> Option<String> {
    if row["where"] != "fabric" && row["where"] != "last hop" {
        return None;
    }
    let locator = u16::try_from(row["locator"].as_u64()?).ok()?;
    let named = located(lab.plan(), locator).map(|(switch, to_hosts)| {
        let direction = if to_hosts { "hosts" } else { "switches" };
        format!("{switch} → {direction}")
    });
    Some(named.unwrap_or_else(|| locator.to_string()))
}

fn object(probed: &Probed) -> Value {
    json!({
        "from": probed.from,
        "to": probed.to,
        "median_us": probed.median_us,
        "p99_us": probed.p99_us,
        "delay_us": probed.delay_us,
        "delayed_at": probed.delayed_at,
        "free_percent": probed.free_percent,
        "fullest": probed.fullest,
    })
}

/// What is known of a way, in short lines.
fn lines(probed: &Probed) -> String {
    let Some(median) = probed.median_us else {
        return "no answer".to_owned();
    };
    let mut text = format!("{median:.0} µs");
    if let (Some(delay), Some(at)) = (probed.delay_us, &probed.delayed_at) {
        let _ = write!(text, "\n{delay:.0} µs in {at}");
    }
    if let (Some(free), Some(at)) = (probed.free_percent, &probed.fullest) {
        let _ = write!(text, "\n{free:.0} % free at {at}");
    }
    text
}

fn between<'a>(all: &'a [Probed], from: &str, to: &str) -> Option<&'a Probed> {
    all.iter().find(|it| it.from == from && it.to == to)
}

fn print(lab: &Lab, hosts: &[&str], all: &[Probed]) {
    let heading: Vec<&str> = std::iter::once("from / to")
        .chain(hosts.iter().copied())
        .collect();
    let mut table = show::table(&heading);
    for from in hosts {
        let of = |to: &&str| between(all, from, to).map_or_else(|| "·".to_owned(), lines);
        let row = std::iter::once((*from).to_owned()).chain(hosts.iter().map(of));
        table.add_row(row);
    }
    println!("{table}");
    println!(
        "half round trips of 64 bytes, median; the longest time in a device; the least that is free of a link"
    );
    if !lab.options().csig {
        println!("(without `fabric lab up --csig` switches say nothing)");
    }
}

fn draw(name: &str, hosts: &[&str], all: &[Probed], file: &Path) -> Result<(), LabError> {
    let cell = |from: &str, to: &str| {
        let probed = between(all, from, to)?;
        Some(Cell {
            value: probed.median_us,
            text: lines(probed),
        })
    };
    let heat = Heat {
        title: format!("Laboratory {name}: half round trips of 64 bytes, from (rows) to (columns)"),
        names: hosts.iter().map(|it| (*it).to_owned()).collect(),
        cells: hosts
            .iter()
            .map(|from| hosts.iter().map(|to| cell(from, to)).collect())
            .collect(),
    };
    heat.draw(file).map_err(|error| LabError::Answer {
        what: "picture".to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CS-10: of all sub-paths the worst one counts, by the signal's own direction.
    #[test]
    fn the_worst_sub_path_counts() {
        let row = |signal: &str, raw: f64| json!({"signal": signal, "raw_smoothed": raw});
        let rows = [
            row("delay", 2e3),
            row("delay", 9e3),
            row("share", 8e5),
            row("share", 1e5),
        ];
        let heard: Vec<&Value> = rows.iter().collect();
        let found = worst(&heard, "delay", |raw| raw).map(|(raw, _)| raw.to_string());
        assert_eq!(found.as_deref(), Some("9000"));
        let found = worst(&heard, "share", |raw| -raw).map(|(raw, _)| raw.to_string());
        assert_eq!(found.as_deref(), Some("100000"));
        assert!(worst(&heard, "bandwidth", |raw| raw).is_none());
    }

    /// CS-10: a cell says what is known, and that nothing came back.
    #[test]
    fn a_cell_says_what_is_known() {
        let mut probed = Probed {
            from: "h1".to_owned(),
            to: "h2".to_owned(),
            median_us: Some(41.6),
            p99_us: Some(90.0),
            delay_us: Some(12.0),
            free_percent: None,
            delayed_at: Some("leaf1 → hosts".to_owned()),
            fullest: None,
        };
        assert_eq!(lines(&probed), "42 µs\n12 µs in leaf1 → hosts");
        probed.median_us = None;
        assert_eq!(lines(&probed), "no answer");
    }
}
