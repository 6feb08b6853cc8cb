//! Results of functions: errors as numbers, the text of the last one, and panics that end here.

use hostd_client::group::{Cause, GroupError, Refusal};
use hostd_client::{Error, ErrorCode};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `HOSTD_ERR_ARGUMENT`.
pub(crate) const ARGUMENT: c_int = -1;
/// `HOSTD_ERR_HANDLE`.
pub(crate) const HANDLE: c_int = -2;
/// `HOSTD_ERR_BUSY`.
pub(crate) const BUSY: c_int = -3;
/// `HOSTD_ERR_TIMED_OUT`.
pub(crate) const TIMED_OUT: c_int = -6;
/// `HOSTD_ERR_DEFECT`.
pub(crate) const DEFECT: c_int = -16;
/// `HOSTD_ERR_REFUSED`, and the distance of the classes.
pub(crate) const REFUSED: c_int = -100;
/// `HOSTD_ERR_CONNECT`.
pub(crate) const CONNECT: c_int = -200;
/// `HOSTD_ERR_DISCONNECTED`.
pub(crate) const DISCONNECTED: c_int = -300;
/// `HOSTD_ERR_GROUP`.
pub(crate) const GROUP: c_int = -400;

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
    /// The member whose doing it is.
    rank: Option<usize>,
}

/// What a function comes to: zero or a count, or why not.
pub(crate) type Outcome = Result<c_int, Failure>;

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        let (text, rank) = (text.into(), None);
        Self { code, text, rank }
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

/// The number of an error of the library.
fn code_of(error: &Error) -> c_int {
    match error {
        Error::NoDaemon { .. } => -4,
        Error::DaemonGone => -5,
        Error::TimedOut => TIMED_OUT,
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
        // No function of this library is a member of a job in a switch.
        Error::Collective { .. } => DEFECT,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code_of(&error), error.to_string())
    }
}

/// The number of a cause (`enum hostd_cause`).
pub(crate) fn cause_of(cause: &Cause) -> c_int {
    match cause {
        Cause::Lost => 0,
        Cause::Left => 1,
        Cause::Late => 2,
        Cause::Missing => 3,
        Cause::Mismatch { .. } => 4,
        Cause::Abandoned => 5,
        Cause::Protocol => 6,
        Cause::Unable => 13,
    }
}

/// The number of why a member does not join: behind the causes.
pub(crate) fn refusal_of(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::NoSuchRank => 7,
        Refusal::RankTaken => 8,
        Refusal::Size => 9,
        Refusal::Segment => 10,
        Refusal::Version => 11,
    }
}

/// `HOSTD_CAUSE_WORK`.
const WORK: c_int = 12;

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        let (code, rank) = match &error {
            GroupError::Failed(failure) => (GROUP - cause_of(&failure.cause), Some(failure.rank)),
            GroupError::Host(own) => (code_of(own), None),
            GroupError::Work(_) => (GROUP - WORK, None),
            GroupError::Argument(_) => (ARGUMENT, None),
            GroupError::Refused(refusal) => (GROUP - refusal_of(*refusal), None),
        };
        let text = error.to_string();
        Self { code, text, rank }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static KEPT: RefCell<CString> = RefCell::default();
    static RANK: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The member that the last error of this thread names, or -1.
pub(crate) fn last_rank() -> c_int {
    let rank = RANK.try_with(Cell::get).ok().flatten();
    rank.and_then(|rank| c_int::try_from(rank).ok())
        .unwrap_or(-1)
}

/// What [`answer`] was told last in this thread.
pub(crate) fn last() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ptr());
    text.unwrap_or(c"".as_ptr())
}

/// Keeps another text for this thread, until the next one.
pub(crate) fn keep(text: String) -> *const c_char {
    let text = terminated(text);
    let kept = KEPT.try_with(|kept| {
        *kept.borrow_mut() = text;
        kept.borrow().as_ptr()
    });
    kept.unwrap_or(c"".as_ptr())
}

fn terminated(text: String) -> CString {
    let mut bytes = text.into_bytes();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).expect("no zeros are left")
}

fn remember(failure: Failure) {
    let text = terminated(failure.text);
    // A thread that is just ending asks no more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    let _ = RANK.try_with(|rank| rank.set(failure.rank));
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
            let code = failure.code;
            remember(failure);
            code
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
        GROUP => c"the group has failed, or there is none",
        ARGUMENT => c"a null pointer, or a value that cannot be",
        HANDLE => c"not the handle of such an object, or it was given back",
        BUSY => c"another thread is in a call with the object, or a collective is under way",
        -4 => c"cannot reach hostd",
        -5 => c"hostd is gone, or does not answer",
        TIMED_OUT => c"timed out",
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
            class @ (REFUSED | CONNECT | DISCONNECTED | GROUP) if reason_of(error).is_some() => {
                class
            }
            _ => 0,
        },
    }
}

/// The reason in an error of a class; of groups the cause.
pub(crate) fn reason_of(error: c_int) -> Option<c_int> {
    let reason = -(error % 100);
    let known = match error {
        _ if (DISCONNECTED - 99..=REFUSED).contains(&error) => reason_text(reason),
        _ if (GROUP - 99..=GROUP).contains(&error) => cause_text(reason),
        _ => None,
    };
    known.map(|_| reason)
}

/// What a reason means.
pub(crate) fn reason_text(reason: c_int) -> Option<&'static CStr> {
    let index = usize::try_from(reason).ok()?;
    REASONS.get(index).copied()
}

/// What a cause means.
pub(crate) fn cause_text(cause: c_int) -> Option<&'static CStr> {
    let index = usize::try_from(cause).ok()?;
    CAUSES.get(index).copied()
}

/// By number: of [`cause_of`], of [`refusal_of`], and [`WORK`].
const CAUSES: [&CStr; 13] = [
    c"a member is lost: it, its host or the way to it",
    c"a member has left the group",
    c"a member is late: the others waited for it in vain",
    c"a member did not join in time",
    c"a member calls something else than the others",
    c"a member gave a collective up that was under way",
    c"a member sent what no member sends",
    c"the group has no such rank",
    c"another member has this rank",
    c"the group has another size",
    c"the group has segments of another length",
    c"no group waits there, or it speaks another version",
    c"a work request of this member failed",
];

/// By number; a test compares them with those of the library.
const REASONS: [&CStr; 22] = [
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
    c"the peer used memory that it may not use",
    c"the peer sent a request that is not possible",
    c"a request of this side failed: its completion says how",
];

#[cfg(test)]
mod tests {
    use super::{
        CONNECT, DEFECT, DISCONNECTED, Failure, GROUP, REFUSED, answer, cause_text, class,
        error_text, last, last_rank, reason_of, reason_text,
    };
    use hostd_client::group::{Cause, GroupError, Refusal};
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
            ErrorCode::Access,
            ErrorCode::InvalidRequest,
            ErrorCode::RequestFailed,
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
        assert_eq!(reason_text(22), None);
        for other in [0, 7, -1, -16, -17, -99, -122, -199, -413, -500, i32::MIN] {
            assert_eq!(reason_of(other), None, "{other}");
        }
        for other in [0, 7, -17, -99, -122, -413, -500, i32::MIN, i32::MAX] {
            assert_eq!(class(other), 0, "{other}");
        }
        assert_eq!(error_text(-17), c"unknown error");
        assert_eq!(error_text(-104), c"hostd refused");
    }

    /// HT-50: the failure of a group is an error with its cause, and the rank is told beside it.
    #[test]
    fn a_failed_group_names_the_rank() {
        let cause = Cause::Late;
        let failed = GroupError::Failed(hostd_client::group::Failure { rank: 3, cause });
        let text = failed.to_string();
        assert_eq!(answer(|| Err(failed.into())), GROUP - 2);
        assert_eq!((last_rank(), last_text()), (3, text));
        assert_eq!((class(GROUP - 2), reason_of(GROUP - 2)), (GROUP, Some(2)));
        let refused = GroupError::Refused(Refusal::RankTaken);
        assert_eq!(answer(|| Err(refused.into())), GROUP - 8);
        assert_eq!(last_rank(), -1, "nobody's doing");
        let gone = GroupError::from(Error::DaemonGone);
        assert_eq!(answer(|| Err(gone.into())), -5);
        for number in 0..13 {
            assert!(cause_text(number).is_some(), "{number}");
        }
        assert_eq!((cause_text(13), cause_text(-1)), (None, None));
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
