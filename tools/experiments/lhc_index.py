# SPDX-License-Identifier: GPL-2.0
"""Bits of the index of scheme lhc, by density, grain and levels, beside their closed forms.

LHC (arXiv 2402.07529) uses a bitmap or a Bloom filter. libthc's index sends the words that are not
zero in the union: it is never much longer than a bitmap, and has no false positives.
"""
import numpy as np

from bench import chart
from experiments import library
from experiments.report import Column, rounded_up

TITLE = "Bits of an index, by density, grain and levels"
DENSITIES = (.3, .1, .03, .01, .003, .001)
GRAINS_LOG2 = (0, 3, 6)
LEVELS = (1, 2, 3)
TOLERANCE = .01

COLUMNS = [Column("density", "not zero", "", "g"), Column("grain", "grain"),
           Column("levels", "levels"), Column("bits", "index", "bits a coordinate", ".5f"),
           Column("closed_form", "closed form", "bits a coordinate", ".5f"),
           Column("ratio", "measured / closed form", "", ".4f"),
           Column("sampling", "standard error of the ratio", "", ".4f")]


def by_level(density, grain, levels):
    """Bits per coordinate of each level, if coordinates are not zero independently of each other.
    """
    item = 1 - (1 - density) ** grain

    def some(of):
        """probability that at least one of `of` items is in the union"""
        return 1 - (1 - item) ** of

    return [bits / grain for bits in (1 / 32 ** (levels - 1), *(
        some(32 ** (at + 1)) / 32 ** at for at in range(levels - 1)))]


def closed_form(density, grain, levels):
    """Bits per coordinate of all levels."""
    return sum(by_level(density, grain, levels))


def _sampling(count, density, grain):
    """Relative standard error of the number of items; that of words is hardly larger."""
    item = 1 - (1 - density) ** grain
    return np.sqrt((1 - item) / item / (count / grain))


def rows(options, progress):
    count, found = 1 << (21 if options.quick else 24), []
    for density in DENSITIES:
        progress(f"lhc_index: density {density:g}")
        there = np.random.default_rng([options.seed, 7]).random(count, dtype=np.float32) < density
        bits = np.packbits(there, bitorder="little").view("<u4")
        for grain_log2 in GRAINS_LOG2:
            grain = 1 << grain_log2
            for levels in LEVELS:
                form = closed_form(density, grain, levels)
                measured = 32 * library.index_words(count, grain_log2, levels, bits) / count
                found.append({"density": density, "grain": grain, "levels": levels,
                              "bits": measured, "closed_form": form, "ratio": measured / form,
                              "sampling": _sampling(count, density, grain)})
    return found


def worst(found):
    """The largest distance from a closed form, as a fraction."""
    return max(abs(row["ratio"] - 1) for row in found)


def summary(found):
    return (f"All are within {rounded_up(100 * worst(found), 2)} % of their closed forms; "
            f"{100 * TOLERANCE:g} % are allowed.")


def svg(found):
    series = [(f"{levels} level{'s' if levels > 1 else ''}, grain {grain}",
               sorted((row["density"], row["bits"]) for row in found
                      if (row["levels"], row["grain"]) == (levels, grain)), True)
              for grain in (1, 64) for levels in LEVELS]
    return chart.curves("Index of lhc", ("share of coordinates that are not zero",
                                         "bits a coordinate"), series, log_x=True)


def shown(found):
    """(columns, rows) for people, levels across; the CSV has all of it."""
    lines = {}
    for row in found:
        line = lines.setdefault((row["grain"], -row["density"]), dict(row))
        line[f"bits {row['levels']}"] = row["bits"]
        line[f"form {row['levels']}"] = row["closed_form"]
    columns = COLUMNS[:2]
    for levels in LEVELS:
        columns += [Column(f"bits {levels}", f"{levels} level{'s' if levels > 1 else ''}", "", ".5f"),
                    Column(f"form {levels}", "closed form", "", ".5f")]
    return columns, [lines[key] for key in sorted(lines)]
