#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The privileges of a running thcd: its capabilities in each mode, a thcd without root that
serves jobs prepared by root, and the rights of users at the control socket.
"""
import contextlib
import grp
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from keyfile import KeyFile  # noqa: E402
from ranks import Ranks  # noqa: E402
from tap import netns  # noqa: E402
from test_thcd_attach import JOB, PINS, Daemon, a_round, hook, nothing_left, send, \
    workers_of  # noqa: E402
from thcwire import KEYED, LUT_ADD, join_all  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BPFFS = "/sys/fs/bpf"
NET_ADMIN, BPF = 12, 39
USER, GROUP = 65534, 65534      # nobody and nogroup of Debian
USER_KEY = KeyFile(wire.KEY)
CHANGES = "reload changes what thcd does: only root"


def caps(*numbers):
    return sum(1 << n for n in numbers)


def status(pid):
    """/proc/PID/status as a dict of texts."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def check_capabilities(daemon, *kept, bounded=True):
    s = status(daemon.process.pid)
    found = {name: int(s[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")}
    want = caps(*kept)
    for name in ("CapEff", "CapPrm", *(["CapBnd"] if bounded else [])):
        assert found[name] == want, f"{name} is {found[name]:x}, not {want:x}"
    assert not found["CapInh"] and not found["CapAmb"], found
    assert s["NoNewPrivs"] == "1", "thcd may gain privileges"


def config(folder, text):
    path = os.path.join(folder, "thcd.conf")
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, 0o600)
    return path


def close_by_deadline(workers, slot=40):
    """A deadline closes a chunk, in XDP modes by BPF_PROG_TEST_RUN."""
    send(workers[0], bytes(512), slot)
    for w in workers:
        packet = w.expect(LUT_ADD, slot=slot, count=1, bitmap=1)
        assert packet.flags & wire.F_CLOSED, packet


@contextlib.contextmanager
def programs():
    """A folder with thcd and thcctl that every user can read."""
    with tempfile.TemporaryDirectory(prefix=netns.temporary_prefix()) as folder:
        os.chmod(folder, 0o755)
        for name in ("thcd", "thcctl"):
            shutil.copy(os.path.join(netns.build_dir(), name), folder)
        yield folder


def as_user(*argv, uid=USER, gid=GROUP, keep=""):
    """argv for a user without privileges, or with the capabilities of keep."""
    more = [f"--inh-caps={keep}", f"--ambient-caps={keep}"] if keep else []
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *more, *argv]


@contextlib.contextmanager
def mode_of_bpffs(mode):
    """Set the mode of bpffs, as its administrator may."""
    before = stat.S_IMODE(os.stat(BPFFS).st_mode)
    os.chmod(BPFFS, mode)
    try:
        yield
    finally:
        os.chmod(BPFFS, before)


def case__serving_keeps_few_capabilities_and_ends_in_order():
    deadline = JOB + ",quorum=1,deadline_ms=200"
    for mode, job, kept in (("native", JOB, (NET_ADMIN,)), ("generic", JOB, (NET_ADMIN,)),
                            ("native", deadline, (NET_ADMIN, BPF)),
                            ("generic", deadline, (NET_ADMIN, BPF))):
        with netns.Topology(2) as net:
            d = Daemon(net, "--mode", mode, "--verbose", job=job)
            assert d.ready, d.said
            check_capabilities(d, *kept)
            shown = d.ctl("stats")["capabilities"].split()
            assert len(shown) == len(kept) and "cap_net_admin" in shown, shown
            workers = workers_of(net)
            join_all(workers)
            a_round(workers, 3)
            if "deadline" in job:
                close_by_deadline(workers)
            said = d.end()
            assert d.status == 0 and "capabilities left: cap_net_admin" in said, said
            nothing_left(net, d)


def case__software_keeps_none():
    with netns.Topology(2) as net:
        d = Daemon(net, "--software")
        assert d.ready, d.said
        check_capabilities(d)
        assert d.ctl("stats")["capabilities"] == "none"
        workers = workers_of(net)
        join_all(workers)
        a_round(workers, 3)
        d.end()
        assert d.status == 0 and not os.path.exists(f"/run/thc/{d.instance}.sock")


def case__a_file_to_reload_keeps_what_a_new_job_takes():
    with netns.Topology(2) as net, tempfile.TemporaryDirectory() as folder:
        path = config(folder, '{"jobs": [{"job": 1, "ranks": 2, "key": "@%s"}]}' %
                      wire.KEY_FILE.path)
        d = Daemon(net, "--config", path, job=None)
        assert d.ready, d.said
        check_capabilities(d, NET_ADMIN, BPF)
        d.end()
        nothing_left(net, d)


def unit_capabilities():
    with open(os.path.join(HERE, "../../Documentation/thcd.service"), encoding="ascii") as f:
        line = next(line for line in f if line.startswith("CapabilityBoundingSet="))
    return [name[4:].lower() for name in line.split("=")[1].split()]


def case__the_capabilities_of_the_unit_suffice_for_the_start():
    bounds = "--bounding-set=-all," + ",".join("+" + name for name in unit_capabilities())
    thcd = os.path.join(netns.build_dir(), "thcd")
    for mode in ("native", "generic"):
        with netns.Topology(2) as net:
            d = Daemon(net, "--mode", mode, "--control-group", grp.getgrgid(GROUP).gr_name,
                       command=["setpriv", bounds, thcd])
            assert d.ready, d.said
            check_capabilities(d, NET_ADMIN, bounded=False)
            workers = workers_of(net)
            join_all(workers)
            a_round(workers, 3)
            d.end()
            assert d.status == 0
            nothing_left(net, d)


def case__each_capability_of_the_unit_is_needed():
    """If one capability of the unit is missing, the start fails."""
    names = unit_capabilities()
    thcd = os.path.join(netns.build_dir(), "thcd")
    for left_out in names:
        bounds = "--bounding-set=-all," + ",".join("+" + n for n in names if n != left_out)
        with netns.Topology(1) as net:
            d = Daemon(net, "--control-group", grp.getgrgid(GROUP).gr_name,
                       command=["setpriv", bounds, thcd])
            if d.ready:
                d.end()
            assert not d.ready and d.status == 1, f"thcd starts without {left_out}"


def thcctl(net, folder, control, *arguments, uid=USER, gid=GROUP):
    return subprocess.run(
        netns.Topology.enter(net.aggregator,
                             as_user(os.path.join(folder, "thcctl"), "--control", control,
                                     *arguments, uid=uid, gid=gid)),
        capture_output=True, text=True, timeout=wire.PATIENCE)


def user_control(folder):
    """The path of a control socket in a folder of the user."""
    path = os.path.join(folder, "user", "control")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.chown(os.path.dirname(path), USER, GROUP)
    return path


def users(job):
    """The job with a copy of its key that the user can read."""
    os.chown(USER_KEY.path, USER, GROUP)
    return job.replace(KEYED, f"key=@{USER_KEY.path}")


class Other:
    """A thcd of a user without privileges."""

    def __init__(self, net, folder, *options, keep="", job=JOB):
        self.control = user_control(folder)
        self.daemon = Daemon(net, "--control", self.control, *options, job=users(job),
                             command=as_user(os.path.join(folder, "thcd"), keep=keep))

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(wire.PATIENCE)
            s.connect(self.control)
            s.sendall(request.encode() + b"\n")
            return json.loads(s.makefile().read())


def errand(net, *options, command=None, job=JOB):
    """Run a thcd that ends by itself. Returns its status and its messages."""
    done = subprocess.run(
        netns.Topology.enter(net.aggregator,
                             [*(command or [os.path.join(netns.build_dir(), "thcd")]), "-i", "eth0",
                              "--instance", net.name, "--job", job, *options]),
        capture_output=True, text=True, timeout=wire.PATIENCE)
    return done.returncode, done.stderr


def serve_without_root(mode):
    job = JOB + ",quorum=1,deadline_ms=300"
    with netns.Topology(2) as net, programs() as folder, mode_of_bpffs(0o711):
        code, said = errand(net, "--mode", mode, "--prepare", "nobody", job=job)
        assert code == 0 and "is prepared for user 65534" in said, said
        held = hook(net)
        assert held[0] == mode
        other = Other(net, folder, job=job)
        assert other.daemon.ready, other.daemon.said
        s = status(other.daemon.process.pid)
        assert s["Uid"].split() == [str(USER)] * 4, s["Uid"]
        check_capabilities(other.daemon, bounded=False)
        workers = workers_of(net)
        join_all(workers)
        epoch = workers[0].epoch
        a_round(workers, 3)
        close_by_deadline(workers)
        answer = other.ask("stats")
        assert answer["mode"] == mode and answer["adds_up"] and \
            answer["capabilities"] == "none", answer
        # what a running thcd uses cannot be discarded
        code, said = errand(net, "--discard")
        assert code == 1 and "another thcd runs" in said, said
        # nor can a second thcd serve it
        second = Other(net, folder, job=job)
        assert not second.daemon.ready and "another thcd" in second.daemon.said, \
            second.daemon.said
        # killed or ended: program, members and counters stay
        for number in (signal.SIGKILL, signal.SIGTERM):
            other.daemon.end(number)
            assert hook(net) == held and os.path.exists(f"{PINS}/{net.name}/prog")
            other = Other(net, folder, job=job)
            assert other.daemon.ready, other.daemon.said
            assert other.ask("jobs")["jobs"][0]["epoch"] == epoch
            a_round(workers, 3, generation=1 if number == signal.SIGKILL else 2)
        other.daemon.end()
        assert other.daemon.status == 0 and "continued" in other.daemon.said, other.daemon.said
        # root prepares once more, for example a new program, and the jobs go on
        code, said = errand(net, "--mode", mode, "--prepare", "nobody", job=job)
        assert code == 0 and "continued" in said and hook(net)[1] != held[1], said
        code, said = errand(net, "--discard")
        assert code == 0 and hook(net) is None and not os.path.exists(f"{PINS}/{net.name}"), said
        assert "detached the XDP program from eth0 and removed" in said, said
        code, said = errand(net, "--discard")
        assert code == 0 and "has left nothing to discard" in said, said


def case__a_thcd_without_root_serves_what_root_prepared():
    serve_without_root("native")


def case__and_in_generic_mode():
    serve_without_root("generic")


def case__libthc_is_served_without_root():
    with netns.Topology(2) as net, programs() as folder, mode_of_bpffs(0o711):
        job = f"1,ranks=2,{KEYED},rate=fixed"
        code, said = errand(net, "--prepare", "nobody", job=job)
        assert code == 0, said
        other = Other(net, folder, job=job)
        assert other.daemon.ready, other.daemon.said
        known = types.SimpleNamespace(job=1, key_file=wire.KEY_FILE.path)
        with Ranks(net, known) as ranks:
            ranks.open()
            digests = {a["digest"] for a in ranks.reduce(counts=[200000, 7], rounds=3)}
        s = other.ask("stats")
        assert len(digests) == 1 and s["mode"] == "native" and s["adds_up"], (digests, s)
        assert s["events"]["finished"] > 3 * 196, "XDP has not summed it"
        other.daemon.end()
        assert errand(net, "--discard")[0] == 0


def case__what_a_thcd_without_root_lacks_it_says():
    with netns.Topology(1) as net, programs() as folder:
        thcd = os.path.join(folder, "thcd")
        with mode_of_bpffs(0o700):
            code, said = errand(net, "--prepare", "nobody")
            assert code == 1 and f"chmod 711 {BPFFS}" in said, said
            assert hook(net) is None and not os.path.exists(f"{PINS}/{net.name}"), "undone"
        with mode_of_bpffs(0o711):
            for options, words in (((), "thcd --prepare, as root"),
                                   (("--prepare", "nobody"), "--prepare is for root"),
                                   (("--discard",), "--discard is for root")):
                code, said = errand(net, "--control", user_control(folder), *options,
                                    command=as_user(thcd), job=users(JOB))
                assert code in (1, 2) and words in said, said
            assert errand(net, "--prepare", "nobody")[0] == 0
            code, said = errand(net, command=as_user(thcd))
            assert code == 2 and f"cannot read {wire.KEY_FILE.path}: Permission" in said, said
            code, said = errand(net, command=as_user(thcd), job=users(JOB))
            assert code == 1 and "give another --control PATH" in said, said
            other = Other(net, folder, "--fresh")
            assert not other.daemon.ready and "--fresh is for root" in other.daemon.said
            other = Other(net, folder, job=JOB.replace("ranks=2", "ranks=3"))
            assert not other.daemon.ready and "ranks is 2, and 3" in other.daemon.said
            other = Other(net, folder, "--mode", "generic")
            assert not other.daemon.ready and "native XDP is prepared" in other.daemon.said
            # thcd as root does not trust pins that another user can change
            d = Daemon(net)
            assert not d.ready and "belongs to user 65534" in d.said, d.said
            assert errand(net, "--discard")[0] == 0
        for options, words in ((("--prepare", "root"), "root needs no preparation"),
                               (("--prepare", "nobody", "--software"), "is for XDP"),
                               (("--prepare", "nobody", "--discard"), "give one of them"),
                               (("--prepare", "no-such"), "no user no-such")):
            code, said = errand(net, *options)
            assert code == 2 and words in said, said


def case__root_opens_no_link_that_the_user_has_put_among_the_pins():
    with netns.Topology(1) as net, netns.Topology(1) as victim, mode_of_bpffs(0o711):
        pins = f"{PINS}/{net.name}"
        other = Daemon(victim)
        assert other.ready, other.said
        theirs = f"{PINS}/{victim.name}"
        assert errand(net, "--prepare", "nobody")[0] == 0
        before = os.stat(f"{theirs}/state")
        for put in (lambda: os.symlink(f"{theirs}/state", f"{pins}/state"),
                    lambda: os.link(f"{theirs}/state", f"{pins}/state"),
                    lambda: os.mkdir(f"{pins}/state")):
            if os.path.lexists(f"{pins}/state"):
                os.unlink(f"{pins}/state")
            put()
            for errands in (("--prepare", "nobody"), ("--prepare", "nobody", "--fresh"),
                            ("--discard",)):
                code, said = errand(net, *errands)
                assert code == 1 and "is a link or a folder" in said, said
                # nothing else has changed its owner, and the folder has its first owner again
                now = os.stat(f"{theirs}/state")
                assert (now.st_uid, now.st_ino) == (before.st_uid, before.st_ino)
                assert os.stat(pins).st_uid == USER
        os.rmdir(f"{pins}/state")
        assert errand(net, "--prepare", "nobody", "--fresh")[0] == 0
        code, said = errand(net, "--discard")
        assert code == 0 and hook(net) is None and not os.path.exists(pins), said
        other.end()
        assert other.status == 0, other.said


def bpftool(*words):
    return subprocess.run(["bpftool", "-j", "map", *words], check=True, capture_output=True,
                          text=True, env={**os.environ, "PATH": "/usr/sbin:/sbin"}).stdout


def fill(path):
    """Write all ones into every value of a pinned array."""
    about = json.loads(bpftool("show", "pinned", path))
    for k in range(about["max_entries"]):
        bpftool("update", "pinned", path, "key", *map(str, k.to_bytes(4, sys.byteorder)),
                "value", *["255"] * about["bytes_value"])


def replace(path):
    """Replace a pinned map by a map with values of equal size for each CPU."""
    about = json.loads(bpftool("show", "pinned", path))
    os.unlink(path)
    bpftool("create", path, "type", "percpu_array", "key", "4", "value", str(about["bytes_value"]),
            "entries", str(about["max_entries"]), "name", "another")


def case__what_the_user_writes_into_its_maps_is_no_crash_of_thcctl():
    with netns.Topology(1) as net, mode_of_bpffs(0o711):
        def jobs():
            done = subprocess.run([os.path.join(netns.build_dir(), "thcctl"), "--instance",
                                   net.name, "--json", "job"], capture_output=True, text=True,
                                  timeout=wire.PATIENCE)
            assert not done.returncode, (done.returncode, done.stderr)
            return json.loads(done.stdout)["jobs"]

        # wrong prefixes; wrong ranks and slots; larger values than thcctl reads
        for name, change in (("state", fill), ("jobs", fill), ("state", replace),
                             ("jobs", replace)):
            assert errand(net, "--prepare", "nobody")[0] == 0
            assert [job["job"] for job in jobs()] == [1]
            change(f"{PINS}/{net.name}/{name}")
            assert not jobs()
            assert errand(net, "--discard")[0] == 0


def case__discard_says_where_the_program_is():
    thcd = os.path.join(netns.build_dir(), "thcd")
    with netns.Topology(1) as net, mode_of_bpffs(0o711):
        code, said = errand(net, "--prepare", "nobody")
        assert not code and f"thcd -i eth0 --instance {net.name} --discard" in said, said
        held = hook(net)
        for options, words in ((("-i", "eth0"), "another thcd's? then give its --instance name"),
                               (("-i", "lo", "--instance", net.name),
                                "is not on lo, but on eth0; nothing was discarded")):
            done = subprocess.run(
                netns.Topology.enter(net.aggregator, [thcd, *options, "--discard"]),
                capture_output=True, text=True, timeout=wire.PATIENCE)
            assert done.returncode == 1 and words in done.stderr, done.stderr
            assert hook(net) == held and os.path.exists(f"{PINS}/{net.name}/prog")
        assert errand(net, "--discard")[0] == 0 and hook(net) is None


def case__a_user_with_capabilities_loads_and_attaches_itself():
    """thcd starts as in a unit with User= and AmbientCapabilities=."""
    with netns.Topology(2) as net, programs() as folder, mode_of_bpffs(0o711):
        os.makedirs(PINS, 0o711, exist_ok=True)
        os.chmod(PINS, 0o711)
        os.mkdir(f"{PINS}/{net.name}", 0o700)
        os.chown(f"{PINS}/{net.name}", USER, GROUP)
        other = Other(net, folder, keep="+net_admin,+bpf,+perfmon")
        assert other.daemon.ready, other.daemon.said
        check_capabilities(other.daemon, NET_ADMIN, bounded=False)
        workers = workers_of(net)
        join_all(workers)
        a_round(workers, 3)
        other.daemon.end()
        assert other.daemon.status == 0 and hook(net) is None
        assert os.listdir(f"{PINS}/{net.name}") == [] if os.path.exists(f"{PINS}/{net.name}") \
            else True, "pins were left"
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(f"{PINS}/{net.name}")


def case__members_of_the_group_read_and_change_nothing():
    name = grp.getgrgid(GROUP).gr_name
    with netns.Topology(1) as net, programs() as folder:
        control = os.path.join(folder, "control")
        d = Daemon(net, "--software", "--control", control, "--control-group", name)
        assert d.ready, d.said
        s = os.stat(control)
        assert stat.S_IMODE(s.st_mode) == 0o660 and (s.st_uid, s.st_gid) == (0, GROUP), s
        for request in ("stats", "job"):
            done = thcctl(net, folder, control, request)
            assert done.returncode == 0 and not done.stderr, done.stderr
        done = thcctl(net, folder, control, "reload")
        assert done.returncode == 1 and CHANGES in done.stderr, done.stderr
        # root may reload, but this thcd has no configuration file
        done = thcctl(net, folder, control, "reload", uid=0, gid=0)
        assert done.returncode == 1 and "without --config" in done.stdout, done
        # a user who is not in the group
        done = thcctl(net, folder, control, "stats", uid=1, gid=1)
        assert done.returncode == 1 and "not allowed to talk to" in done.stderr and \
            "member of" in done.stderr, done.stderr
        d.end()


def silent_members(control, count):
    """A process of a member of the group with `count` silent connections."""
    child = subprocess.Popen(
        as_user(sys.executable, "-c",
                "import socket, sys, time\n"
                "s = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.argv[2]))]\n"
                "[c.connect(sys.argv[1]) for c in s]\n"
                "print('there', flush=True)\n"
                "time.sleep(600)\n", control, str(count)), stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "there\n"
    return child


def case__members_who_say_nothing_keep_nobody_out():
    with netns.Topology(1) as net, programs() as folder:
        control = os.path.join(folder, "control")
        d = Daemon(net, "--software", "--control", control, "--control-group",
                   grp.getgrgid(GROUP).gr_name)
        assert d.ready, d.said
        child = silent_members(control, 12)
        try:
            for uid in (0, USER):
                done = thcctl(net, folder, control, "stats", uid=uid, gid=GROUP)
                assert done.returncode == 0, done.stderr
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        d.end()


def case__a_client_for_whom_no_file_is_free_waits_and_costs_nothing():
    def files(pid):
        return {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}

    with netns.Topology(1) as net, programs() as folder:
        control = os.path.join(folder, "control")
        d = Daemon(net, "--software", "--control", control)
        assert d.ready, d.said
        pid = d.process.pid
        before, had = resource.prlimit(pid, resource.RLIMIT_NOFILE), len(files(pid))
        with contextlib.ExitStack() as clients:
            silent = [clients.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(8)]
            for s in silent:
                s.connect(control)
            deadline = time.monotonic() + wire.PATIENCE
            while len(files(pid)) < had + 8 and time.monotonic() < deadline:
                time.sleep(0.01)
            free = min(set(range(had + 9)) - files(pid))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
            late = clients.enter_context(socket.socket(socket.AF_UNIX))
            since = time.monotonic()
            late.settimeout(1)
            late.connect(control)
            late.send(b"stats\n")
            with contextlib.suppress(TimeoutError):
                assert not late.recv(1), "a client was answered: the case tests nothing"
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            silent[0].close()
            took = time.monotonic() - since
            late.settimeout(wire.PATIENCE)
            assert late.recv(1) == b"{"
        d.end()
        tries = d.said.count("cannot talk to a client of the control socket: Too many open files")
        assert 1 <= tries <= 2 + took / 0.5, f"{tries} tries in {took:.1f} s"
        assert "were left out" not in d.said, d.said


def case__without_a_group_the_socket_is_roots():
    with netns.Topology(1) as net, programs() as folder:
        control = os.path.join(folder, "control")
        d = Daemon(net, "--software", "--control", control)
        assert d.ready, d.said
        try:
            group, mode = grp.getgrnam("thc").gr_gid, 0o660
        except KeyError:
            group, mode = 0, 0o600
        s = os.stat(control)
        assert (stat.S_IMODE(s.st_mode), s.st_gid) == (mode, group), s
        d.end()
        d = Daemon(net, "--software", "--control", control, "--control-group", "no-such-group")
        assert not d.ready and "there is no group no-such-group" in d.said, d.said
        assert not os.path.exists(control)


if __name__ == "__main__":
    tap.main([case for name, case in list(globals().items()) if name.startswith("case__")])
