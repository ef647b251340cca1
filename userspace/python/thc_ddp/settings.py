# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Aggregator, job, cookie, interface and rank: as the program gives them, else
from the environment and the process group. ThcState looks them up when it joins
the job, not before.
"""
import errno
import os

import torch.distributed as dist

from thc_ddp.client import ThcError


def _number(text, source):
    try:
        return int(text.strip(), 0)
    except ValueError:
        # without the text: it may be a cookie
        raise ThcError(f"{source} is no number: write it as 123 or 0x7b", errno.EINVAL) from None


def _cookie():
    path = os.environ.get("THC_COOKIE_FILE")
    if path:
        try:
            with open(path, encoding="ascii") as file:
                return _number(file.read(), f"THC_COOKIE_FILE ({path})")
        except (OSError, UnicodeDecodeError) as error:
            raise ThcError(f"THC_COOKIE_FILE: the file with the cookie cannot be read: {error}",
                           getattr(error, "errno", errno.EINVAL)) from error
    text = os.environ.get("THC_COOKIE")
    return _number(text, "THC_COOKIE") if text else None


def _job():
    text = os.environ.get("THC_JOB")
    return _number(text, "THC_JOB") if text else None


def _rank(group):
    return dist.get_rank(group) if dist.is_initialized() else None


def complete(options, group):
    """A copy of the options in which all that a client needs is given."""
    sources = {
        "aggregator": (lambda: os.environ.get("THC_AGGREGATOR"), "set THC_AGGREGATOR"),
        "job": (_job, "set THC_JOB"),
        "cookie": (_cookie, "set THC_COOKIE_FILE or THC_COOKIE"),
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
