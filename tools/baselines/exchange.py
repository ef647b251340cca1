# SPDX-License-Identifier: GPL-2.0
"""One round of a method: workers send, a server averages, all workers get the mean.

A gradient is a list of layers, since most methods work layer by layer. The server
sends the mean uncompressed, or compresses it by the method, as parameter servers
do to save bytes on the way down.
"""
import numpy as np

from . import Sent, fresh


def states(layers, workers, seed):
    """Memories of all workers and, last, the server's: a list of lists."""
    return [[fresh(seed, worker, layer) for layer in range(layers)]
            for worker in range(workers + 1)]


def _answer(mean, sent):
    """The uncompressed mean, in the smallest of three forms: floats, pairs of index and value, or
    the messages of all workers."""
    pairs = 8 * np.count_nonzero(np.any([s.value != 0 for s in sent], axis=0))
    return Sent(mean, min(4 * mean.size, pairs, sum(s.bytes for s in sent)))


def exchange(method, gradients, memories, both_ways=False):
    """(mean as a list of layers, bytes that a worker sends, bytes that it receives).

    gradients: [worker][layer]; memories: from states(); both_ways: True: the server compresses the
    mean. A method with `whole` set gets all layers as one array, for one threshold.
    """
    if getattr(method, "whole", False) and len(gradients[0]) > 1:
        mean, *sizes = exchange(method, [[np.concatenate(of)] for of in gradients], memories,
                                both_ways)
        ends = np.cumsum([layer.size for layer in gradients[0]])
        return np.split(mean[0], ends[:-1]), *sizes
    mean, up, down = [], 0, 0
    for layer in range(len(gradients[0])):
        sent = [method.compress(of[layer], memory[layer])
                for of, memory in zip(gradients, memories)]
        total = np.mean([s.value for s in sent], axis=0, dtype=np.float64).astype(np.float32)
        answer = (method.compress(total, memories[-1][layer]) if both_ways else
                  _answer(total, sent))
        mean.append(answer.value)
        up += max(s.bytes for s in sent)
        down += answer.bytes
    return mean, up, down
