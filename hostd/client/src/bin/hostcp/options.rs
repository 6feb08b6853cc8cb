//! What the command line says of a copy, and of a receiver.

use std::path::PathBuf;

use clap::Args;

/// The port that receivers listen on by default.
pub(crate) const PORT: u16 = 18_516;

/// What to copy.
#[derive(Debug, Args)]
pub(crate) struct CopyOptions {
    /// The file.
    #[arg(required = true)]
    pub(crate) source: Option<PathBuf>,
    /// Where to: HOST:PATH, with an IPv6 address in brackets: `[fd00:2:4::2]:PATH`; they may be
    /// left out where it is clear that the address ends. PATH is relative to the receiver's root,
    /// and may name a folder.
    #[arg(required = true)]
    pub(crate) target: Option<String>,
    /// Port of the receiver.
    #[arg(long, default_value_t = PORT)]
    pub(crate) port: u16,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl CopyOptions {
    /// Names of the arguments.
    pub(crate) const IDS: [&str; 4] = ["source", "target", "port", "quiet"];
}

/// How to receive.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Port to listen on.
    #[arg(long, default_value_t = PORT)]
    pub(crate) port: u16,
    /// Folder that files are placed in, and never outside of.
    #[arg(long, default_value = ".")]
    pub(crate) root: PathBuf,
    /// End after one file.
    #[arg(long)]
    pub(crate) once: bool,
}
