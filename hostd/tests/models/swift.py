"""Swift, written from its paper (SIGCOMM 2020), to compare with hostd's.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, window in packets after the event), runs the algorithm over
the events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round trip, packets of 4096 bytes."""

import math
import sys

BASE = 14000.0
BASE_TARGET = 1.25 * BASE
FS_RANGE = 0.75 * BASE
FS_MIN, FS_MAX = 0.1, 100.0
AI, BETA, MAX_MDF = 1.0, 0.8, 0.5
MIN_CWND, MAX_CWND = 1 / 1024, 224.0


class Swift:
    def __init__(self):
        self.cwnd = 12.5 * BASE / 4096
        self.rtt = BASE
        self.t_last_decrease = 0

    def target(self):
        alpha = FS_RANGE / (1 / math.sqrt(FS_MIN) - 1 / math.sqrt(FS_MAX))
        beta = -alpha / math.sqrt(FS_MAX)
        return BASE_TARGET + max(0.0, min(alpha / math.sqrt(self.cwnd) + beta, FS_RANGE))

    def cut(self, now, factor):
        if now - self.t_last_decrease >= self.rtt:
            self.cwnd *= max(factor, 1 - MAX_MDF)
            self.t_last_decrease = now

    def ack(self, now, delay):
        self.rtt = delay
        target = self.target()
        if delay < target:
            self.cwnd += AI / self.cwnd if self.cwnd >= 1 else AI
        else:
            self.cut(now, 1 - BETA * (delay - target) / delay)
        self.cwnd = max(MIN_CWND, min(self.cwnd, MAX_CWND))

    def loss(self, now):
        self.cut(now, 1 - MAX_MDF)
        self.cwnd = max(MIN_CWND, min(self.cwnd, MAX_CWND))


def main():
    model, worst = Swift(), 0.0
    for line in sys.stdin:
        now, rtt, kind, _, window = line.split()
        if kind == "trim":
            model.loss(int(now))
        else:
            model.ack(int(now), float(rtt))
        worst = max(worst, abs(model.cwnd - float(window)) / model.cwnd)
    print(worst)


main()
