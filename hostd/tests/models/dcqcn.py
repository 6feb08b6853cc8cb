"""The reaction point of DCQCN, written from its paper (SIGCOMM 2015), to compare with hostd's.

Reads a trace (time in ns, round trip in ns, kind, packets in flight, rate in bits per second after the event), runs the algorithm over
the events, and prints the greatest relative difference of the rates. 100 Gb/s; 64 frames of 9024 bytes leave after each event. The
argument is the interval of notifications in us."""

import sys

LINE = 100e9
N = float(sys.argv[1]) * 1000
K = T = 1.1 * N
B = 10e6
F = 5
G = 1 / 256
R_AI, R_HAI = LINE / 1000, LINE / 100
R_MIN = LINE / 1024
FRAMES, FRAME = 64, 9024


class ReactionPoint:
    def __init__(self):
        self.last_cnp = None
        self.free()

    def free(self):
        """At line rate there is no limiter."""
        self.limited = False
        self.rc = self.rt = LINE
        self.alpha = 1.0

    def cnp(self, now):
        if self.last_cnp is not None and now - self.last_cnp < N:
            return
        self.last_cnp = now
        self.limited = True
        self.rt = self.rc
        self.rc = max(self.rc * (1 - self.alpha / 2), R_MIN)
        self.alpha = (1 - G) * self.alpha + G
        self.t = self.bc = 0
        self.sent = 0
        self.alpha_timer = now + K
        self.rate_timer = now + T

    def increase(self):
        if max(self.t, self.bc) < F:
            pass  # fast recovery
        elif min(self.t, self.bc) > F:
            self.rt += R_HAI
        else:
            self.rt += R_AI
        self.rt = min(self.rt, LINE)
        self.rc = (self.rc + self.rt) / 2
        if self.rc >= LINE - R_AI:
            self.free()

    def clock(self, now):
        while self.limited and min(self.alpha_timer, self.rate_timer) <= now:
            if self.alpha_timer <= self.rate_timer:
                self.alpha *= 1 - G
                self.alpha_timer += K
            else:
                self.t += 1
                self.rate_timer += T
                self.increase()

    def send(self, size):
        if self.limited:
            self.sent += size
            if self.sent >= B:
                self.sent -= B
                self.bc += 1
                self.increase()


def main():
    rp, worst = ReactionPoint(), 0.0
    for line in sys.stdin:
        now, _, kind, _, rate = line.split()
        rp.clock(int(now))
        if kind != "ack":
            rp.cnp(int(now))
        for _ in range(FRAMES):
            rp.send(FRAME)
        worst = max(worst, abs(rp.rc - float(rate)) / rp.rc)
    print(worst)


main()
