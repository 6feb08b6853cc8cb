"""Scapy as the oracle of the wire formats.

    oracle.py icrc            reads frames in hex, one a line; writes the ICRC of each in hex
    oracle.py frames SEED N   writes N frames of each kind as JSON: the bytes and what scapy put in
"""

import json
import logging
import random
import sys

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)

from scapy.all import (
    ARP, AH, Dot1AD, Dot1Q, Ether, ICMP, ICMPv6EchoRequest, ICMPv6PacketTooBig, IP, IPOption_RR,
    IPOption_Timestamp, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting, Packet, Raw, TCP, UDP, fragment, raw,
)
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.contrib.roce import AETH, BTH, cnp

ROCE_PORT = 4791
EXTENSIONS = (
    IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, AH,
)


def icrc():
    """Scapy's ICRC of each frame, as the bytes that end the frame."""
    for line in sys.stdin:
        packet = Ether(bytes.fromhex(line))
        packet[BTH].icrc = None
        print(raw(packet)[-4:].hex())


class Maker:
    """Frames of every kind with random fields."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def bits(self, count):
        return self.random.getrandbits(count)

    def data(self, most=200):
        return self.random.randbytes(self.random.randint(0, most))

    def mac(self):
        return ":".join("%02x" % byte for byte in self.random.randbytes(6))

    def v4(self):
        return ".".join(str(byte) for byte in self.random.randbytes(4))

    def v6(self):
        words = self.random.randbytes(16).hex()
        return ":".join(words[at:at + 4] for at in range(0, 32, 4))

    def ether(self):
        return Ether(dst=self.mac(), src=self.mac())

    def ip(self, **more):
        fields = {
            "src": self.v4(), "dst": self.v4(), "tos": self.bits(8), "ttl": self.bits(8),
            "id": self.bits(16), "flags": self.random.choice(["", "DF"]),
        }
        return IP(**{**fields, **more})

    def ipv6(self):
        return IPv6(src=self.v6(), dst=self.v6(), tc=self.bits(8), fl=self.bits(20),
                    hlim=self.bits(8))

    def udp(self):
        return UDP(sport=self.bits(16), dport=self.random.randint(1, 4000)) / Raw(self.data())

    def tag(self, kind):
        return kind(prio=self.bits(3), id=self.bits(1), vlan=self.bits(12))

    def roce(self, opcode, rest):
        padding = -len(rest) % 4
        bth = BTH(
            opcode=opcode, solicited=self.bits(1), migreq=self.bits(1), padcount=padding,
            pkey=self.bits(16), fecn=self.bits(1), becn=self.bits(1), resv6=self.bits(6),
            dqpn=self.bits(24), ackreq=self.bits(1), psn=self.bits(24),
        )
        udp = UDP(sport=self.bits(16), dport=ROCE_PORT, chksum=0)
        return self.ip() / udp / bth / Raw(rest + bytes(padding))

    def plain(self):
        yield "udp", self.ether() / self.ip() / self.udp()
        yield "udp v6", self.ether() / self.ipv6() / self.udp()
        yield "tcp", self.ether() / self.ip() / TCP() / Raw(self.data())
        yield "vlan", self.ether() / self.tag(Dot1Q) / self.ip() / self.udp()
        yield "qinq", self.ether() / self.tag(Dot1AD) / self.tag(Dot1Q) / self.ipv6() / self.udp()
        yield "qinqinq", (self.ether() / self.tag(Dot1AD) / self.tag(Dot1Q) / self.tag(Dot1Q)
                          / self.ip() / self.udp())
        # Short packets are padded on the wire; the padding is no part of them.
        yield "padded", self.ether() / self.ip() / UDP(dport=9) / Raw(b"x")

    def options(self):
        routers = [self.v4() for _ in range(self.random.randint(1, 9))]
        for option in (IPOption_RR(routers=routers), IPOption_Timestamp(flg=0)):
            yield "options", self.ether() / self.ip(options=[option]) / self.udp()

    def fragments(self):
        whole = self.ip(flags="") / UDP(sport=7, dport=9) / Raw(self.random.randbytes(900))
        for part in fragment(whole, fragsize=8 * self.random.randint(10, 60)):
            yield "fragment", self.ether() / part
        offset = self.random.randint(1, 0x1fff)
        for at, more in ((0, 1), (offset, 1), (offset, 0), (0, 0)):
            header = IPv6ExtHdrFragment(offset=at, m=more, id=self.bits(32), nh=17)
            yield "fragment v6", self.ether() / self.ipv6() / header / self.udp()

    def extensions(self):
        chains = (
            [IPv6ExtHdrHopByHop()], [IPv6ExtHdrDestOpt()],
            [IPv6ExtHdrRouting(addresses=[self.v6(), self.v6()])],
            [IPv6ExtHdrHopByHop(), IPv6ExtHdrRouting(addresses=[self.v6()]), IPv6ExtHdrDestOpt()],
            [IPv6ExtHdrHopByHop(), IPv6ExtHdrFragment(offset=0, m=1), IPv6ExtHdrDestOpt()],
            [AH(nh=17, payloadlen=4, icv=self.random.randbytes(12))],
        )
        for chain in chains:
            packet = self.ether() / self.ipv6()
            for header in chain:
                packet = packet / header
            yield "extensions", packet / self.udp()

    def messages(self):
        yield "ping", self.ether() / self.ip() / ICMP() / Raw(self.data())
        quoted = raw(self.ip() / self.udp())[:28]
        yield "unreachable", self.ether() / self.ip() / ICMP(type=3, code=4, nexthopmtu=1400) / quoted
        yield "exceeded", self.ether() / self.ip() / ICMP(type=11) / quoted
        yield "ping v6", self.ether() / self.ipv6() / ICMPv6EchoRequest(data=self.data())
        yield "too big", self.ether() / self.ipv6() / ICMPv6PacketTooBig(mtu=1280) / Raw(self.data())
        for op in (1, 2, 3):
            yield "arp", self.ether() / ARP(
                op=op, hwsrc=self.mac(), psrc=self.v4(), hwdst=self.mac(), pdst=self.v4())

    def controls(self):
        station = Ether(dst="01:80:c2:00:00:01", src=self.mac())
        yield "pause", station / MACControlPause(pause_time=self.bits(16))
        fields = {}
        for n in range(8):
            fields["c%d_enabled" % n] = self.bits(1)
            fields["c%d_pause_time" % n] = self.bits(16)
        yield "pfc", station / MACControlClassBasedFlowControl(**fields)

    def transport(self):
        for opcode in (0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0e):
            yield "data", self.ether() / self.roce(opcode, self.data())
        for opcode, length in ((0x06, 16), (0x0a, 16), (0x0c, 16), (0x13, 28), (0x14, 28), (0x03, 4),
                               (0x05, 4), (0x09, 4), (0x0b, 20), (0x16, 4), (0x17, 4)):
            fixed = opcode in (0x0c, 0x13, 0x14)
            rest = self.random.randbytes(length) + (b"" if fixed else self.data())
            yield "request", self.ether() / self.roce(opcode, rest)
        for opcode in (0x11, 0x12, 0x0d, 0x0f, 0x10):
            syndrome = self.random.choice([0x00, 0x1f, 0x25, 0x3f, 0x60, 0x61, 0x62, 0x63, 0x64])
            rest = bytes([syndrome]) + self.random.randbytes(3)
            rest += {0x11: b"", 0x12: self.random.randbytes(8)}.get(opcode, self.data())
            yield "response", self.ether() / self.roce(opcode, rest)
        yield "cnp", (self.ether() / self.ip() / UDP(sport=self.bits(16), dport=ROCE_PORT, chksum=0)
                      / cnp(self.bits(24)))

    def all(self):
        for kinds in (self.plain, self.options, self.fragments, self.extensions, self.messages,
                      self.controls, self.transport):
            yield from kinds()


def described(name, packet):
    """The frame's bytes, and the fields that scapy finds in them again."""
    wire = raw(packet)
    if name == "padded":
        wire += bytes(60 - len(wire))
    packet = Ether(wire)
    found = {"name": name, "hex": wire.hex(), "dst": packet.dst, "src": packet.src, "tags": []}
    layer = packet.payload
    found["ethertype"] = packet.type
    while isinstance(layer, (Dot1Q, Dot1AD)):
        tag = {"pcp": layer.prio, "dei": bool(layer.id), "vid": layer.vlan}
        found["tags"].append(tag)
        found["ethertype"] = layer.type
        layer = layer.payload
    if isinstance(layer, IP):
        found["v4"] = {
            "src": layer.src, "dst": layer.dst, "tos": layer.tos, "ttl": layer.ttl,
            "id": layer.id, "df": bool(layer.flags.DF), "mf": bool(layer.flags.MF),
            "offset": layer.frag, "protocol": layer.proto, "header": layer.ihl * 4,
            "total": layer.len, "checksum": layer.chksum,
        }
    elif isinstance(layer, IPv6):
        found["v6"] = v6(layer)
    elif isinstance(layer, ARP):
        found["arp"] = {"op": layer.op, "hwsrc": layer.hwsrc, "psrc": layer.psrc,
                        "hwdst": layer.hwdst, "pdst": layer.pdst}
    upper(packet, found)
    return found


def v6(layer):
    """Fields of the fixed header, and where the chain of extension headers ends."""
    found = {"src": layer.src, "dst": layer.dst, "tc": layer.tc, "fl": layer.fl,
             "hlim": layer.hlim, "plen": layer.plen, "nh": layer.nh}
    upper, at, offset, after = layer.nh, 40, None, layer.payload
    while isinstance(after, EXTENSIONS):
        if isinstance(after, IPv6ExtHdrFragment):
            offset = after.offset
        upper, at = after.nh, at + len(raw(after)) - len(raw(after.payload))
        after = after.payload
        if offset:
            break
    found.update(upper=upper, at=at, offset=offset)
    return found


def upper(packet, found):
    """UDP, RoCEv2 and MAC control, where scapy finds them."""
    if UDP in packet and "fragment" not in found["name"]:
        udp = packet[UDP]
        found["udp"] = {"sport": udp.sport, "dport": udp.dport, "len": udp.len,
                        "checksum": udp.chksum}
    if BTH in packet and packet[UDP].dport == ROCE_PORT:
        bth = packet[BTH]
        names = ("opcode", "solicited", "migreq", "padcount", "pkey", "fecn", "becn", "dqpn",
                 "ackreq", "psn")
        found["bth"] = {name: getattr(bth, name) for name in names}
        found["rest"] = raw(bth.payload).hex()
        if AETH in packet:
            found["aeth"] = {"syndrome": packet[AETH].syndrome, "msn": packet[AETH].msn}
    if MACControlPause in packet:
        found["pause"] = packet[MACControlPause].pause_time
    if MACControlClassBasedFlowControl in packet:
        pfc = packet[MACControlClassBasedFlowControl]
        found["pfc"] = [
            getattr(pfc, "c%d_pause_time" % n) if getattr(pfc, "c%d_enabled" % n) else None
            for n in range(8)
        ]


def frames(seed, count):
    """All frames as one JSON list."""
    maker = Maker(seed)
    json.dump([described(*frame) for _ in range(count) for frame in maker.all()], sys.stdout)


if __name__ == "__main__":
    if sys.argv[1] == "icrc":
        icrc()
    else:
        frames(int(sys.argv[2]), int(sys.argv[3]))
