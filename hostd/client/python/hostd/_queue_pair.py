"""Queue pairs."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Optional, Sequence, Union

from ._completion import CompletionQueue
from ._errors import ConnectFailed, Error, Reason, TimedOut, address_text, check
from ._library import ffi, lib
from ._memory import Piece
from ._objects import Object, create, in_slices, milliseconds, or_none

#: One piece of memory, several of them, or bytes that go inline.
Data = Union[Piece, Sequence[Piece], bytes]


class Service(enum.IntEnum):
    """In which order messages are given out (``enum hostd_service``)."""

    ORDERED = lib.HOSTD_SERVICE_ORDERED
    UNORDERED = lib.HOSTD_SERVICE_UNORDERED
    IDEMPOTENT = lib.HOSTD_SERVICE_IDEMPOTENT


class Congestion(enum.IntEnum):
    """What steers how fast a queue pair sends (``enum hostd_congestion``)."""

    AUTO = lib.HOSTD_CONGESTION_AUTO
    FIXED = lib.HOSTD_CONGESTION_FIXED
    NSCC = lib.HOSTD_CONGESTION_NSCC
    SWIFT = lib.HOSTD_CONGESTION_SWIFT
    SWIFT_CSIG = lib.HOSTD_CONGESTION_SWIFT_CSIG
    DCTCP = lib.HOSTD_CONGESTION_DCTCP
    DCQCN = lib.HOSTD_CONGESTION_DCQCN
    TIMELY = lib.HOSTD_CONGESTION_TIMELY
    POSEIDON = lib.HOSTD_CONGESTION_POSEIDON
    HPCC = lib.HOSTD_CONGESTION_HPCC
    RTTCC = lib.HOSTD_CONGESTION_RTTCC


class Connected(NamedTuple):
    """What was agreed on with the peer (``struct hostd_connected``)."""

    peer: str
    #: Private data of the peer's application.
    private: bytes
    #: Payload bytes of a packet.
    mtu: int
    #: Sub-paths in force; 1 for plain RoCEv2.
    paths: int


def connected_by(call: Any) -> Connected:
    """Calls a function of the library that connects."""
    out = ffi.new("struct hostd_connected *")
    result = call(out)
    private = bytes(ffi.buffer(out.private_data, out.private_len))
    try:
        check(result)
    except ConnectFailed as error:
        error.private, error.rej = private, out.rej
        raise
    return Connected(address_text(out.peer), private, out.mtu, out.paths)


class QueuePair(Object):
    """A reliable connection's two work queues (``ibv_qp``). One thread at a time uses it."""

    def __init__(
        self,
        context: Any,
        send: CompletionQueue,
        receive: CompletionQueue,
        max_send_wr: int,
        max_recv_wr: int,
    ) -> None:
        attr = ffi.new("struct hostd_qp_init_attr *")
        attr.send_cq, attr.recv_cq = send._handle, receive._handle
        attr.max_send_wr, attr.max_recv_wr = max_send_wr, max_recv_wr
        handle = create("qp", lambda out: lib.hostd_create_qp(context, attr, out))
        super().__init__("queue pair", handle, lib.hostd_destroy_qp)
        told = ffi.new("struct hostd_qp_attr *")
        check(lib.hostd_query_qp(handle, told))
        #: What ``Completion.queue_pair`` says.
        self.id: int = told.id
        #: The number on the wire.
        self.number: int = told.qp_num

    def bind(self, address: str) -> None:
        """Chooses the address that the connection comes from, before it is made."""
        check(lib.hostd_bind_qp(self._handle, address.encode()))

    def choose_service(self, service: Service) -> None:
        """Chooses the delivery service of the connection, before it is made."""
        check(lib.hostd_set_service(self._handle, int(service)))

    def choose_congestion(self, congestion: Congestion) -> None:
        """Chooses what steers how fast this side sends, before the connection is made."""
        check(lib.hostd_set_congestion(self._handle, int(congestion)))

    def set_options(self, **options: int) -> None:
        """Sets how the connection retries, before it is made: ``timeout``, ``retry_count``,
        ``rnr_retry``, ``min_rnr_timer``, ``responder_resources``, ``initiator_depth``."""
        values = ffi.new("struct hostd_conn_options *")
        check(lib.hostd_default_conn_options(values))
        for name, value in options.items():
            if not hasattr(values, name):
                raise TypeError(f"no option is called {name}")
            setattr(values, name, value)
        check(lib.hostd_set_conn_options(self._handle, values))

    def connect(
        self, address: str, port: int, private: bytes = b"", timeout: Optional[float] = None
    ) -> Connected:
        """Connects to a listener, which gets the private data.

        :raises ConnectFailed: with the reason; TimedOut.
        """
        return connected_by(
            lambda out: lib.hostd_connect(
                self._handle, address.encode(), port, private, len(private), milliseconds(timeout), out
            )
        )

    def post_receive(self, data: Union[Piece, Sequence[Piece]] = (), wr_id: int = 0) -> None:
        """Posts a receive. A write with immediate data needs no memory.

        :raises QueueFull: until hostd has taken older ones.
        """
        pieces = _pieces(data)
        wr = ffi.new("struct hostd_recv_wr *")
        wr.wr_id, wr.sg_list, wr.num_sge = wr_id, pieces, len(pieces)
        check(lib.hostd_post_recv(self._handle, wr, 1))

    def send(
        self,
        data: Data,
        wr_id: int = 0,
        *,
        immediate: Optional[int] = None,
        signaled: bool = True,
        solicited: bool = False,
        fence: bool = False,
    ) -> None:
        """Posts a SEND. ``bytes`` go inline: they are copied, and at most 256.

        :raises QueueFull: until hostd has taken older requests.
        """
        opcode = lib.HOSTD_WR_SEND if immediate is None else lib.HOSTD_WR_SEND_WITH_IMM
        wr = _send_wr(opcode, wr_id, signaled, solicited, fence)
        wr.imm_data = immediate or 0
        self._post(wr, data)

    def write(
        self,
        data: Data,
        remote_addr: int,
        rkey: int,
        wr_id: int = 0,
        *,
        immediate: Optional[int] = None,
        signaled: bool = True,
        solicited: bool = False,
        fence: bool = False,
    ) -> None:
        """Posts an RDMA WRITE. ``remote_addr`` counts from the beginning of the peer's region."""
        plain, with_immediate = lib.HOSTD_WR_RDMA_WRITE, lib.HOSTD_WR_RDMA_WRITE_WITH_IMM
        opcode = plain if immediate is None else with_immediate
        wr = _send_wr(opcode, wr_id, signaled, solicited, fence)
        wr.imm_data, wr.remote_addr, wr.rkey = immediate or 0, remote_addr, rkey
        self._post(wr, data)

    def read(
        self,
        data: Union[Piece, Sequence[Piece]],
        remote_addr: int,
        rkey: int,
        wr_id: int = 0,
        *,
        signaled: bool = True,
        fence: bool = False,
    ) -> None:
        """Posts an RDMA READ into ``data``."""
        wr = _send_wr(lib.HOSTD_WR_RDMA_READ, wr_id, signaled, False, fence)
        wr.remote_addr, wr.rkey = remote_addr, rkey
        self._post(wr, data)

    def compare_swap(
        self,
        result: Piece,
        remote_addr: int,
        rkey: int,
        compare: int,
        swap: int,
        wr_id: int = 0,
    ) -> None:
        """Posts a compare and swap of 8 bytes of the peer; ``result`` gets what was there before."""
        wr = _send_wr(lib.HOSTD_WR_ATOMIC_CMP_AND_SWP, wr_id, True, False, False)
        wr.remote_addr, wr.rkey, wr.compare_add, wr.swap = remote_addr, rkey, compare, swap
        self._post(wr, result)

    def fetch_add(
        self, result: Piece, remote_addr: int, rkey: int, add: int, wr_id: int = 0
    ) -> None:
        """Posts a fetch and add to 8 bytes of the peer; ``result`` gets what was there before."""
        wr = _send_wr(lib.HOSTD_WR_ATOMIC_FETCH_AND_ADD, wr_id, True, False, False)
        wr.remote_addr, wr.rkey, wr.compare_add = remote_addr, rkey, add
        self._post(wr, result)

    def _post(self, wr: Any, data: Data) -> None:
        if isinstance(data, bytes):
            check(lib.hostd_post_send_inline(self._handle, wr, data, len(data)))
            return
        pieces = _pieces(data)
        wr.sg_list, wr.num_sge = pieces, len(pieces)
        check(lib.hostd_post_send(self._handle, wr, 1))

    def disconnect(self, timeout: Optional[float] = None) -> None:
        """Closes the connection, and waits until it is closed."""
        check(lib.hostd_disconnect(self._handle, milliseconds(timeout)))

    def wait_disconnected(self, timeout: Optional[float] = None) -> Reason:
        """Waits until the connection has ended, and says why.

        :raises TimedOut: it has not.
        """
        wait = lambda ms: lib.hostd_wait_disconnected(self._handle, ms)  # noqa: E731
        reason = in_slices(timeout, lambda left: or_none(wait, left))
        if reason is None:
            raise TimedOut(lib.HOSTD_ERR_TIMED_OUT, "the connection stands")
        return Reason(reason)


def _send_wr(opcode: int, wr_id: int, signaled: bool, solicited: bool, fence: bool) -> Any:
    wr = ffi.new("struct hostd_send_wr *")
    wr.wr_id, wr.opcode = wr_id, opcode
    wr.send_flags = (
        (lib.HOSTD_SEND_SIGNALED if signaled else 0)
        | (lib.HOSTD_SEND_SOLICITED if solicited else 0)
        | (lib.HOSTD_SEND_FENCE if fence else 0)
    )
    return wr


def _pieces(data: Union[Piece, Sequence[Piece]]) -> Any:
    if isinstance(data, Piece):
        data = (data,)
    if not all(isinstance(piece, Piece) for piece in data):
        raise Error(lib.HOSTD_ERR_ARGUMENT, "no piece of a region: see Region.piece")
    return ffi.new("struct hostd_sge[]", [tuple(piece) for piece in data])
