#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""--help and the man pages of thcd and thcctl name the same options, commands
and keys, and the example configuration is one that thcd takes. All man pages
are well-formed.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from keyfile import KeyFile  # noqa: E402  (found through the path above)


def run(program, *arguments):
    return subprocess.run([os.path.join(BUILD, program), *arguments], capture_output=True,
                          text=True, timeout=10)


def help_of(program):
    done = run(program, "--help")
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def manual(program):
    """The page's text without font changes."""
    with open(os.path.join(ROOT, f"Documentation/man/{program}.8"), encoding="ascii") as f:
        return re.sub(r'\\f.|\.[BI]R? |"', "", f.read()).replace("\\-", "-")


def options(text):
    return set(re.findall(r"^ *(-\w)\b, +(--[\w-]+)", text, re.M))


class Manual(unittest.TestCase):
    def check_options(self, program, least):
        shown = options(help_of(program))
        self.assertGreaterEqual(len(shown), least)
        self.assertEqual(shown, options(re.sub(r" , ", ", ", manual(program))))
        for short, name in shown:
            if name in ("--help", "--version", "--json", "--software", "--no-simd", "--fresh", "--force",
                        "--verbose", "--discard"):
                continue
            for option in (short, name):
                done = run(program, option)
                self.assertEqual(done.returncode, 2)
                self.assertIn("needs a value", done.stderr)

    def test_thcd_options(self):
        self.check_options("thcd", 15)

    def test_thcctl_fields_of_json(self):
        """thcctl(8) lists all fields that thcd and thcctl write, and no others."""
        written = set()
        for source in ("aggregator/report.c", "thcd/control.c", "thcctl/pinned.c", "thcctl/top.c",
                       "thcctl/check.c"):
            with open(os.path.join(ROOT, "userspace", source), encoding="ascii") as f:
                written |= set(re.findall(r'cJSON_Add\w+Object\(\s*\w+,\s*"(\w+)"', f.read()))
        self.assertGreaterEqual(len(written), 70)
        section = manual("thcctl").split(".SH JSON\n")[1].split(".SH ")[0]
        told = re.findall(r"^\.TP\n(\w+)$", section, re.M)
        self.assertEqual(set(told) | {"sent"}, written)
        self.assertEqual(len(told), len(set(told)), "a field is told twice")

    def test_thcctl_options(self):
        self.check_options("thcctl", 6)

    def test_keys_of_a_job(self):
        shown = re.findall(r"^  (\w+) +\S", help_of("thcd").split("Keys of a job:")[1], re.M)
        section = manual("thcd").split(".SH KEYS OF A JOB")[1].split(".SH ")[0]
        self.assertGreaterEqual(len(shown), 20)
        self.assertEqual(shown, re.findall(r"^\.TP\n(\w+)$", section, re.M))

    def test_commands_of_thcctl(self):
        shown = re.findall(r"^  (\w+) ", help_of("thcctl").split("-n,")[0], re.M)
        section = manual("thcctl").split(".SH COMMANDS")[1].split(".SH ")[0]
        self.assertEqual(shown, re.findall(r"^\.TP\n(\w+)", section, re.M))
        self.assertEqual(shown, ["check", "job", "stats", "top", "reload", "genkey"])

    def test_manuals_are_well_formed(self):
        pages = sorted(glob.glob(os.path.join(ROOT, "Documentation/man/*.[1-9]")))
        self.assertGreaterEqual(len(pages), 4)
        for path in pages:
            try:
                done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z", path],
                                      capture_output=True, text=True, timeout=20)
            except FileNotFoundError:
                self.skipTest("groff is missing: apt-get install groff-base")
            self.assertEqual(done.stderr, "", path)

    def test_slot_bytes(self):
        said, key = re.search(r"each slot has (\d+) bytes", manual("thcd")), KeyFile()
        p = subprocess.Popen(
            [os.path.join(BUILD, "thcd"), "--software", "--listen", "127.0.0.1", "--port",
             str(61000 + os.getpid() % 4000), "--control", f"/tmp/thcd-manual-{os.getpid()}.sock",
             "--job", f"1,ranks=1,key=@{key.path},slots=999,norm_slots=1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "ready\n")
        p.terminate()
        self.assertIn(f"slots use {int(said[1]) * 1000} bytes", p.communicate(timeout=5)[1])

    def test_keys_of_examples_are_files(self):
        """Users copy the examples, so thcd must accept the way in which each names its key."""
        pages = [*glob.glob(os.path.join(ROOT, "Documentation/man/thc*.8")),
                 os.path.join(ROOT, "Documentation/thcd.conf"), os.path.join(ROOT, "README.md"),
                 os.path.join(ROOT, "Documentation/operators-guide.md")]
        keys = [re.findall(r"1,ranks=4,key=(\S*)", help_of("thcd"))[0]]
        for path in pages:
            with open(path, encoding="utf-8") as f:
                text = f.read()
            keys += re.findall(r'(?<![\w.])key(?:=|": *")([^",\s]+)', text)
            self.assertIsNone(re.search(r"ranks=\d+,.*\bsum=", text), path)
            self.assertIsNone(re.search(r"ranks=\d+,cookie=", text), path)
        self.assertGreaterEqual(len(keys), 8)
        for key in keys:
            self.assertRegex(key, r"^@[\w/.]*\w", keys)

    def test_example_configuration(self):
        path = os.path.join(ROOT, "Documentation/thcd.conf")
        with open(path, encoding="ascii") as f:
            example = json.load(f)
        self.assertEqual(len(example["jobs"]), 2)
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
            key = KeyFile()
            for job in example["jobs"]:
                self.assertRegex(job["key"], "^@/etc/thc/")
                job["key"] = f"@{key.path}"
            json.dump(example, f)
            f.flush()
            # thcd understands the file; only the interface stops it
            done = run("thcd", "-c", f.name, "-i", "nosuch0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no interface nosuch0", done.stderr)


if __name__ == "__main__":
    unittest.main()
