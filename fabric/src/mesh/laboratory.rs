//! `fabric lab mesh`: every host of a laboratory probes every other one.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use lab::observe::rows;
use lab::settings::located;
use lab::topology::NodeRole;
use lab::{Lab, LabError};
use serde_json::Value;

use super::matrix::Matrix;
use super::{PORT, Probed, Prober, Target, probe, seconds};
use crate::processes::Processes;

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

/// A host of a laboratory.
struct Node<'a> {
    lab: &'a Lab,
    host: &'a str,
}

impl Prober for Node<'_> {
    fn hostperf(&self, words: &[&str]) -> Result<Child, LabError> {
        let words = [&["hostperf"], words].concat();
        self.lab.node(self.host)?.spawn(words)
    }

    fn hostctl(&self, words: &[&str]) -> Result<Value, LabError> {
        self.lab.hostctl(self.host, words)
    }

    fn place(&self, locator: u16, _: bool) -> String {
        let named = located(self.lab.plan(), locator).map(|(switch, to_hosts)| {
            let direction = if to_hosts { "hosts" } else { "switches" };
            format!("{switch} → {direction}")
        });
        named.unwrap_or_else(|| locator.to_string())
    }
}

impl Mesh {
    /// Probes, and shows what came of it.
    pub(crate) fn run(&self) -> Result<(), LabError> {
        let lab = Lab::open(&self.name)?;
        let hosts: Vec<&str> = lab.plan().names(NodeRole::Host).collect();
        let target = |host: &&str| {
            let address = lab.node(host)?.address(false).to_string();
            Ok(Target {
                name: (*host).to_owned(),
                address,
            })
        };
        let targets = hosts.iter().map(target);
        let targets = targets.collect::<Result<Vec<Target>, LabError>>()?;
        let _servers = serve(&lab, &hosts)?;
        let mut all: Vec<Probed> = Vec::new();
        for host in &hosts {
            let node = Node { lab: &lab, host };
            let others = targets.iter().filter(|target| target.name != *host);
            let others: Vec<Target> = others.cloned().collect();
            all.extend(probe(&node, host, &others, (PORT, self.duration))?);
        }
        let matrix = Matrix::of(all);
        if let Some(file) = &self.plot {
            matrix.draw(&format!("Laboratory {}", self.name), file)?;
        }
        common::sys::end_quietly_on_broken_pipe();
        if self.json {
            matrix.print_json();
        } else {
            matrix.print();
            if !lab.options().csig {
                println!("(without `fabric lab up --csig` switches say nothing)");
            }
        }
        Ok(())
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
