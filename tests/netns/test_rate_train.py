#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The experiment rate_train, in a few steps: training by Gloo, through a job and by PowerSGD sends
as many bytes as it should, ranks agree, and a finished training is not repeated.
"""
import argparse
import functools
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from experiments import rate_plans, rate_train, report, run  # noqa: E402

HIDDEN, STEPS = 256, 8
# (inputs, outputs) of linear layers with biases
LAYERS = ((64, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 10))
PARAMETERS = sum(rows * columns + columns for rows, columns in LAYERS)
RING = 2 * 3 / 4        # bytes that a rank of a ring of four sends per byte of a bucket


def low_rank():
    """The number of floats that PowerSGD of rank two sums."""
    return sum(2 * (rows + columns) + columns for rows, columns in LAYERS)


def small():
    return argparse.Namespace(folder=tempfile.mkdtemp(dir=FOLDER.name), quick=True, all=False,
                              seed=1)


def plan(**more):
    """The plan of a small perceptron."""
    plan = rate_plans.PLANS["perceptron"]
    make = functools.partial(rate_plans.task_of, "digits", "Digits", HIDDEN)
    return plan._replace(**{"make": make, "steps": STEPS * rate_train.QUICK_PART, **more})


def trainer(options, **more):
    kept = report.Kept(os.path.join(options.folder, "rate_train.csv"), rate_train.COLUMNS,
                       rate_train.KEYS)
    return rate_train._Trainer("perceptron", plan(**more), options, kept, lambda text: None)


def way(name):
    return next(way for way in rate_plans.WAYS if way.name == name)


def row_of(name, options):
    """The row of a training in the CSV file. Checks the row of its step's time, too."""
    trained, step = trainer(options).rows(way(name))
    print(f"# {name}: {trained}, {step}")
    assert (trained["kind"], step["kind"]) == (rate_train.TRAINING, rate_train.STEP)
    assert (trained["parameters"], trained["steps"]) == (PARAMETERS, STEPS), trained
    assert 0 < trained["quality"] <= 1 and step["step_ms"] > 0
    return trained


def near(got, want, more):
    """Check that got is at least want, and not much more, for headers, the agreement, and requests
    that a busy host sends again.
    """
    assert want <= got <= want * (1 + more), (got, want)


def gloo__sends_floats_in_a_ring():
    row = row_of("Gloo fp32", BY_GROUP)
    for direction in ("up", "down"):
        near(row[direction], 32 * RING, .1)


def job__sends_four_bits_up_and_eight_down():
    row = row_of("fixed 4 + 8", small())
    near(row["up"], 4, .6)
    near(row["down"], 8, .6)


def rate__sends_as_few_as_it_says():
    row = row_of("rate 4", small())
    # norms come on top; 6 bits would take 7.5
    near(row["up"] + row["down"], 4, .6)
    # 3 and 6 bits would leave out .51 and .05, and predict .24 and .02
    assert .2 < row["skipped"] < .45 and .07 < row["predicted"] < .2, row


def powersgd__sends_its_factors():
    row = row_of("PowerSGD, rank 2", small())
    for direction in ("up", "down"):
        near(row[direction], 32 * RING * low_rank() / PARAMETERS, 1.2)


def what_is_kept__is_not_done_again():
    options, fp32 = BY_GROUP, way("Gloo fp32")
    first = trainer(options).rows(fp32)
    again = trainer(options)
    again._train = None
    assert again.rows(fp32) == first
    # another number of steps is another training
    longer = trainer(options, steps=STEPS * rate_train.QUICK_PART + rate_train.QUICK_PART)
    assert longer.kept.get({**first[0], "steps": longer.steps}) is None
    # with --all, new rows replace all old rows
    anew = trainer(argparse.Namespace(**{**vars(options), "all": True}))
    anew._train = lambda here, way, plan: {"quality": 2., "step_ms": 3.}
    assert [row["quality"] for row in anew.rows(fp32)] == [2, 2]
    assert report.from_csv(run.read(anew.kept.path)) == anew.kept.rows
    assert len(anew.kept.rows) == len(first)


if __name__ == "__main__":
    if run.missing():
        print(f"1..0 # SKIP {run.missing()}")
        sys.exit(4)
    rate_train.TIMED = 6
    FOLDER = tempfile.TemporaryDirectory()
    BY_GROUP = small()      # for both cases that train by Gloo
    tap.main([gloo__sends_floats_in_a_ring, job__sends_four_bits_up_and_eight_down,
              rate__sends_as_few_as_it_says,
              powersgd__sends_its_factors, what_is_kept__is_not_done_again])
