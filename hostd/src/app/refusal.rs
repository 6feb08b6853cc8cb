//! Why an application does not get what it asks for.

use hostd_client::abi::answer::Reply;
use hostd_client::abi::types::ErrorCode;
use hostd_client::shm::MemoryError;

/// A refusal, on its way to becoming an error reply.
#[derive(Debug)]
pub struct Refusal {
    /// For programs.
    pub code: ErrorCode,
    text: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Refusal {
    /// Refuses with a code and a text for people.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// Refuses memory; `what` it was to be.
    pub fn memory(what: &str, error: MemoryError) -> Self {
        Self::new(ErrorCode::BadMemory, format!("{what}: {error}"))
    }

    /// The daemon ends.
    pub fn gone() -> Self {
        Self::new(ErrorCode::ShuttingDown, ErrorCode::ShuttingDown.text())
    }

    /// The reply.
    pub fn into_reply(self) -> Reply {
        Reply::error(self.code, self.text)
    }
}

impl From<nix::errno::Errno> for Refusal {
    fn from(error: nix::errno::Errno) -> Self {
        Self::new(
            ErrorCode::Internal,
            format!("hostd lacks a resource: {error}"),
        )
    }
}
