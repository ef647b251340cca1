# SPDX-License-Identifier: GPL-2.0
"""Secret keys of jobs: files that hold one, for thcd and workers to read."""
import os
import secrets
import tempfile
import weakref

import netns

KEY_BYTES = 32


class KeyFile:
    """A temporary file with a key, a new one by default, which its owner alone can read.
    It is removed with this object, but not by a process that was forked.
    """

    def __init__(self, key=None):
        self.key = key or secrets.token_bytes(KEY_BYTES)
        # root's, whose runs may be killed, are swept up then
        prefix = "thc-key-" if os.geteuid() else netns.temporary_prefix()
        handle, self.path = tempfile.mkstemp(prefix=prefix)
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid())
        with os.fdopen(handle, "w", encoding="ascii") as f:
            f.write(self.key.hex() + "\n")


def _remove(path, owner):
    if os.getpid() == owner:
        os.unlink(path)
