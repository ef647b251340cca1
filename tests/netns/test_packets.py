#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The packets of a seeded job, byte for byte behind their UDP headers: requests, answers, JOIN,
WELCOME and LEAVE as they pass the aggregator's link, against digests in packets.json. Native
and generic XDP, the software aggregator, ranks over UDP and, with THC_TRANSPORT=af_thc, over
AF_THC sockets have to put the same packets there, with losses, too.

What two runs need not share is taken out first: epochs, nonces, and with them the packet
sum, which has been checked; answers that are repeated, WAIT and STALE. Copies count once.
So slots are few: chunks come to later generations of them.

    test_packets.py --write     after a change of the wire that is meant
"""
import hashlib
import json
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks  # noqa: E402
from tap import netns  # noqa: E402

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packets.json")
COUNTS = [40961, 9, 20000]      # coordinates of the buckets of a step
ROUNDS = 2
JOB = {"seed": 77, "slots": 24, "norm_slots": 5}
PORTS = range(wire.PORT, wire.PORT + 64)
HEADER = 48
LANES = 1024
# payload of a request, by op and width; an answer's is LANES
PAYLOAD = {(wire.LUT_ADD, 4): 512, (wire.MAX, 32): LANES, (wire.JOIN, 0): 16, (wire.LEAVE, 0): 0,
           (wire.WELCOME, 0): 136}


class Tap:
    """A thread that keeps what passes the aggregator's port of the switch."""

    def __init__(self, net):
        self.socket = netns.in_namespace(net.switch, lambda: open_tap("agg"))
        self.datagrams, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self.body)
        self.thread.start()

    def body(self):
        self.socket.settimeout(0.1)
        while True:
            try:
                frame = self.socket.recv(1 << 17)
            except TimeoutError:
                if self.over.is_set():
                    return
                continue
            self.datagrams.append(frame)

    def close(self):
        self.over.set()
        self.thread.join()
        lost = struct.unpack("II", self.socket.getsockopt(263, 6, 8))[1]    # PACKET_STATISTICS
        self.socket.close()
        return self.datagrams, lost


def open_tap(interface):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)       # SO_RCVBUFFORCE
    s.bind((interface, 0))
    return s


def thc_of(frame):
    """(up, UDP payload) of an IPv4 frame that is THC's, or None."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[14] != 0x45:
        return None
    source, to, length = struct.unpack_from(">HHH", frame, 34)
    if to not in PORTS and source not in PORTS:
        return None
    # a super-packet's length does not tell where it ends if it is 0
    return to in PORTS, frame[42:34 + length if length else None]


def split(up, data):
    """The packets of a datagram that may be many joined ones: packets of one length."""
    op, width, flags = data[1:4]
    answer = flags & wire.F_ANSWER and op in (wire.LUT_ADD, wire.ADD, wire.OR, wire.MAX)
    length = HEADER + (LANES if answer else PAYLOAD.get((op, width), 0) if up or
                       op == wire.WELCOME else 0)
    assert len(data) % length == 0, f"op {op}: {len(data)} bytes are not packets of {length}"
    return [data[i:i + length] for i in range(0, len(data), length)]


def bare(up, data):
    """What two runs share of a packet; None: nothing."""
    p = wire.Packet(data)       # which looks at its sum
    if p.op in (wire.WAIT, wire.STALE) or (p.flags & wire.F_REPEAT and not up):
        return None
    header = bytearray(data[:HEADER])
    header[4:8] = bytes(4)              # the sum
    header[20:24] = bytes(4)            # the epoch
    if not up:
        header[3] &= ~wire.F_CE
    payload = bytearray(data[HEADER:])
    if p.op == wire.JOIN:
        payload[:] = payload[8:]        # behind the nonce: flags, of which one is what was heard
        payload[3] &= ~wire.HEARD
    elif p.op == wire.WELCOME:
        if not p.welcome_flags & wire.READY:
            return None
        header[18] = 0                  # the rank: the group's has none
        payload[0:8] = bytes(8)         # who has joined, when it was sent
        payload[24:32] = bytes(8)       # the nonce
        payload[56] &= ~(wire.ONE_PORT | wire.NOGSO)    # what the aggregator's sockets want
    return ("up " if up else "down ").encode() + bytes(header) + bytes(payload)


def summary_of(datagrams):
    """{"way op": [how many, digest]}"""
    packets, kinds = set(), {}
    for frame in datagrams:
        found = thc_of(frame)
        if found:
            packets.update(filter(None, (bare(found[0], d) for d in split(*found))))
    for p in sorted(packets):
        way, rest = p.split(b" ", 1)
        kinds.setdefault(f"{way.decode()} {rest[1]}", []).append(p)
    return {kind: [len(some), hashlib.sha256(b"".join(some)).hexdigest()]
            for kind, some in sorted(kinds.items())}


def run(n, dtype, mode, drop):
    options = ("--mode", mode) if mode in ("native", "generic") else ()
    with netns.Topology(n, impair=netns.Impair(drop, 0, drop)) as net:
        tapped = Tap(net)
        try:
            with Aggregator(net, n, software=mode == "software", job=JOB, options=options,
                            secret=wire.KEY) as a, Ranks(net, a) as ranks:
                ranks.open()
                answers = ranks.reduce(counts=COUNTS, rounds=ROUNDS, dtype=dtype)
                ranks.all(do="close")
        finally:
            datagrams, lost = tapped.close()
    assert not lost, f"{lost} frames were not recorded"
    assert len({a["digest"] for a in answers}) == 1, "the ranks received different bits"
    return summary_of(datagrams)


def check(n, dtype, mode, drop=0.0):
    with open(KNOWN, encoding="ascii") as f:
        known = json.load(f)
    want, got = known[f"{n} {dtype}"], run(n, dtype, mode, drop)
    for kind in sorted(want.keys() | got.keys()):
        (many, digest), (expected, known_digest) = got.get(kind, (0, "")), want.get(kind, (0, ""))
        assert many == expected, f"{many} packets of way and op {kind!r}, not {expected}"
        assert digest == known_digest, f"other bytes in the packets of way and op {kind!r}"


def packets__1_rank_fp32_software():
    check(1, "fp32", "software")


def packets__4_ranks_fp32_native_with_losses():
    check(4, "fp32", "native", 0.05)


def packets__4_ranks_fp32_software_with_losses():
    check(4, "fp32", "software", 0.05)


def packets__4_ranks_fp16_generic():
    check(4, "fp16", "generic")


def packets__8_ranks_fp32_native():
    check(8, "fp32", "native")


def packets__8_ranks_fp16_software_with_losses():
    check(8, "fp16", "software", 0.05)


def write():
    known = {}
    with netns.guard():
        for n in (1, 4, 8):
            for dtype in ("fp32", "fp16"):
                if (n, dtype) != (1, "fp16"):
                    known[f"{n} {dtype}"] = run(n, dtype, "software", 0.0)
    with open(KNOWN, "w", encoding="ascii") as f:
        json.dump(known, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        tap.main([packets__1_rank_fp32_software, packets__4_ranks_fp32_software_with_losses,
                  packets__4_ranks_fp32_native_with_losses, packets__4_ranks_fp16_generic,
                  packets__8_ranks_fp32_native, packets__8_ranks_fp16_software_with_losses])
