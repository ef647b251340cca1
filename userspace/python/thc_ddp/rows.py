# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Sparse gradients as rows: the gradient of nn.Embedding(sparse=True) is some rows of its weight.
Scheme lhc reduces the rows; the mean has the rows of all ranks.
"""
import ctypes
import math

import torch


def fit(tensor):
    """True if tensor is sparse in its first dimension alone, and within libthc's limits."""
    return (tensor.is_sparse and tensor.sparse_dim() == 1 and 0 < tensor.numel() < 2**32 and
            math.prod(tensor.shape[1:]) < 2**20)


class Rows:
    """The rows of a sparse tensor, on the host, in ascending order, for one all-reduce."""

    def __init__(self, tensor):
        self.tensor = tensor
        whole = tensor.coalesce()
        self.number = whole.indices()[0].cpu().contiguous()
        self.values = whole.values().cpu().contiguous()
        self.width = math.prod(tensor.shape[1:])

    def start(self, client, dtype, key):
        return client.start_rows(tensor_rows=self.tensor.shape[0], dtype=dtype, key=key,
                                 rows=(self.number.data_ptr(), self.number.numel()),
                                 arrays=[(self.values.data_ptr(), self.width)])

    def _copy(self, address, shape, dtype):
        out = torch.empty(shape, dtype=dtype)
        ctypes.memmove(out.data_ptr(), address, out.numel() * out.element_size())
        return out

    def _sparse(self, number, values):
        return torch.sparse_coo_tensor(number[None].to(self.tensor.device),
                                       values.to(self.tensor.device), self.tensor.shape)

    def finish(self, client, request):
        """(True, mean), or (False, NaN in row 0) if a rank's values are not finite: row 0, because
        all ranks need equal results, and a rank may have no rows of its own.
        """
        def take(count, row, values):
            return self._sparse(self._copy(row, (count,), torch.int64),
                                self._copy(values[0], (count, *self.tensor.shape[1:]),
                                           self.values.dtype))

        mean = client.wait_rows(request, take)
        if mean is not None:
            return True, mean
        nan = torch.full((1, *self.tensor.shape[1:]), math.nan, dtype=self.values.dtype)
        return False, self._sparse(torch.zeros(1, dtype=torch.int64), nan)
