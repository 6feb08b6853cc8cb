//! Traffic between the hosts of a laboratory: the kernels' own, ping and iperf3 with their results
//! as numbers; and the receiving end of hostcp.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::time::Duration;

use netns::{Echo, Echoes, Pinging};
use serde_json::Value;

use super::{Host, LabError};

/// What a ping has seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pings {
    /// Requests sent.
    pub sent: u32,
    /// Replies received.
    pub received: u32,
    /// Mean round-trip time in milliseconds, if there was a reply.
    pub mean_ms: Option<f64>,
}

impl Pings {
    /// Requests without a reply.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.sent - self.received.min(self.sent)
    }
}

impl From<Echoes> for Pings {
    fn from(seen: Echoes) -> Self {
        let received = f64::from(seen.received);
        let mean_ms = seen.time.as_secs_f64() * 1e3 / received;
        Self {
            sent: seen.sent.into(),
            received: seen.received.into(),
            mean_ms: (seen.received > 0).then_some(mean_ms),
        }
    }
}

/// Sends `count` echo requests, one each `interval`, and waits for the replies.
///
/// # Errors
/// When the node's namespace cannot be entered.
pub fn ping(
    from: Host<'_>,
    to: Host<'_>,
    v6: bool,
    count: u16,
    interval: Duration,
) -> Result<Pings, LabError> {
    finish_ping(start_ping(from, to, v6, count, interval))
}

/// Starts what [`ping`] does; [`finish_ping`] has the result.
#[must_use]
pub fn start_ping(
    from: Host<'_>,
    to: Host<'_>,
    v6: bool,
    count: u16,
    interval: Duration,
) -> Pinging {
    from.echo(Echo::new(to.address(v6), count, interval))
}

/// Waits for a ping to end.
///
/// # Errors
/// When its namespace could not be entered.
pub fn finish_ping(pinging: Pinging) -> Result<Pings, LabError> {
    let seen = pinging.finish().map_err(LabError::io("echo requests"))?;
    Ok(seen.into())
}

/// What iperf3 has measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Payload that arrived, bits per second.
    pub bits_per_second: f64,
    /// Segments that TCP sent again.
    pub retransmits: u64,
    /// Datagrams that were lost.
    pub lost: u64,
}

/// A running iperf3, client and server.
#[derive(Debug)]
pub struct Iperf {
    client: Child,
    server: Child,
}

impl Iperf {
    /// Starts a server on `to` and a client on `from` with more `options` (`-t`, `-P`, `-u`, `-6`
    /// …).
    ///
    /// # Errors
    /// When iperf3 cannot be started.
    pub fn start(from: Host<'_>, to: Host<'_>, options: &[&str]) -> Result<Iperf, LabError> {
        let v6 = options.contains(&"-6");
        let server = to.spawn(["iperf3", "-s", "-1", "--forceflush"])?;
        let address = to.address(v6).to_string();
        // The server's socket has to be there first; the client does not try again.
        for _ in 0..100 {
            let sockets = to.run(["ss", "-Hltn", "sport = :5201"])?;
            if !sockets.stdout.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let words = [&["iperf3", "-J", "-c", &address], options].concat();
        Ok(Iperf {
            client: from.spawn(words)?,
            server,
        })
    }

    /// Waits for the end and returns what was measured.
    ///
    /// # Errors
    /// When the client failed; with what it said.
    pub fn finish(mut self) -> Result<Throughput, LabError> {
        let server = &mut self.server;
        let output = self
            .client
            .wait_with_output()
            .map_err(LabError::io("iperf3"))?;
        let _ = server.kill();
        let _ = server.wait();
        let text = String::from_utf8_lossy(&output.stdout);
        let bad = |reason: String| LabError::Answer {
            what: "iperf3".to_owned(),
            reason,
        };
        let report: Value = serde_json::from_str(&text)
            .map_err(|_| bad(format!("{text}{}", String::from_utf8_lossy(&output.stderr))))?;
        if let Some(error) = report["error"].as_str() {
            return Err(bad(error.to_owned()));
        }
        let end = &report["end"];
        // TCP reports the two ends apart, UDP in one.
        let received = end.get("sum_received").unwrap_or_else(|| &end["sum"]);
        let datagrams = &end["sum"];
        Ok(Throughput {
            bits_per_second: received["bits_per_second"].as_f64().unwrap_or(0.0),
            retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
            lost: datagrams["lost_packets"].as_u64().unwrap_or(0),
        })
    }
}

/// [`Iperf::start`] and [`Iperf::finish`].
///
/// # Errors
/// As these.
pub fn iperf(from: Host<'_>, to: Host<'_>, options: &[&str]) -> Result<Throughput, LabError> {
    Iperf::start(from, to, options)?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_those_that_came() {
        let mut seen = Echoes {
            sent: 4,
            received: 2,
            refused: 1,
            time: Duration::from_millis(5),
            ..Echoes::default()
        };
        let pings = Pings::from(seen.clone());
        assert_eq!((pings.sent, pings.received, pings.lost()), (4, 2, 2));
        assert_eq!(pings.mean_ms, Some(2.5));
        seen.received = 0;
        assert_eq!(Pings::from(seen).mean_ms, None);
    }
}

/// `hostcp serve` on a host; ends when dropped.
#[derive(Debug)]
pub struct Receiver {
    process: Child,
    root: PathBuf,
    /// What else it says, a line for each file, is not read, but it must be able to say it.
    _output: BufReader<ChildStdout>,
}

impl Receiver {
    /// Starts it, and waits until it says that it listens. Files go to the folder `root`, which is
    /// made.
    ///
    /// # Errors
    /// [`LabError`]: what it says when it cannot listen.
    ///
    /// # Panics
    /// Never: its output is a pipe.
    pub fn start(host: Host<'_>, root: &Path) -> Result<Receiver, LabError> {
        fs::create_dir_all(root).map_err(LabError::io(root.display().to_string()))?;
        let folder = root.display().to_string();
        let mut process = host.spawn(["hostcp", "serve", "--root", &folder])?;
        let mut output = BufReader::new(process.stdout.take().expect("the output is a pipe"));
        let mut line = String::new();
        output
            .read_line(&mut line)
            .map_err(LabError::io("hostcp serve"))?;
        if line.is_empty() {
            let mut reason = String::new();
            if let Some(mut errors) = process.stderr.take() {
                errors
                    .read_to_string(&mut reason)
                    .map_err(LabError::io("hostcp serve"))?;
            }
            return Err(LabError::Command {
                command: "hostcp serve".to_owned(),
                reason,
            });
        }
        Ok(Receiver {
            process,
            root: root.to_path_buf(),
            _output: output,
        })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The folder that files go to.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
