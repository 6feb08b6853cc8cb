//! Texts for people: of the library, of errors, statuses and reasons.

use crate::failure::{cause_text, class, error_text, last, last_rank, reason_of, reason_text};
use std::ffi::{CStr, c_char, c_int};

/// The version, with the zero that C needs.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };

/// The version of the library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_version() -> *const c_char {
    VERSION.as_ptr()
}

/// What went wrong last in this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_last_error() -> *const c_char {
    last()
}

/// The member that the last error of this thread names.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_last_rank() -> c_int {
    last_rank()
}

/// What an error means.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_strerror(error: c_int) -> *const c_char {
    error_text(error).as_ptr()
}

/// What a reason means.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_reason_str(reason: c_int) -> *const c_char {
    reason_text(reason).unwrap_or(c"unknown reason").as_ptr()
}

/// What a cause means.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_cause_str(cause: c_int) -> *const c_char {
    cause_text(cause).unwrap_or(c"unknown cause").as_ptr()
}

/// What a status means.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_wc_status_str(status: u32) -> *const c_char {
    status_text(status).as_ptr()
}

/// The error without its reason.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_error_class(error: c_int) -> c_int {
    class(error)
}

/// The reason in an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_error_reason(error: c_int) -> c_int {
    reason_of(error).unwrap_or(-1)
}

fn status_text(status: u32) -> &'static CStr {
    match status {
        0 => c"success",
        1 => c"local length error",
        2 => c"local queue pair operation error",
        4 => c"local protection error: buffer outside of its region",
        5 => c"flushed: the connection ended first",
        6 => c"the memory window could not be bound",
        8 => c"the region of a receive forbids writing",
        9 => {
            c"the peer finds the request invalid: its receive is shorter than the message, or the address of an atomic operation is no multiple of 8"
        }
        10 => c"the peer refused access to its memory",
        11 => c"the peer failed to carry out the request",
        12 => c"the peer does not answer",
        13 => c"the peer posted no receive in time",
        19 => c"the transport failed",
        21 => c"general error",
        _ => c"unknown status",
    }
}

#[cfg(test)]
mod tests {
    use super::status_text;
    use hostd_client::CompletionStatus;

    /// HT-4: statuses have the texts of the library.
    #[test]
    fn statuses_are_those_of_the_library() {
        for status in [
            CompletionStatus::Success,
            CompletionStatus::LocalLength,
            CompletionStatus::LocalQpOperation,
            CompletionStatus::LocalProtection,
            CompletionStatus::Flushed,
            CompletionStatus::WindowBind,
            CompletionStatus::LocalAccess,
            CompletionStatus::RemoteInvalidRequest,
            CompletionStatus::RemoteAccess,
            CompletionStatus::RemoteOperation,
            CompletionStatus::RetryExceeded,
            CompletionStatus::RnrRetryExceeded,
            CompletionStatus::Fatal,
            CompletionStatus::General,
        ] {
            let text = status_text(u32::from(status as u16)).to_str();
            assert_eq!(text, Ok(status.text()), "{status:?}");
        }
        assert_eq!(status_text(3), c"unknown status");
    }
}
