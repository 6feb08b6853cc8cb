//! hostctl: what an operator asks hostd.

use clap::{Parser, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use hostd::control::report::{Ask, Subject, columns};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long hostd may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show the state of hostd.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Path of hostd's admin socket.
    #[arg(
        long,
        global = true,
        env = "HOSTCTL_SOCKET",
        default_value = "/run/hostd/admin.sock"
    )]
    socket: PathBuf,
    /// Print JSON instead of a table.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show queue pairs, paths, regions, sessions, drops, ports, pauses or the status.
    Show {
        /// What to show.
        subject: Subject,
    },
}

fn main() -> ExitCode {
    common::sys::end_quietly_on_broken_pipe();
    let cli = Cli::parse();
    let Verb::Show { subject } = cli.command;
    match ask(&cli.socket, subject) {
        Ok(rows) => {
            let text = if cli.json {
                format!("{rows:#}")
            } else {
                table(subject, &rows)
            };
            // A reader that has gone (a pager that was closed) is no error.
            let _ = writeln!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hostctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(socket: &Path, subject: Subject) -> Result<Value, String> {
    let place = |error: std::io::Error| format!("{}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(place)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(place)?;
    let request = serde_json::to_string(&Ask { show: subject }).map_err(|e| e.to_string())?;
    stream
        .write_all(format!("{request}\n").as_bytes())
        .map_err(place)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(place)?;
    let value: Value = serde_json::from_str(&answer).map_err(|e| format!("answer: {e}"))?;
    match value.get("error").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned()),
        None => Ok(value),
    }
}

fn table(subject: Subject, rows: &Value) -> String {
    let columns = columns(subject);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|(_, heading)| *heading));
    for row in rows.as_array().into_iter().flatten() {
        table.add_row(columns.iter().map(|(key, _)| cell(row.get(key))));
    }
    for (index, (key, _)) in columns.iter().enumerate() {
        let numeric = rows
            .as_array()
            .into_iter()
            .flatten()
            .any(|row| row[*key].is_number());
        if let (true, Some(column)) = (numeric, table.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            let parts: Vec<_> = list.iter().map(|item| cell(Some(item))).collect();
            parts.join(",")
        }
        Some(other) => other.to_string(),
    }
}
