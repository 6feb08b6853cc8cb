"""AEGISMAC-128L, written from RFC 10032 and FIPS 197, to compare with the tags of in-network compute.

Reads lines of three fields in hex, key and nonce of 16 bytes and the data. Prints the tag of 16 bytes of each."""

import sys

C0 = bytes.fromhex("000101020305080d1522375990e97962")
C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")


def xtime(a):
    return (a << 1) ^ (0x11B if a & 0x80 else 0)


def times(a, b):
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = xtime(a), b >> 1
    return product


def substitution(a):
    inverse = next((b for b in range(256) if times(a, b) == 1), 0)
    out = 0x63
    for turn in range(5):
        out ^= (inverse << turn | inverse >> 8 - turn) & 0xFF
    return out


SBOX = [substitution(a) for a in range(256)]


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def aes_round(state, key):
    out = bytearray()
    for column in range(4):
        a = [SBOX[state[(column + row) % 4 * 4 + row]] for row in range(4)]
        out += bytes(xtime(a[r]) ^ xtime(a[r - 3]) ^ a[r - 3] ^ a[r - 2] ^ a[r - 1] for r in range(4))
    return xor(out, key)


def update(s, m0, m1):
    old = list(s)
    for i in range(8):
        s[i] = aes_round(old[i - 1], xor(old[i], {0: m0, 4: m1}.get(i, bytes(16))))


def mac(key, nonce, data):
    s = [xor(key, nonce), C1, C0, C1, xor(key, nonce), xor(key, C0), xor(key, C1), xor(key, C0)]
    for _ in range(10):
        update(s, nonce, key)
    padded = data + bytes(-len(data) % 32)
    for at in range(0, len(padded), 32):
        update(s, padded[at : at + 16], padded[at + 16 : at + 32])
    t = xor(s[2], (len(data) * 8).to_bytes(8, "little") + (128).to_bytes(8, "little"))
    for _ in range(7):
        update(s, t, t)
    tag = bytes(16)
    for i in range(7):
        tag = xor(tag, s[i])
    return tag


for line in sys.stdin:
    print(mac(*map(bytes.fromhex, line.split())).hex())
