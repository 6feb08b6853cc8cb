//! Why a copy fails.

use crate::text::shown;
use std::path::PathBuf;

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
    /// The way to the other side, where `hostcp serve` waits.
    #[error("{peer}: {reason}")]
    Connect {
        /// Which.
        peer: std::net::SocketAddr,
        /// Why.
        reason: hostd_client::Error,
    },
    /// A work request failed.
    #[error("the transfer broke off: {}", .0.text())]
    Work(hostd_client::CompletionStatus),
    /// The other side does not keep to the protocol.
    #[error("the other side is no hostcp of this version: {0}")]
    Protocol(String),
    /// This side, which receives, refuses, or finds a fault.
    #[error("{}", shown(.0))]
    Here(String),
    /// The receiver refused, or found a fault.
    #[error("the receiver says: {}", shown(.0))]
    Receiver(String),
}
