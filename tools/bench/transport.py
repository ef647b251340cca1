#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""UDP sockets beside AF_THC sockets: system calls, CPU time and wall time of an
all-reduce, rounds of both interleaved on one topology with an aggregator in
native XDP. The ranks are bench_transport.c. Needs thc.ko: `make bench-vm` runs
it in a test machine and writes build/bench-vm.json.

CPU time is given twice: of the ranks' processes, in which the kernel also
counts what the network does while they send (on veth that is everything, up to
XDP on the aggregator); and of the machine, from /proc/stat, which has also
what timers, softirqs and kernel threads did for them.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from aggregator import Aggregator, read_line  # noqa: E402

WORKERS = 4
TRANSPORTS = {"udp": "UDP", "af_thc": "AF_THC"}
LIMIT = 300             # seconds for one round: an emulated machine may be busy
# What the project promises: AF_THC takes at most this part of what UDP takes.
PROMISES = [("calls", 1 / 50, "system calls per rank and bucket"),
            ("cpu", 1 / 2, "CPU time of the ranks' processes"),
            ("cpu_machine", 1 / 2, "CPU time of the whole machine")]


def note(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def busy_seconds():
    """CPU time this machine has spent on anything."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, f.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def program(name):
    path = os.path.join(netns.build_dir(), "bench", name)
    if not os.path.exists(path):
        raise netns.NetnsError(f"{path} is missing: run `make benches`")
    return path


class Ranks:
    """The rank processes, driven in step."""

    def __init__(self, net, aggregator, mib):
        self.aggregator = aggregator
        self.processes = [net.popen(net.worker(rank), [
            program("bench_transport"), "--aggregator", netns.AGGREGATOR4,
            "--job", str(aggregator.job), "--cookie", hex(aggregator.cookie),
            "--rank", str(rank), "--mib", str(mib)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for rank in range(net.workers)]
        self.info = self._answers()[0]

    def _answers(self):
        lines = [read_line(p.stdout, LIMIT) for p in self.processes]
        if not all(lines):
            raise netns.NetnsError("a rank died or hangs; its message is above")
        return [json.loads(line) for line in lines]

    def reduce(self, transport, count_calls):
        """One bucket; what it took, of all ranks together."""
        events, before = self.aggregator.stats()["events"], busy_seconds()
        for p in self.processes:
            p.stdin.write(f"{transport} {'calls' if count_calls else 'time'}\n")
            p.stdin.flush()
        answers = self._answers()
        out = {key: statistics.mean(a[key] for a in answers)
               for key in ("calls", "send_calls", "receive_calls", "packets_up", "packets_down",
                           "user", "system")}
        out.update(seconds=max(a["seconds"] for a in answers),
                   retransmits=sum(a["retransmits"] for a in answers),
                   window_cuts=sum(a["window_cuts"] for a in answers),
                   cpu=sum(a["user"] + a["system"] for a in answers),
                   cpu_machine=busy_seconds() - before)
        events = {k: n - events[k] for k, n in self.aggregator.stats()["events"].items()}
        out["duplicates"] = events["waited"] + events["repeated"]
        return out

    def close(self):
        for p in self.processes:
            p.stdin.close()
            p.wait()
            p.stdout.close()


def medians(samples):
    return {key: statistics.median(s[key] for s in samples) for key in samples[0]}


def measure(args):
    """{"udp": medians, "af_thc": medians}, and what it was measured on."""
    timed, counted = ({t: [] for t in TRANSPORTS} for _ in range(2))
    job = {"slots": args.slots} if args.slots else {}
    with netns.Topology(WORKERS) as net, Aggregator(net, WORKERS, job=job) as aggregator:
        # a second job, so that both clients of a rank can stay joined
        aggregator.stop()
        second = {**aggregator.keys, "job": aggregator.job + 1}
        aggregator.options += ["--job", ",".join(f"{k}={v}" for k, v in second.items())]
        aggregator.start()
        ranks = Ranks(net, aggregator, args.mib)
        for transport, name in TRANSPORTS.items():
            if ranks.info[transport] != name:
                raise netns.NetnsError(f"'{transport}' went over {ranks.info[transport]}")
        for repeat in range(-1, args.repeats):      # the first one warms up
            for transport in TRANSPORTS:
                note(f"{TRANSPORTS[transport]}, round {repeat + 1} of {args.repeats}")
                sample = ranks.reduce(transport, False)
                if repeat >= 0:
                    timed[transport].append(sample)
                    counted[transport].append(ranks.reduce(transport, True))
        stats = aggregator.stats()
        ranks.close()
    out = {t: {**medians(timed[t]), "calls": statistics.median(c["calls"] for c in counted[t])}
           for t in TRANSPORTS}
    return out, {"xdp_mode": stats["mode"], "lanes_by": stats.get("lanes_by", ""), **{k: v for k, v in ranks.info.items() if k not in TRANSPORTS}}


def codec():
    """CPU time of compressing and decompressing a bucket of 25 MiB, one rank: in both."""
    done = subprocess.run([program("bench_codec"), "--runs", "3"], stdout=subprocess.PIPE,
                          text=True, check=True)
    result = json.loads(done.stdout)
    return (result["compress_ms"] + result["decompress_ms"]) / 1e3 / result["mib"]


def is_emulated():
    """Whether QEMU interprets this machine's instructions."""
    with open("/proc/cpuinfo", encoding="ascii") as f:
        return bool(re.search(r"^model name\s*: QEMU TCG", f.read(), re.M))


def promises(results):
    """(words, UDP, AF_THC, ratio, limit, kept)"""
    out = []
    for key, limit, words in PROMISES:
        udp, af_thc = (results[t][key] for t in TRANSPORTS)
        out.append({"what": words, "udp": udp, "af_thc": af_thc, "ratio": af_thc / udp,
                    "limit": limit, "kept": af_thc <= limit * udp})
    return out


ROWS = [("calls", "system calls per rank", "{:.0f}", 1),
        ("send_calls", "  of them to send", "{:.0f}", 1),
        ("receive_calls", "  to receive", "{:.0f}", 1),
        ("cpu", "CPU time, all ranks' processes", "{:.0f} ms", 1e3),
        ("user", "  user, per rank: the codec before all", "{:.0f} ms", 1e3),
        ("system", "  system, per rank", "{:.0f} ms", 1e3),
        ("cpu_without_codec", "  without the codec's, which both need", "{:.0f} ms", 1e3),
        ("cpu_machine", "CPU time, whole machine", "{:.0f} ms", 1e3),
        ("seconds", "wall time, slowest rank", "{:.0f} ms", 1e3),
        ("packets_up", "packets up per rank", "{:.0f}", 1),
        ("retransmits", "retransmits, all ranks", "{:.0f}", 1),
        ("duplicates", "  of them in vain: it had arrived", "{:.0f}", 1),
        ("window_cuts", "window cuts, all ranks", "{:.0f}", 1)]


def print_table(results):
    print(f"  All-reduce of {results['mib']} MiB fp32, {WORKERS} workers, aggregator in XDP "
          f"({results['xdp_mode']}), kernel {results['kernel']}, medians of {results['repeats']}\n")
    print(f"  {'':42}{'UDP':>12}{'AF_THC':>12}{'ratio':>10}")
    for key, words, form, scale in ROWS:
        udp, af_thc = (results[t][key] for t in TRANSPORTS)
        ratio = f"1/{udp / af_thc:.1f}" if af_thc > 0 and udp > 0 else ""
        print(f"  {words:42}{form.format(udp * scale):>12}{form.format(af_thc * scale):>12}"
              f"{ratio:>10}")
    print()
    for p in results["promises"]:
        print(f"  {p['what']}: 1/{1 / p['ratio']:.1f}, wanted at most 1/{1 / p['limit']:.0f}: "
              f"{'kept' if p['kept'] else 'MISSED'}")
    if results["emulated"]:
        print("\n  This machine is emulated: its times are no hardware's. Arithmetic, the codec's "
              "before all,\n  costs many times more beside a system call than on a CPU; system "
              "calls are exact.")


def main():
    parser = argparse.ArgumentParser(description="UDP sockets beside AF_THC sockets.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mib", type=int, default=25, help="of the bucket")
    parser.add_argument("--slots", type=int, help="of each job, default thcd's")
    parser.add_argument("--output", metavar="FILE",
                        default=os.path.join(netns.build_dir(), "bench-vm.json"))
    args = parser.parse_args()
    start = time.monotonic()
    try:
        with netns.guard():
            netns.sweep()
            results, about = measure(args)
            note("codec alone")
            coding = codec() * args.mib * WORKERS
    except netns.NetnsError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    for t in TRANSPORTS:
        results[t]["cpu_without_codec"] = results[t]["cpu"] - coding
    results.update(about, workers=WORKERS, mib=args.mib, repeats=args.repeats,
                   kernel=os.uname().release, emulated=is_emulated(), codec_seconds=coding,
                   seconds=time.monotonic() - start)
    results["promises"] = promises(results)
    print_table(results)
    with open(args.output, "w", encoding="utf-8") as f:
        f.write(json.dumps(results, indent=2) + "\n")
    print(f"\n  Written to {netns.output_name(args.output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
