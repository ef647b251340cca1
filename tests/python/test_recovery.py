#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Two ranks run examples/train_ddp.py on a transport that does not round, and one
rank loses answers: both ranks repeat these steps, and end with the bits of an
undisturbed run.
"""
import errno
import itertools
import os
import shutil
import sys
import tempfile
import unittest

import rig

sys.path.insert(0, os.path.join(rig.fake.ROOT, "tests/lib"))
import trainers  # noqa: E402  (found through the path above)
from trainers import Trainers, agreed, counted  # noqa: E402

from thc_ddp import ThcClient, ThcError  # noqa: E402  (rig has put the fake in place)

STEPS = 12
WORDS = ["--steps", str(STEPS), "--timeout", "100", "--every", "4"]


def run(*words, fail=None, prepare=None, status=0, **environment):
    """What both ranks print."""
    exchange = tempfile.mkdtemp(prefix="thc-exchange-")

    def prepare_rank(rank):
        os.environ["FAKE_FAIL_AT"] = (fail or {}).get(rank, "")
        if prepare:
            prepare(rank)

    try:
        with Trainers([*WORDS, *words], prepare=prepare_rank, FAKE_EXCHANGE=exchange,
                      FAKE_RANKS="2", THC_JOB="1", THC_KEY_FILE=rig.KEY_FILE,
                      THC_AGGREGATOR="192.0.2.9", **environment) as ranks:
            return ranks.finish(status=status)
    finally:
        shutil.rmtree(exchange)


def no_threshold(_rank):
    """Every parameter goes through THC in all steps, also before DDP rebuilds its buckets."""
    hook = trainers.train_ddp.thc_hook
    trainers.train_ddp.thc_hook = lambda **options: hook(threshold=0, **options)


def no_memory(call):
    """On rank 1 this call of start(), counted from 1, fails for want of memory."""
    def prepare(rank):
        calls, start = itertools.count(1), ThcClient.start

        def starting(*args, **options):
            if next(calls) == call:
                raise ThcError("no memory", errno.ENOMEM)
            return start(*args, **options)

        if rank == 1:
            ThcClient.start = starting

    return prepare


def hook_with(schemes, **options):
    """Give the example's hook these options, too."""
    def prepare(_rank):
        nets, network, hook = [], trainers.train_ddp.network, trainers.train_ddp.thc_hook

        def noting(hidden):
            nets.append(network(hidden))
            return nets[-1]

        trainers.train_ddp.network = noting
        trainers.train_ddp.thc_hook = lambda **given: hook(
            **{**given, "schemes": schemes, "model": nets[-1], **options})

    return prepare


def both(one, other):
    def prepare(rank):
        one(rank)
        other(rank)

    return prepare


class Recovery(unittest.TestCase):
    def setUp(self):
        for name in [n for n in os.environ if n.startswith(("FAKE_", "THC_"))]:
            os.environ.pop(name)

    def test_lost_answers_on_one_rank(self):
        for words in ([], ["--no-error-feedback"]):
            expected = run(*words)
            self.assertGreaterEqual(counted(expected[0])[0], trainers.BUCKETS * (STEPS - 1))
            # a first, a middle and a last bucket; both ranks, in one step and in two
            for fail in ({0: "17"}, {1: "22"}, {1: "25"}, {0: "18", 1: "20"}, {0: "17", 1: "60"},
                         {0: "1"}):
                with self.subTest(words=words, fail=fail):
                    texts = run(*words, fail=fail)
                    self.assertEqual(agreed(texts), agreed(expected), "\n".join(texts))
                    failed = {counted(text)[1] for text in texts}
                    self.assertEqual(len(failed), 1, "the ranks count other steps as failed")
                    self.assertNotEqual(failed, {0}, "nothing has failed")
                    for text in texts:
                        self.assertIn("joining again", text)

    def test_inf_on_one_rank_is_skipped_by_both(self):
        for words in ([], ["--no-error-feedback"]):
            texts = run(*words, prepare=trainers.one_inf(5))
            agreed(texts)
            for text in texts:
                self.assertEqual(counted(text)[1:], (0, 1))

    def assert_recovers(self, prepare):
        """Check for the bits of an undisturbed run after a call that rank 1 cannot start."""
        expected = run(prepare=prepare)
        texts = run("--timeout", "3", prepare=both(prepare, no_memory(30)))
        self.assertEqual(agreed(texts), agreed(expected), "\n".join(texts))
        self.assertIn("failed, joining again: no memory", texts[1])
        self.assertIn("failed, joining again: a rank did not contribute", texts[0])

    def test_what_one_rank_alone_cannot_start_is_no_disagreement(self):
        self.assert_recovers(lambda rank: None)

    def test_what_one_rank_cannot_start_keeps_no_collective_back(self):
        self.assert_recovers(hook_with({"*.bias": "group"}))

    def test_inf_in_the_process_group_is_an_error_that_names_the_rank(self):
        for text in run(prepare=both(hook_with({"4.*": "group"}, nonfinite="raise"),
                                     trainers.one_inf(5))):
            self.assertIn("joining again: the gradient of rank 1 is not finite", text)
            self.assertEqual(counted(text)[1:], (1, 0))

    def test_who_cannot_join_again_ends_with_a_sentence(self):
        for text in run(fail={0: "17"}, status=trainers.ENDED_BY_ERROR, FAKE_BROKEN="1"):
            self.assertIn("ended by ThcError: nobody serves at 192.0.2.9", text)

    def test_checkpoint(self):
        """A run that pauses after two thirds has the bits of a run without a pause."""
        with tempfile.TemporaryDirectory() as folder:
            for words in ([], ["--no-error-feedback"]):
                kept = os.path.join(folder, str(len(words)))
                expected = run(*words, prepare=no_threshold)
                run(*words, "--steps", "8", "--checkpoints", kept, prepare=no_threshold)
                texts = run(*words, "--checkpoints", kept, prepare=no_threshold)
                self.assertIn("goes on after step 8", texts[0])
                self.assertEqual(agreed(texts), agreed(expected))


if __name__ == "__main__":
    unittest.main()
