#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The loop in the user's guide is a part of examples/train_ddp.py, line by line,
and tests/netns/test_recovery.py runs this program.
"""
import ast
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = "examples/train_ddp.py"


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def samples(section):
    """The indented blocks of a section, dedented."""
    text = re.split(r"^## ", read("Documentation/users-guide.md"), flags=re.M)
    part, = (t for t in text if t.startswith(section + "\n"))
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", part, flags=re.M)
    return [textwrap.dedent(block).strip("\n") for block in blocks]


def contains(program, sample):
    """Whether the sample's lines stand in the program, at any depth."""
    lines, length = program.splitlines(), len(sample.splitlines())
    return any(textwrap.dedent("\n".join(lines[i:i + length])) == sample
               for i in range(len(lines) - length + 1))


class Sample(unittest.TestCase):
    def test_the_loop_is_that_of_the_example(self):
        loop, = samples("When something goes wrong")
        for words in ("try:", ".backward()", "except ThcError", "state.rejoin()", "continue",
                      "optimizer.step()"):
            self.assertIn(words, loop)
        self.assertTrue(contains(read(EXAMPLE), loop),
                        f"users-guide.md shows lines that are not in {EXAMPLE}:\n{loop}")

    def test_the_example_is_what_the_test_runs(self):
        self.assertIn(f'os.path.join(ROOT, "{EXAMPLE}")', read("tests/lib/trainers.py"))
        self.assertIn("from trainers import Trainers", read("tests/netns/test_recovery.py"))

    def test_help_is_all_that_the_example_says(self):
        if not importlib.util.find_spec("torch"):
            self.skipTest("torch is missing: apt-get install python3-torch")
        path = os.path.join(ROOT, "userspace/python")
        done = subprocess.run([sys.executable, os.path.join(ROOT, EXAMPLE), "--help"],
                              capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": path})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(ast.get_docstring(ast.parse(read(EXAMPLE))), done.stdout)

    def test_the_comparison_sees_a_difference(self):
        loop, = samples("When something goes wrong")
        self.assertFalse(contains(read(EXAMPLE), loop.replace("state.rejoin()", "state.join()")))
        self.assertFalse(contains(read(EXAMPLE).replace("errors = 0\n", "errors = 1\n"), loop))


if __name__ == "__main__":
    unittest.main()
