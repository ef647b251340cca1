#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""examples/train_ddp.py by two ranks on a transport that does not round, with
answers that get lost on one of them: all ranks do the same steps again, and
end with the bits of an undisturbed run.
"""
import contextlib
import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
import traceback
import unittest

import rig
import torch
import torch.distributed as dist

spec = importlib.util.spec_from_file_location(
    "train_ddp", os.path.join(rig.fake.ROOT, "examples/train_ddp.py"))
train_ddp = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train_ddp)

RANKS = 2
STEPS = 12
# 8 blocks of a bucket each
SMALL = ["--hidden", "80", "--bucket-mb", "0.02", "--steps", str(STEPS), "--timeout", "30",
         "--every", "4"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rank_main(rank, environment, prepare, words):
    """A rank's process after its fork: what it prints goes to stdout."""
    os.environ.update(environment, RANK=str(rank))
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if prepare:
        prepare(rank)
    stats = train_ddp.train(train_ddp.arguments(words), rank, RANKS)
    print("stats", stats["buckets_thc"], stats["steps_failed"], stats["steps_nonfinite"])


def run(*words, fail=None, prepare=None, folder=None, **environment):
    """Both ranks from a fork each: what each printed, by rank, and their exit statuses."""
    exchange = folder or tempfile.mkdtemp(prefix="thc-exchange-")
    port = free_port()
    files = [tempfile.TemporaryFile("w+") for _ in range(RANKS)]
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if not child:
            status = 1
            os.dup2(files[rank].fileno(), 1)
            os.dup2(files[rank].fileno(), 2)
            with contextlib.suppress(BaseException):    # nothing returns into the test
                try:
                    rank_main(rank, {
                        "FAKE_EXCHANGE": exchange, "FAKE_RANKS": str(RANKS), "THC_JOB": "1",
                        "FAKE_FAIL_AT": (fail or {}).get(rank, ""), "THC_COOKIE": "0x77",
                        "THC_AGGREGATOR": "192.0.2.9", "WORLD_SIZE": str(RANKS),
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environment},
                        prepare, [*SMALL, *words])
                    status = 0
                except train_ddp.ThcError as error:
                    print(f"ended by ThcError: {error}")
                    status = 3
                except BaseException:
                    traceback.print_exc()
                sys.stdout.flush()
            os._exit(status)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    shutil.rmtree(exchange)
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read())
        file.close()
    return texts, statuses


def no_threshold(_rank):
    """Every parameter goes through THC in all steps, also before DDP rebuilds its buckets."""
    hook = train_ddp.thc_hook
    train_ddp.thc_hook = lambda **options: hook(threshold=0, **options)


def weights(text):
    return re.search(r"(\d+) steps, loss (\S+), weights (\S+)", text).groups()


class Recovery(unittest.TestCase):
    def setUp(self):
        for name in [n for n in os.environ if n.startswith(("FAKE_", "THC_"))]:
            os.environ.pop(name)

    def good(self, *words, **options):
        texts, statuses = run(*words, **options)
        self.assertEqual(statuses, [0] * RANKS, "\n".join(texts))
        self.assertEqual(weights(texts[0])[2], weights(texts[1])[2], "the ranks' weights differ")
        return texts

    def test_lost_answers_on_one_rank(self):
        for words in ([], ["--no-error-feedback"]):
            expected = self.good(*words)
            started = int(re.search(r"stats (\d+)", expected[0])[1])
            self.assertGreaterEqual(started, 8 * (STEPS - 1), "fewer than 8 buckets")
            # a first, a middle and a last bucket; both ranks, in one step and in two
            for fail in ({0: "17"}, {1: "22"}, {1: "25"}, {0: "18", 1: "20"}, {0: "17", 1: "60"},
                         {0: "1"}):
                with self.subTest(words=words, fail=fail):
                    texts = self.good(*words, fail=fail)
                    self.assertEqual(weights(texts[0]), weights(expected[0]), "\n".join(texts))
                    failed = {re.search(r"stats \d+ (\d+)", text)[1] for text in texts}
                    self.assertEqual(len(failed), 1, "the ranks count other steps as failed")
                    self.assertNotEqual(failed, {"0"}, "nothing has failed")
                    self.assertIn("joining again", texts[0])
                    self.assertIn("joining again", texts[1])

    def test_inf_on_one_rank_is_skipped_by_both(self):
        def one_inf(rank):
            """Rank 1's fifth gradient of a layer."""
            made = train_ddp.network

            def network(hidden):
                net, count = made(hidden), [0]

                def hook(grad):
                    count[0] += 1
                    return grad * float("inf") if rank == 1 and count[0] == 5 else grad

                net[3].linear.weight.register_hook(hook)
                return net

            train_ddp.network = network

        for words in ([], ["--no-error-feedback"]):
            texts = self.good(*words, prepare=one_inf)
            for text in texts:
                self.assertRegex(text, r"stats \d+ 0 1\n")

    def test_who_cannot_join_again_ends_with_a_sentence(self):
        texts, statuses = run(fail={0: "17"}, FAKE_BROKEN="1")
        self.assertEqual(statuses, [3] * RANKS, "\n".join(texts))
        for text in texts:
            self.assertIn("ended by ThcError: nobody serves at 192.0.2.9", text)

    def test_checkpoint(self):
        """Ended after two thirds and started again: the bits of a run without a pause."""
        with tempfile.TemporaryDirectory() as folder:
            for words in ([], ["--no-error-feedback"]):
                kept = os.path.join(folder, str(len(words)))
                expected = self.good(*words, prepare=no_threshold)
                self.good(*words, "--steps", "8", "--checkpoints", kept, prepare=no_threshold)
                texts = self.good(*words, "--checkpoints", kept, prepare=no_threshold)
                self.assertIn("goes on after step 8", texts[0])
                self.assertEqual(weights(texts[0]), weights(expected[0]))


if __name__ == "__main__":
    unittest.main()
