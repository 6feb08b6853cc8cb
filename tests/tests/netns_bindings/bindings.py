"""The Python package with a server in C (write_with_immediate.c), and with itself."""

import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np

import hostd

TIMEOUT = 20.0

#: Where the server's counter is.
COUNTER = 4096 - 8


def fails(kind, call, reason=None):
    """`call` raises `kind`, for `reason`; the exception."""
    try:
        call()
    except kind as error:
        assert error.reason == reason, (error, error.reason)
        assert str(error)
        return error
    raise AssertionError(f"no {kind.__name__}")


def write_and_count(context, address, port, text):
    """What the example in C does as a client, with arrays."""
    region = context.allocate(4096)
    completions = context.completion_queue(8)
    pair = context.queue_pair(completions, max_send_wr=4, max_recv_wr=1)
    pair.set_options(retry_count=6)
    fails(
        hostd.Refused,
        lambda: pair.choose_congestion(hostd.Congestion.HPCC),
        hostd.Reason.INVALID_ARGUMENT,
    )
    pair.choose_congestion(hostd.Congestion.SWIFT)
    connected = pair.connect(address, port, timeout=TIMEOUT)
    assert connected.peer == address and len(connected.private) >= 4, connected
    rkey = int.from_bytes(connected.private[:4], "little")

    letters = region.array(np.uint8, len(text))
    letters[:] = np.frombuffer(text, np.uint8)
    half = len(text) // 2
    pair.write(text[:half], 0, rkey, wr_id=1)
    pair.write(region.piece(letters[half:]), half, rkey, wr_id=2, immediate=len(text))
    for wr_id in (1, 2):
        completion = completions.next(TIMEOUT).check()
        assert (completion.wr_id, completion.queue_pair) == (wr_id, pair.id)

    letters[:] = 0
    pair.read(region.piece(letters), 0, rkey)
    assert completions.next(TIMEOUT).check().opcode is hostd.Opcode.RDMA_READ
    assert letters.tobytes() == text, letters

    before = region.array(np.uint64, 1, offset=1024)
    pair.compare_swap(region.piece(before), COUNTER, rkey, compare=0, swap=40)
    completions.next(TIMEOUT).check()
    pair.fetch_add(region.piece(before), COUNTER, rkey, add=2)
    assert completions.next(TIMEOUT).check().opcode is hostd.Opcode.FETCH_ADD
    assert before[0] == 40

    fails(hostd.Error, lambda: region.piece(slice(0, 5000)))
    pair.disconnect(TIMEOUT)
    fails(hostd.TimedOut, lambda: completions.next(0.05))
    return region


def errors(context, region):
    """Exceptions carry the status."""
    fails(hostd.NoDaemon, lambda: hostd.Context("/nowhere/hostd.sock"))
    fails(hostd.Refused, lambda: context.allocate(1 << 50), hostd.Reason.QUOTA)
    remote_only = hostd.Access.REMOTE_WRITE
    fails(hostd.Refused, lambda: context.allocate(1, remote_only), hostd.Reason.INVALID_ARGUMENT)
    fails(hostd.Error, lambda: region.piece(np.zeros(4)))
    fails(hostd.Error, lambda: region.piece(region.array(np.uint8)[::2]))
    assert isinstance(fails(hostd.TimedOut, lambda: context.listen().get_request(0.3)), TimeoutError)

    completions = context.completion_queue(8)
    pair = context.queue_pair(completions)
    piece = region.piece(slice(0, 8))
    assert (piece.addr, piece.length, piece.lkey) == (0, 8, region.lkey)
    assert region[8:24] == hostd.Piece(8, 16, region.lkey)
    fails(hostd.Refused, lambda: pair.send(piece), hostd.Reason.INVALID_STATE)
    fails(hostd.Error, lambda: pair.post_receive(["x"]))
    own = context.gids()[0].address
    fails(hostd.ConnectFailed, lambda: pair.connect(own, 1, timeout=TIMEOUT), hostd.Reason.REFUSED)
    pair.close()
    pair.close()
    assert pair.closed
    fails(hostd.Closed, lambda: pair.send(piece))

    # One thread waits, another one is told so.
    until = time.monotonic() + 1.0

    def wait():
        while time.monotonic() < until:
            try:
                completions.wait(0.5)
            except hostd.Busy:
                pass

    waiter = threading.Thread(target=wait)
    waiter.start()
    busy = 0
    while waiter.is_alive():
        try:
            completions.poll()
        except hostd.Busy:
            busy += 1
        time.sleep(0.001)
    assert busy > 0
    waiter.join()


def rejection(context):
    """A listener turns a peer down, and another one by mere forgetting; a message goes to itself."""
    own = context.gids()[0].address
    listener = context.listen()
    completions = context.completion_queue(8)
    told = []

    def answer():
        request = listener.get_request(TIMEOUT)
        told.append((request.peer, request.private))
        request.reject(b"not today")
        fails(hostd.Closed, request.reject)
        del request
        listener.get_request(TIMEOUT)

    server = threading.Thread(target=answer)
    server.start()
    pair = context.queue_pair(completions)
    ask = lambda: pair.connect(own, listener.port, b"hello", TIMEOUT)  # noqa: E731
    error = fails(hostd.ConnectFailed, ask, hostd.Reason.REJECTED)
    # How long private data is, is not said on the wire.
    assert error.private.rstrip(b"\0") == b"not today", error.private
    assert told[0][0] == own and told[0][1].rstrip(b"\0") == b"hello", told
    pair = context.queue_pair(completions)
    fails(hostd.ConnectFailed, ask, hostd.Reason.REJECTED)
    server.join()


def lifetimes(context):
    """Memory lives as long as its last array, whatever else is closed; then the quota is free."""
    region = context.allocate(1 << 20)
    array = region.array(np.float32)
    view = region.memory[16:32]
    region.close()
    fails(hostd.Closed, lambda: region.memory)
    gc.collect()
    array[:] = 7.0
    assert bytes(view) == np.full(4, 7.0, np.float32).tobytes()
    del array
    gc.collect()
    view[0] = 1
    del view
    gc.collect()
    most = context.limits().memory
    for _ in range(8):
        # Were they not given back, the quota would soon be used up.
        context.allocate(most // 4).close()


def without_library():
    """Who has no library, or another one than the package is for, is told where it comes from."""
    for library, told in [("/nonexistent/libhostd.so.0", "make install"), ("libc.so.6", "the same version")]:
        environment = {**os.environ, "HOSTD_LIBRARY": library}
        command = [sys.executable, "-c", "import hostd"]
        process = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert process.returncode == 1, process.returncode
        last = process.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError") and told in last and "HOSTD_LIBRARY" in last, last


def main():
    address, port, text = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
    with hostd.Context(timeout=5.0) as context:
        region = write_and_count(context, address, port, text)
        errors(context, region)
        rejection(context)
        lifetimes(context)
    fails(hostd.Closed, context.limits)
    without_library()
    print("all as it should be")


if __name__ == "__main__":
    main()
