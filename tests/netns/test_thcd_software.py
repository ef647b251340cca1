#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The software aggregator over loopback sockets: every op and 1 to 8 ranks
bit for bit against thcwire.Reference, in any order, with duplicates and stale
generations; joining, refusing, closing by deadline; every drop under its name.
"""
import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from keyfile import KeyFile  # noqa: E402
from netns import build_dir  # noqa: E402
from thcwire import (ADD, CLAIM, KEYED, LUT_ADD, MAX, OR, Reference, Worker,  # noqa: E402
                     join_all)

TABLE = (0, 1, 3, 4, 6, 7, 9, 10, 13, 14, 17, 19, 22, 25, 28, 31)
_next_port = 30000 + os.getpid() % 400 * 70


class Daemon:
    """thcd --software on a port of its own."""

    def __init__(self, *jobs, address="127.0.0.1", options=()):
        global _next_port
        self.port, _next_port = _next_port, _next_port + 70
        if _next_port > 60000:
            _next_port = 30000
        self.address = address
        self.control = f"/tmp/thcd-test-{os.getpid()}-{self.port}.sock"
        self.process = subprocess.Popen(
            [os.path.join(build_dir(), "thcd"), "--software", "--listen", address, "--port",
             str(self.port), "--control", self.control, *options,
             *(word for job in jobs for word in ("--job", job))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise AssertionError(f"thcd did not start: {self.stop()}")
        self.workers = []

    def worker(self, rank, **more):
        w = Worker(rank, self.address, self.port, **more)
        self.workers.append(w)
        return w

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(wire.PATIENCE)
            s.connect(self.control)
            s.sendall(request.encode() + b"\n")
            return json.loads(s.makefile().read())

    def stats(self):
        o = self.ask("stats")
        assert o["adds_up"], f"counters do not add up: {o}"
        return o

    def stop(self):
        for w in getattr(self, "workers", ()):
            w.close()
        self.process.terminate()
        self.said = self.process.communicate(timeout=wire.PATIENCE)[1]
        return self.said

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.stop()
        assert self.process.returncode == 0, f"thcd ended with {self.process.returncode}"
        assert not os.path.exists(self.control), "the control socket was left behind"


def ops(table, sum_width):
    """Every op with its reference."""
    yield LUT_ADD, 4, Reference(LUT_ADD, 4, sum_width, table)
    for width in (8, 16, 32):
        yield ADD, width, Reference(ADD, width)
    yield OR, 32, Reference(OR, 32)
    yield MAX, 32, Reference(MAX, 32)
    yield CLAIM, 32, Reference(CLAIM, 32)


def exchange(rng, workers, ref, slot, generation, chunk, replies):
    """Reduce one generation: random order, duplicates before and after the answer."""
    n = len(workers)
    payloads = [rng.randbytes(ref.payload_bytes()) for _ in workers]
    fields = {"width": ref.width, "slot": slot, "generation": generation, "chunk": chunk,
              "round": chunk // 7}
    order = rng.sample(range(n), n)
    arrived = 0
    for k, rank in enumerate(order):
        workers[rank].send(ref.op, payloads[rank], **fields)
        arrived |= 1 << rank
        if k + 1 < n and rng.random() < 0.5:
            again = rng.choice(order[:k + 1])
            # a duplicate may carry other bits: it must not be added
            workers[again].send(ref.op, rng.randbytes(ref.payload_bytes()), **fields)
            workers[again].expect(wire.WAIT, bitmap=arrived, count=k + 1, slot=slot,
                                  generation=generation, chunk=chunk, rank=again)
            replies["waited"] += 1
    expected = ref.combine(payloads)
    common = {"width": ref.out, "slot": slot, "generation": generation, "chunk": chunk,
              "count": n, "bitmap": (1 << n) - 1, "round": chunk // 7}
    for w in workers:
        packet = w.expect(ref.op, flags=wire.F_ANSWER, **common)
        assert packet.payload == expected, f"op {ref.op} width {ref.width} n={n}: wrong bits"
        assert packet.length == 48 + 1024
    late = rng.choice(workers)
    late.send(ref.op, rng.randbytes(ref.payload_bytes()), **fields)
    packet = late.expect(ref.op, flags=wire.F_ANSWER | wire.F_REPEAT, rank=late.rank, **common)
    assert packet.payload == expected, "a repeated answer has other bits"
    replies["repeated"] += 1
    replies["added"] += n


def check_sums(ranks, job, table, sum_width, seed, address="127.0.0.1", generations=4):
    rng = random.Random(seed)
    replies = {"waited": 0, "repeated": 0, "added": 0}
    with Daemon(f"1,ranks={ranks},{KEYED},{job}", address=address) as d:
        workers = [d.worker(r) for r in range(ranks)]
        join_all(workers)
        for op, (_, _, ref) in enumerate(ops(table, sum_width)):
            for g in range(generations):
                exchange(rng, workers, ref, slot=op * 3, generation=g, chunk=op * 3 + g * 512,
                         replies=replies)
        events = d.stats()["events"]
        for name, count in replies.items():
            assert events[name] == count, f"{name}: {events[name]} counted, {count} sent"
        assert events["finished"] == 7 * generations


def case__every_op_gives_the_reference_bits_for_1_to_8_ranks():
    text = ":".join(map(str, TABLE))
    for ranks in range(1, 9):
        check_sums(ranks, f"table={text}", TABLE, 8, seed=ranks)


def case__fanout_gives_the_same():
    text = ":".join(map(str, TABLE))
    for ranks in (1, 3, 8):
        check_sums(ranks, f"table={text},reply=fanout", TABLE, 8, seed=20 + ranks)


def case__linear_table_gives_the_same():
    for ranks in (2, 5, 17):
        check_sums(ranks, "table=uniform", tuple(range(16)), 8, seed=40 + ranks, generations=2)


def case__sixteen_bit_sums():
    table = tuple(range(0, 15)) + (4095,)
    text = ":".join(map(str, table))
    for ranks in (1, 3, 8):
        check_sums(ranks, f"sum_width=16,table={text}", table, 16, seed=60 + ranks)


def case__ipv6():
    check_sums(3, "table=uniform", tuple(range(16)), 8, seed=80, address="::1", generations=2)


def case__two_jobs_do_not_meet():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform,slots=8,norm_slots=2",
                f"9,ranks=2,{KEYED},table=uniform,slots=8,norm_slots=2") as d:
        one = [d.worker(r) for r in range(2)]
        nine = [d.worker(r, job=9) for r in range(2)]
        join_all(one)
        join_all(nine)
        # slot 9 of both jobs, with interleaved contributions
        for w, byte in zip((one[0], nine[0], nine[1], one[1]), (0x11, 0x22, 0x33, 0x44)):
            w.send(LUT_ADD, bytes([byte]) * 512, width=4, slot=9)
        for w in one:
            assert w.expect(LUT_ADD, job=1).payload == bytes([5]) * 1024
        for w in nine:
            assert w.expect(LUT_ADD, job=9).payload == bytes([5]) * 1024
        nine[0].send(LUT_ADD, bytes(512), width=4, slot=10)
        nine[0].silent()
        assert d.stats()["drops"]["slot"] == 1


def case__old_generations_are_stale_and_far_ones_busy():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform") as d:
        a, b = workers = [d.worker(r) for r in range(2)]
        join_all(workers)

        def contribute(w, generation, **more):
            w.send(LUT_ADD, bytes(512), width=4, slot=1, chunk=(1 + 512 * generation) % 2**32,
                   generation=generation, **more)

        for g in range(3):
            contribute(a, g)
            contribute(b, g)
            for w in workers:
                w.expect(LUT_ADD, generation=g)
        contribute(a, 1)
        a.expect(LUT_ADD, generation=1, flags=wire.F_ANSWER | wire.F_REPEAT)
        contribute(a, 0)
        a.expect(wire.STALE, generation=0, flags=wire.F_KNOWN, bitmap=3, count=2)
        contribute(b, 0xFFFFFFFE)
        b.expect(wire.STALE, generation=0xFFFFFFFE, flags=0, bitmap=0, count=0)
        contribute(a, 4)
        a.expect(wire.WAIT, generation=4, flags=wire.F_DIFFERS, bitmap=3, count=2)
        contribute(a, 3)
        contribute(b, 3, round=7)
        b.expect(wire.WAIT, generation=3, flags=wire.F_DIFFERS, bitmap=1, count=1, round=7)
        contribute(a, 4)
        a.expect(wire.WAIT, generation=4, flags=wire.F_DIFFERS, bitmap=1, count=1)
        contribute(b, 3)
        for w in workers:
            w.expect(LUT_ADD, generation=3)
        s = d.stats()
        assert s["events"]["stale"] == 2 and s["drops"]["busy"] == 2, s
        assert s["drops"]["mismatch"] == 1, s


def packets_to_drop(a):
    """[(reason, function that sends a packet to drop)] for worker a, rank 0 of two."""
    good = {"width": 4, "slot": 1}
    strange = wire.Keys(wire.OTHER_KEY, 1).membership(wire.JOINING)
    return [
        ("truncated", lambda: a.send_raw(bytes(47))),
        ("truncated", lambda: a.send_raw(b"")),
        ("version", lambda: a.send(LUT_ADD, bytes(512), version=1, **good)),
        ("length", lambda: a.send(LUT_ADD, bytes(504), **good)),
        ("length", lambda: a.send(LUT_ADD, bytes(256), **good)),
        ("length", lambda: a.send(LUT_ADD, bytes(1032), **good)),
        ("length", lambda: a.send(LUT_ADD, bytes(513), seal=False, **good)),
        ("length", lambda: a.send(wire.JOIN, b"")),
        ("length", lambda: a.send(wire.JOIN, bytes(16))),
        ("length", lambda: a.send(wire.JOIN, bytes(72))),
        ("length", lambda: a.send(wire.LEAVE, b"")),
        ("length", lambda: a.send(wire.LEAVE, bytes(24))),
        ("tag", lambda: a.send(LUT_ADD, bytes(512), seal=False, **good)),
        ("tag", lambda: a.send_raw(wire.changed(a.packet(LUT_ADD, bytes(512), **good),
                                                chunk=2))),
        ("tag", lambda: a.send(LUT_ADD, bytes(512), seal=answers_of(a), **good)),
        ("tag", lambda: a.send(wire.LEAVE, seal=False)),
        ("tag", lambda: a.send(wire.JOIN, wire.join_payload(1), seal=False)),
        ("op", lambda: a.send(77, b"")),
        ("op", lambda: a.send(wire.CLOSE, b"")),
        ("op", lambda: a.send(wire.WELCOME, b"")),
        ("op", lambda: a.send(wire.WELCOME, bytes(16))),
        ("op", lambda: a.send(wire.CHALLENGE, bytes(32))),
        ("flags", lambda: a.send(LUT_ADD, bytes(512), flags=wire.F_ANSWER, **good)),
        ("flags", lambda: a.send(LUT_ADD, bytes(512), flags=64, **good)),
        ("flags", lambda: a.send(wire.JOIN, wire.join_payload(1, 4))),
        ("reserved", lambda: a.send(LUT_ADD, bytes(512), bitmap=1, **good)),
        ("reserved", lambda: a.send(LUT_ADD, bytes(512), count=1, **good)),
        ("reserved", lambda: a.send(wire.JOIN, wire.join_payload(0))),
        ("reserved", lambda: a.send(wire.JOIN, wire.join_payload(1, wire.NODE))),
        ("reserved", lambda: a.send(wire.JOIN, wire.join_payload(1, workers=1))),
        ("reserved", lambda: a.send(wire.JOIN, wire.join_payload(1, restarted=0))),
        ("reserved", lambda: a.send(wire.JOIN, wire.join_payload(1, reserved=1))),
        ("reserved", lambda: a.send(wire.JOIN, wire.join_payload(
            1, reserved2=bytes(17) + b"x"))),
        ("width", lambda: a.send(LUT_ADD, bytes(512), width=8, slot=1)),
        ("width", lambda: a.send(ADD, bytes(1024), width=4, slot=1)),
        ("width", lambda: a.send(wire.LEAVE, b"", width=8)),
        ("job", lambda: a.send(LUT_ADD, bytes(512), job=2, **good)),
        ("job", lambda: a.send(LUT_ADD, bytes(512), job=60000, **good)),
        ("key", lambda: a.send(wire.LEAVE, seal=strange)),
        ("rank", lambda: a.send(LUT_ADD, bytes(512), rank=2, **good)),
        ("rank", lambda: a.send(LUT_ADD, bytes(512), rank=256, **good)),
        ("address", lambda: a.send(LUT_ADD, bytes(512), rank=1, **good)),
        ("address", lambda: a.send(wire.LEAVE, b"", rank=1)),
        ("slot", lambda: a.send(LUT_ADD, bytes(512), width=4, slot=576)),
        ("slot", lambda: a.send(LUT_ADD, bytes(512), width=4, slot=65535)),
        ("slot", lambda: a.send(LUT_ADD, bytes(512), chunk=2, **good)),
        ("slot", lambda: a.send(LUT_ADD, bytes(512), chunk=513, **good)),
        # the order of checks: address, op and key, tag, form
        ("address", lambda: a.send(wire.CLOSE, b"", rank=1, seal=strange)),
        ("op", lambda: a.send(77, b"", seal=strange)),
        ("key", lambda: a.send(wire.LEAVE, seal=False, key_id=strange.id)),
        ("tag", lambda: a.send(LUT_ADD, bytes(512), seal=False, flags=64, **good)),
        ("length", lambda: a.send(wire.JOIN, b"", seal=strange)),
        ("busy", lambda: a.send(LUT_ADD, bytes(512), width=4, slot=1, generation=1)),
    ]


def case__every_drop_has_its_name():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform,reply=fanout") as d:
        a, _ = workers = [d.worker(r) for r in range(2)]
        join_all(workers)
        expected = {}
        for name, send in packets_to_drop(a):
            send()
            a.silent(0.005)
            expected[name] = expected.get(name, 0) + 1
            drops = {k: v for k, v in d.stats()["drops"].items() if v}
            assert drops == expected, f"after a packet for \"{name}\": {drops}, not {expected}"
        assert d.stats()["events"]["added"] == 0


def case__each_worker_of_version_1_is_named_once():
    """thcd names each worker, even if more come in a second than thcd prints lines."""
    hosts = [f"127.0.7.{i}" for i in range(1, 46)]
    join = wire.build(bytes(16), op=wire.JOIN, job=1, version=1)
    with Daemon(f"1,ranks=1,{KEYED}") as d:
        for _ in range(4):
            for host in hosts:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                    s.bind((host, 0))
                    s.sendto(join, ("127.0.0.1", d.port))
            time.sleep(1.1)
    named = re.findall(r"refused a worker of version 1 from (\S+) port", d.said)
    assert sorted(named) == sorted(hosts), named


def answers_of(worker):
    """The key of the answers to this worker."""
    return worker.down[worker.up.id]


def case__a_strange_key_is_told_of_ten_times_a_second():
    """thcd answers STALE, whose seal fits one request alone, which expect() checks. thcd drops
    the other packets and adds none."""
    for seal in (KEYED, "seal=sum", "seal=none"):
        with Daemon(f"1,ranks=2,{seal},table=uniform") as d:
            a, b = workers = [d.worker(r, **keyless(seal)) for r in range(2)]
            join_all(workers)
            strange = wire.Keys(wire.OTHER_KEY, 1).data(wire.UP, wire.SEAL_NH, bytes(16))
            start = time.monotonic()
            for slot in range(200):
                a.send(LUT_ADD, bytes(512), width=4, slot=slot, seal=strange)
            a.expect(wire.STALE, flags=wire.F_EPOCH, epoch=a.epoch, rank=wire.NOBODY, bitmap=3)
            # the other rank has its own limit
            b.send(LUT_ADD, bytes(512), width=4, seal=strange)
            b.expect(wire.STALE, flags=wire.F_EPOCH, epoch=b.epoch)
            most = 2 + (time.monotonic() - start) * 10
            s = d.stats()
            told, dropped = s["events"]["epoch"], s["drops"]["key"]
            assert 2 <= told <= most and told + dropped == 201, (told, dropped, most)
            assert not s["events"]["added"] and not s["drops"]["tag"], s
            # an old epoch with the job's own key is answered by STALE, too
            time.sleep(0.11)
            a.drain()
            a.send(LUT_ADD, bytes(512), width=4, epoch=a.epoch - 1)
            a.expect(wire.STALE, flags=wire.F_EPOCH, epoch=a.epoch)


def case__it_says_how_a_job_is_sealed():
    """thcd says it when it starts, and `thcctl job` shows it."""
    for given, seal, correlated in ((KEYED, "nh", True), ("seal=sum", "sum", True),
                                    ("seal=none,correlated=off", "none", False)):
        with Daemon(f"1,ranks=2,{given},table=uniform") as d:
            job, = d.ask("jobs")["jobs"]
            assert (job["seal"], job["correlated"]) == (seal, correlated), job
            done = subprocess.run([os.path.join(build_dir(), "thcctl"), "-C", d.control, "job"],
                                  capture_output=True, text=True, timeout=wire.PATIENCE)
            assert re.search(f"^  seal +{seal}$", done.stdout, re.M), done
        assert f"8-bit sums, seal {seal}, answers by " in d.said, d.said


def keyless(seal):
    """A Worker's options for a job with this seal."""
    return {} if seal == KEYED else {"key": None}


def case__a_changed_source_port_is_no_worker():
    """A NAT may change the port. The seal of JOIN and LEAVE covers the address and the port."""
    with Daemon(f"1,ranks=1,{KEYED},table=uniform,reply=fanout") as d:
        w = d.worker(0)
        right = w.end
        for number, end in enumerate(((right[0], right[1] ^ 1), ("127.0.0.2", right[1])), 1):
            w.end = end
            w.send_join()
            w.silent(0.02)
            s = d.stats()
            assert s["drops"]["tag"] == number and not s["events"]["membership"], s
        assert not d.ask("jobs")["jobs"][0]["joined"]
        w.end = right
        join_all([w])
        w.end = (right[0], right[1] ^ 1)
        w.send(wire.LEAVE)
        w.silent(0.02)
        assert d.stats()["drops"]["tag"] == 3 and not d.ask("jobs")["jobs"][0]["left"]


def case__few_of_many_strangers_are_heard():
    """Of JOINs that no job admits, thcd refuses a burst and drops the rest. A rank of the job
    joins meanwhile."""
    with Daemon(f"1,ranks=1,{KEYED},table=uniform") as d:
        genuine = d.worker(0)
        strangers = [d.worker(0, key=wire.OTHER_KEY), d.worker(7), d.worker(0, job=9)]
        start, sent = time.monotonic(), 0
        for turn in range(100):
            for _ in range(10):
                for w in strangers:
                    w.send_join()
                    sent += 1
            # wait until thcd has read all: a full buffer would lose some
            # the rank's first JOIN was challenged, so it sent a second one
            while (s := d.stats())["received"] < sent + turn + bool(turn):
                assert time.monotonic() - start < wire.PATIENCE, s
            assert not genuine.join_once().refusal, "a rank of the job was refused"
        most = 64 + (time.monotonic() - start) * 200 + 1
        flood = s["drops"]["flood"]
        heard = sent - flood
        print(f"# {sent} strangers, {heard} heard, {flood} dropped")
        assert 64 <= heard <= most, f"{heard} of {sent} were heard, {most:.0f} may be"
        # WELCOME tells strangers why
        for w, why in zip(strangers, (wire.NOT_JOB, wire.NOT_RANK, wire.NOT_JOB)):
            assert w.expect(wire.WELCOME).refusal == why


def case__a_job_may_go_without_a_key():
    """Packets have sums, which anybody can make, or no seal; the salt keeps epochs apart."""
    for seal, kind in (("sum", wire.SEAL_SUM), ("none", wire.SEAL_NONE)):
        with Daemon(f"1,ranks=1,seal={seal},table=uniform,reply=fanout") as d:
            w = d.worker(0, key=None)
            join_all([w])
            assert w.welcome.seal == kind and any(w.welcome.salt), w.welcome
            w.send(LUT_ADD, bytes([0x12]) * 512, width=4)
            packet = w.expect(LUT_ADD, flags=wire.F_ANSWER, key_id=w.up.id)
            assert packet.payload == bytes([1, 2]) * 512
            assert bool(packet.tag) == (kind == wire.SEAL_SUM), packet
            # a tag that does not fit the seal is wrong
            w.send(LUT_ADD, bytes(512), width=4, seal=False, tag=5, slot=1)
            w.silent()
            assert d.stats()["drops"]["tag"] == 1
            old = w.up.id
            fresh = d.worker(0, key=None, nonce=77)
            join_all([fresh])
            assert fresh.up.id != old and fresh.epoch > w.epoch, "a new epoch has no new salt"


def case__who_has_no_key_or_another_one_is_told_at_once():
    """The refusal says nothing about the job, and anybody can make its seal. Nobody else can make
    the seal of other packets."""
    with Daemon(f"1,ranks=2,{KEYED},table=uniform", "2,ranks=2,seal=sum,table=uniform",
                "3,ranks=2,seal=none,table=uniform") as d:
        for job, key in ((1, None), (1, wire.OTHER_KEY), (2, wire.KEY), (3, wire.KEY)):
            packet = d.worker(0, job=job, key=key).join_once()
            assert packet.refusal == wire.NOT_JOB and packet.anybodys, (job, packet)
            assert not packet.epoch and not packet.ranks and len(packet.payload) == 64, packet
        # in another job the secret gives other keys
        moved = d.worker(0)
        moved.keys = wire.Keys(wire.KEY, 9)
        assert moved.join_once().refusal == wire.NOT_JOB
        for rank in (2, 256, 65535):
            packet = d.worker(rank).join_once()
            assert packet.refusal == wire.NOT_RANK and not packet.anybodys, packet
        assert all(not job["joined"] for job in d.ask("jobs")["jobs"])


def case__congestion_is_echoed():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform") as d:
        a, b = workers = [d.worker(r) for r in range(2)]
        join_all(workers)
        a.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3)
        a.send(LUT_ADD, bytes(512), width=4)
        b.send(LUT_ADD, bytes(512), width=4)
        b.expect(LUT_ADD, flags=wire.F_ANSWER | wire.F_CE)
        a.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 2)
        a.drain()
        a.send(LUT_ADD, bytes(512), width=4, slot=1)
        b.send(LUT_ADD, bytes(512), width=4, slot=1)
        b.expect(LUT_ADD, flags=wire.F_ANSWER)


def case__a_deadline_closes_what_has_its_quorum():
    with Daemon(f"1,ranks=3,{KEYED},table=uniform,quorum=2,deadline_ms=80") as d:
        a, b, c = workers = [d.worker(r) for r in range(3)]
        join_all(workers)
        a.send(LUT_ADD, bytes([0x11]) * 512, width=4, slot=3)
        a.silent(0.25)  # one of three has no quorum, however late
        c.send(LUT_ADD, bytes([0x22]) * 512, width=4, slot=3)
        packet = a.expect(LUT_ADD, flags=wire.F_ANSWER | wire.F_CLOSED, count=2, bitmap=0b101)
        assert packet.payload == bytes([3]) * 1024
        # a late rank gets the result, but is not added
        b.drain()
        b.send(LUT_ADD, bytes([0x44]) * 512, width=4, slot=3)
        packet = b.expect(LUT_ADD, flags=wire.F_ANSWER | wire.F_REPEAT | wire.F_CLOSED, count=2)
        assert packet.payload == bytes([3]) * 1024
        a.drain()
        took = []
        for slot in range(4, 9):
            start = time.monotonic()
            for w in (a, b):
                w.send(LUT_ADD, bytes(512), width=4, slot=slot)
            a.expect(LUT_ADD, flags=wire.F_ANSWER | wire.F_CLOSED, count=2, bitmap=0b011)
            took.append(time.monotonic() - start)
        text = ", ".join(f"{t:.3f}" for t in took)
        # a busy machine may be late, but not every time
        assert 0.06 < min(took) < 0.3, \
            f"closed after {text} s with a deadline of 80 ms"
        assert d.stats()["events"]["closed"] == 6


def case__joining_is_idempotent_and_a_restart_raises_the_epoch():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform") as d:
        a, b = workers = [d.worker(r) for r in range(2)]
        first = a.join_once()
        assert first.joined == 1 and not first.welcome_flags & wire.READY
        again = a.join_once()
        assert again.epoch == first.epoch
        join_all(workers)
        epoch = a.epoch
        assert epoch == first.epoch
        a.send(LUT_ADD, bytes(512), width=4)
        b.close()
        b = d.worker(1, nonce=77)
        packet = b.join_once()
        assert packet.epoch == epoch + 1 and packet.joined == 2, packet
        a.send(LUT_ADD, bytes(512), width=4, slot=1)
        a.expect(wire.STALE, flags=wire.F_EPOCH, epoch=epoch + 1, rank=1, bitmap=2)
        # a packet with the new epoch and the old key is dropped
        a.send(LUT_ADD, bytes(512), width=4, slot=2, epoch=epoch + 1)
        a.silent(0.02)
        assert d.stats()["drops"]["key"] == 1
        old = a.up.id
        join_all([a, b])
        assert a.up.id == b.up.id != old
        assert a.epoch == b.epoch == epoch + 1
        # contributions of the old epoch in slot 0 do not count in the new epoch
        b.send(LUT_ADD, bytes([0x11]) * 512, width=4)
        a.send(LUT_ADD, bytes([0x22]) * 512, width=4)
        assert a.expect(LUT_ADD, count=2).payload == bytes([3]) * 1024


def case__a_rank_that_leaves_is_told_of_and_may_come_back():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform") as d:
        a, b = workers = [d.worker(r) for r in range(2)]
        join_all(workers)
        epoch = a.epoch
        b.send(wire.LEAVE)
        a.send(LUT_ADD, bytes(512), width=4)
        a.send(LUT_ADD, bytes(512), width=4)
        a.expect(wire.WAIT, flags=wire.F_LEFT, bitmap=1)
        assert d.ask("jobs")["jobs"][0]["left"] == [1]
        a.send(wire.LEAVE)
        time.sleep(0.05)
        join_all(workers)
        assert a.epoch == epoch + 1, "a new run begins a new epoch"
        # if a rank leaves before the job is ready, it has never joined
        a.close()
        a = d.worker(0, nonce=501)
        a.join_once()
        a.send(wire.LEAVE)
        time.sleep(0.05)
        assert d.ask("jobs")["jobs"][0]["joined"] == []
        a.join_once()
        assert a.epoch == epoch + 2, "joining again after that is no restart"


def case__strangers_are_refused_with_a_reason():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform,prefix=127.0.0.8/29") as d:
        inside = {"bind": ("127.0.0.9", 0)}
        assert d.worker(0).join_once().refusal == wire.NOT_PREFIX
        assert d.worker(0, key=wire.OTHER_KEY, **inside).join_once().refusal == wire.NOT_JOB
        assert d.worker(0, job=2, **inside).join_once().refusal == wire.NOT_JOB
        assert d.worker(0, job=16, **inside).join_once().refusal == wire.NOT_JOB
        packet = d.worker(2, **inside).join_once()
        assert packet.refusal == wire.NOT_RANK and packet.welcome_flags == wire.REFUSED
        assert packet.ranks == 0 and len(packet.payload) == 64, "a refusal tells nothing"
        a = d.worker(0, **inside)
        assert not a.join_once().refusal
        # the same process from another port, and the one that was replaced
        twin = d.worker(0, nonce=a.nonce, **inside)
        assert twin.join_once().refusal == wire.TAKEN
        new = d.worker(0, nonce=4711, **inside)
        assert not new.join_once().refusal
        assert a.join_once().refusal == wire.TAKEN
        assert d.stats()["daemon"]["refused"] == 7


def case__without_multicast_the_job_answers_by_fanout():
    with Daemon(f"1,ranks=2,{KEYED},table=uniform") as d:
        a, b = workers = [d.worker(r) for r in range(2)]
        start = time.monotonic()
        a.join_once()
        assert a.welcome.reply == wire.MULTICAST
        join_all(workers, heard=False)
        # not before a second has passed; unit/test_thcd_join shows that the wait ends then
        assert time.monotonic() - start > 0.9
        assert a.welcome.reply == b.welcome.reply == wire.FANOUT
        for w in workers:
            w.send(LUT_ADD, bytes([0x11]) * 512, width=4)
        for w in workers:
            assert w.expect(LUT_ADD, rank=0).payload == bytes([2]) * 1024
        said = d.stop()
        assert "multicast does not reach 2 of 2 ranks" in said, said


def case__all_are_told_at_once_that_rounds_may_start():
    with Daemon(f"1,ranks=3,{KEYED},table=uniform,reply=fanout") as d:
        workers = [d.worker(r) for r in range(3)]
        for w in workers[:2]:
            assert not w.join_once().welcome_flags & wire.READY
        workers[2].enter()
        for w in workers:
            packet = w.expect(wire.WELCOME, nonce=w.nonce, rank=w.rank, joined=7)
            assert packet.welcome_flags & wire.READY


def case__welcome_carries_the_job():
    with Daemon(f"3,ranks=4,{KEYED},granularity=31,clamp=1/512,slots=100,norm_slots=7,"
                "block=4096,seed=0xabcdef,quorum=3,deadline_ms=500,correlated=on") as d:
        w = d.worker(1, job=3)
        p = w.join_once()
        assert (p.ranks, p.quorum, p.deadline_ms) == (4, 3, 500)
        assert (p.data_slots, p.control_slots, p.chunk_size, p.shards) == (100, 7, 1024, 1)
        assert (p.granularity, p.sum_width, p.block_log2) == (31, 8, 12)
        assert p.seed == 0xABCDEF and p.joined == 2 and p.shards == 1
        assert abs(p.clamp - 3.0972690782) < 1e-8
        assert p.table[0] == 0 and p.table[15] == 31
        assert p.group_end()[0] == "239.84.189.83"  # 127.0.0.1 and job 3
        assert p.group_end()[1] == d.port + 64
        assert p.welcome_flags == wire.ONE_PORT and p.features == wire.CORRELATED
        assert p.seal == wire.SEAL_NH and any(p.salt)


def noise(rng, worker):
    """A random packet, with changes that a network or a stranger may make."""
    control = worker.keys.membership(wire.JOINING)
    packet = wire.build(
        rng.randbytes(rng.choice((0, 8, 16, 64, 256, 512, 1024, 1032))),
        op=rng.choice((1, 2, 3, 4, 0, 5, wire.JOIN, wire.LEAVE, wire.CLOSE, wire.CHALLENGE)),
        job=rng.choice((1, 1, 2, 65535)), epoch=worker.epoch + rng.randrange(-1, 2),
        width=rng.choice((0, 4, 8, 16, 32)), slot=rng.randrange(8),
        generation=rng.choice((0, 1, 2, 2**32 - 1)), chunk=rng.randrange(9),
        rank=rng.choice((0, 1, 2, 200)), flags=rng.choice((0, 0, 0, 64, 255)),
        key_id=rng.choice((worker.up.id, control.id, 0, 1)), tag=rng.getrandbits(64))
    if rng.random() < 0.8:
        packet = worker.up.put(packet) if rng.random() < 0.7 else \
            control.put(packet, end=worker.end)
    packet = bytearray(packet)
    if rng.random() < 0.3:
        packet[rng.randrange(len(packet))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.1:
        del packet[rng.randrange(len(packet)):]
    return bytes(packet)


def case__noise_is_counted_and_harms_nobody():
    rng = random.Random(7)
    with Daemon(f"1,ranks=2,{KEYED},table=uniform,slots=4,norm_slots=2") as d:
        workers = [d.worker(r) for r in range(2)]
        join_all(workers)
        noisy = d.worker(0)
        noisy.take(workers[0].welcome)
        sent = d.stats()["received"]
        for _ in range(4000):
            worker = rng.choice((noisy, *workers))
            worker.send_raw(noise(rng, worker))
            sent += 1
            if sent % 50 == 0:  # the receive buffer must not overflow
                assert d.stats()["received"] == sent
        s = d.stats()
        assert s["received"] == sent and s["adds_up"]
        for w in workers:
            w.close()
        fresh = [d.worker(r, nonce=2000 + r) for r in range(2)]
        join_all(fresh)
        for w in fresh:
            w.send(LUT_ADD, bytes([0x11]) * 512, width=4)
        assert fresh[0].expect(LUT_ADD, count=2).payload == bytes([2]) * 1024


@contextlib.contextmanager
def failing(*options):
    done = subprocess.run([os.path.join(build_dir(), "thcd"), *options], capture_output=True,
                          text=True, timeout=wire.PATIENCE)
    yield done.returncode, done.stderr


def case__a_start_that_fails_says_what_to_do():
    job = f"1,ranks=2,{KEYED}"
    with failing("--software", "--listen", "127.0.0.1") as (status, said):
        assert status == 2 and "no job" in said, said
    with failing("--software", "--job", job) as (status, said):
        assert status == 2 and "--listen" in said, said
    with failing("--software", "--listen", "192.0.2.77", "--job", job) as (status, said):
        assert status == 1 and "192.0.2.77 is not an address of this host" in said, said
    with failing("--software", "--listen", "fe80::1%nosuch0", "--job", job) as (status, said):
        assert status == 1 and '"fe80::1%nosuch0" has no address' in said, said
    with failing("--software", "--listen", "127.0.0.1", "--listen", "127.0.0.2", "--job",
                 job) as (status, said):
        assert status == 1 and "one IPv4 and one IPv6 address" in said, said
    with failing("--bogus") as (status, said):
        assert status == 2 and "--bogus" in said, said
    wide = f"1,ranks=8,{KEYED},granularity=36,sum_width=8"
    with failing("--software", "--listen", "127.0.0.1", "--job", wide) as (status, said):
        assert status == 1 and "granularity up to 31 fits 8 ranks" in said, said
    with Daemon(job) as d:
        with failing("--software", "--listen", "127.0.0.1", "--port", str(d.port), "--job",
                     job) as (status, said):
            assert status == 1 and "is taken" in said, said
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({"listen": "192.0.2.77"}, f)
            f.flush()
            # --listen replaces the addresses of the file
            with failing("-c", f.name, "--software", "--listen", "127.0.0.1", "--port",
                         str(d.port), "--job", job) as (status, said):
                assert status == 1 and f"{d.port} of 127.0.0.1 is taken" in said, said
        with failing("--software", "--listen", "127.0.0.1", "--port", str(d.port + 68),
                     "--control", d.control, "--job", job) as (status, said):
            assert status == 1 and "another thcd serves" in said, said
    with tempfile.NamedTemporaryFile() as f:
        f.write(b"not yours")
        f.flush()
        with failing("--software", "--listen", "127.0.0.1", "--control", f.name, "--job",
                     job) as (status, said):
            assert status == 1 and "no socket: give another --control" in said, said
        with open(f.name, "rb") as there:
            assert there.read() == b"not yours", "thcd removed a file"


def case__a_busy_thcd_keeps_its_socket():
    """A thcd without room for one more client is not taken for dead."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "control.sock")
        clients = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy:
            busy.bind(path)
            busy.listen(0)
            try:
                while True:
                    clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    clients[-1].setblocking(False)
                    clients[-1].connect(path)
            except BlockingIOError:
                pass
            before = os.stat(path).st_ino
            with failing("--software", "--listen", "127.0.0.1", "--control", path,
                         "--job", f"1,ranks=1,{KEYED}") as (status, said):
                assert status == 1 and "another thcd serves" in said, said
            assert os.stat(path).st_ino == before, "thcd took the socket of another one"
            for client in clients:
                client.close()


def case__warns_of_a_key_that_others_can_read():
    file = KeyFile()
    for mode, words in ((0o644, f"every user can read {file.path}"), (0o640, None), (0o600, None)):
        os.chmod(file.path, mode)
        with Daemon(f"1,ranks=2,key=@{file.path}") as d:
            pass
        assert ("warning" in d.said) == bool(words) and (words or "") in d.said, d.said
        assert file.key.hex() not in d.said, "thcd tells the key"


def case__an_open_configuration_holds_no_secret():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
        json.dump({"jobs": [{"job": 1, "ranks": 2, "key": f"@{wire.KEY_FILE.path}"}]}, f)
        f.flush()
        os.chmod(f.name, 0o644)
        with Daemon(options=("--config", f.name)) as d:
            join_all([d.worker(r) for r in range(2)])
        assert "warning" not in d.said, d.said
    for key, words in (("key=" + wire.KEY.hex(), "only a file can hold it"),
                       ("cookie=0x77", "cookies are gone: make a key with thcctl genkey FILE"),
                       ("sum=off", "give seal=none for what was sum=off")):
        with failing("--software", "--listen", "127.0.0.1", "--job",
                     f"1,ranks=2,{key}") as (status, said):
            assert status == 2 and words in said and wire.KEY.hex() not in said, said
    for key, words in ((KEYED + ",seal=sum", "only seal=nh has one"),
                       ("table=uniform", "or seal=sum in a network without strangers")):
        with failing("--software", "--listen", "127.0.0.1", "--job",
                     f"1,ranks=2,{key}") as (status, said):
            assert status == 1 and words in said, said


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    tap.main([case for name, case in list(globals().items()) if name.startswith("case__")])
