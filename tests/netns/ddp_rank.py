#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A user's training program for test_ddp.py, with the two lines that plug THC
into it. Prints one JSON object per event.
"""
import argparse
import json
import os
import pickle
import sys

import torch
import torch.distributed as dist

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "userspace/python"))
from thc_ddp import thc_allreduce_hook, thc_hook  # noqa: E402  (found through the path above)


def say(**what):
    print(json.dumps(what), flush=True)


def network():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(200, 1500), torch.nn.Tanh(),
                               torch.nn.Linear(1500, 200), torch.nn.Linear(200, 3))


def steps(model, count, rank):
    """count steps on this rank's own data; prints each."""
    generator = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(count):
        x = torch.randn(16, 200, generator=generator)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        say(event="step", step=step)
    return sum((i + 1) * p.double().sum().item() for i, p in enumerate(model.parameters()))


def main():
    parser = argparse.ArgumentParser()
    for name in ("rank", "world", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--cookie", type=lambda text: int(text, 0), required=True)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--bucket-mb", type=float, default=1.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="10.77.0.1", MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)

    model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=args.bucket_mb)
    state, hook = thc_hook("10.77.0.100", job=1, cookie=args.cookie, rank=dist.get_rank(),
                           timeout=2.0)
    model.register_comm_hook(state, hook)
    digest = steps(model, args.steps, args.rank)
    say(event="trained", digest=digest, stats=state.stats())

    if args.checkpoint:
        saved = pickle.dumps(state)
        state.close()
        dist.barrier()
        state = pickle.loads(saved)
        owed = state.__getstate__()["errors"]["pool"]
        restored = []

        def checking(s, bucket: dist.GradBucket):
            if len(restored) < len(owed):
                numbers = s._errors.layout(bucket)[1]
                restored.extend(torch.equal(part, owed[n]) for n, part in zip(
                    numbers, s.error_memory(bucket).split([s._errors.sizes[n] for n in numbers])))
            return thc_allreduce_hook(s, bucket)

        model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=args.bucket_mb)
        model.register_comm_hook(state, checking)
        digest = steps(model, args.steps, args.rank)
        say(event="restored", digest=digest, equal=restored, parameters=len(owed),
            owed=sum(t.square().sum().item() for t in owed.values()), stats=state.stats())
    dist.barrier()


if __name__ == "__main__":
    main()
