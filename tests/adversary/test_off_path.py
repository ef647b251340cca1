#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A host of another network, behind a router that forwards whatever source address a packet
has. It sees nothing of the job, and if a case says so it was told the cookie.
"""
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import Bed, Spoofer, does, join, possible, prevented, udp  # noqa: E402
from tap import netns  # noqa: E402

OUTSIDE = "a host of another network"
GUESSES = 2000          # of each kind


def spoofs_a_worker(bed, outside):
    """Sends one contribution as rank 0 would: address, port, cookie and session are right."""
    def contribute():
        Spoofer().send(next(bed.contributions(chunks=1)), bed.members[0],
                       (netns.AGGREGATOR4, wire.PORT))
        return True

    assert does(outside, contribute, user=0)


def counts(bed):
    stats = bed.aggregator.stats()
    return {"added": stats["events"]["added"], **stats["drops"]}


@prevented(OUTSIDE, "guesses the cookie, with any address")
def off_path__guesses_no_cookie():
    with Bed() as bed:
        outside = bed.net.behind(2)
        bed.start()
        before, session = counts(bed), bed.session()
        rng = random.Random(20261122)

        def guess():
            spoofer = Spoofer()
            for _ in range(GUESSES):
                fields = {**bed.fields, "cookie": rng.getrandbits(64)}
                for source in (bed.members[0], (netns.OUTSIDE4, 4000)):
                    for packet in (
                            wire.build(bytes(512), op=wire.LUT_ADD, width=4, **fields),
                            wire.build(struct.pack(">QII", 1, 0, 0),
                                       **{**fields, "op": wire.JOIN, "epoch": 0}),
                            wire.build(op=wire.LEAVE, **fields)):
                        spoofer.send(packet, source, (netns.AGGREGATOR4, wire.PORT))
            return True

        assert does(outside, guess, user=0)
        assert adversary.until(
            lambda: counts(bed)["cookie"] >= before["cookie"] + 2 * GUESSES), counts(bed)
        assert counts(bed)["added"] == before["added"]
        assert bed.session() == session, "a guess has ended the session"
        bed.look()
        assert bed.members[0][0] == bed.net.address(0), "a guess has taken a rank"
        assert bed.passes() == bed.honest


@prevented(OUTSIDE, "joins with the cookie, from outside `prefix`")
def off_path__is_outside_the_prefix():
    with Bed() as bed:
        outside = bed.net.behind(2)
        session = bed.session()

        def take():
            with udp() as s:
                return join(s, bed.fields, rank=1).refusal == wire.NOT_PREFIX

        assert does(outside, take), "it was not refused"
        assert bed.session() == session


@possible(OUTSIDE, "contributes from a worker's address and port, with the cookie",
          until="version 2")
def off_path__spoofs_a_worker():
    with Bed() as bed:
        outside = bed.net.behind(2)
        bed.start()
        before = counts(bed)
        spoofs_a_worker(bed, outside)
        assert adversary.until(lambda: counts(bed)["added"] > before["added"]), \
            adversary.NOT_ANY_MORE


@prevented(OUTSIDE, "the same, with `hops=0`")
def off_path__is_too_far_away():
    with Bed(hops=0) as bed:
        outside = bed.net.behind(2)
        bed.start()
        before = counts(bed)
        spoofs_a_worker(bed, outside)
        assert adversary.until(lambda: counts(bed)["hops"] == before["hops"] + 1), counts(bed)
        assert counts(bed)["added"] == before["added"]
        assert bed.passes() == bed.honest


adversary.main()
