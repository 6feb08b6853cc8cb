"""Completion queues."""

from __future__ import annotations

import enum
from typing import Any, List, NamedTuple, Optional

from ._errors import RequestFailed, Status, TimedOut, check
from ._library import ffi, lib
from ._objects import Object, create, in_slices


class Opcode(enum.IntEnum):
    """What a request was (``enum hostd_wc_opcode``)."""

    SEND = lib.HOSTD_WC_SEND
    RDMA_WRITE = lib.HOSTD_WC_RDMA_WRITE
    RDMA_READ = lib.HOSTD_WC_RDMA_READ
    COMP_SWAP = lib.HOSTD_WC_COMP_SWAP
    FETCH_ADD = lib.HOSTD_WC_FETCH_ADD
    BIND_MW = lib.HOSTD_WC_BIND_MW
    LOCAL_INV = lib.HOSTD_WC_LOCAL_INV
    RECV = lib.HOSTD_WC_RECV
    RECV_RDMA_WITH_IMM = lib.HOSTD_WC_RECV_RDMA_WITH_IMM


class Completion(NamedTuple):
    """The end of a request (``struct hostd_wc``)."""

    wr_id: int
    status: Status
    #: Undefined unless the status is success.
    opcode: Opcode
    #: Bytes received, or written by the peer.
    byte_len: int
    #: Immediate data of the peer.
    immediate: Optional[int]
    #: ``QueuePair.id``
    queue_pair: int

    def check(self) -> "Completion":
        """The same, if the request succeeded.

        :raises RequestFailed: it did not.
        """
        if self.status is not Status.SUCCESS:
            raise RequestFailed(self)
        return self


class CompletionQueue(Object):
    """Where requests report their end (``ibv_cq``). One thread at a time uses it."""

    def __init__(self, context: Any, entries: int) -> None:
        handle = create("cq", lambda out: lib.hostd_create_cq(context, entries, out))
        super().__init__("completion queue", handle, lib.hostd_destroy_cq)
        self._room: Any = ffi.new("struct hostd_wc[]", 16)

    def poll(self, most: int = 16) -> List[Completion]:
        """Completions that are there, oldest first."""
        if most > len(self._room):
            self._room = ffi.new("struct hostd_wc[]", most)
        count = check(lib.hostd_poll_cq(self._handle, most, self._room))
        return [_completion(self._room[at]) for at in range(count)]

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits for a completion; false when the seconds are over."""
        wait = lambda left: check(lib.hostd_wait_cq(self._handle, left)) or None  # noqa: E731
        return in_slices(timeout, wait) is not None

    def next(self, timeout: Optional[float] = None) -> Completion:
        """The oldest completion, waiting for it.

        :raises TimedOut: there is none.
        """
        while True:
            for completion in self.poll(1):
                return completion
            if not self.wait(timeout):
                raise TimedOut(lib.HOSTD_ERR_TIMED_OUT, "nothing completed in time")

    def arm(self, solicited_only: bool = False) -> bool:
        """Asks that ``fileno`` becomes readable with the next completion. True if there is one already;
        then nothing was asked."""
        return check(lib.hostd_req_notify_cq(self._handle, int(solicited_only))) == 1

    def fileno(self) -> int:
        """A descriptor for select, poll or an event loop, after ``arm``."""
        return check(lib.hostd_cq_fd(self._handle))


def _completion(wc: Any) -> Completion:
    status = Status(wc.status)
    return Completion(
        wr_id=wc.wr_id,
        status=status,
        opcode=Opcode(wc.opcode),
        byte_len=wc.byte_len,
        immediate=wc.imm_data if wc.wc_flags & lib.HOSTD_WC_WITH_IMM else None,
        queue_pair=wc.qp_id,
    )
