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
mod server;
mod statistics;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The port that servers listen on when nothing else is said: that of perftest.
pub(crate) const PORT: u16 = 18_515;

/// The greatest size that is measured.
pub(crate) const SIZE_MAX: u32 = 1 << 23;

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

/// What to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The host that serves.
    host: String,
    /// Its port.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 65_536)]
    size: u32,
    /// All powers of two from 2 bytes to 8 MiB instead of one size.
    #[arg(short, long)]
    all: bool,
    /// Messages of a measurement; without it, as many as the duration takes.
    #[arg(short = 'n', long)]
    iterations: Option<u64>,
    /// Seconds of a measurement.
    #[arg(short = 'D', long, default_value_t = 2.0)]
    duration: f64,
    /// Messages on their way at once.
    #[arg(short = 't', long, default_value_t = 64)]
    depth: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// hostd, or the connection.
    #[error(transparent)]
    Transport(#[from] hostd_client::Error),
    /// A work request failed.
    #[error("a request failed: {}", .0.text())]
    Work(hostd_client::CompletionStatus),
    /// The options, or the other side.
    #[error("{0}")]
    Usage(String),
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Send,
    Write,
    Latency,
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
