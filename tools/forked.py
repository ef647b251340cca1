# SPDX-License-Identifier: GPL-2.0
"""Processes that are forks of this one, with what it has imported: loading numpy takes a fifth of
a second and torch two, on an emulated machine ten times as long. They take the place of
subprocess.Popen where a function is to run instead of a program.
"""
import ctypes
import gc
import os
import select
import signal
import subprocess
import sys
import traceback

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent):
    """This process is killed when the one that made it, process `parent`, ends, or has."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Forked:
    """A process that runs body() and ends with 0, with what body() gives to SystemExit, or with 1
    and a traceback.

    It has a process group of its own, dies with us, holds no descriptor of ours but 0 to 2, and
    keeps nothing that we do at our end. name: what ps shows, 15 characters; stdout and stderr:
    descriptors instead of ours; talk: .stdin and .stdout are text pipes to it and from it.
    """

    def __init__(self, body, name="", talk=False, stdout=None, stderr=None):
        self.returncode = self.stdin = self.stdout = None
        down, up = (os.pipe(), os.pipe()) if talk else (None, None)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # Modules have functions of theirs run around a fork, and what a signal's handler raises in
        # one of them is lost.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        self.pid = os.fork()
        if not self.pid:
            def begin():
                _begin(parent, name, down[0] if talk else os.open(os.devnull, os.O_RDONLY),
                       up[1] if talk else stdout, stderr)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

            _run(begin, body)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if talk:
            os.close(down[0])
            os.close(up[1])
            self.stdin, self.stdout = os.fdopen(down[1], "w"), os.fdopen(up[0])

    def poll(self):
        """Its exit status, negative of a signal, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        """The same once it has ended."""
        if self.poll() is None:
            fd = os.pidfd_open(self.pid)
            try:
                if not select.select([fd], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            finally:
                os.close(fd)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _begin(parent, name, *standard):
    # Garbage of the parent's would close files here: its descriptors are closed, and have the
    # numbers of other files.
    gc.freeze()
    os.setpgid(0, 0)        # as netns.Topology.popen() says
    die_with_parent(parent)
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    if name:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15])
    for number, fd in enumerate(standard):
        if fd is not None:
            os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # another thread of ours may have been writing to these
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)


def _run(*steps):
    """Does the steps, and ends this process: nothing returns into what has forked it."""
    status = 1
    try:
        for step in steps:
            step()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
