#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A job over IPv6 link-local addresses, which need their interface's name.
Every host has a second interface that has the aggregator's address itself, so
packets on the wrong interface do not reach the aggregator. Over UDP or, with
THC_TRANSPORT=af_thc, over AF_THC sockets.
"""
import ctypes
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import Aggregator  # noqa: E402
from tap import netns  # noqa: E402

sys.path.insert(0, os.path.join(netns.ROOT, "userspace/python"))
os.environ.update(netns.environment())
from thc_ddp.client import ThcClient, ThcError  # noqa: E402

TRANSPORT = {"af_thc": "AF_THC"}.get(os.environ.get("THC_TRANSPORT"), "UDP")
ADDRESS = "fe80::77:100"
# some packets; Python takes seconds for more values in a test machine
COUNT = 5000 if "THC_VM_KERNEL" in os.environ else 30000
N = 2
LIMIT = 60


def topology():
    """Hosts whose link-local addresses are usable at once, on the wrong interface, too."""
    net = netns.Topology(N)
    hosts = [(net.aggregator, ADDRESS), *((net.worker(w), own(w)) for w in range(N))]
    for host, address in hosts:
        net.run(host, ["ip", "-batch", "-"], input="\n".join([
            f"addr add {address}/64 dev eth0 nodad",
            "link add aside type veth peer beyond", "link set aside up", "link set beyond up",
            f"addr add {ADDRESS}/64 dev aside nodad"]))
    return net


def own(worker):
    return f"fe80::77:{worker + 1:x}"


def seven(first):
    """COUNT values: first and the six after it, again and again."""
    return ([float(first + i) for i in range(7)] * (COUNT // 7 + 1))[:COUNT]


def reduce(net, thcd, **options):
    """[(result, info, stats) or the error of each rank]; all ranks reduce at once."""
    answers = [None] * N

    def work(rank):
        try:
            with ThcClient(job=thcd.job, key_file=thcd.key_file, rank=rank,
                           join_timeout=LIMIT, timeout=LIMIT,
                           **{key: value(rank) if callable(value) else value
                              for key, value in options.items()}) as client:
                values = (ctypes.c_float * COUNT)(*seven(rank + 1))
                client.allreduce(ctypes.addressof(values), COUNT)
                answers[rank] = bytes(values), client.info(), client.stats()
                together.wait()         # no rank may leave before the last result
        except Exception as error:      # for the thread that compares
            answers[rank] = error
            together.abort()

    together = threading.Barrier(N)
    threads = [threading.Thread(target=netns.in_namespace,
                                args=(net.worker(w), lambda w=w: work(w))) for w in range(N)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for answer in sorted(answers, key=lambda a: isinstance(a, threading.BrokenBarrierError)):
        if isinstance(answer, Exception):
            raise answer
    assert len({bits for bits, _, _ in answers}) == 1, "the ranks received different bits"
    mean = (ctypes.c_float * COUNT).from_buffer_copy(answers[0][0])
    exact = seven((N + 1) / 2)
    error = sum((a - b) ** 2 for a, b in zip(mean, exact)) / sum(b * b for b in exact)
    assert error < 0.05, f"not the mean: NMSE {error}"
    for _, info, stats in answers:
        assert info["transport"] == TRANSPORT, info
        assert stats["packets_down"], stats
    return answers


def error_of(net, worker, thcd, **options):
    def call():
        with ThcClient(job=thcd.job, key_file=thcd.key_file, rank=0, join_timeout=2,
                       **options):
            return None
    try:
        netns.in_namespace(net.worker(worker), call)
    except ThcError as error:
        return str(error)
    raise AssertionError(f"{options} joined")


def over_link_local(software, **job):
    with topology() as net, \
            Aggregator(net, N, software, job=job, options=["--listen", f"{ADDRESS}%eth0"]) as thcd:
        bits = {answer[0] for answer in reduce(net, thcd, aggregator=f"{ADDRESS}%eth0")}
        # the interface or the rank's own address may be separate options
        for options in ({"aggregator": ADDRESS, "interface": "eth0"},
                        {"aggregator": ADDRESS, "bind": lambda rank: f"{own(rank)}%eth0"},
                        {"aggregator": f"{ADDRESS}%eth0", "bind": own}):
            bits |= {answer[0] for answer in reduce(net, thcd, **options)}
        assert len(bits) == 1, "the way of naming the interface makes a difference"


def link_local__multicast():
    with topology() as net, \
            Aggregator(net, N, True, job={"group": "ff12::77", "seed": 5, "rate": "fixed"},
                       options=["--listen", ADDRESS]) as thcd:
        for _, info, _ in reduce(net, thcd, aggregator=f"{ADDRESS}%eth0"):
            assert info["multicast"] == 1, "the group was joined on another interface"


def link_local__software():
    over_link_local(True, reply="fanout", seed=5, rate="fixed")


def link_local__xdp():
    over_link_local(False, reply="fanout", seed=5, rate="fixed")


def link_local__without_its_interface():
    with topology() as net, \
            Aggregator(net, N, True, job={"reply": "fanout", "rate": "fixed"},
                       options=["--listen", ADDRESS]) as thcd:
        said = error_of(net, 0, thcd, aggregator=ADDRESS)
        assert "link-local" in said and f"{ADDRESS}%eth0" in said, said
        said = error_of(net, 0, thcd, aggregator=f"{ADDRESS}%nosuch0")
        assert 'no interface "nosuch0"' in said, said
        # an interface without an aggregator
        said = error_of(net, 0, thcd, aggregator=f"{ADDRESS}%aside")
        assert f"{ADDRESS}%aside" in said, said
        said = error_of(net, 0, thcd, aggregator=f"{ADDRESS}%eth0", interface="aside")
        assert "another interface" in said, said


def link_local__thcd_listens_where_it_is_told_to():
    with topology() as net, \
            Aggregator(net, N, True, job={"reply": "fanout"},
                       options=["--listen", f"{ADDRESS}%aside"]) as thcd:
        said = error_of(net, 0, thcd, aggregator=f"{ADDRESS}%eth0")
        assert "nobody serves" in said, said


if __name__ == "__main__":
    tap.main([link_local__software, link_local__xdp, link_local__multicast,
              link_local__without_its_interface,
              link_local__thcd_listens_where_it_is_told_to])
