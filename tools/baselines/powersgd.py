# SPDX-License-Identifier: GPL-2.0
"""PowerSGD: a matrix of gradients goes as the product of two thin ones, by a step of the power method.

Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization" (NeurIPS 2019, arXiv 1905.13727): Algorithm 1, whose Q is that of the step before (warm
start), and of Algorithm 2 what a rank keeps of what its matrices lose (error feedback). A gradient
of several dimensions is a matrix of its first one by all others. Vectors go as they are, and
matrices that are no larger than their factors.

What ranks send is added up on its way, so that this method has no compress(): a step is a
generator, which yields what it wants the mean of.
"""
import numpy as np


def orthogonal(p):
    """p with columns of length one, orthogonal to each other (Gram and Schmidt); zeros stay zeros."""
    columns = p.astype(np.float64)
    for i in range(columns.shape[1]):
        column = columns[:, i]
        column /= np.linalg.norm(column) or 1
        others = columns[:, i + 1:]
        others -= np.outer(column, column @ others)
    return columns.astype(np.float32)


class PowerSgd:
    """A rank's: the Q and the error of each gradient, and the bytes of floats that it has sent.

    seed: of the first Q, the same on all ranks
    """
    paper = "Vogels et al. 2019, Alg. 1 and 2"

    def __init__(self, rank=2, seed=0):
        self.rank, self.name = rank, f"PowerSGD, rank {rank}"
        self.errors, self.bytes = {}, 0
        self._q, self._rng = {}, np.random.default_rng(seed)

    def is_compressed(self, shape):
        """Whether its factors are fewer numbers."""
        if len(shape) < 2:
            return False
        rows, columns = shape[0], int(np.prod(shape[1:]))
        return self.rank * (rows + columns) < rows * columns

    def exchange(self, gradients):
        """A generator, one step. It yields arrays of float32, and is sent their means over all ranks.
        It returns {key: mean of the gradients, as all ranks have it}.

        gradients: {key: array of float32}, in one order on all ranks
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
        """The gradient as a matrix, with what was lost of earlier ones."""
        return x.reshape(x.shape[0], -1) + self.errors.get(key, np.float32(0))

    def _start(self, key, columns):
        """Q of the step before; what has no direction, and would have none for ever, is drawn."""
        q = self._q.get(key, np.zeros((columns, self.rank), dtype=np.float32))
        lost = ~q.any(axis=0)
        q[:, lost] = self._rng.standard_normal((columns, lost.sum()), dtype=np.float32)
        return q

    def _mean(self, parts):
        """Of all of them, in one all-reduce."""
        if not parts:
            return {}
        sent = np.concatenate([x.reshape(-1) for x in parts.values()])
        self.bytes += sent.nbytes
        mean, out, at = (yield sent), {}, 0
        for key, x in parts.items():
            out[key] = mean[at:at + x.size].reshape(x.shape).copy()
            at += x.size
        return out
