//! Messages to a laboratory's supervisor: one line of JSON each way over a Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{LabError, run_dir};

/// The word on the command line that makes the `fabric` command a supervisor.
pub const SUPERVISE: &str = "supervise";

/// Longest wait for an answer: stopping a daemon includes its draining.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A request to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Nothing but the answer.
    Status,
    /// SIGTERM, and no restart. Answered when it has ended.
    Stop(String),
    /// Start again what was stopped.
    Start(String),
    /// SIGKILL; it is restarted as after any crash.
    Kill(String),
}

/// The answer to every request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// Why the request was refused.
    pub error: Option<String>,
    /// Every daemon, as it is now.
    pub daemons: Vec<DaemonStatus>,
}

/// One supervised daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Its node.
    pub node: String,
    /// `switchd` or `hostd`.
    pub program: String,
    /// Its process while it runs.
    pub pid: Option<i32>,
    /// Whether it has said READY=1 since it was started.
    pub ready: bool,
    /// How often it was started again without being asked to.
    pub restarts: u32,
    /// How it ended last.
    pub last_exit: Option<String>,
}

/// Where the supervisor of laboratory `name` listens.
#[must_use]
pub fn socket(name: &str) -> PathBuf {
    run_dir(name).join("lab.sock")
}

/// Sends `request` and returns the answer.
///
/// # Errors
/// When no supervisor listens, it refuses, or takes longer than 10 s.
pub fn ask(name: &str, request: &Request) -> Result<Vec<DaemonStatus>, LabError> {
    let path = socket(name);
    let what = || format!("supervisor of '{name}' at {}", path.display());
    let mut stream = UnixStream::connect(&path).map_err(LabError::io(what()))?;
    stream
        .set_read_timeout(Some(ANSWER_TIME))
        .map_err(LabError::io(what()))?;
    let mut line = serde_json::to_string(request).expect("a request is representable in JSON");
    line.push('\n');
    stream
        .write_all(line.as_bytes())
        .map_err(LabError::io(what()))?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .map_err(LabError::io(what()))?;
    let response: Response = serde_json::from_str(&answer).map_err(|error| LabError::Answer {
        what: what(),
        reason: error.to_string(),
    })?;
    match response.error {
        Some(reason) => Err(LabError::Answer {
            what: what(),
            reason,
        }),
        None => Ok(response.daemons),
    }
}
