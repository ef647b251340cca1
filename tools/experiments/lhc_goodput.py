# SPDX-License-Identifier: GPL-2.0
"""Bytes and goodput of scheme lhc by density, beside a closed form and Gloo fp32: 25 MiB, four ranks
with shared or with their own nonzero places, in 32-bit fixed point or exact.

Goodput is 32 d / t as in the released benchmark of LHC (arXiv 2402.07529): d coordinates are
reduced in the time t, however many bits are sent.
"""
import math
import os

import netns
from bench import chart, lhc
from bench.buckets import BUCKET_BYTES, QUIET
from bench.model import ANSWER
from experiments import lhc_index
from experiments.report import Column, ExperimentError, rounded_up

TITLE = "Bytes and goodput of lhc by density"
DENSITIES = (.001, .01, .05, .1, .2, .5)
# nonzero places: shared by all ranks, or each rank's own
CASES = tuple((places, precision) for places in ("same", "own") for precision in ("fixed", "exact"))
REPEATS = 5
RATE, AGGREGATORS = "1gbit", (1, 4)
PAPER = 6.33            # the paper's largest speed-up of throughput over its baseline
BENCHMARK_DENSITY = .05     # of LHC's released benchmark
QUICK = (BENCHMARK_DENSITY,)
TOLERANCE = .1
COUNT = BUCKET_BYTES // 4
_LANES = 256            # 32-bit lanes in a packet
_SCALE_BLOCK = 4096
_BITS = {"fixed": 32, "exact": 0}    # enum thc_precision
_LIMBS = 2              # digits of an exact normal value, 29 bits each for four ranks
_WHOLE = .7             # density of the union above which whole blocks are sent

COLUMNS = [
    Column("density", "not zero", "", "g"), Column("places", "places"),
    Column("precision", "precision"), Column("union", "union", "", ".4f"),
    Column("up", "up", "bits a coordinate", ".3f"),
    Column("down", "down", "bits a coordinate", ".3f"),
    Column("closed_form", "closed form", "", ".3f"), Column("ratio", "measured / it", "", ".3f"),
    Column("bare_form", "without headers and scales", "", ".3f"),
    Column("fewer", "32 bits / measured", "", ".1f"),
    Column("gloo", "Gloo fp32", "bits a coordinate", ".1f"),
    Column("retransmits", "retransmits", "", ".0f"),
    *(column for n in AGGREGATORS for column in (
        Column(f"ms_{n}", f"time, {n} aggr.", "ms", ".0f"),
        Column(f"gloo_ms_{n}", "Gloo fp32", "ms", ".0f"),
        Column(f"faster_{n}", f"times as fast, {n} aggr.", "", ".2f"),
        Column(f"goodput_{n}", f"goodput, {n} aggr.", "Gb/s", ".2f"))),
    Column("load", "load average before", "", ".1f")]


def union_of(density, places):
    """The fraction of coordinates that are not zero on at least one rank."""
    return density if places == "same" else 1 - (1 - density) ** lhc.WORKERS


def levels_of(union):
    """The levels of the index, by protocol.md, if earlier rounds had this density."""
    return 1 if union >= .25 else 2 if union >= .003 else 3


def bare_form(density, places, precision):
    """Bits per coordinate and direction: index and values."""
    union = union_of(density, places)
    return lhc_index.closed_form(union, 1, levels_of(union)) + 32 * _limbs(precision) * union


def _limbs(precision):
    return _LIMBS if precision == "exact" else 1


def closed_form(density, places, precision):
    """bare_form() in whole packets with headers: agreement, scales, each level of the index,
    values; the values are those of whole blocks if the union's density is above _WHOLE."""
    union, limbs = union_of(density, places), _limbs(precision)
    lanes = [COUNT / _SCALE_BLOCK * limbs,
             *(bits * COUNT / 32 for bits in lhc_index.by_level(union, 1, levels_of(union))),
             COUNT * limbs * (1 if union > _WHOLE else union)]
    packets = 1 + sum(math.ceil(of / _LANES) for of in lanes)
    return packets * 8 * ANSWER / COUNT


def _bits(size):
    return 8 * size / COUNT


def repeated(row):
    """Bits per coordinate of retransmitted requests."""
    return row["retransmits"] * _bits(ANSWER)


def _runs(density, cases, *how):
    return lhc.measured(*how[:3], [(places, round(density * 10000), _BITS[precision])
                                   for places, precision in cases], *how[3:])


def by_interfaces(density, cases=CASES):
    """Rows without times, on links without a limit; an idle Impair makes frames count singly."""
    found = []
    for case, run in zip(cases, _runs(density, cases, None, 1, 1, netns.Impair())):
        up, down, ring = (_bits(run[key]) for key in (
            "interface_up", "interface_down", "gloo_fp32_interface_up"))
        form = closed_form(density, *case)
        found.append({"density": density, "places": case[0], "precision": case[1],
                      "union": union_of(density, case[0]), "up": up, "down": down,
                      "closed_form": form, "ratio": max(up, down) / form,
                      "bare_form": bare_form(density, *case), "fewer": 64 / (up + down),
                      "gloo": ring, "retransmits": run["retransmits"]})
    return found


def _times(rows_of, density, aggregators, repeats):
    """Adds times at RATE to the rows of a density."""
    cases = [(row["places"], row["precision"]) for row in rows_of]
    for row, run in zip(rows_of, _runs(density, cases, RATE, aggregators, repeats)):
        row.update({f"ms_{aggregators}": run["ms"], f"gloo_ms_{aggregators}": run["gloo_fp32_ms"],
                    f"faster_{aggregators}": run["gloo_fp32_ms"] / run["ms"],
                    f"goodput_{aggregators}": 32 * COUNT / run["ms"] / 1e6})


def rows(options, progress):
    reason = netns.why_not()
    if reason:
        raise ExperimentError(reason)
    found, load = [], os.getloadavg()[0]
    try:
        with netns.guard():
            for density in QUICK if options.quick else DENSITIES:
                progress(f"lhc_goodput: density {density:g}, bytes")
                rows_of = by_interfaces(density)
                for aggregators in AGGREGATORS:
                    progress(f"lhc_goodput: density {density:g}, {aggregators} aggregators")
                    _times(rows_of, density, aggregators, 1 if options.quick else REPEATS)
                found += rows_of
    except netns.NetnsError as error:
        raise ExperimentError(error) from error
    return [{**row, "load": load} for row in found]


def worst(found):
    """The largest distance from a closed form, as a fraction."""
    return max(abs(row["ratio"] - 1) for row in found)


def summary(found):
    text = (f"Bytes are within {rounded_up(100 * worst(found), 1)} % of their closed form; "
            f"{100 * TOLERANCE:g} % are allowed.")
    for row in found:
        if (row["density"], row["precision"]) == (BENCHMARK_DENSITY, "fixed"):
            text += (f" At {100 * BENCHMARK_DENSITY:g} %, {row['places']} places, fixed point: "
                     f"{row['faster_1']:.2f} and {row['faster_4']:.2f} times as fast as Gloo fp32 by "
                     "one aggregator and by four.")
    text += f" The paper has up to {PAPER:g} with its models, whose densities are not known here."
    if found[0]["load"] > QUIET:
        text += (f" This machine had other work (load average {found[0]['load']:.1f}): what needs the "
                 "CPU, lhc before all, looks worse than it is.")
    return text


def shown(found):
    """(columns, rows) for people; the CSV has all columns."""
    rest = ("union", "bare_form", "gloo", "retransmits", "ms_4", "gloo_ms_4", "load")
    return [c for c in COLUMNS if c.key not in rest], found


def svg(found):
    series = [(f"{places} places, {precision}, {n} aggr.",
               [(row["density"], row[f"faster_{n}"]) for row in found
                if (row["places"], row["precision"]) == (places, precision)], True)
              for places, precision in CASES for n in AGGREGATORS]
    series.append(("LHC's paper, density not said",
                   [(row["density"], PAPER) for row in (found[0], found[-1])], True))
    return chart.curves("lhc at 1 Gb/s, four ranks",
                        ("share of coordinates that are not zero", "times as fast as Gloo fp32"),
                        series, log_x=True)
