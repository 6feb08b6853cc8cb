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
mod places;
mod receiver;
mod sender;
mod target;
mod text;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use options::{CopyOptions, ServeOptions};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// clap's own line would let arguments of a copy stand before `serve`.
const USAGE: &str =
    "hostcp [OPTIONS] <SOURCE> <TARGET>\n       hostcp [--socket <SOCKET>] serve [OPTIONS]";

/// Copy a file to another host over hostd.
#[derive(Debug, Parser)]
#[command(version, subcommand_negates_reqs = true, override_usage = USAGE)]
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
    /// Receive files, 16 at a time. A sender's address (of IPv6 its /64) may have one more as long
    /// as it has fewer than there are free places, so half of them at most. Others are refused.
    ///
    /// A file gets its name when it is whole. A receiver that is killed leaves what it had of it:
    /// files with 32 digits and `.hostcp` in their names, which begin with a dot. Nobody removes
    /// them but you, when no receiver writes there.
    Serve(ServeOptions),
}

impl Cli {
    /// Reads a command line. What belongs to a copy is refused beside `serve`; clap itself could
    /// refuse only everything that stands before it, the socket included.
    fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(words)?;
        if let Some(verb) = matches.subcommand_name() {
            let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
            if let Some(id) = CopyOptions::IDS.into_iter().find(|id| given(id)) {
                let text = format!("{id} before {verb:?}: write options of {verb} after that word");
                return Err(command.error(ErrorKind::ArgumentConflict, text));
            }
        }
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

fn main() -> ExitCode {
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
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

#[cfg(test)]
mod tests {
    use super::{Cli, CopyOptions, Verb};
    use clap::CommandFactory;
    use clap::error::ErrorKind;
    use std::path::Path;

    fn read(words: &[&str]) -> Result<Cli, clap::Error> {
        let line = ["hostcp"].iter().chain(words);
        Cli::read(line.map(|word| (*word).into()))
    }

    /// The socket may stand before `serve` and after it; a copy's arguments may not.
    #[test]
    fn the_socket_stands_anywhere() {
        for words in [
            ["--socket", "/tmp/s", "serve"],
            ["serve", "--socket", "/tmp/s"],
        ] {
            let cli = read(&words).expect("it is understood");
            assert_eq!(cli.socket, Path::new("/tmp/s"));
            assert!(matches!(cli.command, Some(Verb::Serve(_))));
        }
        let copy = read(&["--socket", "/tmp/s", "file", "[fd00:1::2]:"]).expect("a copy");
        assert_eq!(copy.socket, Path::new("/tmp/s"));
        assert!(copy.command.is_none());
        for words in [
            &["file", "serve"][..],
            &["--port", "7", "serve"],
            &["-q", "serve"],
        ] {
            let error = read(words).expect_err("it belongs to a copy");
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{error}");
        }
        let none = read(&[]).expect_err("nothing to copy");
        assert_eq!(none.kind(), ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn every_argument_of_a_copy_is_known() {
        let command = Cli::command();
        command.clone().debug_assert();
        let local = command.get_arguments().filter(|it| !it.is_global_set());
        let ids: Vec<_> = local.map(|it| it.get_id().as_str()).collect();
        assert_eq!(ids, CopyOptions::IDS);
    }
}
