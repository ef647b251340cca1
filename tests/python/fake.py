# SPDX-License-Identifier: GPL-2.0
"""Compiles the test double of libthc and makes thc_ddp use it. Import before
thc_ddp."""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "userspace/python"))


def compile_c(source, output, *flags):
    subprocess.run([os.environ.get("CC", "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra",
                    "-Werror", f"-I{ROOT}/include", f"-I{ROOT}/include/uapi",
                    f"-I{ROOT}/userspace/libthc", *flags, "-o", output, source], check=True)


KEY = bytes(range(0x5e, 0x5e + 32))


def install():
    """Put the double in place of libthc. Returns the path of a file with KEY."""
    folder = tempfile.mkdtemp(prefix="thc-fake-")
    atexit.register(shutil.rmtree, folder)
    path = os.path.join(folder, "libfakethc.so")
    compile_c(os.path.join(ROOT, "tests/python/fake_thc.c"), path, "-shared", "-fPIC",
              os.path.join(ROOT, "userspace/libthc/keyfile.c"))
    os.environ["LIBTHC"] = path
    key_file = os.path.join(folder, "job.key")
    with open(key_file, "w", encoding="ascii") as f:
        f.write(KEY.hex() + "\n")
    return key_file
