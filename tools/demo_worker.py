# SPDX-License-Identifier: GPL-2.0
"""One worker of the demo: trains a small perceptron on scikit-learn's digits
with PyTorch DDP, first with gradients through THC, then the same on Gloo
fp32. Reports one JSON object per line on stdout; demo.py forks it and
draws. Gloo serves rendezvous, the baseline, and the exact means that the
aggregated gradients are measured against.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "userspace/python"))
import netns  # noqa: E402  (beside this file)
import thc_ddp  # noqa: E402  (found through the path above)

TRAIN_IMAGES = 1400
GLOBAL_BATCH = 80
SEED = 20240416
MEASURE_EVERY = 7       # steps between measurements of the gradients' error


def say(**what):
    print(json.dumps(what), flush=True)


def digits(rank, world):
    """This rank's training images, and the test images: the same split always."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(SEED))
    images = torch.tensor(data.data, dtype=torch.float32)[order] / 16
    labels = torch.tensor(data.target)[order]
    return (images[rank:TRAIN_IMAGES:world], labels[rank:TRAIN_IMAGES:world],
            images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:])


def perceptron(hidden):
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))


class Measured:
    """The THC hook, recording bucket sizes and, on some steps, the error.

    The error of a step is that of its aggregated gradients against the exact
    mean in fp64 of the ranks' gradients, and against that of what the ranks
    compressed: their gradients and what compression owed them from before.
    """

    def __init__(self, hook):
        self.hook, self.on = hook, False
        self.sizes, self.pairs, self.errors = [], [], []

    def __call__(self, state, bucket: dist.GradBucket):
        self.sizes.append(bucket.buffer().numel())
        if not self.on:
            return self.hook(state, bucket)
        gradient = bucket.buffer()
        exact = torch.stack([gradient, gradient + state.error_memory(bucket)]).double()
        work = dist.all_reduce(exact, async_op=True)
        future = self.hook(state, bucket)
        self.pairs.append((exact, work, future))
        return future

    def step_done(self):
        """Adds [[||difference||^2, ||mean||^2] of both] of a measured step."""
        if not self.pairs:
            return
        total = torch.zeros(2, 2, dtype=torch.float64)
        for exact, work, future in self.pairs:
            work.wait()
            exact /= dist.get_world_size()
            difference = future.value().double() - exact
            total += torch.stack([difference.square().sum(1), exact.square().sum(1)], 1)
        self.errors.append(total.tolist())
        self.pairs.clear()


def train(name, args, batch, data, state=None):
    """One run from the seed; returns what demo.py shows about it."""
    images, labels, test_images, test_labels = data
    ddp = torch.nn.parallel.DistributedDataParallel(perceptron(args.hidden))
    measured = Measured(thc_ddp.thc_allreduce_hook)
    if state:
        ddp.register_comm_hook(state, measured.__call__)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    shuffle = torch.Generator().manual_seed(SEED + args.rank)
    per_epoch = TRAIN_IMAGES // args.world // batch
    total, step = args.epochs * per_epoch, 0
    if args.steps:
        total = min(total, args.steps)
    start = time.monotonic()
    while step < total:
        order = torch.randperm(len(labels), generator=shuffle)
        for i in range(min(per_epoch, total - step)):
            pick = order[i * batch:(i + 1) * batch]
            measured.on = bool(state) and step % MEASURE_EVERY == 0
            optimizer.zero_grad()
            loss = loss_of(ddp(images[pick]), labels[pick])
            loss.backward()
            measured.step_done()
            optimizer.step()
            step += 1
            if args.rank == 0:
                say(event="step", run=name, step=step, total=total, loss=loss.item())
    seconds = time.monotonic() - start
    with torch.no_grad():
        right = (ddp.module(test_images).argmax(1) == test_labels).float().mean().item()
        digest = sum(p.double().sum().item() for p in ddp.parameters())
    return {"run": name, "steps": step, "accuracy": right, "loss": loss.item(), "seconds": seconds,
            "digest": digest, "parameters": sum(p.numel() for p in ddp.parameters()),
            "sizes": measured.sizes, "errors": measured.errors}


def work(args):
    """A worker from its beginning to its end. args: rank, world, epochs, steps, hidden, job,
    key_file, aggregator, rendezvous (the address of rank 0)."""
    try:
        train_twice(args)
    except thc_ddp.ThcError as error:
        sys.exit(f"worker: {error}")


def train_twice(args):
    os.environ.update(netns.environment())
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR=args.rendezvous, MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)
    data = digits(args.rank, args.world)
    batch = max(1, GLOBAL_BATCH // args.world)
    say(event="joining")
    # Threshold 0: no bucket is too small for THC here, so that all are counted.
    state = thc_ddp.ThcState(aggregator=args.aggregator, job=args.job, key_file=args.key_file,
                             rank=args.rank, threshold=0).connect()
    say(event="joined", **state.client.info())
    result = train("THC", args, batch, data, state)
    stats = state.stats()
    state.close()
    say(event="result", stats=stats, **result)
    say(event="result", **train("Gloo fp32", args, batch, data))
    dist.barrier()
