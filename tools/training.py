# SPDX-License-Identifier: GPL-2.0
"""Trains a task (tasks/task.py) on one rank with PyTorch DDP, and reports by one JSON object per
line on stdout, which demo_stage.py reads. *_worker.py call train(), some several times. The process
group is Gloo's.
"""
import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist

import netns

sys.path.insert(0, os.path.join(netns.ROOT, "userspace/python"))
import thc_ddp  # noqa: E402  (found through the path above)


def say(**what):
    print(json.dumps(what), flush=True)


def join_group(args):
    """Joins a Gloo process group. args: rank, world, rendezvous (the address of rank 0)"""
    os.environ.update(netns.environment())
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR=args.rendezvous, MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)


def join_job(args, **options):
    """A ThcState that has joined its job. args: aggregator, job, key_file, rank"""
    say(event="joining")
    # threshold=0: all buckets go through THC and are counted
    state = thc_ddp.ThcState(aggregator=args.aggregator, job=args.job, key_file=args.key_file,
                             rank=args.rank, threshold=0, **options).connect()
    say(event="joined", **state.client.info())
    return state


def digest(model):
    """A digest of all parameters' values; +0 and -0 are equal."""
    out = hashlib.sha256()
    for parameter in model.parameters():
        out.update((parameter.detach() + 0.0).numpy())
    return out.hexdigest()


def interface_bytes():
    """(sent, received) by this worker, of all protocols."""
    with open("/proc/thread-self/net/dev", encoding="ascii") as f:
        line = next(line for line in f if line.strip().startswith("eth0:"))
    counters = line.partition(":")[2].split()
    return int(counters[8]), int(counters[0])


class Watch:
    """An observer: train() calls begin() before and end() after each step; neither is timed."""

    def begin(self, step):
        pass

    def end(self, step, model, batch):
        pass


def train(name, task, args, total, *, sparse=False, state=None, hook=None, watch=None):
    """Trains for total steps from the seed; returns (the report as a dict, the model).

    hook, state: the communication hook and its state, None: DDP's own; args: rank, world
    """
    watch = watch or Watch()
    model = task.model(sparse)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    if hook:
        if state:
            state.bind(model)
        ddp.register_comm_hook(state, hook)
    optimizer, batches = task.optimizer(model), task.batches(args.rank, args.world)
    start, step_seconds = time.monotonic(), []
    for step in range(total):
        batch = next(batches)
        watch.begin(step)
        began = time.monotonic()
        optimizer.zero_grad()
        loss = task.loss(ddp, batch)
        loss.backward()
        optimizer.step()
        step_seconds.append(time.monotonic() - began)
        watch.end(step, model, batch)
        if args.rank == 0:
            say(event="step", run=name, step=step + 1, total=total, loss=loss.item())
    seconds = time.monotonic() - start
    say(event="judging", run=name)
    return {"run": name, "steps": total, "quality": task.quality(model, args.rank, args.world),
            "loss": loss.item(), "seconds": seconds, "step_seconds": step_seconds,
            "digest": digest(model), "parameters": sum(p.numel() for p in model.parameters())}
