//! hostd: the daemon.

use clap::{Args, Parser, Subcommand};
use hostd::config::Config;
use std::path::PathBuf;
use std::process::ExitCode;

/// The allocator of the daemon: its control thread makes many small objects that live long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A multipath, RDMA-like transport for the applications of a host.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Verb>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon (the default).
    Run,
    /// Read the configuration, say what is wrong with it, and end.
    Check,
    /// Print what is in force as TOML: every key, with the place that set it.
    ShowConfig,
}

#[derive(Clone, Debug, Args)]
struct Options {
    /// Configuration file.
    #[arg(short, long, global = true, default_value = "/etc/hostd/hostd.toml")]
    config: PathBuf,
    /// Override a key of the configuration; may be repeated.
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

fn main() -> ExitCode {
    let Cli { command, options } = Cli::parse();
    let loaded = common::config::load::<Config>(&options.config, "HOSTD", &options.overrides);
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error),
    };
    if matches!(command, Some(Verb::Check | Verb::ShowConfig)) {
        common::sys::end_quietly_on_broken_pipe();
    }
    match command {
        Some(Verb::Check) => {
            println!("{}: valid", options.config.display());
            // The file may be for another machine, or for one whose interfaces come later.
            let obstacles = hostd::host::obstacles(&loaded.settings);
            if obstacles.is_empty() {
                return ExitCode::SUCCESS;
            }
            let text = obstacles.join("\n");
            let text = format!("it would not start here and now: {text}");
            return fail(&*Box::<dyn std::error::Error>::from(text));
        }
        Some(Verb::ShowConfig) => {
            return match loaded.show() {
                Ok(text) => {
                    print!("{text}{}", hostd::host::derived(&loaded.settings));
                    ExitCode::SUCCESS
                }
                Err(error) => fail(&error),
            };
        }
        Some(Verb::Run) | None => {}
    }
    let config = &loaded.settings;
    if let Err(error) = common::log::start(&config.log.level) {
        return fail(&error);
    }
    match hostd::host::run(&loaded) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    common::log::complain("hostd", error);
    ExitCode::FAILURE
}
