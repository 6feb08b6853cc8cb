//! Results of functions: errors as numbers, the text of the last one, and panics that end here.

use hostd_client::{Error, ErrorCode};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `HOSTD_ERR_ARGUMENT`.
pub(crate) const ARGUMENT: c_int = -1;
/// `HOSTD_ERR_HANDLE`.
pub(crate) const HANDLE: c_int = -2;
/// `HOSTD_ERR_BUSY`.
pub(crate) const BUSY: c_int = -3;
/// `HOSTD_ERR_DEFECT`.
pub(crate) const DEFECT: c_int = -16;
/// `HOSTD_ERR_REFUSED`, and the distance of the classes.
pub(crate) const REFUSED: c_int = -100;
/// `HOSTD_ERR_CONNECT`.
pub(crate) const CONNECT: c_int = -200;
/// `HOSTD_ERR_DISCONNECTED`.
pub(crate) const DISCONNECTED: c_int = -300;

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

/// What a function comes to: zero or a count, or why not.
pub(crate) type Outcome = Result<c_int, Failure>;

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    /// A null pointer, or a value that cannot be.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(ARGUMENT, text)
    }
}

/// An error of a class, with its reason.
fn classed(class: c_int, reason: ErrorCode) -> c_int {
    class - c_int::try_from(reason as u32).expect("a reason is below 100")
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NoDaemon { .. } => -4,
            Error::DaemonGone => -5,
            Error::TimedOut => -6,
            Error::QueueFull => -7,
            Error::OutOfRange { .. } => -8,
            Error::AtomicLength(_) => -9,
            Error::SharedReceives => -10,
            Error::TooManyPieces(_) => -11,
            Error::NotInline(_) => -12,
            Error::Protocol(_) => -13,
            Error::Kernel { .. } => -14,
            Error::Memory(_) => -15,
            Error::Refused { code, .. } => classed(REFUSED, *code),
            Error::ConnectFailed { reason, .. } => classed(CONNECT, *reason),
            Error::Disconnected(reason) => classed(DISCONNECTED, *reason),
            // No function of this library begins a collective.
            Error::Collective { .. } => DEFECT,
        };
        Self::new(code, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// What [`answer`] was told last in this thread.
pub(crate) fn last() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ptr());
    text.unwrap_or(c"".as_ptr())
}

fn remember(text: String) {
    let mut bytes = text.into_bytes();
    bytes.retain(|byte| *byte != 0);
    let text = CString::new(bytes).expect("no zeros are left");
    // A thread that is just ending asks no more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// What a function returns: the number of `work`, or a negative error, whose text is remembered for
/// this thread. A panic in `work` goes no further.
pub(crate) fn answer(work: impl FnOnce() -> Outcome) -> c_int {
    // What `work` had in its hands is behind a lock, which is poisoned then.
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("a panic without text");
        Err(Failure::new(
            DEFECT,
            format!("a defect of libhostd: {text}"),
        ))
    });
    match outcome {
        Ok(count) => {
            debug_assert!(count >= 0, "{count} would be an error");
            count
        }
        Err(failure) => {
            remember(failure.text);
            failure.code
        }
    }
}

/// A count, as it is returned.
pub(crate) fn count(number: usize) -> Outcome {
    c_int::try_from(number).map_err(|_| Failure::argument(format!("{number} is too much")))
}

/// What an error means; texts of reasons by [`reason_text`].
pub(crate) fn error_text(error: c_int) -> &'static CStr {
    match class(error) {
        _ if error >= 0 => c"success",
        REFUSED => c"hostd refused",
        CONNECT => c"no connection",
        DISCONNECTED => c"the connection has ended",
        ARGUMENT => c"a null pointer, or a value that cannot be",
        HANDLE => c"not the handle of such an object, or it was given back",
        BUSY => c"another thread is in a call with the object",
        -4 => c"cannot reach hostd",
        -5 => c"hostd is gone",
        -6 => c"timed out",
        -7 => c"the work queue is full",
        -8 => c"outside of the memory region",
        -9 => c"an atomic operation needs one piece of 8 bytes",
        -10 => c"the queue pair has a shared receive queue: post receives there",
        -11 => c"more pieces of memory than a work request may have",
        -12 => c"cannot go inline",
        -13 => c"unexpected message from hostd",
        -14 => c"the kernel refused",
        -15 => c"shared memory could not be had",
        DEFECT => c"a defect of libhostd",
        _ => c"unknown error",
    }
}

/// The error without its reason, or zero.
pub(crate) fn class(error: c_int) -> c_int {
    match error {
        0.. => 0,
        DEFECT..0 => error,
        _ => match error / 100 * 100 {
            class @ (REFUSED | CONNECT | DISCONNECTED) if reason_of(error).is_some() => class,
            _ => 0,
        },
    }
}

/// The reason in an error of a class.
pub(crate) fn reason_of(error: c_int) -> Option<c_int> {
    let within = (DISCONNECTED - 99..=REFUSED).contains(&error);
    let reason = -(error % 100);
    (within && reason_text(reason).is_some()).then_some(reason)
}

/// What a reason means.
pub(crate) fn reason_text(reason: c_int) -> Option<&'static CStr> {
    let index = usize::try_from(reason).ok()?;
    REASONS.get(index).copied()
}

/// By number; a test compares them with those of the library.
const REASONS: [&CStr; 19] = [
    c"closed in good order",
    c"malformed request",
    c"version not understood",
    c"not permitted",
    c"quota exceeded",
    c"no such object",
    c"invalid argument",
    c"not possible in this state",
    c"memory cannot be registered",
    c"port already in use",
    c"no route to the address",
    c"the peer's application refused",
    c"the peer does not answer",
    c"hostd is shutting down",
    c"internal error of hostd",
    c"the rules of the protocol were broken",
    c"connection refused: nobody listens there",
    c"the object is in use",
    c"the peer takes no more connection requests at present",
];

#[cfg(test)]
mod tests {
    use super::{
        CONNECT, DEFECT, DISCONNECTED, Failure, REFUSED, answer, class, error_text, last,
        reason_of, reason_text,
    };
    use hostd_client::{Error, ErrorCode};
    use std::ffi::CStr;

    fn last_text() -> String {
        // SAFETY: the text of this thread, which no call replaces meanwhile.
        let text = unsafe { CStr::from_ptr(last()) };
        text.to_str().expect("text").to_owned()
    }

    /// HT-4: reasons have the numbers and the texts of the library.
    #[test]
    fn reasons_are_those_of_the_library() {
        for code in [
            ErrorCode::Closed,
            ErrorCode::BadMessage,
            ErrorCode::BadVersion,
            ErrorCode::NotPermitted,
            ErrorCode::Quota,
            ErrorCode::NotFound,
            ErrorCode::InvalidArgument,
            ErrorCode::InvalidState,
            ErrorCode::BadMemory,
            ErrorCode::AddressInUse,
            ErrorCode::Unreachable,
            ErrorCode::Rejected,
            ErrorCode::TimedOut,
            ErrorCode::ShuttingDown,
            ErrorCode::Internal,
            ErrorCode::Protocol,
            ErrorCode::Refused,
            ErrorCode::InUse,
            ErrorCode::Busy,
        ] {
            let number = code as i32;
            let text = reason_text(number).expect("a text").to_str();
            assert_eq!(text, Ok(code.text()));
            for class_of in [REFUSED, CONNECT, DISCONNECTED] {
                let error = class_of - number;
                assert_eq!(class(error), class_of, "{error}");
                assert_eq!(reason_of(error), Some(number), "{error}");
            }
        }
        assert_eq!(reason_text(19), None);
        for other in [0, 7, -1, -16, -17, -99, -119, -199, -400, i32::MIN] {
            assert_eq!(reason_of(other), None, "{other}");
        }
        for other in [0, 7, -17, -99, -119, -400, i32::MIN, i32::MAX] {
            assert_eq!(class(other), 0, "{other}");
        }
        assert_eq!(error_text(-17), c"unknown error");
        assert_eq!(error_text(-104), c"hostd refused");
    }

    /// HT-4: a panic does not cross the boundary; it is an error with its text.
    #[test]
    fn a_panic_ends_as_an_error() {
        let number = 4;
        assert_eq!(answer(|| panic!("invariant {number}")), DEFECT);
        assert_eq!(last_text(), "a defect of libhostd: invariant 4");
        assert_eq!(answer(|| panic!("plain")), DEFECT);
        assert_eq!(last_text(), "a defect of libhostd: plain");
        assert_eq!(answer(|| Ok(3)), 3);
        assert_eq!(last_text(), "a defect of libhostd: plain", "kept");
        let refused = || {
            let text = "more than \0 fits".to_owned();
            let code = ErrorCode::Quota;
            Err(Failure::from(Error::Refused { code, text }))
        };
        assert_eq!(answer(refused), -104);
        assert_eq!(last_text(), "hostd refused: more than  fits");
        std::thread::spawn(|| assert_eq!(last_text(), "", "of another thread"))
            .join()
            .expect("it ends");
    }
}
