# SPDX-License-Identifier: GPL-2.0
"""Covering arrays of strength two, and of three for some factors: few rows in which every pair of
values of two factors meets.
"""
import itertools
import operator
import random

TRIES = 20              # candidates per row; the best one is taken


class _Array:
    """meetings: {factor: getters of the groups of values with this factor}, None: of all groups;
    missing: the groups that no row has yet."""

    def __init__(self, factors, valid, triples, rng):
        self.factors, self.valid, self.rng = factors, valid, rng
        groups = [*itertools.combinations(factors, 2), *triples]
        self.meetings = {name: [operator.itemgetter(*names) for names in groups if name in names]
                         for name in factors}
        self.meetings[None] = [operator.itemgetter(*names) for names in groups]
        self.missing = {meeting for names in groups for meeting in itertools.product(
            *([(name, value) for value in factors[name]] for name in names))
            if valid(dict(meeting))}

    def _met(self, row, name=None):
        """The missing groups that a row, or a part of one, has; name: only those with this
        factor."""
        values = {n: (n, row[n]) if n in row else None for n in self.factors}
        return self.missing.intersection(meeting(values) for meeting in self.meetings[name])

    def _complete(self, start):
        """Completes the row that begins with start by the values that cover most. None: a factor
        has no valid value."""
        row, names = dict(start), list(self.factors)
        for name in self.rng.sample(names, len(names)):
            if name in row:
                continue
            values = self.rng.sample(self.factors[name], len(self.factors[name]))
            values = [v for v in values if self.valid({**row, name: v})]
            if not values:
                return None
            row[name] = max(values, key=lambda v: len(self._met({**row, name: v}, name)))
        return row

    def next_row(self):
        first = self.rng.choice(sorted(self.missing, key=repr))
        rows = [row for row in (self._complete(first) for _ in range(TRIES)) if row]
        assert rows, f"no valid row has {dict(first)}"
        best = max(rows, key=lambda row: len(self._met(row)))
        self.missing -= self._met(best)
        return best


def pairwise(factors, valid, triples=(), seed=1):
    """Rows {factor: value} that together have every valid pair of values, and every valid triple of
    the factors in triples. factors: {factor: values}; valid(part of a row): True if a row may have
    these values. Equal seeds give equal rows.
    """
    array, rows = _Array(factors, valid, triples, random.Random(seed)), []
    while array.missing:
        rows.append(array.next_row())
    return rows
