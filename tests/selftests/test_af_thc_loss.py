#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""AF_THC over links that lose, duplicate, reorder and corrupt (netem), each rank
in a namespace of its own, aggregated by native XDP: netem has done what a case
asked for, every sum is right, no rank stalls. Then aggregators die in the middle
of a round: XDP goes on without its daemon; without a software aggregator the
error comes in time, and connect() works again.

netem is on the switch's ports, where packets pass one by one: on the aggregator's
port for the way up, on the workers' ports for the way down. A filter before netem
counts its packets.
"""
import atexit
import collections
import ctypes
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../../tools")]
import tap  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from tap import netns  # noqa: E402

AF_THC, SOL_THC = 18, 0x5448
THC_SEND = 1
OP_ADD, OP_OR = 2, 3
OPT_TIMEOUT, OPT_STATS, OPT_KEY = 1, 7, 9
LANES = 1024
CHUNKS = 120
N = 3
PORTS = ["agg", *(f"w{w}" for w in range(N))]   # of the switch
PATIENCE = 30
DEBUG = os.environ.get("THC_VM_KERNEL") == "debug"
# Kernel 6.1 is for the aggregator's native XDP; the other kernels test the workers.
FEW = os.environ.get("THC_VM_KERNEL") == "6.1"
# A rank waits while thcd starts: on the debug kernel of a busy host, minutes.
START_MS = 600000
# Limit in seconds of a case that takes one second, or five on a busy host.
NO_STALL = 100 if DEBUG else 20
EVEN = int.from_bytes(b"\xff\0" * (CHUNKS * LANES // 2), "little")

_libc = ctypes.CDLL(None, use_errno=True)


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32),
                ("iov", ctypes.POINTER(_Iovec)), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


def receive_message(fd):
    """recvmsg() of a family that Python does not know: (payload, struct thc_received)."""
    room = ctypes.create_string_buffer(CHUNKS * (LANES + 2))
    control = ctypes.create_string_buffer(256)
    iov = _Iovec(ctypes.addressof(room), len(room))
    message = _Msghdr(None, 0, ctypes.pointer(iov), 1, ctypes.addressof(control), len(control), 0)
    got = _libc.recvmsg(fd, ctypes.byref(message), 0)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return room.raw[:got], control.raw[16:16 + 40]


class Rank:
    """One socket, in its worker's namespace."""

    def __init__(self, net, aggregator, rank, v6=False):
        self.rank = rank
        self.taken = {}         # received before its turn, by number
        self.sock = netns.in_namespace(net.worker(rank), lambda: socket.socket(
            AF_THC, socket.SOCK_SEQPACKET, 0))
        inet, at = ((socket.AF_INET6, netns.AGGREGATOR6) if v6 else
                    (socket.AF_INET, netns.AGGREGATOR4))
        self.place = struct.pack("=HH2sHB3xI16s8x", AF_THC, inet, struct.pack("!H", 18500),
                                 aggregator.job, rank, 0, socket.inet_pton(inet, at))
        self.sock.setsockopt(SOL_THC, OPT_KEY, aggregator.key)

    def option(self, option, value):
        self.sock.setsockopt(SOL_THC, option, struct.pack("=I", value))

    def begin_join(self):
        self.sock.setblocking(False)
        if _libc.connect(self.sock.fileno(), self.place, len(self.place)):
            error = ctypes.get_errno()
            assert error == 115, f"connect: {os.strerror(error)}"       # EINPROGRESS

    def wait(self, events):
        poll = select.poll()
        poll.register(self.sock, events)
        assert poll.poll(PATIENCE * 1000), f"rank {self.rank} stalls: {self.stats()}"

    def end_join(self):
        self.wait(select.POLLOUT | select.POLLERR)
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        assert not error, f"rank {self.rank}: {os.strerror(error)}"

    def send(self, op, number, payload):
        describe = struct.pack("=BBHIQ", op, 32 if op == OP_OR else 8, 0, number, number)
        self.wait(select.POLLOUT | select.POLLERR)
        self.sock.sendmsg([payload], [(SOL_THC, THC_SEND, describe)])

    def receive(self):
        """(number, lanes); raises the socket's error."""
        self.wait(select.POLLIN | select.POLLERR)
        data, received = receive_message(self.sock.fileno())
        fields = struct.unpack("=BBHIQIHHQII", received)
        _op, _width, flags, number, _tag, chunks, least, _, ranks, _digest, missed = fields
        assert not missed, f"{missed} sums are missing"
        assert (flags, chunks, least, ranks) == (0, CHUNKS, N, (1 << N) - 1), "not everybody's sum"
        return number, data[:CHUNKS * LANES]

    def stats(self):
        names = ("messages failures packets_up bytes_up packets_down bytes_down chunks retransmits "
                 "repeats waits excluded partial bad_tag unexpected foreign window_cuts send_errors "
                 "rtt_us window memory memory_peak").split()
        return dict(zip(names, struct.unpack("=21Q", self.sock.getsockopt(SOL_THC, OPT_STATS, 168))))

    def close(self):
        self.sock.close()


def join(ranks):
    for rank in ranks:
        rank.begin_join()
    for rank in ranks:
        rank.end_join()


def payload(rank, number):
    return random.Random(rank * 1000003 + number).randbytes(CHUNKS * LANES)


def reference(op, number):
    """The sum of all ranks by plain integers."""
    parts = [int.from_bytes(payload(rank, number), "little") for rank in range(N)]
    if op == OP_OR:
        total = parts[0] | parts[1] | parts[2]
    else:
        low = sum(part & EVEN for part in parts) & EVEN
        high = sum((part >> 8) & EVEN for part in parts) & EVEN
        total = low | high << 8
    return total.to_bytes(CHUNKS * LANES, "little")


def send_round(ranks, op, number):
    for rank in ranks:
        rank.send(op, number, payload(rank.rank, number))


def take_round(ranks, op, number):
    want = reference(op, number)
    for rank in ranks:
        # messages come when they are complete, so a later one may be first
        while number not in rank.taken:
            got, lanes = rank.receive()
            rank.taken[got] = lanes
        assert rank.taken.pop(number) == want, f"rank {rank.rank}: wrong lanes in round {number}"


def switch_tc(net, options, commands, **more):
    """Output of all commands on the switch, by one tc."""
    return subprocess.run(["tc", "-n", net.switch, *options, "-batch", "-"], text=True,
                          input="\n".join(commands), stdout=subprocess.PIPE, **more).stdout


def harm(net, how):
    """Start netem in both directions, with counters at zero; heal() ends it."""
    switch_tc(net, [], [command for port in PORTS for command in (
        f"qdisc add dev {port} clsact",
        f"filter add dev {port} egress matchall classid 1:1",
        f"qdisc add dev {port} root netem limit 5000 {how}")], check=True)


def heal(net):
    switch_tc(net, ["-force"], [f"qdisc del dev {port} {qdisc}" for port in PORTS
                                for qdisc in ("clsact", "root")],
              stderr=subprocess.DEVNULL, check=False)


def harmed(net):
    """{what netem did: packets} since harm()."""
    def shown(*commands):
        text = switch_tc(net, ["-j", "-s"], commands, check=True)
        return [entry for line in text.splitlines() for entry in json.loads(line)]

    counts = collections.Counter()
    qdiscs = [q for q in shown("qdisc show") if q["kind"] == "netem"]
    # filters come last, so that packets in between do not count as duplicates
    filters = shown(*(f"filter show dev {q['dev']} egress" for q in qdiscs))
    for q in qdiscs:
        counts["loss"] += q["drops"]
        counts["reorder"] += q["requeues"]
        counts["duplicate"] += q["packets"] + q["qlen"] + q["drops"]
    counts["given"] = sum(f["options"]["rule_hit"] for f in filters if "options" in f)
    counts["duplicate"] -= counts["given"]
    return counts


# The host's counters of damaged packets.
REFUSED = ("InHdrErrors", "InAddrErrors", "InUnknownProtos", "InTruncatedPkts", "NoPorts",
           "InErrors")


def refused(net, ranks, aggregator):
    """Packets that a receiver refused, in any layer."""
    def snmp():
        with open("/proc/thread-self/net/snmp") as f:
            lines = [line.split() for line in f]
        total = sum(int(value) for names, values in zip(lines[::2], lines[1::2])
                    for name, value in zip(names, values)
                    if names[0] in ("Ip:", "Udp:") and name in REFUSED)
        with open("/proc/thread-self/net/snmp6") as f:
            return total + sum(int(value) for name, value in map(str.split, f)
                               if name.startswith(("Ip6", "Udp6")) and name.endswith(REFUSED))

    hosts = [net.aggregator, *(net.worker(w) for w in range(N))]
    drops = aggregator.stats()["drops"]
    return (sum(netns.in_namespace(host, snmp) for host in hosts) + sum(drops.values()) +
            sum(rank.stats()["bad_tag"] + rank.stats()["foreign"] for rank in ranks))


def asked(how):
    """{impairment: probability}"""
    words = how.split()
    return {word: float(words[i + 1].rstrip("%")) / 100 for i, word in enumerate(words)
            if word in ("loss", "duplicate", "corrupt", "reorder")}


_shared = []            # the topology of all cases, and its limit of GSO segments
_standing = []          # the aggregator of the cases of loss, and its kind


def network(segments):
    """The topology of all cases: new ones would take a machine seconds to make."""
    if not _shared:
        _shared[:] = [netns.Topology(N), netns._GSO_SEGMENTS_DEFAULT]
    if _shared[1] != segments:
        _shared[0]._limit_segments(segments)
        _shared[1] = segments
    return _shared[0]


def job_of(v6):
    # no client here asks for tables of rates, which take thcd long to compute
    return {"rate": "fixed", **({"group": "ff15::77"} if v6 else {})}


def topology(software, v6):
    """The topology, and the aggregator that cases of loss share; each case joins it anew."""
    if not _standing or _standing[1] != (software, v6):
        stop_standing()
        _standing[:] = [Aggregator(network(1), N, software=software, job=job_of(v6)),
                        (software, v6)]
    return _shared[0], _standing[0]


def stop_standing():
    if _standing:
        _standing[0].stop()
        _standing.clear()


@atexit.register
def take_down():
    stop_standing()
    if _shared:
        _shared[0].close()
        _shared.clear()


def check(how, rounds=4, software=False, v6=False):
    net, aggregator = topology(software, v6)
    ranks = [Rank(net, aggregator, w, v6) for w in range(N)]
    before = refused(net, ranks, aggregator)
    start = time.monotonic()
    try:
        if how:
            harm(net, how)
        join(ranks)
        ops = [OP_ADD, OP_OR]
        # two messages in flight
        send_round(ranks, ops[0], 0)
        for number in range(rounds):
            if number + 1 < rounds:
                send_round(ranks, ops[(number + 1) % 2], number + 1)
            take_round(ranks, ops[number % 2], number)
        seconds = time.monotonic() - start
        stats = [rank.stats() for rank in ranks]
        counts = harmed(net) if how else collections.Counter()
        counts["corrupt"] = refused(net, ranks, aggregator) - before
        print(f"# {how or 'no harm'}: {seconds:.1f} s, {dict(counts)}, retransmits "
              f"{[s['retransmits'] for s in stats]}, unexpected {[s['unexpected'] for s in stats]}")
        for kind, probability in asked(how).items():
            expected = probability * counts["given"]
            assert counts[kind] > expected / 4, \
                f"{kind} of {counts[kind]} packets, not of {expected:.0f}: this showed nothing"
        if "loss" in how or "corrupt" in how:
            assert sum(s["retransmits"] for s in stats), "lost packets without retransmission"
        if "duplicate" in how:
            assert sum(s["unexpected"] for s in stats), "no rank noticed a duplicate"
        assert all(s["memory"] == 0 and s["messages"] == rounds for s in stats)
        assert seconds < NO_STALL, f"{seconds:.1f} s: somebody waited for nothing"
    finally:
        if how:
            heal(net)
        for rank in ranks:
            rank.close()


def case(name, how, **more):
    """A case for tap.main()."""
    def run():
        check(how, **more)
    run.__name__ = name
    return run


LOSSES = [case("xdp__no_loss", ""),
          *(case(f"xdp__{kind}_{percent}_percent", f"{delay}{kind} {percent}%", rounds=rounds)
            for kind, delay in (("loss", ""), ("duplicate", ""), ("corrupt", ""),
                                # packets without delay overtake delayed packets
                                ("reorder", "delay 3ms "))
            for percent, rounds in ((1, 4), (5, 4), (20, 3)) if kind == "loss" or percent == 20),
          case("xdp__all_of_it", "delay 2ms 1ms loss 1% duplicate 3% corrupt 2% reorder 25%"),
          case("ipv6__loss_1_percent", "loss 1%", v6=True),
          case("ipv6__all_of_it", "delay 2ms 1ms loss 5% duplicate 2% corrupt 1% reorder 25%",
               v6=True),
          case("software__loss_5_percent_and_duplicates", "loss 5% duplicate 2%", software=True)]


def goes_on(v6):
    stop_standing()
    net = network(netns._GSO_SEGMENTS_DEFAULT)
    with Aggregator(net, N, job=job_of(v6)) as aggregator:
        ranks = [Rank(net, aggregator, w, v6) for w in range(N)]
        join(ranks)
        for rank in ranks:
            rank.option(OPT_TIMEOUT, START_MS)
        send_round(ranks[:2], OP_ADD, 0)
        time.sleep(0.2)
        aggregator.kill()
        send_round(ranks[2:], OP_ADD, 0)
        take_round(ranks, OP_ADD, 0)
        send_round(ranks[:1], OP_OR, 1)
        aggregator.start()
        send_round(ranks[1:], OP_OR, 1)
        take_round(ranks, OP_OR, 1)
        assert not any(rank.stats()["failures"] for rank in ranks)
        for rank in ranks:
            rank.close()


def xdp__goes_on_without_its_daemon():
    """Rank 2 is late when thcd dies: the round ends, the next ones too, and thcd comes back."""
    goes_on(v6=False)


def ipv6__goes_on_without_its_daemon():
    goes_on(v6=True)


def software__its_death_is_an_error_in_time():
    """Rank 2 is late when thcd dies: ranks fail in time; then all of them join again."""
    stop_standing()
    net = network(netns._GSO_SEGMENTS_DEFAULT)
    with Aggregator(net, N, software=True, job=job_of(False)) as aggregator:
        ranks = [Rank(net, aggregator, w) for w in range(N)]
        join(ranks)
        for rank in ranks:
            rank.option(OPT_TIMEOUT, 3000)
        send_round(ranks[:2], OP_ADD, 0)
        time.sleep(0.2)
        aggregator.kill()
        start = time.monotonic()
        for rank in ranks[:2]:
            try:
                rank.receive()
                raise AssertionError("a sum without all ranks")
            except OSError as error:
                print(f"# rank {rank.rank}: {error}")
                assert error.errno in (110, 111), error         # ETIMEDOUT, ECONNREFUSED
        assert time.monotonic() - start < 10
        aggregator.start("--fresh")
        for rank in ranks:
            rank.option(OPT_TIMEOUT, 60000)
        join(ranks)
        send_round(ranks, OP_ADD, 7)
        take_round(ranks, OP_ADD, 7)
        for rank in ranks:
            rank.close()


if __name__ == "__main__":
    try:
        socket.socket(AF_THC, socket.SOCK_SEQPACKET, 0).close()
    except OSError as reason:
        if os.environ.get("THC_VM_MODULE"):
            print(f"1..1\nnot ok 1 - socket: {reason}")
            sys.exit(1)
        print(f"1..0 # SKIP this kernel has no AF_THC ({reason}): run it by tests/vm/check")
        sys.exit(tap.SKIPPED)
    if FEW:
        print("# this is 6.1: native XDP only, over both families, with all harms at once")
        tap.main([c for c in LOSSES if c.__name__.endswith("__all_of_it")] +
                 [xdp__goes_on_without_its_daemon])
    if DEBUG:
        print("# this is the debug kernel: over IPv4 and through XDP only, losses of 5 % and all "
              "harms at once, and an aggregator that dies")
        tap.main([c for c in LOSSES if c.__name__ in ("xdp__loss_5_percent", "xdp__all_of_it")] +
                 [software__its_death_is_an_error_in_time])
    tap.main([*LOSSES, xdp__goes_on_without_its_daemon, ipv6__goes_on_without_its_daemon,
              software__its_death_is_an_error_in_time])
