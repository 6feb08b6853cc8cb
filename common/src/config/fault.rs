//! What is wrong with a configuration, and where it stands.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a key or a value stands. In the order of layers, and of lines within the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the file.
    File {
        /// Its name.
        name: Arc<str>,
        /// Line and column, from 1, in characters; none for the file as a whole.
        at: Option<(usize, usize)>,
    },
    /// An environment variable: its name.
    Variable(Arc<str>),
    /// An option of the command line, as it was written.
    Option(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, at: None } => f.write_str(name),
            Self::File {
                name,
                at: Some((line, column)),
            } => write!(f, "{name}:{line}:{column}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Option(option) => f.write_str(option),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Where it stands.
    pub place: Place,
    /// The dotted key; empty where none was read.
    pub key: String,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What was read is refused: every fault, in the order in which they stand there.
    #[error("{}", listed(.0))]
    Faults(Vec<Fault>),
}

impl ConfigError {
    /// The faults in the order in which they stand, each once.
    pub(super) fn faults(mut faults: Vec<Fault>) -> Self {
        faults.sort();
        faults.dedup();
        Self::Faults(faults)
    }
}

/// A fault on its own line; with a heading if there are several.
fn listed(faults: &[Fault]) -> String {
    if let [fault] = faults {
        return fault.to_string();
    }
    let lines = faults.iter().map(|fault| format!("\n{fault}"));
    format!("{} faults:{}", faults.len(), lines.collect::<String>())
}
