#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""thcctl's errors for a thcd that does not answer, in whose place this test has a socket, and for
an output that cannot be written.
"""
import os
import socket
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
PATIENCE = 10   # of thcctl, seconds


class Ask(unittest.TestCase):
    def asked(self, serve):
        """The error of `thcctl stats` if serve(connection) takes the place of thcd."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(folder, "control")
            listener.bind(path)
            listener.listen()

            def accept():
                with listener.accept()[0] as connection:
                    serve(connection)

            thread = threading.Thread(target=accept)
            thread.start()
            done = subprocess.run([os.path.join(BUILD, "thcctl"), "-C", path, "stats"],
                                  capture_output=True, text=True, timeout=4 * PATIENCE)
            thread.join()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_closed_at_once(self):
        """The connection is closed before or after the request arrives."""
        for wait in (0, .2):
            def close(_, wait=wait):
                time.sleep(wait)

            self.assertIn("thcd closed the connection without an answer", self.asked(close))

    def test_closed_after_the_request(self):
        self.assertIn("thcd closed the connection without an answer",
                      self.asked(lambda connection: connection.recv(64)))

    def test_half_of_an_answer(self):
        def half(connection):
            self.assertEqual(connection.recv(64), b"stats\n")
            connection.sendall(b'{"instance": "eth')

        self.assertIn("thcd's answer is not JSON", self.asked(half))

    def test_silence(self):
        begin = time.monotonic()
        heard = self.asked(lambda connection: connection.recv(64) and connection.recv(64))
        self.assertIn(f"thcd did not answer within {PATIENCE} s", heard)
        self.assertGreaterEqual(time.monotonic() - begin, PATIENCE)

    def test_a_job_that_is_no_number(self):
        """A wrong command line, whether a thcd is there or not."""
        for word in ("x", "1x", "-1", ""):
            done = subprocess.run([os.path.join(BUILD, "thcctl"), "-C", "/nowhere", "job", "--",
                                   word], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f'"{word}" is not the number of a job', done.stderr)

    def test_output_that_cannot_be_written(self):
        """A full disk is an error."""
        for command in (("thcctl", "--help"), ("thcctl", "--version"), ("thcctl", "check", "lo"),
                        ("thcd", "--help"), ("thcd", "--version")):
            with self.subTest(command=command), open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([os.path.join(BUILD, command[0]), *command[1:]],
                                      stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=PATIENCE)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{command[0]}: not all of the output could be written: No space "
                              "left on device", done.stderr)


if __name__ == "__main__":
    unittest.main()
