"""TIMELY, written from its paper (SIGCOMM 2015), to compare with hostd's.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, rate in bits per second after the event), runs the algorithm over
the events, and prints the greatest relative difference of the rates. 100 Gb/s, 14 us of base round trip, T_low 20 us, T_high 40 us."""

import sys

LINE, MIN_RTT = 100e9, 14000.0
T_LOW, T_HIGH = 20000.0, 40000.0
ALPHA, BETA, DELTA, HAI_THRESH, N = 0.875, 0.8, LINE / 1000, 5, 5
R_MIN, MAX_MD = LINE / 1024, 0.5


class Timely:
    def __init__(self):
        self.rate = LINE
        self.prev_rtt = None
        self.rtt_diff = 0.0
        self.completions = 0
        self.last_update = 0

    def bound(self):
        self.rate = max(R_MIN, min(self.rate, LINE))

    def completion(self, now, rtt):
        if now - self.last_update < rtt:
            return
        self.last_update = now
        if self.prev_rtt is None:
            self.prev_rtt = rtt
            return
        new_diff = rtt - self.prev_rtt
        self.prev_rtt = rtt
        self.rtt_diff = (1 - ALPHA) * self.rtt_diff + ALPHA * new_diff
        gradient = self.rtt_diff / MIN_RTT
        if rtt < T_LOW:
            self.completions = 0
            self.rate += DELTA
        elif rtt > T_HIGH:
            self.completions = 0
            self.rate *= 1 - min(MAX_MD, BETA * (1 - T_HIGH / rtt))
        elif gradient <= 0:
            self.completions += 1
            self.rate += (N if self.completions >= HAI_THRESH else 1) * DELTA
        else:
            self.completions = 0
            self.rate *= 1 - min(MAX_MD, BETA * gradient)
        self.bound()

    def loss(self, now):
        if now - self.last_update >= (self.prev_rtt or MIN_RTT):
            self.last_update = now
            self.completions = 0
            self.rate *= 1 - MAX_MD
            self.bound()


def main():
    model, worst = Timely(), 0.0
    for line in sys.stdin:
        now, rtt, kind, _, rate = line.split()
        if kind == "trim":
            model.loss(int(now))
        else:
            model.completion(int(now), float(rtt))
        worst = max(worst, abs(model.rate - float(rate)) / model.rate)
    print(worst)


main()
