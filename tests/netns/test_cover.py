#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""All-reduces in all their shapes: few jobs in which every two values of FACTORS meet, scheme and
width of sums with transport, aggregators, losses and number of ranks among them. In each, a round
by the job's scheme and one by every kind of the scheme none, overlapped.

Every answer is compared with the sum of its requests, which the decoder of the protocol adds
up; integers, fixed point and exact means bit for bit with what plain integers make of the ranks'
values; what is lossy is near the mean. With THC_TRANSPORT=af_thc the jobs over AF_THC sockets run, and
else the others.
"""
import atexit
import contextlib
import hashlib
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import values  # noqa: E402
import thcwire as wire  # noqa: E402
from aggregator import Shards, add_up  # noqa: E402
from covering import pairwise  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from recorder import Recorder, Seals  # noqa: E402
from sums import Sums  # noqa: E402
from tap import netns  # noqa: E402

AF_THC = "af_thc"
FACTORS = {
    "scheme": [(scheme, width) for scheme in ("thc", "uthc") for width in (4, 8, 16, 32)],
    "transport": ["native", "generic", "software", AF_THC],
    "shards": [1, 3],
    "loss": [0.0, 0.05],
    "n": [1, 2, 3, 8],
    "family": [4, 6],
    "reply": ["multicast", "fanout"],
    "dtype": ["fp32", "fp16", "bf16"],
    "rotate": ["on", "off"],
    "correlated": ["on", "off"],
    "seal": ["nh", "sum", "none"],
}
BITS = range(1, 9)
COUNT = 9001            # of the lossy bucket: blocks of 1024 or 2048, the last one not full
# what is not lossy, beside it: dtype, precision, how many
LOSSLESS = [("int8", 0, 2500), ("int16", 0, 1300), ("int32", 0, 700)] + [
    (dtype, bits, 4500) for dtype, bits in (("fp32", 8), ("bf16", 16), ("fp16", 32), ("fp32", 0))]
BLOCK = 2048
# deviations of a coordinate that levels reach over, at most, and the part of a block's energy that
# what is clamped may have where it is not rotated
REACH, CLAMPED = 10, 0.5


def valid(row):
    # the addresses in a list of aggregators are IPv4 here
    return not (row.get("family") == 6 and row.get("shards", 1) > 1)


def fits(bits, row):
    width = row["scheme"][1]
    return bits <= width and (2**bits - 1) * row["n"] < 2**width


def rows():
    """FACTORS' rows, each with bits of an index: of those that fit the ones used least."""
    used = dict.fromkeys(BITS, 0)
    for row in pairwise(FACTORS, valid):
        row["bits"] = min((b for b in BITS if fits(b, row)), key=lambda b: (used[b], -b))
        used[row["bits"]] += 1
        yield row
    assert all(used.values()), used


def job_of(row):
    scheme, width = row["scheme"]
    return {"seed": 5, "scheme": scheme, "bits": row["bits"], "sum_width": width,
            "reply": row["reply"], "rotate": row["rotate"], "correlated": row["correlated"],
            "seal": row["seal"], "slots": 24, "norm_slots": 8, "block": BLOCK,
            **({"group": "ff15::77"} if row["family"] == 6 and row["reply"] == "multicast" else {})}


def calls_of(row):
    calls = [{"seed": 1, "count": COUNT, "dtype": row["dtype"], "scheme": None, "precision": 0}]
    return calls + [{"seed": 2 + i, "count": count, "dtype": dtype, "scheme": "none",
                     "precision": bits} for i, (dtype, bits, count) in enumerate(LOSSLESS)]


def expected(call, n):
    """What has to come of a call without loss, bit for bit."""
    brought = [values.buffer(call["seed"], r, call["count"], call["dtype"]) for r in range(n)]
    if call["dtype"] not in values.FLOATS:
        return values.total(brought)
    if call["precision"]:
        return values.fixed_mean(brought, call["dtype"], call["precision"])
    return values.exact_mean(brought, call["dtype"])


def error_limit(row):
    """NMSE that the lossy mean may have: as if each level were as far from the next as any two are
    on average, and each value in the middle of two."""
    call, (scheme, _), n = calls_of(row)[0], row["scheme"], row["n"]
    x = [values.floats(values.buffer(call["seed"], r, COUNT, row["dtype"]), row["dtype"])
         for r in range(n)]
    error, energy = 0.0, (np.mean(x, axis=0) ** 2).sum()
    for first in range(0, COUNT, BLOCK):
        blocks = [v[first:first + BLOCK] for v in x]
        reach = REACH * max(np.sqrt((v ** 2).sum() / BLOCK) for v in blocks)
        if scheme == "uthc" and row["rotate"] == "off":
            reach = max(v.max() for v in blocks) - min(v.min() for v in blocks)
        error += BLOCK * (reach / (2**row["bits"] - 1)) ** 2 / 4 / n
    return error / energy + (CLAMPED if scheme == "thc" and row["rotate"] == "off" else 0)


def check_results(row, answers):
    calls, first = calls_of(row), answers[0]
    for rank, answer in enumerate(answers):
        assert answer["digests"] == first["digests"], f"rank {rank} received other bits than rank 0"
    error, limit = first["nmse"][0], error_limit(row)
    assert error < limit, f"not the mean: NMSE {error}, not below {limit}"
    for call, digest in list(zip(calls, first["digests"]))[1:]:
        want = expected(call, row["n"])
        assert hashlib.sha256(want.tobytes()).hexdigest() == digest, f"other bits of {call}"


def check_packets(row, recorder, secret, shard):
    # the switch floods what other aggregators say to their groups
    own = (netns.Topology.aggregator_address(shard), netns.AGGREGATOR6)
    seen = [s for s in recorder.packets() if (s.to if s.up else s.source)[0] in own]
    seals = Seals(seen, secret, shard=shard)
    wrong = [s for s in set(seen) if not seals.made(s)] if row["seal"] == "nh" else []
    assert not wrong, f"{len(wrong)} packets are not sealed right, as {wire.Packet(wrong[0].data)}"
    sums = Sums(seen)
    added = {w for w in sums.widths() if w[0] == wire.LUT_ADD}
    want = (wire.LUT_ADD, row["bits"], row["scheme"][1])
    assert added == {want}, f"op, bits up and of the sum are {added}, not {want}"
    assert sums.answers, "no answer was seen"


class Bed:
    """Aggregators and ranks on links with such losses, for one row after the other: ranks take
    longer to start than to reduce."""

    now = None

    def __init__(self, loss):
        self.loss, self.stack = loss, contextlib.ExitStack()
        drawn = netns.Impair(loss, 0, loss) if loss else None
        self.net = self.stack.enter_context(
            netns.Topology(max(FACTORS["n"]), aggregators=max(FACTORS["shards"]), impair=drawn))
        self.ranks = self.stack.enter_context(Ranks(self.net, None, error_feedback=False))

    @classmethod
    def of(cls, loss):
        if cls.now and cls.now.loss != loss:
            cls.end()
        if not cls.now:
            cls.now = cls(loss)
        return cls.now

    @classmethod
    def end(cls):
        if cls.now:
            cls.now.stack.close()
        cls.now = None


def reduce(row, bed, shards):
    """The answers of the row's ranks."""
    mode, some = row["transport"], range(row["n"])
    bed.ranks.aggregator = shards
    bed.ranks.address = netns.AGGREGATOR6 if row["family"] == 6 else netns.AGGREGATOR4
    joined = bed.ranks.open(some)
    assert joined[0]["transport"] == ("AF_THC" if mode == AF_THC else "UDP"), joined[0]
    answers = good(bed.ranks.all(some, do="calls", calls=calls_of(row)))
    for a in shards.all:
        stats = a.stats()
        assert not add_up(stats), add_up(stats)
        assert mode == AF_THC or stats["mode"] == mode, f"mode is {stats['mode']}"
    good(bed.ranks.all(some, do="close"))
    return answers


def run(row):
    mode, bed = row["transport"], Bed.of(row["loss"])
    in_xdp = mode in ("native", "generic")
    with contextlib.ExitStack() as stack:
        recorders = [stack.enter_context(Recorder(bed.net, port=f"agg{i or ''}",
                                                  sum_width=row["scheme"][1]))
                     for i in range(row["shards"])]
        shards = stack.enter_context(
            Shards(bed.net, row["n"], row["shards"], software=not in_xdp, job=job_of(row),
                   options=["--mode", mode] if in_xdp else []))
        answers = reduce(row, bed, shards)
    check_results(row, answers)
    repeated = sum(a["stats"]["retransmits"] for a in answers)
    assert bool(repeated) >= bool(row["loss"]), "nothing was lost"
    for shard, (recorder, a) in enumerate(zip(recorders, shards.all)):
        check_packets(row, recorder, a.secret and a.secret.key, shard)


def case_of(row):
    def case():
        try:
            run(row)
        except BaseException:
            Bed.end()       # a rank that hangs is the next row's no more
            raise

    (scheme, width), words = row["scheme"], [row[k] for k in ("transport", "dtype")]
    case.__name__ = "_".join(map(str, (
        scheme, row["bits"], "in", width, *words, "n", row["n"], "shards", row["shards"], "loss",
        int(100 * row["loss"]), "ip", row["family"], row["reply"], "seal", row["seal"],
        *(name for name in ("rotate", "correlated") if row[name] == "on"))))
    return case


if __name__ == "__main__":
    wanted = os.environ.get("THC_TRANSPORT") == AF_THC
    atexit.register(Bed.end)
    tap.main([case_of(row) for row in sorted(rows(), key=lambda row: row["loss"])
              if (row["transport"] == AF_THC) == wanted])
