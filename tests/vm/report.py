# SPDX-License-Identifier: GPL-2.0
"""The reports of programs that test in machines: for a reader, or for tools/run-tests."""
import os
import signal
import subprocess
import sys
import time

import kernels

SKIPPED = 4
# Where all packages can be installed (.ci/run), a test that would be skipped has failed.
MUST_RUN = os.environ.get("THC_MUST_RUN") == "1"


class Report:
    """Programs in the order in which they begin; `kernel` is the first part of their names.

    Lines of `events`: "begin NAME", "note NAME TEXT", "end NAME STATUS SECONDS LOG" and at the
    end "done vm/KERNEL"; names are vm/KERNEL/PROGRAM."""

    def __init__(self, kernel, logs, events, verbose):
        self.kernel, self.events, self.verbose = kernel, events, verbose
        self.logs = logs = logs or os.path.join(kernels.build_dir(), "check")
        self.failed = False
        self.name = self.file = self.start = None
        os.makedirs(logs, exist_ok=True)

    def path(self, name):
        return os.path.join(self.logs, f"vm.{self.kernel}.{name}.log")

    def full(self, name):
        return f"vm/{self.kernel}/{name}" if name else f"vm/{self.kernel}"

    @staticmethod
    def tell(event):
        """Write an event by one write(), since other programs may use this pipe."""
        sys.stdout.write(f"{event}\n")
        sys.stdout.flush()

    def begin(self, name):
        self.name, self.start = name, time.monotonic()
        self.file = open(self.path(name), "wb")
        if self.events:
            self.tell(f"begin {self.full(name)}")
        else:
            sys.stdout.write(f"{self.kernel}/{name} ")
            sys.stdout.write("\n" if self.verbose else "... ")
            sys.stdout.flush()

    def write(self, data):
        if self.file:
            self.file.write(data)
            self.file.flush()
        if self.verbose or not self.file:
            sys.stderr.buffer.write(data)
            sys.stderr.flush()

    def begin_anew(self, reason):
        """Note that the current program runs once more from its beginning."""
        self.file.seek(0)
        self.file.truncate()
        self.write(f"# {reason}\n".encode())

    def note(self, text):
        """Report progress in steps that take minutes."""
        if self.events and text.startswith("vm: "):
            self.tell(f"note {self.full(self.name)} {text.removeprefix('vm: ')}")

    def end(self, status, complaints=()):
        for text in complaints:
            self.write("".join(f"# {line}\n" for line in text.split("\n")).encode())
            self.write(b"not ok - the kernel did not complain\n")
        seconds = time.monotonic() - self.start
        self.file.close()
        if complaints and status in (0, SKIPPED):
            status = 1
        self.failed |= status not in (0, SKIPPED)
        if self.events:
            self.tell(f"end {self.full(self.name)} {status} {seconds:.0f} {self.path(self.name)}")
        else:
            verdict = {0: "ok", SKIPPED: "skipped"}.get(status, f"FAILED, status {status}")
            print(f"{verdict}, {seconds:.0f} s", flush=True)
            if status and not self.verbose:
                with open(self.path(self.name), errors="replace") as f:
                    sys.stdout.write("".join(f"  | {line}" for line in f))
        self.name = self.file = None

    def whole(self, name, status, text):
        """Report a program that ends at once."""
        self.begin(name)
        self.write(text.encode())
        self.end(status)

    def result(self, cases):
        """End the current program with (passed, name) of its cases."""
        self.write(f"1..{len(cases)}\n".encode())
        for number, (passed, name) in enumerate(cases, 1):
            self.write(f"{'' if passed else 'not '}ok {number} - {name}\n".encode())
        self.end(0 if all(passed for passed, _name in cases) else 1)

    def cannot(self, reason):
        """End the current program, which this host cannot run."""
        if MUST_RUN:
            self.write(f"1..1\nnot ok 1 - THC_MUST_RUN, but {reason}\n".encode())
        else:
            self.write(f"1..0 # SKIP {reason}\n".encode())
        self.end(1 if MUST_RUN else SKIPPED)


def run_build(report, name, argv, what="builds", missing=None):
    """Report one step of building as a program. Returns its status.

    If the host cannot do it, its last line says why. `missing`: why a second case is skipped."""
    last = "no reason given"
    report.begin(name)
    process = subprocess.Popen(argv, cwd=kernels.ROOT, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for line in process.stdout:
        report.write(b"# " + line)
        text = line.decode(errors="replace").strip()
        report.note(text)
        last = text or last
    status = process.wait()
    if status == SKIPPED:
        report.cannot(last.removeprefix("vm: "))
    else:
        report.write(f"1..{2 if missing else 1}\n{'not ' if status else ''}ok 1 - {what}\n"
                     .encode())
        if missing:
            report.write(f"ok 2 # SKIP {missing}\n".encode())
        report.end(status)
    return status


def arguments(parser):
    """Parse arguments, with the options that run() needs."""
    parser.add_argument("--logs", metavar="DIR", help="default build/check")
    parser.add_argument("--events", action="store_true", help="for tools/run-tests")
    parser.add_argument("--verbose", action="store_true", help="programs' output as it comes")
    return parser.parse_args()


def run(kernel, args, check):
    """Run check(report). Returns the exit status, which is not 0 if a program has failed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _frame: sys.exit(128 + n))
    report = Report(kernel, args.logs, args.events, args.verbose)
    try:
        check(report)
    except KeyboardInterrupt:
        return 130
    if args.events:
        report.tell("done " + report.full(None))
    return 1 if report.failed else 0
