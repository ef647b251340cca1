#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""thcd and the interface it attaches to: native and generic XDP, foreign
programs, the end by a signal, aggregation after kill -9 of the daemon, two
instances, wrong configurations. Packets come from sockets in namespaces.
"""
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import Aggregator  # noqa: E402
from keyfile import KeyFile  # noqa: E402
from ranks import Ranks  # noqa: E402
import thcwire as wire  # noqa: E402
from tap import netns  # noqa: E402
from thcwire import KEYED, LUT_ADD, Reference, Worker, join_all  # noqa: E402

PINS = "/sys/fs/bpf/thc"
SO_RCVBUFFORCE = 33
TABLE = (0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30)
JOB = f"1,ranks=2,{KEYED},table=" + ":".join(map(str, TABLE))


class Daemon:
    """thcd in a namespace; said: its stderr, once it has ended. command: in place of the path of
    thcd, env: more of the environment.
    """

    def __init__(self, net, *options, job=JOB, interface="eth0", instance=None, ns=None,
                 command=None, env=None):
        self.net, self.ns = net, ns or net.aggregator
        self.instance = instance or net.name
        self.process = net.popen(
            self.ns, [*(command or [os.path.join(netns.build_dir(), "thcd")]), "-i", interface,
                      "--instance", self.instance, *(["--job", job] if job else []), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})})
        self.ready = self.process.stdout.readline() == "ready\n"
        if not self.ready:
            self.wait()

    def wait(self):
        self.said = self.process.communicate(timeout=wire.PATIENCE)[1]
        self.status = self.process.returncode
        return self.said

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def pins(self):
        return os.path.join(PINS, self.instance)

    def ctl(self, *arguments):
        done = subprocess.run(
            netns.Topology.enter(self.ns, [os.path.join(netns.build_dir(), "thcctl"),
                                           "--instance", self.instance, "--json", *arguments]),
            capture_output=True, text=True, timeout=wire.PATIENCE)
        assert done.returncode == 0, f"thcctl {arguments}: {done.stderr}{done.stdout}"
        return json.loads(done.stdout)


def hook(net, interface="eth0", ns=None):
    """The XDP program of an interface as (mode, id), or None."""
    text = net.run(ns or net.aggregator, ["ip", "-j", "link", "show", "dev", interface]).stdout
    xdp = json.loads(text)[0].get("xdp")
    if not xdp:
        return None
    mode = {1: "native", 2: "generic"}[xdp["mode"]]
    return mode, xdp["prog"]["id"]


def workers_of(net, n=2, address=netns.AGGREGATOR4):
    made = []
    for rank in range(n):
        ns = net.worker(rank)
        made.append(Worker(rank, address, interface="eth0", nonce=random.getrandbits(63) | 1,
                           place=lambda call, ns=ns: netns.in_namespace(ns, call)))
    return made


def send(worker, payload, slot, generation=0):
    worker.send(LUT_ADD, payload, width=4, slot=slot, chunk=slot + 512 * generation,
                generation=generation)


def a_round(workers, slot, generation=0, seed=1):
    """Send one generation through the aggregator, with a duplicate, and compare the bits."""
    rng = random.Random(seed)
    payloads = [rng.randbytes(512) for _ in workers]
    send(workers[0], payloads[0], slot, generation)
    send(workers[0], payloads[0], slot, generation)
    workers[0].expect(wire.WAIT, bitmap=1, count=1)
    for w, payload in zip(workers[1:], payloads[1:]):
        send(w, payload, slot, generation)
    expected = Reference(LUT_ADD, 4, 8, TABLE).combine(payloads)
    for w in workers:
        packet = w.expect(LUT_ADD, slot=slot, generation=generation, count=len(workers))
        assert packet.payload == expected, "wrong bits"
    send(workers[0], payloads[0], slot, generation)
    packet = workers[0].expect(LUT_ADD, flags=wire.F_ANSWER | wire.F_REPEAT)
    assert packet.payload == expected, "wrong bits in the repeated answer"


def nothing_left(net, daemon):
    assert hook(net) is None, "the program is still attached"
    assert not os.path.exists(daemon.pins()), "pins were left behind"
    assert not os.path.exists(f"/run/thc/{daemon.instance}.sock"), "the socket was left behind"


class Foreign:
    """A small XDP program of somebody else, attached natively or not."""

    def __init__(self, net, name, flags=0, interface="eth0"):
        bpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
        code = (ctypes.c_uint64 * 2)(0x00000002000000B7, 0x0000000000000095)  # r0 = 2; exit
        self.fd = bpf.bpf_prog_load(6, name.encode(), b"GPL", code, ctypes.c_size_t(2), None)
        if self.fd < 0:
            raise tap.Skip(f"no XDP program can be loaded here: errno {-self.fd}")

        def attach():
            return bpf.bpf_xdp_attach(ctypes.CDLL(None).if_nametoindex(interface.encode()), self.fd,
                                      flags, None)

        error = netns.in_namespace(net.aggregator, attach)
        assert not error, f"attaching the foreign program: {error}"


def case__native_aggregates_and_sigterm_leaves_nothing():
    for number in (signal.SIGTERM, signal.SIGINT):
        with netns.Topology(2) as net:
            d = Daemon(net)
            assert d.ready, d.said
            assert hook(net)[0] == "native" and os.path.exists(d.pins() + "/prog")
            workers = workers_of(net)
            join_all(workers)
            assert workers[0].welcome.reply == wire.MULTICAST and not workers[0].one_port
            for slot in (0, 64, 511):
                a_round(workers, slot)
            s = d.ctl("stats")
            assert s["adds_up"] and s["mode"] == "native", s
            assert s["events"]["finished"] == 3 and s["events"]["added"] == 6, s
            said = d.end(number)
            assert d.status == 0, f"status {d.status}: {said}"
            assert "slots use 1290240 bytes" in said, said
            nothing_left(net, d)


def case__a_foreign_program_is_named_and_left_alone():
    with netns.Topology(2) as net:
        Foreign(net, "somebody_elses")
        before = hook(net)
        for mode in ("auto", "native", "generic"):
            d = Daemon(net, "--mode", mode)
            assert not d.ready and d.status == 1, "thcd started in spite of a foreign program"
            assert f"id {before[1]}" in d.said and '"somebody_elses"' in d.said, d.said
            assert "ip link set dev eth0 xdp off" in d.said, d.said
            assert hook(net) == before, "the foreign program was touched"
            assert not os.path.exists(d.pins()), "pins of a start that failed were left"
        # the command that thcd proposes works
        net.run(net.aggregator, ["ip", "link", "set", "dev", "eth0", "xdp", "off"])
        d = Daemon(net)
        assert d.ready, d.said
        # thcd does not remove a program that replaced its own
        net.run(net.aggregator, ["ip", "link", "set", "dev", "eth0", "xdp", "off"])
        Foreign(net, "latecomer")
        after = hook(net)
        d.end()
        assert hook(net) == after, "the end of thcd took somebody else's program away"


def case__generic_where_the_driver_refuses_and_it_says_so():
    with netns.Topology(2) as net:
        # eth0 must not answer for mv0's address: packets would miss its XDP
        net.run(net.aggregator, ["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"])
        net.run(net.aggregator, ["ip", "link", "add", "mv0", "link", "eth0", "type", "macvlan",
                                 "mode", "bridge"])
        net.run(net.aggregator, ["ip", "addr", "add", "10.78.0.100/24", "dev", "mv0"])
        for w in range(2):
            net.run(net.worker(w), ["ip", "addr", "add", f"10.78.0.{w + 1}/24", "dev", "eth0"])
        net.run(net.aggregator, ["ip", "link", "set", "mv0", "up"])
        d = Daemon(net, "--mode", "native", interface="mv0")
        assert not d.ready and d.status == 1 and "native XDP refused by mv0 (macvlan)" in d.said, \
            d.said
        assert not os.path.exists(d.pins())
        d = Daemon(net, interface="mv0")
        assert d.ready, d.said
        assert hook(net, "mv0")[0] == "generic"
        workers = workers_of(net, address="10.78.0.100")
        join_all(workers)
        for slot in (0, 200):
            a_round(workers, slot)
        s = d.ctl("stats")
        assert s["mode"] == "generic" and s["adds_up"], s
        assert s["events"]["relayed"] >= 6, s
        said = d.end()
        assert "native XDP refused by macvlan: " in said and "generic XDP: answers are sent by " \
               "the daemon" in said, said
        assert hook(net, "mv0") is None


def case__generic_on_request_gives_the_same_answers():
    for reply in ("multicast", "fanout"):
        with netns.Topology(2) as net:
            d = Daemon(net, "--mode", "generic", job=f"{JOB},reply={reply}")
            assert d.ready, d.said
            assert hook(net)[0] == "generic"
            workers = workers_of(net)
            join_all(workers)
            for g in range(3):
                a_round(workers, 70, generation=g, seed=g)
            send(workers[0], bytes(512), 70, 0)
            workers[0].expect(wire.STALE, flags=wire.F_KNOWN, bitmap=3)
            s = d.ctl("stats")
            assert s["adds_up"] and s["events"]["relayed"] == s["events"]["finished"] + \
                s["events"]["waited"] + s["events"]["repeated"] + s["events"]["stale"], s
            d.end()
            nothing_left(net, d)


def case__generic_sends_all_that_has_waited():
    """thcd empties its ring in turns of 256 answers."""
    with netns.Topology(2) as net:
        d = Daemon(net, "--mode", "generic", job=f"{JOB},reply=fanout")
        assert d.ready, d.said
        workers = workers_of(net)
        join_all(workers)
        workers[0].socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
        d.process.send_signal(signal.SIGSTOP)
        try:
            for slot in range(300):
                for _ in range(3):
                    send(workers[0], bytes(512), slot)
        finally:
            d.process.send_signal(signal.SIGCONT)
        for slot in range(300):
            for _ in range(2):
                workers[0].expect(wire.WAIT, slot=slot, bitmap=1, count=1)
        d.end()


def refused_reload(daemon):
    """The error of `thcctl reload` for a daemon that is gone."""
    done = subprocess.run([os.path.join(netns.build_dir(), "thcctl"), "--instance",
                           daemon.instance, "reload"],
                          capture_output=True, text=True, timeout=wire.PATIENCE)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def survive(mode):
    with netns.Topology(2) as net:
        d = Daemon(net, "--mode", mode)
        assert d.ready, d.said
        workers = workers_of(net)
        join_all(workers)
        epoch = workers[0].epoch
        a_round(workers, 1)
        before = d.ctl("stats")
        half = [bytes([0x1F]) * 512, bytes([0xF1]) * 512]
        send(workers[0], half[0], 9)
        d.end(signal.SIGKILL)
        held = hook(net)
        assert held and held[0] == mode, "kill -9 took the program away"
        if mode == "native":
            a_round(workers, 2)  # by XDP alone
            assert d.ctl("stats")["events"]["finished"] == 2, "thcctl reads pinned maps"
            assert d.ctl("job", "1")["epoch"] == epoch
        assert "its program and maps live on: start thcd again" in refused_reload(d)
        restarted = Daemon(net, "--mode", mode)
        assert restarted.ready, restarted.said
        now = hook(net)
        assert now[0] == mode and now[1] != held[1], "the new daemon did not attach its program"
        # the round that was in flight: rank 0 does not send again
        send(workers[1], half[1], 9)
        expected = Reference(LUT_ADD, 4, 8, TABLE).combine(half)
        for w in workers:
            packet = w.expect(LUT_ADD, slot=9, count=2, bitmap=3, epoch=epoch)
            assert packet.payload == expected, "the round in flight has wrong bits"
        a_round(workers, 1, generation=1)
        again = workers[0].join_once()
        assert again.epoch == epoch and again.welcome_flags & wire.READY, \
            "a member that joins again is known to the new daemon"
        s = restarted.ctl("stats")
        assert s["received"] > before["received"] and s["adds_up"], s
        assert "continued" in restarted.end()
        nothing_left(net, restarted)


def case__three_modes_give_a_client_the_same_bits():
    """libthc sends in super-packets (UDP_SEGMENT), which generic XDP must not meet."""
    digests = {}
    for mode in ("native", "generic", "software"):
        options = [] if mode == "software" else ["--mode", mode]
        with netns.Topology(2) as net, \
                Aggregator(net, 2, software=mode == "software", job={"seed": 5},
                           options=options) as aggregator, Ranks(net, aggregator) as ranks:
            ranks.open()
            answers = ranks.reduce(counts=[300000, 77], rounds=2)
            s = aggregator.stats()
            # a virtual CPU may be preempted while it locks a slot: counted and repaired
            drops = {why for why, count in s["drops"].items() if count} - {"lock"}
            assert s["mode"] == mode and s["adds_up"] and not drops, s
            digests[mode] = {a["digest"] for a in answers}
    assert len(set.union(*digests.values())) == 1, f"bits differ: {digests}"


def case__kill_9_and_restart_finish_a_round_in_flight():
    survive("native")


def case__kill_9_and_restart_in_generic_mode():
    survive("generic")


def case__a_contradicting_restart_is_refused_and_fresh_discards():
    with netns.Topology(2) as net:
        d = Daemon(net)
        workers = workers_of(net)
        join_all(workers)
        d.end(signal.SIGKILL)
        held, key = hook(net), KeyFile()
        for job, words in ((JOB.replace("ranks=2", "ranks=3"), "ranks is 2"),
                           (JOB.replace(KEYED, f"key=@{key.path}"), "key differs"),
                           (JOB + ",slots=256", "slots is 512"),
                           (JOB.replace("1,", "2,", 1), "job 1, which is not asked for")):
            other = Daemon(net, job=job)
            assert not other.ready and other.status == 1, f"{job} was accepted"
            assert words in other.said and "--fresh" in other.said, other.said
            assert hook(net) == held and os.path.exists(d.pins() + "/prog"), \
                "a refused start harmed the aggregator"
        other = Daemon(net, "--port", "19000")
        assert not other.ready and "uses port 18500" in other.said, other.said
        a_round(workers, 5)
        other = Daemon(net, "--fresh", job=JOB.replace("ranks=2", "ranks=1"))
        assert other.ready, other.said
        assert hook(net)[1] != held[1]
        job = other.ctl("job", "1")
        assert job["ranks"] == 1 and job["joined"] == [], job
        other.end()
        nothing_left(net, other)


def case__a_peer_in_another_namespace_is_nobody_here():
    """The peer's index may also be that of the interface itself, or of another veth here."""
    with netns.Topology(1) as net:
        Pair(net)
        at = int(netns.in_namespace(net.aggregator, lambda: socket.if_nametoindex("va")))
        for index, peer in ((77, 77), (78, at)):
            net.run(net.aggregator, ["ip", "link", "add", "e0", "index", str(index), "type", "veth",
                                     "peer", "name", "e1", "index", str(peer), "netns",
                                     net.worker(0)])
            net.run(net.aggregator, ["ip", "link", "set", "e0", "up"])
            net.run(net.worker(0), ["ip", "link", "set", "e1", "up"])
            done = subprocess.run(netns.Topology.enter(net.aggregator, [
                os.path.join(netns.build_dir(), "thcctl"), "--json", "check", "e0"]),
                capture_output=True, text=True, timeout=wire.PATIENCE)
            peer = next(f for f in json.loads(done.stdout)["findings"] if f["subject"] == "peer")
            assert peer["verdict"] == "note" and "is in another namespace" in peer["text"], peer
            net.run(net.aggregator, ["ip", "link", "del", "e0"])


def case__fresh_leaves_no_program_on_another_interface():
    with netns.Topology(2) as net:
        Pair(net).gro("on")
        d = Daemon(net)
        assert d.ready, d.said
        d.end(signal.SIGKILL)
        held = hook(net)
        other = Daemon(net, "--fresh", interface="va", instance=d.instance)
        assert not other.ready and "is not on va, but on eth0; nothing was discarded" in \
            other.said, other.said
        assert hook(net) == held and hook(net, "va") is None
        # thcd --discard, which the error proposes
        d = Daemon(net, instance=d.instance)
        assert d.ready, d.said
        d.end(signal.SIGKILL)
        control = f"/run/thc/{d.instance}.sock"
        assert os.path.exists(control)
        discard = netns.Topology.enter(net.aggregator, [
            os.path.join(netns.build_dir(), "thcd"), "--discard", "--interface", "eth0",
            "--instance", d.instance])
        for words in (f"removed the control socket {control}", "has left nothing to discard"):
            done = subprocess.run(discard, capture_output=True, text=True,
                                  timeout=wire.PATIENCE)
            assert done.returncode == 0 and words in done.stderr, done.stderr
            assert hook(net) is None and not os.path.exists(control)
        other = Daemon(net, "--fresh", interface="va", instance=d.instance)
        assert other.ready, other.said
        other.end()


def case__an_address_that_is_new_is_waited_for():
    """An IPv6 address is tentative while its host asks whether another one has it."""
    with netns.Topology(1) as net:
        net.run(net.aggregator, ["ip", "addr", "add", "fd79::1/64", "dev", "eth0"])
        for options in (("--listen", "fd79::1"), ("--listen", "fd79::2")):
            d = Daemon(net, *options)
            assert d.ready == (options[1] == "fd79::1"), d.said
            if d.ready:
                d.end()
        assert "fd79::2 is not an address of this host" in d.said, d.said


def case__an_interface_that_is_not_there_is_named():
    with netns.Topology(1) as net:
        for options in ((), ("--software",), ("--software", "--listen", netns.AGGREGATOR4)):
            d = Daemon(net, *options, interface="eth7")
            assert d.status == 1 and "there is no interface eth7 here" in d.said, d.said


def case__killed_at_any_moment_it_starts_again():
    rng = random.Random(5)
    with netns.Topology(2) as net:
        argv = [os.path.join(netns.build_dir(), "thcd"), "-i", "eth0", "--instance", net.name,
                "--job", JOB]
        for _ in range(15):
            p = net.popen(net.aggregator, argv, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.002, 0.12))
            p.kill()
            p.wait()
            d = Daemon(net)
            assert d.ready, f"after kill -9 while starting: {d.said}"
            if rng.random() < 0.5:
                d.end(signal.SIGKILL)
            else:
                d.end()
                nothing_left(net, d)
        d = Daemon(net)
        workers = workers_of(net)
        join_all(workers)
        a_round(workers, 0)
        d.end()
        nothing_left(net, d)


def case__two_instances_have_one_interface_name_each_in_its_namespace():
    with netns.Topology(2) as one, netns.Topology(2) as two:
        a = Daemon(one)
        assert a.ready, a.said
        same = Daemon(two, instance=a.instance)
        assert not same.ready and "--instance" in same.said, same.said
        b = Daemon(two)
        assert b.ready, b.said
        for net in (one, two):
            workers = workers_of(net)
            join_all(workers)
            a_round(workers, 3)
        assert a.ctl("stats")["events"]["finished"] == 1
        assert b.ctl("stats")["events"]["finished"] == 1
        # nor does thcd take over the name of a dead thcd in another namespace
        a.end(signal.SIGKILL)
        same = Daemon(two, instance=a.instance, interface="eth0")
        assert not same.ready, "pins of another namespace were taken over"
        b.end()
        nothing_left(two, b)
        same = Daemon(two, instance=a.instance)
        assert not same.ready and "another network namespace" in same.said, same.said
        same = Daemon(two, "--fresh", instance=a.instance)
        assert same.ready, same.said
        assert "ip link set dev NAME xdp off" in same.end(), same.said
        one.run(one.aggregator, ["ip", "link", "set", "dev", "eth0", "xdp", "off"])
        a = Daemon(one)
        assert a.ready, a.said
        a.end()
        nothing_left(one, a)


def case__a_deadline_closes_in_xdp():
    for mode in ("native", "generic"):
        with netns.Topology(3) as net:
            job = JOB.replace("ranks=2", "ranks=3") + ",quorum=2,deadline_ms=100"
            d = Daemon(net, "--mode", mode, job=job)
            assert d.ready, d.said
            workers = workers_of(net, 3)
            join_all(workers)
            payloads = [bytes([0x2F]) * 512, bytes([0xE3]) * 512]
            send(workers[0], payloads[0], 4)
            send(workers[2], payloads[1], 4)
            expected = Reference(LUT_ADD, 4, 8, TABLE).combine(payloads)
            for w in workers:
                packet = w.expect(LUT_ADD, flags=wire.F_ANSWER | wire.F_CLOSED, bitmap=0b101,
                                  count=2)
                assert packet.payload == expected
            send(workers[1], payloads[0], 4)
            packet = workers[1].expect(LUT_ADD, flags=wire.F_ANSWER | wire.F_REPEAT |
                                       wire.F_CLOSED, bitmap=0b101)
            assert packet.payload == expected
            s = d.ctl("stats")
            assert s["events"]["closed"] == 1 and s["events"]["finished"] == 0, s
            d.end()


def case__a_restarted_rank_ends_the_epoch_in_xdp():
    with netns.Topology(2) as net:
        d = Daemon(net)
        workers = workers_of(net)
        join_all(workers)
        epoch = workers[0].epoch
        send(workers[0], bytes([0xFF]) * 512, 1)
        workers[1].close()
        new = workers_of(net)[1]
        new.join_once()
        send(workers[0], bytes(512), 2)
        workers[0].expect(wire.STALE, flags=wire.F_EPOCH, epoch=epoch + 1, rank=1)
        join_all([workers[0], new])
        a_round([workers[0], new], 1)
        s = d.ctl("stats")
        assert s["events"]["epoch"] == 1 and s["adds_up"], s
        d.end()


def case__a_worker_that_misses_xdp_is_told_of():
    with netns.Topology(2) as net:
        d = Daemon(net, job=JOB.replace("ranks=2", "ranks=1") + ",reply=fanout")
        # a worker on the aggregator's own host: packets go over lo
        worker = Worker(0, netns.AGGREGATOR4, interface="eth0",
                        place=lambda call: netns.in_namespace(net.aggregator, call))
        join_all([worker])
        send(worker, bytes(512), 0)
        worker.silent()
        assert d.ctl("stats")["daemon"]["past_xdp"] == 1
        assert "came by another way than through XDP on eth0" in d.end()


def case__strangers_that_miss_xdp_are_counted_all_the_same():
    """thcd limits strangers' JOINs as XDP does: it reads one burst, and then a rate."""
    with netns.Topology(1) as net:
        d = Daemon(net)
        assert d.ready, d.said
        stranger = Worker(0, netns.AGGREGATOR4, key=wire.OTHER_KEY, interface="eth0",
                          place=lambda call: netns.in_namespace(net.aggregator, call))
        start, sent = time.monotonic(), 0
        while sent < 1000:
            for _ in range(20):
                stranger.send_join()
            sent += 20
            # wait until thcd has read all: a full buffer would lose some
            while sum(d.ctl("stats")["daemon"][name] for name in ("refused", "muted")) < sent:
                assert time.monotonic() - start < wire.PATIENCE, d.ctl("stats")
        most = 64 + (time.monotonic() - start) * 200 + 1
        refused = d.ctl("stats")["daemon"]["refused"]
        assert 64 <= refused <= most, f"{refused} of {sent} were heard, {most:.0f} may be"
        d.end()


def case__another_aggregator_on_the_group_is_noticed():
    with netns.Topology(3) as net:
        a = Daemon(net)
        assert a.ready, a.said
        group = a.ctl("job", "1")["group"]
        workers = workers_of(net)
        join_all(workers)
        a_round(workers, 1)

        def other_job(more):
            """Run a second aggregator on worker 2's host. Returns what the first one noticed."""
            b = Daemon(net, "--software", "--listen", net.address(2), ns=net.worker(2),
                       instance=net.name + "9", job=f"1,ranks=1,{KEYED}{more}")
            assert b.ready, b.said
            used = b.ctl("job", "1")["group"]
            own = Worker(0, net.address(2), interface="eth0", nonce=7,
                         place=lambda call: netns.in_namespace(net.worker(2), call))
            join_all([own])
            assert own.welcome.reply == wire.MULTICAST
            own.send(LUT_ADD, bytes(512), width=4)
            own.expect(LUT_ADD, count=1)
            b.end()
            own.close()
            return used, a.ctl("stats")["daemon"]["foreign"]

        used, noticed = other_job("")
        assert used != group and not noticed, (used, group, noticed)
        used, noticed = other_job(",group=" + group)
        assert used == group and noticed == 1, (used, group, noticed)
        for w in workers:
            w.drain()
        a_round(workers, 2)
        said = a.end()
        assert f"job 1: {net.address(2)} sends to this job's group, {group} port 18564" in said, \
            said
        assert said.count("sends to this job's group") == 1, said


def case__an_address_that_is_not_on_the_interface():
    with netns.Topology(2) as net:
        net.run(net.aggregator, ["ip", "addr", "add", "10.99.0.1/32", "dev", "lo"])
        for w in range(2):
            net.run(net.worker(w), ["ip", "route", "add", "10.99.0.1", "via",
                                    netns.AGGREGATOR4])
        d = Daemon(net, "--listen", "10.99.0.1")
        assert d.ready, d.said
        workers = workers_of(net, address="10.99.0.1")
        join_all(workers)
        assert workers[0].welcome.reply == wire.MULTICAST
        a_round(workers, 6)
        s = d.ctl("stats")
        assert s["events"]["finished"] == 1 and not s["daemon"]["past_xdp"], s
        d.end()
        two = Daemon(net, "--listen", "10.99.0.1", "--listen", netns.AGGREGATOR4)
        assert not two.ready and "one IPv4 and one IPv6" in two.said, two.said


def case__a_program_in_the_place_of_ours_is_noticed():
    with netns.Topology(1) as net:
        d = Daemon(net)
        assert d.ready, d.said
        worker = workers_of(net, 1)[0]
        Foreign(net, "somebody_elses")
        end = time.monotonic() + wire.PATIENCE
        while worker.join_once().refusal != wire.NO_XDP:
            assert time.monotonic() < end, "a worker is admitted though nobody aggregates"
            time.sleep(0.1)
        other, said = hook(net), d.end()
        assert f"somebody has put another XDP program, id {other[1]}, in the place of ours on " \
               "eth0, so nothing is aggregated" in said, said
        assert hook(net) == other, "thcd has taken it away"


def case__a_program_that_is_taken_away_is_missed():
    with netns.Topology(1) as net:
        d = Daemon(net)
        assert d.ready, d.said
        worker = workers_of(net, 1)[0]
        assert not worker.join_once().refusal
        net.run(net.aggregator, ["ip", "link", "set", "dev", "eth0", "xdp", "off"])
        end = time.monotonic() + wire.PATIENCE
        while worker.join_once().refusal != wire.NO_XDP:
            assert time.monotonic() < end, "a worker is admitted though nobody aggregates"
            time.sleep(0.1)
        said = d.end()
        assert "somebody removed the XDP program from eth0" in said, said
        nothing_left(net, d)
        d = Daemon(net)
        net.run(net.aggregator, ["ip", "link", "del", "eth0"])
        assert "interface eth0 is gone, and thcd ends" in d.wait()
        assert d.status == 1 and not os.path.exists(d.pins())


def case__an_all_reduce_does_not_notice_kill_9():
    digests = []
    for kill in (False, True):
        with netns.Topology(2) as net, \
                Aggregator(net, 2, job={"seed": 5}) as aggregator, \
                Ranks(net, aggregator) as ranks:
            ranks.open()
            for rank in range(2):
                ranks.tell(rank, do="reduce", counts=[200000], rounds=40)
            if kill:
                before = aggregator.stats()["events"]["added"]
                aggregator.kill()
                time.sleep(0.1)
                aggregator.start()
                after = aggregator.stats()["events"]["added"]
                assert after > before, "nothing was under way when thcd was killed"
            answers = [ranks.hear(rank) for rank in range(2)]
            assert not any("error" in a for a in answers), answers
            digests += [a["digest"] for a in answers]
    assert len(set(digests)) == 1, digests


def case__pins_are_nobody_elses():
    """bpffs is often writable for everybody, so any user may have made the directory."""
    with netns.Topology(1) as net:
        pins = os.path.join(PINS, net.name)
        os.makedirs(pins, 0o700)
        try:
            for mode, owner in ((0o777, 0), (0o770, 0), (0o700, 65534)):
                os.chmod(pins, mode)
                os.chown(pins, owner, 0)
                d = Daemon(net)
                says = "belongs to user 65534" if owner else "is there, and other users"
                assert d.status == 1 and f"{pins} {says}" in d.said, d.said
        finally:
            os.rmdir(pins)


def case__who_mounts_bpffs_is_told_to_keep_others_out():
    """Everybody can write to a bpffs that was mounted without a mode."""
    def alone(*command):
        return ["unshare", "--mount", "sh", "-c",
                'while umount /sys/fs/bpf 2>&-; do :; done; exec "$@"', "sh", *command]

    advice = "mount -t bpf -o mode=0700 bpf /sys/fs/bpf"
    with netns.Topology(1) as net:
        thcctl = os.path.join(netns.build_dir(), "thcctl")
        done = subprocess.run(netns.Topology.enter(net.aggregator, alone(
            thcctl, "--json", "check", "eth0")), capture_output=True, text=True,
            timeout=wire.PATIENCE)
        found = {f["subject"]: f["text"] for f in json.loads(done.stdout)["findings"]}
        assert advice in found["bpffs"], found
        d = Daemon(net, command=alone("setpriv", "--bounding-set=-sys_admin",
                                      os.path.join(netns.build_dir(), "thcd")))
        assert not d.ready and d.status == 1 and advice in d.said, d.said


class Pair:
    """thcd at va of a veth pair on the aggregator's host; the peer is vb."""

    def __init__(self, net):
        self.net = net
        for command in ("link add va type veth peer name vb", "addr add 10.78.0.1/24 dev va",
                        "link set va up", "link set vb up"):
            self.ip(command)

    def ip(self, command):
        self.net.run(self.net.aggregator, ["ip", *command.split()])

    def gro(self, on):
        self.net.run(self.net.aggregator, ["ethtool", "-K", "vb", "gro", on])

    def refused(self, words, *options):
        d = Daemon(self.net, *options, interface="va")
        assert not d.ready and d.status == 1, f"thcd started in spite of {words}"
        for word in (words, "every round would time out", "--force"):
            assert word in d.said, d.said
        return d

    def starts(self, *options):
        d = Daemon(self.net, *options, interface="va")
        assert d.ready, d.said
        return d

    def check(self):
        done = subprocess.run(
            self.net.enter(self.net.aggregator,
                           [os.path.join(netns.build_dir(), "thcctl"), "--json", "check", "va"]),
            capture_output=True, text=True)
        return {f["subject"]: f["verdict"] for f in json.loads(done.stdout)["findings"]}


def case__refused_where_every_round_would_time_out():
    with netns.Topology(1) as net:
        pair = Pair(net)
        for mode in ("auto", "native"):
            d = pair.refused("GRO is off at vb", "--mode", mode)
            assert hook(net, "va") is None and not os.path.exists(d.pins()), \
                "a refused start left something behind"
        assert pair.check()["peer"] == "bad"
        said = pair.starts("--force").end()
        assert "warning: the veth's peer: GRO is off at vb" in said, said
        assert "warning" not in pair.starts("--mode", "generic").end()

        pair.gro("on")
        assert pair.check()["peer"] == "ok"
        assert "warning" not in pair.starts().end()

        # a refused restart leaves the aggregator, which goes on when GRO is on again
        pair.starts().end(signal.SIGKILL)
        pair.gro("off")
        d = pair.refused("GRO is off at vb")
        assert hook(net, "va")[0] == "native" and os.path.exists(d.pins() + "/prog")
        pair.gro("on")
        said = pair.starts().end()
        assert "continued" in said and "warning" not in said, said
        assert hook(net, "va") is None

        # with a program at the peer, the peer polls for frames as with GRO
        pair.gro("off")
        Foreign(net, "at_the_peer", interface="vb")
        assert hook(net, "vb")[0] == "native" and pair.check()["peer"] == "ok"
        assert "warning" not in pair.starts().end()


def case__refused_where_packets_do_not_fit():
    with netns.Topology(1) as net:
        pair = Pair(net)
        pair.gro("on")
        pair.ip("link set dev va mtu 1099")
        for mode in ("native", "generic"):
            pair.refused("1099; THC packets need 1100", "--mode", mode)
        pair.ip("link set dev va mtu 1100")
        assert "warning" not in pair.starts().end()


def case__warns_of_what_cannot_be_seen():
    with netns.Topology(1) as net:
        pair = Pair(net)
        pair.gro("on")
        # a link may come up later
        pair.ip("link set dev vb down")
        assert "warning: link: down" in pair.starts().end()
        # thcd cannot examine a peer in another namespace
        said = Daemon(net).end()
        assert "warning: the veth's peer: the peer is in another namespace" in said, said


def case__check_finds_what_is_wrong():
    with netns.Topology(1) as net:
        def check(*arguments, ns=net.aggregator):
            done = subprocess.run(
                net.enter(ns, [os.path.join(netns.build_dir(), "thcctl"), "--json", "check",
                               *arguments]), capture_output=True, text=True, timeout=wire.PATIENCE)
            found = json.loads(done.stdout)
            return done.returncode, {f["subject"]: (f["verdict"], f["text"])
                                     for f in found["findings"]}

        status, found = check("eth0")
        assert status == 0 and found["hook"][0] == "ok" and found["BPF"][0] == "ok", found
        assert "veth has native XDP" in found["driver"][1] or found["driver"][0] == "note", found
        assert found["MTU"] == ("ok", "1500"), found
        assert found["VLAN"] == ("ok", "no VLAN device is above eth0"), found
        Foreign(net, "somebody_elses")
        status, found = check("eth0")
        assert status == 1 and "somebody_elses" in found["hook"][1], found
        net.run(net.aggregator, ["ip", "link", "set", "dev", "eth0", "mtu", "600"])
        net.run(net.aggregator, ["ip", "link", "set", "dev", "eth0", "down"])
        status, found = check("eth0")
        assert found["MTU"][0] == "bad" and found["link"][0] == "bad", found
        status, found = check("nosuch0")
        assert status == 1 and found["interface"][0] == "bad", found


if __name__ == "__main__":
    tap.main([case for name, case in list(globals().items()) if name.startswith("case__")])
