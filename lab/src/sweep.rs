//! Takes a laboratory down, complete or not.
//!
//! The supervisor is known by its process identifier file and command line, processes by the
//! namespace that they are in, and namespaces by their names and by the plan that is written before
//! the first of them is made: others of such names are not the laboratory's, and stay.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::command::run;
use super::control::SUPERVISE;
use super::settings::State;
use super::{LabError, run_dir, wiring};

/// How long a supervisor may take to stop its daemons, and these to drain.
const STOP_TIME: Duration = Duration::from_secs(8);

/// Takes the laboratory `name` down: supervisor, daemons, everything else in its namespaces, the
/// namespaces, its folder. Nothing to take down is no error.
///
/// # Errors
/// When a namespace or the folder cannot be removed.
pub fn sweep(name: &str) -> Result<(), LabError> {
    stop_supervisor(name);
    clear(name)
}

/// What the supervisor itself does last: [`sweep`] without the supervisor.
///
/// # Errors
/// As [`sweep`].
pub fn clear(name: &str) -> Result<(), LabError> {
    let mut found = namespaces_of(name)?;
    found.retain(recorded(name));
    for ns in &found {
        kill_all_in(ns);
    }
    for ns in &found {
        run("ip", &["netns", "delete", ns])?;
    }
    let folder = run_dir(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LabError::Io {
            what: folder.display().to_string(),
            source: error,
        }),
        _ => Ok(()),
    }
}

/// Whether the laboratory `name` has made the namespace of such a name, complete or not, as far as
/// is written.
fn recorded(name: &str) -> impl Fn(&String) -> bool + use<> {
    let plan = State::load(name).map(|state| wiring::namespaces(&state.options, &state.plan()));
    move |ns| match &plan {
        Ok(plan) => plan.contains(ns),
        Err(LabError::Absent(_)) => false,
        // Of a version that writes something else: there was one.
        Err(_) => true,
    }
}

/// Namespaces that would be of the laboratory `name` by their names, but that it has not made.
///
/// # Errors
/// When `ip` fails.
pub fn strangers(name: &str) -> Result<Vec<String>, LabError> {
    let mut found = namespaces_of(name)?;
    let is_own = recorded(name);
    found.retain(|ns| !is_own(ns));
    Ok(found)
}

/// Namespaces with names that the laboratory `name` gives.
///
/// # Errors
/// When `ip` fails.
pub fn namespaces_of(name: &str) -> Result<Vec<String>, LabError> {
    let list = run("ip", &["netns", "list"])?;
    Ok(list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|ns| {
            ns.strip_prefix(name)
                .and_then(|r| r.strip_prefix('-'))
                .is_some_and(is_node)
        })
        .map(str::to_owned)
        .collect())
}

/// Only names that a laboratory gives: others may use namespaces that begin alike.
fn is_node(name: &str) -> bool {
    ["leaf", "spine", "h", "tap"].iter().any(|kind| {
        name.strip_prefix(kind)
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// The supervisor's process, if the one of the file still is one: identifiers are used again.
#[must_use]
pub fn supervisor(name: &str) -> Option<Pid> {
    let pid: i32 = fs::read_to_string(run_dir(name).join("supervisor.pid"))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = command.split(|byte| *byte == 0);
    let ours = words.any(|w| w == SUPERVISE.as_bytes()) && words.any(|w| w == name.as_bytes());
    ours.then(|| Pid::from_raw(pid))
}

fn stop_supervisor(name: &str) {
    let Some(pid) = supervisor(name) else { return };
    if pid == nix::unistd::getpid() {
        return;
    }
    // It may end between the look and the signal.
    let _ = kill(pid, Signal::SIGTERM);
    let deadline = Instant::now() + STOP_TIME;
    while supervisor(name).is_some() && Path::new(&format!("/proc/{pid}")).exists() {
        if Instant::now() > deadline {
            let _ = kill(pid, Signal::SIGKILL);
            break;
        }
        sleep(Duration::from_millis(20));
    }
}

fn kill_all_in(ns: &str) {
    // A process may have ended meanwhile, and one may start another: look until none is there.
    for _ in 0..50 {
        let pids: Vec<i32> = run("ip", &["netns", "pids", ns])
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect();
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::is_node;

    #[test]
    fn only_nodes_of_laboratories_are_swept() {
        for name in ["leaf1", "spine12", "h250", "tap1"] {
            assert!(is_node(name), "{name}");
        }
        for name in ["leaf", "leaf1x", "x", "h", "h1-h2", "1"] {
            assert!(!is_node(name), "{name}");
        }
    }
}
