#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A plain user of the aggregator's host against a running job. He has no raw socket, but
the host's address is his by right, and here he is told the rest: cookie, session, the
workers' ports. What he sends is neither counted nor believed.
"""
import errno
import os
import select
import socket
import sys
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

NOBODY = 65534
PACKETS = int(os.environ.get("THC_FORGED", "20000"))    # a kind; 1000000 in long runs
PASSES = 4
ROUNDS = 4              # of a pass
COUNT = 200000
CHUNKS = -(-COUNT // 1024) * 2          # of a round, in blocks of 1024
SLOTS = 512


def fork_nobody(ns, call):
    """call() as a user without privileges in namespace ns, beside us."""
    child = os.fork()
    if not child:
        status = 1
        try:
            netns.move_into(ns)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            status = 0 if call() else 1
        except BaseException:   # of the child's own
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def ended_well(child):
    """Has call() returned something true?"""
    return os.waitpid(child, 0)[1] == 0


class Bed:
    """Two ranks at work, and what the attacker knows of them."""

    def __init__(self, **job):
        self.net = netns.Topology(3)
        self.aggregator = Aggregator(self.net, 2, job=job)
        self.ranks = Ranks(self.net, self.aggregator, n=2, timeout=20, join_timeout=20)

    def __enter__(self):
        self.start()
        self.honest = self.passes()
        return self

    def __exit__(self, *_exc):
        self.ranks.close()
        self.aggregator.stop()
        self.net.close()

    def start(self):
        """New processes and a new session: rounding is the same as in the last one."""
        for rank in range(2):
            if self.ranks.processes[rank].poll() is None and hasattr(self, "honest"):
                self.ranks.kill(rank)
                self.ranks.restart(rank)
        self.ranks.open()
        job = self.aggregator.ask("jobs")["jobs"][0]
        self.members = [(m["address"], m["port"]) for m in job["members"]]
        self.fields = {"job": 1, "cookie": self.aggregator.cookie, "epoch": job["epoch"]}

    def passes(self):
        """Digests of the sums of some all-reduces, one after the other."""
        digests = []
        for seed in range(PASSES):
            answers = self.ranks.reduce(counts=[COUNT], rounds=ROUNDS, seed=seed)
            assert len({a["digest"] for a in answers}) == 1, "the ranks received different bits"
            digests.append(answers[0]["digest"])
        return digests

    def foreign(self):
        return [s["foreign"] for s in good(self.ranks.all(do="stats"))]

    def forged(self):
        """Packets that would end the session, or answer each chunk there will be."""
        kinds = [wire.build(op=wire.STALE, flags=wire.F_EPOCH,
                            **{**self.fields, "epoch": self.fields["epoch"] + 1})]
        for chunk in range(PASSES * ROUNDS * CHUNKS):
            place = {**self.fields, "slot": chunk % SLOTS, "generation": chunk // SLOTS,
                     "chunk": chunk, "round": chunk // CHUNKS, "bitmap": 3, "count": 2}
            kinds.append(wire.build(bytes(1024), op=wire.LUT_ADD, flags=wire.F_ANSWER, width=8,
                                    **place))
            kinds.append(wire.build(op=wire.STALE, flags=wire.F_KNOWN, **place))
        return kinds

    def withstands(self, ns, port=0):
        """The ranks work as before while a user of ns sends forged packets, PACKETS at
        least, and refuse them."""
        self.start()
        packets = self.forged()
        over, done = os.pipe()

        def send():
            os.close(done)
            sent = 0
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.bind(("0.0.0.0", port))
                while sent < PACKETS or not select.select([over], [], [], 0)[0]:
                    for _ in range(100):
                        member = self.members[sent // len(packets) % 2]
                        s.sendto(packets[sent % len(packets)], member)
                        sent += 1
            print(f"# {sent} forged packets", flush=True)
            return True

        child = fork_nobody(ns, send)
        os.close(over)
        digests = self.passes()
        os.close(done)
        assert ended_well(child), "the forged packets were not sent"
        assert digests == self.honest, "sums differ beside forged packets"
        # what has not been looked at waits in a socket's buffer
        good(self.ranks.all(do="reduce", counts=[COUNT]))
        refused = self.foreign()
        print(f"# refused: {refused}")
        assert min(refused) > 0, f"no forged packet reached a worker: {refused}"


def user_of_aggregator__has_no_port_that_workers_believe():
    with Bed() as bed:
        def bind_all():
            for port in range(wire.PORT, wire.PORT + 64):
                for address in (netns.AGGREGATOR4, "0.0.0.0"):
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                        try:
                            s.bind((address, port))
                        except OSError as error:
                            if error.errno == errno.EADDRINUSE:
                                continue
                            raise
                        print(f"# bound port {port} of {address}")
                        return False
            return True

        assert ended_well(fork_nobody(bed.net.aggregator, bind_all)), \
            "a port of the aggregator is free"


def user_of_aggregator__is_not_believed():
    with Bed() as bed:
        bed.withstands(bed.net.aggregator)


def user_of_aggregator__is_not_believed_where_answers_are_unicast():
    with Bed(reply="fanout") as bed:
        bed.withstands(bed.net.aggregator)


def user_of_aggregator__hears_no_group():
    """WELCOME has the cookie; other programs of the host do not get it."""
    with Bed() as bed:
        job = bed.aggregator.ask("jobs")["jobs"][0]

        def listen():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind((job["group"], job["group_port"]))
                s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                             socket.inet_aton(job["group"]) + socket.inet_aton(netns.AGGREGATOR4))
                s.settimeout(3)
                try:
                    print(f"# heard {len(s.recv(2048))} bytes")
                    return False
                except TimeoutError:
                    return True

        child = fork_nobody(bed.net.aggregator, listen)
        bed.start()
        assert bed.passes() == bed.honest
        bed.start()
        assert ended_well(child), "the group is heard on the aggregator's host"


def host_of_the_lan__is_not_believed():
    with Bed() as bed:
        bed.withstands(bed.net.worker(2))
        bed.withstands(bed.net.worker(2), port=wire.PORT)


tap.main([
    user_of_aggregator__has_no_port_that_workers_believe,
    user_of_aggregator__is_not_believed,
    user_of_aggregator__is_not_believed_where_answers_are_unicast,
    user_of_aggregator__hears_no_group,
    host_of_the_lan__is_not_believed,
])
