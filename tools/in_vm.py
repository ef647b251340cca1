#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""One of this tree's programs on a stock Debian kernel with thc.ko: builds the
module, boots the kernel in QEMU (tests/vm), loads the module there, runs the
program and keeps the file that it writes. Or on User-mode Linux. `make demo-vm`
and `make bench-vm`.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import netns

KERNEL = "6.12"
UNAVAILABLE = (4, 125)      # of tests/vm/build-module, tests/vm/run: their sentence says why
EPILOG = """\
COMMAND is run by Python there, below this tree. "@" in it is replaced by the
name of the file to write, "@live" left out unless stdout is a terminal.
"""


def step(argv):
    """Runs one program in the foreground; returns its exit status."""
    with subprocess.Popen(argv, cwd=netns.ROOT, stdin=subprocess.DEVNULL) as p:
        try:
            return p.wait()
        except BaseException:
            p.terminate()
            p.wait()
            raise


def run(args):
    if not args.uml:
        print(f"building thc.ko for Debian's {KERNEL}", flush=True)
        status = step(["sh", os.path.join(netns.ROOT, "tests/vm/build-module"), KERNEL])
        if status:
            return status
        if args.instructions:
            print(f"booting Debian's {KERNEL}, emulated, instructions are counted; "
                  "it takes minutes", flush=True)
        else:
            print(f"booting Debian's {KERNEL}, {args.cpus} CPUs; without KVM, which it may have "
                  "to do, it takes minutes", flush=True)
    parent = os.path.join(netns.build_dir(), "vm")
    with tempfile.TemporaryDirectory(prefix="result-", dir=parent) as folder:
        result = os.path.join(folder, os.path.basename(args.output))
        load = "" if args.uml else "modprobe thc && "      # tests/vm/uml has loaded it
        command = [result if word == "@" else "--live" if word == "@live" else word
                   for word in args.command if word != "@live" or sys.stdout.isatty()]
        status = step([sys.executable, *machine(args, parent), "--memory", str(args.memory),
                       "--timeout", str(args.timeout), "--share", folder, "--",
                       "env", f"BUILD={netns.build_dir()}", f"COLUMNS={columns()}",
                       f"OUTPUT_NAME={os.path.relpath(args.output)}",
                       *(["THC_INSTRUCTIONS=1"] if args.instructions else []),
                       "sh", "-c", f'{load}exec /usr/bin/python3 "$@"', args.name, *command])
        if os.path.exists(result):
            shutil.move(result, args.output)
    return status


def machine(args, parent):
    """The command that boots the machine."""
    if args.uml:
        return [os.path.join(netns.ROOT, "tests/vm/uml")]
    return [os.path.join(netns.ROOT, "tests/vm/run"), "--kernel", KERNEL, "--cpus",
            str(args.cpus), "--log", os.path.join(parent, KERNEL, f"{args.name}.dmesg.log"),
            *(["--instructions"] if args.instructions else [])]


def columns():
    return os.get_terminal_size().columns if sys.stdout.isatty() else 80


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="of what is run, for messages and logs")
    parser.add_argument("--uml", action="store_true",
                        help="on User-mode Linux, at this CPU's speed, instead of in QEMU")
    parser.add_argument("--instructions", action="store_true",
                        help="on one emulated CPU whose time counts instructions")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--memory", type=int, default=4000, metavar="MB")
    parser.add_argument("--timeout", type=int, default=900, metavar="S")
    parser.add_argument("--output", required=True, metavar="FILE", help="where the file is kept")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _frame: sys.exit(128 + n))
    try:
        status = run(args)
    except KeyboardInterrupt:
        print(f"\n{args.name}: interrupted; the test machine is gone", flush=True)
        return 130
    if status in UNAVAILABLE:
        print(f"{args.name}: not done, the sentence above says why", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
