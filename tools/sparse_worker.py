# SPDX-License-Identifier: GPL-2.0
"""One worker of the demo of a task with sparse gradients: trains with gradients by scheme lhc, then
by Gloo as dense embeddings, and, if lhc's are sparse tensors, by Gloo as rows, too.
demos/sparse.py forks it and draws.
"""
import sys

import torch
import torch.distributed as dist

from demos.sparse import FP32, LHC, runs_of
from training import Watch, interface_bytes, join_group, join_job, say, thc_ddp, train

LOOK_EVERY = 10         # steps between counts of rows


def rows_of(gradient):
    """The number of rows of a gradient that are not zero."""
    if gradient.is_sparse:
        return gradient.coalesce().indices().shape[1]
    return gradient.ne(0).any(1).sum().item()


class Seen(Watch):
    """Counts the interface's bytes over all steps, and every few steps the rows of gradients: own,
    of this rank's batch, and union, of the mean.
    """

    def __init__(self, task, looks):
        self.task, self.looks = task, looks
        self.first = self.last = None
        self.own = {name: [] for name in task.rows}
        self.union = {name: [] for name in task.rows}

    def begin(self, step):
        if not self.first:
            self.first = interface_bytes()

    def end(self, step, model, batch):
        self.last = interface_bytes()
        if not self.looks or step % LOOK_EVERY:
            return
        for name, count in self.task.touched(batch).items():
            self.own[name].append(count)
            self.union[name].append(rows_of(model.get_parameter(name).grad))

    def told(self):
        up, down = (b - a for a, b in zip(self.first, self.last))
        return {"bytes_up": up, "bytes_down": down, "own": self.own, "union": self.union}


def summed(_state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean by Gloo, as sum and division: with two ranks each value is rounded once. DDP's own
    hook divides before the sum, and would round tiny values twice.
    """
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].div_(dist.get_world_size()))


def work(args):
    """A worker from its beginning to its end. args: rank, world, task, steps, sparse, schemes, job,
    key_file, aggregator, rendezvous (the address of rank 0)."""
    try:
        train_all(args)
    except thc_ddp.ThcError as error:
        sys.exit(f"worker: {error}")


def train_all(args):
    join_group(args)
    state = join_job(args, schemes=args.schemes)
    for name in runs_of(args.sparse):
        seen = Seen(args.task, name == LHC)
        by = ({"state": state, "hook": thc_ddp.thc_allreduce_hook} if name == LHC else
              {"hook": summed})
        result = train(name, args.task, args, args.steps,
                       sparse=args.sparse and name != FP32, watch=seen, **by)
        if name == LHC:
            result["stats"] = state.stats()
            state.close()
        say(event="result", **result, **seen.told())
    dist.barrier()
