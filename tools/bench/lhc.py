#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make bench-lhc`: the all-reduce of a sparse 25 MiB bucket by scheme lhc and, in the same run, by
Gloo fp32, which sends all values. Varies the density, whether the ranks' nonzero places agree, the
precision, and the number of aggregators (1 or 4). Prints a table of times and of bytes that the
interfaces counted, writes build/bench-lhc.json. At the end it compares lhc with the scheme none on
a dense bucket: the cost of lhc where it does not fit.
"""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from aggregator import Shards  # noqa: E402
from bench.buckets import BUCKET_BYTES, QUIET, Ranks  # noqa: E402
from bench.model import speed  # noqa: E402

WORKERS = 4
# Bytes of the fp32 bucket in full TCP frames, 1448 payload bytes of 1514.
FP32_BYTES = BUCKET_BYTES * 1514 / 1448
CASES = [(where, of, bits) for of in (10, 100, 500, 1000) for where in ("same", "own")
         for bits in (32, 0)]
# (rate, aggregators, where, of 10000, bits): least speed-up over Gloo fp32
WANTED = {("1gbit", 4, "same", 500, 32): 9.0, ("1gbit", 4, "own", 500, 32): 4.5,
          ("1gbit", 1, "same", 500, 32): 3.8, ("1gbit", 1, "own", 500, 32): 1.5}
# (where, of 10000, bits): least ratio of fp32's bytes to lhc's
FEWER = {("same", 100, 32): 40, ("same", 100, 0): 28, ("own", 100, 32): 12, ("own", 100, 0): 8}

# Most ratio of lhc's time to none's on dense buckets, and after how many buckets it holds.
DENSE_MOST, DENSE_FIRST = 1.05, 10


def measured(rate, aggregators, repeats, cases, impair=None):
    """A list with a dict per case, with the milliseconds of Gloo fp32. The systems take turns.
    Bytes and retransmits are the last repeat's. With an Impair, even an idle one, the interfaces
    count single frames instead of super-packets."""
    systems = ["gloo_fp32", *(f"lhc-{where}-{of}-{bits}" for where, of, bits in cases)]
    samples, answers = {s: [] for s in systems}, {}
    with netns.Topology(WORKERS, shape=rate, aggregators=aggregators, impair=impair) as net, \
            Shards(net, WORKERS, aggregators, quiet=True) as shards:
        ranks = Ranks(net, shards)
        # an index's levels follow from the buckets before the last one: two rounds first
        for repeat in range(-2, repeats):
            for system in systems[repeat == -2:]:
                answers[system] = ranks.ask(f"{system} {BUCKET_BYTES}")
                if repeat >= 0:
                    samples[system].append(max(a["seconds"] for a in answers[system]))
        ranks.close()
    ms = {s: 1e3 * statistics.median(samples[s]) for s in systems}
    return [{"rate": rate, "aggregators": aggregators, "where": where, "of_10000": of,
             "bits": bits, "ms": ms[system], "gloo_fp32_ms": ms["gloo_fp32"],
             **{key: statistics.mean(a[key] for a in answers[system])
                for key in ("bytes_up", "bytes_down", "interface_up", "interface_down",
                            "retransmits")},
             **{f"gloo_fp32_{key}": statistics.mean(a[key] for a in answers["gloo_fp32"])
                for key in ("interface_up", "interface_down")}}
            for system, (where, of, bits) in zip(systems[1:], cases)]


def dense(rate, repeats):
    """Reduces a bucket without zeros by lhc and none in turns: (milliseconds, median ratio)."""
    systems = {scheme: f"{scheme}-same-10000-32" for scheme in ("lhc", "none")}
    samples = {scheme: [] for scheme in systems}
    with netns.Topology(WORKERS, shape=rate, aggregators=1) as net, \
            Shards(net, WORKERS, 1, quiet=True) as shards:
        ranks = Ranks(net, shards)
        # lhc stops sending the index after a few dense buckets
        for repeat in range(-DENSE_FIRST, repeats):
            for scheme, system in systems.items():
                answers = ranks.ask(f"{system} {BUCKET_BYTES}")
                if repeat >= 0:
                    samples[scheme].append(max(a["seconds"] for a in answers))
        ranks.close()
    return {"rate": rate, "pairs": repeats,
            "ratio": statistics.median(a / b for a, b in zip(*samples.values())),
            **{f"{scheme}_ms": 1e3 * statistics.median(samples[scheme]) for scheme in systems}}


def show_dense(run):
    print(f"  {speed(run['rate'])}, dense, {run['pairs']} pairs: lhc {run['lhc_ms']:.1f} ms, none "
          f"{run['none_ms']:.1f} ms, {run['ratio']:.3f} x "
          f"({'kept' if run['ratio'] <= DENSE_MOST else 'MISSED'}: {DENSE_MOST:g})", flush=True)


def verdict(value, wanted):
    return "" if wanted is None else f" ({'kept' if value >= wanted else 'MISSED'}: {wanted:g})"


def show(run):
    case = run["where"], run["of_10000"], run["bits"]
    faster = run["gloo_fp32_ms"] / run["ms"]
    fewer = 2 * FP32_BYTES / (run["bytes_up"] + run["bytes_down"])
    print(f"  {speed(run['rate']):<10} {run['aggregators']:>5} {run['of_10000'] / 100:>7.1f} % "
          f"{run['where']:<5} {'exact' if not run['bits'] else run['bits']:>6} {run['ms']:>8.1f} "
          f"{run['gloo_fp32_ms']:>8.1f} {faster:>8.2f} {run['bytes_up'] / 2**20:>8.3f} "
          f"{run['bytes_down'] / 2**20:>8.3f} {fewer:>7.1f}"
          + verdict(faster, WANTED.get((run["rate"], run["aggregators"], *case)))
          + verdict(fewer, FEWER.get(case)), flush=True)


def main():
    parser = argparse.ArgumentParser(description="Sparse buckets by lhc beside Gloo fp32.")
    parser.add_argument("--repeats", type=int, default=7, help="of each all-reduce; default 7")
    parser.add_argument("--quick", action="store_true", help="5 %% alone, three times each")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats is at least 1")
    reason = netns.why_not()
    if reason:
        print(f"bench-lhc: {reason}", file=sys.stderr)
        return 1
    if os.getloadavg()[0] > QUIET:
        print("# this machine is busy: what needs the CPU, lhc before all, will look worse than "
              "it is", file=sys.stderr)
    cases = [case for case in CASES if case[1] == 500] if args.quick else CASES
    repeats = 3 if args.quick else args.repeats
    print(f"25 MiB, {WORKERS} workers, median of {repeats}; MiB of a worker")
    print(f"  {'links':<10} {'aggr.':>5} {'not zero':>9} {'places':<5} {'bits':>4} {'lhc ms':>8} "
          f"{'fp32 ms':>8} {'fp32/lhc':>8} {'MiB up':>8} {'down':>8} {'fewer':>7}", flush=True)
    runs = []
    try:
        with netns.guard():
            netns.sweep()
            for rate, aggregators in (("1gbit", 1), ("1gbit", 4), (None, 1)):
                new = measured(rate, aggregators, repeats, cases)
                runs += new
                for run in new:
                    show(run)
            mistaken = [dense(rate, 3 * repeats) for rate in ("1gbit", None)]
            for run in mistaken:
                show_dense(run)
    except netns.NetnsError as error:
        print(f"bench-lhc: {error}", file=sys.stderr)
        return 1
    path = os.path.join(netns.build_dir(), "bench-lhc.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"workers": WORKERS, "repeats": repeats, "runs": runs,
                   "dense": mistaken}, f, indent=2)
    print(f"  Written to {os.path.relpath(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
