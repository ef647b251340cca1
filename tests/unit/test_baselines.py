#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tools/baselines: each method has the error, the mean and the bytes of its definition. Seeds are
fixed; a tolerance in percent is for the difference from a closed form.
"""
import math
import os
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("1..0 # SKIP numpy is missing: apt-get install python3-numpy")
    sys.exit(4)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
import baselines  # noqa: E402  (found through the path above)
from baselines import dgc, exchange, halves, qsgd, signsgd, terngrad, topk  # noqa: E402

COUNT = 1 << 17
SEED = 20


def normals(count=COUNT, seed=SEED):
    return np.random.default_rng(seed).standard_normal(count, dtype=np.float32)


def nmse(value, x):
    return (np.square(value.astype(np.float64) - x).sum() /
            np.square(x.astype(np.float64)).sum())


def compressed(method, x, seed=1):
    return method.compress(x, baselines.fresh(seed))


class Baseline(unittest.TestCase):
    def near(self, got, want, percent):
        self.assertLess(abs(got / want - 1), percent / 100, f"{got:.6g}, expected {want:.6g}")

    def unbiased(self, method, x, step, rounds=400, of=None):
        """Check that the mean of many rounds is `of`, by default x; step: the longest of levels.

        The mean may differ by five standard errors, and by four steps of one round, for values that
        are rarely rounded up. A variance is at most step^2 / 4, and at most step |x|.
        """
        of = x if of is None else of
        got = np.mean([compressed(method, x, seed).value for seed in range(rounds)], axis=0,
                      dtype=np.float64)
        allowed = 5 * np.sqrt(np.minimum(step * step / 4, step * abs(of)) / rounds)
        self.assertTrue((abs(got - of) <= allowed + 4 * step / rounds).all())
        # the sum of all differences is smaller still
        self.assertLess(abs(np.sign(of) @ (got - of)) / np.linalg.norm(allowed), 1)


class Halves(Baseline):
    def test_error_is_that_of_uniform_rounding(self):
        for method in (halves.Fp16(), halves.Bf16()):
            sent = compressed(method, normals())
            self.near(nmse(sent.value, normals()), halves.nmse_of_normals(method.mantissa), 3)
            self.assertEqual(sent.bytes, 2 * COUNT)

    def test_closed_form_by_integration(self):
        """E[4^e] of a normal, by a sum over fine steps."""
        a = (np.arange(8 << 16) + .5) / (1 << 16)
        energy = (4.0 ** np.floor(np.log2(a)) * np.exp(-a * a / 2)).sum() / (1 << 16)
        energy *= 2 / math.sqrt(2 * math.pi)
        self.near(halves.nmse_of_normals(10), energy * 4.0 ** -10 / 12, .01)

    def test_bf16_by_hand(self):
        step = 2.0 ** -7
        for x, want in ((1 + step / 2, 1), (1 + 3 * step / 2, 1 + 2 * step),
                        (1 + .51 * step, 1 + step), (-1 - .49 * step, -1), (3.5e38, math.inf),
                        (0, 0), (-0.0, -0.0), (math.inf, math.inf)):
            with np.errstate(over="ignore"):
                got = compressed(halves.Bf16(), np.array([x], dtype=np.float32)).value[0]
            self.assertEqual((got, math.copysign(1, got)), (want, math.copysign(1, want)), x)
        for payload in (1, 0x7fffff, 0x400000):
            nan = np.array([0x7f800000 | payload], dtype=np.uint32).view(np.float32)
            self.assertTrue(np.isnan(compressed(halves.Bf16(), nan).value[0]))

    def test_fp16_overflows(self):
        x = np.array([65504, 65520, -1e6, 2.0 ** -24], dtype=np.float32)
        self.assertEqual(list(compressed(halves.Fp16(), x).value),
                         [65504, math.inf, -math.inf, 2.0 ** -24])


class TopK(Baseline):
    def test_error_of_a_tenth(self):
        sent = compressed(topk.TopK(.1), normals())
        self.near(nmse(sent.value, normals()), 1 - .439, 3)
        self.assertEqual(sent.bytes, 8 * math.ceil(.1 * COUNT))

    def test_the_largest_as_they_are(self):
        x = np.array([1, -5, 2, 0, 4, -3], dtype=np.float32)
        self.assertEqual(list(compressed(topk.TopK(.5), x).value), [0, -5, 0, 0, 4, -3])

    def test_of_equal_ones_as_many_as_wanted(self):
        x = np.array([1, -1, 2, 1, -1, 1], dtype=np.float32)
        self.assertEqual(list(topk.largest(x, .5)), [0, 1, 2])
        self.assertEqual(list(topk.largest(x, 1)), list(range(6)))
        self.assertEqual(list(topk.largest(x, .001)), [2])

    def test_memory_gives_back_what_was_not_sent(self):
        method, state = topk.TopK(.1, memory=True), baselines.fresh(1)
        sent = sum(method.compress(normals(1000, seed), state).value.astype(np.float64)
                   for seed in range(30))
        given = sum(normals(1000, seed).astype(np.float64) for seed in range(30))
        np.testing.assert_allclose(sent + state["memory"], given, atol=1e-4)
        self.assertGreater(abs(state["memory"]).max(), .1)
        self.assertNotIn("memory", topk.TopK(.1).name)


class Dgc(Baseline):
    """Two coordinates: the larger one is sent."""

    def rounds(self, method, *gradients, **state):
        state.update(baselines.fresh(1))
        return [list(method.compress(np.array(g, dtype=np.float32), state).value)
                for g in gradients], state

    def test_momentum_correction_and_masking_by_hand(self):
        # velocity 1 .5, waiting 1 .5: the first is sent, and stops
        # velocity 1 .75, waiting 1 1.25: the second, and stops
        # velocity .5 0, waiting 1.5 0: the first again
        got, state = self.rounds(dgc.Dgc(.5, momentum=.5), [1, .5], [1, .5], [0, 0])
        self.assertEqual(got, [[1, 0], [0, 1.25], [1.5, 0]])
        self.assertEqual(list(state["velocity"]), [0, 0])
        self.assertEqual(list(state["waiting"]), [0, 0])

    def test_everything_sent_is_plain_gradient(self):
        got, _ = self.rounds(dgc.Dgc(1, momentum=.9), [1, 2], [3, 4])
        self.assertEqual(got, [[1, 2], [3, 4]])

    def test_without_momentum_it_is_topk_with_memory(self):
        method, other = dgc.Dgc(.1, momentum=0), topk.TopK(.1, memory=True)
        mine, its = baselines.fresh(1), baselines.fresh(1)
        for seed in range(5):
            x = normals(1000, seed)
            np.testing.assert_array_equal(method.compress(x, mine).value,
                                          other.compress(x, its).value)

    def test_sparsity(self):
        sent = compressed(dgc.Dgc(.01), normals())
        self.assertEqual(np.count_nonzero(sent.value), math.ceil(.01 * COUNT))
        self.assertEqual(sent.bytes, 8 * math.ceil(.01 * COUNT))
        for epoch, want in enumerate((.25, .0625, .015625, .01, .01)):
            self.assertEqual(dgc.ratio_of_epoch(.01, epoch), want)
        for epoch, want in ((0, 2), (9, 1)):
            got, _ = self.rounds(dgc.Dgc(.01), [4, 3, 2, 1, 8, 7, 6, 5], epoch=epoch)
            self.assertEqual(np.count_nonzero(got[0]), want)

    def test_clipped_to_a_share_of_the_norm(self):
        got, _ = self.rounds(dgc.Dgc(1, clip=1, workers=4), [3, 4], [.03, .04], [0, 0])
        np.testing.assert_allclose(got, [[.3, .4], [.03, .04], [0, 0]], rtol=1e-6)


class TernGrad(Baseline):
    def test_unbiased(self):
        x = normals(2000)
        self.unbiased(terngrad.TernGrad(), x, abs(x).max())
        limit = 1.5 * x.std()
        self.unbiased(terngrad.TernGrad(clip=1.5), x, limit, of=np.clip(x, -limit, limit))

    def test_error(self):
        x = normals()
        sent = compressed(terngrad.TernGrad(), x)
        self.near(nmse(sent.value, x), terngrad.nmse(x), 3)
        self.near(terngrad.nmse(x), abs(x).max() * math.sqrt(2 / math.pi) - 1, 1)
        self.assertEqual(sent.bytes, COUNT / 4 + 4)

    def test_three_values(self):
        x = normals(1000)
        self.assertEqual(set(np.unique(compressed(terngrad.TernGrad(), x).value)),
                         {-abs(x).max(), 0, abs(x).max()})
        self.assertEqual(list(compressed(terngrad.TernGrad(), np.zeros(3, np.float32)).value),
                         [0, 0, 0])


class Qsgd(Baseline):
    def test_unbiased(self):
        x = normals(1950)
        self.unbiased(qsgd.Qsgd(4, 100), x, 12 / 7)     # norms are below 12
        self.unbiased(qsgd.Qsgd(4, 100, "max"), x, abs(x).max() / 7)

    def test_variance_below_the_lemma(self):
        for bits in (2, 4, 8):
            method = qsgd.Qsgd(bits, 512)
            error = nmse(compressed(method, normals()).value, normals())
            self.assertLess(error, method.bound(512))
            # sqrt(d) / s E|a| - 1 where steps are longer than any coordinate
            if bits == 2:
                self.near(error, math.sqrt(512) * math.sqrt(2 / math.pi) - 1, 3)

    def test_levels_and_bytes(self):
        method = qsgd.Qsgd(3, 4)
        x = np.array([3, 4, 0, 0, 0, 0, 0, 0, 7], dtype=np.float32)
        sent = compressed(method, x)
        unit = np.array([5 / 3] * 4 + [1] * 4 + [7 / 3], dtype=np.float32)
        np.testing.assert_allclose(sent.value / unit, np.round(sent.value / unit), atol=1e-5)
        self.assertEqual(list(sent.value[4:]), [0, 0, 0, 0, 7])
        self.assertEqual(sent.bytes, 4 + 3 * 4)     # 27 bits; three norms

    def test_of_largest_magnitudes_is_uniform_rounding(self):
        """The error is step^2 / 6 where steps are much smaller than coordinates."""
        x = normals()
        steps = abs(x.reshape(-1, 512)).max(axis=1) / 127
        error = nmse(compressed(qsgd.Qsgd(8, 512, "max"), x).value, x)
        self.near(error, (steps ** 2).mean() / 6, 3)

    def test_scale_is_known(self):
        self.assertRaises(ValueError, qsgd.Qsgd, 4, 512, "mean")


class SignSgd(Baseline):
    def test_error(self):
        sent = compressed(signsgd.SignSgd(), normals())
        self.near(nmse(sent.value, normals()), 1 - 2 / math.pi, 3)
        self.assertEqual(sent.bytes, COUNT / 8 + 4)

    def test_sign_and_scale(self):
        x = np.array([1, -2, 3, 0], dtype=np.float32)
        self.assertEqual(list(compressed(signsgd.SignSgd(), x).value), [1.5, -1.5, 1.5, 1.5])

    def test_memory(self):
        method, state = signsgd.SignSgd(memory=True), baselines.fresh(1)
        sent = sum(method.compress(normals(100, seed), state).value for seed in range(9))
        given = sum(normals(100, seed) for seed in range(9))
        np.testing.assert_allclose(sent + state["memory"], given, atol=1e-4)


class Exchange(Baseline):
    def test_mean_and_bytes(self):
        gradients = [[np.array([4, 1, 0, 0], np.float32), np.array([2], np.float32)],
                     [np.array([1, 8, 0, 0], np.float32), np.array([4], np.float32)]]
        mean, up, down = exchange.exchange(dgc.Dgc(.25), gradients, exchange.states(2, 2, 1))
        self.assertEqual([list(layer) for layer in mean], [[2, 4, 0, 0], [3]])
        self.assertEqual((up, down), (16, 16 + 4))
        mean, up, down = exchange.exchange(dgc.Dgc(.25), gradients, exchange.states(2, 2, 1),
                                           both_ways=True)
        self.assertEqual([list(layer) for layer in mean], [[0, 4, 0, 0], [3]])
        self.assertEqual((up, down), (16, 16))

    def test_one_threshold_for_all_layers(self):
        gradients = [[np.array([4, 1, 3], np.float32), np.array([2], np.float32)],
                     [np.array([1, 8, 5], np.float32), np.array([4], np.float32)]]
        mean, up, down = exchange.exchange(topk.TopK(.5), gradients, exchange.states(2, 2, 1))
        self.assertEqual([list(layer) for layer in mean], [[2, 4, 4], [0]])
        self.assertEqual((up, down), (16, 16))
        mean, up, down = exchange.exchange(topk.TopK(.5), gradients, exchange.states(2, 2, 1),
                                           both_ways=True)
        self.assertEqual([list(layer) for layer in mean], [[0, 4, 4], [0]])

    def test_messages_go_down_as_they_came(self):
        """Two messages of a byte and a scale go down, and not the longer mean of 8 floats."""
        x = np.ones(8, np.float32)
        _, up, down = exchange.exchange(signsgd.SignSgd(), [[x]] * 2, exchange.states(1, 2, 1))
        self.assertEqual((up, down), (5, 10))

    def test_workers_round_on_their_own(self):
        x = normals()
        mean, _, _ = exchange.exchange(terngrad.TernGrad(), [[x]] * 4, exchange.states(1, 4, 1))
        self.near(nmse(mean[0], x), terngrad.nmse(x) / 4, 3)

    def test_a_seed_repeats(self):
        x = normals(5000)
        for method in baselines.methods().values():
            one, two = (compressed(method, x) for _ in range(2))
            np.testing.assert_array_equal(one.value, two.value, method.name)
            self.assertEqual((one.value.dtype, one.value.shape), (x.dtype, x.shape))
            np.testing.assert_array_equal(x, normals(5000), method.name)

    def test_names_are_different(self):
        self.assertEqual(len(baselines.methods()), 12)


if __name__ == "__main__":
    unittest.main()
