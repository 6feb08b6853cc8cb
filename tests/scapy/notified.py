"""A sender and a receiver of RoCEv2 made with scapy, for a switch that makes CNPs which senders miss.

    notified.py receive FROM EVERY    answers data of FROM: acknowledgements, and a CNP each EVERY s
    notified.py send TO RATE SECONDS PSN
                                      sends RATE packets a second; prints the CNPs that came as JSON
"""

import json
import logging
import socket
import sys
import time

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)

from scapy.all import Ether, IP, Raw, UDP, conf, get_if_hwaddr, getmacbyip, raw
from scapy.contrib.roce import AETH, BTH, cnp

ROCE_PORT = 4791
SENDER_QP = 0x1001
RECEIVER_QP = 0x2002
# What comes from this UDP port was made by the receiver.
RECEIVER_PORT = 51_111

SEND_ONLY, ACKNOWLEDGE, CNP = 0x04, 0x11, 0x81
# Where things stand in an Ethernet frame with IPv4 without options.
DESTINATION_PORT, OPCODE, PSN = slice(36, 38), 42, slice(51, 54)
LONGEST = 2048


class End:
    """This host's end of the connection to `peer`."""

    def __init__(self, peer):
        self.peer = peer
        self.interface, self.address, gateway = conf.route.route(peer)
        self.gateway = getmacbyip(gateway if gateway != "0.0.0.0" else peer)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.socket.bind((self.interface, 0))

    def frame(self, port, tos, roce):
        """The bytes of a packet, with the ICRC of scapy."""
        ether = Ether(src=get_if_hwaddr(self.interface), dst=self.gateway)
        ip = IP(src=self.address, dst=self.peer, tos=tos, flags="DF")
        return bytearray(raw(ether / ip / UDP(sport=port, dport=ROCE_PORT, chksum=0) / roce))

    def received(self, flags):
        """The next frame of RoCEv2; `None` if there is none, or another one."""
        try:
            frame = self.socket.recv(LONGEST, flags)
        except BlockingIOError:
            return None
        is_roce = frame[DESTINATION_PORT] == ROCE_PORT.to_bytes(2, "big")
        return frame if is_roce and len(frame) > PSN.stop else b""


def receive(peer, every):
    """Acknowledges each eighth packet, and notifies its sender of congestion that there is not."""
    end = End(peer)
    answer = BTH(opcode=ACKNOWLEDGE, dqpn=SENDER_QP) / AETH(syndrome=0x1F, msn=1)
    answer = end.frame(RECEIVER_PORT, 0, answer)
    notification = bytes(end.frame(RECEIVER_PORT, 48 << 2, cnp(SENDER_QP)))
    seen, due = 0, 0
    print("ready", flush=True)
    while True:
        frame = end.received(0)
        if not frame or frame[OPCODE] != SEND_ONLY:
            continue
        seen += 1
        if seen % 8 == 0:
            answer[PSN] = frame[PSN]
            end.socket.send(answer)
        now = time.monotonic()
        if now >= due:
            end.socket.send(notification)
            due = now + every


def has_valid_icrc(frame):
    packet = Ether(frame)
    packet[BTH].icrc = None
    return raw(packet)[-4:] == frame[-4:]


def told(frame):
    """What a CNP says."""
    packet = Ether(frame)
    ip, bth = packet[IP], packet[BTH]
    return {
        "made": packet[UDP].sport != RECEIVER_PORT,
        "source": ip.src, "destination": ip.dst, "dscp": ip.tos >> 2,
        "qp": bth.dqpn, "becn": bth.becn, "zeros": frame[54:-4] == bytes(16),
        "icrc": has_valid_icrc(frame),
    }


def send(peer, rate, seconds, psn):
    """Sends what is due; who was away for long does not make up for it by more than 20 ms."""
    end = End(peer)
    bth = BTH(opcode=SEND_ONLY, dqpn=RECEIVER_QP, ackreq=1)
    # ECT(0).
    data = end.frame(49_999, 2, bth / Raw(bytes(960)))
    found = []
    began = due = time.monotonic()
    # The last answers are waited for.
    while (now := time.monotonic()) < began + seconds + 0.5:
        due = max(due, now - 0.02)
        while due <= now < began + seconds:
            data[PSN] = psn.to_bytes(3, "big")
            end.socket.send(data)
            psn += 1
            due += 1 / rate
        while (frame := end.received(socket.MSG_DONTWAIT)) is not None:
            if frame and frame[OPCODE] == CNP:
                found.append(frame)
        time.sleep(0.001)
    print(json.dumps({"next": psn, "cnps": [told(frame) for frame in found]}))


if sys.argv[1] == "receive":
    receive(sys.argv[2], float(sys.argv[3]))
else:
    send(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
