//! Packets of one link, as a file.
//!
//! Frames that AF_XDP sends bypass the kernel's packet taps, and frames that an XDP program
//! redirects never reach them: between two nodes with daemons `tcpdump` sees nothing on either end.
//! So a link to capture on leads through a tap (see [`super::Options::taps`]): a
//! namespace with a bridge, where every frame is an ordinary socket buffer.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::command::run;
use super::{LabError, namespace, run_dir};

/// A running capture. Ends when dropped.
#[derive(Debug)]
pub struct Capture {
    process: Child,
    file: PathBuf,
}

impl Capture {
    /// Starts to capture what passes the tap `tap` of the laboratory `name`, whole frames, those
    /// that `filter` (in tcpdump's words; empty for all) selects. Returns when the capture runs.
    ///
    /// # Errors
    /// When tcpdump cannot be started or says that it cannot listen.
    pub fn start(name: &str, tap: &str, filter: &str) -> Result<Capture, LabError> {
        let file = run_dir(name).join(format!("{tap}.pcap"));
        let mut process = Command::new("ip")
            .args(["netns", "exec", &namespace(name, tap)])
            .args([
                "tcpdump",
                "--immediate-mode",
                "-i",
                "lower",
                "-U",
                "-s",
                "0",
                "-B",
                "16384",
                "-Z",
                "root",
                "-w",
            ])
            .arg(&file)
            .args(filter.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(LabError::io("tcpdump"))?;
        let mut said = String::new();
        if let Some(pipe) = process.stderr.take() {
            let mut reader = BufReader::new(pipe);
            // Its first words are "tcpdump: listening on …", or why it cannot.
            reader
                .read_line(&mut said)
                .map_err(LabError::io("tcpdump"))?;
            std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        }
        if said.contains("listening on") {
            return Ok(Capture { process, file });
        }
        let _ = process.kill();
        let _ = process.wait();
        Err(LabError::Command {
            command: "tcpdump".to_owned(),
            reason: said.trim().to_owned(),
        })
    }

    /// Ends the capture; the file is complete then.
    ///
    /// # Errors
    /// When tcpdump has ended before, or cannot be waited for.
    pub fn stop(mut self) -> Result<PathBuf, LabError> {
        self.end()?;
        Ok(self.file.clone())
    }

    fn end(&mut self) -> Result<(), LabError> {
        // Frames that are on their way to tcpdump, and those that it has not written because it
        // waits for a core.
        loop {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
            let state = stat
                .ok()
                .and_then(|it| it.rsplit_once(") ").map(|it| it.1[..1].to_owned()));
            if !state.is_some_and(|state| ["R", "D"].contains(&state.as_str())) {
                break;
            }
        }
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        self.process
            .wait()
            .map(drop)
            .map_err(LabError::io("tcpdump"))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Frames of `file` that tshark's `filter` selects, one line each with `fields` separated by tabs.
///
/// # Errors
/// When tshark fails.
pub fn dissect(file: &Path, filter: &str, fields: &[&str]) -> Result<Vec<String>, LabError> {
    let file = file.display().to_string();
    let mut arguments = vec!["-n", "-r", &file, "-Y", filter, "-T", "fields"];
    for field in fields {
        arguments.extend(["-e", field]);
    }
    Ok(run("tshark", &arguments)?
        .lines()
        .map(str::to_owned)
        .collect())
}
