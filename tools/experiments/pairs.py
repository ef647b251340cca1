# SPDX-License-Identifier: GPL-2.0
"""Pairs of measurements that share a seed: whether the mean of their differences is chance, by
Student's t.
"""
import math
import statistics
from typing import NamedTuple

LEVEL = .05             # of chance, both sides together


class Difference(NamedTuple):
    """mean: of all pairs; noise: what it may be by chance at LEVEL; chance: to be as large by it"""
    mean: float
    noise: float
    chance: float

    def is_real(self):
        return abs(self.mean) > self.noise


def chance_of(t, degrees):
    """Of a t as large, of either sign. Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle, odd = math.atan(abs(t) / math.sqrt(degrees)), degrees % 2
    term, within = math.cos(angle) ** odd, 0.
    for power in range(odd, degrees - 1, 2):
        within += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    within *= math.sin(angle)
    return 1 - (2 / math.pi * (angle + within) if odd else within)


def limit_of(chance, degrees):
    """The t that has this chance."""
    low, high = 0., 1e6
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if chance_of(t, degrees) > chance else (low, t)
    return low


def difference(values):
    """Of pairs' differences, two or more."""
    mean, degrees = statistics.mean(values), len(values) - 1
    error = statistics.stdev(values) / math.sqrt(len(values))
    chance = chance_of(mean / error, degrees) if error else float(not mean)
    return Difference(mean, limit_of(LEVEL, degrees) * error, chance)


def together(chances, level=LEVEL):
    """Keys whose chances are real if all are judged together: none is by chance, but at this level
    (Holm 1979). chances: {key: chance}
    """
    found = []
    for key in sorted(chances, key=chances.get):
        if chances[key] * (len(chances) - len(found)) > level:
            break
        found.append(key)
    return found
