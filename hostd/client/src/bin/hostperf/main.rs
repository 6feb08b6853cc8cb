//! hostperf: bandwidth and latency between two hosts over hostd, in the manner of perftest.
//!
//! ```text
//!   hostperf serve                 the passive side
//!   hostperf send|write HOST       bandwidth of SEND or RDMA WRITE
//!   hostperf lat HOST              latency of SEND: half of a ping-pong's time
//! ```
//!
//! A connection carries one measurement of one size; what is measured stands in the private data of
//! its set-up. In `send` the server grants credits, so that a receive is always posted.

mod client;
mod end;
mod measurement;
mod server;
mod statistics;

use clap::{Parser, Subcommand};
use measurement::{Options, PORT, Test};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure bandwidth and latency over hostd.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
    /// Path of hostd's application socket.
    #[arg(long, global = true, env = hostd_client::SOCKET_ENV,
          default_value = hostd_client::SOCKET_DEFAULT)]
    socket: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Be the passive side.
    Serve {
        /// Port to listen on.
        #[arg(long, default_value_t = PORT)]
        port: u16,
    },
    /// Bandwidth of SEND.
    Send(Options),
    /// Bandwidth of RDMA WRITE.
    Write(Options),
    /// Latency of SEND, half of the round trip.
    Lat(Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Verb::Serve { port } => server::serve(&cli.socket, port),
        Verb::Send(options) => client::run(&cli.socket, Test::Send, &options),
        Verb::Write(options) => client::run(&cli.socket, Test::Write, &options),
        Verb::Lat(options) => client::run(&cli.socket, Test::Latency, &options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("hostperf: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cli, Verb};
    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};
    use hostd_client::Congestion;

    /// What cannot be measured is refused, and nothing that is said is ignored.
    #[test]
    fn options_have_bounds_and_exclude_each_other() {
        Cli::command().debug_assert();
        let read = |words: &[&str]| {
            let line = ["hostperf", "write", "h"].iter().chain(words);
            Cli::try_parse_from(line)
        };
        for (words, kind) in [
            (&["-n", "5", "-D", "1"][..], ErrorKind::ArgumentConflict),
            (&["-a", "-s", "8"], ErrorKind::ArgumentConflict),
            (&["-n", "0"], ErrorKind::ValueValidation),
            (&["-D", "0"], ErrorKind::ValueValidation),
            (&["-D=-1"], ErrorKind::ValueValidation),
            (&["-D=inf"], ErrorKind::ValueValidation),
            (&["-s", "8388609"], ErrorKind::ValueValidation),
            (&["-s", "0"], ErrorKind::ValueValidation),
            (&["-t", "1025"], ErrorKind::ValueValidation),
            (&["--congestion", "cubic"], ErrorKind::InvalidValue),
        ] {
            let error = read(words).expect_err("refused");
            assert_eq!(error.kind(), kind, "{words:?}: {error}");
        }
        for words in [&[][..], &["-n", "1"], &["-D", "0.5", "-s", "8388608"]] {
            let cli = read(words).expect("it is understood");
            assert!(matches!(cli.command, Verb::Write(_)));
        }
        for congestion in Congestion::ALL {
            let cli = read(&["--congestion", congestion.name()]).expect("it is known");
            let Verb::Write(options) = cli.command else {
                panic!("{:?}", cli.command);
            };
            assert_eq!(options.congestion, Some(congestion));
        }
        assert_eq!(super::client::plain("[fd00::2]"), "fd00::2");
        assert_eq!(super::client::plain("fd00::2"), "fd00::2");
    }
}
