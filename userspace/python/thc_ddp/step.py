# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""The exchange of gradients in one training step: the buckets of one backward
pass, how each bucket ended, and the verdicts of all ranks.

The hook must not raise the error of a bucket, nor set it on the bucket's future:
DDP would then abandon the pass and refuse the next step, and buckets still in
progress would write into the next step's gradients. So a step keeps the error
until the pass is over:

    hook(first bucket)   queues PassEnd with autograd
    hook(other buckets)  DDP queues its own callback with the last one, which
                         waits for all buckets and copies them into .grad
    PassEnd()            runs before DDP's callback: queues its second half
    DDP's callback
    PassEnd.end()        no bucket is in progress any more: the step may fail
"""
import errno
import threading
import time

import torch
import torch.distributed as dist

_engine = torch.autograd.Variable._execution_engine

# A rank's verdict on its step, in order of severity; the worst verdict of all ranks holds.
# NONFINITE_HERE: this rank's own gradient was not finite.
FINE, NONFINITE, NONFINITE_HERE, FAILED = range(4)
# Elements per call of isfinite().
_PART = 1 << 22


class PassEnd:
    """Calls finish() at the end of a backward pass, after DDP's own callback."""

    def __init__(self, finish):
        self._finish = finish

    def queue(self):
        """Returns False if no backward pass is running."""
        try:
            _engine.queue_callback(self)
        except RuntimeError:
            return False
        return True

    def __call__(self):
        _engine.queue_callback(self.end)

    def end(self):
        self._finish()


class Step:
    """The buckets of a step: how many are in progress, and how the others ended.

    keys: keys of the error memories that the step has used
    values: results of the process group's all-reduces
    went: for each bucket, the report.Went of its runs
    device: the device of the latest bucket
    last: True once the pass's last bucket has come
    left: True if the state has left its job since, so that the client cannot undo the step
    pass_end: weak reference to the PassEnd that is queued for this step; it is
        dead if the pass was abandoned
    """

    def __init__(self):
        self._changed = threading.Condition()
        self._under_way = 0
        self._error = None      # the first error that is not the consequence of another one
        self._refusal = None    # the first error of a bucket that could not be started
        self._nonfinite = False
        self._nonfinite_here = False
        self.keys = []
        self.values = []
        self.went = []
        self.device = torch.device("cpu")
        self.last = False
        self.left = False
        self.pass_end = None

    def begin(self):
        """Counts a bucket as in progress, until end()."""
        with self._changed:
            self._under_way += 1

    def end(self, error=None, finite=True):
        with self._changed:
            self._under_way -= 1
            self._error = self._error or error
            self._nonfinite |= not finite
            self._changed.notify_all()

    def refuse(self, error):
        """Notes that a bucket could not be started in the job."""
        with self._changed:
            self._refusal = self._refusal or error
            # ESTALE is the consequence of an earlier error, which end() may not have had yet
            if getattr(error, "errno", None) != errno.ESTALE:
                self._error = self._error or error

    def fail(self, error):
        """Notes an error that kept no bucket out of the job."""
        with self._changed:
            self._error = self._error or error

    def raise_refusal(self):
        """Raises the error of an earlier bucket that could not be started, if there is one.

        The job matches the buckets of the ranks by their order. The next bucket of this rank would
        meet the other ranks' missing bucket: ThcDisagreement. Without it the other ranks time out,
        and can rejoin. An error from end() is not raised: it comes at another time on each rank.
        """
        if self._refusal:
            raise self._refusal

    def look_at(self, buffer):
        """Notes whether this rank's input for the process group is finite: the sum does not show
        which rank's input was not. Never raises: the other ranks wait for the collective.
        """
        try:
            self._nonfinite_here |= not _is_finite(buffer)
        except Exception as failure:  # no memory on the device
            self.fail(failure)

    def drain(self):
        """Waits until no bucket is in progress."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    @property
    def error(self):
        return self._error or self._refusal

    def verdict(self):
        """This rank's verdict on the step; no bucket may be in progress."""
        if self.error:
            return FAILED
        if self._nonfinite_here:
            return NONFINITE_HERE
        if self._nonfinite or not all(_is_finite(value) for value in self.values):
            return NONFINITE
        return FINE


def _is_finite(value):
    if value.is_sparse:
        value = value._values()
    if not (value.is_floating_point() or value.is_complex()):
        return True
    # in parts, because isfinite() allocates a result as long as its argument
    return all(bool(torch.isfinite(part).all()) for part in value.reshape(-1).split(_PART))


def confirm(verdict, group, device, patience=None):
    """A list of all ranks' verdicts, by rank, from one small all-reduce.

    Without it a step could fail on one rank, whose last answer was lost, and
    succeed on the others: the ranks would have different weights and steps.
    device: where the group reduces buckets; patience: seconds, after which
    TimeoutError is raised; None: the group's timeout.
    """
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return [verdict]
    if dist.get_backend(group) == "gloo":
        device = "cpu"
    verdicts = torch.zeros(dist.get_world_size(group), dtype=torch.int32, device=device)
    verdicts[dist.get_rank(group)] = verdict
    work = dist.all_reduce(verdicts, op=dist.ReduceOp.MAX, group=group, async_op=True)
    if patience is not None:
        _wait(work, patience)
    work.wait()
    return verdicts.tolist()


def _wait(work, patience):
    """Raises TimeoutError after patience seconds; most backends ignore work.wait(timeout)."""
    end = time.monotonic() + patience
    while not work.is_completed():
        if time.monotonic() > end:
            raise TimeoutError(f"other ranks have not confirmed the step for {patience:.0f} s")
        time.sleep(0.005)
