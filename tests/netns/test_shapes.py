#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The all-reduce end to end in every shape it has: one to eight ranks, IPv4
and IPv6, multicast and fanout, 8- and 16-bit sums, linear and non-uniform
tables, fp32 and fp16. Native XDP, generic XDP and software give the same bits,
which are near the exact mean.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import Aggregator, add_up  # noqa: E402
from ranks import Ranks  # noqa: E402
from tap import netns  # noqa: E402

COUNTS = [70001, 1, 1024, 5000]
NMSE_LIMIT = 0.1        # norms of different size per rank and block
KEYS = {"seed": 5}


def reduce(n, mode, address=netns.AGGREGATOR4, dtype="fp32", info=None, **job):
    """The digest of all bits n ranks received, checked near the mean."""
    with netns.Topology(n) as net, \
            Aggregator(net, n, software=mode == "software", job={**KEYS, **job},
                       options=["--mode", "generic"] if mode == "generic" else []) as aggregator, \
            Ranks(net, aggregator, address=address) as ranks:
        joined = ranks.open()
        for key, value in (info or {}).items():
            assert joined[0][key] == value, f"{key} is {joined[0][key]}, not {value}"
        answers = ranks.reduce(counts=COUNTS, rounds=2, exact_of=n, dtype=dtype)
        assert len({a["digest"] for a in answers}) == 1, f"{n} ranks received different bits"
        large = [e for e, count in zip(answers[0]["nmse"], COUNTS) if count > 1000]
        assert max(large) < NMSE_LIMIT, f"not the mean of {n} ranks: NMSE {answers[0]['nmse']}"
        stats = aggregator.stats()
        assert not add_up(stats), add_up(stats)
        assert stats["mode"] == mode, f"mode is {stats['mode']}"
        return answers[0]["digest"]


def both(n, **more):
    xdp, software = reduce(n, "native", **more), reduce(n, "software", **more)
    assert xdp == software, f"XDP and software give different bits for {n} ranks, {more}"
    return xdp


def ranks__one_to_eight():
    digests = [both(n, info={"multicast": 1, "sum_width": 8}) for n in range(1, 9)]
    assert len(set(digests)) == 8, "the number of ranks makes no difference"


def family__ipv6_gives_the_same_bits():
    four = reduce(3, "native")
    assert both(3, address=netns.AGGREGATOR6, group="ff15::77") == four


def reply__fanout_gives_the_same_bits():
    assert both(3, reply="fanout", info={"multicast": 0}) == reduce(3, "native")


def reply__fanout_over_ipv6():
    both(2, reply="fanout", address=netns.AGGREGATOR6, info={"multicast": 0})


def mode__generic_xdp_gives_the_same_bits():
    native = reduce(3, "native")
    assert reduce(3, "generic") == native
    assert reduce(3, "generic", reply="fanout") == native


def sums__of_16_bits():
    both(3, sum_width=16, info={"sum_width": 16, "chunk": 512})


def table__linear():
    both(3, table="uniform")


def rounding__independent():
    both(4, correlated="off")


def dtype__fp16():
    both(3, dtype="fp16")


def seal__sum_and_none_give_the_same_bits():
    # the seed follows from the key, which they do not have
    keyed = reduce(3, "software", seed=5)
    for seal in ("sum", "none"):
        assert both(3, seal=seal, seed=5) == keyed, seal


def block__of_4096():
    both(2, block=4096, info={"block": 4096})


if __name__ == "__main__":
    tap.main([ranks__one_to_eight, family__ipv6_gives_the_same_bits,
              reply__fanout_gives_the_same_bits, reply__fanout_over_ipv6,
              mode__generic_xdp_gives_the_same_bits, sums__of_16_bits,
              table__linear, rounding__independent, dtype__fp16,
              seal__sum_and_none_give_the_same_bits, block__of_4096])
