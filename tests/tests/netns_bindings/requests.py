"""The same as requests.c: requests.py RANK SIZE ADDRESS PORT."""

import sys
import time

import numpy as np

import hostd


def raises(kind, call):
    """What ``call`` raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{call} does not raise {kind}")


def main(rank, size, address, port):
    last = size - 1
    with hostd.Context(timeout=5.0) as context:
        group = context.group(rank, size, (address, port))
        own = np.full(1_200_000, rank + 1.0)
        result = np.zeros_like(own)
        request = group.start_allreduce(own, out=result)
        raises(hostd.Busy, group.barrier)
        raises(hostd.Busy, group.start_barrier)
        group.poll()
        while not request.done():
            pass
        group.poll()
        assert request.done() and (result == size * (size + 1) / 2).all(), result
        request.wait()
        # Nobody keeps the array or the request but the group.
        group.start_allreduce(np.full(1_200_000, 1.0))
        group._under_way.wait()
        result[:] = 0
        group.start_reduce(own, last, hostd.Op.MAX, out=result if rank == last else None).wait()
        assert (result == (size if rank == last else 0)).all(), result
        group.start_broadcast(own, 1).wait()
        assert (own == 2).all(), own
        blocks = np.zeros(size, np.uint32)
        if rank == last:
            time.sleep(0.5)
        request = group.start_allgather(np.array([rank], np.uint32), blocks)
        if rank != last:
            raises(hostd.TimedOut, lambda: request.wait(timeout=0.0))
            assert not request.done()
        request.wait()
        assert blocks.tolist() == list(range(size)), blocks
        group.start_barrier().wait(timeout=60.0)
        group.barrier()
        if rank == last:
            # Not before the others have done what was before.
            time.sleep(2.0)
        request = group.start_barrier()
        if rank == last:
            group.close()
            raises(hostd.Closed, request.done)
        else:
            for call in (request.wait, request.done, group.barrier, group.start_barrier):
                error = raises(hostd.GroupFailed, call)
                assert (error.cause, error.rank) == (hostd.Cause.ABANDONED, last), error
            group.close()
    print(f"rank {rank}: all as it should be")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
