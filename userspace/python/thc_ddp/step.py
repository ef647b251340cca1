# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""A training step, as far as the gradients' exchange is concerned: the buckets
of one backward pass, how they ended, and what all ranks say of it.

An error of a bucket must not leave the hook and must not be the result of a
bucket's future: DDP would then give up the pass with other buckets still under
way, whose results would come into the next step's gradients, and would refuse
the next step. So a step keeps the error until the pass is over:

    hook(first bucket)   queues PassEnd with autograd
    hook(other buckets)  DDP queues its own callback with the last one, which
                         waits for all buckets and copies them into .grad
    PassEnd()            runs before DDP's callback: queues its second half
    DDP's callback
    PassEnd.end()        nothing is under way any more: the step may fail
"""
import errno
import threading
import time

import torch
import torch.distributed as dist

_engine = torch.autograd.Variable._execution_engine

# What a rank says of its step; the worst of all ranks' is what happens. NONFINITE_HERE: this rank's
# own gradient was not finite.
FINE, NONFINITE, NONFINITE_HERE, FAILED = range(4)
# Elements that are looked at in one go.
_PART = 1 << 22


class PassEnd:
    """Calls finish() when a backward pass is over, DDP's part of it included."""

    def __init__(self, finish):
        self._finish = finish

    def queue(self):
        """False: no backward pass is going on."""
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
    """Buckets under way, and how those ended that are not any more.

    keys: of the error memories that the step has used
    values: of the buckets that did not go through THC
    went: by bucket: report.Went of its runs
    device: of the bucket that came last
    last: the pass's last bucket has come
    pass_end: weak reference to the PassEnd that is queued for this step; it is
        dead if the pass was given up
    """

    def __init__(self):
        self._changed = threading.Condition()
        self._under_way = 0
        self._error = None      # the first that does not follow from another one
        self._refusal = None    # the first of a bucket that could not be started
        self._nonfinite = False
        self._nonfinite_here = False
        self.keys = []
        self.values = []
        self.went = []
        self.device = torch.device("cpu")
        self.last = False
        self.pass_end = None

    def begin(self):
        """A bucket is under way, until end()."""
        with self._changed:
            self._under_way += 1

    def end(self, error=None, finite=True):
        with self._changed:
            self._under_way -= 1
            self._error = self._error or error
            self._nonfinite |= not finite
            self._changed.notify_all()

    def refuse(self, error):
        """A bucket could not be started through the job."""
        with self._changed:
            self._refusal = self._refusal or error
            # ESTALE follows from an error of the client that may not have come to end() yet
            if getattr(error, "errno", None) != errno.ESTALE:
                self._error = self._error or error

    def fail(self, error):
        """The step fails, though no bucket of the job is missing."""
        with self._changed:
            self._error = self._error or error

    def raise_refusal(self):
        """Raises why an earlier bucket could not be started, if one could not.

        The job counts buckets. The next one of this rank would meet the one of the other ranks
        that is missing here, as if they disagreed. If it does not come they time out, and can
        rejoin. What end() has does not count here: it comes at another time on each rank.
        """
        if self._refusal:
            raise self._refusal

    def look_at(self, buffer):
        """Notes whether what this rank gives to the process group is finite; of the sum nobody can
        tell any more who gave what. Never raises: the other ranks wait for the collective.
        """
        try:
            self._nonfinite_here |= not _is_finite(buffer)
        except Exception as failure:  # no memory on the device
            self.fail(failure)

    def drain(self):
        """Waits until no bucket is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    @property
    def error(self):
        return self._error or self._refusal

    def verdict(self):
        """What this rank says of the step; no bucket may be under way."""
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
    # in parts: isfinite() needs memory
    return all(bool(torch.isfinite(part).all()) for part in value.reshape(-1).split(_PART))


def confirm(verdict, group, device, patience=None):
    """The verdicts of all ranks, by rank, through one small collective.

    Without it, a step whose last answer was lost on its way to one rank would
    have happened on the others. Ranks then disagree about the weights, and
    about which step comes next. device: where the group reduces buckets;
    patience: seconds, None: the group's timeout.
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
    """Unlike work.wait(timeout), which most backends do not obey, this ends in time."""
    end = time.monotonic() + patience
    while not work.is_completed():
        if time.monotonic() > end:
            raise TimeoutError(f"other ranks have not confirmed the step for {patience:.0f} s")
        time.sleep(0.005)
