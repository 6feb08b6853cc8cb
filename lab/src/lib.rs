//! The laboratory: whole leaf–spine fabrics in network namespaces, with the real daemons in them.
//!
//! ```text
//!            spine1        spine2              every box: a network namespace
//!            │    └────┐┌────┘  │              every line: a veth pair, offloads off
//!            │   ┌─────┘└────┐  │              switches run switchd, hosts run hostd
//!            leaf1           leaf2
//!            │   │           │   │
//!            h1  h2          h3  h4
//! ```
//!
//! A laboratory is built in this order, one module a step:
//!
//! | module | does |
//! |---|---|
//! | [`topology`] | decides nodes, links, addresses and routes from the [`Options`]; pure |
//! | [`command`] | runs `ip`, `ethtool`, `sysctl` and reports what failed |
//! | [`wiring`] | makes namespaces, links, addresses and routes |
//! | [`settings`] | writes the daemons' configuration files |
//! | [`lossless`] | their thresholds where a class is lossless |
//! | [`supervisor`] | a process per laboratory: starts the daemons, restarts them, logs |
//! | [`control`] | talks to that process |
//! | [`sweep`] | takes everything down, also what a killed run has left |
//! | [`capture`] | packets of one link, as a file for tshark |
//! | [`traffic`] | ping and iperf3 between hosts |
//! | [`observe`] | what is counted and checked from outside |
//! | [`load`] | how long the daemons wait for a core that others have |
//!
//! It leaves nothing behind. Every object carries the laboratory's name, and [`sweep`] finds it by
//! the plan. The daemons die with their supervisor (`PDEATHSIG`). The supervisor of a
//! [`Lab`] takes the laboratory down when the process that made it has ended, for whatever reason
//! (end of file on its standard input).

pub mod capture;
pub mod command;
pub mod control;
pub mod error;
pub mod load;
pub mod lossless;
pub mod observe;
pub mod settings;
pub mod supervisor;
pub mod sweep;
pub mod topology;
pub mod traffic;
pub mod wiring;

mod access;
mod fabric;
mod node;
mod ports;

pub use access::{exclusive, shared};
pub use error::LabError;
pub use fabric::{Builder, Lab};
pub use netns::{Echo, Echoes, Output, Pinging, privileged};
pub use node::{Host, LAB_VARIABLE};
pub use topology::{NodeRole, Options, Topology};

use std::path::{Path, PathBuf};

/// Told what is about to be done while a laboratory is made; ends the making by an error.
pub type Progress<'a> = dyn FnMut(&str) -> Result<(), LabError> + 'a;

/// Everything a laboratory writes is below this folder, in a folder of its own.
const RUN: &str = "/run/fabric";

/// Folder of the laboratory `name`.
#[must_use]
pub fn run_dir(name: &str) -> PathBuf {
    Path::new(RUN).join(name)
}

/// Folder of `node` in the laboratory `name`: configuration, log, sockets.
#[must_use]
pub fn node_dir(name: &str, node: &str) -> PathBuf {
    run_dir(name).join(node)
}

/// Network namespace of `node` in the laboratory `name`.
#[must_use]
pub fn namespace(name: &str, node: &str) -> String {
    format!("{name}-{node}")
}
