# SPDX-License-Identifier: GPL-2.0
"""Deep Gradient Compression: TopK of accumulated velocities instead of gradients.

Lin, Han, Mao, Wang and Dally, "Deep Gradient Compression" (ICLR 2018): momentum correction and
local gradient clipping (section 3.2), momentum factor masking and warm-up of the sparsity (section
3.3). The paper finds its threshold in a sample of the coordinates; here it is the exact one.

What a worker sends are updates of weights that have momentum in them: the optimizer that gets
their mean has none.
"""
import numpy as np

from . import Sent
from .topk import PAIR_BYTES, largest

WARM_UP = (.25, .0625, .015625, .004)   # ratios of the first epochs


def ratio_of_epoch(ratio, epoch):
    """The ratio that is sent in this epoch, which falls to the one wanted."""
    return max(ratio, WARM_UP[epoch]) if epoch < len(WARM_UP) else ratio


class Dgc:
    """workers: of the job, whose common norm is clip; clip None: none is clipped."""
    paper = "Lin et al. 2018, 3.2 and 3.3"

    def __init__(self, ratio, momentum=.9, clip=None, workers=1):
        self.ratio, self.momentum, self.clip, self.workers = ratio, momentum, clip, workers
        self.name = f"DGC {100 * ratio:g} %"

    def compress(self, x, state):
        """state["epoch"], if the caller sets it, warms up."""
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
        # masked: what was sent neither waits nor goes on moving
        waiting[sent] = 0
        velocity[sent] = 0
        state["velocity"], state["waiting"] = velocity, waiting
        return Sent(value, sent.size * PAIR_BYTES)
