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
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Verb>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon (the default).
    Run(Options),
    /// Read the configuration, say what is wrong with it, and end.
    Check(Options),
}

#[derive(Clone, Debug, Args)]
struct Options {
    /// Configuration file.
    #[arg(short, long, default_value = "/etc/hostd/hostd.toml")]
    config: PathBuf,
    /// Override a key of the configuration; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (options, check) = match cli.command {
        Some(Verb::Run(options)) => (options, false),
        Some(Verb::Check(options)) => (options, true),
        None => (cli.options, false),
    };
    let loaded = common::config::load::<Config>(&options.config, "HOSTD", &options.overrides);
    let config = match loaded {
        Ok(config) => config,
        Err(error) => return fail(&error),
    };
    if check {
        println!("{}: valid", options.config.display());
        return ExitCode::SUCCESS;
    }
    if let Err(error) = common::log::start(&config.log.level) {
        return fail(&error);
    }
    match hostd::host::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("hostd: {error}");
    ExitCode::FAILURE
}
