//! Why a measurement fails.

use hostd_client::group::GroupError;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// hostd.
    #[error(transparent)]
    Transport(#[from] hostd_client::Error),
    /// The group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The options.
    #[error("{0}")]
    Usage(String),
    /// What came out is not what must.
    #[error("{wrong} members have a wrong result at {bytes} bytes")]
    Wrong {
        /// How many.
        wrong: usize,
        /// Bytes of the vector.
        bytes: usize,
    },
}
