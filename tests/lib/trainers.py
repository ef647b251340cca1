# SPDX-License-Identifier: GPL-2.0
"""Ranks of examples/train_ddp.py for tests. Each rank is a fork of this process, so
torch is imported once: on an emulated machine the import takes half a minute.

    with Trainers(["--steps", "60"], places=[net.worker(0), net.worker(1)], ...) as trainers:
        trainers.until("step 20")
        ...
        for text in trainers.finish(): ...
"""
import contextlib
import functools
import importlib.util
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "userspace/python")]
import netns  # noqa: E402  (found through the path above)
from forked import Forked  # noqa: E402

EXAMPLE = os.path.join(ROOT, "examples/train_ddp.py")
_spec = importlib.util.spec_from_file_location("train_ddp", EXAMPLE)
train_ddp = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(train_ddp)

# Eight buckets of one block each, and one fallback bucket.
WORDS = ["--hidden", "80", "--bucket-mb", "0.02"]
BUCKETS = 8
ENDED_BY_ERROR = 3


def small_buckets():
    """Makes DDP's first bucket no larger than the others."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1
    torch.set_num_threads(1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def in_backward(rank, step, act):
    """A function for Trainers' prepare: calls act(gradient) in the middle of a rank's backward
    pass.

    If act() returns a tensor, it replaces the gradient of a middle layer. step counts
    backward passes from 1, repeated steps included.
    """
    def prepare(this):
        made = train_ddp.network

        def network(hidden):
            net, passes = made(hidden), [0]

            def hook(grad):
                passes[0] += 1
                return act(grad) if this == rank and passes[0] == step else None

            net[4].linear.weight.register_hook(hook)
            return net

        train_ddp.network = network

    return prepare


def one_inf(step):
    return in_backward(1, step, lambda grad: grad * float("inf"))


def die_once(step, marker):
    """Kills rank 1 in this step, unless the file marker exists, which it makes first."""
    def act(_grad):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)

    return in_backward(1, step, act)


_train = train_ddp.train


def train_and_count(*arguments):
    """Runs the example's train() and prints a line for counted()."""
    stats = _train(*arguments)
    print(f"stats: {stats['buckets_thc']} buckets, {stats['steps_failed']} failed, "
          f"{stats['steps_nonfinite']} nonfinite", flush=True)


class Trainers:
    """Two ranks or more, until finish() or the end of the `with`.

    words: the example's options; places: a namespace per rank, None: this one; seeds: one
    run per seed; prepare(rank): called in each process; others: environment variables
    """

    def __init__(self, words, places=(None, None), seeds=(1,), prepare=None,
                 address="127.0.0.1", port=None, **environment):
        self.ranks = len(places)
        self.files = [tempfile.TemporaryFile("w+") for _ in places]
        common = {"MASTER_ADDR": address, "MASTER_PORT": str(port or free_port()),
                  "WORLD_SIZE": str(self.ranks), **environment}
        self.runs = [train_ddp.arguments([*WORDS, *words, "--seed", str(seed)]) for seed in seeds]
        train = functools.partial(self._train, common, prepare)
        self.children = [Forked(functools.partial(train, rank, place), stdout=file.fileno(),
                                stderr=file.fileno())
                         for rank, (place, file) in enumerate(zip(places, self.files))]

    def _train(self, environment, prepare, rank, place):
        """Body of a rank's process."""
        if place:
            netns.move_into(place)
        os.environ.update(environment, RANK=str(rank))
        small_buckets()
        dist.init_process_group("gloo")
        if prepare:
            prepare(rank)
        try:
            for run in self.runs:
                train_and_count(run, rank, self.ranks)
        except train_ddp.ThcError as error:
            print(f"ended by ThcError: {error}", flush=True)
            sys.exit(ENDED_BY_ERROR)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        for rank in range(self.ranks):
            self.kill(rank)
        for file in self.files:
            file.close()

    def kill(self, rank):
        self.children[rank].kill()
        self.children[rank].wait()

    @property
    def statuses(self):
        """Exit statuses by rank; None: the rank runs."""
        return [child.poll() for child in self.children]

    def text(self, rank):
        """The output of a rank so far."""
        # pread(), because seek() would move the rank's shared file offset
        size = os.fstat(self.files[rank].fileno()).st_size
        return os.pread(self.files[rank].fileno(), size, 0).decode(errors="replace")

    def all_text(self):
        return "\n".join(f"--- rank {rank}\n{self.text(rank)}" for rank in range(self.ranks))

    def until(self, what, patience=120.0, rank=0):
        """Waits until a rank has printed `what`; fails the test after patience seconds."""
        end = time.monotonic() + patience
        while what not in self.text(rank):
            assert self.children[rank].poll() is None, (
                f"rank {rank} ended before it said '{what}':\n{self.all_text()}")
            assert time.monotonic() < end, f"no '{what}' within {patience} s:\n{self.all_text()}"
            select.select([], [], [], 0.005)

    def ended(self, patience=240.0):
        """Waits until all ranks have ended; returns their outputs. statuses has exit statuses."""
        end = time.monotonic() + patience
        for rank, child in enumerate(self.children):
            try:
                child.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {rank} has not ended after {patience} s:\n"
                                     f"{self.all_text()}") from None
        return [self.text(rank) for rank in range(self.ranks)]

    def finish(self, patience=240.0, status=0):
        """ended(), and fails the test unless all ranks end with this status."""
        texts = self.ended(patience)
        assert self.statuses == [status] * self.ranks, (
            f"exit statuses {self.statuses}, expected {status}:\n{self.all_text()}")
        return texts


def outcomes(text):
    """[(steps, loss, weights)] that a rank printed, one per run."""
    return [(int(steps), float(loss), weights) for steps, loss, weights in
            re.findall(r"(\d+) steps, loss (\S+), weights (\S+)", text)]


def counted(text):
    """(buckets through THC, failed steps, steps that were not finite)"""
    return tuple(map(int, re.search(r"stats: (\d+) buckets, (\d+) failed, (\d+) nonfinite",
                                    text).groups()))


def agreed_runs(texts):
    """outcomes() of all ranks; fails the test unless they are equal, weights bit for bit."""
    ranks = [outcomes(text) for text in texts]
    assert all(rank == ranks[0] for rank in ranks), (
        "the ranks' weights differ:\n" + "\n".join(texts))
    return ranks[0]


def agreed(texts):
    """The outcome of ranks that made one run, see agreed_runs()."""
    runs = agreed_runs(texts)
    assert len(runs) == 1, "\n".join(texts)
    return runs[0]


def main():
    """The example as torchrun starts it. TRAINERS_DIE_ONCE=STEP:MARKER: see die_once()."""
    small_buckets()
    step, _, marker = os.environ.get("TRAINERS_DIE_ONCE", "").partition(":")
    if marker:
        die_once(int(step), marker)(int(os.environ["RANK"]))
    sys.argv[1:1] = WORDS
    train_ddp.train = train_and_count
    train_ddp.main()


if __name__ == "__main__":
    main()
