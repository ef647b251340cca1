# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Error memories by parameter: which bucket holds the error of which parameter,
and moving it to another bucket.

DDP rebuilds its buckets after the first iteration, so a bucket's index and
extent change; its parameters stay. After bind() a parameter's number is its
position in the model. Else parameters are numbered as they first appear, also
those that do not go through the job. All ranks see one order, because DDP
reduces buckets in one order on all ranks. A restart sees that order again,
because DDP cuts the buckets of the first pass from the model alone. A bucket's
key is a hash of its parameters' numbers and sizes. When a parameter appears in
another bucket, its part of the old bucket's error memory moves with it.
"""
import errno
import hashlib
import struct

import torch

from thc_ddp.client import ThcError


# The order in which parameters are numbered.
BY_MODEL, BY_BUCKETS = "model", "buckets"


class Memories:
    def __init__(self):
        self.numbers = {}       # id(parameter) -> number
        self.parameters = []    # by number: keeps the ids valid
        self.sizes = []         # by number: elements
        self.order = BY_BUCKETS
        self.restored = None    # the order of the numbers in the checkpoint that was restored
        self.layouts = {}       # key -> numbers of the parameters in the key's bucket
        self.pool = {}          # number -> tensor: memories that no bucket's key has

    def bind(self, parameters):
        """Numbers parameters in the model's order; parameters that have a number keep it."""
        numbered, kept = dict(self.numbers), (self.order, list(self.sizes), list(self.parameters))
        if not numbered:
            self.order = BY_MODEL
        try:
            for parameter in parameters:
                self._number(parameter)
        except ThcError:
            self.numbers, (self.order, self.sizes, self.parameters) = numbered, kept
            raise

    def _number(self, parameter):
        n = self.numbers.get(id(parameter))
        if n is None:
            n = len(self.parameters)
            if n < len(self.sizes):
                self._check(n, parameter, self.sizes, self.restored)
            self.numbers[id(parameter)] = n
            self.parameters.append(parameter)
            if n == len(self.sizes):
                self.sizes.append(parameter.numel())
        return n

    def _check(self, n, parameter, sizes, order):
        """ThcError if parameter cannot be the one that has number n in a checkpoint."""
        if order != self.order:
            raise ThcError("the checkpoint is of a state that knew its model: give model=, or call "
                           "state.bind(model) first" if order == BY_MODEL else
                           "the checkpoint is of a state that did not know its model: restore it "
                           "without model= and bind()", errno.EINVAL)
        if parameter.numel() != sizes[n]:
            raise ThcError(f"parameter {n} has {parameter.numel()} elements, the checkpoint says "
                           f"{sizes[n]}: restore the state with the model it was saved from",
                           errno.EINVAL)

    def layout(self, bucket):
        """(key, numbers of its parameters) of a bucket, equal on all ranks."""
        numbers = [self._number(p) for p in bucket.parameters()]
        words = [w for n in numbers for w in (n, self.sizes[n])]
        digest = hashlib.blake2b(struct.pack(f"<{len(words)}Q", *words), digest_size=8).digest()
        return int.from_bytes(digest, "little"), numbers

    def _export(self, client, key):
        """{number: copy of its memory} of key's bucket; {} if the client has no such memory."""
        count = client.error_count(key)
        memory = torch.zeros(count, dtype=torch.float32)
        client.error_export(key, memory.data_ptr(), count)
        if count != sum(self.sizes[n] for n in self.layouts[key]):
            return {}
        return dict(zip(self.layouts[key],
                        memory.split([self.sizes[n] for n in self.layouts[key]])))

    def place(self, client, key, numbers):
        """Moves the memories of the parameters with these numbers to key, if they are elsewhere."""
        if key in self.layouts:
            return
        wanted = set(numbers)
        for old in [k for k, have in self.layouts.items() if wanted & set(have)]:
            self.pool.update(self._export(client, old))
            client.error_import(old, None, 0)
            del self.layouts[old]
        if any(n in self.pool for n in numbers):
            memory = torch.cat([self.pool[n] if n in self.pool else torch.zeros(self.sizes[n])
                                for n in numbers])
            client.error_import(key, memory.data_ptr(), memory.numel())
            for n in numbers:
                self.pool.pop(n, None)
        self.layouts[key] = numbers

    def snapshot(self, client):
        """All memories by parameter, for a checkpoint: plain tensors and numbers."""
        pool = dict(self.pool)
        if client:
            for key in self.layouts:
                pool.update(self._export(client, key))
        # restored memories keep the order of their checkpoint until parameters are numbered
        order = self.order if self.numbers else self.restored or self.order
        return {"order": order, "sizes": list(self.sizes),
                "pool": {n: t.clone() for n, t in pool.items()}}

    def keep(self, client):
        """Copies all memories out of a client that is about to be closed."""
        self.pool = self.snapshot(client)["pool"]
        self.layouts = {}

    def restore(self, client, saved):
        """Replaces all memories by those of a snapshot. ThcError: it is another model's."""
        # a snapshot without memories fits any model
        sizes = list(saved["sizes"]) if saved["pool"] else []
        for n, parameter in enumerate(self.parameters[:len(sizes)]):
            self._check(n, parameter, sizes, saved["order"])
        if client:
            for key in self.layouts:
                client.error_import(key, None, 0)
        self.layouts = {}
        self.restored = saved["order"]
        self.sizes = sizes + [p.numel() for p in self.parameters[len(sizes):]]
        self.pool = {n: t.clone() for n, t in saved["pool"].items()}
