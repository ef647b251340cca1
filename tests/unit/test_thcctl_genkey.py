#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""thcctl genkey makes a key file that thcd accepts and no other user can read, overwrites no file,
and leaves no half of a key.
"""
import os
import resource
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
NOBODY = 65534


def genkey(*arguments, program=os.path.join(BUILD, "thcctl"), **more):
    return subprocess.run([program, "genkey", *arguments], capture_output=True, text=True,
                          timeout=10, **more)


class Genkey(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "job1.key")

    def text(self, path):
        with open(path, encoding="ascii") as f:
            return f.read()

    def refused(self, done, *words):
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in ("thcctl: ", *words):
            self.assertIn(word, done.stderr)

    def test_what_it_makes(self):
        mask = os.umask(0)
        try:
            done = genkey(self.path)
        finally:
            os.umask(mask)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(self.text(self.path), r"\A[0-9a-f]{64}\n\Z")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        # one line about the use of the file, and no part of the key
        self.assertEqual(done.stdout.count("\n"), 1)
        for word in (self.path, "key=@FILE", "THC_KEY_FILE"):
            self.assertIn(word, done.stdout)
        self.assertNotIn(self.text(self.path)[:8], done.stdout)

    def test_no_two_are_alike(self):
        paths = [f"{self.path}{i}" for i in range(8)]
        for path in paths:
            self.assertEqual(genkey(path).returncode, 0)
        keys = [bytes.fromhex(self.text(path)) for path in paths]
        self.assertEqual(len(set(keys)), 8)
        # no byte is equal in all keys: the chance of 8 equal bytes is 2^-56
        for column in zip(*keys):
            self.assertGreater(len(set(column)), 1, keys)

    def test_nothing_is_overwritten(self):
        self.assertEqual(genkey(self.path).returncode, 0)
        before = self.text(self.path)
        self.refused(genkey(self.path), self.path, "is there already")
        self.assertEqual(self.text(self.path), before)
        # genkey does not write through a link, either
        link, target = (os.path.join(self.folder.name, name) for name in ("link", "target"))
        os.symlink(target, link)
        self.refused(genkey(link), "is there already")
        self.assertFalse(os.path.exists(target))

    def test_a_folder_that_cannot_be_written(self):
        self.refused(genkey(os.path.join(self.folder.name, "none", "key")), "cannot make",
                     "No such file or directory")
        if os.geteuid():
            program, user = os.path.join(BUILD, "thcctl"), {}
        else:
            # user nobody may be unable to read the build folder; root may write everywhere
            program, user = os.path.join(self.folder.name, "thcctl"), {"user": NOBODY}
            shutil.copy(os.path.join(BUILD, "thcctl"), program)
        os.chmod(self.folder.name, 0o555)
        self.refused(genkey(self.path, program=program, **user), "cannot make", self.path,
                     "Permission denied")
        os.chmod(self.folder.name, 0o755)
        self.assertFalse(os.path.exists(self.path))

    def test_half_a_key_is_removed(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))

        done = genkey(self.path, preexec_fn=small_files, restore_signals=False)
        self.refused(done, "cannot write", self.path, "File too large")
        self.assertFalse(os.path.exists(self.path))

    def test_the_command_line(self):
        for arguments, words in (((), "needs the name of the file"),
                                 ((self.path, "more"), "one argument too many")):
            done = genkey(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
        self.assertFalse(os.path.exists(self.path))

    def test_thcd_takes_it(self):
        self.assertEqual(genkey(self.path).returncode, 0)
        p = subprocess.Popen(
            [os.path.join(BUILD, "thcd"), "--software", "--listen", "127.0.0.1", "--port",
             str(61000 + os.getpid() % 4000), "--control", f"{self.path}.sock", "--job",
             f"1,ranks=1,key=@{self.path}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = p.stdout.readline()
        p.terminate()
        said = p.communicate(timeout=5)[1]
        self.assertEqual(first, "ready\n", said)
        self.assertNotIn("warning", said)
        self.assertNotIn(self.text(self.path)[:8], said)


if __name__ == "__main__":
    unittest.main()
