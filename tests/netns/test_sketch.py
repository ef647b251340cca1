#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Means of sketches in scheme lhc equal those of plain integers bit for bit: in XDP, native and
generic, and in software, by one aggregator and by three, with three hashes and with four coupled
hashes, with losses and duplicates. With THC_TRANSPORT=af_thc over AF_THC sockets, and otherwise
over UDP.
"""
import functools
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import values  # noqa: E402
from aggregator import Shards, add_up  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

N = 3
STEPS = 3       # the first one goes by an index, since nothing is known yet
# count, dtype, precision, share of values that are not zero
CALLS = [(20001, "fp32", 0, .01), (9001, "bf16", 16, .012), (9001, "fp32", 32, .0)]


def seed_of(step, i):
    return 1 + 10 * step + i


@functools.lru_cache(None)
def expected(step, i):
    """The digest of the right result of a call."""
    count, dtype, bits, share = CALLS[i]
    brought = [values.buffer(seed_of(step, i), r, count, dtype, share) for r in range(N)]
    if bits:
        mean = values.fixed_mean(brought, dtype, bits, count if step else values.SCALE_BLOCK)
    else:
        mean = values.exact_mean(brought, dtype)
    return hashlib.sha256(mean.tobytes()).hexdigest()


def check_large(ranks):
    """A bucket of several parts, without a filter: three steps by lhc equal one by scheme none."""
    call = {"seed": 3, "count": 1100003, "dtype": "fp32", "precision": 0, "share": .001}
    digests = {a["digests"][0] for scheme in ("lhc", "lhc", "lhc", "none") for a in
               good(ranks.all(range(N), do="calls", calls=[{**call, "scheme": scheme}]))}
    assert len(digests) == 1, "other bits than by scheme none"


def check(sketch, shards=1, loss=0.0, software=False, mode="native", large=False):
    impair = netns.Impair(loss, 0, loss) if loss else None
    job = {"scheme": "lhc", "sketch": sketch, "slots": 8, "norm_slots": 8}
    with netns.Topology(N, aggregators=shards, impair=impair) as net, \
            Shards(net, N, shards, software=software, job=job,
                   options=[] if software else ["--mode", mode]) as aggregators, \
            Ranks(net, aggregators) as ranks:
        ranks.open()
        for step in range(STEPS):
            calls = [{"seed": seed_of(step, i), "count": count, "dtype": dtype, "scheme": "lhc",
                      "precision": bits, "share": share}
                     for i, (count, dtype, bits, share) in enumerate(CALLS)]
            for answer in good(ranks.all(range(N), do="calls", calls=calls)):
                for i, digest in enumerate(answer["digests"]):
                    assert digest == expected(step, i), f"other bits of {calls[i]}"
            repeated = sum(a["stats"]["retransmits"] for a in
                           good(ranks.all(range(N), do="calls", calls=[])))
        if large:
            check_large(ranks)
        for a in aggregators.all:
            assert not add_up(a.stats()), add_up(a.stats())
    assert bool(repeated) >= bool(loss), "nothing was lost"


def native__loss_20_percent():
    check("three", loss=.2)


def generic__three_shards():
    check("coupled", shards=3, mode="generic", large=True)


def software__loss_5_percent():
    check("coupled", loss=.05, software=True)


def af_thc__loss_5_percent():
    check("three", loss=.05)


if __name__ == "__main__":
    if os.environ.get("THC_TRANSPORT") == "af_thc":
        tap.main([af_thc__loss_5_percent])
    else:
        tap.main([native__loss_20_percent, generic__three_shards, software__loss_5_percent])
