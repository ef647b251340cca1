#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""AF_THC over links that lose, duplicate, reorder and corrupt (netem), each rank
in a namespace of its own, aggregated by native XDP: every sum is right, no
rank stalls. Then aggregators that die in the middle of a round: XDP goes on
without its daemon, of a software one the error comes in time and connect()
works again.

netem sits on the switch's ports, where packets pass one by one: towards the
aggregator for what goes up, towards the workers for what comes down.
"""
import atexit
import ctypes
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../netns"), os.path.join(HERE, "../../tools")]
import tap  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from tap import netns  # noqa: E402

AF_THC, SOL_THC = 18, 0x5448
THC_SEND = 1
OP_ADD, OP_OR = 2, 3
OPT_TIMEOUT, OPT_STATS = 1, 7
LANES = 1024
CHUNKS = 120
N = 3
PATIENCE = 30
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
    return room.raw[:got], control.raw[16:16 + 32]


class Rank:
    """One socket, in its worker's namespace."""

    def __init__(self, net, aggregator, rank, v6=False):
        self.rank = rank
        self.taken = {}         # received before its turn, by number
        self.sock = netns.in_namespace(net.worker(rank), lambda: socket.socket(
            AF_THC, socket.SOCK_SEQPACKET, 0))
        inet, at = ((socket.AF_INET6, netns.AGGREGATOR6) if v6 else
                    (socket.AF_INET, netns.AGGREGATOR4))
        self.place = struct.pack("=HH2sHB3xI16sQ", AF_THC, inet, struct.pack("!H", 18500),
                                 aggregator.job, rank, 0, socket.inet_pton(inet, at),
                                 aggregator.cookie)

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
        _op, _width, flags, number, _tag, chunks, least, _, ranks = struct.unpack("=BBHIQIHHQ",
                                                                                  received)
        assert (flags, chunks, least, ranks) == (0, CHUNKS, N, (1 << N) - 1), "not everybody's sum"
        return number, data[:CHUNKS * LANES]

    def stats(self):
        names = ("messages failures packets_up bytes_up packets_down bytes_down chunks retransmits "
                 "repeats waits excluded partial bad_sum unexpected foreign window_cuts send_errors "
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
        # they come as they become complete: a later one may be first
        while number not in rank.taken:
            got, lanes = rank.receive()
            rank.taken[got] = lanes
        assert rank.taken.pop(number) == want, f"rank {rank.rank}: wrong lanes in round {number}"


def harm(net, how):
    """netem in both directions; "" for none."""
    for port in ["agg", *(f"w{w}" for w in range(N))]:
        tc = ["tc", "-n", net.switch, "qdisc"]
        subprocess.run([*tc, "del", "dev", port, "root"], stderr=subprocess.DEVNULL, check=False)
        if how:
            subprocess.run([*tc, "add", "dev", port, "root", "netem", "limit", "5000",
                            *how.split()], check=True)


def dropped(net):
    done = subprocess.run(["tc", "-n", net.switch, "-s", "qdisc", "show"], check=True,
                          capture_output=True, text=True)
    return sum(int(line.split("dropped ")[1].split(",")[0])
               for line in done.stdout.splitlines() if "dropped " in line)


_standing = []


def topology(software, v6):
    """The one that all cases of loss share, joined anew by each."""
    if not _standing or _standing[2] != (software, v6):
        take_down()
        net = netns.Topology(N)
        net._limit_segments(1)
        job = {"group": "ff15::77"} if v6 else None
        _standing[:] = [net, Aggregator(net, N, software=software, job=job), (software, v6)]
    return _standing[:2]


@atexit.register
def take_down():
    if _standing:
        _standing[1].stop()
        _standing[0].close()
        _standing.clear()


def check(how, rounds=4, software=False, v6=False):
    start = time.monotonic()
    net, aggregator = topology(software, v6)
    ranks = [Rank(net, aggregator, w, v6) for w in range(N)]
    try:
        harm(net, how)
        join(ranks)
        ops = [OP_ADD, OP_OR]
        # two messages in flight
        send_round(ranks, ops[0], 0)
        for number in range(rounds):
            if number + 1 < rounds:
                send_round(ranks, ops[(number + 1) % 2], number + 1)
            take_round(ranks, ops[number % 2], number)
        stats = [rank.stats() for rank in ranks]
        lost = dropped(net)
        print(f"# {how or 'no harm'}: {time.monotonic() - start:.1f} s, lost {lost}, retransmits "
              f"{[s['retransmits'] for s in stats]}, unexpected {[s['unexpected'] for s in stats]}")
        if "loss" in how:
            assert lost, "netem lost nothing: this showed nothing"
            assert sum(s["retransmits"] for s in stats), "lost packets without retransmission"
        assert all(s["memory"] == 0 and s["messages"] == rounds for s in stats)
    finally:
        harm(net, "")
        for rank in ranks:
            rank.close()


def xdp__no_loss():
    check("")


def xdp__loss_1_percent():
    check("loss 1%")


def xdp__loss_5_percent():
    check("loss 5%")


def xdp__loss_20_percent():
    check("loss 20%", rounds=3)


def xdp__duplication_reordering_corruption():
    check("delay 2ms 1ms loss 1% duplicate 3% corrupt 2% reorder 25% 50%")


def ipv6__loss_1_percent():
    check("loss 1%", v6=True)


def ipv6__loss_5_percent_and_reordering():
    check("delay 2ms 1ms loss 5% duplicate 2% corrupt 1% reorder 25% 50%", v6=True)


def software__loss_5_percent():
    check("loss 5% duplicate 2%", software=True)


def goes_on(v6):
    take_down()
    job = {"group": "ff15::77"} if v6 else None
    with netns.Topology(N) as net, Aggregator(net, N, job=job) as aggregator:
        ranks = [Rank(net, aggregator, w, v6) for w in range(N)]
        join(ranks)
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
    take_down()
    with netns.Topology(N) as net, Aggregator(net, N, software=True) as aggregator:
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
        join(ranks)
        send_round(ranks, OP_ADD, 7)
        take_round(ranks, OP_ADD, 7)
        for rank in ranks:
            rank.close()


if __name__ == "__main__":
    try:
        socket.socket(AF_THC, socket.SOCK_SEQPACKET, 0).close()
    except OSError as reason:
        print(f"1..0 # SKIP this kernel has no AF_THC ({reason}): run it by tests/vm/check")
        sys.exit(tap.SKIPPED)
    tap.main([xdp__no_loss, xdp__loss_1_percent, xdp__loss_5_percent, xdp__loss_20_percent,
              xdp__duplication_reordering_corruption, ipv6__loss_1_percent,
              ipv6__loss_5_percent_and_reordering, software__loss_5_percent,
              xdp__goes_on_without_its_daemon, ipv6__goes_on_without_its_daemon,
              software__its_death_is_an_error_in_time])
