# SPDX-License-Identifier: GPL-2.0
"""Error memories of the benchmarks' clients persist between all-reduces, as in training, so the
check of a mean includes the growth of the memories. Values are compared by blocks; fold() reduces a
block to the sum of its coordinates with random signs, equal on all ranks.
"""
import torch
import torch.distributed as dist

BLOCK = 1024
TOLERANCE = 1e-4        # relative, for single precision


class Kept:
    """The last known contents of error memories, by key.

    count: values of the largest bucket, in whole blocks
    """

    def __init__(self, count):
        draw = torch.Generator().manual_seed(1)
        self.signs = 2 * torch.randint(2, (BLOCK,), generator=draw).float() - 1
        self.memory, self.before = torch.zeros(count), {}

    def fold(self, values):
        return (values.view(-1, BLOCK) @ self.signs).double()

    def more(self, client, key, count):
        """The growth of key's memory since the last call, folded."""
        client.error_export(key, self.memory.data_ptr(), count)
        last, now = self.before.get(key, 0), self.fold(self.memory[:count])
        self.before[key] = now
        return now - last

    @staticmethod
    def check(system, got, given, more):
        """Compares got, the mean, with the exact mean of given - more over all ranks, all folded.

        given: this rank's gradient; more: the growth of its memory
        """
        sent = given - more
        dist.all_reduce(sent)
        # relative to given + more: given - more is nearly 0 if nothing of the block is sent
        wrong = (got - sent / dist.get_world_size()).norm() / (given.norm() + more.norm())
        if not wrong < TOLERANCE:
            raise RuntimeError(f"{system} returned a wrong mean: beside what ranks gave and kept it is "
                               f"wrong by {wrong:.2g} of that")
