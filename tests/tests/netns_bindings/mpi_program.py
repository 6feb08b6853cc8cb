"""A program of mpi4py that knows nothing of hostd; each rank prints what it gets."""

import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()


def say(what, array):
    sys.stdout.write(f"{rank} {what} {np.asarray(array).tobytes().hex()[:64]} {np.asarray(array).sum()}\n")
    sys.stdout.flush()


for dtype in (np.int32, np.int64, np.float32, np.float64, np.int16):
    own = (np.arange(50_000) % 3 + rank).astype(dtype)
    got = np.zeros_like(own)
    world.Allreduce(own, got)
    say(f"Allreduce {own.dtype}", got)
    world.Reduce(own, got, op=MPI.MAX, root=1)
    say(f"Reduce {own.dtype}", got)
    world.Bcast(own, root=2)
    say(f"Bcast {own.dtype}", own)
say("allreduce of objects", [world.allreduce(rank + 1)])
say("bcast of objects", [len(world.bcast({"text": "x" * 1000} if rank == 0 else None)["text"])])
world.Barrier()
