"""PyTorch over hostd: ``import hostd.torch`` makes ``init_process_group("hostd")`` known.

Collectives of tensors in this machine's memory go by a group of hostd. Each process group has a session of its
own. A call returns, or raises, when its collective is over.
"""

from __future__ import annotations

import threading
import warnings
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.distributed import ReduceOp
from torch.futures import Future

from ._context import Context
from ._errors import Error
from ._group import Group, Op, Type
from ._library import lib

#: Where rank 0 waits, in the store of the process group; with a rank behind it, whether that is able to take part.
_KEY = "hostd"

#: Tensors that are reduced as they are: the type, and as which integer numpy sees them.
_TYPES: Dict[torch.dtype, Tuple[Type, torch.dtype]] = {
    torch.int32: (Type.I32, torch.int32),
    torch.int64: (Type.I64, torch.int64),
    torch.float16: (Type.F16, torch.int16),
    torch.bfloat16: (Type.BF16, torch.int16),
    torch.float32: (Type.F32, torch.int32),
    torch.float64: (Type.F64, torch.int64),
}

#: Those that are reduced as int32, which holds them, and cut afterwards.
_NARROW = (torch.uint8, torch.int8, torch.int16, torch.bool)

_OPS = [
    (ReduceOp.SUM, Op.SUM),
    (ReduceOp.PRODUCT, Op.PRODUCT),
    (ReduceOp.MIN, Op.MIN),
    (ReduceOp.MAX, Op.MAX),
    (ReduceOp.BAND, Op.AND),
    (ReduceOp.BOR, Op.OR),
    (ReduceOp.BXOR, Op.XOR),
]


def _op(wanted: Any) -> Tuple[Op, bool]:
    """The operation, and whether its result is divided by the number of members."""
    if wanted == ReduceOp.AVG:
        return Op.SUM, True
    for theirs, ours in _OPS:
        if wanted == theirs:
            return ours, False
    raise ValueError(f"hostd has no operation {wanted}")


def _only(tensors: List[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"hostd takes one tensor a call, not {len(tensors)}")
    tensor = tensors[0]
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(f"hostd takes dense tensors of the CPU, not {tensor.layout} on {tensor.device}")
    return tensor


def _bytes(tensor: torch.Tensor) -> Any:
    """The memory of a tensor whose elements lie one after the other."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a copy whose elements lie one after the other."""
    return tensor.detach().contiguous()


class HostdProcessGroup(dist.ProcessGroup):
    """A process group whose members meet in ``store``, and reduce by hostd."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        seconds = timeout.total_seconds()
        # Whether the others know if this rank is able to take part.
        self._told = False
        try:
            self._context = Context(timeout=min(seconds, 10.0))
            self._group = self._meet(store, rank, size, seconds)
        except BaseException:
            self._tell(store, False)
            raise
        # What was said of switches.
        self._noticed: Optional[str] = None
        # The calls of several threads come one after the other.
        self._lock = threading.Lock()

    def _tell(self, store: Any, able: bool) -> None:
        if self._told:
            return
        self._told = True
        store.set(f"{_KEY} {self.rank()}", "able" if able else "")
        if not able and self.rank() == 0:
            # Others may wait for it.
            store.set(_KEY, "")

    def _agree(self, store: Any, able: bool) -> Optional[int]:
        """Tells the others whether this rank is able to take part. The lowest rank that is not."""
        self._tell(store, able)
        for rank in range(self.size()):
            if not store.get(f"{_KEY} {rank}"):
                return rank
        return None

    def _meet(self, store: Any, rank: int, size: int, seconds: float) -> Group:
        def agree(able: bool) -> Optional[int]:
            return self._agree(store, able)

        if rank != 0:
            place = store.get(_KEY).decode()
            if not place:
                raise Error(lib.HOSTD_ERR_ARGUMENT, "rank 0 cannot take part: its own host refuses")
            address, port = place.rsplit(" ", 1)
            return self._context.group(
                rank, size, (address, int(port)), join_timeout=seconds, timeout=seconds, agree=agree
            )
        usable = [gid.address for gid in self._context.gids() if gid.active and not gid.address.startswith("fe80:")]
        if not usable:
            raise Error(lib.HOSTD_ERR_ARGUMENT, "hostd has no address at which others could find this rank")
        listener = self._context.listen(backlog=64)
        store.set(_KEY, f"{usable[0]} {listener.port}")
        return self._context.group(rank, size, listener, join_timeout=seconds, timeout=seconds, agree=agree)

    def _call(self, work: Callable[[], None], result: Any) -> Any:
        """Carries ``work`` out. It is over when this returns: a work that is made of a future keeps
        errors from who waits for it, and one that is made in Python does not outlive its object here."""
        with self._lock:
            work()
            self._notice()
        future: Future = Future()
        future.set_result(result)
        return _create_work_from_future(future)

    def _notice(self) -> None:
        """Warns when collectives go on without the switches that were to do them, once each time, at rank 0."""
        if self.rank() != 0 or self._group.fallback == self._noticed:
            return
        self._noticed = self._group.fallback
        if self._noticed is not None:
            warnings.warn(f"hostd: collectives go on between the hosts: {self._noticed}", RuntimeWarning, stacklevel=4)

    def getBackendName(self) -> str:
        return "hostd"

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        tensor = _only(tensors)
        op, mean = _op(opts.reduceOp if opts is not None else ReduceOp.SUM)
        return self._call(lambda: self._reduce(tensor, op, mean, None), tensors)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        op, mean = _op(opts.reduceOp if opts is not None else ReduceOp.SUM)
        each = [_only([tensor]) for tensor in tensors]

        def work() -> None:
            for tensor in each:
                self._reduce(tensor, op, mean, None)

        return self._call(work, tensors)

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        tensor = _only(tensors)
        op, mean = _op(opts.reduceOp)
        return self._call(lambda: self._reduce(tensor, op, mean, opts.rootRank), tensors)

    def _reduce(self, tensor: torch.Tensor, op: Op, mean: bool, root: Optional[int]) -> None:
        if tensor.dtype in _NARROW:
            work = tensor.detach().to(torch.int32).contiguous()
        elif tensor.dtype in _TYPES:
            work = _dense(tensor)
        else:
            raise ValueError(f"hostd does not reduce elements of {tensor.dtype}")
        kind, seen = _TYPES[work.dtype]
        array = work.reshape(-1).view(seen).numpy()
        if root is None:
            self._group.allreduce(array, op, kind=kind)
        else:
            self._group.reduce(array, root, op, kind=kind)
            if root != self.rank():
                return
        if mean:
            work = work / self.size() if work.is_floating_point() else work // self.size()
        if work.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(work)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        tensor, root = _only(tensors), opts.rootRank

        def work() -> None:
            dense = _dense(tensor)
            self._group.broadcast(_bytes(dense), root)
            if dense.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(dense)

        return self._call(work, tensors)

    def allgather(self, outputs: List[List[torch.Tensor]], tensors: List[torch.Tensor], opts: Any = None) -> Any:
        tensor = _only(tensors)
        if len(outputs) != 1 or len(outputs[0]) != self.size():
            raise ValueError(f"hostd gathers {self.size()} tensors")
        places = [_only([place]) for place in outputs[0]]
        if any(place.numel() != tensor.numel() or place.dtype != tensor.dtype for place in places):
            raise ValueError("hostd gathers tensors of one size and type")

        def work() -> None:
            everything = self._gather(tensor)
            for place, part in zip(places, everything):
                place.detach().copy_(part.view_as(place))

        return self._call(work, outputs)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        given, place = _only([tensor]), _only([output])
        if place.numel() != given.numel() * self.size():
            raise ValueError(f"{place.numel()} elements are not {self.size()} times {given.numel()}")

        def work() -> None:
            place.detach().copy_(self._gather(given).view_as(place))

        return self._call(work, output)

    def _gather(self, tensor: torch.Tensor) -> torch.Tensor:
        dense = _dense(tensor).reshape(-1)
        everything = torch.empty((self.size(), dense.numel()), dtype=dense.dtype)
        self._group.allgather(_bytes(dense), _bytes(everything))
        return everything

    def barrier(self, opts: Any = None) -> Any:
        return self._call(self._group.barrier, [])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> HostdProcessGroup:
    return HostdProcessGroup(store, rank, size, timeout)


dist.Backend.register_backend("hostd", _create)
