#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make bench-flood`: the effect of a flood of forged JOINs on a job of two ranks. One core of
another host in the network sends them at its full rate. Four floods take turns:
    name      a key name that does not exist: refused by the name
    tag       the job's key name, which the WELCOME to the group shows: refused by the tag in XDP
    version   another protocol version: dropped by the first check
    drop      to a second interface of the aggregator with a bare XDP_DROP
The ranks' goodput beside "name" and "tag" shows the cost of refusing, relative to "version", and
includes the wait in one queue with the flood. The flood runs on CPU 0, everything else on the other
CPUs. Prints a table of medians, writes build/bench-flood.json.

    host "w2" --- flood --- switch --- eth0 of the aggregator: thcd's XDP program
                                  \\--- eth1 of the aggregator: a bare XDP_DROP
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from aggregator import Aggregator, read_line  # noqa: E402
from buckets import QUIET  # noqa: E402

RANKS, FLOODER = 2, 2   # workers' numbers
BUCKET = 25 << 20       # bytes
PATIENCE = 120          # seconds for an answer of a rank
TARGETS = {"none": "no flood", "drop": "flood to a bare XDP_DROP",
           "version": "to thcd, strange version", "name": "to thcd, strange key name",
           "tag": "to thcd, wrong tag"}
FLOODS = ("name", "tag")        # the floods that the promises hold for
STRANGE = "99"          # an unknown version of the protocol
WELCOME = 17            # include/uapi/linux/thc.h
# (key of the result, comparison, limit, words)
PROMISES = [
    ("join_slowest_ms", "<=", 100, "slowest join of a rank beside a flood, ms"),
    ("thcd_cpu", "<=", 0.1, "thcd beside a flood, cores"),
    ("refused_join_ns", "<=", 80, "a JOIN of a strange key name in XDP, ns"),
    ("forged_join_ns", "<=", 200, "a JOIN of a wrong tag in XDP, ns"),
    ("data_over_drop", ">=", 0.9, "data beside a flood, beside XDP_DROP"),
]


# --- a rank, in a process of its own ------------------------------------------

def rank_main(rank, job, key_file):
    """Joins, leaves or reduces, as each line of its input says; prints the seconds it took."""
    sys.path.insert(0, os.path.join(netns.ROOT, "userspace/python"))
    import numpy as np
    from thc_ddp import ThcClient
    buffer = np.random.default_rng(rank).standard_normal(BUCKET // 4, dtype=np.float32)
    client = None
    for line in sys.stdin:
        word = line.strip()
        start = time.monotonic()
        if word == "join":
            client = ThcClient(netns.AGGREGATOR4, job, key_file, rank, join_timeout=20, timeout=20)
        elif word == "leave":
            client.close()
        else:
            client.allreduce(buffer.ctypes.data, buffer.size)
        print(time.monotonic() - start, flush=True)


class Ranks:
    """The job's processes, one per rank, which get each command at once."""

    def __init__(self, net, aggregator, cpus):
        self.processes = [net.popen(net.worker(r), [
            "taskset", "-c", cpus, sys.executable, os.path.abspath(__file__), "--rank", str(r),
            "--job", str(aggregator.job), "--key-file", aggregator.key_file],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=netns.environment())
            for r in range(RANKS)]

    def all(self, word):
        """Sends word to all ranks; returns the seconds of the slowest rank."""
        for p in self.processes:
            p.stdin.write(word + "\n")
            p.stdin.flush()
        lines = [read_line(p.stdout, PATIENCE) for p in self.processes]
        if not all(lines):
            raise netns.NetnsError(f"a rank failed to {word}; its message is above")
        return max(map(float, lines))


# --- the flood ----------------------------------------------------------------

def mac_of(net, interface):
    shown = net.run(net.aggregator, ["ip", "-j", "link", "show", "dev", interface]).stdout
    return json.loads(shown)[0]["address"]


def add_sink(net):
    """Adds eth1 to the aggregator; the switch sends eth1's frames to it by their MAC address."""
    net.run(net.aggregator, ["ip", "link", "add", "eth1", "type", "veth", "peer", "name", "sink",
                             "netns", net.switch])
    net.run(net.aggregator, ["ip", "link", "set", "eth1", "up"])
    net.run(net.switch, ["ip", "link", "set", "sink", "master", "br0", "up"])
    net.run(net.switch, ["bridge", "fdb", "replace", mac_of(net, "eth1"), "dev", "sink",
                         "master", "static"])
    return start(net, net.aggregator, ["drop", "eth1"])


def start(net, ns, arguments):
    path = os.path.join(netns.build_dir(), "bench", "flood")
    if not os.path.exists(path):
        raise netns.NetnsError(f"{path} is missing: run `make benches`")
    return net.popen(ns, [path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                     text=True)


def key_name(net, aggregator, ranks):
    """The name of the job's key in hexadecimal, from the WELCOME that the group gets while ranks
    join. Every host of the network can receive it."""
    job = aggregator.ask("jobs")["jobs"][0]
    group, own = (socket.inet_aton(a) for a in (job["group"], net.address(FLOODER)))
    with netns.in_namespace(net.worker(FLOODER), lambda: socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM)) as s:
        s.bind((job["group"], job["group_port"]))
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + own)
        s.settimeout(PATIENCE)
        ranks.all("join")
        heard = s.recv(2048)
        while heard[1] != WELCOME:
            heard = s.recv(2048)
    ranks.all("leave")
    return heard[4:8].hex()


class Flood:
    """A sender of JOINs to an interface of the aggregator, on CPU 0. key: the job's key name."""

    def __init__(self, net, target, job, key):
        self.process = None
        if target == "none":
            return
        mac = mac_of(net, "eth1" if target == "drop" else "eth0")
        self.process = start(net, net.worker(FLOODER), [
            "send", "eth0", mac, net.address(FLOODER), netns.AGGREGATOR4, "18500", str(job),
            STRANGE if target == "version" else "0", key if target == "tag" else "0", "0"])
        time.sleep(0.3)

    def stop(self):
        """Ends the flood; returns its packets per second."""
        if not self.process:
            return 0.0
        self.process.stdin.close()
        told = json.loads(self.process.stdout.readline())
        self.process.wait()
        return told["sent"] / told["seconds"]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn(net, aggregator, ranks, target, key, work):
    """Measures under one flood: {"joins":, "reduces":, "cpu":, "rate":}. work: (number of joins,
    number of all-reduces)."""
    joins, reduces = work
    flood = Flood(net, target, aggregator.job, key)
    begun, cpu = time.monotonic(), cpu_seconds(aggregator.process.pid)
    out = {"joins": [], "reduces": []}
    for n in range(joins):
        out["joins"].append(ranks.all("join"))
        if n == joins - 1:
            out["reduces"] = [ranks.all("reduce") for _ in range(reduces)]
        ranks.all("leave")
    out["cpu"] = (cpu_seconds(aggregator.process.pid) - cpu) / (time.monotonic() - begun)
    out["rate"] = flood.stop()
    return out


def measure(turns, work):
    """{target: [result of turn()]}, and thcd's last counters. work: see turn()."""
    others = f"1-{os.cpu_count() - 1}" if os.cpu_count() > 1 else "0"
    with netns.Topology(RANKS + 1) as net, Aggregator(net, RANKS, quiet=True) as aggregator:
        subprocess.run(["taskset", "-cp", others, str(aggregator.process.pid)], check=True,
                       stdout=subprocess.DEVNULL)
        sink = add_sink(net)
        if read_line(sink.stdout, PATIENCE) != "ready\n":
            raise netns.NetnsError("XDP_DROP could not be attached; the message is above")
        ranks = Ranks(net, aggregator, others)
        key = key_name(net, aggregator, ranks)
        samples = {target: [] for target in TARGETS}
        for n in range(-1, turns):      # the first one warms up
            for target in TARGETS:
                got = turn(net, aggregator, ranks, target, key, work)
                if n >= 0:
                    samples[target].append(got)
        stats = aggregator.stats()
        for reason in ("flood", "tag", "version"):
            if not stats["drops"][reason]:
                raise netns.NetnsError(f"no packet was dropped as {reason}: this shows nothing")
        return samples, stats


# --- the table ----------------------------------------------------------------

def summary(samples, stats, costs):
    def median(target, key):
        return statistics.median(x for t in samples[target] for x in t[key])

    joins = [s for target in FLOODS for t in samples[target] for s in t["joins"]]
    out = {"joins": len(joins), "join_slowest_ms": 1e3 * max(joins),
           "joins_within_100_ms": sum(s <= 0.1 for s in joins),
           "flood_dropped": stats["drops"]["flood"], "tag_dropped": stats["drops"]["tag"],
           "refused": stats["daemon"]["refused"], "membership": stats["events"]["membership"], **costs}
    for target in TARGETS:
        out[target] = {"reduce_ms": 1e3 * median(target, "reduces"),
                       "join_ms": 1e3 * median(target, "joins"),
                       "thcd_cpu": statistics.median(t["cpu"] for t in samples[target]),
                       "packets_per_second": statistics.median(t["rate"] for t in samples[target])}
    out["thcd_cpu"] = max(out[target]["thcd_cpu"] for target in FLOODS)
    out["data_over_drop"] = out["drop"]["reduce_ms"] / max(
        out[target]["reduce_ms"] for target in FLOODS)
    out["promises"] = [
        {"what": words, "value": out[key], "comparison": comparison, "limit": limit,
         "kept": out[key] <= limit if comparison == "<=" else out[key] >= limit}
        for key, comparison, limit, words in PROMISES]
    return out


def print_table(result):
    print(f"  {'':<26} {'packets/s':>12} {'join, ms':>10} {'25 MiB, ms':>12} {'thcd, cores':>12}")
    for target, words in TARGETS.items():
        row = result[target]
        print(f"  {words:<26} {row['packets_per_second']:>12,.0f} {row['join_ms']:>10.1f} "
              f"{row['reduce_ms']:>12.1f} {row['thcd_cpu']:>12.3f}")
    print(f"\n  refused: a JOIN by its key's name {result['refused_join_ns']:.0f} ns, by its tag "
          f"{result['forged_join_ns']:.0f} ns,\n  data by its tag {result['refused_data_ns']:.0f} "
          f"ns; a bare XDP_DROP {result['bare_drop_ns']:.0f} ns")
    print(f"  {result['flood_dropped']:,} JOINs were dropped as flood, {result['tag_dropped']:,} "
          f"for their tags, {result['refused']:,} reached thcd\n  {result['joins_within_100_ms']} "
          f"of {result['joins']} joins took at most 100 ms\n")
    for p in result["promises"]:
        print(f"  {p['what']:<46} {p['value']:>9.3f} wanted {p['comparison']} {p['limit']:g}: "
              f"{'kept' if p['kept'] else 'MISSED'}")


def main():
    parser = argparse.ArgumentParser(description="Measures what a flood of JOINs does.")
    parser.add_argument("--turns", type=int, default=5, help="of each target")
    parser.add_argument("--joins", type=int, default=10, help="of a turn")
    parser.add_argument("--reduces", type=int, default=5, help="25 MiB buckets of a turn")
    parser.add_argument("--output", metavar="FILE",
                        default=os.path.join(netns.build_dir(), "bench-flood.json"))
    for name, kind in (("--rank", int), ("--job", int), ("--key-file", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return rank_main(args.rank, args.job, args.key_file)
    reason = netns.why_not()
    if reason:
        print(f"bench-flood: {reason}", file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    if load > QUIET:
        print(f"# this machine is busy (load average {load:.1f}): times are longer than they "
              f"would be", file=sys.stderr)
    try:
        netns.open_output(args.output)
        with netns.guard():
            netns.sweep()
            samples, stats = measure(args.turns, (args.joins, args.reduces))
            done = subprocess.run([os.path.join(netns.build_dir(), "bench", "flood"), "cost",
                                   "--json"], stdout=subprocess.PIPE, text=True, check=True)
    except (netns.NetnsError, subprocess.CalledProcessError) as error:
        print(f"bench-flood: {error}", file=sys.stderr)
        return 1
    result = summary(samples, stats, json.loads(done.stdout))
    result["load_at_start"] = load
    print_table(result)
    with open(args.output, "w", encoding="utf-8") as f:
        f.write(json.dumps(result, indent=2) + "\n")
    print(f"  Written to {os.path.relpath(args.output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
