# SPDX-License-Identifier: GPL-2.0
"""The training of a task (tasks/task.py) by one rank with PyTorch DDP, reported as one JSON object
per line on stdout: what demo_worker.py and its like run, several times in a process. Gloo serves
rendezvous. What reads the reports is demo_stage.py.
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
    """args: rank, world, rendezvous (the address of rank 0)"""
    os.environ.update(netns.environment())
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR=args.rendezvous, MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)


def join_job(args, **options):
    """The hook's state, joined. args: aggregator, job, key_file, rank"""
    say(event="joining")
    # Threshold 0: no bucket is too small for THC here, so that all are counted.
    state = thc_ddp.ThcState(aggregator=args.aggregator, job=args.job, key_file=args.key_file,
                             rank=args.rank, threshold=0, **options).connect()
    say(event="joined", **state.client.info())
    return state


def digest(model):
    """Of all parameters as values: of zeros the sign does not count."""
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
    """What looks at a training: begin() before each step, end() after each; neither is timed."""

    def begin(self, step):
        pass

    def end(self, step, model, batch):
        pass


def train(name, task, args, total, *, sparse=False, state=None, hook=None, watch=None):
    """One run of total steps from the seed; returns what is shown about it, and the model.

    hook, state: of the gradients, None: DDP's own; args: rank, world
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
