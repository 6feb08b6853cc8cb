"""A window as DCTCP has it, written from RFC 8257, to compare with hostd's.

Two things the RFC leaves open or recommends otherwise. The increase of congestion avoidance goes on in a window that is marked in part, as the
RFC keeps that of RFC 5681; not in one that is marked throughout. And alpha has no value to begin with: the first marked window sets it, and as long as all are marked throughout,
so does the next marked one.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, window in packets after the event), runs the algorithm over
the events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round trip, packets of 4096 bytes."""

import sys

BASE = 14000
G = 1 / 16
MAX_CWND = 224.0


class Dctcp:
    def __init__(self):
        self.cwnd = 12.5 * BASE / 4096
        self.alpha = None
        self.acked = 0
        self.marked = 0
        self.last_loss = 0

    def ack(self, ce):
        self.acked += 1
        self.marked += ce
        if self.acked < self.cwnd:
            return
        fraction = self.marked / self.acked
        if self.alpha is None or (self.alpha == 1 and self.marked):
            self.alpha = fraction or None
        else:
            self.alpha = (1 - G) * self.alpha + G * fraction
        if self.marked:
            self.cwnd *= 1 - self.alpha / 2
        if fraction < 1:
            self.cwnd += 1
        self.cwnd = max(1.0, min(self.cwnd, MAX_CWND))
        self.acked = self.marked = 0

    def loss(self, now):
        if now - self.last_loss >= BASE:
            self.cwnd = max(1.0, self.cwnd / 2)
            self.last_loss = now


def main():
    model, worst = Dctcp(), 0.0
    for line in sys.stdin:
        now, _, kind, _, window = line.split()
        if kind == "trim":
            model.loss(int(now))
        else:
            model.ack(kind == "mark")
        worst = max(worst, abs(model.cwnd - float(window)) / model.cwnd)
    print(worst)


main()
