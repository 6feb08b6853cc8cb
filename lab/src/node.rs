//! Commands on the nodes of a laboratory.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netns::{Echo, Output, Pinging};

use super::settings::binaries;
use super::topology::Topology;
use super::{LabError, namespace, node_dir};
use switchd::control::api::{Answer, Request, Response, ShowRequest, Topic};

/// Longest wait for an answer of a daemon, as switchctl has it.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Environment variable with the name of the laboratory that `fabric lab` means.
pub const LAB_VARIABLE: &str = "FABRIC_LAB";

/// A node of a laboratory, to run commands on.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    /// Name of the laboratory.
    pub(super) lab: &'a str,
    pub(super) plan: &'a Topology,
    pub(super) name: &'a str,
}

impl Host<'_> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Its first address.
    ///
    /// # Panics
    /// Never: every node has a link.
    #[must_use]
    pub fn address(&self, v6: bool) -> IpAddr {
        self.plan
            .address(self.name, v6)
            .expect("every node has a link")
    }

    /// Runs `work` in a thread of this process inside the node's namespace, and waits for it.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    ///
    /// # Panics
    /// When `work` does.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let name = namespace(self.lab, self.name);
        let path = netns::path(&name).display().to_string();
        netns::inside(&name, work).map_err(LabError::io(path))
    }

    /// A command in the node's namespace, with the sockets of its daemons in the environment and
    /// this workspace's programs first on the path. `FABRIC_LAB` names the node's laboratory, so a
    /// `fabric lab` among the command's children means the same one, whatever the caller's is.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let folder = node_dir(self.lab, self.name);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(binaries()).chain(std::env::split_paths(&path));
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &namespace(self.lab, self.name)])
            .args(words)
            .env(LAB_VARIABLE, self.lab)
            .env("HOSTD_SOCKET", folder.join("hostd.sock"))
            .env("SWITCHCTL_SOCKET", folder.join("admin.sock"))
            .env("HOSTCTL_SOCKET", folder.join("admin.sock"));
        if let Ok(path) = std::env::join_paths(path) {
            command.env("PATH", path);
        }
        command
    }

    /// Runs a command and waits for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> Result<Output, LabError> {
        let output = self
            .command(words)
            .stdin(Stdio::null())
            .output()
            .map_err(LabError::io(format!("a command on {}", self.name)))?;
        Ok(output.into())
    }

    /// Starts a command; its output can be read from the child.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> Result<Child, LabError> {
        self.command(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(LabError::io(format!("a command on {}", self.name)))
    }

    /// Begins to send echo requests from this node.
    #[must_use]
    pub fn echo(&self, echo: Echo) -> Pinging {
        echo.start(&namespace(self.lab, self.name))
    }

    /// Asks the switchd of this node over its admin socket. [`super::Lab::switchctl`] starts a
    /// process for each question; this one serves callers that ask many times a second.
    ///
    /// # Errors
    /// When it does not answer, or with an error.
    pub fn show(&self, topic: Topic) -> Result<Answer, LabError> {
        let path = node_dir(self.lab, self.name).join("admin.sock");
        let request = Request::Show(ShowRequest {
            topic,
            prefix: None,
            names: Vec::new(),
            limit: None,
        });
        let what = || format!("switchd on {}, asked for {topic:?}", self.name);
        let mut line = serde_json::to_vec(&request).expect("a request is representable in JSON");
        line.push(b'\n');
        let text = exchange(&path, &line).map_err(LabError::io(what()))?;
        let bad = |reason: String| LabError::Answer {
            what: what(),
            reason,
        };
        match serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))? {
            Response::Ok(answer) => Ok(answer),
            Response::Error(reason) => Err(bad(reason)),
        }
    }
}

/// Writes a request into a socket, and reads until the answer ends.
fn exchange(path: &Path, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    stream.write_all(request)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
