#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Fields of thc.ko that are read without their writer's lock: each field that
Documentation/locking.md names is written only by WRITE_ONCE() and read by
READ_ONCE() somewhere, and no other field of a socket has such marks. KCSAN finds
an unmarked access only when two CPUs race.
"""
import glob
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# A field of a socket, in the family's or the kernel's part.
FIELD = r"(?:\bts->sk\.|\bts->|\bsk->|\bowner->sk\.|\bowner->)(\w+)"
# Fields that belong to other parts of the kernel, or that they set.
OTHERS = {"sk_mark", "sk_priority", "sk_bound_dev_if", "sk_data_ready"}
# A field that only the kernel reads, for SO_ERROR.
KERNELS = {"sk_err"}


def sources():
    """{name: text without comments and thc_socket_create(), whose socket is not shared yet}"""
    out = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "kmod/*.c"))):
        if os.path.basename(path).startswith("kunit"):
            continue
        with open(path, encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        out[os.path.basename(path)] = re.sub(
            r"^int thc_socket_create\(.*?^\}", "", text, flags=re.S | re.M)
    return out


class Marked(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(ROOT, "Documentation/locking.md"), encoding="utf-8") as f:
            part = f.read().split("## Read without their lock")[1].split("\n## ")[0]
        self.named = {name for row in re.findall(r"^\| (`.*?) \|", part, re.M)
                      for name in re.findall(r"`(\w+)`", row)}
        self.assertGreaterEqual(len(self.named), 5)
        self.sources = sources()

    def test_no_plain_write(self):
        for name, text in self.sources.items():
            for field in re.findall(FIELD + r"\s*(?:[|&+-]?=(?!=)|\+\+|--)", text):
                self.assertNotIn(field, self.named, f"a plain write in {name}")

    def marked(self, macro):
        return {field for text in self.sources.values()
                for field in re.findall(macro + r"\((?:[^(),]|\(\w*\))*?" + FIELD, text)} - OTHERS

    def test_all_are_named(self):
        self.assertEqual(self.marked("READ_ONCE"), self.named - KERNELS)
        self.assertEqual(self.marked("WRITE_ONCE"), self.named)


if __name__ == "__main__":
    unittest.main()
