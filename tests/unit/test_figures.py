#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The times in README.md and Documentation/benchmarks.md are those of
Documentation/figures.json, its chart is drawn from them, the closed form is
what frames on links take, and ratios of two commits are those of their pairs.
"""
import os
import re
import sys
import unittest
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools/bench"))
import chart  # noqa: E402  (found through the path above)
import compare  # noqa: E402  (found through the path above)
import figures  # noqa: E402  (found through the path above)
import model  # noqa: E402
from bench import rate_table  # noqa: E402  (figures adds its path)

BUCKET = 25 << 20
CHUNKS = 6400           # of 1024 coordinates


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Figures(unittest.TestCase):
    def setUp(self):
        self.figures = figures.json.loads(read(figures.MEASURED))

    def test_tables_show_what_was_measured(self):
        for path in figures.TEXTS:
            text = read(path)
            self.assertEqual(figures.drawn(text, self.figures), text, "make figures draws it")
            self.assertGreaterEqual(text.count("<!-- figures: "), 2)
            marks = text.count("<!-- figures: ") + text.count("<!-- rate: ")
            self.assertEqual(marks, text.count("<!-- end -->"))

    def test_chart_shows_what_was_measured(self):
        self.assertEqual(figures.picture(self.figures), read(figures.CHART))

    def test_a_busy_machine_is_named(self):
        self.assertNotIn("other work", figures.ran_on({"machine": "m", "load_at_start": .2}))
        self.assertIn("other work (load average 9.0)",
                      figures.ran_on({"machine": "m", "load_at_start": 9}))

    def test_losses_are_bold(self):
        self.assertEqual(figures.verdict([1, 2, 1], [1, 1, 10, 5, None]), "**0.5**")
        self.assertEqual(figures.verdict([10, 5, 1], [None] * 5), "**0.5**")
        self.assertEqual(figures.verdict([10, 5, 1], [5, 20, None, 10, None]), "**0.5**")
        self.assertEqual(figures.verdict([10, 5, 1], [50, 20, 5, 10, None]), "2.0")

    def test_nothing_measured_is_faster_than_its_links(self):
        for run in self.figures["runs"]:
            if run["rate"] and run["bucket_bytes"] == BUCKET:
                case = run["ranks"], BUCKET, run["rate"]
                self.assertGreater(run["thc_ms"], .95 * model.thc_ms(*case), run)
                self.assertGreater(run["gloo_fp32_ms"], .95 * model.ring_ms(*case), run)


class Rates(unittest.TestCase):
    def setUp(self):
        self.result = rate_table.json.loads(read(rate_table.MEASURED))

    def test_the_page_shows_what_was_measured(self):
        text = read(rate_table.PAGE)
        self.assertEqual(rate_table.drawn(text, self.result), text,
                         "tools/bench/rate.py --draw draws it")
        self.assertEqual(text.count("<!-- rate: "), 2)

    def test_what_misses_its_promise_is_bold(self):
        row = {"task": "t", "links": "1gbit", "system": "rate-4", "ms": 70, "link_ms": 60, "cpu_ms": 9,
               "of_fixed": 2.01, "of_gloo": 4.49, "bits_up": 2, "bits_down": 4, "skipped": .1,
               "error": .01, "interface_up": 1e6, "interface_down": 2e6}
        of = rate_table.table_of_page({"rows": [row, {**row, "links": None, "of_fixed": .99},
                                                {**row, "system": "rate-6", "of_fixed": .5}]})
        self.assertEqual(of.count("**"), 4)
        for text in ("| 2.01 | **4.49** |", "| **0.99** | 4.49 |", "| 0.50 | 4.49 |"):
            self.assertIn(text, of)
        self.assertEqual([p["kept"] for p in rate_table.promises([row])], [True, False])

    def test_nothing_is_faster_than_its_links(self):
        for row in self.result["rows"]:
            self.assertGreater(row["min_ms"], .95 * (row["link_ms"] or 0), row)


class Panels(unittest.TestCase):
    """Axes of 200 pixels up, from the least to the largest tick."""

    def test_points_and_their_spread(self):
        svg = chart.panels("title", "bits", [("a", [("x", 2, 10, 1), ("y", 8, 12, 0)]),
                                             ("b", [("x", 4, .03, .01)])])
        tree = xml.etree.ElementTree.fromstring(svg)
        texts = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
        for text in ("title", "a", "b", "x", "y", "9", "10", "11", "12", "0.02", "0.04"):
            self.assertIn(text, texts)
        # three points, and two names of the legend
        circles = list(tree.iter("{http://www.w3.org/2000/svg}circle"))
        self.assertEqual(len(circles), 5)
        self.assertEqual(len({circle.get("fill") for circle in circles}), 2)
        spreads = [[float(y) for y in pair] for pair in
                   re.findall(r'd="M[0-9.]+ ([0-9.]+)V([0-9.]+)"', svg)]
        self.assertEqual([round(low - high) for low, high in spreads], [133, 0, 200])
        points = [float(circle.get("cy")) for circle in circles[:3]]
        for (low, high), y in zip(spreads, points):
            self.assertAlmostEqual((low + high) / 2, y, delta=.1)
        self.assertEqual([circle.get("cx") for circle in circles[:3]], ["80.0", "410.0", "665.0"])


class ClosedForm(unittest.TestCase):
    """By hand: frames of 602 and 1114 bytes, or 346 where sums have 16 bits."""

    def test_one_link_carries_the_frames_of_all_ranks(self):
        self.assertAlmostEqual(model.thc_ms(4, BUCKET, "1gbit"), CHUNKS * 4 * 602 * 8 / 1e6)
        self.assertAlmostEqual(model.thc_ms(4, BUCKET, "2500mbit"),
                               CHUNKS * 4 * 602 * 8 / 2.5e6)

    def test_fanout(self):
        self.assertAlmostEqual(model.thc_ms(4, BUCKET, "1gbit", fanout=True),
                               CHUNKS * 4 * 1114 * 8 / 1e6)

    def test_answers_limit_one_rank(self):
        self.assertAlmostEqual(model.thc_ms(1, BUCKET, "1gbit"), CHUNKS * 1114 * 8 / 1e6)

    def test_a_faster_link_of_the_aggregator(self):
        self.assertAlmostEqual(model.thc_ms(16, BUCKET, "1gbit", "10gbit"),
                               CHUNKS * 1114 * 8 / 1e6)
        self.assertAlmostEqual(model.thc_ms(16, BUCKET, "10gbit", "1gbit"),
                               CHUNKS * 16 * 602 * 8 / 1e6)

    def test_wide_sums_halve_the_chunk(self):
        self.assertAlmostEqual(model.thc_ms(17, BUCKET, "1gbit"), CHUNKS * 17 * 602 * 8 / 1e6)
        self.assertAlmostEqual(model.thc_ms(18, BUCKET, "1gbit"), 2 * CHUNKS * 18 * 346 * 8 / 1e6)

    def test_ring(self):
        self.assertAlmostEqual(model.ring_ms(4, BUCKET, "1gbit"),
                               6 * BUCKET / 4 * 8 / 1e6 * 1514 / 1448)
        self.assertEqual(model.ring_ms(1, BUCKET, "1gbit"), 0)

    def test_where_the_readme_says_that_a_ring_is_faster(self):
        text = " ".join(read(figures.TEXTS[0]).split())
        self.assertIn("an fp32 ring is faster from 14 ranks on, and an fp16 ring from 6 ranks on", text)
        self.assertIn("An fp32 ring is faster from 7 ranks on then, and an fp16 ring always", text)
        for fanout, size, first in ((False, BUCKET, 14), (False, BUCKET // 2, 6),
                                    (True, BUCKET, 7), (True, BUCKET // 2, 2)):
            faster = [model.thc_ms(n, BUCKET, "1gbit", fanout=fanout) >
                      model.ring_ms(n, size, "1gbit") for n in range(2, 65)]
            self.assertEqual(faster, [n >= first for n in range(2, 65)])

    def test_speeds(self):
        self.assertEqual([model.speed(r) for r in ("1gbit", "2500mbit", "500mbit", None)],
                         ["1 Gb/s", "2.5 Gb/s", "0.5 Gb/s", "no limit"])


class Comparison(unittest.TestCase):
    """`make bench-compare` with invented figures."""

    def test_ratios_are_of_pairs(self):
        # a machine that becomes slower from pair to pair: the medians alone would hide the 10 %
        pairs = [({"xdp.full_ns": b}, {"xdp.full_ns": 1.1 * b, "new_ms": 1.0})
                 for b in (100., 200., 300., 400., 500.)]
        row, = compare.summary(pairs)
        self.assertEqual((row["figure"], row["base"], row["pairs"]), ("xdp.full_ns", 300, 5))
        for name in ("ratio", "low", "high"):
            self.assertAlmostEqual(row[name], 1.1)
        # one disturbed pair does not move the median
        pairs[2] = ({"xdp.full_ns": 300.}, {"xdp.full_ns": 3000.})
        self.assertAlmostEqual(compare.summary(pairs)[0]["ratio"], 1.1)

    def test_what_is_compared(self):
        found = compare.figures({"xdp": {"lut_ns": 3, "kept": True}, "seconds": 2, "words": "x",
                                 "allreduce": {"shaped": {"thc_ms": 140.5}}})
        self.assertEqual(found, {"xdp.lut_ns": 3, "seconds": 2, "allreduce.shaped.thc_ms": 140.5})
        self.assertTrue(compare.more_is_better("codec.compress_ratio"))
        self.assertFalse(compare.more_is_better("xdp.lut_ratio"))


if __name__ == "__main__":
    unittest.main()
