# SPDX-License-Identifier: GPL-2.0
"""Covering arrays of strength two: few rows in which every pair of values of two factors meets."""
import itertools
import random

TRIES = 40              # candidates for a row, of which the best is taken


def _pairs(row):
    return set(itertools.combinations(sorted(row.items()), 2))


def _complete(start, names, factors, valid, missing, rng):
    """A row that has what start has, and of each other factor the value that covers most; None: a
    factor has none that is valid."""
    row = dict(start)
    for name in rng.sample(names, len(names)):
        if name in row:
            continue
        values = [v for v in rng.sample(factors[name], len(factors[name]))
                  if valid({**row, name: v})]
        if not values:
            return None
        row[name] = max(values, key=lambda v: len(_pairs({**row, name: v}) & missing))
    return row


def pairwise(factors, valid, seed=1):
    """Rows {factor: value} of the lists of values in factors, in which every two values that some
    valid row has together meet. valid(part of a row): can a row have these together? Deterministic.
    """
    rng, names, rows = random.Random(seed), list(factors), []
    missing = {pair for a, b in itertools.combinations(sorted(factors), 2)
               for pair in itertools.product([(a, v) for v in factors[a]],
                                             [(b, v) for v in factors[b]]) if valid(dict(pair))}
    while missing:
        first = dict(rng.choice(sorted(missing, key=repr)))
        rows_for = [_complete(first, names, factors, valid, missing, rng) for _ in range(TRIES)]
        rows_for = [row for row in rows_for if row]
        if not rows_for:
            # no row has these two together
            missing.discard(tuple(sorted(first.items())))
            continue
        best = max(rows_for, key=lambda row: len(_pairs(row) & missing))
        missing -= _pairs(best)
        rows.append(best)
    return rows
