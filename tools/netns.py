#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Network namespaces for the demo, the benchmarks and the tests: one aggregator
or several, n workers and a switch. Only this file makes and removes them; the
caller runs programs inside.

         thc-PID-K-agg        thc-PID-K-w0   ...   thc-PID-K-w<n-1>
        +-------------+      +-----------+        +-----------+
        | eth0        |      | eth0      |        | eth0      |
        | 10.77.0.100 |      | 10.77.0.1 |        | 10.77.0.n |
        | fd77::100   |      | fd77::1   |        | fd77::n   |
        +------+------+      +-----+-----+        +-----+-----+
               |                   |                    |          veth pairs, MTU 1500
        +------+-------------------+--------------------+-----+
        |     agg                 w0                 w<n-1>   |
        |                   bridge br0                        |
        |                  thc-PID-K-sw                       |
        +-----------------------------------------------------+

Further aggregators, agg1 and so on, have 10.77.0.101, fd77::101 and so on. The
switch does IGMP snooping and is the querier: a group's packets go to the group's
members alone, and no aggregator receives the answers of another one.

XDP on the aggregator's eth0 sends by redirect, which needs GRO on at the peer
("agg" above, or "host" below); XDP output bypasses qdiscs, so a shaped link
gets a namespace of its own, in which every frame is an skb:

        host eth0 ---- host [ bridge br0 ] net ---- switch port
                       tbf    thc-PID-K-l*  tbf
                       to the host          to the switch

Impaired worker links lose, corrupt, duplicate and delay THC packets in both
directions: tests/netns/impair.bpf.c on clsact of the switch's worker ports. A late
packet takes a detour through late0 and late1, and later packets overtake it.
Segmentation offload is then limited to one packet, and GRO is off on the way, so
that the impairment sees single packets.

    with netns.guard(), netns.Topology(workers=4) as net:
        daemon = net.popen(net.aggregator, ["build/thcd", ...])
        worker = net.popen(net.worker(0), [...])
"""
import argparse
import atexit
import contextlib
import ctypes
import fcntl
import functools
import itertools
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from forked import Forked, die_with_parent

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUN = "/run/netns"
# thcd has one entry per instance in each; the instance's name is the topology's.
THCD_PINS = "/sys/fs/bpf/thc"
THCD_SOCKETS = "/run/thc"
AGGREGATOR4 = "10.77.0.100"
AGGREGATOR6 = "fd77::100"
ROUTER4, OUTSIDE4 = "10.78.0.1", "10.78.0.2"    # behind()
WORKERS_MAX = 64
AGGREGATORS_MAX = 64
# A process with topologies holds a lock here: /proc of another PID namespace does not show it.
LOCKS = "/run/thc-netns"

_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
_ETHTOOL_SGRO = 0x2C
_GSO_SEGMENTS_DEFAULT = 65535

# Snooping takes effect 0.1 s after the bridge is up: the querier waits for reports.
_SNOOPING_BRIDGE = ["link add br0 type bridge forward_delay 0 mcast_igmp_version 3 "
                    "mcast_query_response_interval 10",
                    "link set br0 type bridge mcast_querier 1", "link set br0 up"]
# A shell made root by plain su has no sbin in its PATH.
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
_libc = ctypes.CDLL(None, use_errno=True)
_serial = itertools.count()
_locks = {}


class NetnsError(RuntimeError):
    """A failed set-up, and what to do about it, in a sentence."""


def build_dir():
    """Where the built programs are: $BUILD, or build/ in the source tree."""
    return os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))


def environment():
    """os.environ with LIBTHC in build_dir().

    RANK_PRELOAD names the library of the sanitizer that libthc is built with, which Python must
    load first. Leak detection is off, because Python does not free all memory at exit.
    """
    preload = os.environ.get("RANK_PRELOAD")
    return {"LIBTHC": os.path.join(build_dir(), "libthc.so"), **os.environ,
            **({"LD_PRELOAD": preload, "ASAN_OPTIONS":
                os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if preload else {})}


def output_name(path):
    """The user's name of an output file, which tools/in_vm.py maps to another file."""
    return os.environ.get("OUTPUT_NAME") or os.path.relpath(path)


def open_output(path):
    """Makes an output file; NetnsError, before a long run, if it cannot be written."""
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise NetnsError(f"cannot write {path}: {error.strerror}; give another --output") \
            from None


def open_folder(path):
    """Makes an output folder; NetnsError, before a long run, if it cannot be written."""
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise NetnsError(f"cannot write into {path}: {error.strerror}; give another --output") \
            from None


def why_not():
    """None if namespaces can be made here, else a sentence."""
    if os.geteuid() != 0:
        return "network namespaces need root: run this as root, or with sudo"
    for tool in ("ip", "tc", "nsenter", "ethtool"):
        if not shutil.which(tool):
            return f"'{tool}' is missing: apt-get install iproute2 util-linux ethtool"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    if done.returncode:
        return f"network namespaces cannot be made here: {done.stderr.strip()}"
    return None


def _ip(ns, lines):
    """Runs lines by one `ip -batch` in namespace ns (None: the current one)."""
    where = ["-n", ns] if ns else []
    done = subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(lines) + "\n",
                          capture_output=True, text=True)
    if done.returncode:
        raise NetnsError(f"ip in namespace {ns}: {done.stderr.strip()} "
                         f"(is something of an earlier run left? tools/netns.py --sweep)")


def move_into(ns):
    """Moves this thread into namespace ns."""
    fd = os.open(f"{RUN}/{ns}", os.O_RDONLY)
    try:
        if _libc.setns(fd, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {ns}")
    finally:
        os.close(fd)


def in_namespace(ns, call):
    """Returns call(), run by a thread in namespace ns; sockets that it makes stay in ns."""
    result = {}

    def body():
        try:
            move_into(ns)
            result["value"] = call()
        except BaseException as error:  # raised again in the caller's thread
            result["error"] = error

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if "error" in result:
        raise result["error"]
    return result["value"]


def _set_gro(ns, dev, on):
    def call():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            value = bytearray(struct.pack("II", _ETHTOOL_SGRO, on))
            address = (ctypes.c_char * len(value)).from_buffer(value)
            request = struct.pack("16sP", dev.encode(), ctypes.addressof(address))
            fcntl.ioctl(s, _SIOCETHTOOL, request.ljust(40, b"\0"))

    in_namespace(ns, call)


def _set_gro_forwarding(ns, dev, on):
    """GRO of forwarded UDP, as of TCP: both cross the topology in super-packets."""
    subprocess.run(["nsenter", f"--net={RUN}/{ns}", "ethtool", "-K", dev,
                    "rx-udp-gro-forwarding", "on" if on else "off"], check=True)


def _bypass_netfilter(ns):
    """Makes bridged frames bypass iptables: a real switch has no such rules."""
    def call():
        for family in ("arptables", "iptables", "ip6tables"):
            with contextlib.suppress(FileNotFoundError):  # br_netfilter is not loaded
                with open(f"/proc/sys/net/bridge/bridge-nf-call-{family}", "w") as f:
                    f.write("0")

    in_namespace(ns, call)


def stop(processes, patience=3.0):
    """Sends SIGTERM to all processes, and SIGKILL to those alive after patience seconds."""
    running = [p for p in processes if p.poll() is None]
    for p in running:
        p.terminate()
    end = time.monotonic() + patience
    for p in running:
        try:
            p.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


@contextlib.contextmanager
def guard():
    """The first SIGTERM, SIGHUP or SIGINT raises SystemExit; later ones are ignored."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    owner = os.getpid()

    def handler(number, _frame):
        if os.getpid() != owner:    # a forked child before exec()
            os._exit(128 + number)
        for s in signals:
            signal.signal(s, signal.SIG_IGN)  # cleaning up is not interrupted
        raise SystemExit(128 + number)

    old = {s: signal.signal(s, handler) for s in signals}
    try:
        yield
    finally:
        for s, h in old.items():
            signal.signal(s, h)


class Impair:
    """Impairments of every worker's link: probabilities per packet and direction."""

    def __init__(self, drop=0.0, corrupt=0.0, duplicate=0.0, late=0.0, port=18500):
        self.drop, self.corrupt, self.duplicate = drop, corrupt, duplicate
        self.late, self.port = late, port


def _lock_of(pid):
    return f"{LOCKS}/{pid}"


def _drop_lock(pid):
    """Removes the lock file of process pid; False: a process holds the lock."""
    if pid == os.getpid() and pid in _locks:
        os.close(_locks.pop(pid))
    try:
        fd = os.open(_lock_of(pid), os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(fd).st_nlink:   # another sweep() was faster
            return _drop_lock(pid)
        os.unlink(_lock_of(pid))
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def _hold_lock():
    """Locks this process's file until its end. The lock is shared: a process of another PID
    namespace may have the same id.
    """
    pid = os.getpid()
    while pid not in _locks:
        os.makedirs(LOCKS, mode=0o700, exist_ok=True)
        fd = os.open(_lock_of(pid), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        # not flock(): forked children would keep the lock
        fcntl.lockf(fd, fcntl.LOCK_SH)
        if os.fstat(fd).st_nlink:
            _locks[pid] = fd
            atexit.register(_drop_lock, pid)
        else:   # sweep() was faster
            os.close(fd)


def _is_dead(pid):
    return int(pid) not in _locks and not os.path.exists(f"/proc/{pid}") and _drop_lock(pid)


class Topology:
    """The namespaces drawn at the top of this file, until close().

    workers, aggregators: number of hosts; shape: a tbf rate such as "1gbit" for every host link and
    direction, or None; queues: queues of an aggregator's veth; impair: an Impair or None
    """

    def __init__(self, workers=4, shape=None, queues=1, impair=None, mtu=1500, aggregators=1):
        if not 1 <= workers <= WORKERS_MAX:
            raise NetnsError(f"{workers} workers: choose 1 to {WORKERS_MAX}")
        if not 1 <= aggregators <= AGGREGATORS_MAX:
            raise NetnsError(f"{aggregators} aggregators: choose 1 to {AGGREGATORS_MAX}")
        reason = why_not()
        if reason:
            raise NetnsError(reason)
        self.workers, self.shape, self.mtu = workers, shape, mtu
        self.name = f"thc-{os.getpid()}-{next(_serial)}"
        self.aggregators = [f"{self.name}-agg{i or ''}" for i in range(aggregators)]
        self.aggregator = self.aggregators[0]
        self.switch = f"{self.name}-sw"
        self._owner = os.getpid()
        _hold_lock()
        self._spaces = []
        self._processes = []
        self._joins = []        # (namespace, device) where GRO joins answers
        self._impair = None
        atexit.register(self.close)
        try:
            self._space(self.switch, _SNOOPING_BRIDGE)
            for i, ns in enumerate(self.aggregators):
                self._host(ns, f"agg{i or ''}", self.aggregator_address(i),
                           f"fd77::{0x100 + i:x}", queues)
            for w in range(workers):
                self._host(self.worker(w), f"w{w}", self.address(w), self.address6(w), 1)
            self._settle()
            if impair:
                self._start_impair(impair)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def worker(self, w):
        return f"{self.name}-w{w}"

    @staticmethod
    def aggregator_address(i):
        return f"10.77.0.{100 + i}"

    @staticmethod
    def address(w):
        return f"10.77.0.{w + 1}"

    @staticmethod
    def address6(w):
        return f"fd77::{w + 1:x}"

    def _space(self, ns, lines):
        subprocess.run(["ip", "netns", "add", ns], check=True)
        self._spaces.append(ns)
        _ip(ns, ["link set lo up", *lines])
        if lines:
            _bypass_netfilter(ns)

    def _host(self, ns, port, addr4, addr6, queues):
        """Makes one host and its link to the switch's bridge, whose port is `port`."""
        self._space(ns, [])
        peer_ns, peer = self.switch, port
        if self.shape:
            peer_ns, peer = f"{self.name}-l{port}", "host"
            self._space(peer_ns, ["link add br0 type bridge mcast_snooping 0 forward_delay 0",
                                  "link set br0 up"])
        both = f"numrxqueues {queues} numtxqueues {queues}"
        _ip(ns, [f"link add eth0 mtu {self.mtu} {both} type veth peer name {peer} "
                 f"mtu {self.mtu} {both} netns {peer_ns}",
                 f"addr add {addr4}/24 dev eth0",
                 f"addr add {addr6}/64 dev eth0 nodad",
                 "link set eth0 up",
                 "route add 224.0.0.0/4 dev eth0"])
        if self.shape:
            _ip(peer_ns, [f"link add net mtu {self.mtu} type veth peer name {port} "
                          f"mtu {self.mtu} netns {self.switch}",
                          "link set host master br0 up", "link set net master br0 up"])
            for dev in ("host", "net"):
                self.run(peer_ns, ["tc", "qdisc", "add", "dev", dev, "root", "tbf", "rate",
                                   self.shape, "burst", "256k", "limit", "4m"])
        _ip(self.switch, [f"link set {port} master br0 up"])
        if ns in self.aggregators:
            _set_gro(peer_ns, peer, 1)
            self._joins.append((peer_ns, peer))
            _set_gro_forwarding(peer_ns, peer, True)

    def behind(self, w):
        """Makes a host, OUTSIDE4, behind worker w as its router; returns the host's namespace."""
        ns, via = f"{self.name}-w{self.workers}", ROUTER4
        self._space(ns, [])
        _ip(self.worker(w), [f"link add out type veth peer name eth0 netns {ns}",
                             f"addr add {via}/24 dev out", "link set out up"])
        _ip(ns, [f"addr add {OUTSIDE4}/24 dev eth0", "link set eth0 up",
                 f"route add default via {via}"])
        for host in [*self.aggregators, *(self.worker(i) for i in range(self.workers) if i != w)]:
            _ip(host, [f"route add {OUTSIDE4}/32 via {self.address(w)}"])

        def forward():
            for name in ("ip_forward", "conf/all/rp_filter"):
                with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as f:
                    f.write("1" if name == "ip_forward" else "0")

        in_namespace(self.worker(w), forward)
        return ns

    def _settle(self):
        """Waits until the bridges forward, that is, carrier is up on all ports."""
        end = time.monotonic() + 5
        bridges = [ns for ns in self._spaces if ns == self.switch or "-l" in ns[len(self.name):]]
        while bridges and time.monotonic() < end:
            text = self.run(bridges[0], ["bridge", "link", "show"]).stdout
            if text and text.count("state forwarding") == len(text.splitlines()):
                bridges.pop(0)
            else:
                time.sleep(0.02)
        if bridges:
            raise NetnsError(f"the bridge in {bridges[0]} does not forward after 5 s")

    def _start_impair(self, impair):
        loader = os.path.join(build_dir(), "tests/netns/impair")
        if not os.path.exists(loader):
            raise NetnsError(f"{loader} is missing: run `make tests`")
        self._limit_segments(1)
        if impair.late:
            _ip(self.switch, [f"link add late0 mtu {self.mtu} type veth peer name late1 "
                              f"mtu {self.mtu}", "link set late0 up", "link set late1 up"])
            # delays by 0.1 ms per packet, and by the late packets in the queue
            self.run(self.switch, ["tc", "qdisc", "add", "dev", "late0", "root", "tbf", "rate",
                                   "80mbit", "burst", "2k", "limit", "1m"])
        self._impair = self.popen(
            self.switch,
            [loader, f"{impair.drop}", f"{impair.corrupt}", f"{impair.duplicate}",
             f"{impair.late}", str(impair.port), *(f"w{w}" for w in range(self.workers))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._impair.stdout.readline().strip() != "ready":
            raise NetnsError("tests/netns/impair did not start: see its message above")

    def impaired(self):
        """Counters of the impairment: {"up": {"seen":, "dropped":, ...}, "down": {...}}."""
        if not self._impair:
            return {}
        self._impair.stdin.write("\n")
        self._impair.stdin.flush()
        return json.loads(self._impair.stdout.readline())

    def heal(self):
        """Ends the impairment and restores segmentation offload."""
        if self._impair:
            self._impair.stdin.close()
            self._impair.wait()
            self._impair.stdout.close()
            self._impair = None
            self._limit_segments(_GSO_SEGMENTS_DEFAULT)

    def _limit_segments(self, segments):
        """Limits super-packets on the topology's links to that many segments."""
        for peer_ns, peer in self._joins:
            _set_gro_forwarding(peer_ns, peer, segments > 1)
        for ns in [*self.aggregators, *map(self.worker, range(self.workers))]:
            _ip(ns, [f"link set eth0 gso_max_segs {segments}"])

    @staticmethod
    def enter(ns, argv):
        return ["nsenter", f"--net={RUN}/{ns}", "--", *argv]

    def run(self, ns, argv, **more):
        """Runs argv in ns to its end; NetnsError, with argv's output, if it fails."""
        done = subprocess.run(self.enter(ns, argv), capture_output=True, text=True, **more)
        if done.returncode:
            raise NetnsError(f"{' '.join(argv)} in {ns}: {(done.stderr or done.stdout).strip()}")
        return done

    def popen(self, ns, argv, **more):
        """Starts argv in ns; it ends with this topology, or with this process.

        The child has a process group of its own: Ctrl-C reaches this process alone, which ends its
        children in order. The child has no session of its own: nice(1) of this process has no
        effect across autogroups (sched(7)).
        """
        p = subprocess.Popen(self.enter(ns, argv), process_group=0,
                             preexec_fn=functools.partial(die_with_parent, os.getpid()), **more)
        self._processes.append(p)
        return p

    def fork(self, ns, body, **more):
        """Runs body() in ns, in a Forked, which ends when a child of popen() would."""
        def there():
            move_into(ns)
            body()

        p = Forked(there, name=ns, **more)
        self._processes.append(p)
        return p

    def stop(self, *processes):
        stop(processes)
        self._processes = [p for p in self._processes if p not in processes]

    def close(self):
        if os.getpid() != self._owner:  # a forked child must not tear the topology down
            return
        stop(self._processes)
        self._processes.clear()
        for ns in self._spaces:
            subprocess.run(["ip", "netns", "del", ns], stderr=subprocess.DEVNULL, check=False)
        self._spaces.clear()
        atexit.unregister(self.close)


def temporary_prefix():
    """A prefix for files and folders in /tmp; sweep() removes them if this process dies."""
    _hold_lock()
    return f"thc-{os.getpid()}-tmp-"


def sweep():
    """Removes what dead runs left: namespaces, thcd's pins and sockets, temporary files.

    Returns the names removed. A name contains the id of the process that it belongs to.
    """
    def dead(name, rest):
        match = re.fullmatch(r"thc-(\d+)-" + rest, name)
        return match and _is_dead(match[1])

    def names(folder):
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    gone = []
    for ns in names(RUN):
        if dead(ns, r"\d+-(agg\d*|sw|w\d+|l(agg\d*|w\d+))"):
            subprocess.run(["ip", "netns", "del", ns], check=True)
            gone.append(ns)
    for pins in names(THCD_PINS):
        if dead(pins, r"\d+(-\d+)?"):
            shutil.rmtree(os.path.join(THCD_PINS, pins))
            gone.append(os.path.join(THCD_PINS, pins))
    for path in names(THCD_SOCKETS):
        if dead(path, r"\d+(-\d+)?\.sock"):
            os.unlink(os.path.join(THCD_SOCKETS, path))
            gone.append(os.path.join(THCD_SOCKETS, path))
    for path in names(tempfile.gettempdir()):
        if dead(path, r"tmp-\w+"):
            path = os.path.join(tempfile.gettempdir(), path)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
            gone.append(path)
    for pid in names(LOCKS):
        _is_dead(pid)
    return gone


def main():
    parser = argparse.ArgumentParser(description="A topology of namespaces to try things in.")
    parser.add_argument("--sweep", action="store_true",
                        help="remove what dead runs left behind, then exit")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--shape", metavar="RATE", help="tbf on every host link, e.g. 1gbit")
    parser.add_argument("--queues", type=int, default=1, help="of the aggregator's veth")
    parser.add_argument("--loss", type=float, default=0.0, help="per direction, e.g. 0.02")
    parser.add_argument("--corrupt", type=float, default=0.0)
    parser.add_argument("--duplicate", type=float, default=0.0)
    parser.add_argument("--late", type=float, default=0.0, help="overtaken by others")
    parser.add_argument("command", nargs="*", help="run with NET=its name; default: a shell")
    args = parser.parse_args()
    if args.sweep:
        for ns in sweep():
            print(f"removed {ns}")
        return 0
    impair = None
    if args.loss or args.corrupt or args.duplicate or args.late:
        impair = Impair(args.loss, args.corrupt, args.duplicate, args.late)
    try:
        with guard(), Topology(args.workers, args.shape, args.queues, impair) as net:
            print(f"namespaces {net.aggregator}, {net.switch}, {net.name}-w0.."
                  f"w{net.workers - 1}; enter one by nsenter --net={RUN}/NAME", flush=True)
            command = args.command or [os.environ.get("SHELL", "/bin/sh")]
            return subprocess.run(command, env={**os.environ, "NET": net.name}).returncode
    except NetnsError as error:
        print(f"netns: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
