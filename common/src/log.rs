//! Logging of the daemons: one line an event on stderr, where systemd and `fabric` pick it up.
//!
//! Nothing here fails for what stderr is: a full disk or a reader that is gone costs lines, which
//! are counted, and never the daemon.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level or filter is not understood.
    #[error(
        "{text:?} is not a filter ({reason}): write off, error, warn, info, debug or trace, or a list like info,target=level"
    )]
    Filter {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Logging was started before in this process.
    #[error("logging runs already")]
    Running,
}

/// Levels, from the quietest.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The modules of this crate that log.
pub const MODULES: &[&str] = &[
    "common::admin",
    "common::metrics::guard",
    "common::metrics::process",
    "common::schedulers",
    "common::xdp::attach",
    "common::xdp::limits",
    "common::xdp::port",
    "common::xdp::socket",
    "common::xdp::steer",
];

/// Whether `filter` would be accepted by [`start`], and each of its targets be a module of
/// [`MODULES`] or of the daemon's `own`, which are those that log, or one that holds such:
/// `switchd`, `switchd::control`.
///
/// # Errors
/// The filter is not understood, or has a target that nothing is logged for.
pub fn check(filter: &str, own: &[&str]) -> Result<(), LogError> {
    parse(filter)?;
    let modules = || MODULES.iter().chain(own).copied();
    let holds = |target: &str, module: &str| {
        let rest = module.strip_prefix(target);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let targets = filter.split(',').filter_map(|it| it.rsplit_once('='));
    let mut targets = targets.map(|(target, _)| target.trim());
    let Some(target) = targets.find(|it| !modules().any(|module| holds(it, module))) else {
        return Ok(());
    };
    let of_crate = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let named = of_crate(target);
    let inside = format!("{named}::");
    let known: Vec<&str> = modules()
        .filter_map(|it| it.strip_prefix(&inside))
        .collect();
    let only = if known.is_empty() {
        let mut crates: Vec<String> = modules().map(of_crate).collect();
        crates.dedup();
        format!("{} and their modules", crates.join(", "))
    } else {
        format!("{named} and its modules {}", known.join(", "))
    };
    Err(LogError::Filter {
        text: filter.to_owned(),
        reason: format!("nothing is logged for the target {target:?}, only for {only}"),
    })
}

/// Starts logging to stderr. `filter` is a level, or a list of `target=level` as in `RUST_LOG`.
/// Colours only on a terminal and without `NO_COLOR`. Into the journal without time stamps, since
/// it has its own, and with the priority of the level (sd-daemon(3)), so that `journalctl -p err`
/// finds errors.
///
/// # Errors
/// The filter is not understood, or logging runs already.
pub fn start(filter: &str) -> Result<(), LogError> {
    let filter = parse(filter)?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    let started = if is_journal() {
        let builder = builder.with_ansi(false).without_time().with_level(false);
        builder.with_writer(Journal).try_init()
    } else {
        builder.with_writer(|| Lossy).with_ansi(colours).try_init()
    };
    started.map_err(|_| LogError::Running)
}

/// Tells the operator why `program` ends, on stderr, before or without a log; an error in the
/// journal.
pub fn complain(program: &str, error: &dyn std::fmt::Display) {
    let text = format!("{program}: {error}");
    put(&if is_journal() {
        prefixed(ERROR, &text)
    } else {
        format!("{text}\n")
    });
}

/// Events that stderr did not take, since the process began.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

static LOST: AtomicU64 = AtomicU64::new(0);

/// Writes to stderr what it takes.
fn put(text: &str) {
    if std::io::stderr().write_all(text.as_bytes()).is_err() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Stderr as a log: never an error, which the log's formatter would want to report on stderr.
struct Lossy;

impl Write for Lossy {
    /// The formatter writes an event at once.
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        put(&String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether stderr is the journal's: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)).
/// The variable alone does not tell, because it is inherited when stderr is redirected.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let Ok(found) = nix::sys::stat::fstat(std::io::stderr()) else {
        return false;
    };
    named.is_some_and(|named| named == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Syslog's priority of errors.
const ERROR: u8 = 3;

/// Syslog's priority of a level.
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => ERROR,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// A text with the priority before each of its lines, because each is an entry of its own.
fn prefixed(priority: u8, text: &str) -> String {
    let lines = text.trim_end_matches('\n').split('\n');
    lines.map(|line| format!("<{priority}>{line}\n")).collect()
}

/// Writes events to the journal's stderr.
struct Journal;

/// One event of the journal.
struct Entry(u8);

impl<'a> MakeWriter<'a> for Journal {
    type Writer = Entry;

    fn make_writer(&'a self) -> Entry {
        Entry(priority(&Level::INFO))
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Entry {
        Entry(priority(meta.level()))
    }
}

impl Write for Entry {
    /// The formatter writes an event at once.
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        put(&prefixed(self.0, &String::from_utf8_lossy(text)));
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    let error = |reason: String| LogError::Filter {
        text: filter.to_owned(),
        reason,
    };
    if filter.trim().is_empty() {
        return Err(error("it is empty".to_owned()));
    }
    // A word that is no level would be taken for a target, and nothing else be logged.
    for directive in filter.split(',') {
        let level = directive
            .rsplit_once('=')
            .map_or(directive, |(_, level)| level);
        if !LEVELS.contains(&level.trim().to_ascii_lowercase().as_str()) {
            return Err(error(format!("{level:?} is not a level")));
        }
    }
    EnvFilter::try_new(filter).map_err(|fault| error(fault.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        let own = ["switchd::control::ports", "switchd::switch"];
        let check = |filter| check(filter, &own);
        for right in [
            "info",
            "warn,switchd=debug",
            "warn,common=info,switchd::control::ports=trace",
            "warn,common::xdp=debug,switchd::switch=trace",
            "ERROR",
            "off",
        ] {
            assert!(check(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "=",
            "switchd=loud",
            "inof",
            "info,",
            "switchd",
            "warn,verbose",
            "5",
            "switchd::=debug",
            "info,swichd=debug",
            "info,switchd::control:=debug",
            "info,switchd-control=debug",
            "::switchd=debug",
            "=debug",
            "info,switchd::controll=debug",
            "info,switchd::control::port=debug",
            "info,switchd::switch::deeper=debug",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    /// MG-5: levels are syslog's priorities, on every line of an event.
    #[test]
    fn the_journal_gets_priorities() {
        for (level, wanted) in [
            (Level::ERROR, "<3>a\n<3>  b\n"),
            (Level::WARN, "<4>a\n<4>  b\n"),
            (Level::INFO, "<6>a\n<6>  b\n"),
            (Level::TRACE, "<7>a\n<7>  b\n"),
        ] {
            assert_eq!(prefixed(priority(&level), "a\n  b\n"), wanted);
        }
    }
    /// With its log on a full disk a daemon goes on, and counts what is lost. In a process of
    /// its own, whose stderr is such a disk.
    #[test]
    fn a_full_disk_costs_lines_only() {
        const CHILD: &str = "LOG_TEST_FULL";
        let name = "log::tests::a_full_disk_costs_lines_only";
        if std::env::var_os(CHILD).is_some() {
            start("info").unwrap();
            for number in 0..3 {
                tracing::error!(number, "nobody reads this");
            }
            complain("nobody", &"nor this");
            assert_eq!(lost(), 4);
            return;
        }
        let full = std::fs::File::options().write(true).open("/dev/full");
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .stderr(full.unwrap())
            .status();
        assert!(status.unwrap().success());
    }
}
