# SPDX-License-Identifier: GPL-2.0
"""A user's training program for test_ddp.py, with the two lines that plug THC
into it. Prints one JSON object per event.
"""
import argparse
import fnmatch
import json
import os
import pickle
import sys

import torch
import torch.distributed as dist

from tap import netns

sys.path.insert(0, os.path.join(netns.ROOT, "userspace/python"))
from thc_ddp import thc_allreduce_hook, thc_hook  # noqa: E402  (found through the path above)


def say(**what):
    print(json.dumps(what), flush=True)


def network():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(200, 1500), torch.nn.Tanh(),
                               torch.nn.Linear(1500, 200), torch.nn.Linear(200, 3))


def words_network(sparse):
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.EmbeddingBag(6000, 48, mode="mean", sparse=sparse),
                               torch.nn.Linear(48, 3000))


def data(model, generator):
    """A batch: random numbers, or words of a large vocabulary, some of them far more frequent."""
    if isinstance(model.module[0], torch.nn.EmbeddingBag):
        return (6000 * torch.rand(16, 5, generator=generator)**4).long()
    return torch.randn(16, 200, generator=generator)


def steps(model, count, rank):
    """count steps on this rank's own data; prints each."""
    generator = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(count):
        x = data(model, generator)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        say(event="step", step=step)
    return sum((i + 1) * p.double().sum().item() for i, p in enumerate(model.parameters()))


def dense(buffer):
    """A dense copy of a buffer. Duplicate values of a sparse buffer are added, as in the hook."""
    return buffer.coalesce().to_dense().flatten() if buffer.is_sparse else buffer


class Watch:
    """The hook, and its results for small buckets or for some parameters."""

    def __init__(self, watched):
        self.watched = {id(p) for p in watched}
        self.buckets = []       # [this rank's gradient, what the hook gave]

    def parts(self, state, bucket):
        """The slices of a bucket that are watched."""
        if not self.watched:
            return [slice(None)] if bucket.buffer().numel() < state.threshold else []
        parts, at = [], 0
        for parameter in bucket.parameters():
            end = at + parameter.numel()
            parts += [slice(at, end)] * (id(parameter) in self.watched)
            at = end
        return parts

    def hook(self, state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        own, parts = dense(bucket.buffer()).clone(), self.parts(state, bucket)
        # in the order of calls, which is equal on all ranks; buckets end in any order
        places = [[own[part], None] for part in parts]
        self.buckets += places

        def keep(future):
            value = future.value()
            for place, part in zip(places, parts):
                place[1] = dense(value)[part].clone()
            return value

        return thc_allreduce_hook(state, bucket).then(keep)

    def compare(self):
        """The largest difference from the mean and the least spread of the ranks, as fractions of
        the largest value; and whether all results are the mean, rounded once.
        """
        error, spread, exact = 0.0, float("inf"), True
        for own, value in self.buckets:
            ranks = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
            dist.all_gather(ranks, own)
            ranks = torch.stack(ranks).double()
            mean, most = ranks.mean(0), ranks.abs().max().item()
            exact = exact and torch.equal(value, mean.to(value.dtype))
            error = max(error, (value.double() - mean).abs().max().item() / most)
            spread = min(spread, (ranks - mean).abs().max().item() / most)
        return {"buckets": len(self.buckets), "error": error, "spread": spread,
                "exact": exact}


def chosen(schemes, name):
    """The scheme of a parameter; "auto": for a parameter of words_network()."""
    if schemes == "auto":
        return "lhc" if name == "0.weight" else None
    return next((choice for pattern, choice in schemes.items() if fnmatch.fnmatch(name, pattern)),
                None)


def train(argv):
    """Run the program with these arguments."""
    parser = argparse.ArgumentParser()
    for name in ("rank", "world", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--key-file", required=True)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--means", action="store_true")
    parser.add_argument("--small", default="group")
    parser.add_argument("--schemes", type=json.loads, default={},
                        help="with --means: those that go by none and lhc are looked at")
    parser.add_argument("--words", choices=("sparse", "dense"), help="an embedding's gradient")
    parser.add_argument("--start-iter", type=int, default=0)
    parser.add_argument("--bucket-mb", type=float, default=1.0)
    args = parser.parse_args(argv)
    os.environ.update(netns.environment())
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="10.77.0.1", MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)

    model = torch.nn.parallel.DistributedDataParallel(
        words_network(args.words == "sparse") if args.words else network(),
        bucket_cap_mb=args.bucket_mb)
    state, hook = thc_hook("10.77.0.100", job=1, key_file=args.key_file, rank=dist.get_rank(),
                           timeout=2.0, small=args.small, schemes=args.schemes, model=model,
                           start_iter=args.start_iter)
    watch = Watch(p for name, p in model.module.named_parameters()
                  if chosen(args.schemes, name) in ("none", "lhc"))
    model.register_comm_hook(state, watch.hook if args.means else hook)
    digest = steps(model, args.steps, args.rank)
    if args.means:
        say(event="means", **watch.compare())
    say(event="trained", digest=digest, stats=state.stats())

    if args.checkpoint:
        saved = pickle.dumps(state)
        state.close()
        dist.barrier()
        state = pickle.loads(saved).connect()
        owed = state.state_dict()["pool"]
        restored = []

        def checking(s, bucket: dist.GradBucket):
            if len(restored) < len(owed):
                numbers = s._memories.layout(bucket)[1]
                restored.extend(torch.equal(part, owed[n]) for n, part in zip(
                    numbers, s.error_memory(bucket).split([s._memories.sizes[n] for n in numbers])))
            return thc_allreduce_hook(s, bucket)

        model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=args.bucket_mb)
        state.bind(model)
        model.register_comm_hook(state, checking)
        digest = steps(model, args.steps, args.rank)
        say(event="restored", digest=digest, equal=restored, parameters=len(owed),
            owed=sum(t.square().sum().item() for t in owed.values()), stats=state.stats())
    dist.barrier()
