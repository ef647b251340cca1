#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The tbf of a shaped link limits answers that XDP sends, too, although XDP
output bypasses the qdiscs of its own interface. The measured rate of answers
stays at the limit; on a link without a limit the answers are faster.

The answers are repeats: a single rank (n = 1) finishes a chunk and then asks
for it again and again. Its requests are half as long as the answers, so that
the way down is the bottleneck.
"""
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from tap import netns  # noqa: E402

RATE = 50e6             # of the shaped link, bits per second: even a busy machine sends more
ANSWER = 48 + 1024      # header and lanes
OVERHEAD = 42           # Ethernet, IPv4, UDP
SECONDS = 1.5
SO_RCVBUFFORCE = 33


def answers(shape):
    """(bits per second of answers on the wire, answers sent, answers received)"""
    with netns.Topology(1, shape=shape) as net, \
            Aggregator(net, 1, job={"reply": "fanout"}) as aggregator:
        worker = wire.Worker(0, netns.AGGREGATOR4, key=aggregator.key,
                             place=lambda call: netns.in_namespace(net.worker(0), call))
        wire.join_all([worker], heard=False)
        request = worker.packet(wire.LUT_ADD, bytes(512), width=4)
        s = worker.socket
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        s.setblocking(False)
        got, start, end = 0, None, time.monotonic() + SECONDS
        while (now := time.monotonic()) < end:
            try:
                for _ in range(16):
                    worker.send_raw(request)
            except BlockingIOError:
                pass
            try:
                while len(s.recv(2048)) == ANSWER:
                    got += 1
                    start = start or now
            except BlockingIOError:
                pass
        rate = got * (ANSWER + OVERHEAD) * 8 / (time.monotonic() - start)
        worker.close()
        stats = aggregator.stats()
    sent = stats["events"]["repeated"]
    print(f"# {shape or 'not shaped'}: {rate / 1e6:.0f} Mb/s of answers, {sent} sent, "
          f"{got} received")
    assert stats["mode"] == "native" and stats["events"]["added"] == 1
    assert sent >= got - 1
    return rate, sent, got


def answers__by_xdp_are_limited_too():
    free, _, _ = answers(None)
    limited, sent, got = answers(f"{RATE:.0f}bit")
    assert free > 1.5 * RATE, f"only {free / 1e6:.0f} Mb/s without a limit: this shows nothing"
    assert 0.5 * RATE < limited < 1.05 * RATE, f"{limited / 1e6:.0f} Mb/s through a limited link"
    assert sent > 1.2 * got, "XDP did not send more than the link takes: this shows nothing"


if __name__ == "__main__":
    tap.main([answers__by_xdp_are_limited_too])
