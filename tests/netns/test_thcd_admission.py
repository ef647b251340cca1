#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A job admits workers by address and by distance: the subnets of a job that
names none, prefixes that a job names, and routers on the way. One worker is in
the aggregator's subnet, the other one behind a router:

     worker 0 ----.                        .---- aggregator
       10.77.0.1   `-- bridge of netns.py -'       10.77.0.100
     worker 1 ----'                                fd77::100
       10.77.0.2, fd77::2   router
         |
       10.78.0.1, fd78::1
         |
       10.78.0.2, fd78::2
     worker 2
"""
import os
import random
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

NEAR, ROUTER, FAR = 0, 1, 2
IP_RECVTTL = 12
UDP_NO_CHECK6_RX = 102
ADDRESSES = (netns.AGGREGATOR4, netns.AGGREGATOR6)
MODES = {"xdp": {}, "software": {"software": True}}


def topology():
    net = netns.Topology(3)
    net.run(net.worker(ROUTER), ["ip", "-batch", "-"], input="\n".join([
        f"link add inside type veth peer name outside netns {net.worker(FAR)}",
        "addr add 10.78.0.1/24 dev inside", "addr add fd78::1/64 dev inside nodad",
        "link set inside up"]))
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        net.run(net.worker(ROUTER), ["sh", "-c", f"echo 1 >/proc/sys/net/{path}"])
    net.run(net.worker(FAR), ["ip", "-batch", "-"], input="\n".join([
        "link set eth0 down", "addr add 10.78.0.2/24 dev outside",
        "addr add fd78::2/64 dev outside nodad", "link set outside up",
        "route add default via 10.78.0.1", "route add default via fd78::1"]))
    net.run(net.aggregator, ["ip", "-batch", "-"], input="\n".join([
        f"route add 10.78.0.0/24 via {net.address(ROUTER)}",
        f"route add fd78::/64 via {net.address6(ROUTER)}"]))
    return net


class Bed:
    """A job without a group, since far workers cannot hear one, and the job's workers."""

    def __init__(self, net, ranks=2, options=(), software=False, **job):
        self.net = net
        self.thcd = Aggregator(net, ranks, software, job={"reply": "fanout", **job},
                               options=options, quiet=True)
        self.workers = []

    def worker(self, place, address, ttl=None, rank=0):
        """A rank that sends from the namespace of worker `place`, with this TTL."""
        w = wire.Worker(rank, address, key=self.thcd.key, nonce=random.getrandbits(63) | 1,
                        place=lambda call: netns.in_namespace(self.net.worker(place), call))
        if ttl and ":" in address:
            w.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, ttl)
        elif ttl:
            w.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        self.workers.append(w)
        return w

    def refusal(self, place, address, **more):
        return self.worker(place, address, **more).join_once().refusal

    def said(self):
        # pread(), since thcd writes at this file's position
        return os.pread(self.thcd.said.fileno(), 1 << 20, 0).decode()

    def dropped(self, reason, count):
        """Wait for this count of drops: packets through a router may arrive late."""
        end = time.monotonic() + wire.PATIENCE
        stats = self.thcd.stats()
        while stats["drops"][reason] < count and time.monotonic() < end:
            time.sleep(0.05)
            stats = self.thcd.stats()
        assert stats["drops"][reason] == count and stats["adds_up"], stats
        return stats

    def job(self):
        return self.thcd.ask("jobs")["jobs"][0]

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for w in self.workers:
            w.close()
        self.thcd.__exit__(kind, error, trace)


def prefix__default_is_the_subnets_of_the_interface():
    for mode, how in MODES.items():
        with topology() as net, Bed(net, **how) as bed:
            for address in ADDRESSES:
                assert not bed.refusal(NEAR, address), (mode, address)
                assert bed.refusal(FAR, address) == wire.NOT_PREFIX, (mode, address)
            prefixes = bed.job()["prefix"]
            assert sorted(p for p in prefixes if not p.startswith("fe80")) == \
                ["10.77.0.0/24", "fd77::/64"], prefixes
            said = bed.said()
            assert "workers may join from " + ", ".join(prefixes) in said, said
            assert "10.78.0.2" in said and "key prefix" in said, said


def prefix__of_all_addresses_that_the_interface_has():
    with topology() as net:
        # a larger subnet than the first one, and two within these
        for address in ("10.0.0.1/9", "10.77.0.200/24", "10.79.1.1/24"):
            net.run(net.aggregator, ["ip", "addr", "add", address, "dev", "eth0"])
        net.run(net.aggregator, ["ip", "addr", "add", "10.80.0.1/24", "dev", "lo"])
        with Bed(net) as bed:
            prefixes = bed.job()["prefix"]
            assert [p for p in prefixes if "." in p] == ["10.77.0.0/24", "10.0.0.0/9"], prefixes
            assert not bed.refusal(FAR, ADDRESSES[0]), "10.78.0.2 is in 10.0.0.0/9"


def prefix__of_every_interface_where_packets_come_through_all():
    with topology() as net:
        net.run(net.aggregator, ["ip", "-batch", "-"], input="\n".join([
            "link add other type veth peer name end", "addr add 10.81.0.1/24 dev other",
            "link set other up", "addr add 10.99.0.1/32 dev lo"]))
        every = {"10.77.0.0/24", "10.81.0.0/24", "127.0.0.0/8"}
        for address, expected in (("0.0.0.0", every | {"10.99.0.1/32"}),
                                  ("10.99.0.1", every | {"10.99.0.1/32"}),
                                  ("127.0.0.1", {"127.0.0.0/8", "10.99.0.1/32"}),
                                  (ADDRESSES[0], {"10.77.0.0/24"})):
            # without -i, which names the interface
            options = ["--software", "--listen", address]
            prefixes = set(listening(net, options)["prefix"])
            assert prefixes == expected, (address, prefixes)
        prefixes = set(listening(net, ["--software", "--listen", "::1"])["prefix"])
        assert prefixes == {"::1/128"}, prefixes


def listening(net, options):
    """The job of a thcd without an interface."""
    class OnAddress(Aggregator):
        def start(self, *more):
            self.options = options
            super().start(*more)

    with OnAddress(net, 2, job={"reply": "fanout"}, quiet=True) as thcd:
        return thcd.ask("jobs")["jobs"][0]


def prefix__others_are_named():
    with topology() as net:
        for prefix in ("any", "10.77.0.0/24,prefix=10.78.0.0/24,prefix=fd77::/64,prefix=fd78::2"):
            with Bed(net, prefix=prefix) as bed:
                for address in ADDRESSES:
                    for place in (NEAR, FAR):
                        assert not bed.refusal(place, address), (prefix, place, address)
        with Bed(net, prefix="10.78.0.0/24") as bed:
            assert bed.refusal(NEAR, ADDRESSES[0]) == wire.NOT_PREFIX
            assert not bed.refusal(FAR, ADDRESSES[0])
            assert bed.job()["prefix"] == ["10.78.0.0/24"]


def prefix__another_one_after_kill_9():
    """Ranks that have joined stay, and a rank that was refused can join."""
    with topology() as net, Bed(net) as bed:
        near, far = bed.worker(NEAR, ADDRESSES[0]), bed.worker(FAR, ADDRESSES[0])
        far.rank = 1
        assert not near.join_once().refusal
        assert far.join_once().refusal == wire.NOT_PREFIX
        epoch = near.epoch
        bed.thcd.kill()
        bed.thcd.keys["prefix"] = "any"
        bed.thcd.start()
        wire.join_all([near, far], heard=False)
        assert (near.epoch, far.epoch) == (epoch, epoch), "the session has ended"
        assert bed.job()["prefix"] == ["0.0.0.0/0", "::/0"]


def prefix__the_worker_says_what_to_change():
    with topology() as net, Bed(net, ranks=3) as bed, \
            Ranks(net, bed.thcd, n=3, join_timeout=20) as ranks:
        answer = ranks.all([FAR], **ranks.open_request())[0]
        assert answer.get("errno") == "EACCES", answer
        assert "key prefix" in answer["error"] and "add this worker's subnet" in answer["error"], \
            answer


def hops__far_workers_are_dropped():
    for mode, how in MODES.items():
        with topology() as net, Bed(net, hops=0, prefix="any", **how) as bed:
            dropped = 0
            for address in ADDRESSES:
                for place, ttl, admitted in ((NEAR, 255, True), (NEAR, 254, False),
                                             (NEAR, 64, False), (FAR, 255, False)):
                    w = bed.worker(place, address, ttl)
                    w.send_join()
                    packet = w.receive(wire.PATIENCE if admitted else 0.2)
                    assert bool(packet) == admitted, (mode, address, place, ttl, packet)
                    dropped += not admitted
            bed.dropped("hops", dropped)
            assert bed.job()["hops"] == 0


def hops__data_and_what_is_corrupted():
    """The hops of a joined rank's data are checked, and before any other field."""
    for mode, how in MODES.items():
        with topology() as net, Bed(net, ranks=1, hops=1, prefix="any", **how) as bed:
            w = bed.worker(FAR, ADDRESSES[0], 255)
            wire.join_all([w], heard=False)
            w.send(wire.LUT_ADD, bytes(512), width=4)
            w.expect(wire.LUT_ADD, count=1)
            w.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 254)
            w.send(wire.LUT_ADD, bytes(512), width=4, slot=1, chunk=1)
            w.send(wire.LUT_ADD, bytes(512), width=4, slot=1, chunk=1, seal=False)
            w.send(wire.LEAVE)
            w.silent()
            stats = bed.dropped("hops", 3)
            assert not stats["drops"]["tag"] and stats["events"]["added"] == 1, (mode, stats)
            # an unknown job has no limit of hops
            w.send(wire.LUT_ADD, bytes(512), width=4, job=9)
            w.silent()
            bed.dropped("job", 1)


def hops__our_own_packets_are_as_near_as_can_be():
    """libthc's requests arrive where no router is allowed, and all unicast answers have
    the whole TTL: those of native XDP, of generic XDP (sent by thcd), and of software."""
    modes = {**MODES, "generic": {"options": ("--mode", "generic")}}
    for mode, how in modes.items():
        with topology() as net, Bed(net, hops=0, **how) as bed:
            for address in ADDRESSES:
                with Ranks(net, bed.thcd, n=2, address=address, timeout=20,
                           join_timeout=20) as ranks:
                    ranks.open()
                    good(ranks.all(do="reduce", counts=[50000]))
                    good(ranks.all(do="close"))
            stats = bed.thcd.stats()
            assert stats["adds_up"] and not stats["drops"]["hops"], (mode, stats)
        with topology() as net, Bed(net, ranks=1, **how) as bed:
            for address in ADDRESSES:
                ttls = answers(bed, address)
                assert ttls == [255] * 4, (mode, address, ttls)


def answers(bed, address):
    """TTL of WELCOME, of an answer, its repetition and STALE."""
    w = bed.worker(NEAR, address)
    if ":" in address:
        w.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        w.socket.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)    # STALE has none
    else:
        w.socket.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
    wire.join_all([w], heard=False)

    def ttl(op, **fields):
        w.send(op, **fields)
        w.socket.settimeout(wire.PATIENCE)
        _, control, _, _ = w.socket.recvmsg(2048, 64)
        return struct.unpack("i", control[0][2])[0]

    # thcd tells a rank of another epoch at most ten times a second, for both addresses
    time.sleep(0.11)
    chunk = {"payload": bytes(512), "width": 4}
    time.sleep(0.02)    # thcd answers a joined rank once in 10 ms
    return [ttl(wire.JOIN, payload=wire.join_payload(w.nonce)),
            ttl(wire.LUT_ADD, **chunk), ttl(wire.LUT_ADD, **chunk),
            ttl(wire.LUT_ADD, **{**chunk, "epoch": w.epoch - 1})]


def fanout__ranks_of_both_versions_of_ip_are_told_of():
    """Native XDP copies the last contribution's headers; the software aggregator makes new ones."""
    for mode, how in MODES.items():
        for second in ADDRESSES:
            with netns.Topology(2) as net, Bed(net, **how) as bed:
                wire.join_all([bed.worker(rank, address, rank=rank) for rank, address
                               in enumerate((netns.AGGREGATOR4, second))], heard=False)
                assert "all 2 ranks joined" in bed.said(), bed.said()
                told = "over IPv4, others over IPv6" in bed.said()
                assert told == (mode == "xdp" and second == netns.AGGREGATOR6), bed.said()


if __name__ == "__main__":
    tap.main([fanout__ranks_of_both_versions_of_ip_are_told_of,
              prefix__default_is_the_subnets_of_the_interface,
              prefix__of_all_addresses_that_the_interface_has,
              prefix__of_every_interface_where_packets_come_through_all,
              prefix__others_are_named,
              prefix__another_one_after_kill_9,
              prefix__the_worker_says_what_to_change,
              hops__far_workers_are_dropped,
              hops__data_and_what_is_corrupted,
              hops__our_own_packets_are_as_near_as_can_be])
