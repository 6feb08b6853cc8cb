//! hostctl: what an operator asks hostd.

use clap::{Parser, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use common::admin::client::Daemon;
use hostd::control::admin::PATIENCE;
use hostd::control::change::{AskChange, Wanted};
use hostd::control::report::{Ask, PROBLEM, Subject, columns};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const DAEMON: Daemon = Daemon {
    name: "hostd",
    variable: "HOSTCTL_SOCKET",
};

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

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Direct(What),
    /// Show something (the word may be left out).
    #[command(subcommand)]
    Show(What),
    /// Change a multipath connection while it carries data; waits until both sides have agreed.
    Set(Change),
}

/// What becomes other; what is not named stays as it is.
#[derive(Clone, Debug, clap::Args)]
struct Change {
    /// Number of the queue pair (hostctl qps).
    qpn: u32,
    /// Sub-paths to put in force, as 3,4: each carries data once a probe was answered.
    #[arg(long, value_delimiter = ',')]
    add: Vec<u8>,
    /// Sub-paths that are to carry no new packets any more.
    #[arg(long, value_delimiter = ',')]
    remove: Vec<u8>,
    /// Share of packets of a sub-path, as 3=40; weights are from 1 to 100.
    #[arg(long, value_delimiter = ',', value_parser = weight)]
    weight: Vec<(u8, u8)>,
    /// What takes one path: flow, flowlet or packet.
    #[arg(long)]
    granularity: Option<String>,
    /// Packets by which one may be overtaken before it is taken for lost.
    #[arg(long)]
    reorder_packets: Option<u16>,
    /// Microseconds by which a packet may be late before it is taken for lost, 100 to 65535.
    #[arg(long)]
    reorder_time_us: Option<u32>,
    /// Microseconds of a pause that ends a flowlet, at most 65535.
    #[arg(long)]
    flowlet_timeout_us: Option<u32>,
}

/// Reads a weight: PATH=WEIGHT.
fn weight(text: &str) -> Result<(u8, u8), String> {
    let parts = text.split_once('=');
    let numbers = parts.and_then(|(path, weight)| Some((path.parse().ok()?, weight.parse().ok()?)));
    numbers.ok_or_else(|| format!("{text:?} is not PATH=WEIGHT"))
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
    /// What the network says of sub-paths: how much of the worst link is free, or how long packets
    /// take there, and where it is.
    #[command(alias = "signals")]
    Csig,
    /// What telemetry says of sub-paths: how much is in flight on the worst link, and which that
    /// is.
    #[command(alias = "telemetry")]
    Int,
    /// Who spreads packets over paths: interfaces, or the switches behind them; nothing without
    /// scheduling.announce.
    #[command(alias = "scheduler")]
    Schedulers,
    /// Memberships of jobs that switches compute for: slots, retransmissions, and why they ended.
    #[command(alias = "collectives")]
    Collective,
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
    /// What is to be shown; `None`: something is to be changed.
    fn subject(&self) -> Option<Subject> {
        let (Self::Direct(what) | Self::Show(what)) = self else {
            return None;
        };
        Some(match what {
            What::Status => Subject::Status,
            What::Qps => Subject::Qps,
            What::Paths => Subject::Paths,
            What::Csig => Subject::Csig,
            What::Int => Subject::Int,
            What::Schedulers => Subject::Schedulers,
            What::Collective => Subject::Collective,
            What::Regions => Subject::Regions,
            What::Windows => Subject::Windows,
            What::Sessions => Subject::Sessions,
            What::Drops => Subject::Drops,
            What::Ports => Subject::Ports,
            What::Gids => Subject::Gids,
            What::Pauses => Subject::Pauses,
            What::Config => Subject::Config,
        })
    }
}

fn main() -> ExitCode {
    common::sys::end_quietly_on_broken_pipe();
    let cli = Cli::parse();
    let subject = match (cli.command.subject(), cli.command) {
        (Some(subject), _) => subject,
        (None, Verb::Set(change)) => return set(&cli.socket, change),
        (None, _) => return ExitCode::FAILURE,
    };
    let request = serde_json::to_string(&Ask { show: subject });
    match ask(&cli.socket, request) {
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

fn set(socket: &Path, change: Change) -> ExitCode {
    let set = Wanted {
        qpn: change.qpn,
        add: change.add,
        remove: change.remove,
        weights: change.weight,
        granularity: change.granularity,
        reorder_packets: change.reorder_packets,
        reorder_time_us: change.reorder_time_us,
        flowlet_timeout_us: change.flowlet_timeout_us,
    };
    match ask(socket, serde_json::to_string(&AskChange { set })) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(socket: &Path, request: serde_json::Result<String>) -> Result<Value, String> {
    let request = request.map_err(|e| e.to_string())?;
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
            Ok(cli) => cli.command.subject().expect("something to show"),
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
            ("csig", "signals", Subject::Csig),
            ("int", "telemetry", Subject::Int),
            ("schedulers", "scheduler", Subject::Schedulers),
            ("collective", "collectives", Subject::Collective),
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

    /// HT-32: what is to be changed is read as it is meant, and what cannot be read is refused.
    #[test]
    fn changes_are_read() {
        let line = "hostctl set 17 --add 3,4 --remove 1 --weight 3=40,0=9 --granularity flow";
        let cli = Cli::try_parse_from(line.split(' ')).expect("a change");
        let super::Verb::Set(change) = cli.command else {
            panic!("not a change");
        };
        assert_eq!(
            (change.qpn, change.add, change.remove),
            (17, vec![3, 4], vec![1])
        );
        assert_eq!(change.weight, [(3, 40), (0, 9)]);
        for wrong in [
            "set",
            "set x",
            "set 1 --add 256",
            "set 1 --weight 3",
            "set 1 --weight 3=x",
        ] {
            let line = format!("hostctl {wrong}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_two_commands_share_a_word() {
        Cli::command().debug_assert();
    }
}
