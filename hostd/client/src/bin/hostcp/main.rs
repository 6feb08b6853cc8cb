//! hostcp: copies a file to another host over hostd, like scp.
//!
//! ```text
//!   sender                                        receiver
//!   header (SEND): name, size, mode        ──▶    opens a temporary file
//!                                          ◀──    welcome (SEND): where to write, how many slots
//!   chunks (RDMA WRITE with immediate)     ──▶    slot by slot: to the file, into the digest
//!                                          ◀──    credit (SEND): chunks taken so far
//!   trailer (SEND): BLAKE3                 ──▶    compares; the file gets its name only then
//!                                          ◀──    verdict (SEND)
//! ```
//!
//! Several chunks are in flight at once, in a ring of slots of registered memory on both sides. A
//! slot is used again when its chunk was acknowledged and the receiver has written it. A thread of
//! its own on each side ([`disk`]) reads the file straight into registered memory, or writes it
//! from there, and also hashes: neither the disk nor BLAKE3 makes the network wait.

mod disk;
mod end;
mod messages;
mod receiver;
mod sender;
mod target;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The port that receivers listen on when nothing else is said.
pub(crate) const PORT: u16 = 18_516;

/// Copy a file to another host over hostd.
#[derive(Debug, Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Verb>,
    #[command(flatten)]
    copy: CopyOptions,
    /// Path of hostd's application socket.
    #[arg(long, global = true, env = hostd_client::SOCKET_ENV,
          default_value = hostd_client::SOCKET_DEFAULT)]
    socket: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Receive files.
    Serve(ServeOptions),
}

/// What to copy.
#[derive(Debug, Args)]
pub(crate) struct CopyOptions {
    /// The file.
    #[arg(required = true)]
    source: Option<PathBuf>,
    /// Where to: HOST:PATH; PATH is relative to the receiver's root, and may name a folder.
    #[arg(required = true)]
    target: Option<String>,
    /// Port of the receiver.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Print nothing but errors.
    #[arg(short, long)]
    quiet: bool,
}

/// How to receive.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Port to listen on.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Folder that files are placed in, and never outside of.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// End after one file.
    #[arg(long)]
    once: bool,
}

/// Why a copy failed; the text is for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// The target is not understood.
    #[error("{0}")]
    Target(String),
    /// hostd, or the connection.
    #[error(transparent)]
    Transport(#[from] hostd_client::Error),
    /// A work request failed.
    #[error("the transfer broke off: {}", .0.text())]
    Work(hostd_client::CompletionStatus),
    /// The other side does not keep to the protocol.
    #[error("the other side is no hostcp of this version: {0}")]
    Protocol(String),
    /// The receiver refused, or found a fault.
    #[error("the receiver says: {0}")]
    Receiver(String),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Verb::Serve(options)) => receiver::serve(&cli.socket, &options),
        None => sender::copy(&cli.socket, &cli.copy),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("hostcp: {failure}");
            ExitCode::FAILURE
        }
    }
}
