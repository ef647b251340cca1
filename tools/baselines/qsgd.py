# SPDX-License-Identifier: GPL-2.0
"""QSGD: magnitudes rounded without bias to multiples of the norm.

Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
Quantization and Encoding" (NIPS 2017), section 3.1: with s levels, |v_i| s / ||v||_2 goes up or
down to a whole number. Lemma 3.1: unbiased, and E||Q(v) - v||^2 <= min(d / s^2, sqrt(d) / s)
||v||^2. "QSGD Variants": with buckets, d is the size of a bucket; scale="max" scales by the largest
magnitude instead of the norm.

A coordinate takes `bits` bits for sign and level, so s = 2^(bits - 1) - 1; a bucket adds its norm.
Elias coding, shorter where most levels are zero, is not used.
"""
import numpy as np

from . import Sent, packed


class Qsgd:
    paper = "Alistarh et al. 2017, 3.1 and QSGD Variants"

    def __init__(self, bits, bucket, scale="norm"):
        if scale not in ("norm", "max"):
            raise ValueError(f"scale {scale!r} is neither norm nor max")
        self.bits, self.bucket, self.scale = bits, bucket, scale
        self.levels = 2 ** (bits - 1) - 1
        self.name = f"QSGD, {bits} bits" + (", largest" if scale == "max" else "")

    def compress(self, x, state):
        buckets = -(-x.size // self.bucket)
        v = np.zeros((buckets, self.bucket), dtype=np.float32)
        v.reshape(-1)[:x.size] = x
        unit = (np.linalg.norm(v, axis=1, keepdims=True) if self.scale == "norm" else
                np.max(np.abs(v), axis=1, keepdims=True)) / np.float32(self.levels)
        at = np.divide(np.abs(v), unit, out=np.zeros_like(v), where=unit > 0)
        level = np.floor(at + state["rng"].random(v.shape, dtype=np.float32))
        value = np.sign(v) * np.minimum(level, self.levels) * unit
        return Sent(value.reshape(-1)[:x.size], packed(x.size, self.bits) + 4 * buckets)

    def bound(self, count):
        """Lemma 3.1: the largest NMSE of a bucket's count coordinates."""
        return min(count / self.levels ** 2, count ** .5 / self.levels)
