#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The settings that the DDP hook takes from arguments, the environment and the
process group, its messages about them, and checkpoints, which hold no secret.
"""
import contextlib
import copy
import ctypes
import errno
import io
import os
import pathlib
import pickle
import tempfile
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import KEY_FILE, Bucket, state

from thc_ddp import ThcDisagreement, ThcError, client, hook, report, thc_hook

OTHER_KEY = bytes(range(100, 132))


@contextlib.contextmanager
def joining():
    """The options with which the next client is opened."""
    opened = {}

    def noting(**options):
        opened.update((name, options[name]) for name in
                      ("aggregator", "job", "key_file", "rank", "interface"))
        return client.ThcClient(**options)

    with mock.patch.object(hook, "ThcClient", noting):
        yield opened


def opened_with():
    """The key that the last client was opened with."""
    return bytes((ctypes.c_uint8 * 32).in_dll(client.library(), "fake_key"))


class Environment(rig.HookTest):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.environ.update(THC_AGGREGATOR="192.0.2.9", THC_JOB="3", THC_KEY_FILE=KEY_FILE)

    def join(self, **options):
        """The options of the opened client, and the hook's messages."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), joining() as opened:
            s, hook = thc_hook(**options)
            self.assertIsNone(s.client, "thc_hook() must not join yet")
            s.connect()
        s.close()
        return opened, said.getvalue()

    def file(self, text):
        """Path of a file with a text."""
        path = os.path.join(self.folder.name, "job3.key")
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return path

    def test_everything_from_outside(self):
        os.environ["THC_INTERFACE"] = "eth7"
        opened, said = self.join()
        self.assertEqual(opened, {"aggregator": "192.0.2.9", "job": 3, "key_file": KEY_FILE,
                                  "rank": 0, "interface": "eth7"})
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("job 3 at 192.0.2.9: rank 0 of 1", said)
        self.assertEqual(self.join(quiet=True)[1], "")

    def test_the_start_line(self):
        """Scheme, seal, shards and bits of every bucket, as far as they are known by then."""
        line = ("thc_ddp: job 3 at 192.0.2.9: rank 0 of 1, scheme thc (3 bits up, 16 down), seal "
                "sum, 1 shard, fake sockets, answers by fanout, a window of 92 of 512 chunks "
                "because of the receive buffer (net.core.rmem_max)")
        self.assertEqual(self.join(threshold=0)[1], line + "\n")
        self.assertEqual(self.join()[1],
                         line + "; process group for buckets below 4096 elements\n")
        self.assertEqual(
            self.join(threshold=7, small="exact", start_iter=5,
                      schemes={"0.bias": "none", "1.*": "group", "2.*": "job", "*": "other"})[1],
            line + "; scheme none (32 bits a digit) for 0.bias, buckets below 7 elements; process "
            "group for 1.*, the first 5 steps; scheme thc (3 bits up, 16 down) for 2.*; scheme "
            "other (3 bits up, 16 down) for *\n")
        os.environ.update(FAKE_SHARDS="4", FAKE_NONE="1")
        self.assertIn("rank 0 of 1, scheme none (32 bits a digit), seal sum, 4 shards, fake",
                      self.join()[1])
        os.environ["FAKE_PRECISION"] = "8"
        said = self.join(schemes={"0.bias": "thc", "1.*": "none", "2.*": "job"})[1]
        self.assertIn("scheme none (fixed point of 8 bits), seal", said)
        self.assertIn("; scheme thc (3 bits up, 16 down) for 0.bias; scheme none (32 bits a digit) "
                      "for 1.*; scheme none (fixed point of 8 bits) for 2.*; ", said)

    def test_the_start_line_of_a_rate(self):
        self.assertIn("scheme thc (2.5 bits up and down, more for larger norms), seal",
                      self.join(rate=2.5)[1])
        said = self.join(error=.01, schemes={"0.bias": "other"})[1]
        self.assertIn("scheme thc (as many bits as an error of 0.01 takes), seal", said)
        self.assertIn("; scheme other (3 bits up, 16 down) for 0.bias", said)
        os.environ["FAKE_TABLE_ERROR"] = "133"
        said = self.join(schemes={"0.bias": "other"})[1]
        self.assertIn("scheme thc (3 bits up, 16 down, error 0.013 expected), seal", said)
        self.assertIn("; scheme other (3 bits up, 16 down) for 0.bias", said)
        self.assertIn("scheme thc (2.5 bits up and down, more for larger norms), seal",
                      self.join(rate=2.5)[1])
        del os.environ["FAKE_TABLE_ERROR"]
        # each bucket has the job's bits
        self.assertIn("scheme thc (3 bits up, 16 down), seal", self.join(rate=-1)[1])

    def steps(self, count, **options):
        """[messages of a step] of a state in `count` steps of one bucket."""
        said, s = [], thc_hook(threshold=0, **options)[0]
        for _ in range(count):
            with contextlib.redirect_stderr(io.StringIO()) as stderr:
                s.reduce(Bucket(torch.ones(256))).wait()
            said.append(stderr.getvalue())
        s.close()
        return said

    def test_what_the_bits_came_to(self):
        """The hook says it once, when it is known."""
        norms = ("thc_ddp: bits follow norms: 1.50 up, 3.00 down a value, 25 % of blocks left out, error "
                 "0.005 expected")
        # the double knows the bits after the first bucket, and measures no time
        joined, *later = self.steps(3, rate=4.5)
        self.assertIn("scheme thc (4.5 bits up and down, more for larger norms), seal", joined)
        self.assertEqual((joined.split("\n")[1:], later), ([norms, ""], ["", ""]))
        os.environ.update(FAKE_TRIED="3", FAKE_TABLE_ERROR="133")
        joined, *later = self.steps(4)
        self.assertIn("scheme thc (4 bits up and down, more for larger norms, or 3 up, 16 down, "
                      "whichever takes less time), seal", joined)
        self.assertEqual(joined.count("\n"), 1)
        times = "; 1024 values take 0.6 us by norms, 0.9 us by the job's table on this rank"
        self.assertEqual(later, ["", norms + times + "\n", ""])
        os.environ["FAKE_TRIED"] = "2"
        self.assertEqual(self.steps(4)[1:], ["", "thc_ddp: each block has 3 bits up, 16 down, error 0.013 "
                                                 "expected" + times + ", but no majority of "
                                                 "ranks found norms 3 % faster\n", ""])
        self.assertEqual(self.steps(4, quiet=True), [""] * 4)
        self.assertEqual(self.steps(4, rank=1), [self.steps(1, rank=1)[0], "", "", ""])

    def test_times_of_a_rank_that_was_outvoted(self):
        counters = {"rate_blocks": 4, "rate_bits_up": 384, "rate_bits_down": 768,
                    "rate_skipped": 0, "rate_lost": .02, "rate_square": 4}
        info = {"block": 64, "bits": 4, "sum_width": 8, "table_error": .01}
        for trial, fixed, rated, end in (
                (2, 900, 901, "on this rank"),
                (2, 900, 899, "on this rank, but no majority of ranks found norms 3 % faster"),
                (3, 900, 899, "on this rank"),
                (3, 900, 900, "on this rank, but most ranks found norms faster")):
            line = report.settled_line(info, {**counters, "trial": trial, "trial_fixed_ns": fixed,
                                              "trial_rate_ns": rated})
            self.assertEqual(line.partition("the job's table ")[2], end)

    def test_arguments_come_first(self):
        path = self.file(OTHER_KEY.hex())
        opened, _ = self.join(aggregator="192.0.2.7", job=5, key_file=path, rank=0,
                              interface="lo")
        self.assertEqual(opened, {"aggregator": "192.0.2.7", "job": 5, "key_file": path, "rank": 0,
                                  "interface": "lo"})
        self.assertEqual(opened_with(), OTHER_KEY)

    def test_the_scheme_of_the_job(self):
        self.assertEqual(self.join(scheme="thc")[0]["job"], 3)
        for scheme, sentence in (("dhc", "scheme='dhc': this library has thc, other"),
                                 ("other", "job 3 has scheme thc, not other: give scheme='thc', "
                                  "or start the job with scheme=other")):
            with self.subTest(scheme=scheme), self.assertRaisesRegex(ThcError, sentence):
                self.join(scheme=scheme)

    def test_the_scheme_of_the_job_is_looked_at_when_rejoining(self):
        """A restarted thcd may have given the job another scheme."""
        s = thc_hook(scheme="thc", quiet=True)[0].connect()
        self.addCleanup(s.close)
        os.environ["FAKE_NONE"] = "1"
        for _ in range(2):
            with self.assertRaisesRegex(ThcError, "job 3 has scheme none, not thc: give scheme="):
                s.rejoin()
            values = torch.zeros(4096)
            with self.assertRaisesRegex(ThcError, "job 3 has scheme none, not thc"):
                s.client.allreduce(values.data_ptr(), 4096)
        del os.environ["FAKE_NONE"]
        s.rejoin()
        s.client.allreduce(values.data_ptr(), 4096)

    def test_ranks_of_the_job_are_counted_when_rejoining(self):
        s = thc_hook(quiet=True)[0].connect()
        os.environ["FAKE_RANKS"] = "7"
        for _ in range(2):
            with self.assertRaisesRegex(ThcError, "job 3 has 7 ranks, the process group has 1"):
                s.rejoin()
            self.assertIsNone(s.client)     # it has left
        del os.environ["FAKE_RANKS"]
        self.assertIsNotNone(s.rejoin().client)
        s.close()

    def test_keep_is_refused_where_nothing_goes_by_lhc(self):
        for schemes in (None, {"0.*": "none", "*": "job"}):
            with self.assertRaisesRegex(ThcError, "keep=0.1 is of the scheme lhc, by which nothing "
                                        "goes: job 3 has scheme thc, and schemes"):
                self.join(keep=.1, schemes=schemes)
        self.join(keep=.1, schemes={"0.*": "lhc"})
        self.join(keep=.1, schemes="auto")
        os.environ["FAKE_LHC"] = "1"
        self.join(keep=.1)

    def test_short_timeouts_are_not_the_default(self):
        for seconds, ms in ((0, 0), (.0001, 1), (.0006, 1), (.0016, 2), (60, 60000)):
            self.assertEqual(client._milliseconds("timeout", seconds), ms)

    def test_the_key_is_read_when_joining_and_wiped(self):
        arrays = []

        def noting(path, read=client._read_key):
            arrays.append(read(path))
            self.assertEqual(bytes(arrays[-1]), OTHER_KEY)
            return arrays[-1]

        s, _ = thc_hook(key_file=pathlib.Path(self.folder.name, "job3.key"), quiet=True)
        self.file(f" {OTHER_KEY.hex().upper()}\n")
        with mock.patch.object(client, "_read_key", noting):
            s.connect()
            s.close()
            with self.assertRaisesRegex(ThcError, "start thcd there"):
                s.connect(aggregator="192.0.2.1")
        self.assertEqual(opened_with(), OTHER_KEY)
        self.assertEqual([bytes(array) for array in arrays], [bytes(32)] * 2)

    def test_cookies_are_gone(self):
        del os.environ["THC_KEY_FILE"]
        for variable in ("THC_COOKIE", "THC_COOKIE_FILE"):
            os.environ[variable] = "0x5ec4e7"
            with self.assertRaisesRegex(ThcError, f"{variable} is set, .*`thcctl genkey FILE`.*"
                                        "THC_KEY_FILE") as raised:
                self.join()
            self.assertNotIn("5ec4e7", str(raised.exception))
        os.environ["THC_KEY_FILE"] = KEY_FILE
        self.assertEqual(self.join()[0]["key_file"], KEY_FILE)
        with self.assertRaisesRegex(TypeError, "unknown option 'cookie'"):
            thc_hook(cookie=7)

    def test_what_is_missing_is_named_with_its_remedy(self):
        for variable, sentence in (("THC_AGGREGATOR", "the aggregator is not known: give "
                                    r"thc_hook\(aggregator=...\), or set THC_AGGREGATOR"),
                                   ("THC_JOB", "the job is not known.*THC_JOB"),
                                   ("THC_KEY_FILE", "the key_file is not known.*THC_KEY_FILE")):
            kept = os.environ.pop(variable)
            with self.assertRaisesRegex(ThcError, sentence):
                self.join()
            os.environ[variable] = kept

    def test_disagreements_are_errors_of_their_own(self):
        for code, kind in ((errno.EBADMSG, ThcDisagreement), (errno.ETIMEDOUT, ThcError)):
            with self.assertRaises(ThcError) as raised:
                client._check(-code)
            copy = pickle.loads(pickle.dumps(raised.exception))
            for error in (raised.exception, copy):
                self.assertIs(type(error), kind)
                self.assertEqual(error.errno, code)

    def test_bad_values_are_refused_without_telling_the_key(self):
        with self.assertRaisesRegex(ThcError, "cannot read .*none"):
            self.join(key_file=os.path.join(self.folder.name, "none"))
        with self.assertRaisesRegex(ThcError, "job3.key does not hold a key.*thcctl genkey FILE"):
            self.join(key_file=self.file(OTHER_KEY.hex()[1:]))
        with self.assertRaisesRegex(ThcError, "key_file: give the path.*thcctl genkey") as raised:
            self.join(key_file=12345678)
        self.assertNotIn("12345678", str(raised.exception))
        os.environ["THC_JOB"] = "one"
        with self.assertRaisesRegex(ThcError, "THC_JOB=one is no number"):
            self.join()

    def test_values_of_another_kind_are_refused(self):
        """They are refused at once, in a sentence that names the option."""
        whole, real = "give a whole number from 0 to", "give a number"
        for options, sentence in (
                ({"threshold": -5}, f"threshold=-5: {whole}"),
                ({"threshold": "a"}, f"threshold='a': {whole}"),
                ({"start_iter": -1}, f"start_iter=-1: {whole}"),
                ({"error_feedback": "no"}, "error_feedback='no': give True or False"),
                ({"quiet": "no"}, "quiet='no': give True or False"),
                ({"rate": "4"}, f"rate='4': {real}"), ({"error": None}, f"error=None: {real}"),
                ({"keep": ".1"}, f"keep='.1': {real}"),
                ({"timeout": "x"}, f"timeout='x': {real}"),
                ({"aggregator": 5}, "aggregator=5: give a str"),
                ({"bind": b"::1"}, "bind=b'::1': give a str"),
                ({"interface": "eth0\0"}, "interface='eth0.x00': give a str"),
                ({"port": 65536}, f"port=65536: {whole} 65535"),
                ({"window": 1.5}, f"window=1.5: {whole}"),
                ({"join_timeout": -1}, "join_timeout=-1.0: give seconds from 0")):
            with self.subTest(options=options), self.assertRaisesRegex(ThcError, sentence):
                thc_hook(**options)
        s = state()
        with self.assertRaisesRegex(ThcError, "timeout='x': give a number"):
            s.connect(timeout="x")
        # "raise" is what the hook takes
        for name, word in (("error_feedback", "no"), ("nonfinite", "raise")):
            with self.assertRaisesRegex(ThcError, f"{name}='{word}': give True or False"):
                client.ThcClient("192.0.2.9", 1, KEY_FILE, 0, **{name: word})
        for number in (0, 7, .5, -1, float("nan")):
            self.assertEqual(repr(client.real_number("rate", number)), repr(float(number)))
        for given in (True, False, 1, 0):
            self.assertIs(client.switch("quiet", given), bool(given))

    def test_unknown_options_are_refused(self):
        with self.assertRaisesRegex(TypeError, "treshold"):
            thc_hook(treshold=7)
        s = state()
        with self.assertRaisesRegex(TypeError, "treshold"):
            s.connect(treshold=7)
        with self.assertRaisesRegex(ThcError, 'use "propagate" or "raise"'):
            s.connect(nonfinite="ignore")
        # refused options are not kept
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
        s = state()
        s.reduce(Bucket(torch.arange(50.0))).wait()
        return s

    def assert_no_secret(self, data):
        self.assertEqual(opened_with(), rig.fake.KEY)
        for spelling in (rig.fake.KEY, rig.fake.KEY.hex().encode()):
            self.assertNotIn(spelling, data)

    def test_state_dict_is_tensors_and_numbers_without_a_secret(self):
        s = self.trained()
        file = io.BytesIO()
        torch.save(s.state_dict(), file)
        self.assert_no_secret(file.getvalue())
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        fresh = state()
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

    def test_pickles_have_the_path_and_no_secret(self):
        s = self.trained()
        data = pickle.dumps(s)
        self.assert_no_secret(data)
        restored = pickle.loads(data)
        with joining() as opened:
            restored.connect()
        self.assertEqual(opened["key_file"], KEY_FILE)
        memory = restored.error_memory(Bucket(torch.zeros(50)))
        torch.testing.assert_close(memory, torch.arange(50.0) / 4)

    def test_a_process_group_is_not_in_a_pickle(self):
        for group in (None, dist.group.WORLD):
            s = state(process_group=group)
            for restored in (pickle.loads(pickle.dumps(s)), copy.copy(s),
                             pickle.loads(pickle.dumps(copy.copy(s)))):
                if group:
                    with self.assertRaisesRegex(ThcError, "set state.process_group, None for"):
                        restored.connect()
                    restored.process_group = None
                self.assertIsNone(restored.process_group)
                restored.connect().close()

    def test_other_things_are_refused(self):
        with self.assertRaisesRegex(ThcError, "no state_dict"):
            state().load_state_dict({"model": 1})
        s, saved = state(), self.trained().state_dict()
        s.reduce(Bucket(torch.ones(60))).wait()
        with self.assertRaisesRegex(ThcError, "parameter 0 has 60 elements.*says 50"):
            s.load_state_dict(saved)


if __name__ == "__main__":
    unittest.main()
