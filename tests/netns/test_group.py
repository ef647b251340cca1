#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The multicast group of a job: the aggregator's answers reach the workers' sockets,
and packets of another host do not. A user of the aggregator's host hears nothing.
Requests arrive with the whole TTL, since the jobs allow no router on the way. Over UDP
or, with THC_TRANSPORT=af_thc, over AF_THC sockets. Workers 0 and 1 are the ranks,
worker 2 is the other host.
"""
import ctypes
import errno
import os
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

sys.path.insert(0, os.path.join(netns.ROOT, "userspace/python"))
os.environ.update(netns.environment())
from thc_ddp.client import ThcClient  # noqa: E402

TRANSPORT = {"af_thc": "AF_THC"}.get(os.environ.get("THC_TRANSPORT"), "UDP")
IN_VM = "THC_VM_KERNEL" in os.environ
COUNT = 30000 if IN_VM else 300000
ROUNDS = 4
N = 2
INTRUDER = 2
LIMIT = 60
MCAST_JOIN_SOURCE_GROUP = 46
SO_RCVBUFFORCE = 33


class Intruder:
    """A thread that sends answers of zeros and WELCOMEs to the job's group from a worker's
    address, as an aggregator with this group and another key would. A worker counts each such
    packet that reaches it."""

    def __init__(self, net, worker, job):
        self.to = job["group"], job["group_port"]
        self.packets = self.forged(job)
        self.socket = netns.in_namespace(net.worker(worker), lambda: group_socket(job["group"]))
        self.sent, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self.body)
        self.thread.start()

    @staticmethod
    def forged(job):
        fields = {"job": job["job"], "epoch": job["epoch"]}
        answer = {"op": wire.LUT_ADD, "count": N, "bitmap": (1 << N) - 1,
                  "flags": wire.F_ANSWER, "width": 8, **fields}
        keys = wire.Keys(wire.OTHER_KEY, job["job"])
        down = keys.data(wire.DOWN, wire.SEAL_NH, bytes(16))
        welcome = wire.build(bytes(88), op=wire.WELCOME, **fields)
        return [down.put(wire.build(bytes(1024), slot=s, chunk=s, **answer))
                for s in range(32)] + \
            [keys.membership(wire.WELCOMING).put(welcome, end=(job["group"], job["group_port"]))]

    def body(self):
        while not self.over.wait(0.03 if IN_VM else 0.001):
            for packet in self.packets:
                self.socket.sendto(packet, self.to)
                self.sent += 1

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.over.set()
        self.thread.join()
        self.socket.close()


class Listener:
    """A member of the group, in a host's namespace, that hears all senders. Its thread has a
    buffer for what an intruder sends while the thread waits for a processor."""

    ROOM = 64 << 20

    def __init__(self, ns, job):
        self.socket = netns.in_namespace(ns, lambda: self.open(job))
        self.heard, self.over = set(), threading.Event()
        self.thread = threading.Thread(target=self.body)
        self.thread.start()

    @staticmethod
    def open(job):
        s = group_socket(job["group"])
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, Listener.ROOM)
        index = socket.if_nametoindex("eth0")
        if s.family == socket.AF_INET:
            s.bind((job["group"], job["group_port"]))
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack(
                "4s4si", socket.inet_aton(job["group"]), bytes(4), index))
        else:
            s.bind((job["group"], job["group_port"], 0, index))
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, struct.pack(
                "16si", socket.inet_pton(socket.AF_INET6, job["group"]), index))
        s.settimeout(0.1)
        return s

    def body(self):
        while not self.over.is_set():
            try:
                self.heard.add(self.socket.recvfrom(2048)[1][0])
            except TimeoutError:
                pass

    def hears(self, expected):
        """True if the expected senders are heard, also by packets still in the socket's buffer."""
        end = time.monotonic() + LIMIT
        while not expected <= self.heard and time.monotonic() < end:
            time.sleep(0.01)
        return self.heard == expected

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.over.set()
        self.thread.join()
        self.socket.close()


def group_socket(group):
    """A socket of this namespace that sends to the group on eth0."""
    if ":" not in group:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
    return s


class Bed:
    """A job whose answers go to a group of this aggregator's family, and its ranks."""

    def __init__(self, address, net, software=IN_VM, options=()):
        self.net = net
        self.aggregator = Aggregator(net, N, software, job={"seed": 5, "hops": 0, "rate": "fixed"},
                                     options=["--listen", address, *options])
        self.ranks = Ranks(net, self.aggregator, n=N, address=address, timeout=LIMIT,
                           join_timeout=LIMIT)

    def __enter__(self):
        for info in self.ranks.open():
            assert info["transport"] == TRANSPORT and info["multicast"] == 1, info
        self.job = self.aggregator.ask("jobs")["jobs"][0]
        return self

    def __exit__(self, *_exc):
        self.ranks.close()
        self.aggregator.stop()

    def reduce(self):
        """The digest of what all ranks got, and their counters."""
        answers = self.ranks.reduce(counts=[COUNT], rounds=ROUNDS)
        digests = {a["digest"] for a in answers}
        assert len(digests) == 1, "the ranks received different bits"
        return digests.pop(), [a["stats"] for a in answers]


_honest = []


def honest_digest(address, net):
    """The digest of undisturbed results. It follows from the job's seed, for any address."""
    if not _honest:
        with Bed(address, net) as bed:
            _honest.append(bed.reduce()[0])
    return _honest[0]


def others_are_not_heard(address, intruder):
    """intruder: its address"""
    with netns.Topology(3) as net:
        honest = honest_digest(address, net)
        with Bed(address, net) as bed:
            with Listener(net.worker(0), bed.job) as listener:
                with Intruder(net, INTRUDER, bed.job) as sends:
                    digest, stats = bed.reduce()
                    while sends.sent <= 100:  # a fast machine ends the rounds before
                        assert sends.thread.is_alive()
                        stats = bed.reduce()[1]
                assert listener.hears({address, intruder}), listener.heard
            assert digest == honest, "what others sent changed the result"
            for s in stats:
                assert s["packets_down"] > 0, s
                assert not s["foreign"] and not s["bad_tag"], f"it reached a worker's socket: {s}"
            # no forged packet waits in a socket's buffer
            for s in bed.reduce()[1]:
                assert not s["foreign"], f"it reached a worker's socket: {s}"


def group__others_are_not_heard__ipv4():
    others_are_not_heard(netns.AGGREGATOR4, netns.Topology.address(INTRUDER))


def group__others_are_not_heard__ipv6():
    others_are_not_heard(netns.AGGREGATOR6, netns.Topology.address6(INTRUDER))


def group__is_not_heard_on_the_aggregators_host():
    """Users of that host do not hear the sums. A software aggregator serves workers of its own
    host: its sums are heard there, so the test can hear."""
    modes = (("native", False, ("--mode", "native")), ("generic", False, ("--mode", "generic")),
             ("software", True, ()))
    for mode, software, options in modes:
        for address in (netns.AGGREGATOR4, netns.AGGREGATOR6):
            with netns.Topology(2) as net, \
                    Bed(address, net, software=software, options=options) as bed:
                with Listener(net.aggregator, bed.job) as listener:
                    bed.reduce()
                    # a new session: WELCOME goes to the group again
                    good(bed.ranks.all(do="rejoin"))
                    bed.reduce()
                assert listener.heard == ({address} if software else set()), \
                    (mode, listener.heard)


def forbid_source_filters():
    """A seccomp filter lets MCAST_JOIN_SOURCE_GROUP fail in this process with ENOPROTOOPT."""
    call = {"x86_64": 54, "aarch64": 208}[os.uname().machine]       # setsockopt()
    load, equal, result, error, allow = 0x20, 0x15, 0x06, 0x50000, 0x7FFF0000
    third = 32                                                      # of seccomp_data, argument
    code = [(load, 0, 0, 0), (equal, 0, 3, call), (load, 0, 0, third),
            (equal, 0, 1, MCAST_JOIN_SOURCE_GROUP), (result, 0, 0, error | errno.ENOPROTOOPT),
            (result, 0, 0, allow)]
    text = b"".join(struct.pack("HBBI", *step) for step in code)
    room = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(room))
    libc = ctypes.CDLL(None, use_errno=True)
    set_no_new_privs, set_seccomp, filter_mode = 38, 22, 2
    assert not libc.prctl(set_no_new_privs, 1, 0, 0, 0)
    assert not libc.prctl(set_seccomp, filter_mode, program, 0, 0), ctypes.get_errno()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.setsockopt(socket.IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, bytes(264))
        except OSError as failure:
            assert failure.errno == errno.ENOPROTOOPT, failure


def joins_without_source_filters(net, aggregator, address):
    """Join in a process of its own, since a seccomp filter stays."""
    def join():
        forbid_source_filters()
        with ThcClient(aggregator=address, job=aggregator.job, key_file=aggregator.key_file,
                       rank=0, join_timeout=LIMIT) as client:
            assert client.info()["multicast"] == 1

    return net.fork(net.worker(0), join).wait() == 0


def group__is_joined_where_the_kernel_has_no_source_filters():
    for address in (netns.AGGREGATOR4, netns.AGGREGATOR6):
        with netns.Topology(1) as net, \
                Aggregator(net, 1, software=True, options=["--listen", address]) as aggregator:
            assert joins_without_source_filters(net, aggregator, address), address


def members(net):
    """(group, port): ports of the switch with members of a group, by the reports it saw."""
    text = net.run(net.switch, ["bridge", "mdb", "show", "dev", "br0"]).stdout
    return {(words[words.index("grp") + 1], words[words.index("port") + 1])
            for words in map(str.split, text.splitlines()) if "grp" in words}


def group__switches_that_snoop_see_its_members():
    """Switches that snoop forward a group only to ports from which a report came."""
    for address in (netns.AGGREGATOR4, netns.AGGREGATOR6):
        for igmp, mld in ((2, 1), (3, 2)):
            with netns.Topology(3) as net:
                net.run(net.switch, ["ip", "link", "set", "br0", "type", "bridge",
                                     "mcast_snooping", "1", "mcast_querier", "1",
                                     "mcast_igmp_version", str(igmp), "mcast_mld_version",
                                     str(mld), "mcast_query_response_interval", "10"])
                with Bed(address, net) as bed:
                    end = time.monotonic() + LIMIT
                    wanted = {(bed.job["group"], f"w{rank}") for rank in range(N)}
                    while not wanted <= members(net):
                        assert time.monotonic() < end, (wanted, members(net))
                        time.sleep(0.1)
                    # the switch floods for a shorter time after its first query
                    time.sleep(1)
                    listening = {port for group, port in members(net)
                                 if group == bed.job["group"]}
                    assert f"w{INTRUDER}" not in listening, members(net)
                    _, stats = bed.reduce()
                    assert all(s["packets_down"] for s in stats), stats
                    assert bed.aggregator.ask("jobs")["jobs"][0]["reply"] == "multicast"


if __name__ == "__main__":
    tap.main([group__others_are_not_heard__ipv4, group__others_are_not_heard__ipv6,
              group__is_not_heard_on_the_aggregators_host,
              group__is_joined_where_the_kernel_has_no_source_filters,
              group__switches_that_snoop_see_its_members])
