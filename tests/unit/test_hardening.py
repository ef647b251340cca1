#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Built programs and libraries have Debian's hardening: PIE, read-only relocations, immediate
binding, stack protector, fortified calls, no executable stack. The Makefile uses the caller's
CPPFLAGS, CFLAGS and LDFLAGS for all of user space, and -Werror only on request."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
PROGRAMS, LIBRARY = ("thcd", "thcctl"), "libthc.so"
FLAGS = ("CPPFLAGS", "CFLAGS", "LDFLAGS")


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def lacks(path):
    """The parts of hardening that a file lacks."""
    header, segments = readelf("-h", path), readelf("-l", path)
    dynamic, symbols = readelf("-d", path), readelf("--dyn-syms", path)
    stack = re.search(r"GNU_STACK.* (RWE?) ", segments)
    has = {
        "position-independent code": re.search(r"Type: +DYN", header),
        "read-only relocations": "GNU_RELRO" in segments,
        "immediate binding": re.search(r"BIND_NOW|\bNOW\b", dynamic),
        "a stack that is not executable": stack and stack[1] == "RW",
        "stack protector": "__stack_chk_fail" in symbols,
        "fortified calls": re.search(r" UND __\w+_chk\b", symbols),
    }
    return sorted(name for name, found in has.items() if not found)


def make(*words):
    """The commands that make would run, a list of words each."""
    environment = {k: v for k, v in os.environ.items()
                   if k not in (*FLAGS, "SAN", "WERROR", "MAKEFLAGS", "MFLAGS", "MAKELEVEL",
                                "MAKEOVERRIDES", "BUILD")}
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run(["make", "-n", "V=1", "CC=the-compiler", f"BUILD={folder}/build",
                              *words], cwd=ROOT, env=environment, check=True,
                             capture_output=True, text=True).stdout
    return [line.split() for line in out.replace("\\\n", " ").splitlines()]


class Built(unittest.TestCase):
    def setUp(self):
        given = [name for name in (*FLAGS, "SAN") if os.environ.get(name)]
        if given:
            self.skipTest(f"built with {', '.join(given)} of the caller")
        if not shutil.which("dpkg-buildflags"):
            self.skipTest("no dpkg-buildflags: apt-get install dpkg-dev")

    def test_programs_and_library_are_hardened(self):
        for name in (*PROGRAMS, LIBRARY):
            with self.subTest(name):
                self.assertEqual(lacks(os.path.join(BUILD, name)), [])

    def test_what_is_not_hardened_is_noticed(self):
        """A program built without any flag of hardening lacks every part."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plain")
            subprocess.run(
                [os.environ.get("CC", "cc"), "-O2", "-U_FORTIFY_SOURCE", "-fno-stack-protector",
                 "-no-pie", "-z", "norelro", "-z", "lazy", "-z", "execstack", "-x", "c", "-o",
                 path, "-"], input="int main(void) { return 0; }", text=True, check=True,
                capture_output=True)
            self.assertEqual(lacks(path), [
                "a stack that is not executable", "fortified calls", "immediate binding",
                "position-independent code", "read-only relocations", "stack protector"])


class Makefile(unittest.TestCase):
    def test_flags_from_outside_are_used_everywhere(self):
        given = {"CPPFLAGS": "-DGIVEN_CPP", "CFLAGS": "-DGIVEN_C", "LDFLAGS": "-Lgiven_ld"}
        commands = [c for c in make("tests", "benches", "selftests",
                                    *(f"{k}={v}" for k, v in given.items()))
                    if c and c[0] == "the-compiler"]
        self.assertGreater(len(commands), 90)
        for command in commands:
            compiles = any(word.endswith(".c") for word in command)
            wanted = {given["CFLAGS"]}
            if compiles:
                wanted.add(given["CPPFLAGS"])
            if "-c" not in command:
                wanted.add(given["LDFLAGS"])
            self.assertLessEqual(wanted, set(command), " ".join(command))
            self.assertNotIn("-fstack-protector-strong", command,
                             "flags of the caller are all there are")

    def test_werror_only_if_asked_for(self):
        for words, asked in (((), False), (("WERROR=-Werror",), True)):
            commands = [c for c in make("tests", *words)
                        if c and c[0] in ("the-compiler", "clang") and "-c" in c]
            self.assertGreater(len(commands), 40)
            for command in commands:
                self.assertEqual("-Werror" in command, asked, " ".join(command))


if __name__ == "__main__":
    unittest.main(verbosity=2)
