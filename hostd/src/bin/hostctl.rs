//! hostctl: what an operator asks hostd.

use clap::{Parser, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use common::admin::client::Daemon;
use hostd::control::report::{Ask, PROBLEM, Subject, columns};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const DAEMON: Daemon = Daemon {
    name: "hostd",
    variable: "HOSTCTL_SOCKET",
};

/// How long hostd may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Exit status of `status` while something is wrong, as switchctl's.
const DEGRADED: u8 = 4;

/// Show the state of hostd.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Path of hostd's admin socket.
    #[arg(
        long,
        global = true,
        env = DAEMON.variable,
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
    #[command(flatten)]
    Direct(What),
    /// Show something (the word may be left out).
    #[command(subcommand)]
    Show(What),
}

/// What can be shown. Each plural is understood in the singular, too.
#[derive(Clone, Copy, Debug, Subcommand)]
enum What {
    /// The daemon as a whole, with what is wrong; exit status 4 if anything is.
    Status,
    /// Queue pairs and their counters.
    #[command(alias = "qp")]
    Qps,
    /// Sub-paths of all queue pairs.
    #[command(alias = "path")]
    Paths,
    /// Registered memory.
    #[command(alias = "region")]
    Regions,
    /// Memory windows: keys that requests of queue pairs give to parts of registered memory.
    #[command(alias = "window")]
    Windows,
    /// Connected applications.
    #[command(alias = "session")]
    Sessions,
    /// Lost packets by reason.
    #[command(alias = "drop")]
    Drops,
    /// Interfaces and their counters.
    #[command(alias = "port")]
    Ports,
    /// Addresses of the interface by index, as applications see them: IPv4 ones are mapped into
    /// IPv6.
    #[command(alias = "gid")]
    Gids,
    /// Flow control that was received, and paused time, by priority.
    #[command(aliases = ["pause", "pfc"])]
    Pauses,
    /// The configuration in force as TOML, with the place that set each key.
    #[command(alias = "configuration")]
    Config,
}

impl Verb {
    fn subject(self) -> Subject {
        let (Self::Direct(what) | Self::Show(what)) = self;
        match what {
            What::Status => Subject::Status,
            What::Qps => Subject::Qps,
            What::Paths => Subject::Paths,
            What::Regions => Subject::Regions,
            What::Windows => Subject::Windows,
            What::Sessions => Subject::Sessions,
            What::Drops => Subject::Drops,
            What::Ports => Subject::Ports,
            What::Gids => Subject::Gids,
            What::Pauses => Subject::Pauses,
            What::Config => Subject::Config,
        }
    }
}

fn main() -> ExitCode {
    common::sys::end_quietly_on_broken_pipe();
    let cli = Cli::parse();
    let subject = cli.command.subject();
    match ask(&cli.socket, subject) {
        Ok(rows) => {
            let text = if cli.json {
                format!("{rows:#}")
            } else if subject == Subject::Config {
                cell(rows[0].get("toml"))
            } else {
                table(subject, &rows)
            };
            // A reader that has gone (a pager that was closed) is no error.
            let _ = writeln!(std::io::stdout(), "{text}");
            let mut all = rows.as_array().into_iter().flatten();
            if subject == Subject::Status && all.any(|row| row["name"] == PROBLEM) {
                return ExitCode::from(DEGRADED);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hostctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(socket: &Path, subject: Subject) -> Result<Value, String> {
    let request = serde_json::to_string(&Ask { show: subject }).map_err(|e| e.to_string())?;
    let answer = DAEMON.ask(socket, &request, PATIENCE)?;
    let value: Value = serde_json::from_slice(&answer).map_err(|error| {
        let place = socket.display();
        format!("{place}: the answer is not understood: {error}")
    })?;
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

#[cfg(test)]
mod tests {
    use super::{Cli, Subject};
    use clap::{CommandFactory, Parser};

    fn subject(words: &[&str]) -> Subject {
        let line = ["hostctl"].iter().chain(words);
        match Cli::try_parse_from(line) {
            Ok(cli) => cli.command.subject(),
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// As in switchctl: `show` may be left out, and each plural is understood in the singular.
    #[test]
    fn the_singular_is_understood_with_show_and_without() {
        for (word, singular, meant) in [
            ("status", "status", Subject::Status),
            ("qps", "qp", Subject::Qps),
            ("paths", "path", Subject::Paths),
            ("regions", "region", Subject::Regions),
            ("windows", "window", Subject::Windows),
            ("sessions", "session", Subject::Sessions),
            ("drops", "drop", Subject::Drops),
            ("ports", "port", Subject::Ports),
            ("gids", "gid", Subject::Gids),
            ("pauses", "pause", Subject::Pauses),
            ("pfc", "pfc", Subject::Pauses),
        ] {
            for words in [
                &["show", word][..],
                &[word],
                &["show", singular],
                &[singular],
            ] {
                assert_eq!(subject(words), meant, "{words:?}");
            }
        }
    }

    #[test]
    fn no_two_commands_share_a_word() {
        Cli::command().debug_assert();
    }
}
