#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""At 0, 1, 5 and 20 % loss per direction, with 1 % of packets corrupted and
1 % duplicated, the all-reduce gives the bits of the loss-free run, by thc and by
lhc, in XDP and in software. Packets come from sockets of ranks pinned to different CPUs, over
a veth with two queues, so that two CPUs receive at once.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import Aggregator, add_up  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

N = 4
COUNTS = [150001, 40960, 9, 600001, 77777]     # coordinates of the buckets of a step
ROUNDS = 3
# a step's buckets by lhc; their index has 1 to 3 levels, by the density in earlier steps
SPARSE = [{"count": count, "dtype": dtype, "scheme": "lhc", "precision": bits, "share": share}
          for count, dtype, bits, share in ((300001, "fp32", 0, 0.001), (150001, "fp32", 32, 0.05),
                                            (90001, "bf16", 16, 0.4))]
JOB = {"seed": 77, "rate": "fixed"}          # the same bits every time
NMSE_LIMIT = 0.1                        # norms of different size per rank and block

_reference = {}


def reduce_under(impair, software):
    """(digest, ranks' stats, aggregator's counters, impairments)"""
    with netns.Topology(N, queues=2, impair=impair) as net, \
            Aggregator(net, N, software=software, job=JOB) as aggregator, \
            Ranks(net, aggregator, pin=True) as ranks:
        first = aggregator.ask("jobs")["jobs"][0]["epoch"]
        epochs = {info["epoch"] for info in ranks.open()}
        assert epochs == {first}, f"joining took the job from epoch {first} to {epochs}: nobody has restarted"
        answers = ranks.reduce(counts=COUNTS, rounds=ROUNDS, exact_of=N)
        sparse = [good(ranks.all(range(N), do="calls", calls=[
            {**call, "seed": 10 * step + i} for i, call in enumerate(SPARSE)]))
            for step in range(ROUNDS)]
        digests = {(a["digest"], *(d for step in sparse for d in step[rank]["digests"]))
                   for rank, a in enumerate(answers)}
        assert len(digests) == 1, "the ranks received different bits"
        assert max(answers[0]["nmse"]) < NMSE_LIMIT, f"not the mean: NMSE {answers[0]['nmse']}"
        stats = aggregator.stats()
        wrong = add_up(stats)
        assert not wrong, wrong
        cpus = None if software else xdp_packets_by_cpu(aggregator)
        return digests.pop(), [a["stats"] for a in sparse[-1]], stats, net.impaired(), cpus


def xdp_packets_by_cpu(aggregator):
    path = f"/sys/fs/bpf/thc/{aggregator.instance}/stats"
    done = subprocess.run(["bpftool", "-j", "map", "dump", "pinned", path], check=True,
                          capture_output=True, text=True,
                          env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
    entry = json.loads(done.stdout)[0]["formatted"]["values"]
    return [v["value"]["received"] for v in entry]


def reference():
    """The bits without impairment, from the software aggregator."""
    if not _reference:
        _reference["digest"] = reduce_under(None, True)[0]
    return _reference["digest"]


def check(loss, software):
    want = reference()
    digest, clients, stats, harm, cpus = reduce_under(netns.Impair(loss, 0.01, 0.01), software)
    up, down = harm["up"], harm["down"]
    retransmits = sum(c["retransmits"] for c in clients)
    print(f"# up {up}\n# down {down}\n# retransmits {retransmits}, received {stats['received']}, "
          f"by CPU {cpus}, drops { {k: v for k, v in stats['drops'].items() if v} }")
    assert digest == want, "other bits than without loss"
    assert up["super"] == 0 and down["super"] == 0, "loss met super-packets"
    for direction in (up, down):
        assert abs(direction["dropped"] / direction["seen"] - loss) < 0.01 + loss / 4
        assert direction["corrupted"] and direction["duplicated"]
    assert stats["drops"]["tag"] or stats["drops"]["version"], "no corrupted packet was noticed"
    assert sum(c["bad_tag"] for c in clients), "no corrupted answer was noticed"
    assert retransmits >= up["dropped"] * 0.8, "lost packets without retransmission"
    if cpus and os.cpu_count() > 1:
        busy = sorted(cpus)[-2]
        assert busy > 0.1 * sum(cpus), f"only one CPU received: {cpus}"


def xdp__loss_0():
    check(0.0, False)


def xdp__loss_1_percent():
    check(0.01, False)


def xdp__loss_5_percent():
    check(0.05, False)


def xdp__loss_20_percent():
    check(0.20, False)


def software__loss_0():
    check(0.0, True)


def software__loss_1_percent():
    check(0.01, True)


def software__loss_5_percent():
    check(0.05, True)


def software__loss_20_percent():
    check(0.20, True)


CASES = [software__loss_0, software__loss_1_percent, software__loss_5_percent,
         software__loss_20_percent, xdp__loss_0, xdp__loss_1_percent, xdp__loss_5_percent,
         xdp__loss_20_percent]

if __name__ == "__main__":
    tap.main(tap.once(CASES, software__loss_1_percent, software__loss_20_percent, xdp__loss_0,
                      xdp__loss_1_percent, xdp__loss_5_percent))
