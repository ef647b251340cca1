# SPDX-License-Identifier: GPL-2.0
"""TernGrad: -s, 0 or s, without bias.

Wen, Xu, Yan, Wu, Wang, Chen and Li, "TernGrad: Ternary Gradients to Reduce Communication in
Distributed Deep Learning" (NIPS 2017), section 3: a coordinate becomes s = max |g| with its
sign, with probability |g| / s, else 0. Each layer has its s. Clipping (the paper: at 2.5 standard
deviations) is optional. Scaler sharing, one s for all workers, is left out.

Its mean square is s E|g|, so the NMSE is s E|g| / E[g^2] - 1.
"""
import numpy as np

from . import Sent, packed


class TernGrad:
    paper = "Wen et al. 2017, section 3"

    def __init__(self, clip=None):
        """clip: in standard deviations"""
        self.clip = clip
        self.name = "TernGrad" if clip is None else f"TernGrad, clipped at {clip:g}"

    def compress(self, x, state):
        if self.clip is not None:
            limit = np.float32(self.clip * np.std(x, dtype=np.float64))
            x = np.clip(x, -limit, limit)
        scale = np.max(np.abs(x), initial=0)
        kept = state["rng"].random(x.size, dtype=np.float32) * scale < np.abs(x)
        return Sent(scale * np.sign(x) * kept, packed(x.size, 2) + 4)


def nmse(x):
    """The closed form for this x, without clipping."""
    x = np.abs(x.astype(np.float64))
    return x.max() * x.sum() / np.square(x).sum() - 1
