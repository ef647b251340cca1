# SPDX-License-Identifier: GPL-2.0
"""Output of experiments: aligned tables, CSV, markdown."""
import csv
import io
import math
import os
from typing import NamedTuple

from bench.page import markdown


class ExperimentError(RuntimeError):
    """An experiment without a result; the message says why."""


def rounded_up(value, digits):
    """value as text, rounded up, so that it stays an upper bound."""
    return f"{math.ceil(round(value * 10 ** digits, 6)) / 10 ** digits:.{digits}f}"


class Telling:
    """A Screen that forwards all output to progress(), for trainings and waits."""

    def __init__(self, progress, what):
        self._progress, self.what = progress, what

    def say(self, text):
        pass

    def progress(self, text):
        self._progress(f"{self.what}: {text}")


class Column(NamedTuple):
    """key: in a row; heading and unit: for people; form: of a number"""
    key: str
    heading: str
    unit: str = ""
    form: str = ""

    def title(self):
        return f"{self.heading} ({self.unit})" if self.unit else self.heading

    def text(self, row):
        value = row.get(self.key)
        if value is None:
            return "-"
        return format(value, self.form)


def table(columns, rows):
    """Lines of a table, numbers at the right."""
    cells = [[c.title() for c in columns]] + [[c.text(row) for c in columns] for row in rows]
    wide = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    numbers = [any(isinstance(row.get(c.key), (int, float)) for row in rows) for c in columns]
    return "\n".join("  " + "  ".join(
        f"{cell:>{wide[i]}}" if numbers[i] else f"{cell:<{wide[i]}}"
        for i, cell in enumerate(line)).rstrip() for line in cells)


def page(columns, rows):
    return markdown([c.title() for c in columns], [[c.text(row) for c in columns] for row in rows])


def to_csv(columns, rows):
    """The rows as CSV, with eight significant digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.key for c in columns])
    for row in rows:
        writer.writerow([f"{v:.8g}" if isinstance(v, float) else "" if v is None else v
                         for v in (row.get(c.key) for c in columns)])
    return out.getvalue()


def from_csv(text):
    """The rows that to_csv() wrote; a cell that looks like a number becomes one."""
    def value(cell):
        for kind in (int, float):
            try:
                return kind(cell)
            except ValueError:
                pass
        return cell or None

    return [{key: value(cell) for key, cell in row.items()}
            for row in csv.DictReader(io.StringIO(text))]


class Kept:
    """The rows of a CSV file, which put() writes after each row, so that an experiment can be
    stopped and continued.

    keys: names of the columns that identify a row
    """

    def __init__(self, path, columns, keys):
        self.path, self.columns, self.keys, self.rows = path, columns, keys, []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                self.rows = from_csv(f.read())

    def _same(self, row, other):
        return all(row.get(key) == other.get(key) for key in self.keys)

    def _read(self, row):
        """The row as the file returns it."""
        return from_csv(to_csv(self.columns, [row]))[0]

    def get(self, row):
        """The kept row with row's keys, or None."""
        row = self._read(row)
        return next((kept for kept in self.rows if self._same(kept, row)), None)

    def put(self, row):
        """Adds row, or replaces the row with its keys, and writes the file."""
        row = self._read(row)
        self.rows = [kept for kept in self.rows if not self._same(kept, row)] + [row]
        with open(f"{self.path}.new", "w", encoding="utf-8") as f:
            f.write(to_csv(self.columns, self.rows))
        os.replace(f"{self.path}.new", self.path)
        return row
