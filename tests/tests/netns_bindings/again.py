"""The same as again.c: again.py RANK SIZE ADDRESS PORT AGAIN_MS."""

import sys
import time

import numpy as np

import hostd

# As in again.c.
CALLS = 4000
PATIENCE = 60000


def reduce(group):
    """One collective of which the result is compared."""
    number = np.array([group.rank + 1], np.uint64)
    group.allreduce(number)
    assert number[0] == group.size * (group.size + 1) // 2, number
    time.sleep(0.001)


def main(rank, size, address, port, again):
    with hostd.Context(timeout=5.0) as context:
        with context.group(rank, size, (address, port), again=again) as group:
            reduce(group)
            print(f"through switches: {int(group.uses_switches)}", flush=True)
            calls = 0
            while group.uses_switches and calls < PATIENCE:
                reduce(group)
                calls += 1
            calls = 0
            while not group.uses_switches and calls < CALLS:
                reduce(group)
                calls += 1
            print(f"through switches: {int(group.uses_switches)}")


if __name__ == "__main__":
    rank, size, address, port, again = sys.argv[1:6]
    main(int(rank), int(size), address, int(port), None if again == "never" else int(again) / 1000)
