# SPDX-License-Identifier: GPL-2.0
"""TopK: sends the coordinates of largest magnitude with their indices, and keeps the rest.

Aji and Heafield, "Sparse Communication for Distributed Gradient Descent" (EMNLP 2017), section 3,
Gradient Dropping; the memory as in Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory"
(NeurIPS 2018), Algorithm 1.
"""
import numpy as np

from . import Sent

PAIR_BYTES = 4 + 4      # an index and a value


def largest(x, ratio):
    """Ascending indices of the ceil(ratio * size) largest magnitudes; ties go to lower indices."""
    count = max(1, int(np.ceil(ratio * x.size)))
    magnitude = np.abs(x)
    if count >= x.size:
        return np.arange(x.size)
    least = np.partition(magnitude, x.size - count)[x.size - count]
    above = np.flatnonzero(magnitude > least)
    level = np.flatnonzero(magnitude == least)[:count - above.size]
    return np.sort(np.concatenate([above, level]))


class TopK:
    """ratio: fraction of coordinates sent; memory: True: with error feedback."""
    whole = True        # one threshold for all layers
    paper = "Aji and Heafield 2017, section 3; Stich et al. 2018, Alg. 1"

    def __init__(self, ratio, memory=False):
        self.ratio, self.memory = ratio, memory
        self.name = f"TopK {100 * ratio:g} %" + (", memory" if memory else "")

    def compress(self, x, state):
        if self.memory:
            x = x + state.get("memory", np.float32(0))
        kept = largest(x, self.ratio)
        value = np.zeros_like(x)
        value[kept] = x[kept]
        if self.memory:
            state["memory"] = x - value
        return Sent(value, kept.size * PAIR_BYTES)
