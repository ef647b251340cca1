#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Ranks compare digests of their results. Ranks 0 and 1 run libthc; the test plays rank 2 and makes
digests by the decoder of protocol.md (decoder.py). An attacker on the path alters an answer to one
rank, in a job without a secret key. Two all-reduces later all ranks fail, and their errors name
the rank and the round.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import decoder  # noqa: E402  (found through the path above)
import tap  # noqa: E402
import thcwire as wire  # noqa: E402
from adversary import Spoofer, does, until  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

OURS = 2
N = 3
COUNT = 3000            # coordinates: a round has some chunks of data and one of norms
KEY = 1                 # of each all-reduce
TO_AGGREGATOR = (netns.AGGREGATOR4, wire.PORT)


class Bed:
    """A job in which rank 2 makes each round step by step, so that a test can act in between."""

    def __init__(self, software=False, **job):
        self.net = netns.Topology(N + 1)
        self.aggregator = Aggregator(self.net, N, software=software,
                                     job={"reply": "fanout", "rate": "fixed", **job})
        self.ranks = Ranks(self.net, self.aggregator, n=2, timeout=20, join_timeout=20)
        self.us = wire.Worker(OURS, netns.AGGREGATOR4, job=self.aggregator.job,
                              key=self.aggregator.key,
                              place=lambda call: netns.in_namespace(self.net.worker(OURS), call))
        self.digests = {}       # of rounds that are over
        self.round = self.norms = self.data = self.first = self.before = 0

    def __enter__(self):
        for r in (0, 1):
            self.ranks.tell(r, **self.ranks.open_request())
        end = time.monotonic() + wire.PATIENCE
        while not self.us.join_once().welcome_flags & wire.READY:
            assert time.monotonic() < end, "the job did not get ready"
            time.sleep(0.02)
        good([self.ranks.hear(r) for r in (0, 1)])
        time.sleep(0.02)
        self.us.drain()
        return self

    def __exit__(self, *_exc):
        self.us.close()
        self.ranks.close()
        self.aggregator.stop()
        self.net.close()

    # steps of rank 2

    def _place(self, data, number):
        w = self.us.welcome
        slots, first = (w.data_slots, 0) if data else (w.control_slots, w.data_slots)
        return {"slot": first + number % slots, "generation": number // slots,
                "chunk": number, "round": self.round}

    def _chunks(self):
        """Chunks of data in a round."""
        block = 1 << self.us.welcome.block_log2
        return -(-COUNT // block) * block // self.us.welcome.chunk_size

    def _send(self, op, width, payload, number):
        place = self._place(op == wire.LUT_ADD, number)
        self.us.send(op, payload, width=width, **place)
        return place

    def _sum(self, op, width, payload, number):
        """Contribute, and return the answer, which comes when all ranks have contributed."""
        place = self._send(op, width, payload, number)
        end = time.monotonic() + wire.PATIENCE
        while time.monotonic() < end:
            packet = self.us.receive(0.2)
            if packet and packet.op == op and packet.slot == place["slot"]:
                return packet
            if not packet:      # other ranks have not contributed yet: ask again
                self.us.send(op, payload, width=width, **place)
        raise AssertionError(f"no answer to op {op}, chunk {number}")

    def claim(self, **more):
        """Agree on the round. Returns {rank: fields of its claim}."""
        digest = self.digests.get(self.round - 2, 0)
        fields = decoder.claim(COUNT, 0, 0, self.us.welcome.constants, KEY,
                             **{"digest": digest, **more})
        op, payload = decoder.claim_packet(fields, OURS)
        answer = self._sum(op, 32, payload, self.norms)
        self.norms += 1
        return decoder.claims_of(op, decoder.unpack_lanes(answer.payload, 32))

    def finish(self, before=lambda number: None):
        """Reduce norms and data. before(number) runs before our contribution to a chunk of data."""
        down = self.us.down[self.us.up.id].key or None
        answers = [self._sum(wire.MAX, 32, bytes(1024), self.norms)]
        self.norms += 1
        for _ in range(self._chunks()):
            before(self.data)
            answers.append(self._sum(wire.LUT_ADD, 4, bytes(512), self.data))
            self.data += 1
        self.digests[self.round] = decoder.round_digest(answers, down)

    # rounds

    def _added(self):
        return self.aggregator.stats()["events"]["added"]

    def begin(self):
        self.first, self.before = self.data, self._added()
        for r in (0, 1):
            self.ranks.tell(r, do="reduce", counts=[COUNT], first_key=KEY)

    def end(self):
        self.round += 1
        return [self.ranks.hear(r) for r in (0, 1)]

    def honest_round(self):
        """A round in which all ranks claim the digest that rank 2 has computed."""
        self.begin()
        claims = self.claim()
        want = self.digests.get(self.round - 2, 0)
        assert [c[decoder.OF_DIGEST] for c in claims.values()] == [want] * N, (want, claims)
        assert want or self.round - 2 not in self.digests, "a digest of 0"
        self.finish()
        good(self.end())

    def forge(self, number, victim):
        """Send one rank a forged answer to a chunk of data before the aggregator answers, from the
        aggregator's address. Only the lanes are wrong."""
        member = self.aggregator.ask("jobs")["jobs"][0]["members"][victim]
        packet = wire.build(b"\1" * 1024, op=wire.LUT_ADD, width=8, flags=wire.F_ANSWER,
                            job=self.aggregator.job, epoch=self.us.epoch, count=N,
                            bitmap=(1 << N) - 1, **self._place(True, number))
        packet = self.us.down[self.us.up.id].put(packet)

        def spoof():
            Spoofer().send(packet, TO_AGGREGATOR, (member["address"], member["port"]))
            return True

        # ranks 0 and 1 have sent all requests of the round, rank 2 those before this chunk
        want = self.before + 2 * (2 + self._chunks()) + 2 + number - self.first
        assert until(lambda: self._added() == want), (self._added(), want)
        assert does(self.net.worker(N), spoof, user=0)
        time.sleep(0.5)


def named(answer, *words):
    print(f"# {answer.get('errno')}: {answer.get('error')}")
    assert answer.get("errno") == "EBADMSG", answer
    for word in words:
        assert word in answer["error"], f"\"{word}\" is not said"


def digests_are_the_decoders(software=False, **job):
    with Bed(software, **job) as bed:
        for _ in range(5):
            bed.honest_round()


def digests__of_sealed_jobs():
    digests_are_the_decoders()


def digests__of_sealed_jobs__software():
    digests_are_the_decoders(True)


def digests__of_jobs_with_sums():
    digests_are_the_decoders(seal="sum")


def digests__of_jobs_without_a_seal():
    digests_are_the_decoders(True, seal="none")


def altered(seal, software=False):
    with Bed(software, seal=seal) as bed:
        for _ in range(2):
            bed.honest_round()
        # round 2: rank 0 believes a forged answer
        at = bed.data + 1
        bed.begin()
        bed.claim()
        bed.finish(lambda number: number == at and bed.forge(at, 0))
        answers = good(bed.end())
        assert answers[0]["digest"] != answers[1]["digest"], "the forged answer was not taken"
        bed.honest_round()
        # round 4: all ranks notice
        bed.begin()
        claims = bed.claim()
        assert claims[1][decoder.OF_DIGEST] == bed.digests[2] != claims[0][decoder.OF_DIGEST], claims
        answers = bed.end()
        named(answers[0], "ranks 1 and 2 hold other results of round 2 than this rank (0)")
        named(answers[1], "rank 0 holds other results of round 2 than this rank (1)")
        # and the ranks are still in step
        bed.honest_round()
        bed.honest_round()


def altered__with_sums():
    altered("sum")


def altered__without_a_seal():
    altered("none", True)


def missed__compares_with_nobody():
    """Rank 2 claims that it missed a chunk. Its digest, which is 0 then, may differ from others."""
    with Bed() as bed:
        for _ in range(2):
            bed.honest_round()
        bed.begin()
        bed.claim(missed=1)
        bed.finish()
        good(bed.end())
        # the digest of a rank that missed nothing is compared
        bed.begin()
        bed.claim(digest=bed.digests[1] ^ 1)
        for answer in bed.end():
            named(answer, "rank 2 holds other results of round 1")


tap.main([digests__of_sealed_jobs, digests__of_sealed_jobs__software, digests__of_jobs_with_sums,
          digests__of_jobs_without_a_seal, altered__with_sums, altered__without_a_seal,
          missed__compares_with_nobody])
