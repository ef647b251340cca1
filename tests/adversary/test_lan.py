#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Another host of the workers' and the aggregator's network: a plain user there, who may
join groups, and root, who has raw sockets. The network does not check source addresses.
"""
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import (NOT_ANY_MORE, Bed, Spoofer, does, join, possible,  # noqa: E402
                       prevented, udp)
from tap import netns  # noqa: E402

USER = "a user of another host of the network"
ROOT = "root of another host of the network"
ETH_P_ALL = 3


@prevented(USER, "answers, or contributes, from its own address")
def lan__is_not_believed():
    with Bed() as bed:
        bed.withstands(bed.net.worker(2))
        bed.withstands(bed.net.worker(2), port=wire.PORT)


@possible(USER, "hears the group, and so the cookie", until="version 2")
def lan__hears_the_group():
    with Bed() as bed:
        assert bed.cookie_is_heard_at(2), NOT_ANY_MORE


@prevented(ROOT, "the same, with `reply=fanout`, behind a switch")
def lan__hears_nothing_where_answers_are_unicast():
    """Not even with a packet socket, which sees what the switch brings."""
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
                    seen.append(s.recv(2048))
            except BlockingIOError:
                pass
        cookie = bed.aggregator.cookie.to_bytes(8, "big")
        assert not any(cookie in frame for frame in seen), "the cookie was heard"


@possible(USER, "takes a rank with the cookie, which ends the session", until="version 2")
def lan__takes_a_rank():
    with Bed() as bed:
        def take():
            with udp() as s:
                return not join(s, bed.fields, rank=1).refusal

        assert does(bed.net.worker(2), take), NOT_ANY_MORE
        assert bed.session() > bed.fields["epoch"], NOT_ANY_MORE
        assert bed.aggregator.ask("jobs")["jobs"][0]["members"][1]["address"] == \
            bed.net.address(2), NOT_ANY_MORE


@possible(ROOT, "answers from the aggregator's address and port", until="version 2")
def lan__spoofs_the_aggregator():
    with Bed() as bed:
        def order():
            spoofer = Spoofer()
            for member in bed.members:
                spoofer.send(next(bed.answers()), (netns.AGGREGATOR4, wire.PORT), member)
            return True

        assert does(bed.net.worker(2), order, user=0)
        # the order may still wait for the address of the member's network card
        assert adversary.until(lambda: all(
            answer.get("errno") == "ESTALE"
            for answer in bed.ranks.all(do="reduce", counts=[1024]))), NOT_ANY_MORE


@possible(ROOT, "contributes from a worker's address and port", until="version 2")
def lan__spoofs_a_worker():
    with Bed() as bed:
        bed.start()
        before = bed.aggregator.stats()["events"]["added"]

        def contribute():
            Spoofer().send(next(bed.contributions(chunks=1)), bed.members[0],
                           (netns.AGGREGATOR4, wire.PORT))
            return True

        assert does(bed.net.worker(2), contribute, user=0)
        added = adversary.until(lambda: bed.aggregator.stats()["events"]["added"] > before)
        assert added, NOT_ANY_MORE


adversary.main()
