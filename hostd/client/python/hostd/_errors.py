"""What can go wrong, as exceptions."""

from __future__ import annotations

import enum
from typing import Any

from ._library import ffi, lib, text


class Reason(enum.IntEnum):
    """Why a request was refused or a connection ended (``enum hostd_reason``)."""

    CLOSED = lib.HOSTD_REASON_CLOSED
    BAD_MESSAGE = lib.HOSTD_REASON_BAD_MESSAGE
    BAD_VERSION = lib.HOSTD_REASON_BAD_VERSION
    NOT_PERMITTED = lib.HOSTD_REASON_NOT_PERMITTED
    QUOTA = lib.HOSTD_REASON_QUOTA
    NOT_FOUND = lib.HOSTD_REASON_NOT_FOUND
    INVALID_ARGUMENT = lib.HOSTD_REASON_INVALID_ARGUMENT
    INVALID_STATE = lib.HOSTD_REASON_INVALID_STATE
    BAD_MEMORY = lib.HOSTD_REASON_BAD_MEMORY
    ADDRESS_IN_USE = lib.HOSTD_REASON_ADDRESS_IN_USE
    UNREACHABLE = lib.HOSTD_REASON_UNREACHABLE
    REJECTED = lib.HOSTD_REASON_REJECTED
    TIMED_OUT = lib.HOSTD_REASON_TIMED_OUT
    SHUTTING_DOWN = lib.HOSTD_REASON_SHUTTING_DOWN
    INTERNAL = lib.HOSTD_REASON_INTERNAL
    PROTOCOL = lib.HOSTD_REASON_PROTOCOL
    REFUSED = lib.HOSTD_REASON_REFUSED
    IN_USE = lib.HOSTD_REASON_IN_USE
    BUSY = lib.HOSTD_REASON_BUSY
    ACCESS = lib.HOSTD_REASON_ACCESS
    INVALID_REQUEST = lib.HOSTD_REASON_INVALID_REQUEST
    REQUEST_FAILED = lib.HOSTD_REASON_REQUEST_FAILED


class Status(enum.IntEnum):
    """How a request ended (``enum hostd_wc_status``)."""

    SUCCESS = lib.HOSTD_WC_SUCCESS
    LOC_LEN_ERR = lib.HOSTD_WC_LOC_LEN_ERR
    LOC_QP_OP_ERR = lib.HOSTD_WC_LOC_QP_OP_ERR
    LOC_PROT_ERR = lib.HOSTD_WC_LOC_PROT_ERR
    WR_FLUSH_ERR = lib.HOSTD_WC_WR_FLUSH_ERR
    MW_BIND_ERR = lib.HOSTD_WC_MW_BIND_ERR
    LOC_ACCESS_ERR = lib.HOSTD_WC_LOC_ACCESS_ERR
    REM_INV_REQ_ERR = lib.HOSTD_WC_REM_INV_REQ_ERR
    REM_ACCESS_ERR = lib.HOSTD_WC_REM_ACCESS_ERR
    REM_OP_ERR = lib.HOSTD_WC_REM_OP_ERR
    RETRY_EXC_ERR = lib.HOSTD_WC_RETRY_EXC_ERR
    RNR_RETRY_EXC_ERR = lib.HOSTD_WC_RNR_RETRY_EXC_ERR
    FATAL_ERR = lib.HOSTD_WC_FATAL_ERR
    GENERAL_ERR = lib.HOSTD_WC_GENERAL_ERR


class Cause(enum.IntEnum):
    """Why a group has failed, or did not form (``enum hostd_cause``)."""

    LOST = lib.HOSTD_CAUSE_LOST
    LEFT = lib.HOSTD_CAUSE_LEFT
    LATE = lib.HOSTD_CAUSE_LATE
    MISSING = lib.HOSTD_CAUSE_MISSING
    MISMATCH = lib.HOSTD_CAUSE_MISMATCH
    ABANDONED = lib.HOSTD_CAUSE_ABANDONED
    PROTOCOL = lib.HOSTD_CAUSE_PROTOCOL
    NO_SUCH_RANK = lib.HOSTD_CAUSE_NO_SUCH_RANK
    RANK_TAKEN = lib.HOSTD_CAUSE_RANK_TAKEN
    SIZE = lib.HOSTD_CAUSE_SIZE
    SEGMENT = lib.HOSTD_CAUSE_SEGMENT
    VERSION = lib.HOSTD_CAUSE_VERSION
    WORK = lib.HOSTD_CAUSE_WORK
    UNABLE = lib.HOSTD_CAUSE_UNABLE


class Error(Exception):
    """A call failed. ``code`` is the number of ``enum hostd_error``, ``reason`` what hostd or the
    peer said, if it did."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        # Of groups it is a cause, which has its own exception.
        of_group = lib.hostd_error_class(code) == lib.HOSTD_ERR_GROUP
        reason = -1 if of_group else lib.hostd_error_reason(code)
        self.reason: Reason | None = None if reason < 0 else Reason(reason)


class NoDaemon(Error):
    """No hostd answers at the socket."""


class DaemonGone(Error):
    """hostd ended, or threw the application out."""


class TimedOut(Error, TimeoutError):
    """The time given to the call is over."""


class QueueFull(Error):
    """The queue holds as many requests as it was made for."""


class Closed(Error):
    """The object was closed."""


class Busy(Error):
    """Another thread is in a call with the object, or a collective of the group is under way."""


class Refused(Error):
    """hostd refused; ``reason`` says why."""


class ConnectFailed(Error):
    """A connection did not come about. ``private`` is what the peer gave to ``reject``, with zeros
    behind it, ``rej`` the code of its message."""

    private: bytes = b""
    rej: int = 0


class Disconnected(Error):
    """The connection has ended; ``reason`` says why."""


class GroupFailed(Error):
    """A group has failed, or did not form: ``cause`` says why, ``rank`` whose doing it is, if it is
    a member's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.cause = Cause(lib.hostd_error_reason(code))
        rank = lib.hostd_last_rank()
        self.rank: int | None = None if rank < 0 else rank


class RequestFailed(Error):
    """A work request failed. ``completion`` has its name, ``status`` what went wrong."""

    def __init__(self, completion: Any) -> None:
        status = text(lib.hostd_wc_status_str(completion.status))
        super().__init__(0, f"request {completion.wr_id}: {status}")
        self.completion = completion
        self.status: Status = completion.status


_KINDS: dict[int, type[Error]] = {
    lib.HOSTD_ERR_HANDLE: Closed,
    lib.HOSTD_ERR_BUSY: Busy,
    lib.HOSTD_ERR_NO_DAEMON: NoDaemon,
    lib.HOSTD_ERR_DAEMON_GONE: DaemonGone,
    lib.HOSTD_ERR_TIMED_OUT: TimedOut,
    lib.HOSTD_ERR_QUEUE_FULL: QueueFull,
    lib.HOSTD_ERR_REFUSED: Refused,
    lib.HOSTD_ERR_CONNECT: ConnectFailed,
    lib.HOSTD_ERR_DISCONNECTED: Disconnected,
    lib.HOSTD_ERR_GROUP: GroupFailed,
}


def check(result: int) -> int:
    """What a function of the library returned, unless it is an error.

    :raises Error: the library's error, as the exception for its class.
    """
    if result >= 0:
        return result
    kind = _KINDS.get(lib.hostd_error_class(result), Error)
    raise kind(result, text(lib.hostd_last_error()))


def address_text(array: Any) -> str:
    """An address in a structure of the library."""
    return str(ffi.string(array), "ascii")
