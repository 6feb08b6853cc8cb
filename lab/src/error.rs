//! Why a laboratory could not be made or used.

use std::io;
use std::path::PathBuf;

/// An error of the laboratory. The text says what is wrong and, where it can, what to do.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces need root.
    #[error(
        "root is needed: the laboratory makes network namespaces and loads XDP programs (try sudo)"
    )]
    NotRoot,

    /// The caller stopped waiting for the laboratory.
    #[error("interrupted")]
    Interrupted,

    /// The machine lacks a tool.
    #[error("'{0}' is not installed: run scripts/setup")]
    MissingTool(String),

    /// Cargo has not built a daemon yet.
    #[error("{0} is not built: run `make build` (or `cargo build --workspace --bins`)")]
    MissingBinary(PathBuf),

    /// An option outside of what the address plan or the machine carries.
    #[error("{option}: {reason}")]
    BadOption {
        /// The option, as on the command line.
        option: &'static str,
        /// What is accepted.
        reason: String,
    },

    /// A laboratory of that name is up.
    #[error("laboratory '{0}' is up already: `fabric lab down --name {0}` takes it down")]
    Exists(String),

    /// Others have namespaces that the laboratory would make.
    #[error(
        "laboratory '{name}' did not make the network namespaces {namespaces}: choose another --name, or \
         `ip netns delete` them"
    )]
    Strangers {
        /// The laboratory.
        name: String,
        /// What is there.
        namespaces: String,
    },

    /// No laboratory of that name.
    #[error("no laboratory '{0}' is up")]
    Absent(String),

    /// The laboratory has no such node.
    #[error("no node '{node}': there are {nodes}")]
    NoNode {
        /// What was asked for.
        node: String,
        /// What there is.
        nodes: String,
    },

    /// The laboratory has both nodes, and no link between them.
    #[error("no link between '{a}' and '{b}': {links}")]
    NoLink {
        /// One node.
        a: String,
        /// The other.
        b: String,
        /// The links that these two have.
        links: String,
    },

    /// There is no log of a daemon.
    #[error("no log of {node} in {file}: {reason}")]
    NoLog {
        /// The node.
        node: String,
        /// Where the log would be.
        file: PathBuf,
        /// Why there is none.
        reason: String,
    },

    /// A command failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command line.
        command: String,
        /// What it wrote to standard error, or how it ended.
        reason: String,
    },

    /// A file or a socket failed.
    #[error("{what}: {source}")]
    Io {
        /// Which, and what was done with it.
        what: String,
        /// How it failed.
        source: io::Error,
    },

    /// Something answered with what is not understood.
    #[error("{what}: {reason}")]
    Answer {
        /// Who answered.
        what: String,
        /// What is wrong with it.
        reason: String,
    },

    /// Something took too long.
    #[error("{what} after {seconds} s{hint}")]
    Timeout {
        /// What did not happen.
        what: String,
        /// How long it was waited for.
        seconds: u64,
        /// The end of a log, or nothing.
        hint: String,
    },
}

impl LabError {
    /// Adds to an I/O error what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Io { what, source }
    }
}
