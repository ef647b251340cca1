# SPDX-License-Identifier: GPL-2.0
"""Floats of 16 bits, rounded to nearest, ties to even (IEEE 754-2019, section 4.3.1): fp16, and
bf16, an fp32 without its 16 lowest bits. Every framework offers both instead of compression.

The error's closed form: a value of binary exponent e has steps of 2^(e - m), m bits of mantissa
being stored, and an error that is uniform within half a step. So the NMSE is E[4^e] 4^-m / 12.
"""
import math

import numpy as np

from . import Sent, packed


class Fp16:
    """Values above 65504 become infinite, as in an all-reduce of halves."""
    name, paper, mantissa = "fp16", "IEEE 754 binary16", 10

    def compress(self, x, state):
        with np.errstate(over="ignore"):
            return Sent(x.astype(np.float16), packed(x.size, 16))


class Bf16:
    name, paper, mantissa = "bf16", "the upper half of an fp32", 7

    def compress(self, x, state):
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
        rounded = bits + 0x7fff + (bits >> 16 & 1) & 0xffff0000
        value = rounded.astype(np.uint32).view(np.float32)
        return Sent(np.where(np.isnan(x), x, value), packed(x.size, 16))


def nmse_of_normals(mantissa):
    """The closed form of the NMSE for normal values."""
    below = [math.erf(2.0 ** e / math.sqrt(2)) for e in range(-40, 8)]
    energy = sum(4.0 ** (e - 40) * (below[e + 1] - below[e]) for e in range(len(below) - 1))
    return energy * 4.0 ** -mantissa / 12
