#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make bench`: the costs that the project promises, as ratios to a reference in
the same run: XDP beside a bare loop, the codec beside memcpy, the all-reduce of a
25 MiB bucket by four workers in namespaces beside Gloo. Prints a table, writes
build/bench.json and build/bench.svg. bench_xdp.c, bench_codec.c, bench_fixed.c,
bench_sparse.c, buckets.py and bench_simd.c (no promise, in bench.json only) measure.
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
from buckets import BUCKET_BYTES, QUIET, SYSTEMS, measure  # noqa: E402
from chart import bars  # noqa: E402

WORKERS = 4
RATE = "1gbit"
PAIRS = 21      # rounds of all-reduces with each seal
# The project's promises: (path in bench.json, comparison, limit, words).
PROMISES = [
    ("xdp.lut_ratio", "<=", 1.7, "XDP program beside bare accumulate, LUT"),
    ("xdp.linear_ratio", "<=", 1.7, "XDP program beside bare accumulate, linear"),
    ("xdp.add32_above_bare_ns", "<=", 40, "XDP program, scheme none, ns above bare adds"),
    *[(f"xdp.seal_nh_beside_sum.{packet}_ns", "<=", limit,
       "XDP, ns of the seal nh above a sum, {}, {} bytes".format(*packet.split("_")))
      for packet, limit in (("received_512", 50), ("received_1024", 65), ("sent_1024", 65))],
    *[(f"xdp.classes.{row}.ratio", "<=", limit,
       "XDP, 1024 coordinates of ({}, {}) beside (4, 8)".format(*row.split("_")))
      for rows, limit in (("1_4 2_4 3_8", 1), ("5_8 6_8", 1.5), ("3_16 4_16 5_16 6_16", 2.5))
      for row in rows.split()],
    ("codec.compress_ratio", ">=", 0.25, "compress beside memcpy"),
    ("codec.compress_ef_ratio", ">=", 0.15, "compress with error feedback beside memcpy"),
    ("codec.rated_ratio", "<=", 1.1, "compress with a rate of as many bits beside without"),
    ("codec.rated_ef_ratio", "<=", 1.1, "the same with error feedback"),
    ("codec.decompress_ratio", ">=", 0.35, "decompress beside memcpy"),
    ("fixed.fixed32_ratio", "<=", 1.5, "scheme none, 32 bits: to lanes, beside memcpy"),
    ("fixed.from_fixed32_ratio", "<=", 1.5, "scheme none, 32 bits: to means, beside memcpy"),
    ("fixed.exact_ratio", "<=", 3.0, "scheme none, exact, 2 digits: to lanes, beside memcpy"),
    ("fixed.from_exact_ratio", "<=", 3.0, "scheme none, exact, 2 digits: to means, beside memcpy"),
    ("sparse.of_10000_100.analyse_speed", ">=", 1.5, "scheme lhc, 1 %: to bits, beside memcpy"),
    ("sparse.of_10000_100.pack_speed", ">=", 1.0, "scheme lhc, 1 %: to lanes, beside memcpy"),
    ("sparse.of_10000_100.unpack_speed", ">=", 0.6, "scheme lhc, 1 %: to means, beside memcpy"),
    ("allreduce.shaped.speedup_fp32", ">=", 2.2, "THC beside Gloo fp32 at 1 Gb/s per link"),
    ("allreduce.shaped.sealed", "<=", 1.03, "an all-reduce at 1 Gb/s with the seal beside without"),
    ("allreduce.unshaped.sealed", "<=", 1.03, "the same, links without a limit"),
    ("memory.client_over_bucket", "<=", 2.0, "client memory beside the bucket"),
]


def note(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def program(name, quick, *options):
    """Runs build/bench/name, returns its JSON."""
    path = os.path.join(netns.build_dir(), "bench", name)
    if not os.path.exists(path):
        raise netns.NetnsError(f"{path} is missing: run `make benches`")
    note(f"{name}")
    if quick:
        options += ("--quick",)
    done = subprocess.run([path, *options], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise netns.NetnsError(f"{name} failed with status {done.returncode}")
    return json.loads(done.stdout)


def allreduce(shape, repeats):
    """(times, clients' memory, aggregator's counters) of a 25 MiB bucket by all systems."""
    note(f"all-reduce of 25 MiB, {WORKERS} workers, {shape or 'unshaped'}")
    times, memory, stats = measure(WORKERS, shape, repeats)
    return times[BUCKET_BYTES], memory, stats


def sealed(shape, pairs):
    """The time of an all-reduce with the seal nh relative to none and to sum, medians of pairs."""
    note(f"the seal: {pairs} all-reduces with nh, none and sum in turns, {shape or 'unshaped'}")
    times = {"thc": [], "thc_unsealed": [], "thc_summed": []}

    def take(_bytes, repeat, system, seconds):
        if repeat:      # the first one warms up
            times[system].append(seconds)

    measure(WORKERS, shape, pairs, systems=tuple(times), progress=take)
    return {key: statistics.median(a / b for a, b in zip(times["thc"], times[other]))
            for key, other in (("sealed", "thc_unsealed"), ("sealed_beside_sum", "thc_summed"))}


def lookup(results, path):
    for part in path.split("."):
        results = results.get(part, {}) if isinstance(results, dict) else {}
    return results if isinstance(results, (int, float)) else None


def rows_of(results):
    """(what, value, unit, promise) for the table."""
    xdp, codec, rows = results["xdp"], results["codec"], []
    for name in ("lut", "linear"):
        rows.append((f"XDP {name}: bare accumulate", f"{xdp[name + '_bare_ns']:.0f}", "ns/packet"))
        rows.append((f"XDP {name}: complete program", f"{xdp[name + '_full_ns']:.0f}", "ns/packet"))
    for seal, other, key in (("sum", "none", "seal_sum"), ("nh", "none", "seal_nh"),
                             ("nh", "sum", "seal_nh_beside_sum")):
        for way, size in (("received", 512), ("received", 1024), ("sent", 1024)):
            rows.append((f"XDP, seal {seal} beside {other}: {way}, {size} bytes",
                         f"{xdp[key][f'{way}_{size}_ns']:.0f}", "ns/packet"))
    for name, words in (("memcpy", f"memcpy of {codec['mib']} MiB"), ("compress", "compress"),
                        ("compress_ef", "compress with error feedback"),
                        ("decompress", "decompress")):
        rows.append((f"{words} ({codec['simd']})", f"{codec[name + '_ms']:.2f}", "ms"))
    for name, words in (("fixed8", "fixed point, 8 bits"), ("fixed16", "fixed point, 16 bits"),
                        ("fixed32", "fixed point, 32 bits"), ("exact", "exact, 2 digits")):
        for way, direction in (("", "to lanes"), ("from_", "to means")):
            rows.append((f"scheme none, {words}: {direction}",
                         f"{results['fixed'][f'{way}{name}_ms']:.2f}", "ms"))
    for density, words in ((1000, "10 %"), (100, "1 %"), (10, "0.1 %")):
        of = results["sparse"][f"of_10000_{density}"]
        for name, direction in (("analyse", "to bits"), ("pack", "to lanes"),
                                ("unpack", "to means")):
            rows.append((f"scheme lhc, {words} not zero, 32 bits: {direction}",
                         f"{of[name + '_ms']:.2f}", "ms"))
    for kind, words in (("unshaped", "unshaped"), ("shaped", "1 Gb/s per link")):
        part = results["allreduce"][kind]
        for system, name in SYSTEMS.items():
            rows.append((f"25 MiB, {words}: {name}", f"{part[system + '_ms']:.1f}", "ms"))
        for base in ("fp32", "fp16"):
            rows.append((f"25 MiB, {words}: THC beside Gloo {base}",
                         f"{part['speedup_' + base]:.2f}", "x as fast"))
        rows.append((f"25 MiB, {words}: THC sealed by nh beside by sum",
                     f"{part['sealed_beside_sum']:.3f}", "x the time"))
    for name, words in (("aggregator", "aggregator memory, bounded by slots"),
                        ("client", "client memory beside buffers and errors, peak")):
        rows.append((words, f"{results['memory'][name] / 2**20:.2f}", "MiB"))
    return rows


def promises(results):
    """(words, value, comparison, limit, kept)"""
    out = []
    for path, comparison, limit, words in PROMISES:
        value = lookup(results, path)
        kept = value is not None and (value <= limit if comparison == "<=" else value >= limit)
        out.append((words, value, comparison, limit, kept))
    return out


def print_table(results):
    rows = rows_of(results)
    wide = max(len(r[0]) for r in rows)
    for what, value, unit in rows:
        print(f"  {what:<{wide}}  {value:>9} {unit}")
    print()
    for words, value, comparison, limit, kept in promises(results):
        value = "-" if value is None else f"{value:.3f}"
        print(f"  {words:<{wide}}  {value:>9} wanted {comparison} {limit:g}: "
              f"{'kept' if kept else 'MISSED'}")


def svg(results):
    """All-reduce times, one group per kind of link."""
    def rows(part):
        return [(system, name, part[f"{system}_ms"]) for system, name in SYSTEMS.items()]

    return bars(f"All-reduce of a 25 MiB fp32 bucket, {WORKERS} workers",
                [("unshaped links", rows(results["allreduce"]["unshaped"])),
                 ("1 Gb/s per link", rows(results["allreduce"]["shaped"]))])


def parse(argv):
    parser = argparse.ArgumentParser(description="Measures what the project promises.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, less certain medians")
    parser.add_argument("--output", metavar="DIR", default=netns.build_dir(),
                        help="where bench.json and bench.svg are written, default build/")
    parser.add_argument("--repeats", type=int, help="of each all-reduce; default 15, quick 5")
    args = parser.parse_args(argv)
    if args.repeats is None:
        args.repeats = 5 if args.quick else 15
    if args.repeats < 1:
        parser.error("--repeats is at least 1")
    args.pairs = min(3, args.repeats) if args.quick else PAIRS
    return args


def main():
    args = parse(sys.argv[1:])
    try:
        netns.open_folder(args.output)
    except netns.NetnsError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    reason = netns.why_not()
    if reason:
        print(f"bench: {reason}", file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    if load > QUIET:
        note(f"this machine is busy (load average {load:.1f}): what needs the CPU, THC before all, "
             f"will look worse than it is")
    start = time.monotonic()
    try:
        with netns.guard():
            netns.sweep()
            results = {"codec": program("bench_codec", args.quick),
                       "fixed": program("bench_fixed", args.quick),
                       "sparse": program("bench_sparse", args.quick),
                       "xdp": program("bench_xdp", args.quick, "--json"),
                       "simd": program("bench_simd", args.quick), "allreduce": {}}
            unshaped, memory, stats = allreduce(None, args.repeats)
            shaped, _, _ = allreduce(RATE, args.repeats)
            unshaped.update(sealed(None, args.pairs))
            shaped.update(sealed(RATE, args.pairs))
    except netns.NetnsError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    results["allreduce"] = {"workers": WORKERS, "bucket_bytes": BUCKET_BYTES, "rate": RATE,
                            "unshaped": unshaped, "shaped": shaped}
    results["memory"] = {"aggregator": stats["slot_bytes"],
                         "client": max(m["thc"] for m in memory),
                         "client_over_bucket": max(m["thc"] for m in memory) / BUCKET_BYTES}
    results["promises"] = [dict(zip(("what", "value", "comparison", "limit", "kept"), p))
                           for p in promises(results)]
    results["seconds"] = time.monotonic() - start
    results["load_at_start"] = load
    print_table(results)
    for name, text in (("bench.json", json.dumps(results, indent=2) + "\n"),
                       ("bench.svg", svg(results))):
        path = os.path.join(args.output, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        print(f"  Written to {os.path.relpath(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
