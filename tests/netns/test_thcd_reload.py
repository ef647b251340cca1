#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A running thcd and its service manager: messages of the sd_notify protocol, signs of life from
the main loop, and SIGHUP, which adds jobs, and removes jobs that no rank uses.
"""
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from keyfile import KeyFile  # noqa: E402
from tap import netns  # noqa: E402
from test_thcd_attach import TABLE, Daemon, a_round, hook, nothing_left, send  # noqa: E402
from thcwire import Worker, join_all  # noqa: E402


def job(number, ranks=2, **more):
    return {"job": number, "ranks": ranks, "key": f"@{wire.KEY_FILE.path}",
            "table": list(TABLE), "slots": 512, "norm_slots": 64, **more}


class File:
    """A configuration file that can be rewritten."""

    def __init__(self, folder, jobs, **settings):
        self.path = os.path.join(folder, "thcd.conf")
        self.settings = settings
        self.write(jobs)

    def write(self, jobs, **more):
        self.text(json.dumps({**self.settings, **more, "jobs": jobs}, indent=1))

    def text(self, text):
        with open(self.path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(self.path, 0o600)


def ranks_of(net, number, n=2):
    """n workers of a job, each a process of its own on a host of its own."""
    made = []
    for rank in range(n):
        ns = net.worker(rank)
        made.append(Worker(rank, netns.AGGREGATOR4, job=number, interface="eth0",
                           nonce=time.monotonic_ns(),
                           place=lambda call, ns=ns: netns.in_namespace(ns, call)))
    return made


def leave(workers):
    for w in workers:
        w.send(wire.LEAVE)


def jobs_of(daemon):
    return {j["job"]: j for j in daemon.ctl("job").get("jobs", [])}


def reload(daemon, ok=True):
    """Reload thcd by thcctl. Returns thcd's messages."""
    done = subprocess.run(
        netns.Topology.enter(daemon.ns, [os.path.join(netns.build_dir(), "thcctl"), "--json",
                                         "--instance", daemon.instance, "reload"]),
        capture_output=True, text=True, timeout=wire.PATIENCE)
    assert (done.returncode == 0) == ok, f"{done.stdout}{done.stderr}"
    return json.loads(done.stdout)["said"]


def wait_until(true, what):
    end = time.monotonic() + wire.PATIENCE
    while not true():
        assert time.monotonic() < end, f"{what} has not come true"
        time.sleep(0.02)


def job_two_comes(net, d, file, one):
    """SIGHUP adds job 2, and job 1 does not change."""
    epoch = one[0].epoch
    file.write([job(1), job(2)])
    d.process.send_signal(signal.SIGHUP)
    wait_until(lambda: 2 in jobs_of(d), "job 2")
    two = ranks_of(net, 2)
    join_all(two)
    for slot in (0, 5, 511):
        a_round(two, slot)
    a_round(one, 5, generation=1)
    assert jobs_of(d)[1]["epoch"] == epoch
    assert {(j["scheme"], j["bits"], j["sum_width"], j["rotate"], j.get("precision"))
            for j in jobs_of(d).values()} == {("thc", 4, 8, True, None)}
    return two


def job_three_has_no_room(d, file):
    file.write([job(1), job(2), job(3)])
    said = reload(d, ok=False)
    assert len(said) == 1 and "job 3: no 576 slots in a row are free" in said[0] and \
        "spare_slots" in said[0], said
    assert sorted(jobs_of(d)) == [1, 2]


def job_one_stays_while_it_is_in_use(d, file, one):
    epoch, other = one[0].epoch, KeyFile()
    for jobs, why in (
            ([job(2), job(3)], "the file has it no more, but 2 of its 2 ranks are in it"),
            ([job(1, deadline_ms=9, quorum=1), job(2)], "quorum is 2, and 1 is asked for"),
            ([job(1, key=f"@{other.path}"), job(2)], "key differs")):
        file.write(jobs)
        said = reload(d, ok=False)
        assert f"job 1 stays as it is: {why}" in said[0], said
        assert len(said) == (2 if job(3) in jobs else 1), said
    a_round(one, 6)
    assert jobs_of(d)[1]["epoch"] == epoch


def prefixes_change_while_ranks_are_in(net, d, file, two):
    file.write([job(1), job(2, prefix="192.0.2.0/24")])
    said = reload(d)
    assert said == ["reload: job 2: workers may join from 192.0.2.0/24"], said
    assert ranks_of(net, 2)[0].join_once().refusal == wire.NOT_PREFIX
    a_round(two, 7)
    # the prefix changes at once, even if the key cannot change yet
    other = KeyFile()
    file.write([job(1), job(2, prefix="198.51.100.0/24", key=f"@{other.path}")])
    said = reload(d, ok=False)
    assert said[0] == "reload: job 2: workers may join from 198.51.100.0/24", said
    assert "job 2 stays as it is: key differs" in said[1], said
    # an address that has come since thcd started admits nobody
    before = jobs_of(d)[1]["prefix"]
    net.run(net.aggregator, ["ip", "addr", "add", "203.0.113.1/24", "dev", "eth0"])
    file.write([job(1), job(2)])
    assert len(reload(d)) == 1
    assert jobs_of(d)[1]["prefix"] == jobs_of(d)[2]["prefix"] == before, jobs_of(d)


def job_three_takes_the_place_of_one(net, d, file, one, two):
    """The ranks of job 1 leave one after the other, and then job 3 gets its slots."""
    file.write([job(3), job(2)])
    leave(one[:1])
    wait_until(lambda: jobs_of(d)[1]["left"] == [0], "rank 0 has left")
    assert "1 of its 2 ranks is in it" in reload(d, ok=False)[0]
    leave(one[1:])
    wait_until(lambda: jobs_of(d)[1]["left"] == [0, 1], "all have left")
    said = reload(d)
    assert said[0] == "reload: job 1 removed" and said[1].startswith("reload: added job 3"), said
    assert sorted(jobs_of(d)) == [2, 3]
    assert one[0].join_once().refusal == wire.NOT_JOB
    three = ranks_of(net, 3)
    join_all(three)
    for slot in (5, 6):
        a_round(three, slot)
    a_round(two, 5, generation=1)
    leave(three)
    wait_until(lambda: jobs_of(d)[3]["left"] == [0, 1], "all have left")


def a_job_that_nobody_is_in_changes_at_once(net, d, file):
    file.write([job(2), job(3, ranks=1)])
    said = reload(d)
    assert len(said) == 1 and said[0].startswith("reload: changed job 3: 1 ranks"), said
    assert jobs_of(d)[3]["ranks"] == 1
    file.write([job(2), job(3, ranks=1, slots=1024)])
    said = reload(d, ok=False)
    assert len(said) == 1 and "no 1088 slots" in said[0] and jobs_of(d)[3]["ranks"] == 1, said
    file.write([job(2), job(3, ranks=1)])
    said = reload(d)
    assert len(said) == 1 and "the jobs are those that run" in said[0], said
    join_all(ranks_of(net, 3, n=1))


def jobs_come_and_go(*options):
    with netns.Topology(2) as net, tempfile.TemporaryDirectory() as folder:
        file = File(folder, [job(1)], spare_slots=576)
        d = Daemon(net, "--config", file.path, *options, job=None)
        assert d.ready, d.said
        one = ranks_of(net, 1)
        # sessions of job 1 are ahead of the clock, and so are those of later jobs
        one[0].enter(epoch=int(time.time() * 16) + 60000 & 0xFFFFFFFF)
        join_all(one)
        a_round(one, 5)
        two = job_two_comes(net, d, file, one)
        job_three_has_no_room(d, file)
        job_one_stays_while_it_is_in_use(d, file, one)
        prefixes_change_while_ranks_are_in(net, d, file, two)
        job_three_takes_the_place_of_one(net, d, file, one, two)
        a_job_that_nobody_is_in_changes_at_once(net, d, file)
        a_round(two, 6)
        s = d.ctl("stats")
        assert s["adds_up"], s
        if "--software" in options:
            said = d.end()
            assert d.status == 0, said
            return
        # jobs that reloads have added outlive thcd, wherever their slots lie
        d.end(signal.SIGKILL)
        d = Daemon(net, "--config", file.path, *options, job=None)
        assert d.ready, d.said
        assert sorted(jobs_of(d)) == [2, 3]
        a_round(two, 8)
        said = d.end()
        assert d.status == 0 and said.count(", continued") == 2, said
        assert "keeps its 1152 slots, and 1728 are asked for (spare_slots)" in said, said
        nothing_left(net, d)


def case__killed_while_it_reloads_it_serves_what_it_continues():
    with netns.Topology(2) as net, tempfile.TemporaryDirectory() as folder:
        both, one = [job(1), job(2)], [job(1)]
        for ms in (1, 1, 1, 2, 3, 5):
            file = File(folder, both)
            d = Daemon(net, "--config", file.path, job=None)
            assert d.ready, d.said
            file.write(one)
            d.process.send_signal(signal.SIGHUP)
            time.sleep(ms / 1000)
            d.end(signal.SIGKILL)
            # thcd may have removed job 2 or not
            for jobs in (both, one):
                file.write(jobs)
                d = Daemon(net, "--config", file.path, job=None)
                if d.ready:
                    break
            assert d.ready, d.said
            numbers = [j["job"] for j in jobs]
            assert sorted(jobs_of(d)) == numbers, f"{numbers} were continued: {jobs_of(d)}"
            for number in numbers:
                join_all(ranks_of(net, number))
            d.end()


def copies(pid, what):
    """How often the bytes `what` are in the memory of a process."""
    found = 0
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            if not line.split()[1].startswith("rw"):
                continue
            try:
                memory.seek(begin)
                found += memory.read(end - begin).count(what)
            except OSError:
                pass    # not readable, like the kernel's own pages
    return found


def case__the_key_of_a_job_that_is_gone_is_nowhere():
    for options in (("--software",), ()):
        with netns.Topology(1) as net, tempfile.TemporaryDirectory() as folder:
            secret = KeyFile()
            file = File(folder, [job(1, key=f"@{secret.path}"), job(2)])
            d = Daemon(net, "--config", file.path, *options, job=None)
            assert d.ready, d.said
            forms = secret.key, secret.key.hex().encode()
            assert [copies(d.process.pid, form) for form in forms] == [1, 0]
            # a replaced key has left no copy, either
            for jobs in ([job(1), job(2)], [job(1, key=f"@{secret.path}"), job(2)], [job(2)]):
                file.write(jobs)
                reload(d)
                has = jobs[0].get("key") == f"@{secret.path}"
                assert [copies(d.process.pid, form) for form in forms] == [has, 0], jobs
            d.end()


def case__deadline_of_a_new_job_waits_for_no_other_one():
    with netns.Topology(2) as net, tempfile.TemporaryDirectory() as folder:
        slow = job(1, deadline_ms=3600000, quorum=1)
        file = File(folder, [slow], spare_slots=576)
        d = Daemon(net, "--config", file.path, "--software", job=None)
        assert d.ready, d.said
        file.write([slow, job(2, deadline_ms=200, quorum=1)])
        assert len(reload(d)) == 1
        two = ranks_of(net, 2)
        join_all(two)
        send(two[0], bytes(512), 7)
        for w in two:
            packet = w.expect(wire.LUT_ADD, slot=7, count=1, bitmap=1)
            assert packet.flags & wire.F_CLOSED, packet
        d.end()
        assert d.status == 0, d.said


def case__jobs_come_and_go_in_native_mode():
    jobs_come_and_go()


def case__jobs_come_and_go_in_generic_mode():
    jobs_come_and_go("--mode", "generic")


def case__jobs_come_and_go_in_software():
    jobs_come_and_go("--software")


def case__what_cannot_be_reloaded_is_said_and_an_error_changes_nothing():
    with netns.Topology(2) as net, tempfile.TemporaryDirectory() as folder:
        file = File(folder, [job(1)], spare_slots=576)
        d = Daemon(net, "--config", file.path, "--verbose", job=None)
        assert d.ready, d.said
        held = hook(net)
        one = ranks_of(net, 1)
        join_all(one)
        a_round(one, 1)
        for text, words in (("{", "not JSON"), ('{ "jobs": [ { "job": 2 } ] }', "ranks is missing"),
                            ('{ "jobs": [] }', "no job"), ('{ "jbos": 1 }', 'unknown key "jbos"'),
                            (json.dumps({"jobs": [job(1), job(1)]}), "job 1 is given twice"),
                            (json.dumps({"jobs": [job(1), job(2, ranks=64, sum_width=8)]}),
                             "job 2: the table reaches 30")):
            file.text(text)
            said = reload(d, ok=False)
            assert len(said) == 1 and said[0].startswith("reload: nothing changes: ") and \
                words in said[0], said
            assert sorted(jobs_of(d)) == [1]
        os.unlink(file.path)
        assert "cannot read" in reload(d, ok=False)[0]
        file.write([job(1), job(2)], mode="generic", port=19000, simd=False, force=True,
                   listen="10.0.0.1", spare_slots=9, control_group="nogroup", pidfile="/x")
        said = reload(d)
        named = {line.split(": ")[1] for line in said[:-1]}
        assert named == {"mode", "port", "simd", "force", "listen", "spare_slots",
                         "control_group", "pidfile"}, said
        assert all("restart thcd to change it" in line for line in said[:-1]), said
        assert said[-1].startswith("reload: added job 2"), said
        # nothing has changed
        assert hook(net) == held
        a_round(one, 2)
        for _ in range(20):
            d.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        a_round(one, 3)
        d.end()
        assert d.status == 0
        nothing_left(net, d)


def case__a_hangup_without_a_file_ends_nothing():
    for options in ((), ("--software",)):
        with netns.Topology(2) as net:
            d = Daemon(net, *options)
            assert d.ready, d.said
            one = ranks_of(net, 1)
            join_all(one)
            a_round(one, 1)
            d.process.send_signal(signal.SIGHUP)
            assert d.ctl("stats")["adds_up"]
            a_round(one, 2)
            said = d.end()
            assert d.status == 0 and "thcd was started without --config" in said, said


class Manager:
    """A service manager's end of NOTIFY_SOCKET; an abstract one belongs to namespace ns."""

    def __init__(self, folder, ns=None, abstract=False):
        def create():
            return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

        self.socket = netns.in_namespace(ns, create) if ns else create()
        path = os.path.join(folder, "notify")
        self.socket.bind("\0" + path if abstract else path)
        self.env = {"NOTIFY_SOCKET": ("@" if abstract else "") + path}

    def hear(self, wait=wire.PATIENCE):
        """The next message as a dict, or None."""
        if not select.select([self.socket], [], [], wait)[0]:
            return None
        text = self.socket.recv(4096).decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    def next(self):
        """The next message that is not a sign of life."""
        message = self.hear()
        while message == {"WATCHDOG": "1"}:
            message = self.hear()
        return message

    def signs(self, seconds):
        """The number of signs of life in this time."""
        end, count = time.monotonic() + seconds, 0
        while (left := end - time.monotonic()) > 0:
            count += self.hear(left) == {"WATCHDOG": "1"}
        return count

    def close(self):
        self.socket.close()


def case__the_manager_hears_what_thcd_does():
    for options, abstract in ((("--software",), True), ((), False)):
        with netns.Topology(1) as net, tempfile.TemporaryDirectory() as folder:
            manager = Manager(folder, net.aggregator, abstract)
            file = File(folder, [job(1, ranks=1)], spare_slots=576)
            d = Daemon(net, "--config", file.path, *options, job=None, env=manager.env)
            assert d.ready, d.said
            message = manager.next()
            assert message["READY"] == "1" and message["STATUS"].startswith("1 job, "), message
            assert not ranks_of(net, 1, n=1)[0].join_once().refusal, "READY, but nobody can join"
            file.write([job(1, ranks=1), job(2)])
            before = time.monotonic_ns() // 1000
            d.process.send_signal(signal.SIGHUP)
            message = manager.next()
            assert message["RELOADING"] == "1" and before <= int(message["MONOTONIC_USEC"]) <= \
                time.monotonic_ns() // 1000, message
            message = manager.next()
            assert message["READY"] == "1" and message["STATUS"].startswith("2 jobs, "), message
            d.end()
            assert manager.next() == {"STOPPING": "1"}
            assert manager.hear(0) is None
            manager.close()


def case__signs_of_life_come_from_the_loop():
    watchdog = {"WATCHDOG_USEC": "300000"}
    for options in (("--software",), ()):
        with netns.Topology(1) as net, tempfile.TemporaryDirectory() as folder:
            manager = Manager(folder)
            d = Daemon(net, *options, env={**manager.env, **watchdog})
            assert d.ready, d.said
            # one sign in 150 ms would suffice; an idle thcd sends one in 100 ms
            count = manager.signs(3)
            assert 15 <= count <= 40, f"{count} signs of life in 3 s"
            d.process.send_signal(signal.SIGSTOP)
            manager.signs(0.5)
            assert manager.signs(1) == 0, "a loop that stands still shows life"
            d.process.send_signal(signal.SIGCONT)
            assert manager.signs(2) > 5
            d.end()
            manager.close()


def case__a_manager_that_is_gone_wakes_nobody():
    """thcd tries at most 20 times a second to send signs of life that do not get through."""
    with netns.Topology(1) as net, tempfile.TemporaryDirectory() as folder:
        manager = Manager(folder)
        d = Daemon(net, "--software", env={**manager.env, "WATCHDOG_USEC": "300000"})
        assert d.ready, d.said
        manager.close()

        def waits():
            with open(f"/proc/{d.process.pid}/status", encoding="ascii") as f:
                return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", f.read(), re.M)[1])

        before = waits()
        time.sleep(3)
        count = waits() - before
        assert 0 < count < 300, f"thcd has woken {count} times in 3 s"
        d.end()


def case__nobody_asked_for_signs_of_life():
    with netns.Topology(1) as net, tempfile.TemporaryDirectory() as folder:
        for env in ({}, {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"},
                    {"WATCHDOG_USEC": "nonsense"}):
            manager = Manager(folder)
            d = Daemon(net, "--software", env={**manager.env, **env})
            assert d.ready and "READY" in manager.hear(), d.said
            assert manager.signs(0.5) == 0
            d.end()
            manager.close()
            os.unlink(os.path.join(folder, "notify"))


def case__a_key_comes_as_a_credential():
    with netns.Topology(2) as net, tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job1"), "w", encoding="ascii") as f:
            f.write(wire.KEY.hex() + "\n")
        os.chmod(f.name, 0o400)
        file = File(folder, [job(1, key="@job1")])
        d = Daemon(net, "--config", file.path, job=None, env={"CREDENTIALS_DIRECTORY": folder})
        assert d.ready, d.said
        one = ranks_of(net, 1)
        join_all(one)
        a_round(one, 1)
        said = d.end()
        assert "every user can read" not in said and wire.KEY.hex() not in said, said


if __name__ == "__main__":
    # a sanitizer keeps freed memory, and maps terabytes
    tap.main(tap.once([case for name, case in list(globals().items()) if name.startswith("case__")],
                      case__the_key_of_a_job_that_is_gone_is_nowhere))
