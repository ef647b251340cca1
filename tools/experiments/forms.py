# SPDX-License-Identifier: GPL-2.0
"""Closed forms of errors that libthc does not have itself."""
import math

import numpy as np

from experiments import library


def _density(a):
    return math.exp(-a * a / 2) / math.sqrt(2 * math.pi)


def _interval(low, high):
    """E[(high - a)(a - low)] of a standard normal a between them."""
    mass = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    return ((low + high) * (_density(low) - _density(high)) - low * high * mass -
            (mass + low * _density(low) - high * _density(high)))


def correlated(table, ranks):
    """The closed form for equal gradients whose ranks round in strata.

    The ranks' draws divide (0, 1) into `ranks` strata, one for each. A coordinate between two
    levels leaves one rank's draw to chance, so the sum of all ranks is as if rounded between levels
    `ranks` times as dense.
    """
    at = [2 * table.t * v / table.granularity - table.t for v in library.values(table)]
    cost = sum(_interval(low + k * (high - low) / ranks, low + (k + 1) * (high - low) / ranks)
               for low, high in zip(at, at[1:]) for k in range(ranks))
    return cost + truncated(table)


def truncated(table):
    """What clamping alone adds to the error, for any number of ranks."""
    return library.closed_form(table, 1) - table.cost


def sampling(table, form, count):
    """Standard error of a measured NMSE, as a fraction of its closed form.

    Of equal gradients of count coordinates p are clamped, by excesses e that fall off as a normal's
    tail does, nearly exponentially: e^2 has a mean square of 6 times its squared mean. All ranks
    clamp alike. Rounding adds nearly nothing beside it.
    """
    return math.sqrt(6 / (table.p * count)) * truncated(table) / form


def by_range(bits, ranks, x, block):
    """Uniform THC of equal gradients x whose blocks are not rotated, rounded independently.

    Between neighbours l < h a coordinate a has an expected square of (h - a)(a - l).
    """
    v = x.astype(np.float64).reshape(-1, block)
    least = v.min(axis=1, keepdims=True)
    step = (v.max(axis=1, keepdims=True) - least) / (2 ** bits - 1)
    part = (v - least) / step % 1
    return (step ** 2 * part * (1 - part)).sum() / np.square(v).sum() / ranks
