# SPDX-License-Identifier: GPL-2.0
"""Compressors that THC is measured beside, one a module, by their papers' definitions.

A method has a name, `paper` (where its definition stands) and
`compress(x, state)`. x is a gradient or a layer of one, a numpy array of
float32. state is that worker's memory of that layer, `fresh(seed)` at first:
a random generator and whatever the method keeps from round to round. The
answer is a Sent: what the method makes of x, as everybody would decompress
it, and the bytes it takes on its way. Nothing here knows of a network.
PowerSGD, which adds up on the way what ranks send, is another kind: powersgd.py.
"""
import numpy as np


class Sent:
    """value: float32, decompressed; bytes: of the message that carries it."""

    def __init__(self, value, size):
        self.value, self.bytes = np.asarray(value, dtype=np.float32), size


def fresh(*seed):
    """A worker's state before its first round; seed: integers."""
    return {"rng": np.random.default_rng(seed)}


def packed(count, bits):
    """Bytes of count fields of so many bits."""
    return -(-count * bits // 8)


def methods():
    """name: method, of all there are, as their papers set them up."""
    from . import dgc, halves, qsgd, signsgd, terngrad, topk

    found = [halves.Fp16(), halves.Bf16(), topk.TopK(.1), topk.TopK(.01), dgc.Dgc(.1),
             dgc.Dgc(.01), terngrad.TernGrad(), terngrad.TernGrad(clip=2.5),
             qsgd.Qsgd(bits=4, bucket=512), qsgd.Qsgd(bits=4, bucket=512, scale="max"),
             qsgd.Qsgd(bits=8, bucket=512), signsgd.SignSgd()]
    return {method.name: method for method in found}
