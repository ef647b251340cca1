#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Exact means of scheme lhc are those of big integers, bit for bit, at 20 % loss with corrupted,
duplicated and reordered packets, over each kind of aggregator. The test compares THC_EXACT values,
by default a hundredth of those of `make experiments EXPERIMENTS_ARGS=lhc_exact`.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from experiments import lhc_exact, report  # noqa: E402

VALUES = int(os.environ.get("THC_EXACT", lhc_exact.SAMPLE))
# one aggregator of two kinds, and three of the third kind
PATHS = [path for path in lhc_exact.PATHS
         if (path.home, path.aggregators) in (("native", 3), ("generic", 1), ("software", 1))]


def case_of(path):
    def case():
        found = lhc_exact.measured(-(-VALUES // len(PATHS)), 1, lambda _: None, [path])
        for line in report.table(*lhc_exact.shown(found)).splitlines():
            print(f"# {line}")
        assert lhc_exact.total_of(found) >= VALUES // len(PATHS), "too few values were compared"
        assert lhc_exact.total_of(found, "differ") == 0
        assert len(found) == len(lhc_exact.CASES) and all(row["values"] for row in found)
        row = found[0]
        assert row["dropped"] > .15 and row["overtaken"] > .002 and row["repeated"] > .1, row

    case.__name__ = f"exact__{path.home}_{path.aggregators}"
    return case


if __name__ == "__main__":
    tap.main([case_of(path) for path in PATHS])
