#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Answers that XDP sends meet the tbf of a shaped link, too, although XDP
output bypasses the qdiscs of its own interface: their measured rate stays at
the limit, while the same answers are faster on a link that is not shaped.

Answers are repeats: one rank finishes a chunk of its own (n = 1) and then asks
for it again and again, with requests half the size of answers, so that the
way down is what limits.
"""
import socket
import struct
import time

import tap
from aggregator import Aggregator
from tap import netns

PORT = 18500
RATE = 100e6            # of the shaped link, bits per second
ANSWER = 48 + 1024
OVERHEAD = 42           # Ethernet, IPv4, UDP
VERSION, LUT_ADD, JOIN, WELCOME = 1, 1, 16, 17
HDR = struct.Struct("!BBBBIQHBBIIIHHIQ")
MASK = (1 << 64) - 1


def packet_sum(data):
    """thc_hdr.sum, written from include/thc/sum.h's description."""
    a = b = 0
    for (word,) in struct.iter_unpack("<Q", data):
        a = (a + word) & MASK
        b = (b + a) & MASK
    x = a * 0x9E3779B97F4A7C15 & MASK
    x ^= x >> 32
    x = (x * 0xD6E8FEB86659FD93 + b) & MASK
    x ^= x >> 32
    return (x * 0xD6E8FEB86659FD93 & MASK) >> 32


def packet(op, width, cookie, epoch, payload):
    def header(total):
        return HDR.pack(VERSION, op, width, 0, total, cookie, 1, 0, 0, epoch, 0, 0, 0, 0, 0, 0)
    return header(packet_sum(header(0) + payload)) + payload


def join(s, cookie):
    """Joins as rank 0 of 1; returns the epoch."""
    request = packet(JOIN, 0, cookie, 0, struct.pack("!QII", 77, 0, 0))
    end = time.monotonic() + 5
    s.settimeout(0.1)
    while time.monotonic() < end:
        s.sendto(request, (netns.AGGREGATOR4, PORT))
        try:
            answer = s.recv(2048)
        except socket.timeout:
            continue
        fields = HDR.unpack_from(answer)
        flags = answer[HDR.size + 56]
        if fields[1] == WELCOME and flags & 1:
            return fields[9]
    raise AssertionError("the job did not get ready")


def answers_per_second(shape, software=False):
    """Bits per second of answers on the worker's wire, asked as fast as possible."""
    with netns.Topology(1, shape=shape) as net, \
            Aggregator(net, 1, software=software, job={"reply": "fanout"}) as aggregator:
        def make():
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)   # SO_RCVBUFFORCE
            return s

        with netns.in_namespace(net.worker(0), make) as s:
            epoch = join(s, aggregator.cookie)
            request = packet(LUT_ADD, 4, aggregator.cookie, epoch, bytes(512))
            s.setblocking(False)
            got, start, end = 0, None, time.monotonic() + 1.5
            while (now := time.monotonic()) < end:
                for _ in range(16):
                    try:
                        s.sendto(request, (netns.AGGREGATOR4, PORT))
                    except BlockingIOError:
                        break
                try:
                    while True:
                        if len(s.recv(2048)) == ANSWER:
                            got += 1
                            start = start or now
                except BlockingIOError:
                    pass
            rate = got * (ANSWER + OVERHEAD) * 8 / (time.monotonic() - start)
        stats = aggregator.stats()
        assert stats["events"]["added"] == 1, stats["events"]
        assert stats["events"]["repeated"] >= got - 1
        assert stats["mode"] == ("software" if software else "native")
        print(f"# {shape or 'not shaped'}: {rate / 1e6:.0f} Mb/s of answers, "
              f"{stats['events']['repeated']} sent, {got} received")
        return rate, stats["events"]["repeated"], got


def answers__by_xdp_are_limited_too():
    free, _, _ = answers_per_second(None)
    limited, sent, got = answers_per_second(f"{RATE:.0f}bit")
    assert free > 1.5 * RATE, f"only {free / 1e6:.0f} Mb/s without a limit: this shows nothing"
    assert 0.5 * RATE < limited < 1.05 * RATE, f"{limited / 1e6:.0f} Mb/s through a limited link"
    assert sent > 1.2 * got, "XDP did not send more than the link takes: this shows nothing"


if __name__ == "__main__":
    tap.main([answers__by_xdp_are_limited_too])
