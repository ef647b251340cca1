#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make bench-compare BASE=commit`: the figures of `make bench` of another commit and of this
tree, measured in turns in one run: base, this, this, base, ... A machine that is slow for a
minute slows both. For each figure the table has both medians, and the median and quartiles of
the pairs' ratios this / base. Above 1 a time has become longer; figures that should be large
(the codec's `_ratio`, `speedup`) are marked.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from buckets import QUIET  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
# A run of `make bench --quick` takes half a minute; one that hangs is ended.
RUN_SECONDS = 600
BUILD_SECONDS = 1800


class Failure(Exception):
    """An error, as a sentence for the user."""


def note(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def run(command, what, seconds, **more):
    """The output of command. Failure, with the end of the output, if command fails or takes more
    than `seconds`."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=seconds, check=False, **more)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{what} took more than {seconds} s") from error
    if done.returncode:
        raise Failure(f"{what} failed with status {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def prepare(base):
    """Clones and builds commit base below the build folder, unless an earlier run has done so."""
    commit = run(["git", "-C", TREE, "rev-parse", "--verify", f"{base}^{{commit}}"],
                 f"looking for commit {base}", 60).strip()
    folder = os.path.join(netns.build_dir(), "bench-base", commit[:12])
    if not os.path.isdir(folder):
        run(["git", "clone", "-q", "--shared", "--no-checkout", TREE, folder],
            f"copying {base}", 60)
    run(["git", "-C", folder, "checkout", "-q", "-f", commit], f"copying {base}", 60)
    note(f"building {base}")
    run([os.environ.get("MAKE", "make"), "-C", folder, f"-j{os.cpu_count()}", "benches"],
        f"building {base}", BUILD_SECONDS, env=clean())
    return folder


def clean():
    """The environment without the variables of the make that runs this program."""
    return {k: v for k, v in os.environ.items()
            if k not in ("BUILD", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}


def figures(results, path=""):
    """Leaves of bench.json that are measurements: {path: number}."""
    out = {}
    for name, value in results.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            out.update(figures(value, here))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            out[here] = float(value)
    return out


MEASURED = ("_ns", "_ms", "_ratio", "speedup_fp32", "speedup_fp16", "memory.aggregator",
            "memory.client")


def measure(folder, build):
    """The figures of one quick run of the tree in folder, with its programs from build."""
    output = os.path.join(build, "compare")
    os.makedirs(output, exist_ok=True)
    run([sys.executable, os.path.join(folder, "tools/bench/run.py"), "--quick", "--output", output],
        f"the benchmark in {os.path.relpath(folder)}", RUN_SECONDS, cwd=folder,
        env={**clean(), "BUILD": build})
    with open(os.path.join(output, "bench.json"), encoding="utf-8") as f:
        found = figures(json.load(f))
    return {k: v for k, v in found.items() if k.endswith(MEASURED) and v > 0}


def more_is_better(name):
    # the codec's ratios are memcpy's time / its own; those of rates compare with fixed bits
    return ("speedup" in name or
            name.startswith("codec.") and name.endswith("_ratio") and "rated" not in name)


def summary(pairs):
    """[{figure, base, this, ratio, low, high}] of [(base's figures, this tree's)]."""
    rows = []
    for name in sorted(set(pairs[0][0]) & set(pairs[0][1])):
        base = [p[0][name] for p in pairs if name in p[0] and name in p[1]]
        this = [p[1][name] for p in pairs if name in p[0] and name in p[1]]
        ratios = sorted(t / b for b, t in zip(base, this))
        quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        rows.append({"figure": name, "base": statistics.median(base),
                     "this": statistics.median(this), "ratio": statistics.median(ratios),
                     "low": quarters[0], "high": quarters[2], "pairs": len(ratios)})
    return rows


def show(rows, base):
    wide = max(len(r["figure"]) for r in rows)
    print(f"  {'figure':<{wide}}  {base[:12]:>12}  {'this tree':>12}  {'ratio':>6}  quartiles")
    for r in rows:
        print(f"  {r['figure']:<{wide}}  {r['base']:>12.4g}  {r['this']:>12.4g}  "
              f"{r['ratio']:>6.3f}  {r['low']:.3f} .. {r['high']:.3f}"
              f"{'  more is better' if more_is_better(r['figure']) else ''}")


def main():
    parser = argparse.ArgumentParser(description="Measures this tree beside another commit.")
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=21, help="runs of each, default 21")
    parser.add_argument("--json", metavar="FILE",
                        default=os.path.join(netns.build_dir(), "bench-compare.json"),
                        help="where the figures are written, default build/bench-compare.json")
    args = parser.parse_args()
    if not args.base:
        parser.error("say which commit: make bench-compare BASE=HEAD~1")
    if args.pairs < 1:
        parser.error("--pairs must be at least 1")
    reason = netns.why_not()
    if reason:
        print(f"bench-compare: {reason}", file=sys.stderr)
        return 1
    try:
        load = os.getloadavg()[0]       # before the build, which is load, too
        if load > QUIET:
            note(f"this machine is busy (load average {load:.1f}): ratios will scatter")
        base = prepare(args.base)
        pairs, start = [], time.monotonic()
        sides = ((base, os.path.join(base, "build")), (TREE, netns.build_dir()))
        for k in range(args.pairs):
            order = (0, 1) if k % 2 == 0 else (1, 0)
            found = [None, None]
            for side in order:
                found[side] = measure(*sides[side])
            pairs.append(tuple(found))
            spent = time.monotonic() - start
            note(f"pair {k + 1} of {args.pairs}, {spent:.0f} s, "
                 f"about {spent / (k + 1) * (args.pairs - k - 1):.0f} s to go")
    except Failure as error:
        print(f"bench-compare: {error}", file=sys.stderr)
        return 1
    rows = summary(pairs)
    show(rows, args.base)
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump({"base": args.base, "pairs": args.pairs, "figures": rows, "load_at_start": load,
                   "seconds": time.monotonic() - start}, f, indent=2)
        f.write("\n")
    print(f"  Written to {os.path.relpath(args.json)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
