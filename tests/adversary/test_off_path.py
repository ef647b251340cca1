#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Attacks from a host behind a router that forwards packets with any source address. The host
sees no packet of the job; the tests tell it session, ports and names of keys.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import Bed, Spoofer, does, join, prevented, udp  # noqa: E402
from tap import netns  # noqa: E402

OUTSIDE = "a host of another network"
GUESSES = 2000          # of each kind


def counts(bed):
    stats = bed.aggregator.stats()
    return {"added": stats["events"]["added"], **stats["drops"]}


@prevented(OUTSIDE, "guesses tags, with any address")
def off_path__guesses_no_tag():
    with Bed() as bed:
        outside = bed.net.behind(2)
        bed.start()
        before, session = counts(bed), bed.session()
        rng = random.Random(20261122)
        control = bed.keys.membership(wire.JOINING).id

        def guess():
            spoofer = Spoofer()
            for _ in range(GUESSES):
                for source in (bed.members[0], (netns.OUTSIDE4, 4000)):
                    for packet in (
                            wire.build(bytes(512), op=wire.LUT_ADD, width=4, key_id=bed.up.id,
                                       tag=rng.getrandbits(64), **bed.fields),
                            wire.build(wire.join_payload(1), op=wire.JOIN, job=1, key_id=control,
                                       tag=rng.getrandbits(64)),
                            wire.build(bytes(16), op=wire.LEAVE, key_id=control,
                                       tag=rng.getrandbits(64), **bed.fields)):
                        spoofer.send(packet, source, (netns.AGGREGATOR4, wire.PORT))
            return True

        assert does(outside, guess, user=0)
        # from OUTSIDE4 only JOINs reach the check of the tag
        assert adversary.until(
            lambda: counts(bed)["tag"] >= before["tag"] + 4 * GUESSES * 0.9), counts(bed)
        assert counts(bed)["address"] > before["address"], counts(bed)
        assert counts(bed)["added"] == before["added"]
        assert bed.session() == session, "a guess has ended the session"
        bed.look()
        assert bed.members[0][0] == bed.net.address(0), "a guess has taken a rank"
        assert bed.passes() == bed.honest


@prevented(OUTSIDE, "joins with the key, from outside `prefix`")
def off_path__is_outside_the_prefix():
    with Bed() as bed:
        outside = bed.net.behind(2)
        session = bed.session()

        def take():
            with udp() as s:
                key = bed.keys.membership(wire.JOINING)
                return join(s, netns.OUTSIDE4, key, rank=1).refusal == wire.NOT_PREFIX

        assert does(outside, take), "it was not refused"
        assert bed.session() == session


@prevented(OUTSIDE, "contributes from a worker's address and port")
def off_path__spoofs_no_worker():
    with Bed() as bed:
        bed.withstands_spoofed_contributions(bed.net.behind(2))


@prevented(OUTSIDE, "contributes from a worker's address and port, with `hops=0`")
def off_path__is_too_far_away():
    """A packet that crossed a router is dropped before the check of its tag."""
    with Bed(hops=0) as bed:
        before = bed.dropped("tag")
        bed.withstands_spoofed_contributions(bed.net.behind(2), "hops")
        assert bed.dropped("tag") == before


adversary.main()
