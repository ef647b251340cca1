# SPDX-License-Identifier: GPL-2.0
"""Tables by libthc's solver beside the published ones.

THC (NSDI'24), section 5.3 and the tables of its released code. The cost is the expected squared
rounding error of a coordinate of unit variance; the solver's tables are optimal.
"""
import time

from bench import chart
from experiments import library
from experiments.report import Column, rounded_up

TITLE = "Tables by the solver beside the published ones"
LIMIT_MS = 5
# bits, granularity, 1 / p, the published levels or None
TABLES = (
    (4, 30, 32, "0 3 5 7 9 11 13 14 16 17 19 21 23 25 27 30"),
    (4, 30, 512, "0 4 7 9 11 12 13 14 16 17 18 19 21 23 26 30"),
    (4, 34, 32, "0 3 6 8 10 12 14 16 18 20 22 24 26 28 31 34"),
    (4, 31, 32, None),
    (3, 16, 32, "0 3 5 7 9 11 13 16"),
    (3, 16, 1024, "0 4 6 7 9 10 12 16"),
    (2, 34, 1024, "0 13 21 34"))

COLUMNS = [
    Column("bits", "b", "bits"), Column("granularity", "g"), Column("p", "p"),
    Column("published", "published levels"), Column("published_cost", "cost", "", ".7f"),
    Column("solved", "solver's levels"), Column("solved_cost", "cost", "", ".7f"),
    Column("less", "less", "%", ".2f"), Column("ms", "time to solve", "ms", ".3f")]


def _milliseconds(call, repeats):
    """The least CPU time of `repeats` calls: CPU time leaves out other programs, the minimum leaves
    out cold caches and a slow clock."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(1000 * (time.process_time() - start))
    return min(times)


def rows(options, progress):
    found = []
    for bits, granularity, share, text in TABLES:
        progress(f"tables: {bits} bits, granularity {granularity}")
        p = 1 / share
        solved = library.solve(bits, granularity, p)
        published = text and library.from_values(bits, granularity, p, list(map(int, text.split())))
        found.append({
            "bits": bits, "granularity": granularity, "p": f"1/{share}", "published": text,
            "published_cost": published.cost if text else None,
            "solved": " ".join(map(str, library.values(solved))), "solved_cost": solved.cost,
            "less": 100 * (1 - solved.cost / published.cost) if text else None,
            "ms": _milliseconds(lambda b=bits, g=granularity, f=p: library.solve(b, g, f),
                                5 if options.quick else 51)})
    return found


def summary(found):
    return (f"The solver takes at most {rounded_up(max(row['ms'] for row in found), 3)} ms a table; "
            f"{LIMIT_MS} ms are allowed.")


def svg(found):
    groups = [(f"b = {row['bits']}, g = {row['granularity']}, p = {row['p']}",
               [("paper", "published", row["published_cost"]),
                ("ours", "solver", row["solved_cost"])])
              for row in found if row["published"]]
    return chart.bars("Squared rounding error of a coordinate of variance 1", groups,
                      label=lambda cost: f"{cost:.6f}")


def shown(found):
    """(columns, rows) for people."""
    return COLUMNS, found
