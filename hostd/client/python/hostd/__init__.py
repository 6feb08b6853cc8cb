"""Queue pairs over many paths, by the daemon hostd.

The words are those of libibverbs. Memory of a region is reached in place, as a memoryview or as an array
of numpy; bytes are sent from there and received into it without a copy in this process. Errors are
exceptions; time-outs are seconds, and ``None`` has no end. Objects are given back by ``close`` or at the
end of a ``with``.
"""

from ._completion import Completion, CompletionQueue, Opcode
from ._context import Context, Gid, Limits
from ._errors import (
    Busy,
    Cause,
    Closed,
    ConnectFailed,
    DaemonGone,
    Disconnected,
    Error,
    GroupFailed,
    NoDaemon,
    QueueFull,
    Reason,
    Refused,
    RequestFailed,
    Status,
    TimedOut,
)
from ._group import Group, GroupRequest, Op, Type
from ._library import VERSION
from ._listener import Listener, Request
from ._memory import Access, Piece, Region
from ._queue_pair import Congestion, Connected, QueuePair, Service

__version__ = VERSION

__all__ = [
    "Access",
    "Busy",
    "Cause",
    "Closed",
    "Completion",
    "CompletionQueue",
    "ConnectFailed",
    "Congestion",
    "Connected",
    "Context",
    "DaemonGone",
    "Disconnected",
    "Error",
    "Gid",
    "Group",
    "GroupFailed",
    "GroupRequest",
    "Limits",
    "Listener",
    "NoDaemon",
    "Op",
    "Opcode",
    "Piece",
    "QueueFull",
    "QueuePair",
    "Reason",
    "Refused",
    "Region",
    "Request",
    "RequestFailed",
    "Service",
    "Status",
    "TimedOut",
    "Type",
    "VERSION",
]
