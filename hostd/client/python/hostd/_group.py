"""What the processes of a job do together."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from ._errors import Busy, Closed, Error, TimedOut, check
from ._library import ffi, lib, text
from ._objects import Object, create, in_slices, or_none

if TYPE_CHECKING:
    from ._listener import Listener


class Op(enum.IntEnum):
    """How two elements become one (``enum hostd_op``)."""

    SUM = lib.HOSTD_OP_SUM
    PRODUCT = lib.HOSTD_OP_PRODUCT
    MIN = lib.HOSTD_OP_MIN
    MAX = lib.HOSTD_OP_MAX
    AND = lib.HOSTD_OP_AND
    OR = lib.HOSTD_OP_OR
    XOR = lib.HOSTD_OP_XOR


class Type(enum.IntEnum):
    """What elements are (``enum hostd_type``)."""

    I32 = lib.HOSTD_TYPE_I32
    I64 = lib.HOSTD_TYPE_I64
    U32 = lib.HOSTD_TYPE_U32
    U64 = lib.HOSTD_TYPE_U64
    F16 = lib.HOSTD_TYPE_F16
    BF16 = lib.HOSTD_TYPE_BF16
    F32 = lib.HOSTD_TYPE_F32
    F64 = lib.HOSTD_TYPE_F64


#: By what a buffer says of its elements: the kind of the format of ``struct``, and bytes.
_TYPES: Dict[Tuple[str, int], Type] = {
    ("i", 4): Type.I32,
    ("i", 8): Type.I64,
    ("u", 4): Type.U32,
    ("u", 8): Type.U64,
    ("f", 2): Type.F16,
    ("f", 4): Type.F32,
    ("f", 8): Type.F64,
}

_WIDTHS: Dict[Type, int] = {kind: 8 for kind in Type}
_WIDTHS.update({Type.I32: 4, Type.U32: 4, Type.F32: 4, Type.F16: 2, Type.BF16: 2})

_KINDS: Dict[str, str] = {**dict.fromkeys("ilq", "i"), **dict.fromkeys("ILQ", "u"), **dict.fromkeys("efd", "f")}


def _milliseconds(seconds: float) -> int:
    """A time of a group as the library has it: at least a millisecond, at most 49 days."""
    return max(1, round(min(seconds * 1000, 2**32 - 1)))


def _wrong(text: str) -> Error:
    return Error(lib.HOSTD_ERR_ARGUMENT, text)


def _agreement(agree: Callable[[bool], Optional[int]], rank: int, raised: List[BaseException]) -> Any:
    """``agree`` for the library. What it raises is kept; then this member counts as not able."""

    def told(_: Any, able: int) -> int:
        try:
            odd = agree(bool(able))
        except BaseException as error:
            raised.append(error)
            return rank
        return -1 if odd is None else odd

    return ffi.callback("hostd_agree", told)


class _Buffer:
    """The memory of an array: held for as long as this is."""

    def __init__(self, array: Any, writable: bool) -> None:
        try:
            self._view = memoryview(array)
            self.pointer: Any = ffi.from_buffer("char[]", array, require_writable=writable)
        except (BufferError, TypeError, ValueError) as error:
            raise _wrong(f"no memory to work on: {error}") from error
        self.nbytes = self._view.nbytes

    def elements(self, kind: Optional[Type]) -> Tuple[int, Type]:
        """How many elements there are, and what they are unless that is said."""
        if kind is None:
            name = self._view.format.lstrip("@=<")
            kind = _TYPES.get((_KINDS.get(name, ""), self._view.itemsize))
            if kind is None:
                raise _wrong(f"there are no collectives of elements of format '{self._view.format}'")
        count, rest = divmod(self.nbytes, _WIDTHS[kind])
        if rest:
            raise _wrong(f"{self.nbytes} bytes are not whole elements of {kind.name}")
        return count, kind


class GroupRequest:
    """A collective under way, begun by a ``start_…`` of a group. It goes on while :meth:`done` or :meth:`wait` is
    called, and at no other time. Its arrays must be left alone until it is over. A group has one at a time: until
    then its other collectives raise ``Busy``, and closing it makes it fail, at all members.

    :raises GroupFailed: from both methods, and each time: as the call that does not return at once.
    """

    def __init__(self, group: Group, memory: Any) -> None:
        self._group = group
        self._memory = memory
        self._over = False
        self._error: Optional[Error] = None

    def done(self) -> bool:
        """Does what can be done without waiting; whether it is over."""
        return self._settle(lambda handle: check(lib.hostd_group_poll(handle)) or None)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until it is over.

        :raises TimedOut: it goes on.
        """

        def over(handle: Any) -> Optional[int]:
            return in_slices(timeout, lambda ms: or_none(lambda left: lib.hostd_group_wait(handle, left), ms))

        if not self._settle(over):
            raise TimedOut(lib.HOSTD_ERR_TIMED_OUT, "the collective goes on")

    def _settle(self, over: Callable[[Any], Optional[int]]) -> bool:
        """Goes on by ``over``, which returns ``None`` if it is not over."""
        if not self._over:
            try:
                if over(self._group._handle) is None:
                    return False
            except (Busy, Closed):
                # Of this call, and not of the collective.
                raise
            except Error as error:
                self._error = error
            self._over, self._memory = True, None
            if self._group._under_way is self:
                self._group._under_way = None
        if self._error is not None:
            raise self._error
        return True


class Group(Object):
    """A member's part of a group of processes that call collectives together: all of them the same ones,
    in the same order, with arrays of the same length.

    Arrays are anything with a buffer: of numpy, views, bytearrays. Those in regions of the context are
    worked on where they are; others are copied. ``kind`` says what the elements are if the buffer does not.

    :raises GroupFailed: with the ``cause`` and the ``rank`` whose doing it is; then at each later call, too.
    """

    def __init__(
        self,
        context: Any,
        rank: int,
        size: int,
        root: Union[Tuple[str, int], "Listener"],
        deterministic: bool,
        join_timeout: float,
        timeout: float,
        again: Optional[float],
        agree: Optional[Callable[[bool], Optional[int]]],
    ) -> None:
        attr = ffi.new("struct hostd_group_attr *")
        attr.rank, attr.size = rank, size
        attr.flags = lib.HOSTD_GROUP_DETERMINISTIC if deterministic else 0
        attr.join_timeout_ms = _milliseconds(join_timeout)
        attr.timeout_ms = _milliseconds(timeout)
        if again is None:
            attr.flags |= lib.HOSTD_GROUP_STAYS
        else:
            attr.again_ms = _milliseconds(again)
        address = None
        if isinstance(root, tuple):
            address = ffi.new("char[]", root[0].encode())
            attr.address, attr.port = address, root[1]
        elif rank == 0:
            attr.listener = root._handle
        else:
            raise _wrong("only rank 0 waits with a listener; others need (address, port)")
        raised: List[BaseException] = []
        if agree is not None:
            told = _agreement(agree, rank, raised)
            attr.agree = told
        try:
            handle = create("group", lambda out: lib.hostd_group_create(context, attr, out))
        except Error:
            if raised:
                raise raised[0] from None
            raise
        finally:
            if not isinstance(root, tuple):
                # Used up, unless the call itself was wrong: then this gives it back.
                root.close()
        super().__init__("group", handle, lib.hostd_group_destroy)
        self.rank, self.size = rank, size
        self._under_way: Optional[GroupRequest] = None

    @property
    def uses_switches(self) -> bool:
        """Whether collectives go through switches now, or will as soon as one is called that switches can do."""
        return bool(check(lib.hostd_group_uses_switches(self._handle)))

    @property
    def last_was_switched(self) -> bool:
        """Whether the last collective went through switches, to its end; ``False`` before the first one."""
        return bool(check(lib.hostd_group_last_was_switched(self._handle)))

    @property
    def fallback(self) -> Optional[str]:
        """Why collectives go between the hosts though switches were to do them, for people; ``None`` if they go
        through switches, or were not meant to. Known once a collective was called that switches can do."""
        why = lib.hostd_group_fallback(self._handle)
        return None if why == ffi.NULL else text(why)

    def allreduce(self, array: Any, op: Op = Op.SUM, *, out: Any = None, kind: Optional[Type] = None) -> None:
        """Gives each member what comes of the arrays of all: in ``array``, or in ``out``."""
        check(lib.hostd_group_allreduce(self._handle, *self._vectors(array, out, kind), op))

    def start_allreduce(
        self, array: Any, op: Op = Op.SUM, *, out: Any = None, kind: Optional[Type] = None
    ) -> GroupRequest:
        """Begins :meth:`allreduce`."""
        vectors = self._vectors(array, out, kind)
        return self._begun(lib.hostd_group_start_allreduce(self._handle, *vectors, op), vectors)

    def reduce(
        self, array: Any, root: int, op: Op = Op.SUM, *, out: Any = None, kind: Optional[Type] = None
    ) -> None:
        """Gives ``root`` what comes of the arrays of all. Those of the others stay as they are."""
        check(lib.hostd_group_reduce(self._handle, *self._to_root(array, root, out, kind), op, root))

    def start_reduce(
        self, array: Any, root: int, op: Op = Op.SUM, *, out: Any = None, kind: Optional[Type] = None
    ) -> GroupRequest:
        """Begins :meth:`reduce`."""
        vectors = self._to_root(array, root, out, kind)
        return self._begun(lib.hostd_group_start_reduce(self._handle, *vectors, op, root), vectors)

    def broadcast(self, array: Any, root: int) -> None:
        """Gives each member the bytes of ``root``."""
        data = _Buffer(array, writable=self.rank != root)
        check(lib.hostd_group_broadcast(self._handle, data.pointer, data.nbytes, root))

    def start_broadcast(self, array: Any, root: int) -> GroupRequest:
        """Begins :meth:`broadcast`."""
        data = _Buffer(array, writable=self.rank != root)
        return self._begun(lib.hostd_group_start_broadcast(self._handle, data.pointer, data.nbytes, root), data)

    def allgather(self, array: Any, out: Any) -> None:
        """Gives each member in ``out`` the arrays of all, by rank."""
        check(lib.hostd_group_allgather(self._handle, *self._blocks(array, out)))

    def start_allgather(self, array: Any, out: Any) -> GroupRequest:
        """Begins :meth:`allgather`."""
        blocks = self._blocks(array, out)
        return self._begun(lib.hostd_group_start_allgather(self._handle, *blocks), blocks)

    def barrier(self) -> None:
        """Waits until all members have called it."""
        check(lib.hostd_group_barrier(self._handle))

    def start_barrier(self) -> GroupRequest:
        """Begins :meth:`barrier`."""
        return self._begun(lib.hostd_group_start_barrier(self._handle), None)

    def poll(self) -> None:
        """Gives other members what switches that failed have left them without, and does not wait. For a program
        that waits for them otherwise than by the group: then some times a second. A collective under way goes on,
        too.

        :raises GroupFailed: it has failed.
        """
        if self._under_way is None:
            check(lib.hostd_group_poll(self._handle))
        else:
            self._under_way.done()

    def _begun(self, result: int, memory: Any) -> GroupRequest:
        check(result)
        request = GroupRequest(self, memory)
        # The library works on the arrays as long as it is under way, also if nobody keeps it.
        self._under_way = request
        return request

    def _to_root(
        self, array: Any, root: int, out: Any, kind: Optional[Type]
    ) -> Tuple[Any, Any, int, Type]:
        if self.rank == root:
            return self._vectors(array, out, kind)
        own = _Buffer(array, writable=False)
        return (own.pointer, ffi.NULL, *own.elements(kind))

    def _blocks(self, array: Any, out: Any) -> Tuple[Any, Any, int]:
        own, all_of_them = _Buffer(array, writable=False), _Buffer(out, writable=True)
        if own.nbytes * self.size != all_of_them.nbytes:
            raise _wrong(f"{all_of_them.nbytes} bytes are not {self.size} times {own.nbytes}")
        return own.pointer, all_of_them.pointer, own.nbytes

    @staticmethod
    def _vectors(array: Any, out: Any, kind: Optional[Type]) -> Tuple[Any, Any, int, Type]:
        if out is None:
            both = _Buffer(array, writable=True)
            count, kind = both.elements(kind)
            return ffi.NULL, both.pointer, count, kind
        given, result = _Buffer(array, writable=False), _Buffer(out, writable=True)
        count, kind = given.elements(kind)
        if result.elements(kind) != (count, kind):
            raise _wrong(f"{given.nbytes} bytes do not become {result.nbytes}")
        return given.pointer, result.pointer, count, kind
