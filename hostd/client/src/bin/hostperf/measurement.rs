//! What is measured, and why a measurement may fail.

use clap::Args;

/// The default port of servers: that of perftest.
pub(crate) const PORT: u16 = 18_515;

/// The greatest size that is measured.
pub(crate) const SIZE_MAX: u32 = 1 << 23;

/// What to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The host that serves.
    pub(crate) host: String,
    /// Its port.
    #[arg(long, default_value_t = PORT)]
    pub(crate) port: u16,
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 65_536)]
    pub(crate) size: u32,
    /// All powers of two from 2 bytes to 8 MiB instead of one size.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Messages of a measurement; without it, as many as the duration takes.
    #[arg(short = 'n', long)]
    pub(crate) iterations: Option<u64>,
    /// Seconds of a measurement.
    #[arg(short = 'D', long, default_value_t = 2.0)]
    pub(crate) duration: f64,
    /// Messages on their way at once.
    #[arg(short = 't', long, default_value_t = 64)]
    pub(crate) depth: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
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
