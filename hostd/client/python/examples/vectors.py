#!/usr/bin/env python3
"""Two processes exchange arrays of numpy: one sends vectors, the other gives back their doubles.

The arrays lie in registered memory, so nothing is copied between them and the packets.
With what `make install` has installed, in a laboratory (`fabric lab up`), where each host has a hostd:

    fabric lab exec h4 ./vectors.py serve 7002 &
    fabric lab exec h1 ./vectors.py 10.2.4.2 7002 100
"""

import sys

import numpy as np

import hostd

#: Elements of a vector.
LENGTH = 100_000

#: No call waits longer than this.
TIMEOUT = 20.0


class End:
    """What one side needs: two vectors in registered memory, one that is sent and one received."""

    def __init__(self, context):
        size = LENGTH * 4
        self.region = context.allocate(2 * size)
        self.ours = self.region.array(np.float32, LENGTH)
        self.theirs = self.region.array(np.float32, LENGTH, offset=size)
        self.completions = context.completion_queue(8)
        self.queue_pair = context.queue_pair(self.completions, max_send_wr=4, max_recv_wr=4)

    def post_receive(self):
        """Says where the next vector goes, before the peer sends it."""
        self.queue_pair.post_receive(self.region.piece(self.theirs))

    def send(self):
        self.queue_pair.send(self.region.piece(self.ours))

    def receive(self):
        """Waits for a vector; false if the peer has closed the connection."""
        while True:
            completion = self.completions.next(TIMEOUT)
            # The connection has ended, and the receive that was posted comes back unused.
            if completion.status is hostd.Status.WR_FLUSH_ERR:
                return False
            # If not received, one of ours has arrived, and may be overwritten from now on.
            if completion.check().opcode is hostd.Opcode.RECV:
                assert completion.byte_len == self.theirs.nbytes
                return True


def serve(port):
    with hostd.Context() as context, context.listen(port) as listener:
        print(f"listening on port {listener.port}", flush=True)
        request = listener.get_request()
        end = End(context)
        # Before the connection stands: the peer may send at once.
        end.post_receive()
        request.accept(end.queue_pair, timeout=TIMEOUT)
        count = 0
        while end.receive():
            np.multiply(end.theirs, 2, out=end.ours)
            end.post_receive()
            end.send()
            count += 1
        print(f"doubled {count} vectors")


def ask(address, port, rounds):
    generator = np.random.default_rng(1)
    with hostd.Context() as context:
        end = End(context)
        connected = end.queue_pair.connect(address, port, timeout=TIMEOUT)
        print(f"connected over {connected.paths} path(s)")
        for _ in range(rounds):
            end.ours[:] = generator.standard_normal(LENGTH, dtype=np.float32)
            end.post_receive()
            end.send()
            if not end.receive():
                raise SystemExit("the peer has closed the connection")
            if not np.array_equal(end.theirs, 2 * end.ours):
                raise SystemExit("not the double of what was sent")
        end.queue_pair.disconnect(TIMEOUT)
        print(f"{rounds} vectors of {LENGTH} elements doubled")


def main():
    words = sys.argv[1:]
    if len(words) == 2 and words[0] == "serve":
        serve(int(words[1]))
    elif len(words) == 3:
        ask(words[0], int(words[1]), int(words[2]))
    else:
        raise SystemExit("usage: vectors.py serve PORT | vectors.py ADDRESS PORT ROUNDS")


if __name__ == "__main__":
    main()
