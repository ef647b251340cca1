# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""thc_ddp: PyTorch DDP gradients through a THC aggregator, in two lines.

    state, hook = thc_hook()
    model.register_comm_hook(state, hook)

model is a torch.nn.parallel.DistributedDataParallel. thc_hook() takes the
aggregator and the job from the environment variables THC_AGGREGATOR, THC_JOB,
THC_KEY_FILE and THC_INTERFACE, and takes the rank from the process group.
Arguments override the environment:

    state, hook = thc_hook(aggregator="10.0.0.100", job=1, key_file="/etc/thc/job1.key")

At the end state.close() leaves the job. After a ThcError all ranks call
state.rejoin() and repeat the step, see examples/train_ddp.py. rejoin() does not
mend a ThcDisagreement, a subclass of ThcError: the ranks reduce different
things, or hold different results, and must go back to a checkpoint. libthc does
the arithmetic and the network. thc_ddp takes libthc.so from the path in the
environment variable LIBTHC, else from build/ of a source tree, else from the
system's library path.
"""
from thc_ddp.client import ThcClient, ThcDisagreement, ThcError

__all__ = ["ThcClient", "ThcDisagreement", "ThcError", "ThcState", "thc_allreduce_hook", "thc_hook"]


def __getattr__(name):
    # torch is needed for the hook only; the client works on plain buffers.
    if name in ("ThcState", "thc_allreduce_hook", "thc_hook"):
        from thc_ddp import hook
        return getattr(hook, name)
    raise AttributeError(f"module 'thc_ddp' has no attribute '{name}'")
