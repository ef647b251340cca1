# SPDX-License-Identifier: GPL-2.0
"""One rank of the benchmark of rates, in its own namespace; rate.py starts and ends it. Each line
on stdin names a system and a recorded step. All ranks meet at a barrier and reduce a bucket of that
step's gradient by the system. Each rank prints one JSON object: seconds, CPU seconds, bytes of its
interface, and the bits that were chosen.

Systems: fixed and rate-BITS, in one job, with an error memory each, and gloo_fp32. A bucket repeats
the gradient's blocks. Every result is checked: the mean, plus the mean growth of the ranks' error
memories, is the mean of the ranks' gradients.
"""
import contextlib
import json
import sys
import time
import zlib

import torch
import torch.distributed as dist

from bench.allreduce import Bench
from bench.kept import BLOCK, Kept
from training import join_group, say
from thc_ddp import ThcClient, abi, report


class Recorded:
    """The client, this rank's gradients by step as blocks, and the error memory of each system."""

    def __init__(self, args):
        self.world, self.count = args.world, args.bytes // 4
        self.steps = [torch.from_numpy(own).view(-1, BLOCK) for own in args.gradients]
        self.order = torch.arange(self.count // BLOCK) % len(self.steps[0])
        self.buffer, self.kept = torch.empty(self.count), Kept(self.count)
        self.client = ThcClient(args.aggregator, args.job, args.key_file, args.rank)
        self.info = self.client.info()

    @staticmethod
    @contextlib.contextmanager
    def timed(out):
        """Bench.timed(), plus the process's CPU time, which includes the barrier."""
        began = time.process_time()
        with Bench.timed(out):
            yield
        out["cpu_seconds"] = time.process_time() - began

    def run(self, system, step):
        torch.index_select(self.steps[step], 0, self.order, out=self.buffer.view(-1, BLOCK))
        given, more, out = self.kept.fold(self.buffer), torch.zeros(1), {}
        if system == "gloo_fp32":
            with self.timed(out):
                dist.all_reduce(self.buffer)
            self.buffer /= self.world
            out.update(dict.fromkeys(("bits_up", "bits_down"), 64 * (self.world - 1) / self.world))
        else:
            out.update(self.reduce(system))
            more = self.kept.more(self.client, self.key(system), self.count)
        self.kept.check(system, self.kept.fold(self.buffer), given, more)
        return out

    def reduce(self, system):
        """Reduces the bucket by the job."""
        rate = abi.RATE_FIXED if system == "fixed" else float(system.partition("-")[2])
        before, out = self.client.stats(), {}
        with self.timed(out):
            self.client.allreduce(self.buffer.data_ptr(), self.count, key=self.key(system),
                                  rate=rate)
        after = self.client.stats()
        new = {key: after[key] - before[key] for key in after}
        chosen = report.chosen(new, BLOCK) or {
            "bits_up": self.info["bits"], "bits_down": self.info["sum_width"]}
        again = new["retransmits"]
        return {**out, **chosen, "retransmits": again,
                "frames_up": new["bytes_up"] * (1 - again / new["packets_up"])}

    @staticmethod
    def key(system):
        return zlib.crc32(system.encode())


def serve(args):
    """args: rank, world, job, key_file, aggregator, rendezvous (the address of rank 0), bytes (of the
    bucket), gradients (by step, this rank's own)."""
    join_group(args)
    rank = Recorded(args)
    print(json.dumps({"transport": rank.info["transport"]}), flush=True)
    for line in sys.stdin:
        system, step = line.split()
        say(**rank.run(system, int(step)))
    rank.client.close()
