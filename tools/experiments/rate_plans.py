# SPDX-License-Identifier: GPL-2.0
"""The tasks of the experiment rate_train, its ways to sum gradients, and whether this build has
them.
"""
import functools
import importlib
import os
import re
import subprocess
from typing import NamedTuple

import netns

RATES = (12, 8, 6, 4, 3, 2)     # bits per coordinate, up plus down
JOB_SEED = 1            # seed of rotations and rounding; each training counts rounds from 0


class Plan(NamedTuple):
    """A task. make: loads it with its data; steps: per training; enough: the quality to reach;
    more: True if a larger quality is better; form: format of a quality
    """
    make: callable
    steps: int
    enough: float
    more: bool
    form: str

    @property
    def every(self):
        """Steps between measurements of the quality."""
        return max(1, self.steps // 20)

    def reached(self, qualities):
        """The first step of [(step, quality)] that is good enough, or None."""
        return next((step for step, quality in qualities
                     if (quality >= self.enough if self.more else quality <= self.enough)), None)

    def worse(self, quality, other):
        """How much worse quality is than other; negative: better."""
        return other - quality if self.more else quality - other


def task_of(module, kind, *arguments, **more):
    return getattr(importlib.import_module(f"tasks.{module}"), kind)(*arguments, **more)


PLANS = {
    "perceptron": Plan(functools.partial(task_of, "digits", "Digits", 512), 120, .95, True, ".4f"),
    "convolutions": Plan(functools.partial(task_of, "digits", "Convolutions", 64), 200, .96, True,
                         ".4f"),
    "next word": Plan(functools.partial(task_of, "words", "NextWord"), 150, 36, False, ".2f"),
    "packages": Plan(functools.partial(task_of, "ncf", "Packages", width=16), 80, .69, True, ".4f"),
}


class Way(NamedTuple):
    """A way to sum gradients. by: its name in rate_worker.py; rate: the job's, 0: fixed"""
    name: str
    by: str
    rate: int = 0

    def job(self):
        """More keys of the job. Its seed is set, because the default depends on the secret key."""
        return {"rate": self.rate or "fixed", "seed": JOB_SEED}

    def lacking(self):
        """A sentence if this build lacks the way, else None."""
        abi = importlib.import_module("training").thc_ddp.abi
        if self.rate and not (hasattr(abi.Call, "rate") and "rate" in keys_of_jobs()):
            return "this build has no rate: thcd has no such key of a job (thcd --help)"
        return None


@functools.cache
def keys_of_jobs():
    """The keys of a job that thcd knows, from its --help."""
    told = subprocess.run([os.path.join(netns.build_dir(), "thcd"), "--help"],
                          capture_output=True, text=True)
    return re.findall(r"^  ([a-z_]+) ", told.stdout, re.M)


FP32, FIXED, POWERSGD = "Gloo fp32", "fixed 4 + 8", "PowerSGD, rank 2"
WAYS = (Way(FP32, "group"), Way(FIXED, "job"),
        *(Way(f"rate {rate}", "job", rate) for rate in RATES), Way(POWERSGD, "powersgd"))
