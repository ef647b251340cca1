#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""One rank of an integration test: a libthc client that does what test_*.py
writes on its stdin, one JSON object a line, and answers each with one. Errors
are answers too: {"error": sentence, "errno": name, "seconds": how long}.
"""
import errno
import hashlib
import json
import os
import sys
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "userspace/python"))
from thc_ddp import ThcClient, ThcError, abi  # noqa: E402  (found through the path above)

DTYPES = {"fp32": (abi.FP32, np.float32), "fp16": (abi.FP16, np.float16)}


def gradient(seed, rank, count):
    """Heavy tails and blocks of different size: i.i.d. data would hide mistakes."""
    rng = np.random.default_rng([seed, rank])
    x = rng.standard_normal(count, dtype=np.float32)
    x *= np.exp(rng.standard_normal(count // 1000 + 1)).repeat(1000)[:count].astype(np.float32)
    return x


class Rank:
    def __init__(self, rank):
        self.rank, self.client = rank, None

    def open(self, **options):
        self.client = ThcClient(rank=self.rank, **options)
        return self.client.info()

    def close(self):
        self.client.close()
        return {}

    def rejoin(self):
        self.client.rejoin()
        return self.client.info()

    def stats(self):
        return self.client.stats()

    def reduce(self, counts, seed=1, dtype="fp32", exact_of=0, rounds=1, poison=None,
               swap=False, first_key=1):
        """All-reduces buckets of these sizes, overlapped, `rounds` times.

        Answers a digest of all bits received and, with exact_of ranks, the NMSE
        of the first round against their exact mean. poison: NaN there; swap:
        the buckets go by each other's keys.
        """
        code, numpy_type = DTYPES[dtype]
        digest, nmse = hashlib.sha256(), []
        for step in range(rounds):
            buffers = [gradient(seed + 100 * step + i, self.rank, n).astype(numpy_type)
                       for i, n in enumerate(counts)]
            if poison is not None:
                buffers[0][poison] = np.nan
            before = [b.copy() for b in buffers]
            requests, failed = [], None
            try:
                for key, b in enumerate(buffers):
                    requests.append(self.client.start(b.ctypes.data, b.size, code,
                                                      first_key + (len(buffers) - 1 - key if swap
                                                                   else key)))
            except ThcError as error:
                failed = error
            for r in requests:
                try:
                    self.client.wait(r)
                except ThcError as error:
                    failed = failed or error
            if failed:
                if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(buffers, before)):
                    raise AssertionError("a failed all-reduce changed the caller's buffer")
                raise failed
            for i, b in enumerate(buffers):
                digest.update(b.tobytes())
                if exact_of and step == 0:
                    exact = np.mean([gradient(seed + i, r, b.size).astype(numpy_type)
                                     .astype(np.float64) for r in range(exact_of)], axis=0)
                    nmse.append(float(((b - exact) ** 2).sum() / (exact ** 2).sum()))
        return {"digest": digest.hexdigest(), "nmse": nmse, "stats": self.client.stats()}


def main():
    me = Rank(int(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        start = time.monotonic()
        try:
            answer = getattr(me, request.pop("do"))(**request)
        except ThcError as error:
            answer = {"error": str(error), "errno": errno.errorcode.get(error.errno, "")}
        answer["seconds"] = time.monotonic() - start
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
