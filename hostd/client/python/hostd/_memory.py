"""Registered memory."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Tuple, Union

from ._errors import Closed, Error, check
from ._library import ffi, lib
from ._objects import create

if TYPE_CHECKING:
    import numpy


class Access(enum.IntFlag):
    """What a region allows (``enum hostd_access``)."""

    NONE = 0
    LOCAL_WRITE = lib.HOSTD_ACCESS_LOCAL_WRITE
    REMOTE_WRITE = lib.HOSTD_ACCESS_REMOTE_WRITE
    REMOTE_READ = lib.HOSTD_ACCESS_REMOTE_READ
    REMOTE_ATOMIC = lib.HOSTD_ACCESS_REMOTE_ATOMIC


class Piece(NamedTuple):
    """Bytes of a region, for a request (``struct hostd_sge``)."""

    addr: int
    length: int
    lkey: int


#: What ``Region.piece`` takes: a range of bytes, or an array or view in the region.
Place = Union[slice, Any]


class Region:
    """Memory that this application and hostd share (``ibv_mr``). ``memory`` and ``array`` are the memory
    itself. It is given back when the region is closed *and* no view or array of it is left."""

    def __init__(self, context: Any, length: int, access: Access) -> None:
        call = lambda out: lib.hostd_alloc_mr(context, length, int(access), out)  # noqa: E731
        handle = create("mr", call)
        attr = ffi.new("struct hostd_mr_attr *")
        check(lib.hostd_query_mr(handle, attr))
        # Views refer to this pointer, and with the last of them the region goes.
        start = ffi.cast("char *", attr.memory)
        self._memory: Any = ffi.gc(start, lambda _: lib.hostd_dereg_mr(handle))
        self._base = int(ffi.cast("uintptr_t", start))
        self._length = int(attr.length)
        self.lkey = int(attr.lkey)
        self.rkey = int(attr.rkey)

    def __len__(self) -> int:
        return self._length

    @property
    def _alive(self) -> Any:
        if self._memory is None:
            raise Closed(lib.HOSTD_ERR_HANDLE, "the region was closed")
        return self._memory

    @property
    def memory(self) -> memoryview:
        """The bytes themselves. Peers and hostd may change them at any time."""
        return memoryview(ffi.buffer(self._alive, self._length))

    def array(
        self,
        dtype: Any,
        shape: Union[int, Tuple[int, ...], None] = None,
        offset: int = 0,
    ) -> "numpy.ndarray[Any, Any]":
        """A numpy array in the memory, without a copy; all of it from ``offset`` on without ``shape``."""
        import numpy

        kind = numpy.dtype(dtype)
        if shape is None:
            shape = (self._length - offset) // kind.itemsize
        return numpy.ndarray(shape, dtype=kind, buffer=self.memory, offset=offset)

    def piece(self, place: Optional[Place] = None) -> Piece:
        """Bytes for a request: ``slice(0, 64)``, or those of an array or a memoryview that lies in this
        region; all without ``place``.

        :raises Error: they are not inside, or not one after the other.
        """
        self._alive
        if place is None:
            place = slice(None)
        if isinstance(place, slice):
            start, stop, step = place.indices(self._length)
            wanted = place.stop if place.stop is not None else self._length
            if step != 1 or wanted > self._length or stop < start:
                raise self._outside(f"{place}")
            return Piece(start, stop - start, self.lkey)
        try:
            view = memoryview(place)
            # An array without elements has an address that says nothing.
            if view.nbytes == 0:
                return Piece(0, 0, self.lkey)
            start = int(ffi.cast("uintptr_t", ffi.from_buffer(view))) - self._base
        except (BufferError, ValueError) as error:
            raise Error(lib.HOSTD_ERR_ARGUMENT, f"not one piece of memory: {error}") from error
        if start < 0 or start + view.nbytes > self._length:
            raise self._outside(f"{view.nbytes} bytes of another place")
        return Piece(start, view.nbytes, self.lkey)

    def __getitem__(self, place: slice) -> Piece:
        """``region[0:64]`` is ``region.piece(slice(0, 64))``."""
        if not isinstance(place, slice):
            raise TypeError("a region is cut with a slice")
        return self.piece(place)

    def _outside(self, what: str) -> Error:
        text = f"{what} is outside of a region of {self._length} bytes"
        return Error(lib.HOSTD_ERR_OUT_OF_RANGE, text)

    def close(self) -> None:
        """Gives the memory back as soon as no view or array of it is left."""
        self._memory = None

    def __enter__(self) -> "Region":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
