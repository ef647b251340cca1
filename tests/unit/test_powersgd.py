#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tools/baselines/powersgd.py against its definition in floats of 64 bits: errors, memories, bytes,
and agreement of the ranks.
"""
import os
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("1..0 # SKIP numpy is missing: apt-get install python3-numpy")
    sys.exit(4)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from baselines import powersgd  # noqa: E402  (found through the path above)

SEED = 11


def normals(shape, *seed):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def step(ranks, gradients):
    """[each rank's result]: the ranks' generators run in turns, and get equal means."""
    runs = [rank.exchange(of) for rank, of in zip(ranks, gradients)]
    sent, ended = [next(run) for run in runs], []
    while not ended:
        mean, sent = np.mean(sent, axis=0, dtype=np.float64).astype(np.float32), []
        for run in runs:
            try:
                sent.append(run.send(mean))
            except StopIteration as end:
                ended.append(end.value)
    assert len(ended) == len(runs) and not sent, "ranks do not end together"
    return ended


def alone(rank, matrix):
    return step([rank], [{"m": matrix}])[0]["m"]


def norm(x):
    return np.linalg.norm(x.astype(np.float64))


class Definition:
    """Algorithms 1 and 2 in floats of 64 bits, for one matrix of each rank, with another method to
    make P orthogonal.
    """

    def __init__(self, ranks, columns):
        self.q = np.random.default_rng(SEED).standard_normal((columns, 2), dtype=np.float32)
        self.errors = [0] * ranks

    def step(self, matrices):
        owed = [m.astype(np.float64) + error for m, error in zip(matrices, self.errors)]
        p, _ = np.linalg.qr(np.mean([m @ self.q for m in owed], axis=0))
        own = [m.T @ p for m in owed]
        self.errors = [m - p @ q.T for m, q in zip(owed, own)]
        # another basis of the same columns: the next P has the same columns, too
        self.q = np.mean(own, axis=0)
        return p @ self.q.T


class PowerSgd(unittest.TestCase):
    def test_is_its_definition(self):
        shape, count = (40, 30), 3
        ranks, plain = [powersgd.PowerSgd(seed=SEED) for _ in range(count)], Definition(count, 30)
        for number in range(6):
            matrices = [normals(shape, number, rank) for rank in range(count)]
            got = step(ranks, [{"m": m} for m in matrices])
            np.testing.assert_allclose(got[0]["m"], plain.step(matrices), atol=2e-5)
            for rank, error in zip(ranks, plain.errors):
                np.testing.assert_allclose(rank.errors["m"], error, atol=2e-5)

    def test_matrices_of_rank_two_are_exact(self):
        left, right = normals((2, 50, 2), 1), normals((2, 30), 2)
        ranks = [powersgd.PowerSgd() for _ in left]
        got = step(ranks, [{"m": a @ right} for a in left])
        mean = np.mean(left, axis=0) @ right
        self.assertLess(norm(got[0]["m"] - mean), 1e-5 * norm(mean))
        # a matrix of rank one
        x = np.outer(normals(50, 3), normals(30, 4))
        self.assertLess(norm(alone(powersgd.PowerSgd(), x) - x), 1e-5 * norm(x))
        x = normals((50, 30), 5)
        self.assertGreater(norm(alone(powersgd.PowerSgd(), x) - x), .5 * norm(x))

    def test_what_is_lost_is_kept(self):
        ranks = [powersgd.PowerSgd() for _ in range(2)]
        given, got = 0, 0
        for number in range(20):
            matrices = [normals((30, 20), number, rank) for rank in range(2)]
            given = given + np.mean(matrices, axis=0, dtype=np.float64)
            got = got + step(ranks, [{"m": m} for m in matrices])[0]["m"].astype(np.float64)
        kept = np.mean([rank.errors["m"] for rank in ranks], axis=0)
        np.testing.assert_allclose(got + kept, given, atol=1e-4)
        self.assertGreater(norm(kept), 1)

    def test_warm_start_finds_the_largest(self):
        """Steps on one matrix without a memory are those of the power method."""
        x, rank = normals((30, 20), 1), powersgd.PowerSgd()
        u, s, v = np.linalg.svd(x)
        best = (u[:, :2] * s[:2]) @ v[:2]
        distances = []
        for _ in range(60):
            distances.append(norm(alone(rank, x) - best) / norm(best))
            rank.errors.clear()
        self.assertGreater(distances[0], .3)
        self.assertLess(distances[-1], .01)

    def test_vectors_and_small_matrices_go_as_they_are(self):
        shapes = {"vector": (1000,), "small": (4, 4), "thin": (100, 2), "one": (1, 30), "scalar": ()}
        gradients = [{key: normals(shape, rank) for key, shape in shapes.items()}
                     for rank in range(2)]
        ranks = [powersgd.PowerSgd() for _ in range(2)]
        got = step(ranks, gradients)[1]
        for key, shape in shapes.items():
            mean = np.mean([of[key] for of in gradients], axis=0, dtype=np.float64)
            np.testing.assert_array_equal(got[key], mean.astype(np.float32))
            self.assertEqual(got[key].shape, shape)
        self.assertEqual((ranks[0].errors, ranks[0].bytes), ({}, 4 * (1000 + 16 + 200 + 30 + 1)))

    def test_bytes(self):
        rank = powersgd.PowerSgd(rank=3)
        gradients = {"bias": normals(7, 1), "filters": normals((8, 4, 5, 5), 2)}
        sent = []
        run = rank.exchange(gradients)
        sent.append(next(run))
        sent.append(run.send(sent[0]))
        self.assertEqual([x.size for x in sent], [3 * 8 + 7, 3 * 100])
        self.assertEqual({x.dtype for x in sent}, {np.dtype(np.float32)})
        self.assertEqual(rank.bytes, 4 * (3 * 108 + 7))
        with self.assertRaises(StopIteration) as end:
            run.send(sent[1])
        self.assertEqual(end.exception.value["filters"].shape, (8, 4, 5, 5))

    def test_several_dimensions_are_a_matrix(self):
        x = normals((8, 4, 5, 5), 1)
        flat = alone(powersgd.PowerSgd(seed=SEED), x.reshape(8, 100))
        np.testing.assert_array_equal(alone(powersgd.PowerSgd(seed=SEED), x), flat.reshape(x.shape))

    def test_ranks_agree_bit_for_bit(self):
        shapes = {"m": (40, 30), "filters": (16, 3, 3, 3), "bias": (40,)}
        ranks = [powersgd.PowerSgd() for _ in range(2)]
        for number in range(5):
            one, other = step(ranks, [{key: normals(shape, number, rank)
                                       for key, shape in shapes.items()} for rank in range(2)])
            for key in shapes:
                np.testing.assert_array_equal(one[key].view(np.uint32), other[key].view(np.uint32))
        self.assertGreater(norm(ranks[0].errors["m"] - ranks[1].errors["m"]), 1)

    def test_zeros_are_survived(self):
        ranks = [powersgd.PowerSgd() for _ in range(2)]
        zero, x = np.zeros((40, 30), np.float32), normals((40, 2), 1) @ normals((2, 30), 2)
        for got in step(ranks, [{"m": zero}] * 2):
            np.testing.assert_array_equal(got["m"], zero)
        np.testing.assert_array_equal(ranks[0].errors["m"], zero)
        got = step(ranks, [{"m": x}] * 2)[1]["m"]
        self.assertLess(norm(got - x), 1e-5 * norm(x))

    def test_a_direction_that_comes_later_is_found(self):
        """A gradient of rank one leaves a Q with a single direction."""
        rank, x = powersgd.PowerSgd(), normals((40, 2), 1) @ normals((2, 30), 2)
        alone(rank, np.outer(x[:, 0], x[0]))
        got = alone(rank, x) + alone(rank, x)
        self.assertLess(norm(got - 2 * x), 1e-4 * norm(x))

    def test_gradients_stay_as_they_are(self):
        x = normals((40, 30), 1)
        alone(powersgd.PowerSgd(), x)
        np.testing.assert_array_equal(x, normals((40, 30), 1))


if __name__ == "__main__":
    unittest.main()
