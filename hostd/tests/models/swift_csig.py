"""Swift with congestion signals, written from its paper (SIGCOMM 2020) and the use cases of draft-ravi-ippm-csig-01, to compare with
hostd's.

Reads a trace (time in ns, round trip in ns or value of a signal, kind, whether no device wrote the value, window in packets after the
event), runs the algorithm over the events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round
trip, packets of 4096 bytes, lambda 1."""

import math
import sys

BASE, LINE, MTU = 14000.0, 12.5, 4096
BDP = LINE * BASE / MTU
FS_RANGE, FS_MIN, FS_MAX = 0.75 * BASE, 0.1, 100.0
AI, BETA, MAX_MDF, LAMBDA = 1.0, 0.8, 0.5, 1.0
MIN_CWND, MAX_CWND = 1 / 1024, 224.0
FIRST, RTTS = 10, 8


class Signal:
    value, time, neutral = None, None, False

    def fresh(self, now, age):
        return self.time is not None and now - self.time <= age


class SwiftCsig:
    def __init__(self):
        self.fcwnd = float(FIRST)
        self.rtt = BASE
        self.t_last_decrease = 0
        self.in_first_rtt = FIRST
        self.abw, self.pd = Signal(), Signal()
        self.written = None
        self.silent_fabric = False

    def age(self):
        return RTTS * self.rtt / min(1.0, self.fcwnd)

    def target_queueing(self):
        alpha = FS_RANGE / (1 / math.sqrt(FS_MIN) - 1 / math.sqrt(FS_MAX))
        scaled = alpha / math.sqrt(self.fcwnd) - alpha / math.sqrt(FS_MAX)
        return 0.25 * BASE + max(0.0, min(scaled, FS_RANGE))

    def free(self, now, age):
        if not self.abw.fresh(now, age) or (self.abw.neutral and self.silent_fabric):
            return None
        return self.abw.value

    def max_pd(self, now):
        written = self.written is not None and now - self.written <= self.age()
        return self.pd.value if self.pd.fresh(now, self.age()) and written else None

    def line_rate_start(self, now):
        if self.in_first_rtt <= 0:
            return
        free = self.free(now, 1e9)
        if free is None and self.in_first_rtt == 1:
            free = 1.0
        if free is not None:
            self.in_first_rtt = 0
            self.fcwnd = min(max(self.fcwnd, free * BDP), MAX_CWND)

    def cut(self, now, md):
        if now - self.t_last_decrease >= self.rtt:
            self.fcwnd *= 1 - min(md, MAX_MDF)
            self.t_last_decrease = now

    def signal(self, now, kind, value, neutral):
        signal = self.abw if kind == "share" else self.pd
        signal.value, signal.time, signal.neutral = value, now, neutral
        if not neutral:
            self.written, self.silent_fabric = now, False
        self.line_rate_start(now)
        if kind == "delay":
            pd, target = self.max_pd(now), self.target_queueing()
            if pd is not None and pd > target:
                self.cut(now, BETA * (pd - target) / pd)

    def ack(self, now, rtt):
        self.line_rate_start(now)
        self.in_first_rtt -= 1
        self.rtt = rtt
        free, pd = self.free(now, self.age()), self.max_pd(now)
        target = BASE + self.target_queueing()
        if rtt < target:
            own = self.fcwnd * MTU / (rtt * LINE)
            gain = LAMBDA * max(0.0, min(free or 0.0, 1 - own))
            self.fcwnd += (AI / self.fcwnd if self.fcwnd >= 1 else AI) + gain
        elif pd is None:
            self.silent_fabric = True
            self.cut(now, BETA * (rtt - target) / rtt)
        self.bound()

    def loss(self, now):
        self.line_rate_start(now)
        self.in_first_rtt = 0
        self.cut(now, MAX_MDF)
        self.bound()

    def bound(self):
        self.fcwnd = max(MIN_CWND, min(self.fcwnd, MAX_CWND))


def main():
    model, worst = SwiftCsig(), 0.0
    for line in sys.stdin:
        now, value, kind, neutral, window = line.split()
        if kind == "trim":
            model.loss(int(now))
        elif kind == "ack":
            model.ack(int(now), float(value))
        elif kind == "share":
            model.signal(int(now), kind, float(value) / 1e6, neutral == "1")
        else:
            model.signal(int(now), kind, float(value), neutral == "1")
        worst = max(worst, abs(model.fcwnd - float(window)) / model.fcwnd)
    print(worst)


main()
