#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The logic of the DDP hook on a test double of libthc: error memories follow
parameters through bucket rebuilds and checkpoints, futures complete in order,
small or foreign buckets fall back. Real DDP, one rank. How a step ends is in
test_step.py.
"""
import atexit
import contextlib
import ctypes
import functools
import gc
import os
import pickle
import shutil
import signal
import threading
import time
import traceback
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import KEY_FILE, WIDTHS, Bucket, model, state

import thc_ddp
from thc_ddp import ThcClient, ThcError, client, thc_hook


def in_forked_child(body):
    """The exit status of a child that runs body()."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        signal.alarm(60)
        body()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def end_of_process():
    """Run Python's exit functions, but keep the fake's folder for the parent."""
    atexit.unregister(shutil.rmtree)
    atexit._run_exitfuncs()


class Memories(unittest.TestCase):
    def test_what_cannot_be_placed_stays(self):
        """A memory that a rebuilt bucket cannot take stays in the pool until the bucket can."""
        memories, client = thc_ddp.memories.Memories(), mock.Mock()
        memories.bind([torch.nn.Parameter(torch.zeros(n)) for n in (2, 3)])
        memories.pool = {1: torch.tensor([1., 2., 3.])}
        client.error_import.side_effect = ThcError("no memory", 12)
        with self.assertRaises(ThcError):
            memories.place(client, 7, [0, 1])
        self.assertEqual((memories.pool[1].tolist(), memories.layouts), ([1, 2, 3], {}))
        client.error_import.side_effect = None
        memories.place(client, 7, [0, 1])
        self.assertEqual((memories.pool, memories.layouts), ({}, {7: [0, 1]}))
        self.assertEqual(client.error_import.call_args.args[::2], (7, 5))


class Crossed(torch.nn.Module):
    """Layers of one size, which forward() uses in another order than that of the model."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTHS[0], WIDTHS[0], bias=False)
                                          for _ in range(4))

    def forward(self, x):
        for i in (2, 0, 3, 1):
            x = self.layers[i](x)
        return x


class Hook(rig.HookTest):
    def steps(self, ddp, plain, received, raw, count):
        """Runs count steps, adding up what the hook returned and exact gradients."""
        for _ in range(count):
            x = torch.randn(8, WIDTHS[0])
            for m in (ddp, plain):
                m.zero_grad()
                m(x).square().sum().backward()
            for i, (p, q) in enumerate(zip(ddp.parameters(), plain.parameters())):
                received[i] += p.grad
                raw[i] += q.grad

    def assert_conserved(self, received, memory, raw):
        for i, (got, kept, want) in enumerate(zip(received, memory, raw)):
            torch.testing.assert_close(got + kept, want, rtol=1e-4, atol=1e-3,
                                       msg=f"parameter {i}: received + memory != gradients")

    def test_two_lines(self):
        ddp = torch.nn.parallel.DistributedDataParallel(model())
        ddp.register_comm_hook(*thc_hook(aggregator="192.0.2.9", job=1, key_file=KEY_FILE,
                                        rank=0))
        ddp(torch.randn(2, WIDTHS[0])).sum().backward()

    def test_memories_survive_the_rebuild_of_buckets(self):
        self.assert_memories_survive({})

    def test_memories_are_of_any_scheme_that_loses(self):
        self.assert_memories_survive({"0.*": "other"})

    def assert_memories_survive(self, schemes):
        net, plain = model(), model()
        s = state(schemes=schemes, model=net)
        ddp = self.wrap(net, s)
        received = [torch.zeros_like(p) for p in net.parameters()]
        raw = [torch.zeros_like(p) for p in net.parameters()]
        self.steps(ddp, plain, received, raw, 1)
        self.assert_conserved(received, self.memories(s, net), raw)
        first = len(self.buckets)
        self.steps(ddp, plain, received, raw, 1)
        self.assertGreater(len(self.buckets) - first, first, "DDP did not rebuild its buckets: "
                           "the test shows nothing")
        self.assert_conserved(received, self.memories(s, net), raw)
        self.steps(ddp, plain, received, raw, 3)
        self.assert_conserved(received, self.memories(s, net), raw)
        keys = s._memories.layouts
        self.assertEqual(sum(map(len, keys.values())), len(list(net.parameters())),
                         "orphaned error memories")

    def test_memories_survive_a_checkpoint(self):
        net, plain = model(), model()
        s = state()
        ddp = self.wrap(net, s)
        received = [torch.zeros_like(p) for p in net.parameters()]
        raw = [torch.zeros_like(p) for p in net.parameters()]
        self.steps(ddp, plain, received, raw, 3)
        counters = dict(s.counters)
        s = pickle.loads(pickle.dumps(s))
        self.assertEqual(s.counters, counters)
        self.assertIsNone(s.client, "unpickling must not join")
        s.connect()
        restored = model()
        ddp = self.wrap(restored, s)
        self.steps(ddp, plain, received, raw, 3)
        self.assertGreater(s.counters["buckets_thc"], counters["buckets_thc"])
        self.assert_conserved(received, self.memories(s, restored), raw)

    def restarted(self, by_model, then, **options):
        """(received, memories, gradients) of Crossed(), one bucket a layer, and a restart with
        other options of DDP after four steps. by_model: whether states know the model.
        """
        net, plain = Crossed(), Crossed()
        s = state(**options, **({"model": net} if by_model else {}))
        ddp = self.wrap(net, s, bucket_cap_mb=0.001)
        received = [torch.zeros_like(p) for p in net.parameters()]
        raw = [torch.zeros_like(p) for p in net.parameters()]
        self.steps(ddp, plain, received, raw, 4)
        s, net = pickle.loads(pickle.dumps(s)), Crossed()
        if by_model:
            s.bind(net)
        self.steps(self.wrap(net, s, **then), plain, received, raw, 2)
        self.assertEqual(s.counters["fallback_early"] > 0, "start_iter" in options)
        return received, self.memories(s, net), raw

    def test_memories_survive_a_restart_after_steps_of_the_process_group(self):
        self.assert_conserved(*self.restarted(False, {"bucket_cap_mb": 0.001}, start_iter=2))

    def test_memories_follow_the_model_whatever_ddp_does(self):
        for options in ({}, {"start_iter": 2}):
            for then in ({"bucket_cap_mb": 25}, {"find_unused_parameters": True}):
                with self.subTest(options=options, then=then):
                    self.assert_conserved(*self.restarted(True, then, **options))

    def test_a_checkpoint_follows_the_model_or_does_not(self):
        def trained(**options):
            s = state(**options)
            s.reduce(Bucket(torch.ones(300), [net[0].bias])).wait()
            return s

        net = model()
        bound, free = trained(model=net), trained()
        with self.assertRaisesRegex(RuntimeError, "of a state that knew its model: give model="):
            pickle.loads(pickle.dumps(bound)).reduce(
                Bucket(torch.ones(300), [net[0].bias])).wait()
        for s in (state(model=net), trained(model=net)):
            with self.assertRaisesRegex(ThcError, "of a state that did not know its model"):
                s.load_state_dict(free.state_dict())
        with self.assertRaisesRegex(ThcError, "of a state that did not know its model"):
            pickle.loads(pickle.dumps(free)).bind(net)
        # nothing was numbered in between: the order is still the checkpoint's
        twice = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(bound)))).bind(net)
        twice.reduce(Bucket(torch.ones(300), [net[0].bias])).wait()
        refused = pickle.loads(pickle.dumps(free))
        with self.assertRaisesRegex(ThcError, "of a state that did not know its model"):
            refused.bind(net)
        refused.reduce(Bucket(torch.ones(300), [net[0].bias])).wait()
        # a state without memories may not have known its model
        pickle.loads(pickle.dumps(state())).bind(net)

    def test_memories_of_an_older_version_begin_empty(self):
        s = state()
        s.reduce(Bucket(torch.ones(50))).wait()
        saved = {**s.state_dict(), "version": 1}
        del saved["order"]
        s = state()
        s.load_state_dict(saved)
        self.assertEqual(s.counters["steps"], 1)
        bucket = Bucket(torch.ones(60))     # another parameter than the checkpoint's first one
        torch.testing.assert_close(s.reduce(bucket).wait(), torch.full((60,), 0.75))

    def test_a_checkpoint_of_another_model_keeps_no_collective_back(self):
        net = model()
        s = state(schemes={"0.weight": "group"}, model=net)
        with mock.patch.object(s._memories, "layout", side_effect=ThcError("another model")), \
                mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
            with self.assertRaisesRegex(RuntimeError, "another model"):
                s.reduce(Bucket(torch.ones(9600), [net[0].weight])).wait()
        all_reduce.assert_called_once()

    def test_memories_survive_close_and_connect(self):
        net, plain = model(), model()
        s = state()
        ddp = self.wrap(net, s)
        received = [torch.zeros_like(p) for p in net.parameters()]
        raw = [torch.zeros_like(p) for p in net.parameters()]
        self.steps(ddp, plain, received, raw, 2)
        s.close()
        self.steps(ddp, plain, received, raw, 2)
        self.assert_conserved(received, self.memories(s, net), raw)

    def test_checkpoint_of_another_model_is_refused(self):
        s = state()
        s.reduce(Bucket(torch.ones(50))).wait()
        s = pickle.loads(pickle.dumps(s)).connect()
        with self.assertRaisesRegex(RuntimeError, "parameter 0 has 60 elements.*says 50"):
            s.reduce(Bucket(torch.ones(60))).wait()

    def test_keys_depend_on_parameters_only(self):
        one, other = state(), state()
        shapes = [(5, 7), (3,), (20,)]
        keys = []
        for s in (one, other):
            parameters = [torch.zeros(shape) for shape in shapes]
            first = s._memories.layout(Bucket(None, parameters))[0]
            again = s._memories.layout(Bucket(None, parameters))[0]
            part = s._memories.layout(Bucket(None, parameters[:2]))[0]
            self.assertEqual(first, again)
            self.assertNotEqual(first, part)
            self.assertLess(first, 1 << 64)
            keys.append((first, part))
        self.assertEqual(keys[0], keys[1], "two ranks would differ")

    def test_futures_complete_in_order_while_the_next_ones_start(self):
        os.environ["FAKE_DELAY_MS"] = "30"
        s = state(error_feedback=False)
        order, futures = [], []
        for i in range(4):
            future = s.reduce(Bucket(torch.full((10,), float(i)), index=i, last=False))
            self.assertFalse(future.done(), "the hook waited for the network")
            future.then(lambda f: order.append(int(f.value()[0])))
            futures.append(future)
        s.reduce(Bucket(torch.full((10,), 4.0), index=4))
        self.assertEqual(order, [0, 1, 2, 3])
        self.assertTrue(all(future.done() for future in futures))

    def assert_leaves(self, drop, s):
        """drop() removes the last references to a state, which ends the state's client and thread,
        even if the waiter still has references.
        """
        waiter, client = s._waiter, s.client
        del s
        with mock.patch.object(ThcClient, "close", autospec=True) as close, \
                mock.patch("sys.unraisablehook") as failed:
            drop()
            end = time.monotonic() + 10
            while waiter.is_alive() and time.monotonic() < end:
                gc.collect()
                waiter.join(.05)
            failed.assert_not_called()
            self.assertFalse(waiter.is_alive(), "the waiter goes on")
            close.assert_called_once_with(client)

    def test_a_state_that_is_dropped_leaves_the_job(self):
        states = [state()]
        states[0].reduce(Bucket(torch.ones(10))).wait()
        self.assert_leaves(states.clear, states[0])

    def test_a_state_that_is_dropped_with_its_model_leaves_the_job(self):
        os.environ["FAKE_FAIL_AT"] = "1"
        states, s = [], state()
        states += [s, self.wrap(model(), s)]
        del s
        states[1](torch.randn(2, WIDTHS[0])).sum().backward()
        with contextlib.suppress(ThcError):     # its traceback refers to the state
            states[1](torch.randn(2, WIDTHS[0])).sum().backward()
        self.assert_leaves(states.clear, states[0])

    def test_the_waiter_may_drop_the_state(self):
        os.environ["FAKE_DELAY_MS"] = "100"
        states = [state()]
        future = states[0].reduce(Bucket(torch.ones(10), last=False))
        future = future.then(lambda _: states.clear())
        self.assert_leaves(future.wait, states[0])

    def test_a_state_that_has_left_leaves_once(self):
        s = state()
        for _ in range(2):
            s.connect()
            with mock.patch.object(ThcClient, "close", autospec=True) as close:
                s.close()
                s.close()
            close.assert_called_once()
        with mock.patch.object(ThcClient, "close", autospec=True) as close:
            del s
            gc.collect()
        close.assert_not_called()

    def test_a_state_without_a_waiter_has_left(self):
        s = state()
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("no thread")), \
                mock.patch.object(ThcClient, "close", autospec=True,
                                  side_effect=ThcClient.close) as close, \
                self.assertRaisesRegex(RuntimeError, "no thread"):
            s.connect()
        close.assert_called_once()
        s.close()
        s.reduce(Bucket(torch.ones(10))).wait()

    def test_a_forked_child_does_not_leave_for_its_parent(self):
        s = state()
        s.reduce(Bucket(torch.ones(10))).wait()

        def child(end):
            with mock.patch.object(ThcClient, "close", autospec=True) as close:
                end()
            close.assert_not_called()

        for end in (end_of_process, s.close):
            self.assertEqual(in_forked_child(functools.partial(child, end)), 0)
        s.reduce(Bucket(torch.ones(10))).wait()
        with mock.patch.object(ThcClient, "close", autospec=True) as close:
            s.close()
        close.assert_called_once()

    def test_a_state_is_not_usable_in_a_forked_child(self):
        s = state()
        s.reduce(Bucket(torch.ones(10))).wait()

        def child():
            for use in (s.connect, s.rejoin, s.state_dict, s.stats, s.undo_step,
                        s.reduce(Bucket(torch.ones(10))).wait):
                with self.assertRaisesRegex(RuntimeError, "not usable in a forked child"):
                    use()

        self.assertEqual(in_forked_child(child), 0)

    def test_error_memory_is_what_compression_owes(self):
        s = state()
        bucket = Bucket(torch.full((10,), 8.0))
        torch.testing.assert_close(s.error_memory(bucket), torch.zeros(10))
        torch.testing.assert_close(s.reduce(bucket).wait(), torch.full((10,), 6.0))
        torch.testing.assert_close(s.error_memory(bucket), torch.full((10,), 2.0))

    def test_small_buckets_and_foreign_types_fall_back_and_count(self):
        s = state(threshold=100)
        small, double = torch.ones(99), torch.ones(500, dtype=torch.float64)
        torch.testing.assert_close(s.reduce(Bucket(small)).wait(), torch.ones(99))
        torch.testing.assert_close(s.reduce(Bucket(double)).wait(),
                                   torch.ones(500, dtype=torch.float64))
        self.assertIsNone(s.client, "a fallback must not join the job")
        torch.testing.assert_close(s.reduce(Bucket(torch.ones(100))).wait(),
                                   torch.full((100,), 0.75))
        counters = s.stats()
        self.assertEqual((counters["fallback_small"], counters["fallback_dtype"],
                          counters["buckets_fallback"], counters["elements_fallback"]),
                         (1, 1, 2, 599))
        self.assertEqual((counters["buckets_thc"], counters["elements_thc"]), (1, 100))

    def test_small_buckets_are_exact_if_asked_for(self):
        s = state(threshold=100, small="exact")
        torch.testing.assert_close(s.reduce(Bucket(torch.ones(99))).wait(), torch.ones(99))
        torch.testing.assert_close(s.reduce(Bucket(torch.ones(100))).wait(),
                                   torch.full((100,), 0.75))
        torch.testing.assert_close(s.error_memory(Bucket(torch.ones(99))), torch.zeros(99))
        counters = s.stats()
        self.assertEqual([counters[name] for name in (
            "buckets_exact", "elements_exact", "buckets_thc", "elements_thc", "buckets_fallback")],
            [1, 99, 1, 100, 0])
        torch.testing.assert_close(s.reduce(Bucket(torch.ones(0))).wait(), torch.ones(0))
        self.assertEqual(s.stats()["fallback_small"], 1)
        self.assertEqual(pickle.loads(pickle.dumps(s)).small, "exact")
        with self.assertRaisesRegex(ThcError, "small='lossy': use"):
            state(small="lossy")

    def test_schemes_cut_a_bucket_into_runs(self):
        net = model()       # parameters 0.weight, 0.bias, 1.weight, ...
        parameters = list(net.parameters())[:4]
        sizes = [p.numel() for p in parameters]
        s = state(schemes={"0.bias": "none", "1.*": "group", "0.*": "thc"}, model=net)
        buffer = torch.ones(sum(sizes))
        bucket = Bucket(buffer, parameters)
        mean = s.reduce(bucket).wait()
        self.assertIs(mean, buffer)
        for part, want in zip(mean.split(sizes), (0.75, 1, 1, 1)):
            torch.testing.assert_close(part, torch.full_like(part, want))
        counters = s.stats()
        self.assertEqual([counters[name] for name in (
            "elements_thc", "elements_exact", "elements_fallback", "fallback_excluded")],
            [sizes[0], sizes[1], sizes[2] + sizes[3], 1])
        owed = s.error_memory(bucket).split(sizes)
        torch.testing.assert_close(owed[0], torch.full((sizes[0],), 0.25))
        for part in owed[1:]:
            self.assertFalse(part.any())

    def test_stats_name_how_each_bucket_went(self):
        net = model()
        parameters = list(net.parameters())[:4]
        sizes = [p.numel() for p in parameters]
        s = state(threshold=100, schemes={"0.bias": "none", "1.weight": "group", "1.*": "other"},
                  model=net)
        self.assertEqual(s.stats()["buckets"], [])
        job = {"dtype": "float32", "seal": "sum", "shards": 4, "why": None, "rate": None,
               "error": None}
        lossy = {**job, "bits_up": 3, "bits_down": 16, "precision": None}
        group = {"scheme": "group", "seal": None, "shards": None, "precision": None, "rate": None,
                 "error": None}
        want = [[{**lossy, "scheme": "thc", "elements": sizes[0]},
                 {**job, "scheme": "none", "elements": sizes[1], "bits_up": 32, "bits_down": 32,
                  "precision": "exact"},
                 {**group, "elements": sizes[2], "dtype": "float32", "bits_up": 32,
                  "bits_down": 32, "why": "fallback_excluded"},
                 {**lossy, "scheme": "other", "elements": sizes[3]}],
                [{**group, "elements": 500, "dtype": "float64", "bits_up": 64, "bits_down": 64,
                  "why": "fallback_dtype"}],
                [{**group, "elements": 99, "dtype": "float32", "bits_up": 32, "bits_down": 32,
                  "why": "fallback_small"}]]
        os.environ["FAKE_SHARDS"] = "4"
        for _ in range(2):
            s.reduce(Bucket(torch.ones(sum(sizes)), parameters, 0, last=False))
            s.reduce(Bucket(torch.ones(500, dtype=torch.float64), None, 1, last=False))
            s.reduce(Bucket(torch.ones(99), None, 2))
            self.assertEqual(s.stats()["buckets"], want)
        # stats() tell of the last step until the next one is over, and then only of that
        s.reduce(Bucket(torch.ones(99), None, 0, last=False))
        self.assertEqual(s.stats()["buckets"], want)
        s.reduce(Bucket(torch.ones(100), None, 1))
        told = s.stats()["buckets"]
        self.assertEqual([[run["elements"] for run in bucket] for bucket in told], [[99], [100]])
        s.close()
        self.assertEqual(s.stats()["buckets"], told)

    def test_a_job_that_is_exact_itself(self):
        os.environ["FAKE_NONE"] = "1"
        s = state()
        torch.testing.assert_close(s.reduce(Bucket(torch.ones(9))).wait(), torch.ones(9))
        stats = s.stats()
        self.assertEqual((stats["elements_exact"], stats["elements_thc"]), (9, 0))
        (run,), = stats["buckets"]
        self.assertEqual((run["scheme"], run["precision"], run["bits_up"]), ("none", "exact", 32))

    def test_a_job_of_fixed_point_has_its_precision_but_where_options_say_exact(self):
        os.environ.update(FAKE_NONE="1", FAKE_PRECISION="16")
        net = model()
        s = state(schemes={"0.*": "none", "1.*": "job"}, model=net)
        x = torch.full((10,), 0.3)
        torch.testing.assert_close(
            s.reduce(Bucket(x.clone(), list(net.parameters())[:1])).wait(), x)
        self.assertEqual(s.stats()["buckets"][0][0]["precision"], "exact")
        for parameters in (list(net.parameters())[2:3], None):
            torch.testing.assert_close(s.reduce(Bucket(x.clone(), parameters)).wait(),
                                       torch.full((10,), 0.25))
            (run,), = s.stats()["buckets"][-1:]
            self.assertEqual((run["scheme"], run["precision"], run["bits_up"], run["bits_down"]),
                             ("none", "fixed16", 16, 16))
        stats = s.stats()
        self.assertEqual((stats["elements_exact"], stats["elements_thc"]), (10, 20))

    def test_the_job_may_be_another_one_after_rejoining(self):
        s = state()
        s.reduce(Bucket(torch.ones(9))).wait()
        os.environ["FAKE_SHARDS"] = "2"
        s.rejoin()
        s.reduce(Bucket(torch.ones(9))).wait()
        self.assertEqual(s.stats()["buckets"][0][0]["shards"], 2)

    def test_schemes_are_of_a_model(self):
        net = model()
        with self.assertRaisesRegex(ThcError, "no parameter is left for '9.*'; the model has 0.w"):
            state(schemes={"9.*": "none"}, model=net)
        with self.assertRaisesRegex(ThcError, "'lhd'}: use one of job, thc, other, none, lhc, group"):
            state(schemes={"0.*": "lhd"}, model=net)
        s = pickle.loads(pickle.dumps(state(schemes={"0.*": "none"}, model=net, start_iter=1)))
        self.assertEqual(s.start_iter, 1)
        with self.assertRaisesRegex(RuntimeError, r"call state.bind\(model\)"):
            s.reduce(Bucket(torch.ones(10), list(net.parameters())[:1])).wait()
        s.bind(torch.nn.ModuleDict({"module": net}))    # DDP's names
        torch.testing.assert_close(
            s.reduce(Bucket(torch.ones(10), list(net.parameters())[:1])).wait(), torch.ones(10))

    def test_a_fraction_goes_by_lhc(self):
        for keep in (1, -0.1, float("nan")):
            with self.assertRaisesRegex(ThcError, "above 0 and below 1"):
                state(keep=keep)
        with self.assertRaisesRegex(ThcError, "needs error_feedback=True"):
            state(keep=.1, error_feedback=False)
        net = model()
        s = pickle.loads(pickle.dumps(state(schemes={"0.*": "lhc"}, model=net, keep=.25)))
        s.bind(net)
        weight = net[0].weight
        bucket, n = Bucket(torch.ones(weight.numel()), [weight]), weight.numel()
        # the double keeps back a quarter where there is an error memory, as in lhc with `keep`
        torch.testing.assert_close(s.reduce(bucket).wait(), torch.full((n,), .75))
        torch.testing.assert_close(s.error_memory(bucket), torch.full((n,), .25))
        told, = s.stats()["buckets"][0]
        self.assertEqual((told["scheme"], told["precision"]), ("lhc", None))
        self.assertEqual(s.counters["buckets_thc"], 1)

    def test_bits_that_follow_norms(self):
        net = model()
        for goal, other in (("rate", "error"), ("error", "rate")):
            s = pickle.loads(pickle.dumps(state(schemes={"0.*": "lhc"}, model=net,
                                                **{goal: .25})))
            s.bind(net)
            self.assertIsNone(s.stats()["chosen"])
            for step in range(2):
                for number, parameter in enumerate(list(net.parameters())[:3:2]):
                    s.reduce(Bucket(torch.ones(parameter.numel()), [parameter], number,
                                    last=number == 1))
            (lhc,), (thc,) = s.stats()["buckets"]
            self.assertEqual((thc["scheme"], thc[goal], thc[other], thc["bits_up"],
                              thc["bits_down"]), ("thc", .25, None, None, None))
            self.assertEqual((lhc["scheme"], lhc[goal], lhc["bits_up"]), ("lhc", None, 32))
            self.assertEqual(s.stats()["chosen"], {"bits_up": 1.5, "bits_down": 3,
                                                   "skipped": .25, "error": .005})
            self.assertEqual(s.stats()["tried"],
                             {"goes_by": "rate", "fixed_ns": 900, "rate_ns": None})
            s.close()
            self.assertIsNone(s.stats()["chosen"])
            self.assertIsNone(s.stats()["tried"])
        s = state()
        s.reduce(Bucket(torch.ones(9)))
        self.assertIsNone(s.stats()["chosen"])
        self.assertIsNone(s.stats()["tried"])

    def test_first_steps_go_through_the_group_if_asked_for(self):
        s = state(start_iter=2)
        for want in (1, 1, 0.75):
            mean = s.reduce(Bucket(torch.ones(10))).wait()
            torch.testing.assert_close(mean, torch.full((10,), float(want)))
        self.assertEqual(s.stats()["fallback_early"], 2)

    def test_errors_are_raised_in_backward(self):
        os.environ["FAKE_FAIL_AT"] = "1"
        s = state()
        ddp = self.wrap(model(), s)
        ddp(torch.randn(2, WIDTHS[0])).sum().backward()
        with self.assertRaisesRegex(ThcError, "rank 3 does not answer: is its"):
            ddp(torch.randn(2, WIDTHS[0])).sum().backward()

    def test_errors_of_joining_are_sentences(self):
        with self.assertRaisesRegex(ThcError, "start thcd there"):
            thc_hook("192.0.2.1", 1, KEY_FILE, 0)[0].connect()
        os.environ["FAKE_RANKS"] = "7"
        with self.assertRaisesRegex(ThcError, "has 7 ranks, the process group has 1"):
            thc_hook("192.0.2.9", 1, KEY_FILE, 0)[0].connect()

    def test_numbers_out_of_range_are_refused(self):
        for wrong in ({"rank": -1}, {"rank": 64}, {"job": 16}, {"port": 65536}, {"timeout": -1},
                      {"window": -1}):
            with self.assertRaisesRegex(ThcError, next(iter(wrong)) + ".*: give "):
                ThcClient(**{"aggregator": "192.0.2.9", "job": 1, "key_file": KEY_FILE, "rank": 0,
                             **wrong})

    def test_numbers_of_a_call_are_refused_before_they_wrap_around(self):
        values = torch.zeros(4096)
        at = values.data_ptr()
        with ThcClient("192.0.2.9", 1, KEY_FILE, 0) as c:
            for name, call in (
                    ("count", lambda: c.start(at, 2**64 + 1)),
                    ("count", lambda: c.start(at, -1)),
                    ("dtype", lambda: c.start(at, 4096, dtype=2**32)),
                    ("key", lambda: c.start(at, 4096, key=2**64)),
                    ("key", lambda: c.start(at, 4096, key=-1)),
                    ("key", lambda: c.error_count(2**64)),
                    ("key", lambda: c.error_export(2**64, at, 1)),
                    ("key", lambda: c.error_import(-1, at, 1)),
                    ("key", lambda: c.error_undo(-1)),
                    ("tensor_rows", lambda: c.start_rows(2**64 + 10, (at, 1), [(at, 4)])),
                    ("count", lambda: c.start_rows(10, (at, 2**64 + 1), [(at, 4)])),
                    ("width", lambda: c.start_rows(10, (at, 1), [(at, 2**32 + 4)])),
                    ("key", lambda: c.start_rows(10, (at, 1), [(at, 4)], key=-1)),
                    ("dtype", lambda: c.start_rows(10, (at, 1), [(at, 4)], dtype=2**32))):
                with self.assertRaisesRegex(ThcError, f"{name}=.*: give a whole number"):
                    call()

    def test_a_client_that_is_dropped_leaves_the_job(self):
        closed = ctypes.c_int.in_dll(client.library(), "fake_closed")
        before = closed.value
        c = ThcClient("192.0.2.9", 1, KEY_FILE, 0)
        del c
        self.assertEqual(closed.value, before + 1)
        with ThcClient("192.0.2.9", 1, KEY_FILE, 0) as c:
            pass
        c.close()
        del c
        self.assertEqual(closed.value, before + 2)

    def test_a_step_is_not_undone_behind_close(self):
        s = state(threshold=0)
        s.undo_step()       # there is no step yet
        s.reduce(Bucket(torch.randn(4096))).wait()
        s.close()
        for joined in (False, True):
            if joined:
                s.connect()
            with self.assertRaisesRegex(ThcError, r"call undo_step\(\) before close\(\)"):
                s.undo_step()
        s.reduce(Bucket(torch.randn(4096))).wait()
        s.undo_step()

    def test_errors_can_be_pickled(self):
        error = pickle.loads(pickle.dumps(ThcError("a sentence", 110)))
        self.assertEqual((str(error), error.errno), ("a sentence", 110))

    def test_package_exports_what_it_says(self):
        for name in thc_ddp.__all__:
            self.assertTrue(hasattr(thc_ddp, name), name)
        with self.assertRaises(AttributeError):
            thc_ddp.nothing


if __name__ == "__main__":
    unittest.main()
