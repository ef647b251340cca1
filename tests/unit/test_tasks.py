#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The tasks of the demo and of experiments: their files, batches of ranks, which differ and have no
held-out pair, seeds, which repeat and differ, and models, which learn.
"""
import importlib.util
import os
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))

if not importlib.util.find_spec("torch"):
    print("1..0 # SKIP torch is missing: apt-get install python3-torch")
    sys.exit(4)
if not importlib.util.find_spec("sklearn"):
    print("1..0 # SKIP sklearn is missing: apt-get install python3-sklearn")
    sys.exit(4)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from tasks import digits, lm, ncf, words  # noqa: E402
from tasks.task import TaskError  # noqa: E402

STANZAS = """\
Package: b
Version: 1
Depends: libc6 (>= 2.34), python3:any (<< 3.12) | python2, a
Suggests: c
Description: none
 Depends: on nothing

Package: a
Pre-Depends: dpkg (>= 1.15)
Recommends: libc6

Package: alone
"""


def packages(count=1500, groups=30):
    """Packages that depend on three of the five names of their group, and one on one name alone."""
    lines = ["Package: p9999\n", "Depends: only\n"]
    for i in range(count):
        names = ", ".join(f"n{i % groups}.{(i // groups + j) % 5}" for j in range(3))
        lines += [f"Package: p{i:04}\n", f"Depends: {names}\n"]
    return lines


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


class Group(unittest.TestCase):
    """A process group of one rank, which measures the quality."""

    @classmethod
    def setUpClass(cls):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        torch.set_num_threads(1)

    @classmethod
    def tearDownClass(cls):
        dist.destroy_process_group()

    def learns(self, task, steps, sparse=True):
        """(quality before, quality after)"""
        model, batches = task.model(sparse=sparse), task.batches(0, 1)
        optimizer, before = task.optimizer(model), task.quality(model, 0, 1)
        for _ in range(steps):
            optimizer.zero_grad()
            task.loss(model, next(batches)).backward()
            optimizer.step()
        return before, task.quality(model, 0, 1)

    def seeds_differ(self, make):
        """Parameters and batches follow from the seed, and held-out data does not."""
        def of(seed, rank=0):
            task = make()
            task.seed = seed
            return list(task.model().parameters()), next(task.batches(rank, 2))

        for model, batch in (of(0), of(1)):
            self.assertFalse(any(equal(*pair) for pair in ((model, of(2)[0]), (batch, of(2)[1]))))
        self.assertTrue(equal(of(1)[0], of(1)[0]) and equal(of(1)[1], of(1)[1]))
        self.assertTrue(equal(of(1)[0], of(1, rank=1)[0]))
        self.assertFalse(equal(of(1)[1], of(1, rank=1)[1]) or equal(of(1)[1], of(0, rank=1)[1]))

    def ignores_rounding(self, task):
        """Tiny gradients, which rounding may leave in place of zeros, move no parameter."""
        model = task.model()
        before = [p.detach().clone() for p in model.parameters()]
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-11)
        task.optimizer(model).step()
        for parameter, old in zip(model.parameters(), before):
            self.assertLess((parameter - old).abs().max(), 1e-5)

    def same_gradients(self, task):
        """Dense and sparse gradients are equal, with the rows that the task names for a batch."""
        batch, grads = next(task.batches(0, 1)), []
        for sparse in (False, True):
            model = task.model(sparse)
            task.loss(model, batch).backward()
            grads.append({name: model.get_parameter(name).grad for name in task.rows})
        for name, (rows, width) in task.rows.items():
            dense, sparse = grads[0][name], grads[1][name].coalesce()
            self.assertEqual(tuple(dense.shape), (rows, width))
            torch.testing.assert_close(sparse.to_dense(), dense)
            self.assertEqual(sparse.indices().shape[1], task.touched(batch)[name])
            self.assertLess(sparse.indices().shape[1], rows)


class Packages(Group):
    def test_pairs(self):
        names, pairs = ncf.pairs_of(STANZAS.splitlines(keepends=True))
        self.assertEqual(names, ["a", "alone", "b"])
        self.assertEqual(pairs, [("a", "dpkg"), ("a", "libc6"), ("b", "a"), ("b", "libc6"),
                                 ("b", "python3")])

    def test_one_pair_of_each_is_held_out(self):
        task = ncf.Packages(packages())
        self.assertEqual(task.test[:, 0].unique().tolist(), list(range(1500)))
        self.assertEqual(len(task.test), 1500)
        self.assertEqual(len(task.pairs), 2 * 1500 + 1)
        known = set(map(tuple, task.pairs.tolist()))
        self.assertFalse(known & set(map(tuple, task.test.tolist())))

    def test_batches(self):
        task = ncf.Packages(packages())
        per_epoch = len(task.pairs) // (3 * ncf.BATCH)
        seen = []
        for rank in range(3):
            batches, again = task.batches(rank, 3), task.batches(rank, 3)
            for _ in range(per_epoch):
                users, items, labels = next(batches)
                self.assertTrue(equal((users, items, labels), next(again)))
                self.assertEqual(users.shape, (ncf.BATCH, 1 + ncf.NEGATIVES))
                self.assertEqual(labels.sum(), ncf.BATCH)
                seen += zip(users[:, 0].tolist(), items[:, 0].tolist())
        self.assertEqual(len(seen), len(set(seen)))
        self.assertLessEqual(set(seen), set(map(tuple, task.pairs.tolist())))

    def test_gradients(self):
        self.same_gradients(ncf.Packages(packages(3000, 600)))
        self.ignores_rounding(ncf.Packages(packages()))

    def test_learns(self):
        before, after = self.learns(ncf.Packages(packages()), 80)
        self.assertLess(before, .2)     # a tenth is chance
        self.assertGreater(after, .5)

    def test_seeds_and_hash(self):
        one, other = ncf.Packages(packages()), ncf.Packages(packages())
        self.assertTrue(equal((one.pairs, one.test, one.rivals),
                              (other.pairs, other.test, other.rivals)))
        self.assertTrue(equal(one.model().parameters(), other.model(True).parameters()))
        self.assertEqual(one.sha256, other.sha256)
        self.assertNotEqual(one.sha256, ncf.Packages(packages(1499)).sha256)

    def test_seeds_differ(self):
        self.seeds_differ(lambda: ncf.Packages(packages()))
        task, other = ncf.Packages(packages()), ncf.Packages(packages())
        other.seed = 3
        self.assertTrue(equal((task.pairs, task.test), (other.pairs, other.test)))

    def test_narrow(self):
        task = ncf.Packages(packages(), width=8)
        self.assertEqual({tuple(p.shape) for p in task.model().parameters()},
                         {(1501, 8), (151, 8), (32, 24), (32,), (1, 32), (1,)})
        self.assertGreater(self.learns(task, 80)[1], .3)

    def test_agree(self):
        for kind, one, near, far in ((ncf.Packages, .7, .71, .75), (lm.Definitions, 900, 920, 990)):
            self.assertTrue(kind.agree(one, near) and kind.agree(near, one))
            self.assertFalse(kind.agree(one, far) or kind.agree(far, one))

    def test_without_lists(self):
        lists, ncf.available = ncf.available, packages
        try:
            with self.assertRaisesRegex(TaskError, "4501 dependencies only: apt-get update"):
                ncf.Packages()
        finally:
            ncf.available = lists


class Definitions(Group):
    TEXTS = [f"a {kind} of {colour}; \"it is {colour}'s\"" for kind in ("cat", "dog", "owl", "elk")
             for colour in ("red", "green", "blue", "grey", "pink")] * 50

    def test_words(self):
        texts = ["a b, a", "c 12"]
        task = lm.Definitions(texts)
        words = lm.vocabulary([lm._TOKEN.findall(text) for text in texts])
        self.assertEqual(words, ["<rare>", "<end>", "a"])
        self.assertEqual(task.rows["words.weight"], (3, lm.WORDS))
        # all words and marks of each text, and its end
        self.assertEqual(sorted(task.stream.tolist()), [0] * 4 + [1] * 2 + [2] * 2)
        self.assertEqual(lm._TOKEN.findall("it's (x-1)."), ["it's", "(", "x", "1", ")", "."])

    def test_batches(self):
        task = lm.Definitions(self.TEXTS)
        own = []
        for rank in range(2):
            batches, again = task.batches(rank, 2), task.batches(rank, 2)
            tokens, candidates = next(batches)
            self.assertTrue(equal((tokens, candidates), next(again)))
            self.assertEqual(candidates.shape, (lm.ROWS * lm.LENGTH, 1 + lm.NEGATIVES))
            # the first candidate is the next word
            follow = candidates[:, 0].view(lm.ROWS, lm.LENGTH)
            self.assertTrue(torch.equal(tokens[:, 1:], follow[:, :-1]))
            own.append(candidates[:, 1:])
        self.assertFalse(torch.equal(*own))

    def test_gradients(self):
        texts = [f"{word} " * 3 for word in map("{:x}".format, range(4000))]
        self.same_gradients(lm.Definitions(texts))
        self.ignores_rounding(lm.Definitions(texts))

    def test_learns(self):
        before, after = self.learns(lm.Definitions(self.TEXTS), 8)
        self.assertGreater(before, 10)
        self.assertLess(after, before / 2)

    def test_reads_glosses(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(TaskError, "data.adj is missing: apt-get install wordnet"):
                lm.glosses(folder)
            for name in lm.FILES:
                with open(os.path.join(folder, name), "w", encoding="ascii") as f:
                    f.write(f"  1 license\n00001740 00 s 01 able 0 | {name} of it; \"so\"  \n")
            self.assertEqual(lm.glosses(folder), [f"{name} of it; \"so\"" for name in lm.FILES])


class NextWord(Group):
    def test_frequent_words_alone_are_known(self):
        task = words.NextWord(["a a a b b b c c"] * 40, most=4)
        self.assertEqual((task.words, task.stream[:9].tolist()), (4, 3 * [2] + 3 * [3] + [0, 0, 1]))

    def test_batches(self):
        task = words.NextWord(Definitions.TEXTS)
        tokens, after = next(task.batches(1, 2))
        self.assertEqual(tokens.shape, (words.ROWS, words.LENGTH))
        self.assertTrue(torch.equal(tokens[:, 1:], after[:, :-1]))
        self.seeds_differ(lambda: words.NextWord(Definitions.TEXTS))

    def test_learns(self):
        before, after = self.learns(words.NextWord(Definitions.TEXTS), 30, sparse=False)
        self.assertGreater(before, 10)
        self.assertLess(after, before / 3)


class Digits(Group):
    KINDS = (lambda: digits.Digits(64), lambda: digits.Convolutions(16))

    def test_learns(self):
        for make in self.KINDS:
            before, after = self.learns(make(), 80, sparse=False)
            self.assertLess(before, .3)
            self.assertGreater(after, .85)

    def test_seeds_differ(self):
        for make in self.KINDS:
            self.seeds_differ(make)


del Group   # unittest would run it
if __name__ == "__main__":
    unittest.main()
