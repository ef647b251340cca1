#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""libthc.h and libthc_rows.h are the whole interface, and libthc(3) describes all functions with
their arguments, and all errors that the sources return.
"""
import glob
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(ROOT, "userspace/libthc")
PAGE = os.path.join(ROOT, "Documentation/man/libthc.3")
# Errors of sockets that the library handles itself.
INSIDE = {"EAGAIN", "EWOULDBLOCK", "EINTR", "EIO", "EMSGSIZE", "EPERM"}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def header():
    return "".join(read(os.path.join(LIBRARY, name)) for name in ("libthc.h", "libthc_rows.h"))


def manual():
    """{section: its text without font changes}"""
    text = re.sub(r"\\f.|^\.[BI]R?I? |\"| (?=[,;.])", "", read(PAGE), flags=re.M)
    parts = re.split(r"^\.SH (.*)\n", text.replace("\\-", "-"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def prototypes(text):
    """{name: words of the prototype}"""
    return {re.search(r"(\w+)\(", p)[1]: re.findall(r"\w+|\*", p)
            for p in re.findall(r"[^;]+\);", text)}


def errors(text):
    return set(re.findall(r"-(E[A-Z0-9]{2,})\b", text))


class Manual(unittest.TestCase):
    def test_one_header(self):
        self.assertEqual(re.findall(r"#include (.*)", header()), [
            "<stddef.h>", "<stdint.h>", "<stddef.h>", "<stdint.h>", '"libthc.h"'])

    def test_functions(self):
        declared = re.sub(r"/\*.*?\*/", "", header(), flags=re.S)
        declared = prototypes(";".join(re.findall(r"^THC_API ([^;]*);", declared, re.M)) + ";")
        synopsis = re.sub(r"^[#.].*", "", manual()["SYNOPSIS"], flags=re.M)
        synopsis = prototypes(synopsis.split("Compile")[0])
        self.assertGreaterEqual(len(declared), 19)
        self.assertEqual(synopsis, declared)

    def test_errors(self):
        sources = "".join(read(p) for p in glob.glob(os.path.join(LIBRARY, "*.c")))
        listed = "".join(re.findall(r"^\.TP\n(.*)", manual()["ERRORS"], re.M))
        self.assertGreaterEqual(len(errors(header())), 17)
        self.assertEqual(errors(sources) - errors(header()), INSIDE)
        self.assertEqual(errors(listed), errors(header()))


if __name__ == "__main__":
    unittest.main()
