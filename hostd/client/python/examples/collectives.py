"""The members of a group add arrays of numpy, and go on when all have.

    collectives.py RANK SIZE ADDRESS PORT [COUNT]

ADDRESS is the one of rank 0's host, where it waits at PORT. What each gets is checked.
"""

import sys

import numpy as np

import hostd


def carry_out(group, own, result, arrays):
    """Every collective once; ``arrays[r]`` is what rank r gives."""
    last = group.size - 1
    own[:] = arrays[group.rank]
    group.allreduce(own, out=result)
    assert (result == arrays.sum(0)).all() and (own == arrays[group.rank]).all()
    group.reduce(own, last, hostd.Op.MAX)
    expected = arrays.max(0) if group.rank == last else arrays[group.rank]
    assert (own == expected).all(), own
    own[:] = arrays[group.rank]
    group.broadcast(own, root=last)
    assert (own == arrays[last]).all(), own
    group.allreduce(own, hostd.Op.MIN)
    assert (own == arrays[last]).all(), own
    everything = np.empty_like(arrays)
    group.allgather(arrays[group.rank], everything)
    assert (everything == arrays).all(), everything
    group.barrier()


def main(rank, size, address, port, count):
    with hostd.Context(timeout=5.0) as context:
        with context.group(rank, size, (address, port)) as group:
            for dtype in (np.int32, np.int64, np.uint32, np.uint64, np.float16, np.float32, np.float64):
                # Small whole numbers: exact in every type.
                arrays = (np.arange(count) % 50 + np.arange(size)[:, None]).astype(dtype)
                carry_out(group, np.empty(count, dtype), np.empty(count, dtype), arrays)
                with context.allocate(2 * arrays[0].nbytes) as region:
                    # In registered memory nothing is copied.
                    both = region.array(dtype, (2, count))
                    carry_out(group, both[0], both[1], arrays)
            # bfloat16, which numpy does not know: 1.0 is 0x3f80, 4.0 is 0x4080.
            ones = np.full(count, 0x3F80, np.uint16)
            if size == 4:
                group.allreduce(ones, kind=hostd.Type.BF16)
                assert (ones == 0x4080).all(), ones
    print(f"rank {rank} of {size}: all exact, {count} elements")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5] if len(sys.argv) > 5 else 1000))
