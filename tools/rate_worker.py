# SPDX-License-Identifier: GPL-2.0
"""One worker of the experiment rate_train: trains a task once, with one way to sum gradients, and
reports the model's quality during training and the bytes of the worker's interface.
experiments/rate_train.py forks it.
"""
import sys

import torch
import torch.distributed as dist

from baselines.powersgd import PowerSgd
from training import Watch, interface_bytes, join_group, join_job, say, thc_ddp, train


class LowRank:
    """A hook: means of buckets by PowerSGD over Gloo, with one blocking all-reduce at a time."""

    def __init__(self, rank):
        self.method = PowerSgd(rank)

    def __call__(self, _state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        parts = dict(zip(map(id, bucket.parameters()), bucket.gradients()))
        exchange = self.method.exchange({key: part.numpy() for key, part in parts.items()})
        means = _mean_of_all(exchange)
        for key, part in parts.items():
            part.copy_(torch.from_numpy(means[key]))
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future


def _mean_of_all(exchange):
    """Runs this rank's generator, in step with the other ranks'; returns its result."""
    try:
        sent = next(exchange)
        while True:
            mean = torch.from_numpy(sent)
            dist.all_reduce(mean)
            sent = exchange.send(mean.div_(dist.get_world_size()).numpy())
    except StopIteration as end:
        return end.value


class Judged(Watch):
    """Counts the interface's bytes over all steps, and judges the model every args.every steps (0:
    never).
    """

    def __init__(self, task, args):
        self.task, self.args = task, args
        self.first = self.last = None
        self.apart = (0, 0)     # bytes that judging took, (sent, received)
        self.qualities = []

    def begin(self, step):
        self.first = self.first or interface_bytes()

    def end(self, step, model, batch):
        self.last = interface_bytes()
        if self.args.every and (step + 1) % self.args.every == 0 and step + 1 < self.args.steps:
            quality = self.task.quality(model, self.args.rank, self.args.world)
            self.qualities.append((step + 1, quality))
            self.apart = tuple(apart + now - last for apart, now, last in
                               zip(self.apart, interface_bytes(), self.last))

    def told(self):
        up, down = (last - first - apart
                    for last, first, apart in zip(self.last, self.first, self.apart))
        return {"bytes_up": up, "bytes_down": down, "qualities": self.qualities}


def work(args):
    """A worker from its beginning to its end. args: rank, world, task, run, steps, every, by ("group",
    "job", "powersgd"), job, key_file, aggregator, rendezvous (the address of rank 0)."""
    try:
        train_once(args)
    except thc_ddp.ThcError as error:
        sys.exit(f"worker: {error}")


def train_once(args):
    join_group(args)
    way, watch = {}, Judged(args.task, args)
    if args.by == "job":
        way = {"state": join_job(args, quiet=True), "hook": thc_ddp.thc_allreduce_hook}
    elif args.by == "powersgd":
        way = {"hook": LowRank(2).__call__}
    result = train(args.run, args.task, args, args.steps, watch=watch, **way)
    if args.by == "job":
        result["stats"] = way["state"].stats()
        way["state"].close()
    say(event="result", **result, **watch.told())
    dist.barrier()
