# SPDX-License-Identifier: GPL-2.0
"""A machine of one kernel that sees the host's files and runs one command.

      host                                   guest
    +-------------------------------+      +----------------------------------------+
    | /  --- 9p, read-only -------- | ---> | lower layer  \\                         |
    |                               |      | tmpfs, upper / overlayfs, the guest's / |
    | --share DIR --- 9p, r/w ----- | ---> | DIR                                    |
    | stdout      <-- virtio port - | ---- | the command's output                   |
    | exit status <-- virtio port - | ---- | "started", "exit N"                    |
    | dmesg.log   <-- ttyS0 ------- | ---- | console: the kernel's messages         |
    +-------------------------------+      +----------------------------------------+

The guest has all installed programs of the host, and changes only files in
--share folders. KVM is used where a guest of this kernel really boots with it,
otherwise QEMU emulates (TCG). This file makes the initramfs: busybox, init,
stage2 and the modules that mount 9p. kernels.py has the kernels.
"""
import contextlib
import ctypes
import functools
import json
import mmap
import os
import platform
import re
import selectors
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time

import kernels
from kernels import Unavailable, say

# Exit statuses of a run that are not the command's own.
STATUS_SPLAT = 122
STATUS_DIED = 123
STATUS_TIMEOUT = 124
STATUS_UNAVAILABLE = 125

QEMU = "qemu-system-x86_64"
BUSYBOX = "/bin/busybox"
_BOOT_SECONDS = 180         # until the command starts, at most
_KVM_SECONDS = 20           # until the command starts in the test of KVM
_EXIT_SECONDS = 0.2         # without output after the exit status; then the machine is killed
_BOOTS = 3                  # of one run at most, where the emulator is at fault
_LOOK_SECONDS = 5           # between looks for a fault of the emulator
_LEAK_SECONDS = 120         # room for kmemleak's scans after the command
_MSIZE = 512000
_BOOT_MODULES = ("virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay")
_PR_SET_PDEATHSIG = 1

_STAMP = r"^(?:\[\s*\d+\.\d+\](?:\[[^\]]*\])?[ ])"
# Lines that no run may leave in the kernel's log.
_SPLAT = re.compile(_STAMP + r"""(?:
    .*\bBUG:\ | BUG\ \S+\ .*:\ | kernel\ BUG\ at | .*\bOops: | general\ protection |
    WARNING: | .*UBSAN: | .*KASAN: | .*KCSAN: | .*KFENCE: |
    INFO:\ possible | INFO:\ trying\ to\ register | INFO:\ lockdep | INFO:\ task\ .*blocked |
    INFO:\ rcu | rcu:\ INFO: | .*suspicious\ RCU | .*possible\ (?:recursive|circular|irq)\ lock |
    .*inconsistent\ lock\ state | .*DEBUG_LOCKS_WARN_ON | .*refcount_t: | .*list_(?:add|del)\ corr |
    kmemleak:\ unreferenced | .*unregister_netdevice:\ waiting | .*leaked\ reference |
    .*scheduling\ while\ atomic | .*sleeping\ function\ called | watchdog:\ BUG | .*soft\ lockup |
    Kernel\ panic | .*Objects\ remaining | .*Bad\ page | ODEBUG: | ref_tracker: |
    .*Attempt\ to\ release\ alive | .*still\ has\ objects | percpu\ ref\ .*<=\ 0 |
    .*cannot\ create\ duplicate | kobject_add_internal\ failed |
    thc-vm:\ a\ detector
    )""", re.X)
_OOM = re.compile(_STAMP + r"Out of memory: (.*)")
_PANIC = re.compile(_STAMP + r"Kernel panic - not syncing: (.*)")
# A CPU met a breakpoint that no code has set; another CPU waits for it with the next change.
_HALF = re.compile(_STAMP + r"((?:Oops: )?int3: |RIP: 0010:(?:asm_)?exc_int3\+)")
_STALL = re.compile(_STAMP + r"(?:watchdog: BUG: soft lockup|rcu: INFO: .* stall)")
_CHANGING = re.compile(_STAMP + r" (?:smp_)?text_poke_\w+\+", re.M)
# The place of a CPU in the kernel itself, not in a module: a loop in thc.ko is a failure of thc.ko.
# And code that the kernel switches: a jump, or the NOP in place of a jump.
_AT = re.compile(_STAMP + r"RIP: 0010:(\S+)$", re.M)
_JUMP = re.compile(r"<(?:eb|e9)>|<66> 90|<0f> 1f")
_REFUSED = re.compile(_STAMP + r"thc-vm: cannot start: (.*)")
_FIRST_LINES = 40


def why_not():
    """None if machines can be run here, else a sentence."""
    if platform.machine() != "x86_64":
        return "test machines are x86-64 so far, this host is " + platform.machine()
    if not shutil.which(QEMU):
        return f"'{QEMU}' is missing: apt-get install qemu-system-x86"
    if not os.path.exists(BUSYBOX):
        return f"'{BUSYBOX}' is missing: apt-get install busybox-static"
    if not _is_static(_read(BUSYBOX)):
        return f"'{BUSYBOX}' needs libraries: apt-get install busybox-static"
    return None


def _is_static(elf):
    """No program header of the kind PT_INTERP in this 64-bit ELF file."""
    start, size, count = *struct.unpack_from("<Q", elf, 32), *struct.unpack_from("<HH", elf, 54)
    return all(struct.unpack_from("<I", elf, start + i * size)[0] != 3 for i in range(count))


# --- initramfs -------------------------------------------------------------------
class _Cpio:
    """An archive in the format "newc" that the kernel unpacks as its first file system."""

    def __init__(self):
        self._parts, self._inode = [], 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self._inode += 1
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        self._parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]

    def bytes(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def _read(path):
    with open(path, "rb") as f:
        return f.read()


def _initramfs(kernel, command, settings):
    here = os.path.dirname(os.path.abspath(__file__))
    archive = _Cpio()
    for folder in ("bin", "dev", "thc"):
        archive.add(folder, stat.S_IFDIR | 0o755)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("bin/busybox", stat.S_IFREG | 0o755, _read(BUSYBOX))
    archive.add("init", stat.S_IFREG | 0o755,
                _read(os.path.join(here, "init")).replace(b"#!/bin/sh", b"#!/bin/busybox sh", 1))
    archive.add("thc/stage2", stat.S_IFREG | 0o755, _read(os.path.join(here, "stage2")))
    modules = kernel.with_dependencies(_BOOT_MODULES)
    for path in modules:
        archive.add("thc/" + os.path.basename(path), stat.S_IFREG | 0o644, _read(path))
    names = "".join(os.path.basename(path) + "\n" for path in modules)
    archive.add("thc/modules", stat.S_IFREG | 0o644, names.encode())
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())
    archive.add("thc/settings", stat.S_IFREG | 0o644, text.encode())
    archive.add("thc/command", stat.S_IFREG | 0o644, command.encode())
    return archive.bytes()


# --- one run -----------------------------------------------------------------------
@functools.lru_cache(maxsize=None)
def host_tsc_khz():
    """[the rate of this host's TSC], empty if the host has none. The TSC of an emulated machine has
    this rate, but on a busy host the machine would measure a fifth of it, and its clocks would run
    at five times their speed."""
    if platform.machine() != "x86_64":
        return []
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # rdtsc; shl $32, %rdx; or %rdx, %rax; ret
    code.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))
    tsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def look():
        """(ticks, ns), the closest of some pairs: this program may have to wait within a pair."""
        looks = [(time.monotonic_ns(), tsc(), time.monotonic_ns()) for _ in range(20)]
        before, ticks, after = min(looks, key=lambda a: a[2] - a[0])
        return ticks, (before + after) / 2

    ticks, start = look()
    time.sleep(0.1)
    more, end = look()
    return [round((more - ticks) * 1e6 / (end - start))]


def die_with_parent(parent):
    """This process is killed when the one that made it, process `parent`, ends, or has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Machine:
    """One boot of a kernel for one command; see run()."""

    def __init__(self, kernel, command, cpus=2, memory=None, timeout=600, shared=(), cwd=None,
                 log=None, environment=None, output=None, verbose=False, instructions=False,
                 leaks=True):
        self.kernel, self.cpus, self.timeout = kernel, 1 if instructions else cpus, timeout
        self.instructions = instructions
        self.memory = memory or (4096 if kernel.name == "debug" else 2048)
        self.shared = [os.path.abspath(s) for s in shared]
        self.log = log or os.path.join(kernel.log_dir(), "dmesg.log")
        self.output = output or _to_stdout
        self.verbose, self.leaks = verbose, leaks
        self.exports = "".join(f"export {name}={shlex.quote(value)}\n"
                               for name, value in (environment or {}).items())
        self.cwd = cwd or os.getcwd()
        self.command = self._shell(command)
        self.resume = None          # returns the command for the rest, after another boot
        self.deadline = None        # time.monotonic() at which the machine is killed
        self.accel = None
        self.trouble = None         # one sentence, when the run went wrong
        self.boot_seconds = None
        self._pid = None            # of the emulator

    def _shell(self, command):
        return f"{self.exports}cd {shlex.quote(self.cwd)} || exit 1\nexec {shlex.join(command)}\n"

    def run(self):
        """Run the command. Returns its exit status, or one of STATUS_*.

        self.trouble then says in one sentence what happened."""
        reason = why_not()
        if reason:
            self.trouble = reason
            return STATUS_UNAVAILABLE
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        with kernels.locked(self.log + ".lock", f"{self.log} is being written"):
            self.accel = "kvm" if not self.instructions and self._kvm_works() else "tcg"
            status = self._boot(self.accel, self.command, self.log, _BOOT_SECONDS)
            for _ in range(_BOOTS - 1):
                if not self._met_half_an_instruction():
                    break
                if self.boot_seconds is not None:
                    if not self.resume:
                        break
                    self.command = self._shell(self.resume())
                say("the emulator ran an instruction that the kernel was changing; booting again, "
                    f"the log of before is {self.log}.before")
                os.replace(self.log, self.log + ".before")
                self.trouble = self.boot_seconds = self.deadline = None
                status = self._boot(self.accel, self.command, self.log, _BOOT_SECONDS)
            return self._judge(status)

    def _met_half_an_instruction(self):
        """The kernel switches code on and off, mostly while it boots: it writes a breakpoint
        (int3), the rest of the new instruction, its first byte. With several CPUs, each emulated
        by a thread, a CPU sometimes keeps a breakpoint that is gone already: the kernel panics, or
        that CPU meets it for ever, often with interrupts off. Then the kernel reports a stall, of
        that CPU, or of the CPU that changes code next and waits for all. Or the kept code jumps to
        itself: in all reports that CPU is at one jump."""
        if self.accel != "tcg":
            return False
        stalls = [splat for splat in self.splats() if _STALL.match(splat)]
        jumps = [place for place in map(_at_a_jump, stalls) if place]
        return _first(_HALF, self.log) is not None or any(map(_CHANGING.search, stalls)) or \
            len(jumps) > len(set(jumps))

    def cpu_seconds(self):
        """The CPU time of the emulator so far, which does not depend on other work of this host."""
        try:
            fields = _read(f"/proc/{self._pid}/stat").rpartition(b") ")[2].split()
        except FileNotFoundError:
            return 0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def splats(self, since=0):
        """What the kernel complained about, a list of texts, from byte `since` of the log on."""
        return find_splats(self.log, since)

    def _judge(self, status):
        if self.trouble:
            return status
        oom = _first(_OOM, self.log)
        if oom:
            self.trouble = f"{self.memory} MB were not enough (--memory): {oom}"
            return STATUS_DIED
        found = self.splats()
        if found:
            self.trouble = "the kernel complained: " + found[0].split("\n", 1)[0]
            return status or STATUS_SPLAT
        return status

    def _kvm_works(self):
        """Whether a guest of this kernel boots with KVM; remembered until the host reboots."""
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return False
        known = os.path.join(kernels.cache_dir(), "kvm.json")
        key = "{} {} {}".format(_read("/proc/sys/kernel/random/boot_id").decode().strip(),
                                os.uname().release, self.kernel.release)
        answers = {}
        with contextlib.suppress(OSError, ValueError):
            answers = json.loads(_read(known))
        if key not in answers:
            start = time.monotonic()
            log = self.log + ".kvm"
            # twice, since a hypervisor that works only sometimes is worse than none
            answers[key] = all(self._boot("kvm", "exec true\n", log, _KVM_SECONDS, 10) == 0
                               for _ in range(2))
            self.trouble = None
            say("KVM {} for {} here ({:.0f} s to find out)".format(
                "works" if answers[key] else "does not work", self.kernel.release,
                time.monotonic() - start))
            with open(known, "w") as f:
                json.dump(answers, f, indent=1)
        return answers[key]

    def _argv(self, accel, initrd, status_file, log):
        smp = f"{self.cpus}"
        if self.kernel.name == "debug":
            # the kernel has no ACPI, and other tables have only the first CPU of each package
            smp += f",sockets={self.cpus},cores=1,threads=1"
        argv = [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-name", "thc-vm", "-m", str(self.memory), "-smp", smp]
        if accel == "kvm":
            argv += ["-machine", "q35,accel=kvm", "-cpu", "host"]
        else:
            # "rep movsb" would take one instruction for each byte.
            cpu = "max,la57=off,-erms,-fsrm"
            if self.instructions:
                # One nanosecond for each instruction; when the CPU is idle, time jumps.
                argv += ["-icount", "shift=0,sleep=off"]
            argv += ["-machine", "q35", "-cpu", cpu,
                     "-accel", "tcg,thread=" + ("single" if self.instructions else "multi")]
        # norandmaps: with random addresses an emulated start of a program takes 61 ms, without 15.
        append = ["console=ttyS0", "kunit.enable=1", "loglevel=7", "panic=-1", "oops=panic", "nokaslr",
                  "norandmaps", "mitigations=off", "init_on_alloc=0", "random.trust_cpu=on", "rcupdate.rcu_cpu_stall_timeout=100",
                  "watchdog_thresh=40", "no_timer_check", "tsc=reliable", "printk.devkmsg=on"]
        if accel == "tcg" and not self.instructions:
            append += [f"tsc_early_khz={khz}" for khz in host_tsc_khz()]
        argv += ["-kernel", self.kernel.image, "-initrd", initrd, "-append", " ".join(append),
                 "-serial", f"file:{log}",
                 "-device", "virtio-serial-pci",
                 "-chardev", "stdio,id=output,signal=off",
                 "-device", "virtserialport,chardev=output,name=thc.output",
                 "-chardev", f"file,id=status,path={status_file}",
                 "-device", "virtserialport,chardev=status,name=thc.status",
                 "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]
        for number, folder in enumerate(self.shared):
            argv += ["-fsdev", f"local,id=shared{number},path={folder},security_model=none,"
                     "multidevs=remap",
                     "-device", f"virtio-9p-pci,fsdev=shared{number},mount_tag=shared{number}"]
        return argv

    def _boot(self, accel, command, log, boot_seconds, timeout=None):
        timeout = timeout or self.timeout
        settings = {"MSIZE": str(_MSIZE), "MODULES": self.kernel.all_modules(),
                    "SHARED": " ".join(self.shared),
                    "DETECTORS": "1" if self.kernel.name == "debug" else "",
                    "LEAKS": "1" if self.leaks else "",
                    "VISIBLE": " ".join((kernels.ROOT, kernels.build_dir(), kernels.cache_dir())),
                    "PATIENCE": str(max(1, timeout - 5))}
        with tempfile.TemporaryDirectory(prefix="thc-vm-") as folder:
            initrd, status_file = (os.path.join(folder, n) for n in ("initrd", "status"))
            with open(initrd, "wb") as f:
                f.write(_initramfs(self.kernel, command, settings))
            open(log, "w").close()
            argv = self._argv(accel, initrd, status_file, log)
            if self.verbose:
                say(shlex.join(argv))
            with open(os.path.join(folder, "stderr"), "w+") as errors:
                # A stdin at its end would close the port that stdout shares with it.
                qemu = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=errors, process_group=0,
                                        preexec_fn=functools.partial(die_with_parent, os.getpid()))
                self._pid = qemu.pid
                try:
                    status = self._watch(qemu, status_file, log, boot_seconds, timeout)
                finally:
                    qemu.kill()
                    qemu.wait()
                    qemu.stdin.close()
                    qemu.stdout.close()
                if status is None:
                    errors.seek(0)
                    status = self._died(log, errors.read().strip())
                return status

    def _watch(self, qemu, status_file, log, boot_seconds, timeout):
        """Pass output on until the guest has sent its status. Returns None if the guest died."""
        begin = looked = time.monotonic()
        started = exit_status = end = None
        with selectors.DefaultSelector() as selector:
            selector.register(qemu.stdout, selectors.EVENT_READ)
            while True:
                ready = selector.select(0.05)
                if ready:
                    data = os.read(qemu.stdout.fileno(), 1 << 16)
                    if data:
                        self.output(data)
                        continue
                    selector.unregister(qemu.stdout)
                now = time.monotonic()
                words = _words(status_file)
                if started is None and "started" in words:
                    started = now
                    self.boot_seconds = now - begin
                    if self.verbose:
                        say(f"{self.kernel.release} by {accel_name(self.accel)} "
                            f"booted in {self.boot_seconds:.1f} s")
                if exit_status is None and "exit" in words[:-1]:
                    exit_status = int(words[words.index("exit") + 1])
                    end = now
                if qemu.poll() is not None:
                    return exit_status
                if exit_status is not None and not ready and now > end + _EXIT_SECONDS:
                    return exit_status
                if started is None and now > begin + boot_seconds:
                    self.trouble = f"no boot within {boot_seconds} s; its last words: " + _last(log)
                    return STATUS_DIED
                if started and now > looked + _LOOK_SECONDS:
                    looked = now
                    if self._met_half_an_instruction():
                        self.trouble = "a CPU hangs where the kernel changed an instruction"
                        return STATUS_DIED
                if self.deadline and now > self.deadline:
                    self.trouble = "the guest does not even end what takes too long; " \
                                   "its last words: " + _last(log)
                    return STATUS_TIMEOUT
                limit = timeout + (_LEAK_SECONDS if self._ended(log) else 0)
                if started and exit_status is None and now > started + limit:
                    self.trouble = f"the command did not end within {timeout} s (--timeout); " \
                                   "what it waited for may be in the log"
                    return STATUS_TIMEOUT
                if not ready:
                    continue
                time.sleep(0.05)

    def _ended(self, log):
        return self.kernel.name == "debug" and b"thc-vm: the command ended" in _read(log)

    def _died(self, log, errors):
        panic, refused, oom = _first(_PANIC, log), _first(_REFUSED, log), _first(_OOM, log)
        if refused:
            self.trouble = "the guest could not start: " + refused
        elif panic and ("memory" in panic or oom):
            self.trouble = f"{self.memory} MB were not enough (--memory): {oom or panic}"
        elif panic:
            lines = _lines(log)
            end = next(i for i, line in enumerate(lines) if _PANIC.match(line))
            cause = next(filter(_SPLAT.match, lines[max(0, end - 100):end]), None)
            self.trouble = "the kernel panicked: " + panic + (f" ({cause})" if cause else "")
        elif errors and not _read(log):
            self.trouble = "QEMU: " + errors.splitlines()[-1]
        else:
            self.trouble = "the machine ended without a word; its last one: " + _last(log)
        return STATUS_DIED


def accel_name(accel):
    return "KVM" if accel == "kvm" else "emulation"


def _to_stdout(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _words(path):
    try:
        return _read(path).decode(errors="replace").split()
    except FileNotFoundError:
        return []


def _lines(log, since=0):
    return _read(log)[since:].decode(errors="replace").replace("\r", "").split("\n")


def _last(log):
    return next((line for line in reversed(_lines(log)) if line.strip()), "none")


def _at_a_jump(splat):
    """The place of a CPU that stalls at a jump, or None if it stalls elsewhere."""
    at, _, rest = splat.partition("Code: ")
    place = _AT.search(at)
    return place[1] if place and _JUMP.search(rest.partition("\n")[0]) else None


def _first(pattern, log):
    for line in _lines(log):
        found = pattern.match(line)
        if found:
            return found[1]
    return None


def find_splats(log, since=0):
    """Complaints of the kernel in a log, each with the lines that follow it."""
    lines = _lines(log, since) if os.path.exists(log) else []
    found, skip_to = [], 0
    for number, line in enumerate(lines):
        if number >= skip_to and _SPLAT.match(line):
            text = lines[number:number + _FIRST_LINES]
            end = next((i for i, t in enumerate(text) if "---[ end trace" in t), len(text) - 1)
            found.append("\n".join(text[:end + 1]).rstrip())
            skip_to = number + end + 1
    return found


__all__ = ["Machine", "Unavailable", "find_splats", "why_not"]
