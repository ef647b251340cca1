#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Attacks by a plain user of a host that takes part in a running job: the aggregator's host or
a worker's. The user has no raw socket, but sends from the host's own address. The tests give
the user the rest: keys, session, the workers' ports.
"""
import errno
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import (NOT_ANY_MORE, Bed, does, ended_well, fork_in, hear_group,  # noqa: E402
                       possible, prevented)
from tap import netns  # noqa: E402

AGGREGATOR = "a user of the aggregator's host"
WORKER = "a user of a worker's host"
SILENCE = 3             # seconds of listening for packets that the user may not hear


@prevented(AGGREGATOR, "takes a port that workers believe")
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

        assert does(bed.net.aggregator, bind_all), "a port of the aggregator is free"


@prevented(AGGREGATOR, "answers, or contributes, from another port")
def user_of_aggregator__is_not_believed():
    with Bed() as bed:
        bed.withstands(bed.net.aggregator)


@prevented(AGGREGATOR, "answers, or contributes, from another port, with `reply=fanout`")
def user_of_aggregator__is_not_believed_where_answers_are_unicast():
    with Bed(reply="fanout") as bed:
        bed.withstands(bed.net.aggregator)


@prevented(AGGREGATOR, "answers, or contributes, from another port, with `--software`")
def user_of_aggregator__is_not_believed__software():
    with Bed(software=True) as bed:
        bed.withstands(bed.net.aggregator)


def is_heard_at_aggregator(bed, enough):
    """True if a user of the aggregator's host hears a packet of the job's group for which
    enough(packet) is true."""
    def listen():
        return hear_group(bed.job["group"], bed.job["group_port"], netns.AGGREGATOR4, enough,
                          SILENCE)

    child = fork_in(bed.net.aggregator, listen)
    bed.start()
    assert bed.passes() == bed.honest
    bed.start()
    return ended_well(child)


def anything(packet):
    print(f"# heard {packet}")
    return True


@prevented(AGGREGATOR, "hears the group, and so the sums")
def user_of_aggregator__hears_no_group():
    with Bed() as bed:
        assert not is_heard_at_aggregator(bed, anything), "the group is heard there"


@possible(AGGREGATOR, "hears the group, and so the sums, with `--software`", until="ever")
def user_of_aggregator__hears_the_group__software():
    """Workers on the aggregator's own host need the packets of the group."""
    with Bed(software=True) as bed:
        assert is_heard_at_aggregator(bed, lambda packet: packet.op == wire.LUT_ADD), NOT_ANY_MORE


@prevented(AGGREGATOR, "asks thcd for counters, members or commands; reads its maps")
def user_of_aggregator__finds_closed_doors():
    with Bed() as bed:
        def knock():
            try:
                bed.aggregator.ask("jobs")
                print("# thcd answers everybody")
                return False
            except PermissionError:
                pass
            try:
                print("# pins:", os.listdir(os.path.join(netns.THCD_PINS, bed.net.name)))
                return False
            except PermissionError:
                return True

        assert does(bed.net.aggregator, knock)


@prevented(WORKER, "answers, or contributes, from another port")
def user_of_worker__is_not_believed():
    with Bed() as bed:
        bed.withstands(bed.net.worker(0))


@possible(WORKER, "hears the group, and so the sums", until="ever")
def user_of_worker__hears_the_group():
    with Bed() as bed:
        assert bed.sums_are_heard_at(0), NOT_ANY_MORE


adversary.main(user_of_aggregator__has_no_port_that_workers_believe,
               user_of_aggregator__is_not_believed,
               user_of_aggregator__is_not_believed_where_answers_are_unicast,
               user_of_aggregator__hears_no_group, user_of_worker__hears_the_group)
