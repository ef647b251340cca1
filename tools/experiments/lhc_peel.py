# SPDX-License-Identifier: GPL-2.0
"""Buckets per item that a sketch of scheme lhc needs so that peeling succeeds, by items of a lane,
beside published values; and the time of adding and peeling.

LHC (arXiv 2402.07529) uses three hashes; four spatially coupled hashes (Walzer, SODA 2021) need
fewer buckets.
"""
import math

import numpy as np

from bench import chart
from experiments import library
from experiments.report import Column

TITLE = "Buckets for peeling, by items of a lane"
HASHES = {3: "three", 4: "four, coupled"}
ITEMS = (100, 300, 1000, 2000, 5000, 10000, 50000)
FACTORS = tuple(round(1.05 + .025 * at, 3) for at in range(19))
# buckets per item, for many items: threshold of three hashes; binary fuse filters (Graf and
# Lemire, 2022)
PUBLISHED = {"three": 1.222, "four, coupled": 1.075}
ENOUGH = .9             # fraction of draws in which peeling must succeed
LANE = 1 << 20          # coordinates of a lane that items are drawn from
MANY, STEP = 700000, .002       # items for the search of the threshold, and its resolution
BUCKET = 6553600        # coordinates of 25 MiB
DENSITIES = (.1, .03, .01, .003, .001)
LANES, LANES_DENSITIES = (1, 4, 16), (.3, .1, .03)
DRAWS_MOST, DRAWS_QUICK = 1000, 300

COLUMNS = [Column("hashes", "hashes"), Column("what", "items of"), Column("items", "items"),
           Column("draws", "draws"), Column("factor", "buckets an item", "", ".3f"),
           Column("whole", "draws that leave nothing", "", ".3f"),
           Column("left", "items left, share", "", ".2g"),
           Column("windows", "windows"), Column("lanes", "lanes"),
           Column("limit", "limit of the windows", "", ".3f"),
           Column("add_ns", "add", "ns an item", ".0f"),
           Column("find_ns", "find the order", "ns an item", ".0f"),
           Column("values_ns", "take values out", "ns an item", ".0f")]


def _root(function, low, high):
    """The zero of a function that is negative below it and positive above, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return high


def limit(hashes, windows):
    """The threshold in buckets per item, above which peeling succeeds as items grow in number.

    One window: an item remains if each of its buckets has another remaining item; the threshold is
    the least load with such an x. Many windows: peeling succeeds up to the load at which each item
    can get a bucket of its own (Walzer, theorem 1); segments at the ends hold fewer.
    """
    def load(x):
        return x / (hashes * (1 - math.exp(-x)) ** (hashes - 1))

    if windows == 1:
        return 1 / min(load(at / 1e4) for at in range(1, 50000))
    x = _root(lambda x: x * math.expm1(x) / (math.expm1(x) - x) - hashes, .1, 10)
    return (windows + hashes - 1) / (windows * load(x))


def _row(what, hashes, items, draws, seed, count=LANE, buckets=0, lanes=1):
    left, out = library.sketches(hashes, count, items, draws, seed, buckets, lanes)
    return {"hashes": HASHES[hashes], "what": what, "items": items, "factor": out.cells / items,
            "draws": draws, "whole": float(np.mean(left == 0)),
            "left": float(np.mean(left)) / items, "windows": out.windows, "lanes": out.lanes,
            "limit": limit(hashes, out.windows),
            "add_ns": out.add_ns, "find_ns": out.find_ns, "values_ns": out.values_ns}


def _draws(options, items):
    most, of_all = (DRAWS_QUICK, 300000) if options.quick else (DRAWS_MOST, 4000000)
    return max(10, min(most, of_all // items))


def _threshold(hashes, seed, draws):
    """The row of the least factor at which peeling of MANY items succeeds in half of the draws."""
    low, high, found = 1., 1.4, None
    while high - low > STEP or not found:
        factor = (low + high) / 2
        row = _row("many", hashes, MANY, draws, seed, buckets=math.ceil(factor * MANY))
        if row["whole"] < .5:
            low = factor
        else:
            high, found = factor, row
    return found


def rows(options, progress):
    found = []
    for hashes in HASHES:
        for items in ITEMS:
            progress(f"lhc_peel: {hashes} hashes, {items} items")
            draws, seed = _draws(options, items), options.seed + items
            buckets = library.sketch_buckets(hashes, items)
            found.append(_row("chosen", hashes, items, draws, seed, buckets=buckets))
            for factor in FACTORS[::3 if options.quick else 1]:
                found.append(_row("tried", hashes, items, draws, seed,
                                  buckets=math.ceil(factor * items)))
        progress(f"lhc_peel: {hashes} hashes, the limit")
        found.append(_threshold(hashes, options.seed, 3 if options.quick else 9))
        for density in DENSITIES[::2] if options.quick else DENSITIES:
            progress(f"lhc_peel: {hashes} hashes, a bucket, density {density:g}")
            items = round(BUCKET * density)
            found.append(_row("bucket", hashes, items,
                              max(5 if options.quick else 40, _draws(options, items)),
                              options.seed, count=BUCKET))
    for density in LANES_DENSITIES:
        for lanes in LANES:
            progress(f"lhc_peel: {lanes} lanes, density {density:g}")
            items = round(LANE * density)
            each = items // lanes
            buckets = library.sketch_buckets(3, each + 3 * math.isqrt(each))
            found.append(_row("lanes", 3, items, 5 if options.quick else 40, options.seed,
                              buckets=buckets, lanes=lanes))
    return found


# --- what is shown ----------------------------------------------------------
def of(found, what):
    return [row for row in found if row["what"] == what]


def least(found, chosen):
    """The least tried factor with ENOUGH successful draws, for the items of a chosen row."""
    return min((row["factor"] for row in of(found, "tried") if row["whole"] >= ENOUGH and
                (row["hashes"], row["items"]) == (chosen["hashes"], chosen["items"])), default=None)


def summary(found):
    whole = [row["whole"] for row in of(found, "chosen")]
    many = " and ".join(f"{row['factor']:.3f} ({row['hashes']}; {PUBLISHED[row['hashes']]} "
                        f"published)" for row in of(found, "many"))
    return (f"libthc's choice leaves nothing in {100 * min(whole):.0f} to {100 * max(whole):.0f} % of "
            f"draws. Half of the draws of {MANY} items leave nothing with {many} buckets an item.")


def svg(found):
    series = []
    for hashes in HASHES.values():
        for items in (100, 1000, 10000, 50000):
            points = [(100 * row["factor"], row["left"]) for row in of(found, "tried")
                      if (row["hashes"], row["items"]) == (hashes, items) and row["left"]]
            series += [(f"{items} items, {hashes}", points, True)] if points else []
    return chart.curves("Items that peeling leaves", ("buckets for 100 items",
                                                      "items left, share of all"), series)


def shown(found):
    """(columns, rows) for people; the CSV also has what was tried."""
    words = {"chosen": "a lane", "many": "a lane, half peel", "bucket": "25 MiB",
             "lanes": "a part"}
    # with few items among many coordinates, the search for items dominates the times
    times = {"add_ns": None, "find_ns": None, "values_ns": None}
    lines = [{**row, **({} if row["what"] in ("bucket", "lanes") else times), "what": words[row["what"]], "least": least(found, row),
              "published": PUBLISHED[row["hashes"]] if row["what"] == "many" else None}
             for row in found if row["what"] in words]
    return COLUMNS[:5] + [Column("least", "least tried for nine of ten", "", ".3f"),
                          Column("published", "published", "", ".3f")] + COLUMNS[5:], lines
