#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A malicious rank of the job opens slots before the other ranks, with another chunk or another
round. The rank cannot hold a slot with a chunk that does not belong there. Where the rank holds a
slot by another round, the errors of the other ranks name it.
"""
import os
import random
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import prevented  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

RANK = "a rank of the job"
N = 3
BAD = 2                 # the malicious rank
TIMEOUT = 2.0
COUNT = 50000
SLOTS, NORMS = 512, 64  # a job's slots by default


class Bed:
    """Ranks 0 and 1 run libthc; the test plays rank 2."""

    def __init__(self, software):
        self.net = netns.Topology(N)
        self.aggregator = Aggregator(self.net, N, software=software, job={"reply": "fanout"})
        self.ranks = Ranks(self.net, self.aggregator, n=2, timeout=TIMEOUT, join_timeout=20)
        self.bad = wire.Worker(
            BAD, netns.AGGREGATOR4, job=self.aggregator.job, key=self.aggregator.key,
            nonce=random.getrandbits(63) | 1,
            place=lambda call: netns.in_namespace(self.net.worker(BAD), call))

    def __enter__(self):
        for r in (0, 1):
            self.ranks.tell(r, **self.ranks.open_request())
        end = time.monotonic() + wire.PATIENCE
        while not self.bad.join_once().welcome_flags & wire.READY:
            assert time.monotonic() < end, "the job did not get ready"
            time.sleep(0.02)
        good([self.ranks.hear(r) for r in (0, 1)])
        time.sleep(0.02)
        self.bad.drain()
        return self

    def __exit__(self, *_exc):
        self.bad.close()
        self.ranks.close()
        self.aggregator.stop()
        self.net.close()

    def reduce(self):
        """The errors of ranks 0 and 1, which have to name the malicious rank."""
        for r in (0, 1):
            self.ranks.tell(r, do="reduce", counts=[COUNT])
        answers = [self.ranks.hear(r) for r in (0, 1)]
        for a in answers:
            print(f"# {a.get('errno')}: {a.get('error')}")
            assert a.get("errno") == "ETIMEDOUT", a
            assert re.search(rf"\brank {BAD}\b", a["error"]), "the rank is not named"
        return [a["error"] for a in answers]


def squats_by_round(software):
    """The rank opens the slots of the agreement for another round."""
    with Bed(software) as bed:
        for slot in range(SLOTS, SLOTS + NORMS):
            bed.bad.send(wire.CLAIM, bytes(1024), width=32, slot=slot, round=7)
        for sentence in bed.reduce():
            assert "disagree" in sentence and "aggregator" not in sentence, sentence
        assert bed.aggregator.stats()["drops"]["mismatch"] > 0


def squats_by_chunk(software):
    """The rank sends chunks to slots of other chunks: they are dropped, and the rank is missing."""
    with Bed(software) as bed:
        for slot in range(SLOTS + NORMS):
            op, width, payload = (wire.LUT_ADD, 4, 512) if slot < SLOTS else (wire.MAX, 32, 1024)
            for wrong in (1, SLOTS, 2**32 - 1):
                chunk = (bed.bad.chunk_in(slot, 0) + wrong) % 2**32
                bed.bad.send(op, bytes(payload), width=width, slot=slot, chunk=chunk)
        for sentence in bed.reduce():
            assert "did not contribute" in sentence, sentence
        drops = bed.aggregator.stats()["drops"]
        assert drops["slot"] == 3 * (SLOTS + NORMS) and not drops["mismatch"], drops


@prevented(RANK, "holds slots by another round, unnamed")
def malicious_rank__that_squats_by_round_is_named__xdp():
    squats_by_round(False)


@prevented(RANK, "holds slots by another round, unnamed, with `--software`")
def malicious_rank__that_squats_by_round_is_named__software():
    squats_by_round(True)


@prevented(RANK, "holds slots by chunks that are not theirs")
def malicious_rank__cannot_squat_by_chunk__xdp():
    squats_by_chunk(False)


@prevented(RANK, "holds slots by chunks that are not theirs, with `--software`")
def malicious_rank__cannot_squat_by_chunk__software():
    squats_by_chunk(True)


adversary.main()
