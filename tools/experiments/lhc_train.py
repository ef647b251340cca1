# SPDX-License-Identifier: GPL-2.0
"""Training with sparse gradients: the tasks of the demo by scheme lhc and by Gloo, which sends
whole embeddings or rows, on links of 1 Gb/s between network namespaces.
"""
import argparse
import os

import netns
from bench import chart, model
from demos import sparse
from experiments.report import Column, ExperimentError, Telling, rounded_up
from demo_stage import DemoError

TITLE = "Training with sparse gradients, links of 1 Gb/s"
RATE = "1gbit"
QUICK_STEPS = 6
# (task, workers, gradients of embeddings, precision)
CASES = (("ncf", 4, "rows", "exact"), ("ncf", 4, "dense", "fixed32"),
         ("lm", 4, "rows", "exact"), ("lm", 4, "dense", "fixed32"),
         ("ncf", 2, "rows", "exact"), ("lm", 2, "rows", "exact"))
PAPER = 3.74            # speed-up of a step in LHC (arXiv 2402.07529)
DIGITS = {"exact": 2, "fixed32": 1}     # 32-bit numbers per value; exact: as a rule
TOLERANCE = .1          # relative, of bytes against their closed form
PATIENCE = 300          # seconds

COLUMNS = [
    Column("task", "task"), Column("workers", "workers"), Column("gradients", "embeddings' gradients"),
    Column("precision", "precision"), Column("steps", "steps"),
    Column("lhc_quality", "quality: lhc", "", ".4g"), Column("fp32_quality", "Gloo fp32", "", ".4g"),
    Column("equal", "bit-equal"),
    Column("lhc_ms", "step: lhc", "ms", ".0f"), Column("fp32_ms", "Gloo fp32", "ms", ".0f"),
    Column("rows_ms", "Gloo rows", "ms", ".0f"),
    Column("faster", "Gloo fp32 / lhc", "", ".2f"),
    Column("own", "values not zero, a rank's", "%", ".2f"),
    Column("union", "the mean's", "%", ".2f"),
    Column("lhc_bytes", "sent: lhc", "MB", ".2f"), Column("closed_form", "closed form", "MB", ".2f"),
    Column("fp32_bytes", "Gloo fp32", "MB", ".1f"), Column("rows_bytes", "Gloo rows", "MB", ".2f"),
    Column("fewer", "fp32 / lhc", "", ".1f"), Column("load", "load average"), Column("sha256", "data")]


def closed_form(density, parameters, digits):
    """Bytes that a worker sends in a step, with headers: the rows of the mean, all parameters that
    are no embeddings, and an index of two levels, whose words do not span rows.

    density: {name: {"rows":, "width":, "union":}}
    """
    values, index, dense = 0, 0, parameters
    for of in density.values():
        count = of["rows"] * of["width"]
        values += of["union"] * count
        index += count / 32 * (1 / 32 + of["union"])
        dense -= count
    return model.framed(4 * (digits * (values + dense) + index))


def weighted(density, which):
    """The percentage of all embeddings' values that are not zero."""
    counts = {name: of["rows"] * of["width"] for name, of in density.items()}
    return 100 * sum(density[name][which] * n for name, n in counts.items()) / sum(counts.values())


def row(case, r, load):
    """A row from demo.json's content."""
    task, workers, gradients, precision = case
    lhc, fp32 = r["runs"][sparse.LHC], r["runs"][sparse.FP32]
    rows = r["runs"].get(sparse.ROWS)
    form = closed_form(r["density"], r["parameters"], DIGITS[precision])
    return {"task": task, "workers": workers, "gradients": gradients, "precision": precision,
            "steps": r["steps"], "lhc_quality": lhc["quality"], "fp32_quality": fp32["quality"],
            "equal": {True: "yes", False: "no", None: None}[r["bit_equal"]],
            "lhc_ms": lhc["step_ms"], "fp32_ms": fp32["step_ms"],
            "rows_ms": rows and rows["step_ms"], "faster": fp32["step_ms"] / lhc["step_ms"],
            "own": weighted(r["density"], "own"), "union": weighted(r["density"], "union"),
            "lhc_bytes": lhc["bytes_up_per_step"] / 1e6, "closed_form": form / 1e6,
            "fp32_bytes": fp32["bytes_up_per_step"] / 1e6,
            "rows_bytes": rows and rows["bytes_up_per_step"] / 1e6,
            "fewer": r["fp32_bytes_per_step"] / lhc["bytes_up_per_step"],
            "load": round(load, 1), "sha256": r["sha256"][:16]}


def trained(case, task, options, progress):
    name, workers, gradients, precision = case
    args = argparse.Namespace(
        task=name, workers=workers, steps=QUICK_STEPS if options.quick else task.STEPS,
        dense_embeddings=gradients == "dense", precision=precision, links=RATE, loss=0.,
        software=False, transport="auto", patience=PATIENCE)
    load = os.getloadavg()[0]
    what = f"{name}, {workers} workers, {gradients}, {precision}"
    r = sparse.train(args, Telling(progress, f"lhc_train: {what}"), task)
    wrong = sparse.faults(r, args)
    if wrong:
        raise ExperimentError(f"{what}: {'; '.join(wrong)}")
    return row(case, r, load)


def rows(options, progress):
    """A row per case. options.seed is not used: each task has its own seed."""
    reason = netns.why_not()
    if reason:
        raise ExperimentError(f"lhc_train: {reason}")
    tasks = {}
    try:
        with netns.guard():
            netns.sweep()
            for name in {case[0]: None for case in CASES}:
                progress(f"lhc_train: reading the data of {name}")
                tasks[name] = sparse.load(name)
            return [trained(case, tasks[case[0]], options, progress) for case in CASES]
    except (DemoError, netns.NetnsError) as error:
        raise ExperimentError(f"lhc_train: {error}") from None


def worst(found):
    """The largest distance of bytes from their closed form, as a fraction."""
    return max(abs(of["lhc_bytes"] / of["closed_form"] - 1) for of in found)


def summary(found):
    exact = {of["task"]: of["faster"] for of in found
             if (of["workers"], of["precision"]) == (4, "exact")}
    loads = [of["load"] for of in found]
    return (f"Four workers' steps with exact means are {exact['ncf']:.2f} times (ncf) and "
            f"{exact['lm']:.2f} times (lm) as fast as by Gloo fp32; LHC's paper has {PAPER:g}. "
            f"Bytes are within {rounded_up(100 * worst(found), 1)} % of their closed form; "
            f"{100 * TOLERANCE:g} % are allowed. The load average before each training was "
            f"{min(loads):g} to {max(loads):g}.")


def svg(found):
    systems = (("lhc_ms", "thc", "lhc"), ("fp32_ms", "gloo_fp32", "Gloo fp32"),
               ("rows_ms", "gloo_fp16", "Gloo rows"))
    groups = [(f"{of['task']}, {of['workers']} workers, {of['gradients']}, {of['precision']}",
               [(colour, name, of[key]) for key, colour, name in systems if of[key] is not None])
              for of in found]
    return chart.bars("Time of a training step at 1 Gb/s", groups)


def shown(found):
    """(columns, rows) for people; the CSV has the hashes of the data and the load, too."""
    return [c for c in COLUMNS if c.key not in ("sha256", "load")], found
