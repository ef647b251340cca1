#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Forked processes (tools/forked.py): how they end, their descriptors, signals that end them."""
import gc
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from forked import Forked  # noqa: E402  (found through the path above)

PATIENCE = 60


def ended(body):
    """(exit status, what it said to stderr) of a process that runs body()."""
    with tempfile.TemporaryFile("w+") as said:
        status = Forked(body, stderr=said.fileno()).wait(PATIENCE)
        said.seek(0)
        return status, said.read()


def is_there(pid):
    """True if a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def echo():
    for line in sys.stdin:
        print(line.upper(), end="", flush=True)


class Ends(unittest.TestCase):
    def test_status(self):
        self.assertEqual(ended(lambda: None), (0, ""))
        self.assertEqual(ended(lambda: sys.exit(3)), (3, ""))
        self.assertEqual(ended(lambda: sys.exit(None)), (0, ""))
        self.assertEqual(ended(lambda: sys.exit("a sentence")), (1, "a sentence\n"))

    def test_exception_is_shown(self):
        status, said = ended(lambda: 1 // 0)
        self.assertEqual(status, 1)
        self.assertIn("ZeroDivisionError", said)

    def test_nothing_of_ours_is_done_at_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ended(lambda: None)[0], 0)
            self.assertTrue(os.path.exists(folder))

    def test_what_we_leave_behind_closes_nothing(self):
        """If a fork collects a file object of its parent, it closes no file of its own."""
        def body():
            fd = os.open("/dev/null", os.O_RDONLY)
            while fd < number:
                fd = os.open("/dev/null", os.O_RDONLY)
            gc.collect()
            os.fstat(number)

        gc.disable()
        try:
            lost = [io.FileIO("/dev/null")]
            number = lost[0].fileno()
            lost.append(lost)
            del lost
            self.assertEqual(ended(body), (0, ""))
        finally:
            gc.enable()

    def test_a_signal(self):
        p = Forked(signal.pause)
        self.assertIsNone(p.poll())
        with self.assertRaises(subprocess.TimeoutExpired):
            p.wait(0.01)
        p.terminate()
        self.assertEqual(p.wait(PATIENCE), -signal.SIGTERM)
        p.kill()        # the fork is gone: no other process gets the signal
        self.assertEqual((p.poll(), p.returncode), (-signal.SIGTERM, -signal.SIGTERM))

    def test_a_signal_while_it_is_made(self):
        """The signal's handler runs once the fork exists, and its exception is not lost."""
        class Told(Exception):
            pass

        def handler(*_):
            raise Told

        def tell():
            if armed:
                os.kill(os.getpid(), armed.pop())

        armed = []
        os.register_at_fork(before=tell, after_in_parent=tell)
        old = signal.signal(signal.SIGTERM, handler)
        try:
            for signals in ([signal.SIGTERM], [signal.SIGTERM, 0]):
                armed[:] = signals
                with self.assertRaises(Told):
                    Forked(lambda: None)
            # a signal ends a fork as before
            p = Forked(lambda: time.sleep(60))
            p.terminate()
            self.assertEqual(p.wait(), -signal.SIGTERM)
        finally:
            signal.signal(signal.SIGTERM, old)

    def test_dies_with_its_parent(self):
        def parent():
            print(Forked(signal.pause).pid, flush=True)
            signal.pause()

        p = Forked(parent, talk=True)
        child = int(p.stdout.readline())
        self.assertTrue(is_there(child))
        p.kill()
        p.wait(PATIENCE)
        end = time.monotonic() + PATIENCE
        while is_there(child) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse(is_there(child))
        p.stdin.close()
        p.stdout.close()


class Descriptors(unittest.TestCase):
    def test_each_ends_with_its_own_stdin(self):
        """No other fork holds the pipe to a fork's stdin open."""
        some = [Forked(echo, talk=True) for _ in range(3)]
        for p in some:
            p.stdin.write("word\n")
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), "WORD\n")
            p.stdin.close()
            self.assertEqual(p.wait(PATIENCE), 0)
            p.stdout.close()

    def test_it_holds_no_others(self):
        with tempfile.TemporaryFile() as mine, tempfile.TemporaryFile("w+") as out:
            os.set_inheritable(mine.fileno(), True)
            # one more descriptor is that of the folder itself
            p = Forked(lambda: print(len(os.listdir("/proc/self/fd")), os.getpgid(0) == os.getpid()),
                       stdout=out.fileno())
            self.assertEqual(p.wait(PATIENCE), 0)
            out.seek(0)
            self.assertEqual(out.read(), "4 True\n")

    def test_name(self):
        p = Forked(signal.pause, name="thc-of-this-test-and-longer")
        with open(f"/proc/{p.pid}/comm", encoding="ascii") as f:
            end = time.monotonic() + PATIENCE
            while (name := f.read().strip()) != "thc-of-this-tes" and time.monotonic() < end:
                f.seek(0)
                time.sleep(0.01)
        self.assertEqual(name, "thc-of-this-tes")
        p.kill()
        p.wait(PATIENCE)


if __name__ == "__main__":
    unittest.main()
