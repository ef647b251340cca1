# SPDX-License-Identifier: GPL-2.0
"""Deep Gradient Compression: TopK of accumulated velocities instead of gradients.

Lin, Han, Mao, Wang and Dally, "Deep Gradient Compression" (ICLR 2018): momentum correction and
local gradient clipping (section 3.2), momentum factor masking and warm-up of the sparsity (section
3.3). The paper estimates the threshold from a sample of the coordinates; here it is exact.

A worker sends weight updates that include momentum, so the optimizer must have no momentum.
"""
import numpy as np

from . import Sent
from .topk import PAIR_BYTES, largest

WARM_UP = (.25, .0625, .015625, .004)   # ratios of the first epochs


def ratio_of_epoch(ratio, epoch):
    """The ratio of an epoch: larger during the warm-up, then `ratio`."""
    return max(ratio, WARM_UP[epoch]) if epoch < len(WARM_UP) else ratio


class Dgc:
    """ratio: fraction of coordinates sent; clip: norm to clip gradients to, of all workers
    together, None: no clipping; workers: their number."""
    paper = "Lin et al. 2018, 3.2 and 3.3"

    def __init__(self, ratio, momentum=.9, clip=None, workers=1):
        self.ratio, self.momentum, self.clip, self.workers = ratio, momentum, clip, workers
        self.name = f"DGC {100 * ratio:g} %"

    def compress(self, x, state):
        """The caller may set state["epoch"]: the ratio then follows the warm-up."""
        ratio = self.ratio
        if "epoch" in state:
            ratio = ratio_of_epoch(ratio, state["epoch"])
        if self.clip is not None:
            limit, norm = self.clip / np.sqrt(self.workers), np.linalg.norm(x)
            x = x * np.float32(min(1, limit / norm)) if norm else x
        velocity = np.float32(self.momentum) * state.get("velocity", np.float32(0)) + x
        waiting = state.get("waiting", np.float32(0)) + velocity
        sent = largest(waiting, ratio)
        value = np.zeros_like(waiting)
        value[sent] = waiting[sent]
        # momentum factor masking: coordinates that were sent start again from zero
        waiting[sent] = 0
        velocity[sent] = 0
        state["velocity"], state["waiting"] = velocity, waiting
        return Sent(value, sent.size * PAIR_BYTES)
