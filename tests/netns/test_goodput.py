#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Scheme lhc sends as many bytes as its closed form says: index, values, scales, packet headers, as
interfaces count them. The test has one density of `make experiments EXPERIMENTS_ARGS=lhc_goodput`.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from experiments import lhc_goodput, report  # noqa: E402


def bytes__are_those_of_the_closed_form():
    found = lhc_goodput.by_interfaces(.01, [("same", "fixed"), ("own", "exact")])
    for line in report.table(lhc_goodput.COLUMNS[:12], found).splitlines():
        print(f"# {line}")
    assert len(found) == 2
    for row in found:
        for direction in ("up", "down"):
            # a busy host sends some requests again
            most, least = row[direction], row[direction] - lhc_goodput.repeated(row)
            assert most > (1 - lhc_goodput.TOLERANCE) * row["closed_form"], (direction, row)
            assert least < (1 + lhc_goodput.TOLERANCE) * row["closed_form"], (direction, row)


if __name__ == "__main__":
    tap.main([bytes__are_those_of_the_closed_form])
