#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Attacks by a rank of the job. The rank has the job's key, from which all keys are derived, and
its own address and port. With raw sockets it also sends from addresses of other ranks.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import NOT_ANY_MORE, Spoofer, does, possible, prevented  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from tap import netns  # noqa: E402
from thcwire import CLAIM, CLAIM_HIGH, LUT_ADD, Reference, Worker, join_all  # noqa: E402

RANK = "a rank of the job"
ROOT = "a rank of the job, with raw sockets"
TABLE = tuple(range(0, 32, 2))


class Pair:
    """An honest rank 0 and an attacking rank 1; both send plain packets."""

    def __enter__(self):
        self.net = netns.Topology(2)
        self.aggregator = Aggregator(self.net, 2, job={
            "table": ":".join(map(str, TABLE))})
        self.honest, self.other = (self.worker(r) for r in range(2))
        join_all([self.honest, self.other])
        return self

    def worker(self, rank):
        return Worker(rank, netns.AGGREGATOR4, key=self.aggregator.key, interface="eth0",
                      place=lambda call: netns.in_namespace(self.net.worker(rank), call))

    def __exit__(self, *_exc):
        self.honest.close()
        self.other.close()
        self.aggregator.stop()
        self.net.close()

    def sums_are_right(self, slot, generation=0):
        """Both ranks contribute to a chunk and get its sum."""
        chunk = slot + generation * self.honest.welcome.data_slots
        payloads = [os.urandom(512) for _ in range(2)]
        for w, payload in zip((self.honest, self.other), payloads):
            w.send(LUT_ADD, payload, width=4, slot=slot, chunk=chunk, generation=generation)
        want = Reference(LUT_ADD, 4, table=TABLE).combine(payloads)
        for w in (self.honest, self.other):
            answer = w.expect(LUT_ADD, slot=slot, generation=generation)
            assert answer.payload == want, "the sum is wrong"

    def spoofs(self, packet, source, to):
        """Rank 1's host sends the packet from source."""
        def spoof():
            Spoofer().send(packet, source, to)
            return True

        assert does(self.net.worker(1), spoof, user=0)

    def dropped(self, reason):
        return self.aggregator.stats()["drops"][reason]


@prevented(RANK, "contributes for another rank")
def rank__contributes_for_itself_only():
    with Pair() as p:
        before = p.dropped("address")
        for slot in range(64):
            p.other.send(LUT_ADD, b"\xff" * 512, width=4, rank=0, slot=slot, chunk=slot)
        assert adversary.until(lambda: p.dropped("address") == before + 64)
        for slot in range(64):
            p.sums_are_right(slot)


@prevented(RANK, "claims in another rank's name when ranks agree on a round")
def rank__claims_for_itself_only():
    """Rank 1 fills the lanes of all 32 ranks of the packet, before rank 0 and after it."""
    with Pair() as p:
        payloads = [b"\1" * 1024, b"\xff" * 1024]
        want = b"\1" * 32 + b"\xff" * 32 + bytes(1024 - 64)
        for at, order in enumerate(((0, 1), (1, 0))):
            slot = p.honest.welcome.data_slots + at
            for rank in order:
                (p.honest, p.other)[rank].send(CLAIM, payloads[rank], width=32, slot=slot)
            for w in (p.honest, p.other):
                assert w.expect(CLAIM, slot=slot).payload == want, "lanes of another rank"
        # the job has no ranks for CLAIM_HIGH
        p.other.send(CLAIM_HIGH, payloads[1], width=32, slot=p.honest.welcome.data_slots)
        assert adversary.until(lambda: p.dropped("width") == 1)


@prevented(RANK, "leaves for another rank")
def rank__leaves_for_itself_only():
    with Pair() as p:
        before = p.dropped("address")
        p.other.send(wire.LEAVE, rank=0)
        assert adversary.until(lambda: p.dropped("address") == before + 1)
        p.sums_are_right(0)
        job = p.aggregator.ask("jobs")["jobs"][0]
        assert len(job["members"]) == 2, job


@possible(RANK, "sends other lanes than those of its gradient", until="ever")
def rank__says_what_it_likes():
    with Pair() as p:
        p.sums_are_right(0)     # for random lanes


@possible(RANK, "takes the place of another rank, which ends the session",
          until="keys for each rank")
def rank__takes_another_place():
    with Pair() as p:
        welcome = p.other.join_once(rank=0)
        assert not welcome.refusal and welcome.epoch > p.honest.epoch, NOT_ANY_MORE


@possible(ROOT, "contributes for another rank, from its address and port",
          until="keys for each rank")
def rank__spoofs_another_one():
    with Pair() as p:
        packet = p.other.packet(LUT_ADD, bytes(512), width=4, rank=0)
        p.spoofs(packet, p.honest.end, p.honest.to)
        assert adversary.until(lambda: p.aggregator.stats()["events"]["added"] == 1), NOT_ANY_MORE


@possible(ROOT, "answers from the aggregator's address and port", until="ever")
def rank__spoofs_the_aggregator():
    """All ranks have the key of answers, since all read them."""
    with Pair() as p:
        down = p.other.down[p.other.up.id]
        packet = down.put(wire.build(bytes(1024), op=LUT_ADD, width=8, flags=wire.F_ANSWER, job=1,
                                     epoch=p.other.epoch, count=2, bitmap=3))
        p.spoofs(packet, p.honest.to, p.honest.end)
        # expect() checks the seal
        assert p.honest.expect(LUT_ADD).payload == bytes(1024), NOT_ANY_MORE


adversary.main()
