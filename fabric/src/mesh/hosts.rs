//! `fabric mesh`: probes from this host to others, and the rows of several hosts as one matrix.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::{Args, Subcommand};
use lab::LabError;
use lab::observe::rows;
use lab::settings::binaries;
use serde_json::Value;

use super::matrix::{Matrix, print_row};
use super::{PORT, Probed, Prober, Target, probe, seconds};

/// Hosts of one list, at most.
const HOSTS: usize = 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum Mesh {
    /// Probe other hosts from this one, on which hostd runs: how long messages take, and which port
    /// is the worst on each path. Each of them runs `hostperf serve --port 18999`
    Probe(Probe),
    /// Put together what several hosts have probed: a matrix from (rows) to (columns)
    Matrix(Files),
}

#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// Addresses of hosts, as ADDRESS or NAME=ADDRESS; this host's own is not probed but says its
    /// name, so that all hosts can be given the same list
    #[arg(required = true, value_name = "HOST", value_parser = target)]
    hosts: Vec<Target>,
    /// Name of this host, if it is not among them
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Seconds for which hosts are probed, 16 at once
    #[arg(short = 'D', long, default_value_t = 1.0, value_parser = seconds)]
    duration: f64,
    /// Port of `hostperf serve` on the others
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// As JSON, for `fabric mesh matrix`
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Files {
    /// What `fabric mesh probe --json` has printed, of a host each; later ones count where both
    /// have a pair
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Draw the matrix into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Reads a host: ADDRESS or NAME=ADDRESS.
fn target(text: &str) -> Result<Target, String> {
    let (name, address) = text.split_once('=').unwrap_or((text, text));
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("{address:?} is not an address"))?;
    if name.is_empty() {
        return Err("the name is empty".to_owned());
    }
    Ok(Target {
        name: name.to_owned(),
        address: address.to_string(),
    })
}

impl Mesh {
    pub(crate) fn run(&self) -> Result<(), LabError> {
        match self {
            Self::Probe(probe) => probe.run(),
            Self::Matrix(files) => files.run(),
        }
    }
}

/// This machine.
struct Here;

/// A program of this project: that beside this one, or that of the system.
fn program(name: &str) -> Command {
    let beside = binaries().join(name);
    let path = if beside.is_file() {
        beside
    } else {
        PathBuf::from(name)
    };
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    command
}

impl Prober for Here {
    fn hostperf(&self, words: &[&str]) -> Result<Child, LabError> {
        let mut command = program("hostperf");
        command
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().map_err(LabError::io("hostperf"))
    }

    fn hostctl(&self, words: &[&str]) -> Result<Value, LabError> {
        let output = program("hostctl").arg("--json").args(words).output();
        let output = output.map_err(LabError::io("hostctl"))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let command = format!("hostctl {}", words.join(" "));
            return Err(LabError::Command { command, reason });
        }
        serde_json::from_slice(&output.stdout).map_err(|error| LabError::Answer {
            what: "hostctl".to_owned(),
            reason: error.to_string(),
        })
    }

    fn place(&self, locator: u16, is_last_hop: bool) -> String {
        let more = if is_last_hop { " (last hop)" } else { "" };
        format!("locator {locator}{more}")
    }
}

impl Probe {
    fn run(&self) -> Result<(), LabError> {
        let refuse = |reason: String| LabError::BadOption {
            option: "HOST",
            reason,
        };
        if self.hosts.len() > HOSTS {
            return Err(refuse(format!("at most {HOSTS}")));
        }
        let own: Vec<String> = rows(Here.hostctl(&["show", "gids"])?)
            .iter()
            .filter_map(|row| row["address"].as_str().map(str::to_owned))
            .collect();
        let (here, others): (Vec<Target>, Vec<Target>) = self
            .hosts
            .iter()
            .cloned()
            .partition(|host| own.contains(&host.address));
        let name = self.from.clone();
        let name = name.or_else(|| here.first().map(|host| host.name.clone()));
        let Some(name) = name else {
            let own = own.join(", ");
            return Err(refuse(format!(
                "none of them is this host, which has {own}: give its name (--from)"
            )));
        };
        let found = probe(&Here, &name, &others, (self.port, self.duration))?;
        common::sys::end_quietly_on_broken_pipe();
        if self.json {
            Matrix::of(found).print_json();
        } else {
            print_row(&found);
        }
        Ok(())
    }
}

impl Files {
    fn run(&self) -> Result<(), LabError> {
        let mut all = Vec::new();
        for file in &self.files {
            all.extend(read(file)?);
        }
        let matrix = Matrix::of(all);
        if let Some(file) = &self.plot {
            matrix.draw("Mesh", file)?;
        }
        common::sys::end_quietly_on_broken_pipe();
        if self.json {
            matrix.print_json();
        } else {
            matrix.print();
        }
        Ok(())
    }
}

/// What a host has found.
fn read(file: &Path) -> Result<Vec<Probed>, LabError> {
    let name = file.display().to_string();
    let text = fs::read(file).map_err(LabError::io(name.clone()))?;
    serde_json::from_slice(&text).map_err(|error| LabError::Answer {
        what: name,
        reason: format!("not what `fabric mesh probe --json` prints: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CS-10: a host is named, or called by its address, in one form.
    #[test]
    fn hosts_have_names_and_addresses() {
        let read = |text| target(text).map(|it| (it.name, it.address));
        let pair = |name: &str, address: &str| Ok((name.to_owned(), address.to_owned()));
        assert_eq!(read("h1=10.0.0.1"), pair("h1", "10.0.0.1"));
        assert_eq!(read("10.0.0.1"), pair("10.0.0.1", "10.0.0.1"));
        assert_eq!(read("h2=2001:DB8::0:1"), pair("h2", "2001:db8::1"));
        for wrong in ["h1", "h1=", "=10.0.0.1", "h1=10.0.0.1/24", ""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
