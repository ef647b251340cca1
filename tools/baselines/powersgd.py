# SPDX-License-Identifier: GPL-2.0
"""PowerSGD: sends a matrix of gradients as two thin factors, found by a step of the power method.

Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization" (NeurIPS 2019, arXiv 1905.13727): Algorithm 1, which starts with the Q of the step
before (warm start), and error feedback by Algorithm 2. A gradient of several dimensions is a matrix
of its first dimension by all others. Vectors, and matrices no larger than their factors, are sent
uncompressed.

The factors are all-reduced, so this method has no compress(): a step is a generator that yields
arrays and receives their means.
"""
import numpy as np


def orthogonal(p):
    """p with orthonormal columns (Gram-Schmidt); a zero column stays zero."""
    columns = p.astype(np.float64)
    for i in range(columns.shape[1]):
        column = columns[:, i]
        column /= np.linalg.norm(column) or 1
        others = columns[:, i + 1:]
        others -= np.outer(column, column @ others)
    return columns.astype(np.float32)


class PowerSgd:
    """A rank's state: Q and error memory of each gradient, and the bytes of floats sent so far.

    rank: rank of the factors; seed: seed of the first Q, equal on all ranks
    """
    paper = "Vogels et al. 2019, Alg. 1 and 2"

    def __init__(self, rank=2, seed=0):
        self.rank, self.name = rank, f"PowerSGD, rank {rank}"
        self.errors, self.bytes = {}, 0
        self._q, self._rng = {}, np.random.default_rng(seed)

    def is_compressed(self, shape):
        """True if the factors of a gradient of this shape have fewer elements than it."""
        if len(shape) < 2:
            return False
        rows, columns = shape[0], int(np.prod(shape[1:]))
        return self.rank * (rows + columns) < rows * columns

    def exchange(self, gradients):
        """One step, as a generator: yields float32 arrays, receives their means over all ranks by
        send(), returns {key: mean gradient}, equal on all ranks.

        gradients: {key: float32 array}, in one order on all ranks
        """
        whole = {key: x for key, x in gradients.items() if not self.is_compressed(x.shape)}
        owed = {key: self._owed(key, x) for key, x in gradients.items() if key not in whole}
        first = {key: m @ self._start(key, m.shape[1]) for key, m in owed.items()}
        means = yield from self._mean({**first, **whole})
        p = {key: orthogonal(means[key]) for key in owed}
        own = {key: m.T @ p[key] for key, m in owed.items()}
        q = yield from self._mean(own)
        for key, m in owed.items():
            self.errors[key] = m - p[key] @ own[key].T
        self._q.update(q)
        return {key: (p[key] @ q[key].T if key in owed else means[key]).reshape(x.shape)
                for key, x in gradients.items()}

    def _owed(self, key, x):
        """The gradient as a matrix, plus its error memory."""
        return x.reshape(x.shape[0], -1) + self.errors.get(key, np.float32(0))

    def _start(self, key, columns):
        """Q of the step before. Zero columns, which would stay zero, are drawn anew."""
        q = self._q.get(key, np.zeros((columns, self.rank), dtype=np.float32))
        lost = ~q.any(axis=0)
        q[:, lost] = self._rng.standard_normal((columns, lost.sum()), dtype=np.float32)
        return q

    def _mean(self, parts):
        """The means of all parts, by one all-reduce."""
        if not parts:
            return {}
        sent = np.concatenate([x.reshape(-1) for x in parts.values()])
        self.bytes += sent.nbytes
        mean, out, at = (yield sent), {}, 0
        for key, x in parts.items():
            out[key] = mean[at:at + x.size].reshape(x.shape).copy()
            at += x.size
        return out
