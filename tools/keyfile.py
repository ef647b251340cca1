# SPDX-License-Identifier: GPL-2.0
"""Files with a job's secret key, for thcd and workers to read."""
import os
import secrets
import tempfile
import weakref

import netns

KEY_BYTES = 32


class KeyFile:
    """A temporary file, readable by its owner alone, with key (bytes; None: a new one).
    The process that made the object removes the file with it; a forked child does not.
    """

    def __init__(self, key=None):
        self.key = key or secrets.token_bytes(KEY_BYTES)
        # netns.sweep() removes root's files after a killed run
        prefix = "thc-key-" if os.geteuid() else netns.temporary_prefix()
        handle, self.path = tempfile.mkstemp(prefix=prefix)
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid())
        with os.fdopen(handle, "w", encoding="ascii") as f:
            f.write(self.key.hex() + "\n")


def _remove(path, owner):
    if os.getpid() == owner:
        os.unlink(path)
