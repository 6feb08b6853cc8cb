//! Runs the kernel's tools (`ip`, `ethtool`, `sysctl`, `tc`), and reports their output when they
//! fail.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

use super::LabError;

/// Runs `program`, waits for it and returns its standard output.
///
/// # Errors
/// When it is not installed, or ends with a status other than 0.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String, LabError> {
    feed(program, arguments, None)
}

/// Runs `program` with `input` on its standard input.
///
/// # Errors
/// As [`run`].
pub fn run_with_input<S: AsRef<OsStr>>(
    program: &str,
    arguments: &[S],
    input: &str,
) -> Result<String, LabError> {
    feed(program, arguments, Some(input))
}

fn feed<S: AsRef<OsStr>>(
    program: &str,
    arguments: &[S],
    input: Option<&str>,
) -> Result<String, LabError> {
    let line = || {
        let words = arguments
            .iter()
            .map(|a| a.as_ref().to_string_lossy().into_owned());
        std::iter::once(program.to_owned())
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => LabError::MissingTool(program.to_owned()),
            _ => LabError::Io {
                what: line(),
                source: error,
            },
        })?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // A program that ends early closes its input; its status tells why.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(LabError::io(line()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let reason = if said.is_empty() {
        output.status.to_string()
    } else {
        said
    };
    let shown = input.map_or_else(line, |input| format!("{} <<< {}", line(), input.trim()));
    Err(LabError::Command {
        command: shown,
        reason,
    })
}

/// Runs many `ip` commands in one process, in `namespace` or outside of any.
///
/// # Errors
/// As [`run`]; stops at the first that fails.
pub fn ip_batch(namespace: Option<&str>, commands: &[String]) -> Result<(), LabError> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut arguments = Vec::new();
    if let Some(namespace) = namespace {
        arguments.extend(["-netns", namespace]);
    }
    arguments.extend(["-batch", "-"]);
    run_with_input("ip", &arguments, &(commands.join("\n") + "\n")).map(drop)
}

/// Whether `program` can be found.
#[must_use]
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(Into::into))
        .any(|folder| folder.join(program).is_file())
}
