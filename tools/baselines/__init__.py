# SPDX-License-Identifier: GPL-2.0
"""Compressors to compare THC with, one per module, as their papers define them.

A method has `name`, `paper` (the source of its definition) and
`compress(x, state)`. x is a gradient or one layer of it, a numpy array of
float32. state is the worker's memory of that layer, at first `fresh(seed)`: a
random generator, and what the method keeps between rounds. The result is a
Sent: x as a receiver decompresses it, and the bytes of its message. No module
uses a network. PowerSGD sums during the exchange and has another interface:
powersgd.py.
"""
import numpy as np


class Sent:
    """A compressed x. value: float32, decompressed; bytes: size of the message."""

    def __init__(self, value, size):
        self.value, self.bytes = np.asarray(value, dtype=np.float32), size


def fresh(*seed):
    """A worker's state before its first round; seed: integers."""
    return {"rng": np.random.default_rng(seed)}


def packed(count, bits):
    """Bytes of count fields of `bits` bits each."""
    return -(-count * bits // 8)


def methods():
    """{name: method} of all methods, with the parameters of their papers."""
    from . import dgc, halves, qsgd, signsgd, terngrad, topk

    found = [halves.Fp16(), halves.Bf16(), topk.TopK(.1), topk.TopK(.01), dgc.Dgc(.1),
             dgc.Dgc(.01), terngrad.TernGrad(), terngrad.TernGrad(clip=2.5),
             qsgd.Qsgd(bits=4, bucket=512), qsgd.Qsgd(bits=4, bucket=512, scale="max"),
             qsgd.Qsgd(bits=8, bucket=512), signsgd.SignSgd()]
    return {method.name: method for method in found}
