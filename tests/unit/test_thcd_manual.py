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
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))


def run(program, *arguments):
    return subprocess.run([os.path.join(BUILD, program), *arguments], capture_output=True,
                          text=True, timeout=10)


def help_of(program):
    done = run(program, "--help")
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def manual(program):
    """Its text without font changes."""
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
        said = re.search(r"each slot has (\d+) bytes", manual("thcd"))
        p = subprocess.Popen(
            [os.path.join(BUILD, "thcd"), "--software", "--listen", "127.0.0.1", "--port",
             str(61000 + os.getpid() % 4000), "--control", f"/tmp/thcd-manual-{os.getpid()}.sock",
             "--job", "1,ranks=1,cookie=1,slots=999,norm_slots=1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "ready\n")
        p.terminate()
        self.assertIn(f"slots use {int(said[1]) * 1000} bytes", p.communicate(timeout=5)[1])

    def test_cookies_of_examples_cannot_be_guessed(self):
        """They get copied: thcd would warn of none of them."""
        pages = [*glob.glob(os.path.join(ROOT, "Documentation/man/*.[1-9]")),
                 os.path.join(ROOT, "Documentation/thcd.conf"), os.path.join(ROOT, "README.md"),
                 *glob.glob(os.path.join(ROOT, "Documentation/*-guide.md"))]
        cookies = []
        for path in pages:
            with open(path, encoding="utf-8") as f:
                cookies += re.findall(r'cookie"?\s*[=:]\s*"?(0x[0-9a-f]+|\d+)\b', f.read())
        self.assertGreaterEqual(len(cookies), 8)
        for cookie in cookies:
            self.assertGreaterEqual(int(cookie, 0), 2**32, cookie)

    def test_example_configuration(self):
        path = os.path.join(ROOT, "Documentation/thcd.conf")
        with open(path, encoding="ascii") as f:
            example = json.load(f)
        self.assertEqual(len(example["jobs"]), 2)
        # everything in it is understood: what stops thcd is the interface
        done = run("thcd", "-c", path, "-i", "nosuch0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no interface nosuch0", done.stderr)


if __name__ == "__main__":
    unittest.main()
