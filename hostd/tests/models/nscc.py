"""NSCC, written from its published description, to compare with hostd's.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, window in bytes after the event), runs the algorithm over the
events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round trip, packets of 4096 bytes."""

import sys

MSS = 4096.0
RATE = 12.5  # bytes in a ns
BASE = 14000.0
TARGET = 0.75 * BASE  # of the queueing delay, with trimming
BDP = RATE * BASE
A = BDP / (12.5 * 12000.0)  # scaling by the network's product
B = TARGET / 12000.0  # and by the target
MAX = 1.5 * BDP


class Nscc:
    def __init__(self):
        self.cwnd = MAX
        self.avg = 0.0
        self.inc = 0.0
        self.got = 0.0
        self.last_adjust = 0
        self.last_eta = 0
        self.last_dec = 0
        self.fi_bytes = 0.0
        self.fast = False
        self.qa_end = None
        self.achieved = 0.0
        self.trigger = False
        self.ignore = 0.0

    def clamp(self):
        self.cwnd = min(max(self.cwnd, MSS / 128), MAX)

    def quick_adapt(self, now, hit, in_flight):
        if self.qa_end is not None and now < self.qa_end:
            return False
        done = False
        if self.qa_end is not None and (hit or self.trigger) and self.achieved < MAX / 8:
            self.cwnd = max(self.achieved, min(self.cwnd, MSS) / 2)
            self.ignore = in_flight
            self.inc = 0.0
            self.clamp()
            done = True
        self.trigger = False
        self.achieved = 0.0
        self.qa_end = now + int(BASE + TARGET)
        return done

    def nack(self, now, in_flight):
        self.trigger = True
        if self.ignore > 0:
            self.ignore -= MSS
        elif not self.quick_adapt(now, True, in_flight):
            self.cwnd = max(self.cwnd - MSS, self.cwnd / 2)
            self.clamp()

    def ack(self, now, rtt, ecn, in_flight):
        self.achieved += MSS
        delay = max(rtt - BASE, 0.0)
        sample = 0.25 * BASE if (delay > TARGET and not ecn) else delay
        self.avg += 0.0125 * (sample - self.avg)
        if self.ignore > 0:
            self.ignore -= MSS
            if ecn:
                return
        if self.quick_adapt(now, delay > 4 * TARGET, in_flight):
            return
        if self.cwnd < MSS:  # a pace: one packet each cwnd-th part of a round trip
            part = min(delay / TARGET, 1.0)
            if ecn:
                self.cwnd *= 1 - 0.25 * part
            elif delay < 1000:
                self.cwnd *= 1.5
            else:
                self.cwnd += min(MSS * MSS / 512 / self.cwnd, self.cwnd) * (1 - part)
            self.cwnd = min(max(self.cwnd, MSS / 128), MSS)
            self.inc = 0.0
            return
        if ecn and delay >= TARGET:
            if self.avg > TARGET and now - self.last_dec > BASE:
                self.cwnd *= max(1 - 0.8 * (self.avg - TARGET) / self.avg, 0.5)
                self.last_dec = now
        elif not ecn and delay >= TARGET:
            self.inc += 5 * MSS * A * MSS
        elif not ecn:
            if delay < 1000:
                self.fi_bytes += MSS
                self.fast = self.fast or self.fi_bytes > self.cwnd
            else:
                self.fi_bytes = 0.0
                self.fast = False
            if self.fast:
                self.cwnd += 0.25 * A * MSS
            else:
                self.inc += 4 * MSS * A * B / TARGET * MSS * (TARGET - delay)
        self.got += MSS
        if self.got >= 8 * MSS or now - self.last_adjust >= BASE:
            self.cwnd += self.inc / self.cwnd
            self.inc = self.got = 0.0
            self.last_adjust = now
            if now - self.last_eta > BASE:
                self.cwnd += 0.15 * MSS * A
                self.last_eta = now
        self.clamp()


def main():
    model, worst = Nscc(), 0.0
    for line in sys.stdin:
        now, rtt, kind, in_flight, window = line.split()
        flying = int(in_flight) * MSS
        if kind == "trim":
            model.nack(int(now), flying)
        else:
            model.ack(int(now), float(rtt), kind == "mark", flying)
        worst = max(worst, abs(model.cwnd - float(window)) / model.cwnd)
    print(worst)


main()
