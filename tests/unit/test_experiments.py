#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make experiments`: small runs with a seed give the results of closed forms and papers, and
Documentation/experiments.md and its charts show the CSV files in its folder.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tests/lib")]
from experiments import report, run  # noqa: E402

if run.missing():
    print(f"1..0 # SKIP {run.missing()}")
    sys.exit(4)
import numpy as np  # noqa: E402
import values  # noqa: E402
from experiments import (bigmean, forms, gradients, lhc_exact, lhc_goodput,  # noqa: E402
                         lhc_index, lhc_peel, lhc_train, library, nmse, pairs, rate_error,
                         rate_plans, rate_train, stress, tables)

QUICK_TOLERANCE = .05   # relative, for closed forms with the gradients of --quick


def command(*arguments):
    return subprocess.run([sys.executable, os.path.join(ROOT, "tools/experiments/run.py"),
                           *arguments], capture_output=True, text=True)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


class QuickRun(unittest.TestCase):
    """Experiments without a network, run as a user does, but with --quick."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            done = command(*run.ALONE, "--quick", "--json", "--seed", "3", "--output", folder)
            cls.files = {name: read(folder, name) for name in sorted(os.listdir(folder))}
        if done.returncode:
            raise RuntimeError(done.stderr)
        cls.rows = json.loads(done.stdout)

    def near(self, got, want, tolerance, what):
        self.assertLess(abs(got / want - 1), tolerance, f"{what}: {got:.6g}, expected {want:.6g}")

    def test_files(self):
        self.assertEqual(list(self.files), [f"{name}.{end}" for name in sorted(run.ALONE)
                                            for end in ("csv", "svg")])
        for name in run.ALONE:
            self.assertEqual(report.from_csv(self.files[f"{name}.csv"]), self.rows[name])
            self.assertTrue(self.files[f"{name}.svg"].startswith("<svg "))

    def test_errors_are_the_closed_forms(self):
        with_form = [row for row in self.rows["nmse"] if row["closed_form"]]
        self.assertEqual({row["bits"] for row in with_form}, set(nmse.BITS))
        self.assertEqual({row["ranks"] for row in with_form}, {1, 4})
        self.assertEqual(len({(row["gradients"], row["rounding"]) for row in with_form}), 3)
        self.assertEqual({row["width"] for row in with_form}, {4, 8, 16})
        self.assertEqual({row["table"] for row in with_form},
                         {"chosen", "published", "uthc", "uthc, not rotated"})
        for row in with_form:
            self.near(row["nmse"], row["closed_form"],
                      QUICK_TOLERANCE + 3 * (row["sampling"] or 0), row)
        self.assertGreater(len(nmse.certain(with_form)), 50)

    def test_bits_that_follow_norms(self):
        found = self.rows["rate_error"]
        self.assertEqual({row["whose"] for row in found}, {"equal", "own"})
        for row in found:
            if row["goal"].endswith(" bits"):
                self.assertLessEqual(row["bits"], int(row["goal"].split()[0]))
                self.assertGreater(row["bits"], int(row["goal"].split()[0]) - .2)
            if row["goal"] == rate_error.SAME:
                self.assertLess(row["bits"], sum(rate_error.FIXED))
            if row["whose"] == "equal" and row["expected"]:
                self.near(row["nmse"], row["expected"], .2, row)
        for row in rate_error.with_goal(found, "12 bits"):
            self.assertGreater(row["gain"], 2)

    def test_correlated_rounding_helps(self):
        of = {(row["bits"], row["width"], row["ranks"], row["gradients"], row["rounding"]):
              row["nmse"] for row in self.rows["nmse"] if row["table"] == "chosen"}
        for bits in nmse.BITS:
            for whose in ("equal", "own"):
                case = bits, 8, 4, whose
                if (*case, "independent") in of:
                    self.assertLess(of[(*case, "correlated")], of[(*case, "independent")],
                                    case)

    def test_other_compressors(self):
        of = {(row["method"], row["data"]): row for row in self.rows["baselines"]}
        sets = {data for _, data in of}
        self.assertEqual(len(sets), 5)
        self.assertEqual(len(of), 5 * len({method for method, _ in of}))
        for row in of.values():
            # with so few coordinates, tables of many levels clamp only a handful
            if row["closed_form"] and (row["closed_form"] > 2e-4 or "thc" not in row["method"]):
                self.near(row["nmse"], row["closed_form"], .1, row)
        self.near(of["TopK 10 %", "normals, own"]["nmse"], 1 - .439, .03, "TopK")
        self.assertEqual(of["TopK 10 %", "normals, own"]["paper"], .46)
        self.assertEqual(of["none, exact", "normals, equal"]["nmse"], 0)
        for data in sets:
            self.assertGreater(of["TernGrad", data]["nmse"],
                               40 * of["thc, 4 bits", data]["nmse"])
            self.near(of["thc, 4 bits", data]["up"], .5, .01, "bytes up")
            self.assertLess(of["none, exact", data]["nmse"], 1e-15)
            self.assertLess(of["DGC 1 %", data]["up"], .1)


    def test_index_is_its_closed_form(self):
        found = self.rows["lhc_index"]
        self.assertEqual(len(found), len(lhc_index.DENSITIES) * 9)
        for row in found:
            self.near(row["bits"], row["closed_form"], .002 + 3 * row["sampling"], row)

    def test_peeling(self):
        found = self.rows["lhc_peel"]
        self.check_peeling(found, .8)
        for row in lhc_peel.of(found, "tried"):
            if row["items"] >= 5000 and row["factor"] < row["limit"] - .04:
                # at least half of the items are in the core
                self.assertEqual(row["whole"], 0, row)
                self.assertGreater(row["left"], .5, row)
            if row["items"] >= 1000 and row["factor"] > 1.47:
                self.assertGreater(row["whole"], .95, row)

    def check_peeling(self, found, enough):
        """Check rows of a quick run or committed rows."""
        self.assertEqual({row["items"] for row in lhc_peel.of(found, "chosen")},
                         set(lhc_peel.ITEMS))
        for row in lhc_peel.of(found, "chosen"):
            self.assertGreaterEqual(row["whole"], enough, row)
            self.assertLess(row["factor"], 1.5, row)
        for row in lhc_peel.of(found, "bucket"):
            self.assertGreaterEqual(row["whole"], enough, row)
        three, coupled = lhc_peel.of(found, "many")
        self.near(three["factor"], three["limit"], .006, three)
        self.assertGreater(coupled["factor"], coupled["limit"])
        self.assertLess(coupled["factor"], lhc_peel.PUBLISHED["four, coupled"])


class Tables(unittest.TestCase):
    """The tables of THC's released code, and optimal tables."""

    COSTS = ((.0130746, .0130625), (.0235126, .0229056), (.0121253, .0121253), (None, .0127516),
             (.0554679, .0554679), (.1171355, .1149526), (.6243084, .6243084))

    def test_costs(self):
        found = tables.rows(run.argparse.Namespace(quick=True), lambda text: None)
        self.assertEqual(len(found), len(self.COSTS))
        for row, (published, solved) in zip(found, self.COSTS):
            self.assertAlmostEqual(row["solved_cost"], solved, delta=2e-7)
            if published:
                self.assertAlmostEqual(row["published_cost"], published, delta=2e-7)
            else:
                self.assertIsNone(row["published_cost"])
            self.assertLess(row["ms"], tables.LIMIT_MS)
            self.assertEqual(row["published"] == row["solved"], published == solved)

    def test_what_was_measured_keeps_its_limit(self):
        self.assertLess(max(row["ms"] for row in run.measured("tables")), tables.LIMIT_MS)

    def test_chosen_tables(self):
        """Closed forms that another program computed, by ranks and width, from `first` bits on,
        without error feedback.
        """
        for ranks, width, first, known in (
                (4, 8, 1, (.2716, .0745, .0199, .00517, .00149, .00057)),
                (8, 8, 1, (.196, .0454, .0112, .0031, .00107)),
                (4, 16, 5, (.00131, .00034, .000088, .000047)),
                (8, 16, 5, (.00067, .00017, .000044, .000025))):
            for bits, want in enumerate(known, first):
                got = library.closed_form(library.choose(bits, ranks, width, False), ranks)
                self.assertLess(got / want, 1.01, (ranks, width, bits))

    def test_with_feedback_a_rank_loses_no_more_than_half(self):
        for ranks in (4, 8):
            own = [library.closed_form(library.choose(1, ranks, 8, feedback), 1)
                   for feedback in (False, True)]
            self.assertGreater(own[0], .5)
            self.assertLess(own[1], .5 + 1e-3)
            for bits in range(2, library.BITS_MAX + 1):
                tables = [library.choose(bits, ranks, 16, feedback) for feedback in (False, True)]
                self.assertEqual(*map(library.values, tables))


class Forms(unittest.TestCase):
    def test_index_by_hand(self):
        # for one bit, the upper level has one bit, and one word of the lower level is sent
        bits = np.zeros(1024, dtype=np.uint32)
        bits[5] = 1 << 7
        words = [library.index_words(32768, 0, levels, bits) for levels in (1, 2, 3)]
        self.assertEqual(words, [1024, 32 + 1, 1 + 1 + 1])
        self.assertEqual(library.index_words(32768, 6, 1, bits), 16)
        with self.assertRaises(library.LibraryError):
            library.index_words(32768, 9, 1, bits)
        self.assertAlmostEqual(lhc_index.closed_form(.01, 1, 2), 1 / 32 + 1 - .99**32)

    def test_committed_index(self):
        self.assertLess(lhc_index.worst(run.measured("lhc_index")), lhc_index.TOLERANCE)

    def test_bytes_by_hand(self):
        # 1600 scales, an index of one level, a value each, in packets of 1114 bytes and 256 lanes
        packets = 1 + 7 + 800 + 25600
        self.assertEqual(lhc_goodput.closed_form(.5, "own", "fixed"),
                         8 * 1114 * packets / 6553600)
        # 7 times two scales, and two digits a value
        self.assertEqual(lhc_goodput.closed_form(.5, "own", "exact"),
                         8 * 1114 * (1 + 13 + 800 + 51200) / 6553600)
        self.assertAlmostEqual(lhc_goodput.bare_form(.01, "same", "fixed"), 32 / 51.1, 3)
        self.assertAlmostEqual(lhc_goodput.bare_form(.001, "own", "fixed"), 32 / 115, 2)

    def test_committed_bytes(self):
        self.assertLess(lhc_goodput.worst(run.measured("lhc_goodput")), lhc_goodput.TOLERANCE)

    def test_committed_means(self):
        found = run.measured("lhc_exact")
        self.assertGreaterEqual(lhc_exact.total_of(found), lhc_exact.TOTAL)
        self.assertEqual(lhc_exact.total_of(found, "differ"), 0)
        self.assertEqual({(row["home"], row["aggregators"]) for row in found},
                         {(path.home, path.aggregators) for path in lhc_exact.PATHS})
        self.assertGreater(min(row["dropped"] for row in found), .19)

    def test_peeling_by_hand(self):
        # two items always have other buckets, if there are enough, and one peels
        left, out = library.sketches(3, 1 << 16, 1, 20, 1, buckets=3)
        self.assertEqual((sum(left), out.cells, out.windows), (0, 3, 1))
        left, _ = library.sketches(3, 1 << 16, 2, 20, 1, buckets=3)
        self.assertEqual(list(left), [2] * 20)
        for hashes in (2, 5):
            with self.assertRaises(library.LibraryError):
                library.sketches(hashes, 1 << 16, 1, 1, 1)
        # thresholds of the literature
        for hashes, windows, loads in ((3, 1, .8185), (4, 1, .7723), (4, 10**9, .9768),
                                       (3, 10**9, .9179)):
            self.assertAlmostEqual(lhc_peel.limit(hashes, windows) * loads, 1, 4)

    def test_committed_peeling(self):
        QuickRun.check_peeling(self, run.measured("lhc_peel"), .88)

    def near(self, *arguments):
        QuickRun.near(self, *arguments)

    def test_strata(self):
        table = library.solve(4, 30, 1 / 512)
        self.assertAlmostEqual(forms.correlated(table, 1), library.closed_form(table, 1), 12)
        self.assertAlmostEqual(forms.correlated(table, 4), .00174, delta=.00002)
        # where levels are close together the error falls with the square of ranks
        self.assertAlmostEqual(forms.correlated(table, 8) / library.closed_form(table, 64), 1,
                               delta=.01)


    def test_range_by_hand(self):
        # blocks of range 2 and 4: with two bits a step is a third of the range
        x = np.array([-1, 0, .5, 1, 2, 3, 5, 6], dtype=np.float32)
        errors = (2 / 3) ** 2 * (.5 * .5 + .25 * .75) + (4 / 3) ** 2 * 2 * .75 * .25
        self.assertAlmostEqual(forms.by_range(2, 3, x, 4),
                               errors / 3 / (1 + .25 + 1 + 4 + 9 + 25 + 36), 12)


class BigMeans(unittest.TestCase):
    """Means by numpy's digits are those of Python's integers."""

    def test_of_every_kind(self):
        for ranks in (1, 2, 3, 4, 5, 7, 8, 64):
            for number, case in enumerate(stress.CASES):
                bits = np.stack([case.bits([1, number], rank, ranks, 500)
                                 for rank in range(ranks)])
                want = values.exact_mean(list(bits.view(np.float32)), "fp32")
                np.testing.assert_array_equal(bigmean.mean(bits), want.view(np.uint32), str(case))

    def test_by_hand(self):
        # ties, the rest that breaks one, subnormals, the largest float, a sum of zero
        for floats, mean in (([2**24 - 1, 2**24], 2**24), ([2**24 - 1, 2**24 - 2], 2**24 - 2),
                             ([2**24 - 1, 2**24 - 2, 2.**-149], (2**25 - 3) / 3),
                             ([2.**-149, 0], 0), ([3 * 2.**-149, 0], 2.**-148),
                             ([-2.**-149, 0, 0], -0.), ([2.**-126, -2.**-149], 2.**-127),
                             ([np.finfo(np.float32).max] * 3, np.finfo(np.float32).max),
                             ([1.5, -1.5], 0)):
            bits = np.array([floats], np.float32).T.view(np.uint32)
            self.assertEqual(int(bigmean.mean(bits)[0]),
                             int(np.float32(mean).view(np.uint32)), floats)

    def test_a_bit_that_differs_is_told(self):
        memory = lhc_exact.Memory(3, 1 << 16)
        step = lhc_exact.Step(memory, 3, [1, 1], 100)
        found = [{"kind": case.kind, "coordinates": 0, "values": 0, "differ": 0}
                 for case in stress.CASES]
        for _, first, count in step.buckets:
            some = slice(first, first + count)
            memory.received[:, some] = bigmean.mean(memory.brought[:, some])
        self.assertIsNone(step.check(found))
        self.assertEqual(lhc_exact.total_of(found, "differ"), 0)
        _, first, count = step.buckets[3]
        memory.received[2, first + count - 1] ^= 1
        self.assertIn(f"coordinate {count - 1} of {count} is ", step.check(found))
        self.assertEqual([row["differ"] for row in found],
                         [int(key == 3) for key in range(len(found))])

class Training(unittest.TestCase):
    """Results of training with sparse gradients; netns/test_demo.py tests the training itself."""

    def demo(self, **more):
        """A result in the form of demo.json: two of eight rows, a layer of 100."""
        def of(ms, up):
            return {"quality": .5, "step_ms": ms, "bytes_up_per_step": up}

        return {"runs": {"THC lhc": of(100, 20000), "Gloo fp32": of(250, 50000),
                         "Gloo rows": of(80, 9000)}, "bit_equal": None, "steps": 6,
                "parameters": 100 + 8 * 1024, "fp32_bytes_per_step": 4 * 8292,
                "density": {"a": {"rows": 8, "width": 1024, "own": .125, "union": .25}},
                "sha256": 64 * "a", **more}

    def test_closed_form_by_hand(self):
        r = self.demo()
        # values of two rows and the layer, a bit for each word of 32, and the words of the rows
        words = 2 * (2048 + 100) + 8 + 64
        self.assertAlmostEqual(lhc_train.closed_form(r["density"], r["parameters"], 2),
                               4 * words * (1024 + 90) / 1024)

    def test_row(self):
        row = lhc_train.row(("lm", 4, "rows", "exact"), self.demo(), 0)
        self.assertEqual((row["faster"], row["own"], row["union"], row["equal"]),
                         (2.5, 12.5, 25, None))
        self.assertEqual((row["lhc_bytes"], row["rows_bytes"]), (.02, .009))
        self.assertEqual(lhc_train.row(("lm", 2, "rows", "exact"), self.demo(bit_equal=True),
                                       0)["equal"], "yes")

    def test_committed(self):
        found = run.measured("lhc_train")
        self.assertEqual([(of["task"], of["workers"], of["gradients"], of["precision"])
                          for of in found], list(lhc_train.CASES))
        self.assertLess(lhc_train.worst(found), lhc_train.TOLERANCE)
        for of in found:
            self.assertEqual(of["equal"], "yes" if of["workers"] == 2 else None)
            self.assertGreater(of["steps"], lhc_train.QUICK_STEPS)
            # HR@10 and perplexity
            self.assertLess(abs(of["lhc_quality"] / of["fp32_quality"] - 1), .03)


class Bounds(unittest.TestCase):
    def test_a_bound_is_not_below_its_value(self):
        self.assertEqual([report.rounded_up(value, digits) for value, digits in
                          ((.012, 2), (5.34, 1), (5.34, 0), (5, 0), (.1 + .2, 1), (0, 2))],
                         ["0.02", "5.4", "6", "5", "0.3", "0.00"])


class Kept(unittest.TestCase):
    """Rows of earlier runs, which an experiment does not measure again."""

    def test_rows_come_back_and_replace_older_ones(self):
        columns = [report.Column(key, key) for key in ("task", "seed", "quality")]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.csv")
            kept = report.Kept(path, columns, ("task", "seed"))
            kept.put({"task": "a", "seed": 1, "quality": .25})
            kept.put({"task": "a", "seed": 2, "quality": 1 / 3})
            self.assertEqual(kept.put({"task": "a", "seed": 1, "quality": .5})["quality"], .5)
            again = report.Kept(path, columns, ("task", "seed"))
            self.assertEqual(again.rows, kept.rows)
            self.assertEqual(again.get({"task": "a", "seed": 2})["quality"], .33333333)
            self.assertEqual(len(again.rows), 2)
            self.assertIsNone(again.get({"task": "b", "seed": 1}))
            self.assertEqual(os.listdir(folder), ["x.csv"])


class FewBits(unittest.TestCase):
    """What rate_train concludes from its rows; netns/test_rate_train.py tests the training."""

    def rows(self, way, qualities, reached=50, step=100., **more):
        of = {"task": "perceptron", "way": way, "load": 1, **more}
        return [*({**of, "kind": "training", "seed": seed, "quality": quality, "reached": reached,
                   "up": 4., "down": 8.} for seed, quality in enumerate(qualities)),
                {**of, "kind": "step", "step_ms": step}]

    def test_by_hand(self):
        found = (self.rows("fixed 4 + 8", [.93, .97], 60, 50.) +
                 self.rows("Gloo fp32", [.95, .97]))
        fp32, fixed = rate_train.settings(found)
        self.assertEqual((fp32["way"], fp32["worse"], fp32["seconds"]), ("Gloo fp32", 0, 5))
        self.assertAlmostEqual(fixed["worse"], .01)
        # standard errors of .02 and .01
        self.assertAlmostEqual(fixed["spread"], 2 * (.02**2 + .01**2) ** .5)
        # of the differences .02 and 0, with one degree of freedom
        self.assertAlmostEqual(fixed["noise"], 12.7062 * .01, 5)
        self.assertAlmostEqual(fixed["chance"], .5)
        self.assertEqual((fixed["seconds"], fixed["faster"], fixed["fewer"]), (3, 5 / 3, 1))
        # one pair gives a difference, but no noise
        one, = rate_train.settings(found[1:])[1:]
        self.assertAlmostEqual(one["worse"], 0)
        self.assertNotIn("noise", one)
        # a seed that does not reach the quality
        found[0]["reached"] = None
        self.assertIsNone(rate_train.settings(found)[1]["reached"])
        self.assertNotIn("seconds", rate_train.settings(found)[1])

    def test_the_first_step_that_is_good_enough(self):
        looks = [(5, 100), (10, 89), (15, 95), (20, 80)]
        plan = rate_plans.PLANS["next word"]._replace(enough=90)
        self.assertEqual((plan.reached(looks), plan.worse(95, 90)), (10, 5))
        plan = plan._replace(more=True)
        self.assertEqual((plan.reached(looks), plan.worse(95, 90)), (5, -5))
        self.assertIsNone(plan._replace(enough=101).reached(looks))

    def test_pairs_tell_what_seeds_hide(self):
        """All seeds are worse by about 1, and differ by 10 from each other."""
        found = [row for task in rate_plans.PLANS for way, more in (
            ("Gloo fp32", [0] * 5), ("rate 4", [1, 1.1, .9, 1, 1]), ("rate 3", [0, .1, -.1, 0, 0]))
            for row in self.rows(way, [(-1 if rate_plans.PLANS[task].more else 1) * of + 10 * seed
                                       for seed, of in enumerate(more)], task=task)]
        words = rate_train.summary(found)
        self.assertIn("on all tasks: rate 4, rate 3.", words)
        self.assertIn("no worse than chance has it: rate 3.", words)
        every = "rate 4 (perceptron, convolutions, next word, packages)"
        self.assertIn(f"worse by more than chance: {every}.", words)
        self.assertIn("Of 8 comparisons chance makes 0.4 differ as much; judged all together "
                      f"(Holm) are left: {every}.", words)

    def test_the_lowest_rate_within_the_spread(self):
        found = [row for task in rate_plans.PLANS for way, qualities in (
            ("Gloo fp32", [100, 101]), ("rate 4", [100, 101]), ("rate 3", [100, 102]),
            ("rate 2", [100, 101])) for row in self.rows(way, qualities, task=task)]
        self.assertIn("higher ones are, is 2 bits", rate_train.summary(found))
        for row in found:
            if (row["task"], row["way"]) == ("next word", "rate 2") and "quality" in row:
                row["quality"] += 9
        words = rate_train.summary(found)
        self.assertIn("higher ones are, is 3 bits", words)
        self.assertIn("than seeds differ: rate 2 (next word).", words)
        # a rate does not count if a higher rate is worse
        for row in found:
            if (row["task"], row["way"]) == ("next word", "rate 3") and "quality" in row:
                row["quality"] += 9
            if (row["task"], row["way"]) == ("next word", "rate 2") and "quality" in row:
                row["quality"] -= 9
        self.assertIn("higher ones are, is 4 bits", rate_train.summary(found))
        # a result for one task is none for all tasks
        found = [row for row in found if row["task"] == "perceptron"]
        self.assertIn("on all tasks: nothing.", rate_train.summary(found))

    def test_all_jobs_round_by_one_seed(self):
        self.assertEqual({way.job().get("seed") for way in rate_plans.WAYS}, {rate_plans.JOB_SEED})

    def test_what_is_left_out_is_said(self):
        left = [{"kind": "left out", "task": task, "way": way, "why": "it cannot"}
                for task in rate_plans.PLANS for way in ("rate 3", "rate 2")]
        words = rate_train.summary(self.rows("Gloo fp32", [.9, .95]) + left)
        self.assertIn("Left out: rate 3, rate 2, since it cannot.", words)

    def test_committed(self):
        found = rate_train.settings(run.measured("rate_train"))
        fp32 = {row["task"]: row for row in found if row["way"] == rate_plans.FP32}
        self.assertEqual(set(fp32), set(rate_plans.PLANS))
        for row in found:
            self.assertEqual(row["seeds"], rate_train.SEEDS, row)
            self.assertIsNotNone(row["step_ms"], row)
            # 48 bits in a ring of four ranks; headers come on top
            if row["way"] == rate_plans.FP32:
                self.assertIsNotNone(row["reached"], row)
                self.assertLess(abs(row["up"] / 48 - 1), .1, row)
            if row["way"] == rate_plans.FIXED:
                self.assertLess(abs((row["up"] + row["down"]) / 13.1 - 1), .1, row)
        for task in ("perceptron", "convolutions"):
            self.assertGreater(fp32[task]["quality"], .95)

    def test_what_the_guides_say(self):
        """By pairs, 4 bits are worse than fp32 on one of four tasks, and 12 bits on no task."""
        of = {(row["task"], row["way"]): row for row in
              rate_train.settings(run.measured("rate_train"))}
        worse = {way: [task for task in rate_plans.PLANS if of[task, way]["worse"] > 0 and
                       of[task, way]["differs"]] for way in ("rate 4", "rate 12", rate_plans.FIXED)}
        self.assertEqual(worse, {"rate 4": ["next word"], "rate 12": [], rate_plans.FIXED: []})
        fp32 = of["next word", rate_plans.FP32]["quality"]
        self.assertEqual([f"{100 * of['next word', way]['worse'] / fp32:.1f}"
                          for way in ("rate 8", "rate 4")], ["1.4", "2.6"])


class Pairs(unittest.TestCase):
    """Student's t agrees with published tables."""

    def test_limits(self):
        for degrees, t in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262),
                           (30, 2.042)):
            self.assertAlmostEqual(pairs.limit_of(.05, degrees), t, 3)
            self.assertAlmostEqual(pairs.chance_of(-t, degrees), .05, 3)
        self.assertEqual(pairs.chance_of(0, 4), 1)

    def test_differences(self):
        of = pairs.difference([1, 2, 3])
        self.assertAlmostEqual(of.mean, 2)
        self.assertAlmostEqual(of.noise, 4.3027 / 3 ** .5, 4)
        self.assertFalse(of.is_real())
        self.assertTrue(pairs.difference([-1, -1.1, -.9]).is_real())
        self.assertEqual(pairs.difference([2, 2]), (2, 0, 0))
        self.assertEqual(pairs.difference([0, 0]), (0, 0, 1))

    def test_together(self):
        # Holm: .01 times three, .02 times two, .06 times one
        self.assertEqual(pairs.together({"a": .02, "b": .01, "c": .06}), ["b", "a"])
        self.assertEqual(pairs.together({"a": .02, "b": .02, "c": .02}), [])


class Rounds(unittest.TestCase):
    """The codec without a network: refused arguments, and known means."""

    def test_sums_must_fit(self):
        x = np.ones((9, 64))
        with self.assertRaises(library.LibraryError):
            library.by_table(library.solve(4, 30, 1 / 32), 8, x, 1)
        with self.assertRaises(library.LibraryError):
            library.by_fixed(12, x)
        with self.assertRaises(library.LibraryError):
            library.by_fixed(16, x, exact=True)

    def test_not_finite(self):
        x = np.full((2, 64), np.inf)
        with self.assertRaises(library.LibraryError):
            library.by_table(library.solve(4, 30, 1 / 32), 8, x, 1)
        with self.assertRaises(library.LibraryError):
            library.by_fixed(32, x)

    def test_exact_means(self):
        x = gradients.joined(gradients.lognormals(5000, 3, 1, equal=False))
        mean, lanes = library.by_fixed(32, x, exact=True)
        np.testing.assert_array_equal(mean, x.mean(axis=0, dtype=np.float64).astype(np.float32))
        self.assertGreater(lanes, 1)

    def test_scales_are_of_all_ranks(self):
        small = gradients.normals(5000, 1, 1)[0][0]
        for x in (np.stack([1000 * small, small, small / 1000]),
                  np.stack([small / 1000, small, 1000 * small])):
            exact = x.mean(axis=0, dtype=np.float64).astype(np.float32)
            np.testing.assert_array_equal(library.by_fixed(32, x, exact=True)[0], exact)
            np.testing.assert_allclose(library.by_fixed(32, x)[0], exact, atol=1e-4)

    def test_zero(self):
        for mean in (library.by_fixed(8, np.zeros((4, 5000)))[0],
                     library.by_fixed(32, np.zeros((4, 5000)), exact=True)[0],
                     library.by_table(library.solve(4, 30, 1 / 32), 8, np.zeros((4, 5000)), 1)):
            np.testing.assert_array_equal(mean, np.zeros(5000))

    def test_widths_agree(self):
        x = gradients.joined(gradients.normals(5000, 4, 1, equal=False))
        table = library.solve(2, 3, 1 / 4)
        four = library.by_table(table, 4, x, 1)
        for width in (8, 16, 32):
            np.testing.assert_array_equal(library.by_table(table, width, x, 1), four)

    def test_uniform_by_range(self):
        """Levels cover a block's range, so a block with only its two ends loses nothing."""
        for ends in ((-7, -3), (2, 5), (-1, 1)):
            x = np.tile(np.random.default_rng(1).choice(ends, 4096), (3, 1))
            got = library.by_table(library.uniform(3), 8, x, 1,
                                   form=library.RANGES | library.UNROTATED)
            np.testing.assert_allclose(got, x[0], rtol=1e-6)


class Page(unittest.TestCase):
    def test_shows_what_was_measured(self):
        text = read(run.PAGE)
        self.assertEqual(run.drawn(text), text, "tools/experiments/run.py --draw draws it")
        for name in run.NAMES:
            self.assertEqual(text.count(f"<!-- experiments: {name} -->\n\n| "), 1)
            self.assertIn(f"    make experiments EXPERIMENTS_ARGS={name}\n", text)
            self.assertIn(f"](experiments/{name}.svg)", text)
            self.assertEqual(run.module(name).svg(run.measured(name)),
                             read(run.FOLDER, f"{name}.svg"))

    def test_measured_errors_keep_their_tolerance(self):
        found = [row for row in run.measured("nmse") if row["closed_form"]]
        self.assertLess(nmse.worst(nmse.certain(found)), nmse.TOLERANCE)
        for row in found:
            self.assertLess(abs(row["ratio"] - 1), nmse.TOLERANCE + 3 * (row["sampling"] or 0))
        self.assertEqual({row["bits"] for row in run.measured("nmse")}, set(nmse.BITS))


class Arguments(unittest.TestCase):
    def test_refusals(self):
        for arguments, words in ((("speed",), "there is no experiment speed"),
                                 (("--quick",), "--quick needs --output"),
                                 (("--draw", "--output", "x"), "--draw draws the page"),
                                 (("--seed", "-1"), "--seed is a whole number")):
            done = command(*arguments)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(words, done.stderr)

    def test_without_a_build(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, run.__file__, "tables", "--output", folder],
                                  capture_output=True, text=True, env={**os.environ,
                                                                       "BUILD": folder})
        self.assertEqual(done.returncode, 1)
        self.assertIn("libthc.so is missing: run `make tests`", done.stderr)


if __name__ == "__main__":
    unittest.main()
