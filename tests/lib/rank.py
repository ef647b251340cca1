#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""One rank of an integration test: a libthc client that executes the requests of
test_*.py. Each line on stdin is a request as a JSON object, each line on stdout an
answer. An error is an answer: {"error": sentence, "errno": name, "seconds": time}.
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
import values  # noqa: E402
from thc_ddp import ThcClient, ThcError, abi  # noqa: E402  (found through the path above)

CODES = {"fp32": abi.FP32, "fp16": abi.FP16, "bf16": abi.BF16,
         "int8": abi.INT8, "int16": abi.INT16, "int32": abi.INT32}


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

        Answers a digest of all results and, if exact_of > 0, the NMSE of the first
        round against the exact mean of exact_of ranks. poison: index that is set to
        NaN; swap: True: buckets exchange their keys.
        """
        digest, nmse = hashlib.sha256(), []
        for step in range(rounds):
            buffers = [values.buffer(seed + 100 * step + i, self.rank, n, dtype)
                       for i, n in enumerate(counts)]
            if poison is not None:
                buffers[0][poison] = np.nan
            before = [b.copy() for b in buffers]
            requests, failed = [], None
            try:
                for key, b in enumerate(buffers):
                    requests.append(self.client.start(b.ctypes.data, b.size, CODES[dtype],
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
                    brought = [values.buffer(seed + i, r, b.size, dtype) for r in range(exact_of)]
                    nmse.append(values.nmse(b, brought, dtype))
        return {"digest": digest.hexdigest(), "nmse": nmse, "stats": self.client.stats()}

    def calls(self, calls):
        """All-reduces of one round, overlapped, each by a scheme of its own: {"seed", "count",
        "dtype", "scheme", "precision", "share"}, and "rate" or "error", "group"; answers a
        digest of each result.
        """
        buffers = [values.buffer(c["seed"], self.rank, c["count"], c["dtype"], c["share"])
                   for c in calls]
        requests = [self.client.start(b.ctypes.data, b.size, CODES[c["dtype"]], key + 1,
                                      c["scheme"], c["precision"], rate=c.get("rate", 0),
                                      error=c.get("error", 0), group=c.get("group", 0))
                    for key, (b, c) in enumerate(zip(buffers, calls))]
        for request in requests:
            self.client.wait(request)
        return {"digests": [hashlib.sha256(b.tobytes()).hexdigest() for b in buffers],
                "stats": self.client.stats()}


def serve(rank):
    me = Rank(rank)
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
    serve(int(sys.argv[1]))
