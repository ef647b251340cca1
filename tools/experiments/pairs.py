# SPDX-License-Identifier: GPL-2.0
"""Student's t-test for pairs of measurements that share a seed: is the mean of their differences
significant?
"""
import math
import statistics
from typing import NamedTuple

LEVEL = .05             # significance level, two-sided


class Difference(NamedTuple):
    """mean: mean difference of the pairs; noise: half width of its confidence interval at LEVEL;
    chance: its p-value"""
    mean: float
    noise: float
    chance: float

    def is_real(self):
        return abs(self.mean) > self.noise


def chance_of(t, degrees):
    """The two-sided p-value of t. Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle, odd = math.atan(abs(t) / math.sqrt(degrees)), degrees % 2
    term, within = math.cos(angle) ** odd, 0.
    for power in range(odd, degrees - 1, 2):
        within += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    within *= math.sin(angle)
    return 1 - (2 / math.pi * (angle + within) if odd else within)


def limit_of(chance, degrees):
    """The t with this two-sided p-value."""
    low, high = 0., 1e6
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if chance_of(t, degrees) > chance else (low, t)
    return low


def difference(values):
    """The Difference of pairs. values: their differences, two or more"""
    mean, degrees = statistics.mean(values), len(values) - 1
    error = statistics.stdev(values) / math.sqrt(len(values))
    chance = chance_of(mean / error, degrees) if error else float(not mean)
    return Difference(mean, limit_of(LEVEL, degrees) * error, chance)


def together(chances, level=LEVEL):
    """Keys that are significant with Holm's correction (1979) at this family-wise level. chances:
    {key: p-value}
    """
    found = []
    for key in sorted(chances, key=chances.get):
        if chances[key] * (len(chances) - len(found)) > level:
            break
        found.append(key)
    return found
