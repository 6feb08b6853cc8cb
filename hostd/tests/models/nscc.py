"""NSCC, written from its published description, to compare with hostd's.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, window in bytes after the event), runs the algorithm over the
events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round trip, packets of 4096 bytes.
Arguments like 2000:128 say that the peer tells of a crowd of 128 before event 2000."""

import sys

MSS = 4096.0
RATE = 12.5  # bytes in a ns
BASE = 14000.0
TARGET = 0.75 * BASE  # of the queueing delay, with trimming
BDP = RATE * BASE
A = BDP / (12.5 * 12000.0)  # scaling by the network's product
B = TARGET / 12000.0  # and by the target
MAX = 1.75 * BDP  # with trimming
FIRST = 1.35 * BDP
GOODPUT = BDP * MSS / (MSS + 98)  # payload of a round trip; 98 bytes of headers and framing


class Nscc:
    def __init__(self):
        self.cwnd = FIRST
        self.opening = True  # until something comes marked, late or trimmed
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
        self.crowd = 0
        self.share = 0.0  # of a crowd, in bytes of a round trip
        self.fair = 0.0  # the same of any number that is told
        self.target = TARGET
        self.trims = False  # whether any packet was trimmed

    def least(self):
        return min(max(MSS / 128, self.share), MSS)

    def clamp(self):
        self.cwnd = min(max(self.cwnd, self.least()), MAX)

    def crowded(self):
        return 0 < self.share < MSS

    def tell(self, crowd):
        before, self.crowd = self.crowd, crowd
        self.fair = GOODPUT / crowd if crowd else 0.0
        self.share = self.fair if crowd >= 16 else 0.0
        self.retarget()
        if 0 < crowd < before and not self.crowded() and self.cwnd < self.fair:
            self.cwnd = min(1.5 * self.fair, MAX)
        if self.cwnd < MSS:
            if before and crowd:  # the pace follows the share
                self.cwnd *= before / crowd
            self.clamp()

    def retarget(self):
        self.target = TARGET / 2 if self.crowd > 1 and self.trims else TARGET

    def quick_adapt(self, now, hit, in_flight):
        if self.qa_end is not None and now < self.qa_end:
            return False
        done = False
        if self.qa_end is not None and (hit or self.trigger) and self.achieved < MAX / 8 and not self.crowded():
            self.cwnd = max(self.achieved, min(self.cwnd, MSS) / 2)
            self.ignore = in_flight
            self.inc = 0.0
            self.clamp()
            done = True
        self.trigger = False
        self.achieved = 0.0
        self.qa_end = now + int(BASE + self.target)
        return done

    def grow(self, delay):
        if delay < 1000:
            self.fi_bytes += MSS
            self.fast = self.fast or self.fi_bytes > self.cwnd
        else:
            self.fi_bytes = 0.0
            self.fast = False
        if self.fast:
            self.cwnd += 0.25 * A * MSS
        else:
            self.inc += 4 * MSS * A * B / TARGET * MSS * (self.target - delay)

    def nack(self, now, in_flight):
        self.trigger = True
        self.opening = False
        if self.ignore > 0:
            self.ignore -= MSS
        elif not self.crowded() and self.fair and self.cwnd > 1.5 * self.fair:
            self.cwnd = 1.5 * self.fair
            self.ignore = in_flight
            self.inc = 0.0
            self.clamp()
        elif not self.quick_adapt(now, True, in_flight):
            if not self.crowded():
                self.cwnd = max(self.cwnd - MSS, self.cwnd / 2)
            elif self.cwnd > 1.5 * self.share:
                self.cwnd = self.share
            else:
                self.cwnd *= 0.95
            self.clamp()
        self.trims = True
        self.retarget()

    def ack(self, now, rtt, ecn, in_flight):
        self.achieved += MSS
        delay = max(rtt - BASE, 0.0)
        sample = 0.25 * BASE if (delay > self.target and not ecn) else delay
        self.avg += 0.0125 * (sample - self.avg)
        if self.ignore > 0:
            self.ignore -= MSS
            if ecn:
                return
        if self.quick_adapt(now, delay > 4 * self.target, in_flight):
            return
        if self.cwnd < MSS:  # a pace: one packet each cwnd-th part of a round trip
            part = min(delay / self.target, 1.0)
            if self.share and ecn:
                self.cwnd *= 1 - 0.05 * part
            elif self.share:
                self.cwnd *= 1.05 if delay < 1000 else 1 + 0.02 * (1 - part)
            elif ecn:
                self.cwnd *= 1 - 0.25 * part
            elif delay < 1000:
                self.cwnd *= 1.5
            else:
                self.cwnd += min(MSS * MSS / 512 / self.cwnd, self.cwnd) * (1 - part)
            self.cwnd = min(max(self.cwnd, self.least()), MSS)
            self.inc = 0.0
            return
        self.opening = self.opening and not ecn and delay < self.target
        if ecn and delay >= self.target:
            if self.avg > self.target and now - self.last_dec > BASE:
                self.cwnd = max(self.cwnd * max(1 - 0.8 * (self.avg - self.target) / self.avg, 0.5), MSS)
                self.last_dec = now
        elif not ecn and delay >= self.target:
            self.inc += 5 * MSS * A * MSS
        elif not ecn:
            self.opening = self.opening and self.cwnd < MAX
            if self.opening:
                self.cwnd += MSS
            elif delay < 1000 and self.cwnd < self.fair:
                self.cwnd = min(self.fair, MAX)
            else:
                self.grow(delay)
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
    crowds = dict(map(int, told.split(":")) for told in sys.argv[1:])
    for event, line in enumerate(sys.stdin):
        if event in crowds:
            model.tell(crowds[event])
        now, rtt, kind, in_flight, window = line.split()
        flying = int(in_flight) * MSS
        if kind == "trim":
            model.nack(int(now), flying)
        else:
            model.ack(int(now), float(rtt), kind == "mark", flying)
        worst = max(worst, abs(model.cwnd - float(window)) / model.cwnd)
    print(worst)


main()
