#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make figures`: the times that README.md and Documentation/benchmarks.md show.
Measures all-reduces over ranks, link speeds and bucket sizes into
Documentation/figures.json, then draws the tables between the "figures:" marks
of both files, and Documentation/figures.svg. With --draw it measures nothing
and draws what figures.json has.
"""
import argparse
import datetime
import json
import os
import platform
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from buckets import BUCKET_BYTES, QUIET, SYSTEMS, measure  # noqa: E402
from chart import bars  # noqa: E402
from model import ring_ms, speed, thc_ms  # noqa: E402
from page import fill, markdown  # noqa: E402

MEASURED = os.path.join(netns.ROOT, "Documentation/figures.json")
CHART = os.path.join(netns.ROOT, "Documentation/figures.svg")
# Headings of times, in the order of SYSTEMS.
MEASURED_COLUMNS = ["THC 4 + 8", "error feedback", "by norms", "Gloo fp32", "Gloo fp16"]
TEXTS = [os.path.join(netns.ROOT, name) for name in ("README.md", "Documentation/benchmarks.md")]
WORKERS = 4
SMALL_SIZES = (4 << 10, 64 << 10, 1 << 20)
# (ranks, rate of every link, sizes of buckets)
CASES = [(2, "1gbit", (BUCKET_BYTES,)), (WORKERS, "1gbit", (BUCKET_BYTES,)),
         (8, "1gbit", (BUCKET_BYTES,)), (WORKERS, "2500mbit", (BUCKET_BYTES,)),
         (WORKERS, "10gbit", (BUCKET_BYTES,)), (WORKERS, None, (*SMALL_SIZES, BUCKET_BYTES))]
# Rows of the README's table: (ranks, rate of every link, rate of the aggregator's or None).
ROWS = [(2, "1gbit", None), (4, "1gbit", None), (8, "1gbit", None), (16, "1gbit", None),
        (16, "1gbit", "10gbit"), (4, "2500mbit", None), (4, "10gbit", None), (4, None, None)]


def processor():
    with open("/proc/cpuinfo", encoding="ascii") as f:
        return re.search(r"^model name\s*: (.*)$", f.read(), re.M)[1]


def machine():
    """This machine and the date, in one phrase."""
    kernel = ".".join(platform.release().split(".")[:2])
    return (f"{os.cpu_count()} processors of an {processor()}, kernel {kernel}, "
            f"{datetime.date.today()}")


def measure_all(repeats):
    runs, load = [], os.getloadavg()[0]
    if load > QUIET:
        print(f"# this machine is busy (load average {load:.1f}): the tables will say so",
              file=sys.stderr, flush=True)
    for workers, rate, sizes in CASES:
        print(f"# {workers} ranks, {speed(rate)}", file=sys.stderr, flush=True)
        times, _, stats = measure(workers, rate, repeats, sizes=sizes)
        for size in sizes:
            runs.append({"ranks": workers, "rate": rate, "bucket_bytes": size,
                         "xdp_mode": stats["mode"], "repeats": repeats,
                         **{f"{s}_ms": round(times[size][f"{s}_ms"], 3) for s in SYSTEMS}})
    return {"machine": machine(), "load_at_start": load, "runs": runs}


def found(figures, ranks, rate, size=BUCKET_BYTES):
    """The run of this case, {} if it has not been measured."""
    return next((r for r in figures["runs"] if (r["ranks"], r["rate"], r["bucket_bytes"]) ==
                 (ranks, rate, size)), {})


def ms(value):
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def table_of_links(figures):
    """Rows by ranks and link speed: the least times by the links, and the measured times."""
    rows = []
    for ranks, rate, aggregator in ROWS:
        bound = [None] * 3 if not rate else [thc_ms(ranks, BUCKET_BYTES, rate, aggregator),
                                             ring_ms(ranks, BUCKET_BYTES, rate),
                                             ring_ms(ranks, BUCKET_BYTES // 2, rate)]
        run = {} if aggregator else found(figures, ranks, rate)
        times = [run.get(f"{s}_ms") for s in SYSTEMS]
        link = speed(rate) + (f", aggregator's {speed(aggregator)}" if aggregator else "")
        rows.append([str(ranks), link, *map(ms, bound), *map(ms, times), verdict(bound, times)])
    return markdown(["ranks", "links", "links alone: THC 4 + 8", "fp32 ring", "fp16 ring",
                     *MEASURED_COLUMNS, "fp32 / THC"], rows)


def verdict(bound, times):
    """Time of Gloo fp32 / time of THC, measured or else by the links; bold if THC is slower.

    THC's measured time is that of bits by norms, the hook's default.
    """
    thc, fp32 = times[2:4]
    thc, fp32 = (thc, fp32) if thc and fp32 else bound[:2]
    return f"{fp32 / thc:.1f}" if fp32 > thc else f"**{fp32 / thc:.1f}**"


def table_of_sizes(figures):
    """Buckets of several sizes, on links without a limit."""
    rows = []
    for size in (*SMALL_SIZES, BUCKET_BYTES):
        run = found(figures, WORKERS, None, size)
        times = [run.get(f"{s}_ms") for s in SYSTEMS]
        words = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        rows.append([words, *map(ms, times), verdict([1, 1, 1], times)])
    return markdown(["bucket", *MEASURED_COLUMNS, "fp32 / THC"], rows)


def picture(figures):
    groups = []
    for rate in ("1gbit", "2500mbit", "10gbit", None):
        run = found(figures, WORKERS, rate)
        rows = [(s, name, run[f"{s}_ms"]) for s, name in SYSTEMS.items() if run.get(f"{s}_ms")]
        groups.append((f"links of {speed(rate)}" if rate else "links without a limit", rows))
    return bars(f"One all-reduce of a 25 MiB fp32 bucket, {WORKERS} workers", groups)


def ran_on(figures):
    load = figures.get("load_at_start", 0)
    busy = f", beside other work (load average {load:.1f})" if load > QUIET else ""
    return f"Measured on {figures['machine']}{busy}."


DRAWN = {"machine": ran_on, "links": table_of_links, "sizes": table_of_sizes}


def drawn(text, figures):
    """A text with the tables between its marks replaced."""
    return fill(text, "figures", lambda name: DRAWN[name](figures))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--repeats", type=int, default=15, help="of each all-reduce; default 15")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats is at least 1")
    if not args.draw:
        reason = netns.why_not()
        if reason:
            print(f"figures: {reason}", file=sys.stderr)
            return 1
        try:
            with netns.guard():
                netns.sweep()
                figures = measure_all(args.repeats)
        except netns.NetnsError as error:
            print(f"figures: {error}", file=sys.stderr)
            return 1
        with open(MEASURED, "w", encoding="utf-8") as f:
            f.write(json.dumps(figures, indent=1) + "\n")
    with open(MEASURED, encoding="utf-8") as f:
        figures = json.load(f)
    with open(CHART, "w", encoding="utf-8") as f:
        f.write(picture(figures))
    for path in TEXTS:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(drawn(text, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
