//! What can go wrong for an application.

use crate::abi::codec::DecodeError;
use crate::abi::collective::FailureReason;
use crate::abi::ring::RingFault;
use crate::abi::types::{ErrorCode, Private};
use crate::shm::MemoryError;
use nix::errno::Errno;
use std::path::{Path, PathBuf};

/// Why nobody answers at a socket, for who started the application.
fn no_daemon(path: &Path, reason: Errno) -> String {
    let why = match reason {
        _ if path.as_os_str().is_empty() => return ": the path of its socket is empty".to_owned(),
        Errno::ENOENT => "the socket does not exist: is hostd running?",
        Errno::ECONNREFUSED => "nobody listens there: is hostd running?",
        Errno::EACCES => "no permission: see application.groups in hostd's configuration",
        other => other.desc(),
    };
    format!(" at {}: {why}", path.display())
}

fn of_rank(rank: Option<u16>) -> String {
    rank.map_or_else(String::new, |rank| format!(" because of rank {rank}"))
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No daemon answers at the socket.
    #[error("cannot reach hostd{}", no_daemon(path, *reason))]
    NoDaemon {
        /// Path of the socket.
        path: PathBuf,
        /// What the kernel says.
        reason: Errno,
    },
    /// The daemon ended, threw the application out, or did not answer for ten seconds.
    #[error("hostd is gone, or does not answer: the connection to it has ended")]
    DaemonGone,
    /// The time given to the call is over.
    #[error("timed out")]
    TimedOut,
    /// The daemon refused the request, or the library for it.
    #[error("hostd refused: {text}")]
    Refused {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        text: String,
    },
    /// A connection did not come about.
    #[error("no connection: {}", reason.text())]
    ConnectFailed {
        /// Why.
        reason: ErrorCode,
        /// Reason code of the peer's REJ message, zero without one.
        rej: u16,
        /// What the peer's application gave to [`crate::ConnectRequest::reject`], with zeros behind
        /// it: a REJ does not say how long its data is. Empty, or zeros, for any other reason.
        private: Private,
    },
    /// The connection has ended.
    #[error("the connection has ended: {}", .0.text())]
    Disconnected(ErrorCode),
    /// A collective that switches compute failed, and the membership with it.
    #[error(
        "the collective failed{}: {}; {done} bytes of the result are in place",
        of_rank(*rank),
        reason.text()
    )]
    Collective {
        /// Why.
        reason: FailureReason,
        /// Rank in the whole job of the member that is to blame, if one is.
        rank: Option<u16>,
        /// Bytes of the output, from its beginning on, that are the result. What is behind them is
        /// as it was before.
        done: u32,
    },
    /// The ring holds as many requests as it was made for.
    #[error("the work queue is full")]
    QueueFull,
    /// An atomic operation returns 8 bytes, and its local slice has another length.
    #[error("an atomic operation returns 8 bytes, and there is room for {0}")]
    AtomicLength(u32),
    /// The queue pair takes its receives from a shared receive queue.
    #[error("the queue pair has a shared receive queue: post receives there")]
    SharedReceives,
    /// A work request has more pieces of memory than [`crate::QueuePair::SGE_MAX`].
    #[error("{0} pieces of memory are more than a work request may have")]
    TooManyPieces(usize),
    /// So many bytes cannot go inline, or the request is answered with data.
    #[error("{0} bytes cannot go inline with this request")]
    NotInline(usize),
    /// A range is not inside its region.
    #[error("{len} bytes at {offset} are outside of a region of {region} bytes")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// The daemon sent something that this version does not understand.
    #[error("unexpected message from hostd: {0}")]
    Protocol(String),
    /// The kernel refused.
    #[error("{what}: {reason}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
        reason: Errno,
    },
    /// Shared memory could not be had.
    #[error("shared memory: {0}")]
    Memory(#[from] MemoryError),
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl From<RingFault> for Error {
    fn from(error: RingFault) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl Error {
    /// A request that the daemon would refuse for what it says.
    pub(crate) fn argument(text: &str) -> Self {
        Self::Refused {
            code: ErrorCode::InvalidArgument,
            text: text.to_owned(),
        }
    }

    pub(crate) fn kernel(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |reason| Self::Kernel { what, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::Error;
    use nix::errno::Errno;

    /// Without a daemon an application says which socket it tried, and why nobody answered.
    #[test]
    fn a_daemon_that_does_not_run_is_asked_for() {
        for (reason, words) in [
            (
                Errno::ENOENT,
                "the socket does not exist: is hostd running?",
            ),
            (
                Errno::ECONNREFUSED,
                "nobody listens there: is hostd running?",
            ),
            (Errno::EACCES, "no permission: see application.groups"),
            (Errno::ENOTSOCK, "Socket operation on non-socket"),
        ] {
            let path = "/run/x".into();
            let text = Error::NoDaemon { path, reason }.to_string();
            let start = format!("cannot reach hostd at /run/x: {words}");
            assert!(text.starts_with(&start), "{text}");
        }
    }
}
