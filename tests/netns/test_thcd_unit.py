#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Documentation/thcd.service as systemd runs it, and the operator's guide's unit of a thcd without
root. The test starts a systemd of its own in namespaces, with the aggregator's network. It sees
this host's files through an overlay, which is discarded in the end.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from tap import netns  # noqa: E402
from thcwire import Worker, join_all  # noqa: E402

SYSTEMD = "/lib/systemd/systemd"
WATCHDOG_S = 2          # instead of the unit's 10
JOBS = ('{"job": 1, "ranks": 2, "key": "@job1.key"}',
        '{"job": 2, "ranks": 2, "key": "@/etc/thc/job2.key"}')
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# $1: an empty folder. Sets up what systemd expects as the first process, and executes systemd.
BOOT = """set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t bpf -o mode=0700 bpf sys/fs/bpf
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
for device in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"
done
ln -s pts/ptmx dev/ptmx
printf '[Unit]\\nDefaultDependencies=no\\n' >etc/systemd/system/thc-test.target
pivot_root . mnt
umount -l /mnt
# credentials are mounted in a child, and are seen in the unit by propagation
mount --make-rshared /
exec env -i container=other "PATH=$2" "$3" --system --unit=thc-test.target --show-status=no
"""


class System:
    """A booted systemd with the unit, until the end of the with block."""

    def __init__(self, net):
        if not os.path.exists(SYSTEMD):
            raise tap.Skip("systemd is missing: apt-get install systemd")
        self.net = net
        self.folder = tempfile.TemporaryDirectory(prefix=netns.temporary_prefix())
        self.process = net.popen(
            net.aggregator, ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup",
                             "--uts", "--ipc", "--propagation", "private", "sh", "-c", BOOT,
                             "boot", self.folder.name, PATH, SYSTEMD],
            stdin=subprocess.DEVNULL)
        try:
            self.pid = self._first_process()
            self._until(lambda: self.ask("is-system-running").stdout.strip() in
                        ("running", "degraded", "starting"), "systemd does not boot")
            self._fill()
        except BaseException:
            self.close()
            raise

    def _first_process(self):
        def children():
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children",
                      encoding="ascii") as f:
                return f.read().split()

        self._until(children, "unshare has made no process")
        return int(children()[0])

    def _until(self, is_true, otherwise):
        end = time.monotonic() + wire.PATIENCE
        while not is_true():
            assert self.process.poll() is None, f"systemd has ended: {self.process.returncode}"
            assert time.monotonic() < end, otherwise
            time.sleep(0.05)

    def _fill(self):
        for name in ("thcd", "thcctl"):
            with open(os.path.join(netns.build_dir(), name), "rb") as f:
                self.write(f"/usr/local/sbin/{name}", f.read(), 0o755)
        with open(os.path.join(netns.ROOT, "Documentation/thcd.service"), encoding="ascii") as f:
            unit = f.read().replace("@SBINDIR@", "/usr/local/sbin")
        self.write("/etc/systemd/system/thcd.service", unit)
        # start no other units of a host, and do not wait for a real network
        self.configure("test", "[Unit]\nDefaultDependencies=no\n"
                               f"[Service]\nWatchdogSec={WATCHDOG_S}\n"
                               "LoadCredential=job1.key:/etc/thc/job1.key\n"
                               "StandardError=append:/tmp/said\n")
        self.write("/etc/thc/job1.key", wire.KEY.hex() + "\n", 0o600)
        self.run("thcctl", "genkey", "/etc/thc/job2.key")
        self.serve(JOBS[0])
        self.run("sh", "-c", "getent group thc || groupadd --system thc")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_exc):
        if kind:
            print("# " + self.said().replace("\n", "\n# "), flush=True)
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def run(self, *argv, check=True, **more):
        """Run a program in that system."""
        done = subprocess.run(
            ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--cgroup", "--uts",
             "--ipc", "--root", "--wd", "--", "env", "-i", f"PATH={PATH}", "LC_ALL=C", *argv],
            capture_output=True, timeout=wire.PATIENCE,
            **{"text": True, **more})
        assert not check or not done.returncode, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
        return done

    def ask(self, *words):
        return self.run("systemctl", "--no-pager", *words, check=False)

    def do(self, *words):
        done = self.ask(*words)
        assert not done.returncode, f"systemctl {' '.join(words)}: {done.stderr}{self.said()}"

    def show(self, name):
        return self.ask("show", "--value", "-p", name, "thcd").stdout.strip()

    def write(self, path, data, mode=0o644):
        self.run("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1" && chmod "$2" "$1"', "write", path,
                 f"{mode:o}", input=data if isinstance(data, bytes) else data.encode(), text=False)

    def configure(self, name, text):
        self.write(f"/etc/systemd/system/thcd.service.d/{name}.conf", text)
        self.do("daemon-reload")

    def serve(self, *jobs):
        self.write("/etc/thc/thcd.conf",
                   f'{{"interface": "eth0", "spare_slots": 1152, "jobs": [{", ".join(jobs)}]}}')

    def said(self):
        return self.run("cat", "/tmp/said", check=False).stdout

    def status(self):
        """/proc/PID/status of thcd."""
        text = self.run("cat", f"/proc/{self.show('MainPID')}/status").stdout
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def jobs(self):
        return self.run("thcctl", "job").stdout

    def hook(self):
        """The XDP program on eth0, or None."""
        found = re.search(r"prog/xdp id (\d+)", self.run("ip", "-d", "link", "show", "eth0").stdout)
        return found and found[1]

    def pins(self):
        return self.run("sh", "-c", "ls /sys/fs/bpf/thc/eth0 2>&-", check=False).stdout.split()

    def until(self, name, is_true):
        self._until(lambda: is_true(self.show(name)),
                    f"{name} is {self.show(name)}\n{self.said()}")


def ranks_of(net, count=2):
    return [Worker(r, netns.AGGREGATOR4, interface="eth0",
                   bind=(net.address(r), 0),
                   place=lambda call, r=r: netns.in_namespace(net.worker(r), call))
            for r in range(count)]


def session(system):
    return re.search(r"job 1: session (\d+), all ranks are in", system.jobs())[1]


def case__the_unit_starts_serves_reloads_and_stops():
    with netns.Topology(2) as net, System(net) as system:
        system.do("start", "thcd")      # returns when thcd has said that it is ready
        assert system.show("ActiveState") == "active"
        assert system.show("StatusText").startswith("1 job, native aggregator on eth0"), \
            system.show("StatusText")
        s = system.status()
        kept = 1 << 12 | 1 << 39        # CAP_NET_ADMIN, CAP_BPF
        assert (int(s["CapEff"], 16), s["NoNewPrivs"], s["Seccomp"]) == (kept, "1", "2"), s
        join_all(ranks_of(net))         # with the key of the credential
        joined = session(system)
        member = ("setpriv", "--reuid=nobody", "--regid=thc", "--clear-groups", "thcctl")
        assert "job 1: session" in system.run(*member, "job").stdout
        assert "only root" in system.run(*member, "reload", check=False).stderr
        system.serve(*JOBS)
        system.do("reload", "thcd")
        system.until("StatusText", lambda text: text.startswith("2 jobs"))
        assert session(system) == joined and "job 2: session" in system.jobs()
        system.do("stop", "thcd")
        assert not system.hook() and not system.pins() and "thcd" in system.said()
        assert system.run("ls", "/run/thc").stdout == ""


def case__a_thcd_that_hangs_or_dies_is_started_again():
    with netns.Topology(2) as net, System(net) as system:
        system.do("start", "thcd")
        join_all(ranks_of(net))
        joined, attached = session(system), system.hook()
        for number, restarts in (("STOP", "1"), ("KILL", "2")):
            system.run("kill", f"-{number}", system.show("MainPID"))
            system.until("NRestarts", lambda n, restarts=restarts: n == restarts)
            system.until("ActiveState", lambda state: state == "active")
            assert session(system) == joined, "the session is lost"
            assert system.hook() not in (None, attached), "it has not taken over"
            attached = system.hook()
        system.do("stop", "thcd")
        assert not system.hook() and not system.pins()


def guide_unit():
    """The text that the operator's guide adds to the unit for a thcd without root."""
    with open(os.path.join(netns.ROOT, "Documentation/operators-guide.md"), encoding="utf-8") as f:
        blocks = re.findall(r"(?:^    .*\n)+", f.read(), re.M)
    found = [b for b in blocks if "User=thc" in b]
    assert len(found) == 1, found
    return re.sub("^    ", "", found[0], flags=re.M)


def case__the_guide_s_unit_serves_without_root():
    with netns.Topology(2) as net, System(net) as system:
        system.run("useradd", "--system", "--gid", "thc", "thc")
        system.configure("user", guide_unit())
        system.do("start", "thcd")
        s = system.status()
        user = system.run("id", "-u", "thc").stdout.strip()
        assert s["Uid"].split() == [user] * 4 and int(user), s["Uid"]
        assert all(int(s[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapBnd")), s
        join_all(ranks_of(net))
        joined = session(system)
        system.run("kill", "-KILL", system.show("MainPID"))
        system.until("NRestarts", lambda n: n == "1")
        system.until("ActiveState", lambda state: state == "active")
        assert session(system) == joined and system.hook(), "the session is lost"
        system.do("stop", "thcd")
        assert not system.hook() and not system.pins(), system.said()


if __name__ == "__main__":
    if not shutil.which("systemctl"):
        print("1..0 # SKIP systemd is missing: apt-get install systemd")
        sys.exit(tap.SKIPPED)
    tap.main([case for name, case in list(globals().items()) if name.startswith("case__")])
