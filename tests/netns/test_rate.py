#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Buckets with a rate, over the wire: each block has the bits that protocol.md gives its agreed
norm, each answer is the sum of its requests, results follow from the answers bit for bit, and the
next round's gradient includes what was not sent. In XDP, native and generic, and in software, by
one aggregator and by three, with losses. With THC_TRANSPORT=af_thc over AF_THC sockets, and
otherwise over UDP.
"""
import contextlib
import hashlib
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import means  # noqa: E402
import rates  # noqa: E402
import values  # noqa: E402
import thcwire as wire  # noqa: E402
from aggregator import Aggregator, Shards, add_up  # noqa: E402
from decoder import unpack_indices, unpack_lanes  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from recorder import Recorder  # noqa: E402
from sums import Sums  # noqa: E402
from tap import netns  # noqa: E402

STEPS = 3
RATE = 5.0      # of the job
# the calls of a step; the last call has the job's rate
CALLS = [{"count": 70001, "dtype": "fp32", "rate": 2.0},
         {"count": 30000, "dtype": "bf16", "error": 0.004, "group": 7},
         {"count": 5000, "dtype": "fp16", "rate": 12.0},
         {"count": 20480, "dtype": "fp32", "group": 5},
         {"count": 9000, "dtype": "fp32", "error": 0.004, "group": 7},
         {"count": 12288, "dtype": "bf16", "group": 5}]


def rounds():
    """[(call, step)] in order."""
    return [({"scheme": None, "precision": 0, "share": 1, "seed": 1 + 10 * step + i, **call}, step)
            for step in range(STEPS) for i, call in enumerate(CALLS)]


def in_order(packets):
    """The packets of all shards, a list for each, in the order of the bucket's chunks."""
    whole = {p.chunk * len(packets) + shard: p for shard, of in enumerate(packets) for p in of}
    return [whole[q] for q in sorted(whole)]


class Chooser:
    """The class of each block, round by round. seen: the exponents of norms, by group and number of
    the call, then by round."""

    def __init__(self, welcome, feedback):
        self.classes = rates.Classes(welcome.rows, welcome.n, feedback,
                                     correlated=welcome.features & 1)
        self.feedback, self.seen = feedback, {}

    def _turn(self, round_):
        return round_ // len(CALLS) % 8 if self.feedback else 0

    def _known(self, which, round_):
        """(exponents, next turn, round) of the last round that ends before round_ begins."""
        found = [r for r in self.seen.get(which, ()) if r <= round_ - 2]
        if not found:
            return None
        # without error memories no rank claims a turn, and the next turn is 1
        return (self.seen[which][max(found)],
                (self._turn(max(found)) + 1) % 8, max(found))

    def _goal(self, call, round_):
        goal = ({"error": round(call["error"] * 1e6)} if "error" in call else
                {"bits": round(1000 * call.get("rate", RATE))})
        group, which = call.get("group", 0), (call.get("group", 0), round_ % len(CALLS))
        own = self._known(which, round_)
        if not group or not own:
            return goal
        since = round_ - own[2]
        beside = [known for other in self.seen if other[0] == group and other != which and
                  (known := self._known(other, round_)) and known[2] + 1 + since >= round_]
        if not beside:
            return goal
        return rates.share(self.classes, [bucket[:2] for bucket in (own, *beside)], 0, **goal)

    def of(self, call, round_, lanes):
        norms = np.array(lanes, np.uint32).view(np.float32).astype(float).tolist()
        found = rates.choose(self.classes, norms, self._turn(round_), **self._goal(call, round_))
        self.seen.setdefault((call.get("group", 0), round_ % len(CALLS)), {})[round_] = (
            rates.exponents_of(norms))
        return found


class Result:
    """A round according to its packets: the class of each block, the mean, what ranks miss."""

    def __init__(self, sums, number, call, chooser):
        self.sums, self.number, self.call = sums, number, call
        self.welcome = next(iter(sums[0].welcomes.values()))
        blocks = -(-call["count"] // rates.BLOCK)
        self.lanes = [lane for p in in_order([s.answered[wire.MAX, number].values() for s in sums])
                      for lane in unpack_lanes(p.payload, 32)][:blocks]
        self.of = chooser.of(call, number, self.lanes)
        self.chunks = rates.chunks(self.of, self.welcome.rows)

    def _bucket(self, k):
        which = [i for i, c in enumerate(self.of) if c == k]
        return which, means.Round(self.welcome, self.number, len(self.of) * rates.BLOCK, self.lanes,
                                  self.welcome.rows[k], which)

    def _pieces(self, packets, unpack):
        """{(block, part): numbers} of packets, one packet for each chunk."""
        assert len(packets) == len(self.chunks), f"{len(packets)} chunks, not {len(self.chunks)}"
        out = {}
        for p, (k, places) in zip(packets, self.chunks):
            numbers = unpack(p, k)
            each = min(rates.BLOCK, len(numbers))
            for i, place in enumerate(places):
                out[place] = numbers[i * each:(i + 1) * each]
            assert not any(numbers[len(places) * each:]), "half a chunk has to be neutral"
        return out

    def _lanes_of(self, p, k):
        width = self.welcome.rows[k].sum_width
        assert p.width == width and p.count == self.welcome.n, f"sums of {p.width} bits"
        return unpack_lanes(p.payload, width)

    @staticmethod
    def _indices_of(p, k):
        assert p.width == k, f"indices of {p.width} bits, not {k}"
        return unpack_indices(p.payload, k)

    def mean(self):
        lut = wire.LUT_ADD, self.number
        pieces = self._pieces(in_order([s.answered[lut].values() for s in self.sums]),
                              self._lanes_of)
        out = values.narrowed(np.zeros(len(self.of) * rates.BLOCK, np.float32), self.call["dtype"])
        out = out.reshape(-1, rates.BLOCK)
        for k in sorted(set(self.of) - {0}):
            which, bucket = self._bucket(k)
            lanes = [lane for b in which for part in sorted(p for c, p in pieces if c == b)
                     for lane in pieces[b, part]]
            out[which] = bucket.mean(lanes, self.welcome.n, self.call["dtype"]).reshape(
                -1, rates.BLOCK)
        return out.ravel()[:self.call["count"]]

    def missed(self, rank, x):
        """The difference between x and what rank's indices say."""
        asked = in_order([[p for (_, r), p in s.asked[wire.LUT_ADD, self.number].items()
                           if r == rank] for s in self.sums])
        pieces = self._pieces(asked, self._indices_of)
        padded = np.zeros(len(self.of) * rates.BLOCK)
        padded[:len(x)] = x
        out = padded.copy().reshape(-1, rates.BLOCK)
        for k in sorted(set(self.of) - {0}):
            which, bucket = self._bucket(k)
            indices = [z for b in which for part in sorted(p for c, p in pieces if c == b)
                       for z in pieces[b, part]]
            out[which] = bucket.missed(padded, indices).reshape(-1, rates.BLOCK)
        return out.ravel()[:len(x)]


def check_results(n, sums, digests, feedback):
    """digests: of each rank, in the order of rounds."""
    seen = set()
    missed = [{} for _ in range(n)]
    chooser = Chooser(next(iter(sums[0].welcomes.values())), feedback)
    for number, (call, _) in enumerate(rounds()):
        result = Result(sums, number, call, chooser)
        seen |= set(result.of)
        mean, key = hashlib.sha256(result.mean().tobytes()).hexdigest(), number % len(CALLS)
        for rank in range(n):
            assert digests[rank][number] == mean, f"rank {rank} has other bits of {call}"
            x = values.floats(values.buffer(call["seed"], rank, call["count"], call["dtype"]),
                              call["dtype"])
            if feedback:
                # nearly as in single precision
                x = x + missed[rank].get(key, 0)
            missed[rank][key] = result.missed(rank, x)
    # without error memories no block is left out
    assert (0 in seen) == feedback and len(seen) >= 4, f"classes seen: {seen}"


def widths_of(n):
    """{bits of an index: bits of a sum}, as thcd chooses them."""
    return {b: next(w for w in (4, 8, 16) if w >= b and (2**b - 1) * n < 2**w)
            for b in range(1, 7)}


def reduce(ranks, n, feedback):
    """Each rank's digests in the order of rounds, and the number of retransmissions."""
    digests, repeated = [[] for _ in range(n)], 0
    ranks.open(error_feedback=feedback)
    for step in range(STEPS):
        calls = [call for call, at in rounds() if at == step]
        for rank, a in enumerate(good(ranks.all(range(n), do="calls", calls=calls))):
            digests[rank] += a["digests"]
            repeated += a["stats"]["retransmits"]
    return digests, repeated


def sums_of(recorder, shard):
    # the switch floods other aggregators' packets to their groups
    own = (netns.Topology.aggregator_address(shard), netns.AGGREGATOR6)
    return Sums([s for s in recorder.packets() if (s.to if s.up else s.source)[0] in own])


def check(n, shards=1, loss=0.0, software=False, mode="native", feedback=True):
    impair = netns.Impair(loss, 0, loss) if loss else None
    job = {"rate": RATE, "slots": 8, "norm_slots": 8, "block": rates.BLOCK,
           "feedback": "on" if feedback else "off"}
    with netns.Topology(n, aggregators=shards, impair=impair) as net:
        with contextlib.ExitStack() as stack:
            recorders = [stack.enter_context(Recorder(net, port=f"agg{i or ''}",
                                                      sum_width=widths_of(n)))
                         for i in range(shards)]
            aggregators = stack.enter_context(
                Shards(net, n, shards, software=software, job=job,
                       options=[] if software else ["--mode", mode]))
            digests, repeated = reduce(stack.enter_context(Ranks(net, aggregators)), n, feedback)
            for a in aggregators.all:
                assert not add_up(a.stats()), add_up(a.stats())
        sums = [sums_of(recorder, shard) for shard, recorder in enumerate(recorders)]
    check_results(n, sums, digests, feedback)
    assert bool(repeated) >= bool(loss), "nothing was lost"


def native__loss_5_percent():
    check(3, loss=.05)


def native__sums_of_sixteen_bits():
    check(8, feedback=False)


def generic__three_shards():
    check(4, shards=3, mode="generic")


def software__loss_5_percent():
    check(5, loss=.05, software=True)


def auto__is_the_same_on_all_ranks():
    """With rate=auto all ranks choose alike, whichever way they find faster."""
    n, steps = 3, 30
    calls = [{"scheme": None, "precision": 0, "share": 1, "count": count, "dtype": "fp32",
              "group": 4} for count in (8192, 3000, 2048)]
    job = {"rate": "auto", "slots": 8, "norm_slots": 8, "block": rates.BLOCK}
    with netns.Topology(n) as net:
        with contextlib.ExitStack() as stack:
            aggregators = stack.enter_context(Shards(net, n, 1, job=job, options=[]))
            ranks = stack.enter_context(Ranks(net, aggregators))
            for feedback in (True, False):
                ranks.open(error_feedback=feedback)
                for step in range(steps if feedback else 2):
                    told = [{**call, "seed": 10 * step + i} for i, call in enumerate(calls)]
                    answers = good(ranks.all(range(n), do="calls", calls=told))
                    assert len({tuple(a["digests"]) for a in answers}) == 1, f"step {step}"
                stats = [a["stats"] for a in answers]
                assert len({(s["trial"], s["rate_requests"]) for s in stats}) == 1, stats
                trial, rated = stats[0]["trial"], stats[0]["rate_requests"]
                # 36 of the first 68 rounds have a rate; a few rounds later all ranks have chosen
                if not feedback:
                    assert (trial, rated) == (0, 0), stats
                elif trial == 2:
                    assert rated == 36, stats
                else:
                    assert trial == 3 and 36 + 15 < rated < 36 + 22, stats
                ranks.all(range(n), do="close")


def auto__ranks_that_disagreed_go_on():
    """Only one of them has counted the round of which they disagree."""
    call = {"seed": 1, "scheme": None, "precision": 0, "share": 1, "count": 4096, "dtype": "fp32"}
    with netns.Topology(2) as net, Aggregator(net, 2, software=True) as aggregator, \
            Ranks(net, aggregator) as ranks:
        ranks.open()
        ranks.tell(0, do="calls", calls=[call])
        ranks.tell(1, do="calls", calls=[{**call, "scheme": "none"}])
        assert [ranks.hear(r)["errno"] for r in range(2)] == ["EBADMSG"] * 2
        ranks.all(do="calls", calls=[call])
        # all of a trial, and what comes of it; the round before may differ, too
        for _ in range(80):
            good(ranks.all(do="calls", calls=[call]))


def settled__steps_have_as_many_bits():
    """Buckets share a rate, and their gradients are new in each step: the bits of a step are within
    5 % of those of the step before, and of the rate.
    """
    n, steps, counts = 2, 14, (60000, 100000, 30000)
    calls = [{"scheme": None, "precision": 0, "share": 1, "count": count, "dtype": "fp32",
              "group": 4} for count in counts]
    spent = []
    with netns.Topology(n) as net:
        with contextlib.ExitStack() as stack:
            job = {"rate": RATE, "block": rates.BLOCK}
            aggregators = stack.enter_context(Shards(net, n, 1, software=True, job=job))
            ranks = stack.enter_context(Ranks(net, aggregators))
            ranks.open(error_feedback=True)
            for step in range(steps):
                told = [{**call, "seed": 10 * step + i} for i, call in enumerate(calls)]
                stats = good(ranks.all(range(n), do="calls", calls=told))[0]["stats"]
                spent.append(stats["rate_bits_up"] + stats["rate_bits_down"])
    of_step = np.diff([0, *spent]) / sum(-(-count // rates.BLOCK) * rates.BLOCK for count in counts)
    print("# bits of a value by step:", *(f"{bits:.2f}" for bits in of_step))
    settled = of_step[4:]
    assert np.all(abs(settled[1:] / settled[:-1] - 1) < .05), of_step
    assert np.all(abs(settled / RATE - 1) < .05), of_step


def af_thc__loss_5_percent():
    check(3, loss=.05)


if __name__ == "__main__":
    if os.environ.get("THC_TRANSPORT") == "af_thc":
        tap.main([af_thc__loss_5_percent])
    else:
        tap.main([native__loss_5_percent, native__sums_of_sixteen_bits, generic__three_shards,
                  software__loss_5_percent, auto__is_the_same_on_all_ranks,
                  auto__ranks_that_disagreed_go_on, settled__steps_have_as_many_bits])
