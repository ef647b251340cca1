# SPDX-License-Identifier: GPL-2.0
"""One rank of the all-reduce benchmark, in its own namespace; buckets.py starts
and ends it. Each line on stdin names a system and the bytes of a bucket. All
ranks meet at a barrier and reduce one bucket by the system. Each rank prints one
JSON object: the seconds from the barrier to its own completion, and the bytes
that its interface has sent and received.

Systems: thc, thc_ef (error feedback), thc_rate (error feedback, bits by norms), thc_unsealed and
thc_summed (other seals), gloo_fp32, gloo_fp16; lhc-WHERE-OF-BITS: scheme lhc, by BITS of fixed
point or exact (0), on a gradient with OF of 10000 values not zero, in places that all ranks share
(same) or that each rank draws (own); none-WHERE-OF-BITS: scheme none on that gradient. The
conversion of the fp16 bucket is not timed, in Gloo's favour. Every result of THC is compared with
the exact mean.
"""
import contextlib
import json
import os
import sys
import time
import zlib

import torch
import torch.distributed as dist

import netns

sys.path.insert(0, os.path.join(netns.ROOT, "userspace/python"))
from bench.buckets import KEYLESS  # noqa: E402  (found through the path above)
from bench.kept import Kept  # noqa: E402
from thc_ddp import ThcClient  # noqa: E402

NMSE_LIMIT = 0.03       # measured: 0.013, independent gradients, no error feedback
NMSE_OF_FIXED = 1e-12   # of 32 bits the block's largest value uses 29
WITH_FEEDBACK = ("thc_ef", "thc_rate")


class Sparse:
    """The sparse gradient that a system's name describes, and the exact mean over all ranks."""

    def __init__(self, system, gradient, rank):
        self.scheme, where, of, bits = system.split("-")
        draw = torch.Generator().manual_seed(2000 + (rank if where == "own" else 0))
        there = torch.rand(gradient.numel(), generator=draw) < int(of) / 10000
        self.bits = int(bits)
        # zeros are +0, as in the gradient of an embedding or behind a ReLU
        self.gradient = torch.where(there, gradient, torch.zeros(()))
        mean = self.gradient.double()
        dist.all_reduce(mean)
        self.mean = (mean / dist.get_world_size()).float()
        # a key of its own: the form of the index depends on the key's earlier buckets
        self.key = zlib.crc32(system.encode())


def interface():
    """(bytes sent, bytes received) by this rank's interface, headers included."""
    with open("/proc/self/net/dev", encoding="ascii") as f:
        fields = next(line for line in f if line.strip().startswith("eth0:")).split(":")[1].split()
    return int(fields[8]), int(fields[0])


class Bench:
    """This rank's clients, its gradient, and the exact mean over all ranks."""

    def __init__(self, args):
        generator = torch.Generator().manual_seed(1000 + args.rank)
        self.gradient = torch.randn(args.bytes // 4, generator=generator)
        self.mean = self.gradient.clone()
        dist.all_reduce(self.mean)
        self.mean /= args.world
        self.half = self.gradient.half()
        self.buffer = torch.empty_like(self.gradient)
        self.buffer_half = torch.empty_like(self.half)
        self.sparse, self.rank = {}, args.rank
        self.kept = Kept(args.bytes // 4)
        self.clients, self.args = {}, args

    def client(self, system):
        """The client of a system; all ranks join at the first call."""
        if system not in self.clients:
            self.clients[system] = ThcClient(
                self.args.aggregator, self.args.jobs[system],
                None if system in KEYLESS else self.args.key_file, self.args.rank,
                error_feedback=system in WITH_FEEDBACK)
        return self.clients[system]

    @staticmethod
    @contextlib.contextmanager
    def timed(out):
        """Times the block after a barrier; sets out's seconds, interface_up and interface_down."""
        dist.barrier()
        before, start = interface(), time.perf_counter()
        yield
        out["seconds"] = time.perf_counter() - start
        out.update(zip(("interface_up", "interface_down"),
                       (b - a for a, b in zip(before, interface()))))

    def run_sparse(self, system, count):
        if system not in self.sparse:
            self.sparse[system] = Sparse(system, self.gradient[:count], self.rank)
        sparse, client = self.sparse[system], self.client("thc")
        self.buffer.copy_(sparse.gradient)
        before, out = client.stats(), {}
        with self.timed(out):
            client.allreduce(self.buffer.data_ptr(), count, key=sparse.key,
                             scheme=sparse.scheme, precision=sparse.bits)
        out.update(self.counted(before, client.stats()))
        out["nmse"] = self.nmse(self.buffer, sparse.mean)
        if not out["nmse"] <= NMSE_OF_FIXED * bool(sparse.bits):
            raise RuntimeError(f"{system} returned a wrong mean: NMSE {out['nmse']}")
        return out

    @staticmethod
    def counted(before, after):
        return {k: after[k] - before[k] for k in (
            "packets_up", "bytes_up", "packets_down", "bytes_down", "retransmits",
            "window_cuts", "send_calls", "receive_calls")}

    @staticmethod
    def nmse(got, mean):
        return ((got - mean).square().sum() / mean.square().sum()).item()

    @staticmethod
    def key(system, count):
        return zlib.crc32(f"{system} {count}".encode())

    def check(self, system, got):
        """Checks that got is the mean, with error feedback that of gradients plus memories."""
        nmse, count = self.nmse(got, self.mean[:got.numel()]), got.numel()
        if system in WITH_FEEDBACK:
            kept = self.kept
            more = kept.more(self.clients[system], self.key(system, count), count)
            kept.check(system, kept.fold(got), kept.fold(self.gradient[:count]), more)
        elif not nmse < NMSE_LIMIT:
            raise RuntimeError(f"THC returned a wrong mean: NMSE {nmse}")
        return nmse

    def run(self, system, count):
        if "-" in system:
            return self.run_sparse(system, count)
        client = self.client(system) if system in self.args.jobs else None
        fp16 = system == "gloo_fp16"
        buffer = (self.buffer_half if fp16 else self.buffer)[:count]
        buffer.copy_((self.half if fp16 else self.gradient)[:count])
        before, out = client and client.stats(), {}
        with self.timed(out):
            if client:
                client.allreduce(buffer.data_ptr(), count, key=self.key(system, count))
            else:
                dist.all_reduce(buffer)
        if client:
            out.update(self.counted(before, client.stats()))
            out["nmse"] = self.check(system, buffer)
        return out


def serve(args):
    """args: rank, world, jobs (of each system by THC), bytes (of the largest bucket), key_file,
    aggregator, rendezvous (the address of rank 0)."""
    os.environ.update(netns.environment())
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR=args.rendezvous, MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)
    bench = Bench(args)
    print(json.dumps({"info": bench.client("thc").info()}), flush=True)
    for line in sys.stdin:
        system, *size = line.split()
        if system == "memory":
            out = {system: client.info()["memory_peak"] for system, client in bench.clients.items()}
        else:
            out = bench.run(system, int(size[0]) // 4)
        print(json.dumps(out), flush=True)
    for client in bench.clients.values():
        client.close()
