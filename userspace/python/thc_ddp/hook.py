# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""The DDP communication hook: which buckets go through THC, how their futures
complete, and how a step ends. Error memories are in memories.py, a step's
book-keeping in step.py, the client in client.py.
"""
import errno
import os
import queue
import sys
import threading
import weakref

import torch
import torch.distributed as dist

from thc_ddp import abi, report, settings
from thc_ddp.client import (CLIENT_OPTIONS, ThcClient, ThcError, check_options, real_number,
                            switch, whole_number)
from thc_ddp.memories import Memories
from thc_ddp.rows import Rows, fit
from thc_ddp.runs import Schemes
from thc_ddp.step import FAILED, NONFINITE, NONFINITE_HERE, PassEnd, Step, confirm

_DTYPES = {torch.float32: abi.FP32, torch.float16: abi.FP16, torch.bfloat16: abi.BF16}
_DEVICES = ("cpu", "cuda")

_COUNTERS = ("buckets_thc", "elements_thc", "buckets_exact", "elements_exact",
             "buckets_fallback", "elements_fallback",
             "fallback_small", "fallback_dtype", "fallback_device", "fallback_sparse",
             "fallback_early", "fallback_excluded",
             "steps", "steps_nonfinite", "steps_failed")
# Default of both timeouts in libthc.h.
_TIMEOUT_S = 60.0
# Format of a state_dict(). Version 1 numbered only parameters that went through the job.
_VERSION = 2
# Stands for the process group in a state that was pickled or copied.
_LEFT_OUT = object()
# One group for all buckets of a step, which meet a rate or an error together.
_GROUP = 1


def _checked(options):
    """Checks ThcState's options for its client; returns them as ThcClient takes them."""
    unknown = sorted(set(options) - set(CLIENT_OPTIONS))
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}: see ThcState and ThcClient")
    check_options(options)
    if "nonfinite" not in options:
        return options
    if options["nonfinite"] not in ("propagate", "raise"):
        raise ThcError(f'nonfinite={options["nonfinite"]!r}: use "propagate" or "raise"',
                       errno.EINVAL)
    return dict(options, nonfinite=options["nonfinite"] == "propagate")


def _checked_keep(keep, error_feedback):
    keep = real_number("keep", keep)
    if keep and not 0 < keep < 1:
        raise ThcError(f"keep={keep!r}: use a fraction above 0 and below 1, or 0 to send all",
                       errno.EINVAL)
    if keep and not error_feedback:
        raise ThcError("what keep leaves would be lost: it needs error_feedback=True",
                       errno.EINVAL)
    return keep


class ThcState:
    """State of thc_allreduce_hook(): options, client, error memories, counters.

    The options are those of ThcClient, and these:
    threshold: a bucket with fewer elements is small
    small: "group": dist.all_reduce reduces small buckets; "exact": the job reduces them by the
        scheme none, to the exact mean
    schemes: {pattern of parameters' names: choice}. A choice is the name of a scheme ("none": the
        exact mean; "lhc" takes sparse gradients, too), "job" for the job's scheme, or "group" for
        dist.all_reduce. The first match counts; a parameter without a match goes by the job's
        scheme. bind() tells the model. "auto": weights of nn.Embedding and nn.EmbeddingBag by lhc
    keep: scheme lhc sends about this fraction of a rank's values, the largest, and leaves the rest
        in error memories; 0: all. Sparse gradients are sent whole. connect() refuses keep without
        lhc
    model: calls bind(model)
    start_iter: dist.all_reduce reduces the first start_iter steps
    process_group: reduces buckets that do not go through the job, and confirms each step;
        None: the default group. Set it again in a copy or after unpickling
    nonfinite: "propagate": NaN or Inf in a rank's gradient becomes NaN on all ranks, as in
        plain DDP; "raise": the step raises ThcError on all ranks
    quiet: True: print nothing to stderr

    Defaults of aggregator, job, key_file and interface come from the environment
    (THC_AGGREGATOR, THC_JOB, THC_KEY_FILE, THC_INTERFACE), and rank's from the
    process group. They are read when the state joins the job: at the first bucket,
    or by connect().
    """

    def __init__(self, aggregator=None, job=None, key_file=None, rank=None, threshold=4096,
                 small="group", schemes=None, model=None, start_iter=0, process_group=None,
                 error_feedback=True, nonfinite="propagate", keep=0.0, quiet=False, **options):
        self.options = _checked(dict(options, aggregator=aggregator, job=job,
                                     key_file=key_file, rank=rank, error_feedback=error_feedback,
                                     nonfinite=nonfinite))
        if small not in ("group", "exact"):
            raise ThcError(f'small={small!r}: use "group" or "exact"', errno.EINVAL)
        self.threshold, self.small = whole_number("threshold", threshold), small
        self.start_iter = whole_number("start_iter", start_iter)
        self.keep = _checked_keep(keep, error_feedback)
        self._schemes = Schemes(schemes)
        self._group = process_group
        self.quiet = switch("quiet", quiet)
        self.counters = dict.fromkeys(_COUNTERS, 0)
        self._memories = Memories()
        self._start()
        if model is not None:
            self.bind(model)

    def _start(self):
        self.client = None
        self._process = None    # the id of the process that joined
        self._shut = None       # a weakref.finalize that leaves the job
        self._job = None        # the job's number
        self._info = None       # ThcClient.info(), kept after close()
        self._follows_norms = False     # True: rank 0 prints report.settled_line()
        self._settled = None    # enum thc_trial_state of the last settled_line()
        self._went = []         # for each bucket of the last step, report.Went of its runs
        self._lock = threading.RLock()
        self._pending = queue.SimpleQueue()
        self._waiter = None
        self._step = None       # the step of the backward pass that is running
        self._ended = None      # the step of the last pass, once it has ended

    # --- checkpoints --------------------------------------------------------

    def state_dict(self):
        """A dict of this rank's error memories (tensors) and counters.

        Call it between steps, and save the dict of each rank.
        """
        with self._lock:
            self._check_process()
            return {"version": _VERSION, "counters": dict(self.counters),
                    **self._memories.snapshot(self.client)}

    def load_state_dict(self, saved):
        """Restores error memories and counters from a state_dict() of this rank and model."""
        if saved.get("version") not in (1, _VERSION):
            raise ThcError("this is no state_dict() of ThcState, or a newer version of "
                           "thc_ddp wrote it", errno.EINVAL)
        if saved["version"] == 1:
            self._say("error memories begin empty, because an older version of thc_ddp has saved "
                      "them, which did not number all parameters")
            saved = {**saved, **Memories().snapshot(None)}
        with self._lock:
            self._check_process()
            self._memories.restore(self.client, saved)
            self.counters.update(saved["counters"])

    def __getstate__(self):
        return {"options": self.options, "group": self._group is not None,
                "threshold": self.threshold, "small": self.small,
                "schemes": self._schemes.given, "start_iter": self.start_iter,
                "keep": self.keep, "quiet": self.quiet, "state": self.state_dict()}

    def __setstate__(self, saved):
        self.options = saved["options"]
        self.threshold, self.quiet = saved["threshold"], saved["quiet"]
        # a pickle of an older version lacks the next keys
        self.small = saved.get("small", "group")
        self.start_iter = saved.get("start_iter", 0)
        self.keep = saved.get("keep", 0.0)
        self._schemes = Schemes(saved.get("schemes"))
        self._group = _LEFT_OUT if saved.get("group") else None
        self.counters = dict.fromkeys(_COUNTERS, 0)
        self._memories = Memories()
        self._start()
        self.load_state_dict(saved["state"])

    # --- the job ------------------------------------------------------------

    @property
    def process_group(self):
        if self._group is _LEFT_OUT:
            raise ThcError("a pickle or a copy of a state has no process group: set "
                           "state.process_group, None for the default one, before the next step",
                           errno.EINVAL)
        return self._group

    @process_group.setter
    def process_group(self, group):
        self._group = group

    @property
    def schemes(self):
        return self._schemes.patterns

    def bind(self, model):
        """Applies schemes to model's parameters, and numbers error memories in checkpoints in
        model's order. Call it on all ranks before the first step, and again after unpickling.
        """
        with self._lock:
            self._schemes.bind(model)
            self._memories.bind(model.parameters())
        return self

    def connect(self, **options):
        """Joins the job, unless the state has joined it; returns when all ranks have joined.

        options: replace the constructor's, for example key_file after unpickling
        """
        with self._lock:
            if self.client:
                self._check_process()
                return self
            wanted = {**self.options, **_checked(options)}
            full = settings.complete(wanted, self.process_group)
            client = ThcClient(**full)
            try:
                info = client.info()
                self._check_job(info, full["job"])
                waiter = threading.Thread(target=_complete, args=(client, self._pending),
                                          name="thc-waiter", daemon=True)
                waiter.start()
            except BaseException:
                client.close()
                raise
            self._process, self._waiter = os.getpid(), waiter
            self._shut = weakref.finalize(self, _shut, self._process, client, self._pending,
                                          waiter)
            self.client, self.options, self._info = client, wanted, info
            self._job = full["job"]
            self._say_joined(full)
            return self

    def _check_process(self):
        """ThcError in a forked child: it has no waiter thread, and the rank is its parent's."""
        if self.client and self._process != os.getpid():
            raise ThcError(f"this state joined its job in process {self._process} and is not "
                           f"usable in a forked child: make a state of the child's own",
                           errno.EINVAL)

    def _check_job(self, info, job):
        """Checks the job at each join: a restarted thcd may have changed it."""
        ranks = info["ranks"]
        workers = dist.get_world_size(self.process_group) if dist.is_initialized() else ranks
        if ranks != workers:
            raise ThcError(f"job {job} has {ranks} ranks, the process group has {workers}: "
                           f"create the job with as many ranks as there are workers",
                           errno.EINVAL)
        chosen = "lhc" in (info["scheme"], *self.schemes.values())
        if self.keep and not chosen and self._schemes.given != "auto":
            raise ThcError(f"keep={self.keep!r} is of the scheme lhc, by which nothing goes: job "
                           f"{job} has scheme {info['scheme']}, and schemes names lhc for no "
                           f"parameter: give schemes={{pattern: \"lhc\"}}, or leave keep out",
                           errno.EINVAL)

    def _say_joined(self, options):
        """Prints the start line on rank 0, and on ranks whose window is below the job's slots."""
        if not options["rank"] or 0 < self._info["window"] < self._info["data_slots"]:
            self._say(report.start_line(self, options, self._info))
        self._follows_norms = not options["rank"] and (
            self._info["rate_goal"] > 0 or self._info["error_goal"] > 0)

    def _say_settled(self):
        """Prints on rank 0 what decides the bits of blocks, once known and at each change."""
        if self.quiet or not self._follows_norms:
            return
        with self._lock:
            stats = self.client.stats() if self.client else None
        if not stats:
            return
        if stats["trial"] == self._settled:
            return
        line = report.settled_line(self._info, stats)
        if line:
            self._settled = stats["trial"]
            self._say(line)

    def _say(self, line):
        if not self.quiet:
            print(f"thc_ddp: {line}", file=sys.stderr, flush=True)

    def close(self):
        """Leaves the job. The state keeps error memories for a later connect().

        A state leaves also when it is garbage-collected, and at the end of its process.
        """
        with self._lock:
            if self.client and self._process == os.getpid():
                self._memories.keep(self.client)
                self.client = None
                if self._ended:
                    self._ended.left = True
                self._shut()

    def rejoin(self):
        """Begins a new session after an error; all ranks must call rejoin().

        It cancels the buckets in progress and takes their step out of the error
        memories, also if it raises ThcError.
        """
        with self._lock:
            self._check_process()
            step, self._step = self._step, None
            try:
                if self.client:
                    self.client.rejoin()
                    self._info = self.client.info()
                else:
                    self.connect()
            finally:
                if step:
                    step.drain()
                    self._undo(step)
            try:
                self._check_job(self._info, self._job)
            except ThcError:
                self.close()
                raise
            return self

    def error_memory(self, bucket):
        """A copy of a bucket's error memory: what the next step adds to its gradient."""
        with self._lock:
            return torch.cat([self._error_memory(run) for run in self._schemes.runs(bucket)])

    def _error_memory(self, run):
        key, numbers = self._memories.layout(run)
        client = self.connect().client
        self._memories.place(client, key, numbers)
        memory = torch.zeros(run.buffer().numel(), dtype=torch.float32)
        client.error_export(key, memory.data_ptr(), memory.numel())
        return memory

    def stats(self):
        """A dict: the counters of this hook and of the client, buckets, chosen and tried.

        buckets: for each bucket of the last step a list of its runs. A run has one scheme:
            scheme: its name; "group": dist.all_reduce, and why is the counter of the reason
            elements, dtype: number of elements, torch's name of their type
            bits_up, bits_down: bits per element to the aggregator and back; per digit by exact
                schemes; of the type by the group; None: they follow the norms of blocks
            rate, error: the goal of those bits, see ThcClient.start(); None: no goal
            precision: "exact": the mean is rounded once; "fixed8" and so on: fixed point; None: an
                estimate, or the group's
            seal, shards: the job's; None: the run went through the group
        chosen: means since the join; None: no bits followed norms. bits_up, bits_down: bits per
            coordinate, without headers and norms; skipped: fraction of blocks that were not sent;
            error: expected NMSE for equal gradients on all ranks
        tried: the trial of a job with rate=auto, else None. goes_by: "rate", "fixed" (the bits of
            the job's table) or "both in turns", during the trial; rate_ns, fixed_ns: nanoseconds
            per 1024 values on this rank
        """
        with self._lock:
            self._check_process()
            counted = self.client.stats() if self.client else {}
            return {**self.counters, **counted,
                    "chosen": report.chosen(counted, self._info["block"]) if counted else None,
                    "tried": report.tried(counted) if counted else None,
                    "buckets": [[went.told(self._info) for went in runs] for runs in self._went]}

    # --- a bucket -----------------------------------------------------------

    def _way(self, run):
        """(counter of the reason why a run does not go through the job, or None; the run's scheme,
        or None for the job's). Equal on all ranks.
        """
        buffer, small = run.buffer(), run.buffer().numel() < self.threshold
        refusal = self._refusal(buffer, run.scheme)
        if refusal:
            return refusal, None
        if self.counters["steps"] < self.start_iter:
            return "fallback_early", None
        if run.scheme == "group":
            return "fallback_excluded", None
        if run.scheme in report.PRECISE:
            return None, run.scheme
        if small and self.small == "exact":
            return None, "none"
        return ("fallback_small" if small else None), run.scheme

    def _refusal(self, buffer, scheme):
        """Counter of the reason why the job cannot reduce this buffer, or None."""
        if buffer.layout != torch.strided and not (scheme == "lhc" and fit(buffer)):
            return "fallback_sparse"
        if buffer.dtype not in _DTYPES:
            return "fallback_dtype"
        if buffer.device.type not in _DEVICES:
            return "fallback_device"
        return None if buffer.numel() else "fallback_small"

    def reduce(self, bucket):
        """Starts the all-reduce of a bucket; returns a future of its mean. Never raises.

        After an error the future holds the bucket unchanged, and backward() raises
        the error at the end of the pass. Outside of a backward pass the step ends
        with the bucket that is_last(); the future of that bucket raises the error.
        """
        step, in_pass = self._step_of(bucket)
        buffer = bucket.buffer()
        step.device = buffer.device
        try:
            future = self._start_bucket(bucket, step)
        except Exception as error:  # belongs to the step
            step.refuse(error)
            future = _ready(buffer)
        if step.last and not in_pass:
            return self._finish_outside(step, future)
        return future

    def _step_of(self, bucket):
        """(the step of a bucket, True if autograd calls the step's PassEnd)"""
        first, last = bucket.index() == 0, bucket.is_last()
        with self._lock:
            step = self._step
            waiting = step and step.pass_end and step.pass_end()
            if step and first and not waiting:
                self._give_up(step)
                step = None
            if not step:
                step = self._step = Step()
                self._ended = None
            # with static_graph DDP's first pass gives all its buckets at its end, each as number 0
            step.last = last or bool(first and waiting)
            if waiting:
                return step, True
            pass_end = PassEnd(self._finish_pass)
            queued = pass_end.queue()
            step.pass_end = weakref.ref(pass_end)
            return step, queued

    def _start_bucket(self, bucket, step):
        runs, went = self._schemes.runs(bucket), []
        step.went.append(went)
        futures = [self._start_run(run, step, went) for run in runs]
        if len(futures) == 1:
            return futures[0]
        whole = bucket.buffer()
        return torch.futures.collect_all(futures).then(lambda _: whole)

    def _start_run(self, run, step, went):
        """A future of a run's mean, or of the unchanged run if it cannot be started.

        An error does not stop the next runs: the other ranks start collectives of the process group
        for them, and this rank must start the same collectives in the same order.
        """
        buffer = run.buffer()
        layout = self._layout(run, step)
        refusal, scheme = self._way(run)
        try:
            if not refusal:
                return self._start_in_job(run, scheme, layout, step, went)
            self._count_fallback(refusal, buffer)
            went.append(report.Went(buffer, None, refusal))
            return self._fall_back(buffer, step)
        except Exception as error:  # belongs to the step
            (step.fail if refusal else step.refuse)(error)
            return _ready(buffer)

    def _layout(self, run, step):
        """Memories.layout(run), or None after an error. Call it for every run, before anything that
        may fail: parameters must get the numbers that they have on other ranks and after a restart.
        """
        try:
            with self._lock:
                return self._memories.layout(run)
        except Exception as error:  # the checkpoint is another model's
            step.fail(error)
            return None

    def _start_in_job(self, run, scheme, layout, step, went):
        buffer = run.buffer()
        with self._lock:
            step.raise_refusal()    # also limits a rank to one attempt to join per step
            if not layout:
                raise step.error
            key, numbers = layout
            client = self.connect().client
            by = report.Way(scheme, self._info, 0.0 if buffer.is_sparse else self.keep)
            if self.options["error_feedback"] and by.loses:
                self._memories.place(client, key, numbers)
            future = _future(buffer)
            brought = (Rows(buffer) if buffer.is_sparse else
                       _Values(buffer, scheme, run.grain, by.keep))
            request = brought.start(client, _DTYPES[buffer.dtype], key)
            # no statement below may fail: the request has started
            step.keys.append(key)
            step.begin()
            self._pending.put((request, brought, buffer, future, step))
        went.append(report.Went(buffer, by))
        kind = "exact" if by.is_exact else "thc"
        self.counters[f"buckets_{kind}"] += 1
        self.counters[f"elements_{kind}"] += buffer.numel()
        return future

    def _count_fallback(self, refusal, buffer):
        if refusal == "fallback_sparse" and not self.counters[refusal]:
            self._say("sparse gradients do not go through THC but through the process group, "
                      "uncompressed (counted as fallback_sparse): schemes=\"auto\", or "
                      "{pattern: \"lhc\"}, sends those of embeddings through it")
        self.counters[refusal] += 1
        self.counters["buckets_fallback"] += 1
        self.counters["elements_fallback"] += buffer.numel()

    def _fall_back(self, buffer, step):
        if not buffer.is_sparse and not buffer.numel():
            return _ready(buffer)
        if not self.options["nonfinite"]:
            step.look_at(buffer)
        world = dist.get_world_size(self.process_group)
        buffer.div_(world)  # before the sum: half precision must not overflow in it
        try:
            work = dist.all_reduce(buffer, group=self.process_group, async_op=True)
            future = work.get_future()
        except Exception as failure:
            raise _group_failed(failure) from failure
        step.begin()

        def done(ended):
            error, value = None, buffer
            try:
                value = ended.value()[0]
                step.values.append(value)
            except Exception as failure:  # belongs to the step
                error = _group_failed(failure)
            step.end(error)
            return value

        return future.then(done)

    # --- the end of a step --------------------------------------------------

    def _finish_pass(self):
        """Ends the step after a backward pass; DDP has waited for all futures of the pass."""
        step = self._step
        # a nested pass (activation checkpointing) ends before the last bucket
        if step and step.last:
            self._finish(step)

    def _finish_outside(self, step, last):
        result = torch.futures.Future()
        try:
            self._finish(step)
            result.set_result(last.wait())
        except Exception as error:
            result.set_result(error)
        # An exception set on a future does not reach DDP; one raised in then() does.
        return result.then(_value)

    def _finish(self, step):
        """Ends the step. If it failed on any rank, raises an error on all ranks."""
        self._step = None
        step.drain()
        verdict = self._verdict(step)
        error, verdicts = step.error, [verdict]
        try:
            verdicts = confirm(verdict, self.process_group, step.device,
                               self._patience() if error else None)
        except Exception as failure:
            error = error or ThcError(f"the ranks cannot confirm the step to each other, because "
                                      f"the process group failed: restart all ranks ({failure})",
                                      errno.EIO)
        failed = [str(rank) for rank, other in enumerate(verdicts) if other == FAILED]
        if failed and not error:
            error = ThcError(f"rank {', '.join(failed)} could not finish this step, so the step "
                             f"has not happened on this rank either: call rejoin() on all ranks",
                             errno.ESTALE)
        nonfinite = NONFINITE in verdicts or NONFINITE_HERE in verdicts
        if nonfinite and not error and not self.options["nonfinite"]:
            error = _not_finite(verdicts)
        if error or nonfinite:
            self._undo(step)
        self.counters["steps"] += 1
        self.counters["steps_failed"] += bool(error)
        self.counters["steps_nonfinite"] += nonfinite and not error
        self._ended, self._went = step, step.went
        if error:
            raise error
        self._say_settled()

    @staticmethod
    def _verdict(step):
        """step.verdict(), or FAILED after an exception: the other ranks wait for a verdict."""
        try:
            return step.verdict()
        except Exception as failure:    # no memory on the device
            step.fail(failure)
            return FAILED
        finally:
            step.values.clear()     # as large as the buckets

    def _patience(self):
        """Seconds that a rank with an error waits for the other ranks' verdicts.

        A live rank reaches confirm() within its timeouts: it joins once per step, and then
        waits for buckets. For a dead rank the process group would wait until its own timeout,
        by default half an hour.
        """
        timeout, join = (self.options.get(name) or _TIMEOUT_S
                         for name in ("timeout", "join_timeout"))
        return 2 * timeout + join + 10

    def _give_up(self, step):
        """Drops the step of a backward pass that an error of the program ended early."""
        step.drain()
        self._undo(step)

    def _undo(self, step):
        """Takes the step out of the error memories."""
        with self._lock:
            for key in step.keys if self.client else ():
                self.client.error_undo(key)
            step.keys.clear()

    def undo_step(self):
        """Takes the step of the last backward() out of the error memories.

        Call it on all ranks if the program skips the optimizer's step, after a
        backward() that exchanged gradients, not after one under no_sync(). Steps
        that failed or gave NaN need no call. ThcError: the state has left its job.
        """
        self._check_process()
        if not self._ended:
            return
        if self._ended.keys and self._ended.left:
            raise ThcError("the state has left its job, and its error memories keep what the last "
                           "step left there: call undo_step() before close()", errno.ENOTCONN)
        self._undo(self._ended)


def _group_failed(failure):
    return ThcError(f"the process group failed on a bucket that does not go through THC, restart "
                    f"all ranks: {failure}", errno.EIO)


def _not_finite(verdicts):
    ranks = [str(rank) for rank, other in enumerate(verdicts) if other == NONFINITE_HERE]
    whose = f"the gradient of rank {', '.join(ranks)}" if ranks else "the sum of the gradients"
    return ThcError(f"{whose} is not finite (NaN, Inf or too large) in a bucket that does not go "
                    f"through THC: skip this step on all ranks (EDOM)", errno.EDOM)


class _Values:
    """One all-reduce of a dense buffer. host: the buffer, or a GPU buffer's pinned copy."""

    def __init__(self, buffer, scheme, grain, keep):
        self.buffer = self.host = buffer
        self.scheme, self.grain, self.keep = scheme, grain, keep
        if buffer.device.type != "cpu":
            self.host = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
            self.host.copy_(buffer)

    def start(self, client, dtype, key):
        return client.start(self.host.data_ptr(), self.host.numel(), dtype, key, self.scheme,
                            grain=self.grain, keep=self.keep, group=_GROUP)

    def finish(self, client, request):
        """(True, mean), or (False, NaN in each element) if a rank's values were not finite."""
        finite = client.wait(request)
        if self.host is not self.buffer:
            self.buffer.copy_(self.host)
        return finite, self.buffer


def _future(buffer):
    return torch.futures.Future(devices=[] if buffer.device.type == "cpu" else [buffer.device])


def _ready(buffer):
    """A completed future."""
    future = _future(buffer)
    future.set_result(buffer)
    return future


def _value(future):
    value = future.value()
    if isinstance(value, Exception):
        raise value
    return value


def _complete(client, pending):
    """The waiter thread: completes futures in the order of their starts, then leaves the job."""
    while _complete_next(client, pending):
        pass
    client.close()  # after the last request


def _complete_next(client, pending):
    """Completes one request; False at the end of the queue. It is a function of its own so that
    the waiter keeps no reference to a step: the traceback of the step's error may refer to the
    state, which could then never be garbage-collected.
    """
    item = pending.get()
    if item is None:
        return False
    request, brought, value, future, step = item
    error, finite = None, True
    try:
        finite, value = brought.finish(client, request)
    except Exception as failure:  # belongs to the step
        error = failure
    step.end(error, finite)
    future.set_result(value)
    return True


def _shut(process, client, pending, waiter):
    """Leaves the job. A garbage collection may call it in any thread, the waiter included."""
    # in a forked child, leaving would take the parent's rank out of the job
    if process != os.getpid():
        return
    pending.put(None)
    if waiter is not threading.current_thread():
        waiter.join()


def thc_allreduce_hook(state: ThcState,
                       bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook for DistributedDataParallel.register_comm_hook(): means by THC.

    DDP calls it for every bucket of a backward pass. After an error on any rank
    backward() raises ThcError on all ranks, when no bucket of the step is in
    progress any more.
    """
    return state.reduce(bucket)


def thc_hook(aggregator=None, job=None, key_file=None, rank=None, **options):
    """Returns (state, hook) for register_comm_hook(*thc_hook(...)).

    Options are those of ThcState. The state joins the job at the first bucket,
    or by state.connect(), which raises ThcError if the join fails.
    """
    return ThcState(aggregator, job, key_file, rank, **options), thc_allreduce_hook
