//! The daemon: arguments, configuration, log; then [`switchd::switch::run`].

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use switchd::config;
use switchd::preflight::SwitchError;

/// Buffers of the control plane come and go in many sizes and must not fragment a process that runs
/// for years.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A lossless, congestion-aware switch and router in software
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(flatten)]
    from: From,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Args)]
struct From {
    /// Configuration file
    #[arg(short, long, global = true, default_value = config::DEFAULT_PATH)]
    config: PathBuf,
    /// Override a key of the configuration, like ecmp.seed=7; may be repeated
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Forward until SIGTERM (what happens without a command, too)
    Run,
    /// Check the configuration without starting
    Check {
        /// Show the configuration that would be in force
        #[arg(long)]
        print: bool,
    },
    /// Print what is in force as TOML: every key, with the place that set it
    ShowConfig,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match execute(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            common::log::complain("switchd", &error);
            ExitCode::FAILURE
        }
    }
}

fn execute(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let source = config::Source {
        path: arguments.from.config.clone(),
        overrides: arguments.from.overrides.clone(),
    };
    let loaded = source.load()?;
    let config = &loaded.settings;
    if matches!(
        arguments.command,
        Some(Command::Check { .. } | Command::ShowConfig)
    ) {
        common::sys::end_quietly_on_broken_pipe();
    }
    match arguments.command {
        Some(Command::Check { print }) => {
            let warnings = switchd::preflight::warnings(config);
            let unmatched = switchd::preflight::unmatched(config);
            for warning in warnings.into_iter().chain(unmatched) {
                eprintln!("warning: {warning}");
            }
            if print {
                print!("{}", toml::to_string(config)?);
            } else {
                println!("{}: valid", source.path.display());
            }
            // The file may be for another machine, or for one whose interfaces come later.
            let starts = switchd::preflight::devices(config);
            let starts = starts.map_err(|error| match error {
                SwitchError::Config(refusals) => loaded.refused(&refusals).to_string(),
                other => other.to_string(),
            });
            starts.map_err(|error| format!("it would not start here and now: {error}"))?;
            Ok(())
        }
        Some(Command::ShowConfig) => {
            print!("{}", loaded.show()?);
            print!("{}", switchd::preflight::derived(config));
            Ok(())
        }
        Some(Command::Run) | None => {
            common::log::start(&config.log.level)?;
            match switchd::switch::run(&loaded, source) {
                // Told where it stands, as `check` would.
                Err(SwitchError::Config(refusals)) => Err(loaded.refused(&refusals).into()),
                ended => Ok(ended?),
            }
        }
    }
}
