# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Aggregator, job, key file, interface and rank: from the program's arguments, else
from the environment or the process group. ThcState reads them when it joins the
job, not before.
"""
import errno
import os

import torch.distributed as dist

from thc_ddp.client import ThcError


def _job():
    text = os.environ.get("THC_JOB")
    try:
        return int(text.strip(), 0) if text else None
    except ValueError:
        raise ThcError(f"THC_JOB={text} is no number: write it as 123 or 0x7b",
                       errno.EINVAL) from None


def _key_file():
    path = os.environ.get("THC_KEY_FILE") or None
    old = [name for name in ("THC_COOKIE_FILE", "THC_COOKIE") if os.environ.get(name)]
    if old and not path:
        raise ThcError(f"{old[0]} is set, but a job has a key in place of a cookie now: make a "
                       f"key with `thcctl genkey FILE`, give the file to thcd and to all "
                       f"workers, and set THC_KEY_FILE to its path", errno.EINVAL)
    return path


def _rank(group):
    return dist.get_rank(group) if dist.is_initialized() else None


def complete(options, group):
    """A copy of options with every option that ThcClient requires. ThcError: one is unknown."""
    sources = {
        "aggregator": (lambda: os.environ.get("THC_AGGREGATOR"), "set THC_AGGREGATOR"),
        "job": (_job, "set THC_JOB"),
        "key_file": (_key_file, "set THC_KEY_FILE"),
        "rank": (lambda: _rank(group), "initialise torch.distributed first"),
    }
    full = dict(options)
    for name, (source, remedy) in sources.items():
        if full.get(name) is None:
            full[name] = source()
        if full[name] is None:
            raise ThcError(f"the {name} is not known: give thc_hook({name}=...), or {remedy}",
                           errno.EINVAL)
    if full.get("interface") is None:
        full["interface"] = os.environ.get("THC_INTERFACE") or None
    return full
