"""Connections that others ask for."""

from __future__ import annotations

from typing import Any, Optional

from ._errors import Closed, Error, TimedOut, address_text, check
from ._library import ffi, lib
from ._objects import Object, create, in_slices, milliseconds, or_none
from ._queue_pair import Connected, QueuePair, connected_by


class Listener(Object):
    """A port on which connections are waited for (``rdma_listen``)."""

    def __init__(self, context: Any, port: int, address: Optional[str], backlog: int) -> None:
        name: Any = ffi.NULL if address is None else address.encode()
        handle = create("listener", lambda out: lib.hostd_listen(context, name, port, backlog, out))
        super().__init__("listener", handle, lib.hostd_destroy_listener)
        self.port: int = check(lib.hostd_listener_port(handle))

    def get_request(self, timeout: Optional[float] = None) -> "Request":
        """Waits for a peer that wants to connect.

        :raises TimedOut: none came.
        """
        out = ffi.new("struct hostd_request **")
        call = lambda ms: lib.hostd_get_request(self._handle, ms, out)  # noqa: E731
        if in_slices(timeout, lambda left: or_none(call, left)) is None:
            raise TimedOut(lib.HOSTD_ERR_TIMED_OUT, "nobody asks for a connection")
        return Request(out[0])


class Request:
    """A peer that wants to connect. It is accepted or rejected once; one that nobody answers is
    rejected when nothing refers to it any more."""

    def __init__(self, handle: Any) -> None:
        attr = ffi.new("struct hostd_request_attr *")
        check(lib.hostd_query_request(handle, attr))
        self._handle: Any = ffi.gc(handle, lambda it: lib.hostd_reject(it, ffi.NULL, 0))
        self.peer: str = address_text(attr.peer)
        self.private: bytes = bytes(ffi.buffer(attr.private_data, attr.private_len))

    def _take(self) -> Any:
        handle, self._handle = self._handle, None
        if handle is None:
            raise Closed(lib.HOSTD_ERR_HANDLE, "the request was answered")
        ffi.gc(handle, None)
        return handle

    def accept(
        self, queue_pair: QueuePair, private: bytes = b"", timeout: Optional[float] = None
    ) -> Connected:
        """Accepts, and waits until the connection stands."""
        pair, length, ms = queue_pair._handle, len(private), milliseconds(timeout)
        handle = self._take()
        try:
            return connected_by(lambda out: lib.hostd_accept(handle, pair, private, length, ms, out))
        except Error:
            # If the call itself was wrong, the peer waits still.
            lib.hostd_reject(handle, ffi.NULL, 0)
            raise

    def reject(self, private: bytes = b"") -> None:
        """Turns the peer down, which gets the private data."""
        check(lib.hostd_reject(self._take(), private, len(private)))
