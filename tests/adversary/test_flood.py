#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A host of the LAN floods the aggregator with JOINs without the job's key. The rate limit lets
a burst per CPU through to thcd, and XDP drops the rest; the job's ranks join and reduce during
the flood. The test counts packets; tools/bench/flood.py measures times.
"""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import prevented  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

USER = "a user of another host of the network"
LEAST = 100000          # JOINs of the flood
BURST, A_SECOND = 64, 200       # include/thc/aggregator/bucket.h
JOINS = 10
COUNT = 50000


class Flood:
    """A thread sends JOINs with another key, without a key, to unknown jobs, with a rank beyond n,
    and (every fifth) with the name of the job's key and a wrong tag. It stops when it is told to
    and has sent LEAST JOINs.
    """

    def __init__(self, net, worker, job, key):
        out = netns.in_namespace(net.worker(worker), adversary.udp)
        end = net.address(worker), out.getsockname()[1]
        other = wire.Keys(wire.OTHER_KEY, job).membership(wire.JOINING)
        named = adversary.without(wire.Keys(key, job).membership(wire.JOINING))
        packets = [seal.put(wire.build(wire.join_payload(77), op=wire.JOIN, **fields), end=end)
                   for seal, fields in ((other, {"job": job}), (wire.Key(wire.SEAL_SUM, 0),
                                                                {"job": job, "rank": 200}),
                                        (other, {"job": 9}), (other, {"job": 40000}),
                                        (named, {"job": job}))]
        self.sent, self.over = 0, threading.Event()

        def body():
            with out:
                while self.sent < LEAST or not self.over.is_set():
                    for packet in packets:
                        out.sendto(packet, (netns.AGGREGATOR4, wire.PORT))
                    self.sent += len(packets)

        self.thread = threading.Thread(target=body)

    def __enter__(self):
        self.start = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_exc):
        self.over.set()
        self.thread.join()
        self.seconds = time.monotonic() - self.start


@prevented(USER, "keeps workers out by a flood of JOINs without the key")
def stranger__floods_and_is_not_heard():
    with netns.Topology(3) as net, Aggregator(net, 2) as aggregator, \
            Ranks(net, aggregator, n=2, timeout=20, join_timeout=20) as ranks:
        with Flood(net, 2, aggregator.job, aggregator.key) as flood:
            for _ in range(JOINS):
                ranks.open()
                answers = ranks.reduce(counts=[COUNT])
                assert len({a["digest"] for a in answers}) == 1, "ranks received different bits"
                good(ranks.all(do="close"))
        stats = aggregator.stats()
        dropped, refused = stats["drops"]["flood"], stats["daemon"]["refused"]
        forged = stats["drops"]["tag"]
        heard = flood.sent - dropped - forged
        most = os.cpu_count() * (BURST + flood.seconds * A_SECOND + 3)
        print(f"# {flood.sent} strangers in {flood.seconds:.1f} s: {dropped} dropped, "
              f"{forged} with wrong tags, {heard} heard, {refused} refused")
        assert stats["adds_up"], stats
        assert dropped > LEAST / 2, "the flood was not dropped"
        assert forged > LEAST / 10, "the name of the key is enough"
        # a link may lose JOINs, but no JOIN may be counted elsewhere
        assert BURST <= refused <= most, f"thcd has refused {refused}, {most:.0f} may be"
        others = {name: n for name, n in stats["drops"].items()
                  if n and name not in ("flood", "tag")}
        assert not others, others


adversary.main()
