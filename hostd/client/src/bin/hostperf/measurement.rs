//! What is measured, and why a measurement may fail.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hostd_client::Congestion;

/// The default port of servers: that of perftest.
pub(crate) const PORT: u16 = 18_515;

/// The greatest size that is measured.
pub(crate) const SIZE_MAX: u32 = 1 << 23;

/// Messages that may be on their way at once.
pub(crate) const DEPTH_MAX: u32 = 1024;

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let known = std::time::Duration::try_from_secs_f64(value);
    match known.map_err(|error| error.to_string())? {
        none if none.is_zero() => Err("a measurement takes some time".to_owned()),
        _ => Ok(value),
    }
}

/// An algorithm of congestion control, by its name.
fn congestion() -> impl TypedValueParser<Value = Congestion> {
    let named = |name: String| Congestion::ALL.into_iter().find(|it| it.name() == name);
    let names = PossibleValuesParser::new(Congestion::ALL.map(Congestion::name));
    names.try_map(move |name| named(name).ok_or("no such algorithm"))
}

/// What to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The host that serves; brackets around an IPv6 address may be left out.
    pub(crate) host: String,
    /// Its port.
    #[arg(long, default_value_t = PORT)]
    pub(crate) port: u16,
    /// Bytes of a message, from 1 to 8388608 (8 MiB).
    #[arg(short, long, default_value_t = 65_536,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SIZE_MAX)))]
    pub(crate) size: u32,
    /// All powers of two from 2 bytes to 8 MiB instead of one size.
    #[arg(short, long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Messages of a measurement, at least 1; without it, as many as the duration takes.
    #[arg(short = 'n', long, conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,
    /// Seconds in which messages are sent, more than 0; the measurement ends when those that are
    /// on their way then (see `--depth`) have arrived.
    #[arg(short = 'D', long, default_value_t = 2.0, value_parser = seconds)]
    pub(crate) duration: f64,
    /// Messages on their way at once, from 1 to 1024.
    #[arg(short = 't', long, default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    pub(crate) depth: u32,
    /// What steers how fast this side sends: one of those that hostd offers; without it, what hostd
    /// is configured with.
    #[arg(long, value_parser = congestion())]
    pub(crate) congestion: Option<Congestion>,
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
    /// The way to the other side, where `hostperf serve` waits.
    #[error("{peer}: {reason}")]
    Connect {
        /// Which.
        peer: std::net::SocketAddr,
        /// Why.
        reason: hostd_client::Error,
    },
    /// Nothing came of what was sent.
    #[error(
        "timed out: of what is on its way nothing has arrived, and nothing came from the other \
         side, for {} s",
        .0.as_secs()
    )]
    Silent(std::time::Duration),
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
