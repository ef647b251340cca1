#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Trains a network by PyTorch DDP, with gradients summed by a THC aggregator,
and goes on after whatever can go wrong with the aggregator, a rank or the
network. On each of two worker hosts:

    export THC_AGGREGATOR=10.0.0.100 THC_JOB=1 THC_KEY_FILE=/etc/thc/job1.key
    torchrun --nnodes=2 --nproc_per_node=1 --max_restarts=3 \\
        --rdzv_backend=c10d --rdzv_endpoint=10.0.0.1:29400 \\
        examples/train_ddp.py --checkpoints /var/tmp/run1

The job has as many ranks as there are workers (thcd --job 1,ranks=2,...).
The torchrun of Debian 12 also needs the options -r 9:1 -t 9:1: without any
redirection, it fails with Python 3.11. In a source tree, PYTHONPATH=userspace/python
finds thc_ddp. The task is made up, so that nothing has to be downloaded: a
network learns the classes that a fixed network gives to random inputs.
"""
import argparse
import glob
import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc_ddp import ThcDisagreement, ThcError, thc_hook

INPUTS, CLASSES, BATCH = 32, 4, 32


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


def network(hidden):
    blocks = [Block(hidden) for _ in range(8)]
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, hidden), *blocks,
                               torch.nn.Linear(hidden, CLASSES))


def task(seed):
    """batch(number): inputs and their classes, the same whenever it is called."""
    teacher = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(seed))

    def batch(number, count=BATCH):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        x = torch.randn(count, INPUTS, generator=generator)
        return x, (x @ teacher).argmax(1)

    return batch


class Checkpoints:
    """The newest two of each rank: ranks may differ by one when they are killed."""

    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank
        if folder:
            os.makedirs(folder, exist_ok=True)

    def _path(self, step):
        return os.path.join(self.folder, f"rank{self.rank}-step{step:08d}.pt")

    def _steps(self):
        paths = glob.glob(glob.escape(self._path(0)).replace("00000000", "????????"))
        return sorted(int(path[-11:-3]) for path in paths)

    def save(self, step, **parts):
        if not self.folder:
            return
        torch.save({name: part.state_dict() for name, part in parts.items()},
                   self._path(step) + ".part")
        os.replace(self._path(step) + ".part", self._path(step))
        for old in self._steps()[:-2]:
            os.remove(self._path(old))

    def load(self, **parts):
        """The step to go on with: the newest that all ranks have saved."""
        newest = torch.tensor(max(self._steps(), default=0) if self.folder else 0)
        dist.all_reduce(newest, op=dist.ReduceOp.MIN)
        step = int(newest)
        if step:
            saved = torch.load(self._path(step))
            for name, part in parts.items():
                part.load_state_dict(saved[name])
        return step


def train(args, rank, world):
    torch.manual_seed(args.seed)
    batch = task(args.seed)
    model = DistributedDataParallel(network(args.hidden), bucket_cap_mb=args.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    state, hook = thc_hook(model=model, error_feedback=not args.no_error_feedback,
                           timeout=args.timeout, join_timeout=args.join_timeout)
    model.register_comm_hook(state, hook)
    checkpoints = Checkpoints(args.checkpoints, rank)
    saved = {"model": model.module, "optimizer": optimizer, "thc": state}
    step, errors = checkpoints.load(**saved), 0
    if step:
        print(f"rank {rank}: goes on after step {step}", flush=True)

    while step < args.steps:
        x, y = batch(step * world + rank)
        optimizer.zero_grad()
        try:
            torch.nn.functional.cross_entropy(model(x), y).backward()
        except ThcDisagreement:         # on all ranks; weights may differ already
            raise
        except ThcError as error:
            # All ranks get here in the same step. The step has changed no weights.
            errors += 1
            if errors > args.retries:
                raise
            print(f"rank {rank}: step {step} failed, joining again: {error}", flush=True)
            state.rejoin()
            continue
        errors = 0
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
        else:                       # on all ranks alike: none of them does this step
            state.undo_step()
        step += 1
        if step % args.every == 0:
            checkpoints.save(step, **saved)
            if rank == 0:
                print(f"step {step} of {args.steps}", flush=True)

    with torch.no_grad():
        x, y = batch(-1, 1000)
        loss = torch.nn.functional.cross_entropy(model.module(x), y).item()
    weights = hashlib.sha256()
    for parameter in model.parameters():
        weights.update(parameter.detach().numpy().tobytes())
    print(f"rank {rank}: {step} steps, loss {loss:.6f}, weights {weights.hexdigest()[:16]}",
          flush=True)
    state.close()
    return state.stats()


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=512, help="width of the layers")
    parser.add_argument("--bucket-mb", type=float, default=1.0, help="size of a bucket")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-error-feedback", action="store_true")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S",
                        help="a step without progress for so long has failed")
    parser.add_argument("--join-timeout", type=float, default=60.0, metavar="S",
                        help="wait so long for the other ranks and the aggregator")
    parser.add_argument("--retries", type=int, default=5, help="of one step")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="none if not given")
    parser.add_argument("--every", type=int, default=20, help="steps from checkpoint to checkpoint")
    return parser.parse_args(words)


def main():
    args = arguments()
    dist.init_process_group("gloo")
    try:
        train(args, dist.get_rank(), dist.get_world_size())
    except ThcError as error:
        sys.exit(f"rank {dist.get_rank()}: {error}")


if __name__ == "__main__":
    main()
