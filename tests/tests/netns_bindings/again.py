"""The same as again.c: again.py RANK SIZE ADDRESS PORT AGAIN_MS."""

import sys
import time

import numpy as np

import hostd

# As in again.c.
CALLS = 4000
PATIENCE = 60000


def reduce(group):
    """One collective of which the result is compared. How many members were with the switches before it."""
    assert group.uses_switches == (group.fallback is None), group.fallback
    assert group.fallback is None or group.fallback.startswith("without switches since collective "), group.fallback
    numbers = np.array([group.rank + 1, group.uses_switches], np.uint64)
    group.allreduce(numbers)
    # Not all were there if one was not, and one that begins there may end elsewhere.
    assert not group.last_was_switched or numbers[1] == group.size, numbers
    assert numbers[0] == group.size * (group.size + 1) // 2, numbers
    time.sleep(0.001)
    return int(numbers[1])


def main(rank, size, address, port, again):
    with hostd.Context(timeout=5.0) as context:
        with context.group(rank, size, (address, port), again=again) as group:
            using = reduce(group)
            print(f"through switches: {using}", flush=True)
            calls = 0
            while using > 0 and calls < PATIENCE:
                using = reduce(group)
                calls += 1
            calls = 0
            while using < size and calls < CALLS:
                using = reduce(group)
                calls += 1
            print(f"through switches: {using}")


if __name__ == "__main__":
    rank, size, address, port, again = sys.argv[1:6]
    main(int(rank), int(size), address, int(port), None if again == "never" else int(again) / 1000)
