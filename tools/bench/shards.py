#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make bench-shards`: the all-reduce of a 25 MiB bucket by four workers through four aggregators
that share its chunks, each on a host of its own, beside one aggregator and Gloo, at two link
speeds. Prints a table, writes build/bench-shards.json.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from buckets import BUCKET_BYTES, QUIET, measure  # noqa: E402
from model import speed  # noqa: E402

WORKERS = AGGREGATORS = 4
SYSTEMS = ("thc", "thc_rate", "gloo_fp32", "gloo_fp16")
# Rate of every link, and the least speed-up over Gloo fp32 in the same run.
CASES = (("500mbit", 4.8), ("1gbit", 3.6))


def main():
    parser = argparse.ArgumentParser(description="Several aggregators beside one and Gloo.")
    parser.add_argument("--repeats", type=int, default=7, help="of each all-reduce; default 7")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats is at least 1")
    reason = netns.why_not()
    if reason:
        print(f"bench-shards: {reason}", file=sys.stderr)
        return 1
    if os.getloadavg()[0] > QUIET:
        print("# this machine is busy: what needs the CPU, THC before all, will look worse than "
              "it is", file=sys.stderr)
    runs = []
    print(f"25 MiB, {WORKERS} workers, median of {args.repeats}")
    print(f"  {'links':<10} {'aggregators':>11} {'4+8 ms':>8} {'norms ms':>8} {'fp32 ms':>8} "
          f"{'fp16 ms':>8} {'fp32/4+8':>8} {'fp32/norms':>10}", flush=True)
    try:
        with netns.guard():
            netns.sweep()
            for rate, wanted in CASES:
                for count in (1, AGGREGATORS):
                    times = measure(WORKERS, rate, args.repeats, systems=SYSTEMS,
                                    aggregators=count)[0][BUCKET_BYTES]
                    runs.append({"rate": rate, "aggregators": count,
                                 "wanted": wanted if count > 1 else None,
                                 "speedup_rate": times["gloo_fp32_ms"] / times["thc_rate_ms"],
                                 **{k: times[k] for k in (
                                     *(f"{s}_ms" for s in SYSTEMS), "speedup_fp32",
                                     "thc_retransmits")}})
                    show(runs[-1])
    except netns.NetnsError as error:
        print(f"bench-shards: {error}", file=sys.stderr)
        return 1
    path = os.path.join(netns.build_dir(), "bench-shards.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"workers": WORKERS, "repeats": args.repeats, "runs": runs}, f, indent=2)
    print(f"  Written to {os.path.relpath(path)}")
    return 0


def show(run):
    wanted = run["wanted"]
    verdict = "" if not wanted else f"  wanted >= {wanted:g}: " + (
        "kept" if run["speedup_fp32"] >= wanted else "MISSED")
    ms = " ".join(f"{run[f'{system}_ms']:>8.0f}" for system in SYSTEMS)
    print(f"  {speed(run['rate']):<10} {run['aggregators']:>11} {ms} {run['speedup_fp32']:>8.2f} "
          f"{run['speedup_rate']:>10.2f}{verdict}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
