# SPDX-License-Identifier: GPL-2.0
"""Closed forms of errors that libthc does not have itself."""
import math

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
    return cost + library.closed_form(table, 1) - table.cost
