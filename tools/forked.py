# SPDX-License-Identifier: GPL-2.0
"""Child processes by fork(), which share the parent's imports: importing numpy takes 0.2 s and
torch 2 s, on an emulated machine ten times as long. Forked is a subprocess.Popen for functions.
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
    """Kills this process when its parent, process `parent`, ends or has ended."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Forked:
    """A child process that runs body(). Its exit status is 0, the argument of a SystemExit, or 1
    after a traceback.

    The child has a process group of its own, dies with the parent, inherits only descriptors 0 to
    2, and does not run the parent's exit handlers. name: the command name for ps, at most 15
    characters; stdout, stderr: descriptors for the child, None: the parent's; talk: True: .stdin
    and .stdout are text pipes to and from the child.
    """

    def __init__(self, body, name="", talk=False, stdout=None, stderr=None):
        self.returncode = self.stdin = self.stdout = None
        down, up = (os.pipe(), os.pipe()) if talk else (None, None)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # Python drops an exception that a signal handler raises in a function of
        # os.register_at_fork(): block the signals around fork().
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
        """The exit status, the negative signal number, or None while the child runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        """Waits for the end of the child; returns poll()."""
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
    # The parent's garbage must not be collected here: it would close descriptors whose numbers
    # belong to other files in the child.
    gc.freeze()
    os.setpgid(0, 0)        # the reason stands at netns.Topology.popen()
    die_with_parent(parent)
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    if name:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15])
    for number, fd in enumerate(standard):
        if fd is not None:
            os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # a thread of the parent may have held the locks of the old objects
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)


def _run(*steps):
    """Calls the steps, then ends this process, which must not return into the parent's code."""
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
