# SPDX-License-Identifier: GPL-2.0
"""SignSGD: one sign per coordinate, and one scale per layer.

Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: Compressed Optimisation for Non-Convex
Problems" (ICML 2018), Algorithms 1 and 3; the scale that makes it a compressor, ||x||_1 / d, as in
Karimireddy, Rebjock, Stich and Jaggi, "Error Feedback Fixes SignSGD" (ICML 2019), Algorithm 1.
If the answer is compressed, too, it is a majority vote, in which a worker's sign weighs its scale.

Its NMSE is 1 - (E|g|)^2 / E[g^2], on normals 1 - 2 / pi.
"""
import numpy as np

from . import Sent, packed


class SignSgd:
    """memory: True: with error feedback (EF-SignSGD)."""
    paper = "Bernstein et al. 2018; Karimireddy et al. 2019, Alg. 1"

    def __init__(self, memory=False):
        self.memory = memory
        self.name = "SignSGD with scale" + (", memory" if memory else "")

    def compress(self, x, state):
        if self.memory:
            x = x + state.get("memory", np.float32(0))
        scale = np.float32(np.mean(np.abs(x), dtype=np.float64)) if x.size else np.float32(0)
        value = np.where(np.signbit(x), -scale, scale)
        if self.memory:
            state["memory"] = x - value
        return Sent(value, packed(x.size, 1) + 4)
