# SPDX-License-Identifier: GPL-2.0
"""Training with fewer and fewer bits per coordinate, beside Gloo and PowerSGD: the models' quality
over seeds, and the time on links of 1 Gb/s, in network namespaces. Each training is written to the
CSV file when it ends, and is not repeated if the file has it.
"""
import argparse
import importlib
import itertools
import math
import os
import statistics

import netns
from bench import chart
from demo_stage import DemoError, stage
from demos.sparse import step_ms
from experiments import pairs
from experiments.rate_plans import FP32, PLANS, POWERSGD, WAYS
from experiments.report import Column, ExperimentError, Kept, Telling

TITLE = "Training with few bits, four workers"
RATE = "1gbit"
WORKERS, SEEDS = 4, 5
TIMED = 40              # steps that are timed, on links of RATE
LAST = 4                # last measurements of a model, whose mean is its quality
QUICK_PLANS, QUICK_WAYS, QUICK_PART = ("perceptron", "convolutions"), (FP32, "fixed 4 + 8", "rate 4",
                                                                      POWERSGD), 4
PATIENCE = 300          # seconds
TRAINING, STEP, LEFT_OUT = "training", "step", "left out"

# A training: quality, last quality, bits, and with a rate skipped blocks and expected error; a
# "step": its time; "left out": the reason.
COLUMNS = [Column(key, key) for key in (
    "kind", "task", "way", "seed", "steps", "parameters", "sha256", "quality", "final", "reached",
    "up", "down", "skipped", "predicted", "step_ms", "load", "why")]
KEYS = ("kind", "task", "way", "seed", "steps", "parameters", "sha256")


class _Trainer:
    """Trains one task and keeps the rows; a kept row is measured again only with options.all."""

    def __init__(self, name, plan, options, kept, progress):
        self.name, self.plan, self.kept, self._progress = name, plan, kept, progress
        self.steps = plan.steps // (QUICK_PART if options.quick else 1)
        self.anew = options.all
        self.seeds = range(options.seed, options.seed + (1 if options.quick else SEEDS))
        progress(f"rate_train: reading the data of {name}")
        self.task = plan.make()
        self.about = {"task": name, "sha256": getattr(self.task, "sha256", "")[:16],
                      "parameters": sum(p.numel() for p in self.task.model().parameters())}

    def rows(self, way):
        """All rows of one way; each row is kept as soon as it is measured."""
        about = {**self.about, "way": way.name}
        trainings = [{**about, "kind": TRAINING, "seed": seed, "steps": self.steps}
                     for seed in self.seeds]
        step = [{**about, "kind": STEP, "steps": TIMED}]
        if why := way.lacking():
            found = [row for row in map(self.kept.get, trainings + step) if row]
            if len(found) <= len(trainings):
                self._progress(f"rate_train: {way.name} is left out: {why}")
                found.append({**about, "kind": LEFT_OUT, "why": why})
            return found
        return self._measured(way, trainings, None) + self._measured(way, step, RATE)

    def _measured(self, way, plans, shape):
        found = [None if self.anew else self.kept.get(plan) for plan in plans]
        if all(found):
            return found
        args = argparse.Namespace(workers=WORKERS, loss=0., software=False)
        with stage(args, job=way.job(), shape=shape) as here:
            return [row or self.kept.put({**plan, **self._train(here, way, plan)})
                    for row, plan in zip(found, plans)]

    def _train(self, here, way, plan):
        """Runs one training; returns its measurements."""
        worker, load = importlib.import_module("rate_worker"), os.getloadavg()[0]
        self.task.seed = plan.get("seed", 0)
        workers, _ = here.train(
            worker.work, {"task": self.task, "run": way.name, "steps": plan["steps"], "by": way.by,
                          "every": self.plan.every if plan["kind"] == TRAINING else 0},
            runs=(way.name,), patience=PATIENCE,
            screen=Telling(self._progress, f"rate_train: {self.name}, seed {self.task.seed}"))
        of = [result[way.name] for result in workers.results]
        what = f"{self.name}, {way.name}, seed {self.task.seed}"
        if len({result["digest"] for result in of}) > 1:
            raise ExperimentError(f"rate_train: {what}: the workers' models differ")
        if any(result.get("stats", {}).get("buckets_fallback") for result in of):
            raise ExperimentError(f"rate_train: {what}: buckets went through Gloo")
        if plan["kind"] == STEP:
            return {"step_ms": step_ms(of), "load": round(load, 1)}
        return {"load": round(load, 1), **self._result(of)}

    def _result(self, of):
        """The measurements from all workers' results."""
        coordinates = of[0]["parameters"] * of[0]["steps"]
        bits = {way: 8 * statistics.mean(result[f"bytes_{way}"] for result in of) / coordinates
                for way in ("up", "down")}
        looks = [*of[0]["qualities"], (of[0]["steps"], of[0]["quality"])]
        chosen = of[0].get("stats", {}).get("chosen") or {}
        return {"skipped": chosen.get("skipped"), "predicted": chosen.get("error"),
                "quality": statistics.mean(quality for _, quality in looks[-LAST:]),
                "final": of[0]["quality"], "reached": self.plan.reached(looks), **bits}


def rows(options, progress):
    reason = netns.why_not()
    if reason:
        raise ExperimentError(f"rate_train: {reason}")
    kept = Kept(os.path.join(options.folder, "rate_train.csv"), COLUMNS, KEYS)
    ways = [way for way in WAYS if not options.quick or way.name in QUICK_WAYS]
    found = []
    no_data = importlib.import_module("tasks.task").TaskError
    try:
        with netns.guard():
            netns.sweep()
            for name in QUICK_PLANS if options.quick else PLANS:
                trainer = _Trainer(name, PLANS[name], options, kept, progress)
                for way in ways:
                    found += trainer.rows(way)
    except (DemoError, netns.NetnsError, no_data) as error:
        raise ExperimentError(f"rate_train: {error}") from None
    return found


def _mean(values):
    """The mean, or None if a value is None."""
    return None if None in values else statistics.mean(values)


def _deviation(values):
    return statistics.stdev(values) if len(values) > 1 else 0


def settings(found):
    """A row per trained task and way: means over seeds, and comparisons with Gloo fp32."""
    out = []
    for task, plan in PLANS.items():
        beside = None
        for way in WAYS:
            of = [row for row in found if (row["task"], row["way"]) == (task, way.name)]
            row = _over_seeds(of)
            if not row:
                continue
            beside = beside or row
            out.append({"task": task, "way": way.name, **row, **_beside(row, beside, plan)})
    return out


def _over_seeds(of):
    """One row over all seeds of a task and a way; {}: no training."""
    trained = [row for row in of if row["kind"] == TRAINING]
    if not trained:
        return {}
    by_seed = {row["seed"]: row["quality"] for row in trained}
    row = {"seeds": len(trained), "by_seed": by_seed,
           "quality": statistics.mean(by_seed.values()),
           "deviation": _deviation(by_seed.values()),
           "reached": _mean([row["reached"] for row in trained]),
           "step_ms": next((row["step_ms"] for row in of if row["kind"] == STEP), None),
           "skipped": _mean([row.get("skipped") for row in trained]),
           **{key: statistics.mean(row[key] for row in trained) for key in ("up", "down")}}
    if row["reached"] and row["step_ms"]:
        row["seconds"] = row["reached"] * row["step_ms"] / 1000
    return row


def _beside(row, fp32, plan):
    """worse: mean loss of quality against fp32, in pairs with equal seeds; noise, chance: see
    pairs.Difference; spread: two standard errors of the difference of unpaired means
    """
    apart = [plan.worse(row["by_seed"][seed], quality)
             for seed, quality in fp32["by_seed"].items() if seed in row["by_seed"]]
    out = {"worse": _mean(apart or [None]),
           "fewer": (fp32["up"] + fp32["down"]) / (row["up"] + row["down"])}
    if row is not fp32 and len(apart) > 1:
        of = pairs.difference(apart)
        errors = [each["deviation"] / math.sqrt(each["seeds"]) for each in (row, fp32)]
        out.update({"noise": of.noise, "chance": of.chance, "differs": of.is_real(),
                    "spread": 2 * math.hypot(*errors)})
    if row.get("seconds") and fp32.get("seconds"):
        out["faster"] = fp32["seconds"] / row["seconds"]
    return out


def _named(rows_of):
    """A text of ways, each with its tasks."""
    tasks = {way.name: [row["task"] for row in rows_of if row["way"] == way.name] for way in WAYS}
    return ", ".join(f"{way} ({', '.join(of)})" for way, of in tasks.items() if of) or "nothing"


def _on_all_tasks(compared, good):
    """Names of the ways whose rows are good() on all tasks."""
    tasks = {way.name: {row["task"] for row in compared if row["way"] == way.name and good(row)}
             for way in WAYS}
    return [way for way, of in tasks.items() if of == set(PLANS)]


def _by_spread(compared):
    """Sentences: the ways within the spread between seeds, and the lowest such rate."""
    within = _on_all_tasks(compared, lambda row: row["worse"] <= row["spread"])
    words = [f"Worse than Gloo fp32 by no more than seeds differ, on all tasks: "
             f"{', '.join(within) or 'nothing'}."]
    beyond = [row for row in compared if row["worse"] > row["spread"]]
    if beyond:
        words.append(f"Worse by more than seeds differ: {_named(beyond)}.")
    rates = [way for way in WAYS if way.rate and way.name in {row["way"] for row in compared}]
    # stops at the first rate that is not within the spread: a lower one may be within it by luck
    lowest = list(itertools.takewhile(lambda way: way.name in within, rates))
    if rates:
        words.append("The lowest rate within that, as all higher ones are, is "
                     f"{lowest[-1].rate} bits up and down." if lowest else
                     f"The highest rate, {rates[0].rate} bits up and down, is not within that.")
    return words


def _by_pairs(compared):
    """Sentences: the ways that are significantly worse or better in pairs with equal seeds."""
    worse = [row for row in compared if row["differs"] and row["worse"] > 0]
    better = [row for row in compared if row["differs"] and row["worse"] < 0]
    alike = _on_all_tasks(compared, lambda row: row["worse"] <= row["noise"])
    words = [f"In pairs of one seed, on all tasks no worse than chance has it: "
             f"{', '.join(alike) or 'nothing'}.",
             f"In pairs worse by more than chance: {_named(worse)}."]
    if better:
        words.append(f"In pairs better by more than chance: {_named(better)}.")
    chances = {key: row["chance"] for key, row in enumerate(compared)}
    left = [compared[key] for key in sorted(pairs.together(chances))]
    return [*words, f"Of {len(compared)} comparisons chance makes "
                    f"{pairs.LEVEL * len(compared):.1f} differ as much; judged all together (Holm) "
                    f"are left: {_named(left)}."]


def _verdict(of):
    """The sentences of _by_spread() and _by_pairs()."""
    if any(row["seeds"] < 2 for row in of):
        return "One seed does not tell what is noise."
    compared = [row for row in of if "noise" in row]
    return " ".join(_by_spread(compared) + _by_pairs(compared))


def summary(found):
    words = [_verdict(settings(found))]
    left = {}
    for row in found:
        if row["kind"] == LEFT_OUT:
            left.setdefault(row["why"], {})[row["way"]] = None
    words += [f"Left out: {', '.join(ways)}, since {why}." for why, ways in left.items()]
    loads = [row["load"] for row in found if row["kind"] == STEP]
    if loads:
        words.append(f"The load average before times were taken was {min(loads):g} to "
                     f"{max(loads):g}.")
    return " ".join(words)


def svg(found):
    of = settings(found)
    parts = []
    for task in dict.fromkeys(row["task"] for row in of):
        enough = "more" if PLANS[task].more else "less"
        parts.append((f"{task} ({enough} is better)", [
            (row["way"], row["up"] + row["down"], row["quality"], row["deviation"])
            for row in of if row["task"] == task]))
    return chart.panels("Quality after training by bits, mean and standard deviation of seeds",
                        "bits a coordinate, up + down", parts)


SHOWN = [
    Column("task", "task"), Column("way", "gradients by"), Column("seeds", "seeds"),
    Column("quality", "quality"), Column("deviation", "its deviation"),
    Column("worse", "worse than fp32"), Column("noise", "noise of pairs"),
    Column("spread", "noise between seeds"),
    Column("up", "up", "bits a coordinate", ".2f"), Column("down", "down", "bits a coordinate", ".2f"),
    Column("skipped", "blocks skipped", "", ".2f"),
    Column("fewer", "fp32 bits / bits", "", ".1f"), Column("enough", "to reach"),
    Column("reached", "after", "steps", ".0f"),
    Column("step_ms", "step", "ms", ".0f"), Column("seconds", "time to quality", "s", ".1f"),
    Column("faster", "times as fast", "", ".1f")]


def shown(found):
    """(columns, rows) for people: of all seeds together."""
    def text(row):
        form = PLANS[row["task"]].form
        return {**row, "enough": f"{PLANS[row['task']].enough:g}",
                **{key: format(row[key], form)
                   for key in ("quality", "deviation", "worse", "noise", "spread")
                   if row.get(key) is not None}}

    return SHOWN, [text(row) for row in settings(found)]
