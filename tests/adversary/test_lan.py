#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Attacks from another host of the workers' and the aggregator's network: by a plain user, who
may join groups, and by root, who has raw sockets. The network does not check source addresses.
Neither user has the job's key; packets from their own address are refused even with the key.
"""
import contextlib
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import (NOT_ANY_MORE, Bed, Spoofer, does, join, possible,  # noqa: E402
                       prevented, udp, without)
from aggregator import Aggregator  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from recorder import seen_in  # noqa: E402
from tap import netns  # noqa: E402

USER = "a user of another host of the network"
ROOT = "root of another host of the network"
ETH_P_ALL = 3
QUESTIONS_A_SECOND = 10000
MANY = 1000             # of their answers


@prevented(USER, "answers, or contributes, from its own address")
def lan__is_not_believed():
    with Bed() as bed:
        bed.withstands(bed.net.worker(2))
        bed.withstands(bed.net.worker(2), port=wire.PORT)


@possible(USER, "hears the group, and so the sums", until="ever")
def lan__hears_the_group():
    with Bed() as bed:
        assert bed.sums_are_heard_at(2), NOT_ANY_MORE


@prevented(ROOT, "hears the sums, with `reply=fanout`, behind a switch")
def lan__hears_nothing_where_answers_are_unicast():
    """A packet socket, which sees all frames from the switch, gets no packet of the job."""
    with Bed(reply="fanout") as bed:
        seen = []
        with netns.in_namespace(bed.net.worker(2), lambda: socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))) as s:
            s.bind(("eth0", ETH_P_ALL))
            s.setblocking(False)
            bed.start()
            assert bed.passes() == bed.honest
            try:
                while True:
                    seen += seen_in(s.recv(1 << 17))
            except BlockingIOError:
                pass
        assert not seen, f"{len(seen)} packets of the job were heard"


@prevented(USER, "takes a rank with what it has heard")
def lan__takes_no_rank():
    """The user knows all but the key: WELCOME to the group has the key's name and the salt."""
    with Bed() as bed:
        bed.start()
        session, address = bed.session(), bed.net.address(2)
        named = without(bed.keys.membership(wire.JOINING))
        nameless = wire.Key(wire.SEAL_SUM, 0)

        def take():
            with udp() as s:
                s.settimeout(2)
                refused = join(s, address, nameless, rank=1).refusal == wire.NOT_JOB
                return refused and not join(s, address, named, rank=1)

        assert does(bed.net.worker(2), take), "a JOIN without the key was answered"
        assert bed.dropped("tag") == 1
        assert bed.session() == session, "it has ended the session"
        assert bed.passes() == bed.honest


@prevented(ROOT, "answers from the aggregator's address and port")
def lan__spoofs_no_aggregator():
    with Bed() as bed:
        bed.withstands_spoofed_answers(bed.net.worker(2))


@prevented(ROOT, "contributes from a worker's address and port")
def lan__spoofs_no_worker():
    with Bed() as bed:
        bed.withstands_spoofed_contributions(bed.net.worker(2))


@prevented(ROOT, "stops sums by questions of hosts that are not there, with `--software`")
def lan__fills_no_room_that_sums_need():
    """Answers to hosts that do not exist wait in the socket until ARP gives up. Each question is
    a packet of an old session, of a rank that has not joined. Without CAP_NET_ADMIN thcd has
    small socket buffers."""
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(netns.Topology(3))
        aggregator = stack.enter_context(Aggregator(
            net, 2, software=True, options=["--job", "2,ranks=2,seal=sum"], quiet=True,
            prefix=["setpriv", "--bounding-set=-net_admin"]))
        ranks = stack.enter_context(Ranks(net, aggregator, n=2, timeout=adversary.PATIENCE,
                                          join_timeout=adversary.PATIENCE))
        ranks.open()
        other = next(j for j in aggregator.ask("jobs")["jobs"] if j["job"] == 2)
        question = wire.build(bytes(16), op=wire.LUT_ADD, width=4, job=2,
                              epoch=other["epoch"] - 1)
        nobody = [net.address(2).rsplit(".", 1)[0] + f".{host}" for host in range(150, 250)]
        over = threading.Event()

        def flood():
            spoofer = netns.in_namespace(net.worker(2), Spoofer)
            while not over.is_set():
                for address in nobody:
                    spoofer.send(question, (address, 4000), (netns.AGGREGATOR4, wire.PORT))
                time.sleep(len(nobody) / QUESTIONS_A_SECOND)

        thread = threading.Thread(target=flood)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        assert adversary.until(lambda: aggregator.stats()["daemon"]["unsent"] > MANY), \
            "there is room for all answers"
        for seed in range(adversary.PASSES):
            good(ranks.reduce(counts=[adversary.COUNT], rounds=adversary.ROUNDS, seed=seed))
        # if a sum finds no room, thcd keeps it and prints this line
        assert "was not sent" not in aggregator.has_said(), aggregator.has_said()


@prevented(ROOT, "has a packet sent to a service on the aggregator's loopback, with generic XDP")
def lan__reaches_no_loopback():
    """XDP sees packets before the kernel refuses addresses that no other host can have."""
    with netns.Topology(3) as net, Aggregator(net, 2, options=["--mode", "generic"]) as aggregator:
        net.run(net.aggregator, ["ip", "link", "set", "lo", "up"])
        question = wire.build(bytes(16), op=wire.LUT_ADD, width=4, job=1,
                              epoch=aggregator.ask("jobs")["jobs"][0]["epoch"] - 1)
        with contextlib.closing(netns.in_namespace(net.aggregator, udp)) as service:
            port = service.getsockname()[1]
            # the last question, from a real address and that port, is answered
            with contextlib.closing(netns.in_namespace(net.worker(2), lambda: udp(port))) as own:
                spoofer = netns.in_namespace(net.worker(2), Spoofer)
                for source in ("127.0.0.1", netns.AGGREGATOR4, "0.0.0.1", "224.0.0.1",
                               net.address(2)):
                    spoofer.send(question, (source, port), (netns.AGGREGATOR4, wire.PORT))
                assert wire.Packet(own.recv(2048)).op == wire.STALE
            service.settimeout(0.5)
            try:
                raise AssertionError(f"it has heard {service.recv(2048)}")
            except TimeoutError:
                pass
        assert aggregator.stats()["daemon"]["unsent"] == 4, aggregator.stats()


adversary.main()
