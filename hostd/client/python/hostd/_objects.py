"""What all objects have in common: a handle, and an end."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar

from ._errors import Closed, TimedOut, check
from ._library import ffi, lib

_Self = TypeVar("_Self", bound="Object")
_T = TypeVar("_T")

#: Longest wait within the library, so that signals (Ctrl-C) are heard meanwhile.
SLICE_MS = 200


def milliseconds(timeout: Optional[float]) -> int:
    """A time-out in seconds as the library has it; ``None`` has no end."""
    if timeout is None:
        return -1
    return max(0, min(math.ceil(timeout * 1000), 2**31 - 1))


def in_slices(timeout: Optional[float], wait: Callable[[int], Optional[_T]]) -> Optional[_T]:
    """Calls ``wait`` with short time-outs until it returns something, or the time is over."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE_MS
        if until is not None:
            left = min(left, milliseconds(max(0.0, until - time.monotonic())))
        result = wait(left)
        if result is not None or (until is not None and time.monotonic() >= until):
            return result


def or_none(call: Callable[[int], int], timeout_ms: int) -> Optional[int]:
    """What ``call`` returns; ``None`` if its time was over."""
    try:
        return check(call(timeout_ms))
    except TimedOut:
        return None


class Object:
    """An object of the daemon. It is given back by ``close``, at the end of a ``with``, or when nothing
    refers to it any more."""

    def __init__(self, kind: str, pointer: Any, destroy: Callable[[Any], int]) -> None:
        # The destructor runs once: now and then by the garbage collector, else by `close`.
        self._kind = kind
        self._owned: Any = ffi.gc(pointer, destroy)

    @property
    def _handle(self) -> Any:
        if self._owned is None:
            raise Closed(lib.HOSTD_ERR_HANDLE, f"the {self._kind} was closed")
        return self._owned

    @property
    def closed(self) -> bool:
        """Whether it was given back."""
        return self._owned is None

    def close(self) -> None:
        """Gives the object back. Closing twice does nothing."""
        owned, self._owned = self._owned, None
        if owned is not None:
            ffi.release(owned)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


def create(kind: str, call: Callable[[Any], int]) -> Any:
    """Calls a function of the library that makes an object; its handle."""
    out = ffi.new(f"struct hostd_{kind} **")
    check(call(out))
    return out[0]
