"""RTTCC, written from docs/congestion.md, to compare with hostd's.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, rate in bits per second after the event), runs the algorithm over
the events, and prints the greatest relative difference of the rates. "mark" is the answer to a probe, "ack" an acknowledged packet,
"trim" a lost one. 100 Gb/s, 14 us of idle round trip, packets of 4096 bytes, a probe each 10 us at most."""

import sys

LINE, IDLE, PACKET, LEAST_INTERVAL = 100e9, 14000.0, 4096, 10000.0
LIMIT = IDLE + max(IDLE / 4, 8 * PACKET * 8 / LINE * 1e9)
BETA = 0.4
FIRST, LAST, FLOOR = LINE / 256, LINE / 20, LINE / 1024
PROBE_BITS, PROBE_PART = 1600.0, 1 / 50
STALE = 8


class Rttcc:
    def __init__(self):
        self.rate = LINE
        self.delta = FIRST
        self.rtt = IDLE
        self.heard = None
        self.other = 0

    def cut(self, part):
        self.rate = max(FLOOR, self.rate * (1 - part))
        self.delta = FIRST

    def round_trip(self, rtt):
        self.rtt = rtt
        if rtt > LIMIT:
            self.cut(BETA * (rtt - LIMIT) / rtt)
            return
        self.rate = min(LINE, self.rate + self.delta)
        self.delta = min(LAST, self.delta * 2)

    def probe(self, now, rtt):
        self.heard = now
        self.round_trip(rtt)

    def packet(self, now, rtt, lost):
        if now - self.other < self.rtt:
            return
        if lost:
            self.other = now
            self.cut(0.5)
            return
        interval = max(LEAST_INTERVAL, PROBE_BITS / PROBE_PART / self.rate * 1e9)
        if self.heard is None or now - self.heard > STALE * max(self.rtt, interval):
            self.other = now
            self.round_trip(rtt)


def main():
    model, worst = Rttcc(), 0.0
    for line in sys.stdin:
        now, rtt, kind, _, rate = line.split()
        if kind == "mark":
            model.probe(int(now), float(rtt))
        else:
            model.packet(int(now), float(rtt), kind == "trim")
        worst = max(worst, abs(model.rate - float(rate)) / model.rate)
    print(worst)


main()
