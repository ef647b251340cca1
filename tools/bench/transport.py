#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""UDP sockets beside AF_THC sockets: system calls, CPU time and wall time of an
all-reduce, rounds of both interleaved on one topology. The ranks are
bench_transport.c. Needs thc.ko: `make bench-vm` runs it twice and joins both
results in build/bench-vm.json.

On both machines each interface receives in a kernel thread of its own, so that
the ranks' CPU time can be told apart: that of their processes and of the
threads of their interfaces.

QEMU has the aggregator in native XDP, and one emulated CPU on which each
instruction takes a nanosecond. The numbers of system calls and instructions are
exact. Their cost on a CPU is not measured: there are no caches, vector
instructions cost as much as others, and entering the kernel costs a few
instructions. Without --instructions, CPU time in QEMU means nothing: vector
arithmetic costs many times more, relative to a system call, than on a CPU.

User-mode Linux runs at the host CPU's speed, with a software aggregator.
Entering its kernel takes tens of microseconds, which favours programs with few
system calls. So the host's user-mode CPU time for the machine is reported, too:
the computing of its kernel and all its programs, without context switches.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from aggregator import Aggregator, read_line  # noqa: E402

CLOCK_OF_PROCESS = 2    # clockid_t of process pid: ~pid << 3 | CLOCK_OF_PROCESS
WORKERS = 4
TRANSPORTS = {"udp": "UDP", "af_thc": "AF_THC"}
LIMIT = 300             # seconds for one round: an emulated machine may be busy
# The project's promises: the largest ratio of AF_THC's cost to UDP's.
PROMISES = [("calls", 1 / 50, "system calls per rank and bucket"),
            ("cpu", 1 / 2, "CPU time of the ranks"),
            ("cpu_without_codec", 1 / 2, "CPU time of the ranks but for the codec"),
            ("cpu_machine", 1 / 2, "CPU time of the whole machine"),
            ("cpu_computing", 1 / 2, "computed by the whole machine"),
            ("cpu_kernel", 1 / 2, "computed by its kernel")]
CAVEAT = """No figure here is a CPU's. Counted instructions leave out what it costs to enter the
kernel, caches and the width of vectors. CPU time on User-mode Linux has tens of microseconds in it
for each entry, which flatters AF_THC. What is computed there leaves that out, and has switch and
software aggregator in it, the same for both."""
HOST_CLOCKS = ("cpu_computing", "cpu_kernel", "cpu_programs", "cpu_switching")


def note(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def busy_seconds():
    """CPU time of this machine, idle time excluded."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, f.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def program(name):
    path = os.path.join(netns.build_dir(), "bench", name)
    if not os.path.exists(path):
        raise netns.NetnsError(f"{path} is missing: run `make benches`")
    return path


class ReceiveThreads:
    """A kernel thread for each interface of the topology, because a softirq's time counts for
    the process that it interrupts."""

    def __init__(self, net, aggregator):
        self.ranks, self.network, self._seen = [], [aggregator.process.pid], set()
        for rank in range(net.workers):
            self.ranks += self._enable(net.worker(rank), "eth0")
            self.network += self._enable(net.switch, f"w{rank}")
        self.network += self._enable(net.aggregator, "eth0") + self._enable(net.switch, "agg")

    def _enable(self, ns, dev):
        """Pids of the threads. A veth uses a NAPI thread only with GRO on, and with TSO off at
        its peer."""
        subprocess.run(["ip", "netns", "exec", ns, "sh", "-c",
                        f"ethtool -K {dev} gro on tso off && "
                        f"echo 1 >/sys/class/net/{dev}/threaded"], check=True)
        pids = {int(pid) for pid in os.listdir("/proc") if pid.isdigit()} - self._seen
        self._seen |= pids
        return [pid for pid in pids if _comm(pid).startswith(f"napi/{dev}-")]

    def seconds(self):
        """CPU time so far: cpu_receive of the ranks' threads, cpu_network of all else here."""
        return {name: sum(time.clock_gettime(~pid << 3 | CLOCK_OF_PROCESS) for pid in pids)
                for name, pids in (("cpu_receive", self.ranks), ("cpu_network", self.network))}


def _comm(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""


class HostClock:
    """This machine's CPU time on the host, from tests/vm/uml."""

    def __init__(self):
        self._port = open("/dev/ttyS1", "r+b", buffering=0)

    def seconds(self):
        self._port.write(b"\n")
        line = b""
        while not line.endswith(b"\n"):
            line += self._port.read(100)
        seconds = dict(zip(HOST_CLOCKS[1:], map(float, line.split())))
        return {"cpu_computing": seconds["cpu_kernel"] + seconds["cpu_programs"], **seconds}


class Ranks:
    """The rank processes, driven in step."""

    def __init__(self, net, aggregator, mib):
        self.aggregator = aggregator
        self.clocks = [ReceiveThreads(net, aggregator)] + ([HostClock()] if is_uml() else [])
        self.processes = [net.popen(net.worker(rank), [
            program("bench_transport"), "--aggregator", netns.AGGREGATOR4,
            "--job", str(aggregator.job), "--key-file", aggregator.key_file,
            "--rank", str(rank), "--mib", str(mib)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for rank in range(net.workers)]
        self.info = self._answers()[0]

    def _answers(self):
        lines = [read_line(p.stdout, LIMIT) for p in self.processes]
        if not all(lines):
            raise netns.NetnsError("a rank died or hangs; its message is above")
        return [json.loads(line) for line in lines]

    def _clocks(self):
        return {name: s for clock in self.clocks for name, s in clock.seconds().items()}

    def reduce(self, transport, count_calls):
        """Reduces one bucket; returns its cost, summed over all ranks."""
        events, before = self.aggregator.stats()["events"], busy_seconds()
        clocks = self._clocks()
        for p in self.processes:
            p.stdin.write(f"{transport} {'calls' if count_calls else 'time'}\n")
            p.stdin.flush()
        answers = self._answers()
        after = self._clocks()
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
        out.update({name: seconds - clocks[name] for name, seconds in after.items()},
                   cpu_processes=out["cpu"])
        out["cpu"] += out["cpu_receive"]
        return out

    def close(self):
        for p in self.processes:
            p.stdin.close()
            p.wait()
            p.stdout.close()


def middle(samples):
    """Medians of samples; means for the clocks that count the host's ticks."""
    return {key: (statistics.mean if key in HOST_CLOCKS else statistics.median)(
        s[key] for s in samples) for key in samples[0]}


def measure(args):
    """{"udp": medians, "af_thc": medians}, and a description of the machine."""
    timed, counted = ({t: [] for t in TRANSPORTS} for _ in range(2))
    job = {"rate": "fixed", **({"slots": args.slots} if args.slots else {})}
    with netns.Topology(WORKERS) as net, \
            Aggregator(net, WORKERS, software=is_uml(), job=job) as aggregator:
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
                    if ranks.info["counts_calls"]:
                        counted[transport].append(ranks.reduce(transport, True)["calls"])
        stats = aggregator.stats()
        ranks.close()
    out = {t: middle(timed[t]) for t in TRANSPORTS}
    for t in TRANSPORTS:
        out[t].pop("calls")
        if counted[t]:
            out[t]["calls"] = statistics.median(counted[t])
    return out, {"aggregator": stats["mode"], "lanes_by": stats.get("lanes_by", ""),
                 **{k: v for k, v in ranks.info.items() if k not in TRANSPORTS}}


def codec():
    """CPU seconds per MiB to compress and decompress, which both transports need."""
    done = subprocess.run([program("bench_codec"), "--runs", "3"], stdout=subprocess.PIPE,
                          text=True, check=True)
    result = json.loads(done.stdout)
    return (result["compress_ms"] + result["decompress_ms"]) / 1e3 / result["mib"]


def _cpu_is(name):
    with open("/proc/cpuinfo", encoding="ascii") as f:
        return name in f.read()


def is_emulated():
    """True if QEMU interprets this machine's instructions (TCG)."""
    return _cpu_is("QEMU TCG")


def counts_instructions():
    """True under tests/vm/run --instructions: an instruction takes one nanosecond."""
    return bool(os.environ.get("THC_INSTRUCTIONS"))


def is_uml():
    return _cpu_is("User Mode Linux")


def machine():
    if is_uml():
        return "User-mode Linux, one CPU"
    if counts_instructions():
        return "QEMU, one CPU, instructions counted"
    return f"QEMU{', emulated' if is_emulated() else ''}, {os.cpu_count()} CPUs"


def promise(key, results):
    """The entry of PROMISES with this key, as a dict with its values in results."""
    limit, words = next(p[1:] for p in PROMISES if p[0] == key)
    udp, af_thc = (results[t][key] for t in TRANSPORTS)
    return {"what": words, "udp": udp, "af_thc": af_thc, "ratio": af_thc / udp,
            "limit": limit, "kept": af_thc <= limit * udp, "measured_on": results["machine"]}


def promises(qemu, uml):
    """The promises with their results: system calls from QEMU, the ranks' CPU time from both
    machines, the whole machine's CPU time from User-mode Linux."""
    kept = [promise(key, qemu) for key in ("calls", "cpu", "cpu_without_codec")]
    if uml:
        kept += [promise(p[0], uml) for p in PROMISES[1:] if p[0] in uml["udp"]]
    return kept


ROWS = [("calls", "system calls per rank", "{:.0f}", 1),
        ("send_calls", "  of them to send", "{:.0f}", 1),
        ("receive_calls", "  to receive", "{:.0f}", 1),
        ("cpu", "CPU time, all ranks", "{:.0f} ms", 1e3),
        ("cpu_processes", "  processes", "{:.0f} ms", 1e3),
        ("user", "  user, per rank: the codec before all", "{:.0f} ms", 1e3),
        ("system", "  system, per rank", "{:.0f} ms", 1e3),
        ("cpu_receive", "  threads that receive for them", "{:.0f} ms", 1e3),
        ("cpu_without_codec", "  without the codec's, which both need", "{:.0f} ms", 1e3),
        ("cpu_network", "CPU time, switch and aggregator", "{:.0f} ms", 1e3),
        ("cpu_machine", "CPU time, whole machine", "{:.0f} ms", 1e3),
        ("cpu_switching", "  switching, in the host's kernel", "{:.0f} ms", 1e3),
        ("cpu_computing", "  computing", "{:.0f} ms", 1e3),
        ("cpu_programs", "    its programs: the codec before all", "{:.0f} ms", 1e3),
        ("cpu_kernel", "    its kernel: switch, aggregator's sockets, too", "{:.0f} ms", 1e3),
        ("seconds", "wall time, slowest rank", "{:.0f} ms", 1e3),
        ("packets_up", "packets up per rank", "{:.0f}", 1),
        ("retransmits", "retransmits, all ranks", "{:.0f}", 1),
        ("duplicates", "  of them in vain: it had arrived", "{:.0f}", 1),
        ("window_cuts", "window cuts, all ranks", "{:.0f}", 1)]


def print_table(results):
    print(f"  All-reduce of {results['mib']} MiB fp32, {WORKERS} workers, aggregator: "
          f"{results['aggregator']}, {results['machine']},\n  kernel {results['kernel']}, "
          f"medians of {results['repeats']}\n")
    if counts_instructions():
        print("  CPU time is counted in millions of instructions (M).\n")
    print(f"  {'':48}{'UDP':>12}{'AF_THC':>12}{'ratio':>10}")
    for key, words, form, scale in ROWS:
        if not all(key in results[t] for t in TRANSPORTS):
            continue
        udp, af_thc = (results[t][key] for t in TRANSPORTS)
        if counts_instructions() and key != "seconds":
            form = form.replace(" ms", " M")
        ratio = f"1/{udp / af_thc:.1f}" if af_thc > 0 and udp > 0 else ""
        print(f"  {words:48}{form.format(udp * scale):>12}{form.format(af_thc * scale):>12}"
              f"{ratio:>10}")
    if counts_instructions():
        print("\n  What is executed, exactly; what it costs a CPU to wait for memory or to enter "
              "its kernel\n  is not in it. An instruction takes a nanosecond of this machine's "
              "time.")
    elif is_emulated():
        print("\n  Its times are no hardware's: arithmetic, the codec's before all, costs many "
              "times more\n  beside a system call than on a CPU. System calls are exact.")
    if is_uml():
        print(f"\n  It computes at this CPU's speed, but to enter and leave the kernel takes "
              f"{results['null_call'] * 1e6:.1f} us,\n  for which a CPU needs a fraction of one.")


def print_promises(kept):
    for p in kept:
        print(f"  {p['what']}: 1/{1 / p['ratio']:.1f}, wanted at most 1/{1 / p['limit']:.0f}: "
              f"{'kept' if p['kept'] else 'MISSED'} [{p['measured_on']}]")


def write(results, path):
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(results, indent=2) + "\n")


def run(args):
    """Measures on this machine, prints and writes the results."""
    start = time.monotonic()
    with netns.guard():
        netns.sweep()
        results, about = measure(args)
        note("codec alone")
        coding = codec() * args.mib * WORKERS
    for t in TRANSPORTS:
        results[t]["cpu_without_codec"] = results[t]["cpu"] - coding
        if is_uml():
            # the ticks that tell user from system time hit the kernel alone
            del results[t]["user"], results[t]["system"]
    results.update(about, workers=WORKERS, mib=args.mib, repeats=args.repeats,
                   kernel=os.uname().release, machine=machine(), codec_seconds=coding,
                   seconds=time.monotonic() - start)
    print_table(results)
    write(results, args.output)


def join(args):
    """Both machines' results in one file, with the promises."""
    qemu, uml = (json.load(open(name, encoding="utf-8")) if os.path.exists(name) else None
                 for name in args.join)
    kept = promises(qemu, uml)
    print_promises(kept)
    caveat = CAVEAT if uml else "CPU time was measured in QEMU only"
    print("\n  " + caveat.replace("\n", "\n  "))
    write({"promises": kept, "caveat": caveat, "qemu": qemu, "uml": uml}, args.output)
    print(f"\n  Written to {netns.output_name(args.output)}")


def main():
    parser = argparse.ArgumentParser(description="UDP sockets beside AF_THC sockets.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mib", type=int, default=25, help="of the bucket")
    parser.add_argument("--slots", type=int, help="of each job, default thcd's")
    parser.add_argument("--output", metavar="FILE",
                        default=os.path.join(netns.build_dir(), "bench-vm.json"))
    parser.add_argument("--join", nargs=2, metavar=("QEMU", "UML"),
                        help="measure nothing: make one file of two; UML may be missing")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats is at least 1")
    try:
        (join if args.join else run)(args)
    except netns.NetnsError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
