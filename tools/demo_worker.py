# SPDX-License-Identifier: GPL-2.0
"""One worker of the demo: trains a small perceptron on scikit-learn's digits
with PyTorch DDP, first with gradients through THC, then through Gloo in fp32.
demo.py forks the worker and draws. Gloo also computes the exact means, against
which the error of THC's means is measured.
"""
import sys

import torch
import torch.distributed as dist

from training import Watch, join_group, join_job, say, thc_ddp, train

MEASURE_EVERY = 7       # steps between measurements of the gradients' error


class Measured(Watch):
    """The THC hook, which also records bucket sizes and, every few steps, the error.

    A step has two errors of its aggregated gradients: against the exact fp64
    mean of the ranks' gradients, and against the exact mean of the ranks'
    compressed input, that is gradient plus error memory. Over all measured
    steps told() also has the second error relative to the mean of the ranks'
    squared inputs, and the error that the bits by norms predict.
    """

    def __init__(self, hook, state):
        self.hook, self.state, self.on = hook, state, False
        self.sizes, self.pairs, self.errors = [], [], []
        self.own, self.expected, self.before = 0, [0, 0], None

    def __call__(self, state, bucket: dist.GradBucket):
        self.sizes.append(bucket.buffer().numel())
        if not self.on:
            return self.hook(state, bucket)
        gradient = bucket.buffer()
        exact = torch.stack([gradient, gradient + state.error_memory(bucket)]).double()
        square = exact[1].square().sum()
        work = dist.all_reduce(exact, async_op=True)
        future = self.hook(state, bucket)
        self.pairs.append((exact, square, work, future))
        return future

    def begin(self, step):
        self.on = step % MEASURE_EVERY == 0
        self.before = self.counted()

    def counted(self):
        """(expected squared error, agreed squared norms), summed since the join."""
        stats = self.state.client.stats()
        return stats["rate_lost"], stats["rate_square"]

    def end(self, step, model, batch):
        """Appends [[||difference||^2, ||mean||^2] of both errors] of a measured step."""
        if not self.pairs:
            return
        total = torch.zeros(2, 2, dtype=torch.float64)
        own = sum(square for _, square, _, _ in self.pairs)
        dist.all_reduce(own)
        for exact, _, work, future in self.pairs:
            work.wait()
            exact /= dist.get_world_size()
            difference = future.value().double() - exact
            total += torch.stack([difference.square().sum(1), exact.square().sum(1)], 1)
        self.own += own.item() / dist.get_world_size()
        self.errors.append(total.tolist())
        self.expected = [of + new - old for of, new, old in
                         zip(self.expected, self.counted(), self.before)]
        self.pairs.clear()

    def told(self):
        """The results as a dict. predicted: None where bits do not follow norms"""
        lost, square = self.expected
        return {"sizes": self.sizes, "errors": self.errors,
                "measured": sum(of[1][0] for of in self.errors) / self.own,
                "predicted": lost / square if square else None}


def work(args):
    """A worker from its beginning to its end. args: rank, world, task, steps, job, key_file,
    aggregator, rendezvous (the address of rank 0)."""
    try:
        train_twice(args)
    except thc_ddp.ThcError as error:
        sys.exit(f"worker: {error}")


def train_twice(args):
    join_group(args)
    state = join_job(args)
    measured = Measured(thc_ddp.thc_allreduce_hook, state)
    result = train("THC", args.task, args, args.steps, state=state, hook=measured.__call__,
                   watch=measured)
    stats = state.stats()
    state.close()
    say(event="result", stats=stats, **measured.told(), **result)
    say(event="result", **train("Gloo fp32", args.task, args, args.steps))
    dist.barrier()
