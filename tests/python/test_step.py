#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""How a step of DDP ends on a test double of libthc: errors come out of
backward() once nothing is under way, the step can be done again, and a step
that did not happen leaves nothing in any error memory. Real DDP, one rank;
test_recovery.py has two.
"""
import contextlib
import errno
import importlib.util
import os
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import WIDTHS, Bucket, model, state

from thc_ddp import ThcClient, ThcError, hook
from thc_ddp import step as step_end

# Buckets of rig.model() after DDP has rebuilt them.
BUCKETS = 3


class Double(torch.nn.Linear):
    """A layer whose gradients are of another type, so that DDP has a bucket of its own for them."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, dtype=torch.float64)

    def forward(self, x):
        return super().forward(x.double())


class Run:
    """A model, and steps that are repeated if they fail."""

    def __init__(self, test, hook_state, net=None, **options):
        self.state, self.net = hook_state, net or model()
        self.ddp = test.wrap(self.net, hook_state, **options)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.errors = []

    def backward(self, step, scale=1.0):
        x = torch.randn(8, WIDTHS[0], generator=torch.Generator().manual_seed(step))
        self.optimizer.zero_grad()
        (self.ddp(x).square().sum() * scale).backward()

    def step(self, number):
        try:
            self.backward(number)
        except ThcError as error:
            self.errors.append(str(error))
            self.state.rejoin()
            self.backward(number)
        self.optimizer.step()

    def break_off(self, number, layer):
        """A backward pass that an exception of the user's own breaks off."""
        handle = self.net[layer].weight.register_hook(lambda grad: 1 // 0)
        with contextlib.suppress(ZeroDivisionError):
            self.backward(number)
            raise AssertionError("the pass was not broken off")
        handle.remove()

    def result(self):
        return [p.detach().clone() for p in self.net.parameters()]


class Errors(rig.HookTest):
    def undisturbed(self, steps, **options):
        run = Run(self, state(**options))
        for step in range(steps):
            run.step(step)
        return run.result()

    def check(self, failing, steps=4, **options):
        """Check for the bits of a run without failing requests."""
        expected = self.undisturbed(steps, **options)
        os.environ["FAKE_FAIL_AT"] = failing
        run = Run(self, state(**options))
        for step in range(steps):
            run.step(step)
        self.assertEqual(len(run.errors), 1, run.errors)
        self.assertRegex(run.errors[0], "rank 3 does not answer")
        for got, want in zip(run.result(), expected):
            self.assertTrue(torch.equal(got, want), "the failed step has left something behind")
        self.assertEqual(run.state.counters["steps_failed"], 1)
        self.assertEqual(run.state.counters["steps"], steps + 1)

    def test_each_bucket_may_fail(self):
        self.undisturbed(2)
        self.assertGreaterEqual(len(self.buckets), 1 + BUCKETS, "too few buckets to show much")
        for feedback in (True, False):
            for failing in range(1, 1 + BUCKETS):
                with self.subTest(feedback=feedback, failing=failing):
                    self.check(str(failing), error_feedback=feedback)

    def test_the_first_step_of_all_may_fail(self):
        self.check("0")

    def test_buckets_under_way_have_ended(self):
        os.environ.update(FAKE_FAIL_AT="1", FAKE_DELAY_MS="30")
        run = Run(self, state())
        run.backward(0)
        with self.assertRaises(ThcError):
            run.backward(1)
        before = [p.grad.clone() for p in run.net.parameters()]
        self.assertTrue(run.state._pending.empty())
        run.state.rejoin()
        for parameter, grad in zip(run.net.parameters(), before):
            self.assertTrue(torch.equal(parameter.grad, grad))

    def test_last_bucket_falls_back(self):
        # 9,600 and 300 elements, DDP's last bucket, stay below the threshold
        for failing in ("1", "2"):
            self.check(failing, threshold=10000)

    def test_unused_parameters(self):
        self.check("2", error_feedback=True)
        os.environ["FAKE_FAIL_AT"] = "2"
        run = Run(self, state(), find_unused_parameters=True)
        for step in range(3):
            run.step(step)
        self.assertEqual(len(run.errors), 1)

    def test_static_graph(self):
        os.environ["FAKE_FAIL_AT"] = "0,5"
        run = Run(self, state(), static_graph=True)
        for step in range(4):
            run.step(step)
        self.assertEqual(len(run.errors), 2)

    def test_static_graph_with_two_types(self):
        """DDP says of no bucket of its first pass that it is the last one."""
        os.environ["FAKE_FAIL_AT"] = "0"
        net = torch.nn.Sequential(torch.nn.Linear(WIDTHS[0], 300), Double(300, 10))
        run = Run(self, state(), net, static_graph=True)
        run.step(0)
        self.assertEqual(self.buckets[:2], [10 + 3000, 300 + 300 * WIDTHS[0]])
        self.assertEqual(len(run.errors), 1, "the first pass has raised no error")
        run.step(1)
        self.assertEqual(run.state.counters["steps"], 3)

    def test_a_job_that_cannot_be_joined_is_an_error_of_the_step(self):
        run = Run(self, state())
        run.state.options["aggregator"] = "192.0.2.1"
        with self.assertRaisesRegex(ThcError, "start thcd there"):
            run.backward(0)
        run.state.options["aggregator"] = "192.0.2.9"
        run.state.rejoin()
        run.step(0)
        self.assertEqual(run.errors, [])

    def test_joining_is_tried_once_in_a_step(self):
        tries = []

        def refusing(**options):
            tries.append(options)
            raise ThcError("rank 1 of job 1 did not join", errno.ETIMEDOUT)

        # all parameters are in buckets of their own from the first pass on
        run = Run(self, state(), find_unused_parameters=True)
        with mock.patch.object(hook, "ThcClient", refusing):
            with self.assertRaisesRegex(ThcError, "rank 1 of job 1 did not join"):
                run.backward(0)
        self.assertGreater(len(self.buckets), 1, "too few buckets to show this")
        self.assertEqual(len(tries), 1)
        run.state.rejoin()
        run.step(0)
        self.assertEqual(run.errors, [])

    def test_a_step_that_cannot_be_judged_fails_on_all_ranks(self):
        # two parameters fall back, so the hook checks their values
        run = Run(self, state(threshold=10000))
        run.step(0)
        before, told = run.state.state_dict()["pool"], []

        def confirm(verdict, *others):
            told.append(verdict)
            return [verdict]

        def no_memory(value):
            raise RuntimeError("out of memory")

        with mock.patch.object(hook, "confirm", confirm), \
                mock.patch.object(torch, "isfinite", no_memory):
            with self.assertRaisesRegex(RuntimeError, "out of memory"):
                run.backward(1)
        self.assertEqual(told, [step_end.FAILED])
        self.assertEqual(run.state.counters["steps_failed"], 1)
        after = run.state.state_dict()["pool"]
        self.assertTrue(before and all(torch.equal(before[n], after[n]) for n in before))
        run.step(1)

    def test_a_failed_look_keeps_no_bucket_of_the_job_back(self):
        step = step_end.Step()
        with mock.patch.object(torch, "isfinite", side_effect=RuntimeError("out of memory")):
            step.look_at(torch.ones(3))
        step.raise_refusal()
        self.assertEqual((str(step.error), step.verdict()), ("out of memory", step_end.FAILED))
        step.refuse(ThcError("no bucket"))
        with self.assertRaisesRegex(ThcError, "no bucket"):
            step.raise_refusal()

    def test_ranks_that_never_confirm_are_given_up(self):
        work = mock.Mock(is_completed=lambda: False)
        with mock.patch.object(dist, "all_reduce", lambda tensor, **options: work), \
                mock.patch.object(dist, "get_world_size", lambda group: 2):
            with self.assertRaisesRegex(TimeoutError, "other ranks have not confirmed"):
                step_end.confirm(step_end.FAILED, None, "cpu", 0.05)
            work.wait.assert_not_called()
            work.is_completed = lambda: True
            self.assertEqual(step_end.confirm(step_end.FAILED, None, "cpu", 0.05),
                             [step_end.FAILED, step_end.FINE])
            work.wait.assert_called_once()

    def test_the_process_group_has_no_futures(self):
        run = Run(self, state(threshold=10000))
        run.step(0)
        work = mock.Mock()
        work.get_future.side_effect = RuntimeError("no futures here")
        with mock.patch.object(dist, "all_reduce", lambda tensor, **options: work):
            with self.assertRaisesRegex(ThcError, "no futures here"):
                run.backward(1)
        run.step(1)

    def test_rejoining_fails_and_fails_again(self):
        os.environ.update(FAKE_FAIL_AT="1", FAKE_BROKEN="1")
        run = Run(self, state())
        run.backward(0)
        with self.assertRaises(ThcError):
            run.backward(1)
        with self.assertRaisesRegex(ThcError, "start thcd there"):
            run.state.rejoin()
        with self.assertRaisesRegex(ThcError, r"needs rejoin\(\)"):
            run.backward(1)
        del os.environ["FAKE_BROKEN"]
        run.step(1)

    def test_a_pass_that_a_user_breaks_off(self):
        run = Run(self, state())
        run.step(0)
        memories = self.memories(run.state, run.net)
        run.break_off(1, layer=0)
        run.ddp = self.wrap(run.net, run.state)
        run.optimizer.zero_grad()
        run.state.rejoin()
        for got, want in zip(self.memories(run.state, run.net), memories):
            self.assertTrue(torch.equal(got, want))
        run.step(1)
        self.assertEqual(run.errors, [])

    def test_the_process_group_fails(self):
        run = Run(self, state(threshold=10000))
        run.step(0)
        work = dist.all_reduce

        def failing(tensor, **options):
            raise RuntimeError("Connection closed by peer")

        dist.all_reduce = failing
        try:
            with self.assertRaisesRegex(ThcError, "restart all ranks: Connection closed by peer"):
                run.backward(1)
        finally:
            dist.all_reduce = work
        run.step(1)

    def test_outside_of_backward_the_last_future_has_the_error(self):
        os.environ["FAKE_FAIL_AT"] = "0"
        s = state()
        first = s.reduce(Bucket(torch.ones(10), last=False))
        last = s.reduce(Bucket(torch.ones(20), index=1))
        self.assertTrue(first.done())
        with self.assertRaisesRegex(RuntimeError, "ThcError: rank 3 does not answer"):
            last.wait()
        s.rejoin()
        torch.testing.assert_close(s.reduce(Bucket(torch.ones(10))).wait(), torch.full((10,), 0.75))


def no_memory(*calls):
    """(patch with which start() fails for these calls, counted from 0; list of all calls)"""
    made, start = [], ThcClient.start

    def starting(self, *args, **options):
        made.append(args)
        if len(made) - 1 in calls:
            raise ThcError("no memory", errno.ENOMEM)
        return start(self, *args, **options)

    return mock.patch.object(ThcClient, "start", starting), made


class Refused(rig.HookTest):
    """A bucket that this rank cannot start, while other ranks may have started it."""

    def test_no_later_bucket_goes_to_the_job(self):
        s = state()
        failing, made = no_memory(1)
        with failing:
            for index in range(3):
                s.reduce(Bucket(torch.ones(10), index=index, last=False))
            with self.assertRaisesRegex(RuntimeError, "ThcError: no memory"):
                s.reduce(Bucket(torch.ones(10), index=3)).wait()
        self.assertEqual(len(made), 2, "other ranks' second bucket has met a later one")
        s.rejoin()
        torch.testing.assert_close(s.reduce(Bucket(torch.ones(10))).wait(), torch.full((10,), 0.75))

    def test_runs_for_the_process_group_go_there(self):
        net = model()
        parameters = list(net.parameters())[:4]
        s = state(schemes={"*.bias": "group"}, model=net)
        (failing, made), all_reduce, reduced = no_memory(0), dist.all_reduce, []

        def noting(tensor, **options):
            reduced.append(tensor.numel())
            return all_reduce(tensor, **options)

        bucket = Bucket(torch.ones(sum(p.numel() for p in parameters)), parameters)
        with failing, mock.patch.object(dist, "all_reduce", noting):
            with self.assertRaisesRegex(RuntimeError, "no memory"):
                s.reduce(bucket).wait()
        self.assertEqual(reduced, [parameters[1].numel(), parameters[3].numel()])
        self.assertEqual(len(made), 1)

    def test_the_error_of_a_step_is_the_first_but_for_what_follows_from_it(self):
        memory, stale, late = (ThcError("", code) for code in
                               (errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT))
        for refused, ended_first, want in ((memory, False, memory), (memory, True, late),
                                           (stale, False, late), (stale, True, late)):
            step = step_end.Step()
            step.begin()
            if ended_first:
                step.end(late)
            step.refuse(refused)
            if not ended_first:
                self.assertIs(step.error, refused)
                step.end(late)
            self.assertIs(step.error, want)


class Skipped(rig.HookTest):
    """Steps that do not happen: their part of the error memories is taken back."""

    def overflow(self, run, parameter):
        """A step with Inf in one layer and values 10^5 times too large elsewhere."""
        handle = parameter.register_hook(lambda grad: torch.full_like(grad, float("inf")))
        try:
            run.backward(7, scale=1e5)
        finally:
            handle.remove()

    def check(self, layer, **options):
        run = Run(self, state(**options))
        run.step(0)
        run.step(1)
        memories = self.memories(run.state, run.net)
        parameter = run.net[layer].weight
        self.overflow(run, parameter)
        self.assertFalse(torch.isfinite(parameter.grad).any())
        self.assertEqual(run.state.counters["steps_nonfinite"], 1)
        for got, want in zip(self.memories(run.state, run.net), memories):
            self.assertTrue(torch.equal(got, want), "an error memory kept a skipped step")
        run.step(2)
        self.assertEqual(run.errors, [])

    def test_inf_in_each_layer_comes_back_and_leaves_nothing(self):
        for layer in range(len(WIDTHS) - 1):
            with self.subTest(layer=layer):
                self.check(layer)

    def test_inf_in_a_bucket_that_falls_back(self):
        run = Run(self, state(threshold=10000))
        run.step(0)
        run.step(1)
        before = run.state.state_dict()["pool"]
        self.overflow(run, run.net[0].weight)
        after = run.state.state_dict()["pool"]
        self.assertEqual(run.state.counters["steps_nonfinite"], 1)
        self.assertTrue(before and all(torch.equal(before[n], after[n]) for n in before))

    def test_raise(self):
        run = Run(self, state(nonfinite="raise"))
        run.step(0)
        memories = self.memories(run.state, run.net)
        with self.assertRaisesRegex(ThcError, "not finite"):
            self.overflow(run, run.net[1].weight)
        for got, want in zip(self.memories(run.state, run.net), memories):
            self.assertTrue(torch.equal(got, want))
        with self.assertRaisesRegex(ThcError, 'use "propagate" or "raise"'):
            state(nonfinite="ignore")

    def test_raise_of_buckets_that_do_not_go_through_the_job(self):
        bad = torch.ones(10)
        bad[3] = float("nan")
        net = torch.nn.Linear(10, 1, bias=False)
        sparse = torch.sparse_coo_tensor(torch.tensor([[2]]), bad[None], (5, 10))
        for options, tensor in (({"threshold": 100}, bad), ({"start_iter": 1}, bad),
                                ({"schemes": {"*": "group"}, "model": net}, bad),
                                ({}, bad.double()), ({}, sparse)):
            with self.subTest(options=options, dtype=tensor.dtype):
                s = state(nonfinite="raise", **options)
                bucket = Bucket(tensor.clone(), [net.weight])
                with self.assertRaisesRegex(RuntimeError, "gradient of rank 0 is not finite.*EDOM"):
                    s.reduce(bucket).wait()
                counted = [s.counters[name] for name in ("buckets_fallback", "steps_failed",
                                                         "steps_nonfinite")]
                self.assertEqual(counted, [1, 1, 0])
                s.reduce(Bucket(torch.ones(10), [net.weight])).wait()   # without rejoining

    def test_raise_takes_back_what_other_buckets_left(self):
        run = Run(self, state(threshold=10000, nonfinite="raise"))
        run.step(0)
        run.step(1)
        before = run.state.state_dict()["pool"]
        with self.assertRaises(ThcError) as raised:
            self.overflow(run, run.net[0].weight)
        self.assertEqual(raised.exception.errno, errno.EDOM)
        after = run.state.state_dict()["pool"]
        self.assertTrue(before and all(torch.equal(before[n], after[n]) for n in before))
        run.step(2)
        self.assertEqual(run.errors, [])

    def test_what_cannot_be_looked_at_is_summed_all_the_same(self):
        s = state(nonfinite="raise", threshold=100)
        no_memory = mock.Mock(side_effect=RuntimeError("out of memory"))
        with mock.patch.object(torch, "isfinite", no_memory), \
                mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
            with self.assertRaisesRegex(RuntimeError, "out of memory"):
                s.reduce(Bucket(torch.ones(10))).wait()
        all_reduce.assert_called_once()

    def test_users_skip_steps_too(self):
        run = Run(self, state())
        run.step(0)
        memories = self.memories(run.state, run.net)
        run.backward(1)
        self.assertFalse(torch.equal(self.memories(run.state, run.net)[0], memories[0]))
        # the memories outlive a session, and so does what they were before
        run.state.rejoin()
        for _ in range(2):
            run.state.undo_step()
            for got, want in zip(self.memories(run.state, run.net), memories):
                self.assertTrue(torch.equal(got, want))
        run.step(1)

    def test_steps_of_before_cannot_be_taken_back(self):
        run = Run(self, state())
        run.step(0)
        run.step(1)
        memories = self.memories(run.state, run.net)
        run.break_off(2, layer=1)
        run.state.undo_step()
        run.state.rejoin()
        run.state.undo_step()
        for got, want in zip(self.memories(run.state, run.net), memories):
            self.assertTrue(torch.equal(got, want), "a step that has happened was undone")

    def test_finite_or_not(self):
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64):
            value = torch.full((7, 10), 3, dtype=dtype)
            with mock.patch.object(step_end, "_PART", 32):
                self.assertTrue(step_end._is_finite(value))
                for bad in ("inf", "-inf", "nan"):
                    value[6, 9] = float(bad)
                    self.assertFalse(step_end._is_finite(value), (dtype, bad))
        self.assertTrue(step_end._is_finite(torch.ones(3, dtype=torch.int64)))
        self.assertTrue(step_end._is_finite(torch.ones(0)))


def grad_scaler(scale):
    """FSDP's variant of torch's GradScaler, which works on CPUs; GradScaler itself needs CUDA."""
    path = os.path.join(os.path.dirname(dist.__file__), "fsdp/sharded_grad_scaler.py")
    spec = importlib.util.spec_from_file_location("sharded_grad_scaler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with mock.patch("torch.cuda.amp.grad_scaler.amp_definitely_not_available", lambda: False):
        return module.ShardedGradScaler(init_scale=scale, process_group=dist.group.WORLD)


class Scaled(rig.HookTest):
    def test_grad_scaler_skips_overflows_and_training_goes_on(self):
        """After a scale that overflows, a smaller one gives the bits of a run that begins there."""
        def scaled_steps(run, scaler, numbers):
            for number in numbers:
                # large inputs: the first layer overflows when the others do not
                x = torch.randn(8, WIDTHS[0], generator=torch.Generator().manual_seed(number))
                x *= 1e6
                run.optimizer.zero_grad()
                scaler.scale(run.ddp(x).square().sum()).backward()
                scaler.step(run.optimizer)
                scaler.update()

        run, expected = Run(self, state()), Run(self, state())
        weights, skipped = run.result(), 0
        for each in (run, expected):
            each.optimizer.param_groups[0]["lr"] = 1e-16
        with mock.patch.object(torch.Tensor, "cuda", lambda tensor: tensor):
            scaler = grad_scaler(2.0 ** 127)
            while True:
                scale = scaler.get_scale()
                scaled_steps(run, scaler, [0])
                if scaler.get_scale() == scale:
                    break
                skipped += 1
                self.assertTrue(all(map(torch.equal, run.result(), weights)))
            self.assertGreater(skipped, 5)
            self.assertEqual(run.state.counters["steps_nonfinite"], skipped)
            scaled_steps(run, scaler, range(1, 4))
            scaled_steps(expected, grad_scaler(scale), range(4))
        self.assertFalse(all(map(torch.equal, run.result(), weights)), "no step was made")
        for got, want in zip(run.result(), expected.result()):
            self.assertTrue(torch.equal(got, want), "skipped steps have left something behind")


class Sparse(rig.HookTest):
    def test_sparse_gradients_fall_back_and_are_counted(self):
        net = torch.nn.Sequential(torch.nn.Embedding(500, 40, sparse=True),
                                  torch.nn.Linear(40, 300))
        plain = torch.nn.Sequential(torch.nn.Embedding(500, 40, sparse=True),
                                    torch.nn.Linear(40, 300))
        plain.load_state_dict(net.state_dict())
        s = state(error_feedback=False)
        ddp = self.wrap(net, s)
        for step in range(3):
            words = torch.randint(500, (8,), generator=torch.Generator().manual_seed(step))
            for m in (ddp, plain):
                m.zero_grad()
                m(words).square().sum().backward()
            self.assertTrue(net[0].weight.grad.is_sparse)
            torch.testing.assert_close(net[0].weight.grad.to_dense(),
                                       plain[0].weight.grad.to_dense())
        self.assertEqual(s.counters["fallback_sparse"], 3)
        self.assertGreater(s.counters["buckets_thc"], 0)

    def test_embeddings_go_by_lhc(self):
        for sparse in (False, True):
            with self.subTest(sparse=sparse):
                nets = [torch.nn.Sequential(torch.nn.Embedding(500, 40, sparse=sparse),
                                            torch.nn.Linear(40, 300)) for _ in range(2)]
                nets[1].load_state_dict(nets[0].state_dict())
                s = state(error_feedback=False, schemes="auto", model=nets[0])
                ddp = self.wrap(nets[0], s)
                for step in range(3):
                    words = torch.randint(500, (8,), generator=torch.Generator().manual_seed(step))
                    for m in (ddp, nets[1]):
                        m.zero_grad()
                        m(words).square().sum().backward()
                    grad, plain = (n[0].weight.grad for n in nets)
                    self.assertEqual(grad.is_sparse, sparse)
                    self.assertTrue(torch.equal(grad.to_dense(), plain.to_dense()))
                self.assertEqual(s.counters["fallback_sparse"], 0)
                self.assertEqual(s.counters["buckets_exact"], 3)
                self.assertGreater(s.counters["buckets_thc"], 0)
                told = [run for bucket in s.stats()["buckets"] for run in bucket
                        if run["scheme"] == "lhc"]
                self.assertEqual([run["elements"] for run in told], [20000])

    def test_sparse_gradients_that_are_not_finite(self):
        net = torch.nn.Embedding(500, 40, sparse=True)
        s = state(schemes={"weight": "lhc"}, model=net)
        ddp = self.wrap(net, s)
        ddp(torch.tensor([3, 7])).mul(float("inf")).sum().backward()
        # NaN is in row 0 on every rank, whichever rows the rank has
        self.assertTrue(net.weight.grad.to_dense()[0].isnan().all())
        self.assertEqual(s.counters["steps_nonfinite"], 1)


if __name__ == "__main__":
    unittest.main()
