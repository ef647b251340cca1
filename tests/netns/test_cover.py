#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""All-reduces in all their shapes. In few jobs every two values of FACTORS meet, and each scheme
and width of sums meets each transport, number of aggregators, number of ranks, and loss. Each job
reduces, overlapped, one bucket by the job's scheme, one by each kind of scheme none and some by
lhc. With error feedback a job reduces these buckets twice.

Each answer is compared with the sum of its requests, which the decoder of the protocol adds up.
Integers, fixed-point means and exact means equal those of plain integers bit for bit. The indices
and scales of a lossy bucket are those of the ranks' values (means.py), and its means are bit for
bit those of its answers. With THC_TRANSPORT=af_thc the jobs over AF_THC sockets run, and otherwise
the other jobs.
"""
import atexit
import contextlib
import functools
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import means  # noqa: E402
import values  # noqa: E402
import thcwire as wire  # noqa: E402
from aggregator import Shards, add_up  # noqa: E402
from covering import pairwise  # noqa: E402
from decoder import bits_of, unpack_indices, unpack_lanes  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from recorder import Recorder, Seals  # noqa: E402
from sums import Sums  # noqa: E402
from tap import netns  # noqa: E402

AF_THC = "af_thc"
FACTORS = {
    "scheme": ["thc", "uthc"],
    "width": [4, 8, 16, 32],
    "bits": [1, 2, 3, 4, 5, 6, 7, 8],
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
    "feedback": ["on", "off"],
}
TRIPLES = [("scheme", "width", other) for other in ("transport", "shards", "loss", "n")]
SEED = 110              # of 150 seeds the one with fewest rows and few rows over AF_THC
COUNT = 9001            # of the lossy bucket: blocks of 2048, the last one not full
# the lossless buckets: scheme, dtype, precision, count, share of values that are not zero
LOSSLESS = [("none", "int8", 0, 2500, 1), ("none", "int16", 0, 1300, 1),
            ("none", "int32", 0, 700, 1)] + [
    ("none", dtype, bits, 4500, 1)
    for dtype, bits in (("fp32", 8), ("bf16", 16), ("fp16", 32), ("fp32", 0))] + [
    ("lhc", "fp32", 0, 9001, 0.03), ("lhc", "bf16", 16, 9001, 0.2)]
BLOCK = 2048


def valid(row):
    bits, width, n = row.get("bits", 1), row.get("width", 32), row.get("n", 1)
    # lists of aggregators are IPv4 here; uthc with fewer than 3 bits loses more than it sends
    return (not (row.get("family") == 6 and row.get("shards", 1) > 1) and
            not (row.get("scheme") == "uthc" and row.get("bits", 3) < 3 and
                 row.get("feedback") == "on") and
            bits <= width and (2**bits - 1) * n < 2**width)


def job_of(row):
    same = ("scheme", "bits", "reply", "rotate", "correlated", "seal", "feedback")
    # so few slots that chunks of one bucket share them
    return {"seed": 5, "sum_width": row["width"], "slots": 8, "norm_slots": 8, "block": BLOCK,
            **{key: row[key] for key in same},
            **({"group": "ff15::77"} if row["family"] == 6 and row["reply"] == "multicast" else {})}


def rounds_of(row):
    """[calls of a round]; with error feedback the second round adds what the first one lost."""
    buckets = [(None, row["dtype"], 0, COUNT, 1), *LOSSLESS]
    return [[{"seed": 1 + 100 * step + i, "count": count, "dtype": dtype, "scheme": scheme,
              "precision": bits, "share": share}
             for i, (scheme, dtype, bits, count, share) in enumerate(buckets)]
            for step in range(2 if row["feedback"] == "on" else 1)]


@functools.lru_cache(None)
def expected(seed, count, dtype, precision, share, n):
    """The result that a lossless call must have, bit for bit."""
    brought = [values.buffer(seed, r, count, dtype, share) for r in range(n)]
    if dtype not in values.FLOATS:
        return values.total(brought)
    if precision:
        return values.fixed_mean(brought, dtype, precision)
    return values.exact_mean(brought, dtype)


def in_order(packets):
    """The packets of all shards, a list for each, in the order of the bucket's chunks."""
    whole = {p.chunk * len(packets) + shard: p for shard, of in enumerate(packets) for p in of}
    return [whole[q] for q in sorted(whole)]


def lossy_mean(row, sums, number, brought):
    """The bits of the lossy mean of round number according to the shards' answers, and, as floats,
    what each rank's indices miss of the values that it brought."""
    lut = wire.LUT_ADD, number
    answers = in_order([s.answered[lut].values() for s in sums])
    assert len(answers) == -(-COUNT // BLOCK) * BLOCK * row["width"] // 8192, len(answers)
    lanes = [lane for p in in_order([s.answered[wire.MAX, number].values() for s in sums])
             for lane in unpack_lanes(p.payload, 32)]
    bucket = means.Round(next(iter(sums[0].welcomes.values())), number, COUNT, lanes)
    bucket.check_scales(brought)
    missed = []
    for rank, x in enumerate(brought):
        asked = in_order([[p for (_, r), p in s.asked[lut].items() if r == rank] for s in sums])
        missed.append(bucket.missed(x, [i for p in asked
                                        for i in unpack_indices(p.payload, bits_of(p.width))]))
    sums_of = [lane for p in answers for lane in unpack_lanes(p.payload, row["width"])]
    return bucket.mean(sums_of, [p.count for p in answers], row["dtype"]), missed


def check_results(row, rounds, sums):
    """rounds: [[each rank's digests]]."""
    numbers = sorted({number for s in sums for op, number in s.answered if op == wire.LUT_ADD})
    assert len(numbers) == len(rounds), f"rounds {numbers} are lossy"
    missed = [0] * row["n"]
    for number, calls, digests in zip(numbers, rounds_of(row), rounds):
        for rank, of in enumerate(digests):
            assert of == digests[0], f"rank {rank} received other bits than rank 0"
        brought = [error + values.floats(values.buffer(calls[0]["seed"], r, COUNT, row["dtype"]),
                                         row["dtype"]) for r, error in enumerate(missed)]
        mean, missed = lossy_mean(row, sums, number, brought)
        given = ("seed", "count", "dtype", "precision", "share")
        wanted = [mean, *(expected(*(call[key] for key in given), row["n"]) for call in calls[1:])]
        for call, want, digest in zip(calls, wanted, digests[0]):
            assert hashlib.sha256(want.tobytes()).hexdigest() == digest, f"other bits of {call}"


def check_packets(row, recorder, secret, shard):
    """The Sums of a shard's packets, after a check that all are sealed and added up correctly."""
    # the switch floods other aggregators' packets to their groups
    own = (netns.Topology.aggregator_address(shard), netns.AGGREGATOR6)
    seen = [s for s in recorder.packets() if (s.to if s.up else s.source)[0] in own]
    seals = Seals(seen, secret, shard=shard)
    wrong = [s for s in set(seen) if not seals.made(s)] if row["seal"] == "nh" else []
    assert not wrong, f"{len(wrong)} packets are not sealed right, as {wire.Packet(wrong[0].data)}"
    sums = Sums(seen)
    added = {w for w in sums.widths() if w[0] == wire.LUT_ADD}
    want = (wire.LUT_ADD, row["bits"], row["width"])
    assert added == {want}, f"op, bits up and of the sum are {added}, not {want}"
    assert any(op == wire.LUT_ADD for op, _ in sums.answered), "no answer was seen"
    return sums


class Bed:
    """Aggregators and ranks on links with this loss. Many rows share a Bed, since ranks take longer
    to start than to reduce. Loss on the links of a Bed can end, but it cannot begin."""

    now = None

    def __init__(self, loss):
        self.loss, self.stack = loss, contextlib.ExitStack()
        drawn = netns.Impair(loss, 0, loss) if loss else None
        self.net = self.stack.enter_context(
            netns.Topology(max(FACTORS["n"]), aggregators=max(FACTORS["shards"]), impair=drawn))
        self.ranks = self.stack.enter_context(Ranks(self.net, None))

    @classmethod
    def of(cls, loss):
        if cls.now and cls.now.loss and not loss:
            cls.now.net.heal()
            cls.now.loss = loss
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
    """[[each rank's digests] of a round], and the number of retransmissions."""
    mode, some = row["transport"], range(row["n"])
    bed.ranks.aggregator = shards
    bed.ranks.address = netns.AGGREGATOR6 if row["family"] == 6 else netns.AGGREGATOR4
    joined = bed.ranks.open(some, error_feedback=row["feedback"] == "on")
    assert joined[0]["transport"] == ("AF_THC" if mode == AF_THC else "UDP"), joined[0]
    rounds = [good(bed.ranks.all(some, do="calls", calls=calls)) for calls in rounds_of(row)]
    for a in shards.all:
        stats = a.stats()
        assert not add_up(stats), add_up(stats)
        assert mode == AF_THC or stats["mode"] == mode, f"mode is {stats['mode']}"
    good(bed.ranks.all(some, do="close"))
    return ([[a["digests"] for a in answers] for answers in rounds],
            sum(a["stats"]["retransmits"] for a in rounds[-1]))


def run(row):
    mode, bed = row["transport"], Bed.of(row["loss"])
    in_xdp = mode in ("native", "generic")
    with contextlib.ExitStack() as stack:
        recorders = [stack.enter_context(Recorder(bed.net, port=f"agg{i or ''}",
                                                  sum_width=row["width"]))
                     for i in range(row["shards"])]
        shards = stack.enter_context(
            Shards(bed.net, row["n"], row["shards"], software=not in_xdp, job=job_of(row),
                   options=["--mode", mode] if in_xdp else []))
        rounds, repeated = reduce(row, bed, shards)
    assert bool(repeated) >= bool(row["loss"]), "nothing was lost"
    check_results(row, rounds, [
        check_packets(row, recorder, a.secret and a.secret.key, shard)
        for shard, (recorder, a) in enumerate(zip(recorders, shards.all))])


def case_of(row):
    def case():
        try:
            run(row)
        except BaseException:
            Bed.end()       # a rank that hangs must not disturb the next row
            raise

    case.__name__ = "_".join(map(str, (
        row["scheme"], row["bits"], "in", row["width"], row["transport"], row["dtype"],
        "n", row["n"], "shards", row["shards"], "loss", int(100 * row["loss"]),
        "ip", row["family"], row["reply"], "seal", row["seal"],
        *(name for name in ("rotate", "correlated", "feedback") if row[name] == "on"))))
    return case


if __name__ == "__main__":
    wanted = os.environ.get("THC_TRANSPORT") == AF_THC
    atexit.register(Bed.end)
    rows = sorted(pairwise(FACTORS, valid, TRIPLES, SEED), key=lambda row: -row["loss"])
    tap.main([case_of(row) for row in rows if (row["transport"] == AF_THC) == wanted])
