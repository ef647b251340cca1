# SPDX-License-Identifier: GPL-2.0
"""Error memories of the benchmarks' clients: they stay from one all-reduce to the next, as in training,
so a mean is checked with what they have more than before. Values are compared by blocks, each folded:
its coordinates' sum with signs that all ranks have alike.
"""
import torch
import torch.distributed as dist

BLOCK = 1024
TOLERANCE = 1e-4        # of what is rounded in single precision


class Kept:
    """What the error memory of a key had so far.

    count: values of the largest bucket, in whole blocks
    """

    def __init__(self, count):
        draw = torch.Generator().manual_seed(1)
        self.signs = 2 * torch.randint(2, (BLOCK,), generator=draw).float() - 1
        self.memory, self.before = torch.zeros(count), {}

    def fold(self, values):
        return (values.view(-1, BLOCK) @ self.signs).double()

    def more(self, client, key, count):
        """What the memory has more than the last time that this was asked, folded."""
        client.error_export(key, self.memory.data_ptr(), count)
        last, now = self.before.get(key, 0), self.fold(self.memory[:count])
        self.before[key] = now
        return now - last

    @staticmethod
    def check(system, got, given, more):
        """got: the mean, folded; given: this rank's gradient; more: what it kept of it"""
        sent = given - more
        dist.all_reduce(sent)
        # of a block of which nothing is sent hardly anything is left
        wrong = (got - sent / dist.get_world_size()).norm() / (given.norm() + more.norm())
        if not wrong < TOLERANCE:
            raise RuntimeError(f"{system} returned a wrong mean: beside what ranks gave and kept it is "
                               f"wrong by {wrong:.2g} of that")
