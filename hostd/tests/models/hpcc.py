"""HPCC, written from algorithm 1 of its paper (SIGCOMM 2019), to compare with hostd's.

Reads a trace (time in ns; round trip in ns, or what is in flight in 1024ths; kind; ns since the packet left; window in packets after the
event), runs the algorithm over the events, and prints the greatest relative difference of the windows. 100 Gb/s, 14 us of base round
trip, packets of 4096 bytes, eta 0.95, maxStage 5, 100 flows."""

import sys

T, LINE, MTU = 14000.0, 12.5, 4096
ETA, MAX_STAGE, N = 0.95, 5, 100
W_INIT = LINE * T / MTU
W_AI = W_INIT * (1 - ETA) / N
W_MIN = 1 / 1024
RTTS = 8


class Hpcc:
    def __init__(self):
        self.w = self.w_c = W_INIT
        self.inc_stage = 0
        self.last_update = 0
        self.u, self.u_time = None, None
        self.rtt = T
        self.t_last_loss = 0

    def compute_wind(self, u, update_wc):
        if u >= ETA or self.inc_stage >= MAX_STAGE:
            w = self.w_c / (u / ETA) + W_AI if u > 0 else W_INIT
            stage = 0
        else:
            w = self.w_c + W_AI
            stage = self.inc_stage + 1
        w = max(W_MIN, min(w, W_INIT))
        if update_wc:
            self.inc_stage, self.w_c = stage, w
        return w

    def ack(self, now, rtt, sent):
        self.rtt = rtt
        age = RTTS * rtt / min(1.0, self.w)
        fresh = self.u is not None and now - self.u_time <= age
        u = self.u if fresh else rtt / T
        update = sent >= self.last_update
        self.w = self.compute_wind(u, update)
        if update:
            self.last_update = now

    def loss(self, now):
        if now - self.t_last_loss >= self.rtt:
            self.t_last_loss = now
            self.w = self.w_c = max(W_MIN, self.w / 2)


def main():
    model, worst = Hpcc(), 0.0
    for line in sys.stdin:
        now, value, kind, since, window = line.split()
        now = int(now)
        if kind == "trim":
            model.loss(now)
        elif kind == "ack":
            model.ack(now, float(value), now - int(since))
        else:
            model.u, model.u_time = float(value) / 1024, now
        worst = max(worst, abs(model.w - float(window)) / model.w)
    print(worst)


main()
