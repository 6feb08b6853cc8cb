"""Poseidon, written from the formulas of its paper (NSDI 2023) and of its authors' simulator, to compare with hostd's.

Reads a trace (time in ns, round trip in ns or value of a signal, kind, whether no device wrote the value, window in packets after the
event), runs the algorithm over the events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round
trip, packets of 4096 bytes, k 2 us, p 42 us."""

import math
import sys

BASE, LINE, MTU = 14000.0, 12.5, 4096
P, K, M = 42000.0, 2000.0, 0.25
MAX_RATE, MIN_RATE = LINE, LINE / 1000
MIN_CWND, MAX_CWND = 1 / 1024, 224.0
RTTS = 8


class Poseidon:
    def __init__(self):
        self.cwnd = LINE * BASE / MTU
        self.rtt = BASE
        self.mpd, self.mpd_time = None, None
        self.written = None
        self.t_last_loss = 0

    def signal(self, now, kind, value, neutral):
        if kind == "delay":
            self.mpd, self.mpd_time = value, now
        if not neutral:
            self.written = now

    def delay(self, now, rtt):
        age = RTTS * rtt / min(1.0, self.cwnd)
        fresh = self.mpd is not None and now - self.mpd_time <= age
        written = self.written is not None and now - self.written <= age
        return self.mpd if fresh and written else max(0.0, rtt - BASE)

    def ack(self, now, rtt):
        self.rtt = rtt
        delay = self.delay(now, rtt)
        rate = max(MIN_RATE, min(self.cwnd * MTU / rtt, MAX_RATE))
        decades = math.log(MAX_RATE) - math.log(MIN_RATE)
        target = P * (math.log(MAX_RATE) - math.log(rate)) / decades + K
        ratio = math.exp((target - delay) / P * decades * M)
        ratio = max(0.4, min(ratio, 2.5))
        self.cwnd += ratio - 1 if self.cwnd >= 1 else self.cwnd * (ratio - 1)
        self.bound()

    def loss(self, now):
        if now - self.t_last_loss >= self.rtt:
            self.t_last_loss = now
            self.cwnd /= 2
        self.bound()

    def bound(self):
        self.cwnd = max(MIN_CWND, min(self.cwnd, MAX_CWND))


def main():
    model, worst = Poseidon(), 0.0
    for line in sys.stdin:
        now, value, kind, neutral, window = line.split()
        if kind == "trim":
            model.loss(int(now))
        elif kind == "ack":
            model.ack(int(now), float(value))
        else:
            model.signal(int(now), kind, float(value), neutral == "1")
        worst = max(worst, abs(model.cwnd - float(window)) / model.cwnd)
    print(worst)


main()
