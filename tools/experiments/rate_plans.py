# SPDX-License-Identifier: GPL-2.0
"""What the experiment rate_train trains, and how gradients are summed meanwhile; and whether this build
can.
"""
import functools
import importlib
import os
import re
import subprocess
from typing import NamedTuple

import netns

RATES = (12, 8, 6, 4, 3, 2)     # bits a coordinate, up and down together
JOB_SEED = 1            # of rotations and rounding; rounds count from the beginning of a training


class Plan(NamedTuple):
    """A task. make: it, with its data read; steps: of a training; enough: the quality that a training is
    to reach; more: whether more of it is better; form: of a quality, for people
    """
    make: callable
    steps: int
    enough: float
    more: bool
    form: str

    @property
    def every(self):
        """Steps from one look at the quality to the next."""
        return max(1, self.steps // 20)

    def reached(self, qualities):
        """The first step of [(step, quality)] that is good enough, or None."""
        return next((step for step, quality in qualities
                     if (quality >= self.enough if self.more else quality <= self.enough)), None)

    def worse(self, quality, other):
        """How much, below 0: better."""
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
    """How gradients are summed. by: what rate_worker.py calls it; rate: of the job, 0: fixed"""
    name: str
    by: str
    rate: int = 0

    def job(self):
        """More keys of the job. Its seed would come from its key, which is another one each time."""
        return {"rate": self.rate or "fixed", "seed": JOB_SEED}

    def lacking(self):
        """Why this build cannot do it, in a sentence, or None."""
        abi = importlib.import_module("training").thc_ddp.abi
        if self.rate and not (hasattr(abi.Call, "rate") and "rate" in keys_of_jobs()):
            return "this build has no rate: thcd has no such key of a job (thcd --help)"
        return None


@functools.cache
def keys_of_jobs():
    """As thcd names them."""
    told = subprocess.run([os.path.join(netns.build_dir(), "thcd"), "--help"],
                          capture_output=True, text=True)
    return re.findall(r"^  ([a-z_]+) ", told.stdout, re.M)


FP32, FIXED, POWERSGD = "Gloo fp32", "fixed 4 + 8", "PowerSGD, rank 2"
WAYS = (Way(FP32, "group"), Way(FIXED, "job"),
        *(Way(f"rate {rate}", "job", rate) for rate in RATES), Way(POWERSGD, "powersgd"))
