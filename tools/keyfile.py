# SPDX-License-Identifier: GPL-2.0
"""Secret keys of jobs: files that hold one, for thcd and workers to read, and the cookie
that comes from one.
"""
import hashlib
import os
import secrets
import struct
import tempfile
import weakref

KEY_BYTES = 32


def cookie_of(key, job):
    """What packets of that job carry: see include/thc/key.h."""
    text = b"thc1 cookie".ljust(16, b"\0") + struct.pack(">HHI", job, 0, 0) + bytes(16)
    return int.from_bytes(hashlib.blake2s(text, key=key).digest()[:8], "little") | 1


class KeyFile:
    """A temporary file with a key, a new one by default, which its owner alone can read.
    It is removed with this object, but not by a process that was forked.
    """

    def __init__(self, key=None):
        self.key = key or secrets.token_bytes(KEY_BYTES)
        handle, self.path = tempfile.mkstemp(prefix="thc-key-")
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid())
        with os.fdopen(handle, "w", encoding="ascii") as f:
            f.write(self.key.hex() + "\n")


def _remove(path, owner):
    if os.getpid() == owner:
        os.unlink(path)
