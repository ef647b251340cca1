#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What the DDP hook takes from arguments, from the environment and from the
process group, what it says of it, and what a checkpoint holds: no secret.
"""
import contextlib
import io
import os
import pickle
import tempfile
import unittest
from unittest import mock

import rig
import torch
from rig import Bucket, state

from thc_ddp import ThcError, client, hook, thc_hook

SECRET = 0x5eed5eed12345678


@contextlib.contextmanager
def joining():
    """What the next client is opened with."""
    opened = {}

    def noting(**options):
        opened.update((name, options[name]) for name in
                      ("aggregator", "job", "cookie", "rank", "interface"))
        return client.ThcClient(**options)

    with mock.patch.object(hook, "ThcClient", noting):
        yield opened


class Environment(rig.HookTest):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.environ.update(THC_AGGREGATOR="192.0.2.9", THC_JOB="3", THC_COOKIE=hex(SECRET))

    def join(self, **options):
        """The options that a client was opened with, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), joining() as opened:
            s, hook = thc_hook(**options)
            self.assertIsNone(s.client, "thc_hook() must not join yet")
            s.connect()
        s.close()
        return opened, said.getvalue()

    def cookie_file(self, text):
        path = os.path.join(self.folder.name, "cookie")
        with open(path, "w") as f:
            f.write(text)
        os.environ["THC_COOKIE_FILE"] = path

    def test_everything_from_outside(self):
        os.environ["THC_INTERFACE"] = "eth7"
        opened, said = self.join()
        self.assertEqual(opened, {"aggregator": "192.0.2.9", "job": 3, "cookie": SECRET,
                                  "rank": 0, "interface": "eth7"})
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("job 3 at 192.0.2.9: rank 0 of 1, fake sockets, answers by fanout", said)
        self.assertEqual(self.join(quiet=True)[1], "")

    def test_arguments_come_first(self):
        opened, _ = self.join(aggregator="192.0.2.7", job=5, cookie=7, rank=0, interface="lo")
        self.assertEqual(opened, {"aggregator": "192.0.2.7", "job": 5, "cookie": 7, "rank": 0,
                                  "interface": "lo"})

    def test_the_scheme_of_the_job(self):
        self.assertEqual(self.join(scheme="thc")[0]["job"], 3)
        for scheme, sentence in (("lhc", "scheme='lhc': this library has thc, other"),
                                 ("other", "job 3 has scheme thc, not other: give scheme='thc', "
                                  "or start the job with scheme=other")):
            with self.subTest(scheme=scheme), self.assertRaisesRegex(ThcError, sentence):
                self.join(scheme=scheme)

    def test_a_cookie_file_comes_before_the_variable(self):
        self.cookie_file(" 0x77\n")
        self.assertEqual(self.join()[0]["cookie"], 0x77)

    def test_what_is_missing_is_named_with_its_remedy(self):
        for variable, sentence in (("THC_AGGREGATOR", "the aggregator is not known: give "
                                    r"thc_hook\(aggregator=...\), or set THC_AGGREGATOR"),
                                   ("THC_JOB", "the job is not known.*THC_JOB"),
                                   ("THC_COOKIE", "the cookie is not known.*THC_COOKIE_FILE")):
            kept = os.environ.pop(variable)
            with self.assertRaisesRegex(ThcError, sentence):
                self.join()
            os.environ[variable] = kept

    def test_bad_values_are_refused_without_telling_the_cookie(self):
        os.environ["THC_JOB"] = "one"
        with self.assertRaisesRegex(ThcError, "THC_JOB is no number"):
            self.join()
        os.environ.update(THC_JOB="1", THC_COOKIE="s3cret")
        with self.assertRaisesRegex(ThcError, "THC_COOKIE is no number") as raised:
            self.join()
        self.assertNotIn("s3cret", str(raised.exception))
        self.cookie_file("s3cret")
        with self.assertRaisesRegex(ThcError, "THC_COOKIE_FILE .* is no number") as raised:
            self.join()
        self.assertNotIn("s3cret", str(raised.exception))
        for cookie in (hex(SECRET), SECRET << 8):
            with self.assertRaisesRegex(ThcError, "cookie: give a whole number") as raised:
                self.join(cookie=cookie)
            self.assertNotIn(str(cookie), str(raised.exception))
        os.environ["THC_COOKIE_FILE"] = os.path.join(self.folder.name, "none")
        with self.assertRaisesRegex(ThcError, "THC_COOKIE_FILE: .* cannot be read"):
            self.join()

    def test_unknown_options_are_refused(self):
        with self.assertRaisesRegex(TypeError, "treshold"):
            thc_hook(treshold=7)
        s = state()
        with self.assertRaisesRegex(TypeError, "treshold"):
            s.connect(treshold=7)
        with self.assertRaisesRegex(ThcError, 'use "propagate" or "raise"'):
            s.connect(nonfinite="ignore")
        # and nothing of them stays
        s.connect(nonfinite="raise")
        with self.assertRaisesRegex(RuntimeError, "not finite"):
            s.reduce(Bucket(torch.full((10,), float("inf")))).wait()

    def test_options_of_a_job_that_could_not_be_joined_are_not_kept(self):
        s = state()
        with self.assertRaisesRegex(ThcError, "start thcd there"):
            s.connect(aggregator="192.0.2.1")
        s.connect()


class Checkpoints(rig.HookTest):
    def trained(self):
        s = state(cookie=SECRET)
        s.reduce(Bucket(torch.arange(50.0))).wait()
        return s

    def assert_no_secret(self, data):
        for spelling in (SECRET.to_bytes(8, "little"), SECRET.to_bytes(8, "big"),
                         str(SECRET).encode(), hex(SECRET)[2:].encode()):
            self.assertNotIn(spelling, data)

    def test_state_dict_is_tensors_and_numbers_without_a_secret(self):
        s = self.trained()
        file = io.BytesIO()
        torch.save(s.state_dict(), file)
        self.assert_no_secret(file.getvalue())
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        fresh = state(cookie=3)
        fresh.load_state_dict(saved)
        memory = fresh.error_memory(Bucket(torch.zeros(50)))
        torch.testing.assert_close(memory, torch.arange(50.0) / 4)
        self.assertEqual(fresh.counters, s.counters)

    def test_loading_replaces_what_a_joined_state_has(self):
        s = self.trained()
        saved = s.state_dict()
        bucket = Bucket(torch.ones(50), parameters=s._memories.parameters)
        s.reduce(bucket).wait()
        self.assertFalse(torch.equal(s.error_memory(bucket), torch.arange(50.0) / 4))
        s.load_state_dict(saved)
        self.assertTrue(torch.equal(s.error_memory(bucket), torch.arange(50.0) / 4))

    def test_a_snapshot_does_not_change_with_the_state(self):
        s = self.trained()
        saved = s.state_dict()
        copy = {n: t.clone() for n, t in saved["pool"].items()}
        s.load_state_dict(saved)
        s.reduce(Bucket(torch.ones(50), parameters=s._memories.parameters)).wait()
        self.assertTrue(all(torch.equal(saved["pool"][n], copy[n]) for n in copy))

    def test_pickles_have_no_secret(self):
        s = self.trained()
        data = pickle.dumps(s)
        self.assert_no_secret(data)
        restored = pickle.loads(data)
        with self.assertRaisesRegex(ThcError, "the cookie is not known"):
            restored.connect()
        os.environ["THC_COOKIE"] = "9"
        with joining() as opened:
            restored.connect()
        self.assertEqual(opened["cookie"], 9)
        memory = restored.error_memory(Bucket(torch.zeros(50)))
        torch.testing.assert_close(memory, torch.arange(50.0) / 4)

    def test_other_things_are_refused(self):
        with self.assertRaisesRegex(ThcError, "no state_dict"):
            state().load_state_dict({"model": 1})
        s, saved = state(), self.trained().state_dict()
        s.reduce(Bucket(torch.ones(60))).wait()
        with self.assertRaisesRegex(ThcError, "parameter 0 has 60 elements.*says 50"):
            s.load_state_dict(saved)


if __name__ == "__main__":
    unittest.main()
