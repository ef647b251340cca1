# SPDX-License-Identifier: GPL-2.0
"""Common parts of the tests of the DDP hook: the test double of libthc, a process
group of one rank, buckets, and a model that DDP cuts into several buckets.
"""
import os
import socket
import sys
import unittest

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("1..0 # SKIP torch is missing: apt-get install python3-torch")
    sys.exit(4)

import fake

KEY_FILE = fake.install()
from thc_ddp import ThcState, thc_allreduce_hook  # noqa: E402  (after the fake is in place)

WIDTHS = [32, 300, 200, 100, 10]


class Bucket:
    """The parts of a GradBucket that the hook uses; by default the only bucket of its step."""

    def __init__(self, tensor, parameters=None, index=0, last=True):
        self.tensor, self.list = tensor, parameters or [tensor]
        self.place, self.last = index, last

    def index(self):
        return self.place

    def is_last(self):
        return self.last

    def buffer(self):
        return self.tensor

    def parameters(self):
        return self.list


def state(**options):
    return ThcState(**{"aggregator": "192.0.2.9", "job": 1, "key_file": KEY_FILE, "rank": 0,
                       "threshold": 1, "quiet": True, **options})


def model(seed=1):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(a, b) for a, b in zip(WIDTHS, WIDTHS[1:])]
    return torch.nn.Sequential(*layers)


class HookTest(unittest.TestCase):
    def setUp(self):
        for name in [n for n in os.environ if n.startswith(("FAKE_", "THC_"))]:
            os.environ.pop(name)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        # Small first buckets, so that a small model has several after the rebuild.
        self.first_bytes = dist._DEFAULT_FIRST_BUCKET_BYTES
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1
        dist.init_process_group("gloo", rank=0, world_size=1)

    def tearDown(self):
        dist._DEFAULT_FIRST_BUCKET_BYTES = self.first_bytes
        dist.destroy_process_group()

    def wrap(self, net, hook_state, **options):
        """net with the hook, which notes the size of every bucket."""
        ddp = torch.nn.parallel.DistributedDataParallel(
            net, **{"bucket_cap_mb": 0.1, **options})
        self.buckets = []

        def recording(s, bucket: dist.GradBucket):
            self.buckets.append(bucket.buffer().numel())
            return thc_allreduce_hook(s, bucket)

        ddp.register_comm_hook(hook_state, recording)
        return ddp

    def memories(self, hook_state, net):
        """Error memory of every parameter, by the library's own account."""
        pool = hook_state.state_dict()["pool"]
        numbers = hook_state._memories.numbers
        return [pool[numbers[id(p)]].view(p.shape) for p in net.parameters()]
