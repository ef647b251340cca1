#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The systemd unit has a low exposure by the measure of systemd-analyze, and systemd understands
each of its lines.
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
UNIT = os.path.join(ROOT, "Documentation/thcd.service")
EXPOSURE_MAX = 3.0


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"})


class Service(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(UNIT, encoding="ascii") as f:
            cls.text = f.read()
        cls.folder = tempfile.TemporaryDirectory()
        cls.unit = os.path.join(cls.folder.name, "thcd.service")
        # systemd checks that the program exists
        with open(cls.unit, "w", encoding="ascii") as f:
            f.write(cls.text.replace("@SBINDIR@/thcd --config", "/bin/true --config"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def need_systemd(self):
        if shutil.which("systemd-analyze"):
            return
        if os.environ.get("THC_MUST_RUN") == "1":
            self.fail("THC_MUST_RUN, but there is no systemd-analyze")
        self.skipTest("systemd-analyze is missing: apt-get install systemd")

    def test_exposure(self):
        self.need_systemd()
        done = analyze("security", "--offline=true", "--no-pager", self.unit)
        level = re.search(r"Overall exposure level for thcd.service: ([\d.]+)", done.stdout)
        self.assertIsNotNone(level, done.stdout + done.stderr)
        self.assertLessEqual(float(level[1]), EXPOSURE_MAX, done.stdout)

    def test_every_line_is_understood(self):
        self.need_systemd()
        done = analyze("verify", "--man=no", self.unit)
        ours = [line for line in done.stderr.splitlines() if "thcd.service" in line]
        self.assertEqual((done.returncode, ours), (0, []))

    def test_capabilities_are_those_of_the_manual(self):
        """The unit has the capabilities that thcd needs at its start, and those that it keeps."""
        line = re.search(r"^CapabilityBoundingSet=(.*)$", self.text, re.M)
        self.assertEqual(line[1].split(), ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "CAP_CHOWN"])

    def test_a_wrong_configuration_is_not_tried_for_ever(self):
        self.assertIn("\nRestart=on-failure\n", self.text)
        thcd = os.path.join(BUILD, "thcd")
        for wrong in (["--nosuch"], ["-i", "nosuch0", "--job", "1,ranks=0"]):
            status = subprocess.run([thcd, *wrong], capture_output=True, timeout=10).returncode
            self.assertIn(f"\nRestartPreventExitStatus={status}\n", self.text)

    def test_the_manager_is_told(self):
        for line in ("Type=notify", "WatchdogSec=10", "ExecReload=/bin/kill -HUP $MAINPID",
                     "NoNewPrivileges=yes"):
            self.assertIn("\n" + line + "\n", self.text)


if __name__ == "__main__":
    unittest.main()
