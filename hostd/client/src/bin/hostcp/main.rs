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
mod failure;
mod messages;
mod options;
mod receiver;
mod sender;
mod target;

use clap::{Parser, Subcommand};
use options::{CopyOptions, ServeOptions};
use std::path::PathBuf;
use std::process::ExitCode;

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
