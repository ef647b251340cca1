# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""thc_ddp: PyTorch DDP gradients through a THC aggregator, in two lines.

    from thc_ddp import thc_hook
    model.register_comm_hook(*thc_hook(aggregator="10.0.0.100", job=1, cookie=0x1234,
                                       rank=dist.get_rank()))

model is a torch.nn.parallel.DistributedDataParallel. Everything runs in
libthc, found through the environment variable LIBTHC, in the build/ of a
source tree, or where the system keeps libraries.
"""
from thc_ddp.client import ThcClient, ThcError

__all__ = ["ThcClient", "ThcError", "ThcState", "thc_allreduce_hook", "thc_hook"]


def __getattr__(name):
    # torch is needed for the hook only; the client works on plain buffers.
    if name in ("ThcState", "thc_allreduce_hook", "thc_hook"):
        from thc_ddp import hook
        return getattr(hook, name)
    raise AttributeError(f"module 'thc_ddp' has no attribute '{name}'")
