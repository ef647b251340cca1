# SPDX-License-Identifier: GPL-2.0
"""The error of a mean with bits that follow the norms of blocks, by libthc's codecs, on gradients
of models in training. There is no error feedback: a skipped block is lost.
"""
import numpy as np

from bench import chart
from experiments import gradients, library
from experiments.report import Column, rounded_up
from tasks.digits import Convolutions, Digits
from tasks.words import NextWord

TITLE = "Error of a mean whose bits follow the norms of blocks"
WORKERS = 4
FIXED = 4, 8            # bits up and down of a job without a rate
RATES = (12, 10, 8, 6, 4, 3, 2)
SAME = "error of fixed"
STEP = .1               # bits, resolution of the least rate
TASKS = (("perceptron", lambda: Digits(512), (0, 5, 20, 59)),
         ("convolutions", lambda: Convolutions(32), (0, 20)),
         ("words", NextWord, (0, 11, 40)))

COLUMNS = [
    Column("task", "gradients of"), Column("step", "step"), Column("whose", "each rank's"),
    Column("goal", "goal"), Column("bits", "bits up + down", "a coordinate", ".2f"),
    Column("skipped", "blocks left out", "%", ".0f"), Column("nmse", "NMSE", "", ".3g"),
    Column("expected", "expected", "", ".3g"),
    Column("ratio", "measured / expected", "", ".3f"),
    Column("gain", "NMSE, fixed / this", "", ".2f"),
    Column("share", "bits, of fixed", "%", ".0f")]


def expected_of(outcome, mean):
    """The expected NMSE for ranks whose gradients differ, too. It assumes that skipped blocks have
    the ratio of the mean's square to agreed norms that sent blocks have."""
    alike = float(np.square(mean, dtype=np.float64).sum()) / outcome.sent if outcome.sent else 1
    alike = min(alike, 1)
    return (outcome.lost / alike + outcome.skipped) / (outcome.sent + outcome.skipped)


def _row(x, options, fixed, **goal):
    mean, outcome = library.by_rate(x, options.seed, **goal)
    blocks = sum(outcome.blocks)
    _, widths = library.classes(WORKERS)
    bits = sum((k + widths[k]) * n for k, n in enumerate(outcome.blocks)) / blocks
    error, expected = gradients.nmse(mean, x), expected_of(outcome, mean)
    return {"bits": bits, "skipped": 100 * outcome.blocks[0] / blocks, "nmse": error,
            "expected": expected, "ratio": error / expected, "gain": fixed / error,
            "share": 100 * bits / sum(FIXED)}


def _least(x, options, fixed):
    """The row of the least rate with no more error than fixed bits."""
    low, high = 0, sum(FIXED) + 2
    best = _row(x, options, fixed, rate=high)
    while high - low > STEP:
        rate = (low + high) / 2
        row = _row(x, options, fixed, rate=rate)
        if row["nmse"] > fixed:
            low = rate
        else:
            high, best = rate, row
    return best


def _of(x, options):
    """Rows of one set of gradients."""
    bits, width = FIXED
    fixed = gradients.nmse(library.by_table(library.choose(bits, WORKERS, width), width, x,
                                            options.seed, correlated=True), x)
    yield {"goal": f"fixed {bits} + {width}", "bits": float(bits + width), "skipped": 0.,
           "nmse": fixed, "gain": 1., "share": 100.}
    for rate in RATES[::3] if options.quick else RATES:
        yield {"goal": f"{rate} bits", **_row(x, options, fixed, rate=rate)}
    yield {"goal": SAME, **_least(x, options, fixed)}


def rows(options, progress):
    found = []
    for name, make, steps in TASKS[:1] if options.quick else TASKS:
        progress(f"rate_error: training, {name}")
        of = gradients.trained(make(), WORKERS, steps[:2] if options.quick else steps)
        for step, by_worker in of.items():
            own = gradients.joined(by_worker)
            for whose, x in (("equal", np.stack([own[0]] * WORKERS)), ("own", own)):
                progress(f"rate_error: {name}, step {step}, {whose} gradients")
                found += [{"task": name, "step": step, "whose": whose, **row}
                          for row in _of(x, options)]
    return found


def with_goal(found, goal, **wanted):
    return [row for row in found if row["goal"] == goal and
            all(row[key] == value for key, value in wanted.items())]


def _range(values, form):
    return f"{min(values):{form}} to {max(values):{form}}"


def summary(found):
    same = with_goal(found, f"{sum(FIXED)} bits")
    off = {whose: max(abs(row["ratio"] - 1) for row in found
                      if row["whose"] == whose and row.get("ratio"))
           for whose in ("equal", "own")}
    shares = "; ".join(
        f"{task} {_range([row['share'] for row in with_goal(found, SAME, task=task)], '.0f')}"
        for task in dict.fromkeys(row["task"] for row in found))
    return (f"With as many bits as {FIXED[0]} + {FIXED[1]} the error is "
            f"{_range([row['gain'] for row in same], '.1f')} times smaller. The same error takes so many "
            f"of its bits, in %: {shares}. Measured errors are within "
            f"{rounded_up(100 * off['equal'], 0)} % of what is expected of equal gradients, and "
            f"{rounded_up(100 * off['own'], 0)} % of the ranks' own.")


def svg(found):
    last = {task: max(row["step"] for row in found if row["task"] == task)
            for task in dict.fromkeys(row["task"] for row in found)}
    series = []
    for task, step in last.items():
        of = [row for row in found if (row["task"], row["step"], row["whose"]) == (task, step, "own")]
        series.append((f"{task}, step {step}",
                       sorted((row["bits"], row["nmse"]) for row in of
                              if row["goal"].endswith(" bits")), True))
        series.append((f"{task}, fixed", [(row["bits"], row["nmse"]) for row in of
                                          if row["goal"].startswith("fixed")], False))
    return chart.curves("NMSE of a mean by bits, each rank's own gradients",
                        ("bits up and down, a coordinate", "NMSE"), series)


def shown(found):
    """(columns, rows) for people; the CSV also has goals between."""
    goals = (f"fixed {FIXED[0]} + {FIXED[1]}", "12 bits", "6 bits", "3 bits", SAME)
    return COLUMNS, [row for row in found if row["goal"] in goals]
