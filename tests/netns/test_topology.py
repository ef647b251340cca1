#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The topology that other tests use: it connects, its shaped links limit the
rate, its impaired links harm single THC packets and no other packets, and it
leaves nothing behind.
"""
import glob
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from tap import netns  # noqa: E402

PORT = 18500
PATIENCE = 20.0         # seconds after which a receiver counts as hanging
QUIET = 0.5             # seconds without a packet after which no more packets come
SOL_UDP, UDP_SEGMENT, SO_RCVBUFFORCE = 17, 103, 33


def udp(net, ns, address="", port=0, family=socket.AF_INET):
    """A UDP socket that lives in namespace ns."""
    def make():
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        s.bind((address, port))
        s.settimeout(PATIENCE)
        return s
    return netns.in_namespace(ns, make)


def ends_of(net):
    """{direction: (sender's and receiver's namespace, receiver's address)} of the first worker"""
    return {"up": (net.worker(0), net.aggregator, netns.AGGREGATOR4),
            "down": (net.aggregator, net.worker(0), net.address(0))}


def drain(s):
    got = []
    s.settimeout(QUIET)
    try:
        while True:
            got.append(s.recv(65536))
    except socket.timeout:
        return got


def burst(sender, to, packets, size=512):
    """Numbered packets in GSO batches of 16, as libthc sends them."""
    sender.setsockopt(SOL_UDP, UDP_SEGMENT, size)
    for first in range(0, packets, 16):
        sender.sendto(b"".join(struct.pack("!I", i) * (size // 4)
                               for i in range(first, first + 16)), to)
        if first % 512 == 0:
            time.sleep(0.001)


def die_with_parent__of_one_that_is_gone():
    """Between fork() and die_with_parent() the parent may have been killed."""
    out, into = os.pipe()
    parent = os.fork()
    if not parent:
        parent = os.getpid()
        if not os.fork():
            while os.getppid() == parent:
                time.sleep(0.01)
            netns.die_with_parent(parent)
            os.write(into, b"lives on")
        os._exit(0)
    os.waitpid(parent, 0)
    os.close(into)
    with open(out, "rb") as pipe:
        assert pipe.read() == b""


def topology__connects_over_both_families():
    with netns.Topology(workers=3) as net:
        for family, at in ((socket.AF_INET, netns.AGGREGATOR4),
                           (socket.AF_INET6, netns.AGGREGATOR6)):
            with udp(net, net.aggregator, at, PORT, family) as daemon:
                for w in range(3):
                    with udp(net, net.worker(w), family=family) as worker:
                        worker.sendto(b"hello", (at, PORT))
                        data, back = daemon.recvfrom(100)
                        daemon.sendto(data, back)
                        assert worker.recv(100) == b"hello", f"worker {w}"


def topology__multicast_reaches_every_worker():
    group = "239.77.0.1"
    with netns.Topology(workers=3) as net:
        member = struct.pack("4s4si", socket.inet_aton(group), b"\0" * 4, 0)
        listeners = [udp(net, net.worker(w), group, 18600) for w in range(3)]
        for s in listeners:
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        heard, end = set(), time.monotonic() + 10
        with udp(net, net.aggregator, netns.AGGREGATOR4, PORT) as daemon:
            # repeated, since the switch learns of a member when its report arrives
            while len(heard) < 3 and time.monotonic() < end:
                daemon.sendto(b"sum", (group, 18600))
                heard |= {w for w, s in enumerate(listeners) if drain(s)}
        for s in listeners:
            s.close()
        assert heard == {0, 1, 2}, f"only workers {heard} have heard it"


def rate_through(out, to, address):
    """Mb/s of a saturated link, from the first packet received to the last."""
    start, got, first, last = time.monotonic(), 0, None, None
    to.settimeout(0)
    while time.monotonic() < start + 0.6:
        out.sendto(bytes(1400 * 16), address)
        try:
            while True:
                got += len(to.recv(2000)) + 42
                last = time.monotonic()
                first = first or last
        except BlockingIOError:
            pass
    drain(to)
    return got * 8e-6 / (last - first)


def topology__shaped_links_limit_both_directions():
    with netns.Topology(workers=1, shape="200mbit") as net:
        for direction, (source, sink, address) in ends_of(net).items():
            with udp(net, sink, address, PORT) as to, udp(net, source) as out:
                out.setsockopt(SOL_UDP, UDP_SEGMENT, 1400)
                # the link is idle while the sender waits for a CPU
                rates = [rate_through(out, to, (address, PORT)) for _ in range(3)]
                text = ", ".join(f"{rate:.0f}" for rate in rates)
                print(f"# {direction}: {text} Mb/s of 200")
                assert 120 < statistics.median(rates) < 215, f"{direction}: {text} Mb/s of 200"


def impair__harms_packets_one_by_one():
    packets = 8000
    impair = netns.Impair(drop=0.05, corrupt=0.02, duplicate=0.03)
    with netns.Topology(workers=1, impair=impair) as net:
        for direction, (source, sink, address) in ends_of(net).items():
            with udp(net, sink, address, PORT) as to, udp(net, source) as out:
                burst(out, (address, PORT), packets)
                got = drain(to)
            count = net.impaired()[direction]
            print(f"# {direction}: {count}")
            assert count["seen"] == packets, "not every packet was met"
            assert count["super"] == 0, "super-packets were met"
            for what, p in (("dropped", 0.05), ("corrupted", 0.02), ("duplicated", 0.03)):
                want = packets * p
                assert abs(count[what] - want) < 6 * want ** 0.5 + 0.1 * want, f"{what}: {count}"
            assert len(got) == packets - count["dropped"] + count["duplicated"]
            whole = [p for p in got if p == p[:4] * 128]
            bad = [p for p in got if p != p[:4] * 128]
            for p in bad:
                word = max(set(p[i:i + 4] for i in range(0, 512, 4)), key=p.count)
                assert sum(a != b for a, b in zip(p, word * 128)) == 1, "more than one byte changed"
            assert count["corrupted"] <= len(bad) <= count["corrupted"] + count["duplicated"]
            assert len(set(whole)) < len(whole), "no packet came twice"


def impair__makes_packets_late():
    packets = 8000
    with netns.Topology(workers=1, impair=netns.Impair(late=0.05)) as net:
        for direction, (source, sink, address) in ends_of(net).items():
            with udp(net, sink, address, PORT) as to, udp(net, source) as out:
                burst(out, (address, PORT), packets)
                got = [struct.unpack_from("!I", p)[0] for p in drain(to)]
            count = net.impaired()[direction]
            early = sum(a > b for a, b in zip(got, got[1:]))
            print(f"# {direction}: {count}, {early} come right before an earlier one")
            assert abs(count["late"] - 0.05 * packets) < 6 * (0.05 * packets) ** 0.5, count
            assert sorted(got) == list(range(packets)), "a packet is missing, or came twice"
            assert count["overtaken"] >= early > 0, "no packet was overtaken"


def impair__leaves_other_traffic_whole():
    with netns.Topology(workers=1, impair=netns.Impair(0.9, 0.05, 0.05)) as net:
        with udp(net, net.aggregator, netns.AGGREGATOR4, 9999) as to, \
                udp(net, net.worker(0)) as out:
            burst(out, (netns.AGGREGATOR4, 9999), 320)
            assert len(drain(to)) == 320
        assert net.impaired()["up"]["seen"] == 0


def impair__ends_when_healed():
    with netns.Topology(workers=1, impair=netns.Impair(0.5)) as net:
        net.heal()
        with udp(net, net.aggregator, netns.AGGREGATOR4, PORT) as to, \
                udp(net, net.worker(0)) as out:
            burst(out, (netns.AGGREGATOR4, PORT), 320)
            assert len(drain(to)) == 320
        shown = net.run(net.worker(0), ["ip", "-d", "link", "show", "eth0"]).stdout
        assert "gso_max_segs 65535" in shown, shown


def left_of(pid):
    return [ns for ns in os.listdir(netns.RUN) if ns.startswith(f"thc-{pid}-")]


def start_tool(*argv):
    tool = os.path.join(netns.ROOT, "tools/netns.py")
    p = subprocess.Popen([sys.executable, tool, "--workers", "2", *argv, "sleep", "60"],
                         stdout=subprocess.PIPE, text=True, process_group=0)
    p.stdout.readline()
    assert len(left_of(p.pid)) == 4
    return p


def cleanup__on_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        p = start_tool()
        os.killpg(p.pid, number)
        assert p.wait(10) == 128 + number
        p.stdout.close()
        assert not left_of(p.pid), f"namespaces left after signal {number}"


def cleanup__sweeps_after_sigkill_only_dead_runs():
    alive, dead = start_tool(), start_tool()
    try:
        os.killpg(dead.pid, signal.SIGKILL)
        dead.wait()
        assert left_of(dead.pid)
        place = os.path.join(tempfile.gettempdir(), f"thc-{dead.pid}-tmp-")
        with open(f"{place}file", "w", encoding="ascii"):
            os.mkdir(f"{place}folder")
        netns.sweep()
        assert not glob.glob(f"{glob.escape(place)}*"), "sweep left a dead run's temporary files"
        assert not left_of(dead.pid), "sweep left a dead run's namespaces"
        assert len(left_of(alive.pid)) == 4, "sweep removed a live run's namespaces"
    finally:
        os.killpg(alive.pid, signal.SIGTERM)
        alive.wait()
        alive.stdout.close()
        dead.stdout.close()


def cleanup__sweep_leaves_another_pid_namespace_alone():
    """That namespace has no process with the id in the names of the network namespaces."""
    alive = start_tool()
    try:
        subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", sys.executable,
                        os.path.join(netns.ROOT, "tools/netns.py"), "--sweep"], check=True)
        assert len(left_of(alive.pid)) == 4, "sweep removed a live run's namespaces"
    finally:
        os.killpg(alive.pid, signal.SIGTERM)
        alive.wait()
        alive.stdout.close()
    assert not os.path.exists(f"{netns.LOCKS}/{alive.pid}")


if __name__ == "__main__":
    tap.main([die_with_parent__of_one_that_is_gone, topology__connects_over_both_families,
              topology__multicast_reaches_every_worker,
              topology__shaped_links_limit_both_directions, impair__harms_packets_one_by_one,
              impair__makes_packets_late, impair__leaves_other_traffic_whole,
              impair__ends_when_healed, cleanup__on_signals,
              cleanup__sweeps_after_sigkill_only_dead_runs,
              cleanup__sweep_leaves_another_pid_namespace_alone])
