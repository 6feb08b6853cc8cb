"""A window as DCTCP has it, written from RFC 8257, to compare with hostd's.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, window in packets after the event), runs the algorithm over
the events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round trip, packets of 4096 bytes."""

import sys

BASE = 14000
G = 1 / 16
MAX_CWND = 224.0


class Dctcp:
    def __init__(self):
        self.cwnd = 12.5 * BASE / 4096
        self.alpha = 1.0
        self.acked = 0
        self.marked = 0
        self.last_loss = 0

    def ack(self, ce):
        self.acked += 1
        self.marked += ce
        if self.acked < self.cwnd:
            return
        self.alpha = (1 - G) * self.alpha + G * self.marked / self.acked
        self.cwnd = self.cwnd * (1 - self.alpha / 2) if self.marked else self.cwnd + 1
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
