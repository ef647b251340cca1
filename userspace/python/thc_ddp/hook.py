# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""The DDP communication hook: which buckets go through THC, under which error
memory, and how their futures complete. The client is in client.py.

Error memories and buckets. DDP rebuilds its buckets after the first
iteration, so neither a bucket's index nor its extent lasts; parameters do.
They are numbered in the order in which they are first seen, which is the same
on all ranks because DDP reduces buckets in one order everywhere, and the same
again after a restart of the same model. A bucket's key is a hash of its
parameters' numbers and sizes. When a parameter turns up in another bucket
than before, its part of the old bucket's error memory moves with it.
"""
import atexit
import hashlib
import queue
import struct
import threading
import weakref

import torch
import torch.distributed as dist

from thc_ddp import abi
from thc_ddp.client import ThcClient, ThcError

_DTYPES = {torch.float32: abi.FP32, torch.float16: abi.FP16, torch.bfloat16: abi.BF16}
_DEVICES = ("cpu", "cuda")

_COUNTERS = ("buckets_thc", "elements_thc", "buckets_fallback", "elements_fallback",
             "fallback_small", "fallback_dtype", "fallback_device")


class _Errors:
    """Error memories by parameter: which bucket holds whose, and moving them."""

    def __init__(self):
        self.numbers = {}       # id(parameter) -> number
        self.parameters = []    # by number: keeps the ids valid
        self.sizes = []         # by number: elements
        self.layouts = {}       # key -> [number, ...] of the bucket that has it
        self.pool = {}          # number -> tensor: memories that no bucket holds

    def number(self, parameter):
        n = self.numbers.get(id(parameter))
        if n is None:
            n = len(self.parameters)
            if n < len(self.sizes) and self.sizes[n] != parameter.numel():
                raise ThcError(f"parameter {n} has {parameter.numel()} elements, the checkpoint "
                               f"says {self.sizes[n]}: restore the state with the model it was "
                               f"saved from")
            self.numbers[id(parameter)] = n
            self.parameters.append(parameter)
            if n == len(self.sizes):
                self.sizes.append(parameter.numel())
        return n

    def layout(self, bucket):
        """(key, numbers) of a bucket: the same on all ranks."""
        numbers = [self.number(p) for p in bucket.parameters()]
        words = [w for n in numbers for w in (n, self.sizes[n])]
        digest = hashlib.blake2b(struct.pack(f"<{len(words)}Q", *words), digest_size=8).digest()
        return int.from_bytes(digest, "little"), numbers

    def export(self, client, key):
        """Copies the memory of a bucket, by parameter."""
        count = client.error_count(key)
        memory = torch.zeros(count, dtype=torch.float32)
        client.error_export(key, memory.data_ptr(), count)
        if count != sum(self.sizes[n] for n in self.layouts[key]):
            return {}
        return dict(zip(self.layouts[key],
                        memory.split([self.sizes[n] for n in self.layouts[key]])))

    def place(self, client, key, numbers):
        """Makes sure that the memories of these parameters are under key."""
        if key in self.layouts:
            return
        wanted = set(numbers)
        for old in [k for k, have in self.layouts.items() if wanted & set(have)]:
            self.pool.update(self.export(client, old))
            client.error_import(old, None, 0)
            del self.layouts[old]
        if any(n in self.pool for n in numbers):
            memory = torch.cat([self.pool.pop(n) if n in self.pool else
                                torch.zeros(self.sizes[n]) for n in numbers])
            client.error_import(key, memory.data_ptr(), memory.numel())
        self.layouts[key] = numbers

    def snapshot(self, client):
        """All memories by parameter, for a checkpoint."""
        pool = dict(self.pool)
        if client:
            for key in self.layouts:
                pool.update(self.export(client, key))
        return {"sizes": list(self.sizes), "pool": {n: t.clone() for n, t in pool.items()}}

    def restore(self, saved):
        self.sizes, self.pool = saved["sizes"], saved["pool"]


class ThcState:
    """State of thc_allreduce_hook(): options, client, error memories, counters.

    The options are those of ThcClient, and
    threshold: buckets of fewer elements go through dist.all_reduce
    process_group: used for those; None: the default one

    Joins the job when the first bucket comes, or by connect(). Can be pickled
    between iterations, each rank its own; it joins again when used again.
    """

    def __init__(self, aggregator, job, cookie, rank, threshold=4096, process_group=None,
                 error_feedback=True, **options):
        self.options = dict(options, aggregator=aggregator, job=job, cookie=cookie, rank=rank,
                            error_feedback=error_feedback)
        self.threshold = threshold
        self.process_group = process_group
        self.counters = dict.fromkeys(_COUNTERS, 0)
        self._errors = _Errors()
        self._start()

    def _start(self):
        self.client = None
        self._lock = threading.RLock()
        self._pending = queue.SimpleQueue()
        self._waiter = None

    def __getstate__(self):
        with self._lock:
            errors = self._errors.snapshot(self.client)
        return {"options": self.options, "threshold": self.threshold, "counters": self.counters,
                "errors": errors}

    def __setstate__(self, saved):
        self.options, self.threshold = saved["options"], saved["threshold"]
        self.counters = saved["counters"]
        self.process_group = None
        self._errors = _Errors()
        self._errors.restore(saved["errors"])
        self._start()

    def connect(self):
        """Joins the job; returns when all its ranks have. Idempotent."""
        with self._lock:
            if self.client:
                return self
            client = ThcClient(**self.options)
            try:
                ranks = client.info()["ranks"]
                workers = ranks
                if dist.is_initialized():
                    workers = dist.get_world_size(self.process_group)
                if ranks != workers:
                    raise ThcError(f"job {self.options['job']} has {ranks} ranks, the process "
                                   f"group has {workers}: create the job with as many ranks as "
                                   f"there are workers")
            except BaseException:
                client.close()
                raise
            self.client = client
            self._waiter = threading.Thread(target=_complete, args=(client, self._pending),
                                            name="thc-waiter", daemon=True)
            self._waiter.start()
            atexit.register(_close_at_exit, weakref.ref(self))
            return self

    def close(self):
        """Leaves the job; error memories stay, for a later connect()."""
        with self._lock:
            client, self.client = self.client, None
            if not client:
                return
            self._errors.restore(self._errors.snapshot(client))
            self._errors.layouts.clear()
            # The waiter first: it holds requests of the client.
            self._pending.put(None)
            self._waiter.join()
            client.close()

    def rejoin(self):
        """After an error on any rank: all ranks call this, then go on."""
        with self._lock:
            self.connect().client.rejoin()

    def error_memory(self, bucket):
        """A copy of what compression still owes the parameters of a bucket."""
        with self._lock:
            client = self.connect().client
            key, numbers = self._errors.layout(bucket)
            self._errors.place(client, key, numbers)
            memory = torch.zeros(bucket.buffer().numel(), dtype=torch.float32)
            client.error_export(key, memory.data_ptr(), memory.numel())
            return memory

    def stats(self):
        """Counters of this hook and of the client."""
        with self._lock:
            return {**self.counters, **(self.client.stats() if self.client else {})}

    def refusal(self, buffer):
        """Why a bucket does not go through THC, or None; same on all ranks."""
        if buffer.dtype not in _DTYPES:
            return "fallback_dtype"
        if buffer.device.type not in _DEVICES:
            return "fallback_device"
        if buffer.numel() < self.threshold:
            return "fallback_small"
        return None

    def reduce(self, bucket):
        """Starts the all-reduce of a bucket; a future of its mean."""
        buffer = bucket.buffer()
        refusal = self.refusal(buffer)
        if refusal:
            self.counters[refusal] += 1
            self.counters["buckets_fallback"] += 1
            self.counters["elements_fallback"] += buffer.numel()
            return self._fall_back(buffer)
        with self._lock:
            client = self.connect().client
            key, numbers = self._errors.layout(bucket)
            if self.options["error_feedback"]:
                self._errors.place(client, key, numbers)
            host = _host_copy(buffer)
            request = client.start(host.data_ptr(), host.numel(), _DTYPES[host.dtype], key)
            future = torch.futures.Future(
                devices=[] if buffer.device.type == "cpu" else [buffer.device])
            self._pending.put((request, host, buffer, future))
        self.counters["buckets_thc"] += 1
        self.counters["elements_thc"] += buffer.numel()
        # An exception set on a future does not reach DDP; one raised in then() does.
        return future.then(_value)

    def _fall_back(self, buffer):
        world = dist.get_world_size(self.process_group)
        buffer.div_(world)  # before the sum: half precision must not overflow in it
        work = dist.all_reduce(buffer, group=self.process_group, async_op=True)
        return work.get_future().then(lambda f: f.value()[0])


def _host_copy(buffer):
    """The buffer itself, or a copy in pinned memory if it is on a device."""
    if buffer.device.type == "cpu":
        return buffer
    host = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
    host.copy_(buffer)
    return host


def _value(future):
    value = future.value()
    if isinstance(value, Exception):
        raise value
    return value


def _complete(client, pending):
    """Body of the waiter thread: completes futures in the order of their starts."""
    while True:
        item = pending.get()
        if item is None:
            return
        request, host, buffer, future = item
        try:
            client.wait(request)
            if host is not buffer:
                buffer.copy_(host)
            result = buffer
        except Exception as error:  # belongs to whoever waits for the future
            result = error
        future.set_result(result)


def _close_at_exit(ref):
    state = ref()
    if state:
        state.close()


def thc_allreduce_hook(state: ThcState,
                       bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook for DistributedDataParallel.register_comm_hook(): means by THC.

    What libthc refuses is raised in backward(), with its sentence.
    """
    return state.reduce(bucket)


def thc_hook(aggregator, job, cookie, rank, **options):
    """(state, hook) for register_comm_hook(*thc_hook(...)); joins the job.

    Options are those of ThcState. Raises ThcError if the job cannot be joined.
    """
    return ThcState(aggregator, job, cookie, rank, **options).connect(), thc_allreduce_hook
