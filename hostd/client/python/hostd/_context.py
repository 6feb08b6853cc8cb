"""Sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

from ._completion import CompletionQueue
from ._errors import address_text, check
from ._group import Group
from ._library import ffi, lib
from ._listener import Listener
from ._memory import Access, Region
from ._objects import Object, create, milliseconds
from ._queue_pair import QueuePair


class Limits(NamedTuple):
    """What hostd allows (``struct hostd_limits``)."""

    memory: int
    message: int
    queue_pairs: int


@dataclass(frozen=True)
class Gid:
    """An address of hostd's interface (``struct hostd_gid``)."""

    address: str
    index: int
    prefix_len: int
    active: bool


class Context(Object):
    """A session with hostd: at the socket ``path``, or where ``HOSTD_SOCKET`` says, or
    ``/run/hostd/hostd.sock``. Waits ``timeout`` seconds for a daemon that is not there.

    :raises NoDaemon: none answers; Refused: it does not let this user in.
    """

    def __init__(self, path: Optional[str] = None, timeout: float = 0.0) -> None:
        name: Any = ffi.NULL if path is None else path.encode()
        handle = create("context", lambda out: lib.hostd_open(name, milliseconds(timeout), out))
        super().__init__("context", handle, lib.hostd_close)

    def limits(self) -> Limits:
        """What hostd allows this application."""
        out = ffi.new("struct hostd_limits *")
        check(lib.hostd_query_limits(self._handle, out))
        return Limits(out.memory, out.message, out.queue_pairs)

    def gids(self) -> List[Gid]:
        """The addresses of hostd's interface."""
        count = check(lib.hostd_query_gids(self._handle, ffi.NULL, 0))
        out = ffi.new("struct hostd_gid[]", count)
        count = min(count, check(lib.hostd_query_gids(self._handle, out, count)))
        return [
            Gid(address_text(gid.address), gid.index, gid.prefix_len, bool(gid.active))
            for gid in out[0:count]
        ]

    def allocate(self, length: int, access: Access = Access.LOCAL_WRITE) -> Region:
        """Allocates and registers memory of zero bytes.

        :raises Refused: more than the quota, or flags that do not go together.
        """
        return Region(self._handle, length, access)

    def completion_queue(self, entries: int = 64) -> CompletionQueue:
        """A completion queue, with a place for each request that may be outstanding."""
        return CompletionQueue(self._handle, entries)

    def queue_pair(
        self,
        send: CompletionQueue,
        receive: Optional[CompletionQueue] = None,
        *,
        max_send_wr: int = 64,
        max_recv_wr: int = 64,
    ) -> QueuePair:
        """A queue pair whose sends complete in ``send``, and its receives, too, or in ``receive``."""
        return QueuePair(self._handle, send, receive or send, max_send_wr, max_recv_wr)

    def listen(self, port: int = 0, address: Optional[str] = None, backlog: int = 16) -> Listener:
        """Waits for connections to a port; zero lets hostd choose."""
        return Listener(self._handle, port, address, backlog)

    def group(
        self,
        rank: int,
        size: int,
        root: Union[Tuple[str, int], Listener],
        *,
        deterministic: bool = False,
        join_timeout: float = 30.0,
        timeout: float = 30.0,
        again: Optional[float] = 1.0,
        agree: Optional[Callable[[bool], Optional[int]]] = None,
    ) -> Group:
        """Forms a group as rank 0, or joins it, and waits until all members have joined. ``root`` is the
        address of rank 0's host and the port where it waits, the same at all members; or at rank 0 a
        listener, which is used up. With ``deterministic`` it reduces in the order of the ranks. Without it
        switches add in the order of arrival: all members have the same bits, but sums and products of floats
        may differ in the last ones from call to call. ``again``, of rank 0: for how many seconds a group that
        the switches failed stays between the hosts before it tries them again, twice as long after each
        attempt in vain, up to 64 times; None: for ever.

        Members that can tell one another something by other means do so in ``agree``, so that nobody waits for
        one that cannot come. It is called once, unless ``root`` is wrong, before anybody waits: with whether
        this member has what it needs of its own hostd. It waits for the others, and returns the lowest rank
        that has not, or None. All members or none have it, and rank 0 a listener then.

        :raises GroupFailed: a member did not join in time or is not able to, or rank 0 does not take this one.
        """
        return Group(self._handle, rank, size, root, deterministic, join_timeout, timeout, again, agree)
