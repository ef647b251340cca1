# SPDX-License-Identifier: GPL-2.0
"""Closed forms of errors that libthc does not compute."""
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
    """NMSE of equal gradients under correlated rounding.

    (0, 1) is divided into `ranks` strata, and each rank draws from one. Between two levels only one
    rank's draw is random, so the sum is rounded as if levels were `ranks` times as dense.
    """
    at = [2 * table.t * v / table.granularity - table.t for v in library.values(table)]
    cost = sum(_interval(low + k * (high - low) / ranks, low + (k + 1) * (high - low) / ranks)
               for low, high in zip(at, at[1:]) for k in range(ranks))
    return cost + truncated(table)


def truncated(table):
    """The NMSE of clamping alone, for any number of ranks."""
    return library.closed_form(table, 1) - table.cost


def sampling(table, form, count):
    """Standard error of a measured NMSE, as a fraction of its closed form.

    Of count coordinates the fraction p is clamped, equally on all ranks. Excesses e fall off as a
    normal's tail, nearly exponentially: E[e^4] is 6 E[e^2]^2. Rounding adds nearly nothing to it.
    """
    return math.sqrt(6 / (table.p * count)) * truncated(table) / form


def by_range(bits, ranks, x, block):
    """NMSE of uniform THC of equal gradients x without rotation, rounded independently.

    The expected squared error of a coordinate a between levels l < h is (h - a)(a - l).
    """
    v = x.astype(np.float64).reshape(-1, block)
    least = v.min(axis=1, keepdims=True)
    step = (v.max(axis=1, keepdims=True) - least) / (2 ** bits - 1)
    part = (v - least) / step % 1
    return (step ** 2 * part * (1 - part)).sum() / np.square(v).sum() / ranks
