#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make demo`: times all-reduces at 1 Gb/s, THC beside Gloo; then trains a small
network with PyTorch DDP, one process per worker in a network namespace of its
own, every gradient summed by an aggregator in XDP, and once more on plain Gloo
fp32 with the same seeds. Ends with a table and build/demo.json. The timing is
in bench/buckets.py, the training in demo_worker.py, the topology in netns.py.
"""
import argparse
import functools
import importlib
import importlib.util
import json
import os
import re
import selectors
import sys
import tempfile
import time

import netns
from aggregator import FATES, Aggregator, add_up
from bench import model
from bench.buckets import BUCKET_BYTES, SYSTEMS, measure
from screen import Screen

with open(os.path.join(netns.ROOT, "include/uapi/linux/thc_wire.h"), encoding="ascii") as header:
    NORMS_PER_PACKET = int(re.search(r"#define\s+THC_NORMS\s+(\d+)", header.read())[1])
ACCURACY_MARGIN = 0.03  # THC may be so much less accurate than fp32 after 5 epochs
ACCURACY_EARLY = 0.15   # and so much before
SILENT_SECONDS = 120    # without any word from a worker: it hangs
SMALL_BYTES = 64 << 10
# Error feedback is on, as in the hook.
TIMED = {"thc_ef": "THC", "gloo_fp32": "Gloo fp32", "gloo_fp16": "Gloo fp16"}
AT_LEAST = 0.95         # of the closed form: no bucket is faster than its links
TRANSPORTS = {"auto": None, "udp": "UDP", "af_thc": "AF_THC"}   # what THC_TRANSPORT may say


class DemoError(RuntimeError):
    """Why there is no result, in a sentence."""


def bar(step, total, loss, run):
    done = 24 * step // total
    return (f"{run:9s} [{'#' * done}{'.' * (24 - done)}] step {step:3d}/{total}"
            f"  loss {loss:6.4f}")


def demo_worker():
    """The module, for which torch is loaded: once for all workers."""
    return importlib.import_module("demo_worker")


class Workers:
    """The training processes, forks of this one: their reports are collected until all end."""

    def __init__(self, net, aggregator, args, folder):
        self.processes, self.results, self.joined = [], [{} for _ in range(net.workers)], {}
        self.selector = selectors.DefaultSelector()
        self.folder, self.patience = folder, args.patience
        task = {"world": net.workers, "epochs": args.epochs, "steps": args.steps,
                "hidden": args.hidden, "job": aggregator.job, "key_file": aggregator.key_file,
                "aggregator": netns.AGGREGATOR4, "rendezvous": net.address(0)}
        for rank in range(net.workers):
            with open(self.log(rank), "wb") as log:
                p = net.fork(net.worker(rank), functools.partial(
                    demo_worker().work, argparse.Namespace(rank=rank, **task)), talk=True,
                    stderr=log.fileno())
            p.stdin.close()
            self.processes.append(p)
            self.selector.register(p.stdout, selectors.EVENT_READ, rank)

    def log(self, rank):
        return os.path.join(self.folder, f"worker-{rank}.log")

    def complaint(self, rank):
        with open(self.log(rank), encoding="utf-8") as log:
            lines = [line for line in log.read().splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def watch(self, screen, thc_done):
        """Draws until all workers have ended well; thc_done() when THC has.

        The counters are read between the two runs, when the last worker has
        left the job.
        """
        phase, heard = "starting workers", time.monotonic()
        while self.selector.get_map():
            for key, _ in self.selector.select(0.2):
                heard = time.monotonic()
                line = key.fileobj.readline()
                if not line:
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self.ended(key.data)
                    continue
                word = json.loads(line)
                if word["event"] == "step":
                    phase = bar(word["step"], word["total"], word["loss"], word["run"])
                elif word["event"] == "joining":
                    phase = "joining the job"
                elif word["event"] == "joined":
                    self.joined = word
                elif word["event"] == "result":
                    self.results[key.data][word["run"]] = word
                    if all("THC" in r for r in self.results) and thc_done:
                        thc_done()
                        thc_done = None
            screen.progress(phase)
            if time.monotonic() - heard > self.patience:
                raise DemoError(f"no worker has said anything for {self.patience} s: stopped")
        for p in self.processes:
            if p.wait():
                raise DemoError(f"a worker ended with status {p.returncode}, though it has trained")

    def ended(self, rank):
        if "Gloo fp32" not in self.results[rank]:
            raise DemoError(f"worker {rank} ended too early: {self.complaint(rank)}")


def bucket_times(args, screen):
    """{bytes: times} of one all-reduce by THC and Gloo, on links of args.rate."""
    if not args.repeats:
        return {}
    links = model.speed(args.rate)
    with screen.waiting("timing buckets: starting workers") as show:
        def progress(size, repeat, system, seconds):
            show(f"one all-reduce of {mebibytes(size)}, links: {links}, "
                 f"{repeat or 'warming up'}{f'/{args.repeats}' if repeat else ''}: "
                 f"{TIMED[system]} {1e3 * seconds:.1f} ms")

        times, _, _ = measure(args.workers, args.rate, args.repeats, systems=tuple(TIMED),
                              sizes=(SMALL_BYTES, BUCKET_BYTES), software=args.software,
                              progress=progress)
    return times


def expected_packets(sizes, block, chunk):
    """Packets one worker must have had added for buckets of these sizes.

    Each all-reduce: one agreement packet, the norms of its blocks, its chunks.
    """
    total = 0
    for count in sizes:
        blocks = -(-count // block)
        total += 1 + -(-blocks // NORMS_PER_PACKET) + -(-blocks * block // chunk)
    return total


def nmse(errors):
    """Over all measured steps: errors are (||difference||^2, ||mean||^2)."""
    difference, norm = map(sum, zip(*errors))
    return difference / norm


def buckets_json(args, times):
    """What demo.json says about times, with the closed form; {} if none were taken."""
    if not times:
        return {}
    return {"rate": args.rate, "workers": args.workers, "repeats": args.repeats,
            "times": [{"bucket_bytes": size, **t, **bounds(args.workers, size, args.rate)}
                      for size, t in times.items()]}


def bounds(workers, size, rate):
    """Least milliseconds by links alone: {} without a limit."""
    if not rate:
        return {}
    return {"thc_link_ms": model.thc_ms(workers, size, rate),
            "gloo_fp32_link_ms": model.ring_ms(workers, size, rate),
            "gloo_fp16_link_ms": model.ring_ms(workers, size // 2, rate)}


def summary(args, workers, stats, at_start, impaired):
    """The content of demo.json."""
    thc = [r["THC"] for r in workers.results]
    fp32 = [r["Gloo fp32"] for r in workers.results]
    info = workers.joined
    steps, n = thc[0]["steps"], args.workers
    errors = thc[0]["errors"]
    expected = sum(expected_packets(r["sizes"], info["block"], info["chunk"]) for r in thc)
    added = stats["events"]["added"]
    per_step = {k: sum(r["stats"][k] for r in thc) / n / steps
                for k in ("bytes_up", "bytes_down", "packets_up", "packets_down")}
    parameter_bytes = 4 * thc[0]["parameters"]
    return {
        "workers": n,
        "steps": steps,
        "accuracy_thc": thc[0]["accuracy"],
        "accuracy_fp32": fp32[0]["accuracy"],
        "nmse": nmse(e[0] for e in errors),
        "parameters": thc[0]["parameters"],
        "bytes_up_per_step": round(per_step["bytes_up"]),
        "bytes_down_per_step": round(per_step["bytes_down"]),
        "fp32_bytes_per_step": parameter_bytes,
        "xdp_packets": 0 if args.software else added,
        "xdp_expected_packets": 0 if args.software else expected,
        "retransmits": sum(r["stats"]["retransmits"] for r in thc),
        "drops": stats["drops"],
        "xdp_mode": at_start["mode"],
        "lanes_by": at_start.get("lanes_by", ""),
        "transport": info["transport"],
        "aggregated_packets": added,
        "aggregated_expected_packets": expected,
        "sent_packets": sum(r["stats"]["packets_up"] for r in thc),
        "received": stats["received"],
        "events": stats["events"],
        "duplicates": stats["events"]["waited"] + stats["events"]["repeated"],
        "reply": "multicast" if info["multicast"] else "fanout",
        "table": info["table"],
        "simd": info["simd"],
        "measured_steps": len(errors),
        "nmse_of_compression": nmse(e[1] for e in errors),
        "fallback_buckets": sum(r["stats"]["buckets_fallback"] for r in thc),
        "identical_models": len({r["digest"] for r in thc}) == 1,
        "ring_bytes_per_step": round(2 * (n - 1) / n * parameter_bytes),
        "seconds_thc": max(r["seconds"] for r in thc),
        "seconds_fp32": max(r["seconds"] for r in fp32),
        "loss": args.loss,
        "impaired": impaired,
    }


def mebibytes(n):
    return f"{n >> 20} MiB" if n >= 1 << 20 else f"{n >> 10} KiB"


def times_of(r):
    """Rows about times: none where none were taken."""
    b = r["buckets"]
    if not b:
        return []
    rows = [(f"Time of one all-reduce, {b['workers']} workers, links: {model.speed(b['rate'])}",
             *TIMED.values())]
    for t in b["times"]:
        size = mebibytes(t["bucket_bytes"])
        ms = [t[f"{system}_ms"] for system in TIMED]
        rows.append((f"a bucket of {size}, median of {t['repeats']}",
                     *(f"{x:.0f} ms" if x >= 10 else f"{x:.2f} ms" for x in ms)))
        rows.append(("  beside THC", "", *(f"{x / ms[0]:.2f} x" for x in ms[1:])))
        if b["rate"] and t["bucket_bytes"] == BUCKET_BYTES:
            rows.append(("  what the links alone take",
                         *(f"{t[f'{system}_link_ms']:.0f} ms"
                           for system in ("thc", "gloo_fp32", "gloo_fp16"))))
    return rows


def results_of(r):
    """Rows about accuracy and traffic."""
    def megabytes(n):
        return f"{n / 1e6:.3f} MB"

    up, down, fp32 = r["bytes_up_per_step"], r["bytes_down_per_step"], r["fp32_bytes_per_step"]
    ring = megabytes(r["ring_bytes_per_step"])
    rows = [
        (f"Accuracy after {r['steps']} steps of training", "THC", "Gloo fp32"),
        ("test accuracy", f"{100 * r['accuracy_thc']:.2f} %", f"{100 * r['accuracy_fp32']:.2f} %"),
        ("relative squared error of a mean gradient (NMSE)", f"{r['nmse_of_compression']:.4f}",
         "0"),
        None,
        (f"Traffic of a worker and step ({megabytes(fp32)} of gradients)", "THC", "Gloo fp32"),
        ("sent", megabytes(up), ring),
        ("received", megabytes(down), ring),
    ]
    if r["impaired"]:
        rows += [None, ("Packets lost on purpose", "THC")]
        rows += [(direction, f"{c['dropped']} of {c['seen']}")
                 for direction, c in r["impaired"].items()]
        rows.append(("sent again", f"{r['retransmits']}"))
    return rows


def counters_of(r):
    """Rows for --verbose: what happened to every packet of the training."""
    where = {"software": "in user space (--software)"}.get(r["xdp_mode"],
                                                           f"in XDP ({r['xdp_mode']})")
    return [
        ("Counters of the training", "THC", "Gloo fp32"),
        ("transport", r["transport"], "TCP"),
        ("seconds, measuring of errors included", f"{r['seconds_thc']:.1f}",
         f"{r['seconds_fp32']:.1f}"),
        ("NMSE beside the step's own exact mean, error feedback on", f"{r['nmse']:.4f}", "0"),
        (f"packets aggregated {where}", f"{r['aggregated_packets']}"),
        ("packets expected from bucket sizes", f"{r['aggregated_expected_packets']}"),
        ("packets sent by workers (joining apart)", f"{r['sent_packets']}"),
        ("  lost on the way (links and queues)",
         f"{r['sent_packets'] - (r['received'] - r['events']['membership'])}"),
        ("packets received by the aggregator", f"{r['received']}"),
        *((f"  {name}", f"{r['events'][name]}") for name in FATES),
        *((f"  dropped: {name}", f"{n}") for name, n in r["drops"].items() if n),
        ("duplicates (waited + repeated)", f"{r['duplicates']}"),
        ("drops", f"{sum(r['drops'].values())}"),
        ("retransmits", f"{r['retransmits']}"),
    ]


def table(r, verbose):
    """The result as aligned rows (what, THC, Gloo fp32, Gloo fp16) below headings."""
    parts = [times_of(r), results_of(r), counters_of(r) if verbose else []]
    rows = []
    for part in filter(None, parts):
        rows += [None] * bool(rows) + part
    wide = [max(len(row[c]) for row in rows if row and c < len(row)) for c in range(len(TIMED) + 1)
            if any(row and c < len(row) for row in rows)]
    lines, heading = [], True
    for row in rows:
        what, *values = row or ("",)
        cells = "".join(f"  {v:>{wide[c]}}" for c, v in enumerate(values, 1))
        lines.append(f"  {what if heading else '  ' + what:<{wide[0] + 2}}{cells}".rstrip())
        heading = not row
    return "\n".join(lines)


def how_to_use(r):
    """The last words: what it was, when it pays, what to type."""
    where = "in user space" if r["xdp_mode"] == "software" else "by an XDP program"
    return f"""\
  Four-bit gradients of {r["workers"]} workers were summed {where}, without decompressing them.
  THC pays where links are slow beside the processors. It loses with large buckets on fast links,
  and with many ranks, because the link of the one aggregator carries the packets of all ranks.
  The table "When it pays" in README.md says by how much.

  On one host:      thcd -i eth0 --job 1,ranks={r["workers"]},key=@/etc/thc/job1.key
  In each trainer:  state, hook = thc_hook()              # from thc_ddp; reads THC_AGGREGATOR, ...
                    model.register_comm_hook(state, hook)"""


def too_fast(buckets):
    """Sentences about large buckets that were faster than their links: shaping failed."""
    return [f"{SYSTEMS[system]} reduced {mebibytes(t['bucket_bytes'])} in {t[f'{system}_ms']:.0f} "
            f"ms, and its links take {t[link]:.0f} ms: they were not limited"
            for t in buckets.get("times", []) if t["bucket_bytes"] == BUCKET_BYTES
            for system, link in (("thc_ef", "thc_link_ms"), ("gloo_fp32", "gloo_fp32_link_ms"),
                                 ("gloo_fp16", "gloo_fp16_link_ms"))
            if link in t and t[f"{system}_ms"] < AT_LEAST * t[link]]


def faults(r, args):
    """What is wrong with this result, as sentences; none: all is well."""
    out = []
    wanted = TRANSPORTS[args.transport]
    if wanted and r["transport"] != wanted:
        out.append(f"packets went through {r['transport']}, not {wanted}")
    if r["aggregated_packets"] != r["aggregated_expected_packets"]:
        out.append(f"{r['aggregated_packets']} packets were aggregated, bucket sizes call for "
                   f"{r['aggregated_expected_packets']}")
    if wrong := add_up(r):
        out.append(wrong)
    out += too_fast(r["buckets"])
    whole = args.epochs >= 5 and not args.steps and args.hidden >= 1024
    margin = ACCURACY_MARGIN if whole else ACCURACY_EARLY
    if r["accuracy_thc"] < r["accuracy_fp32"] - margin:
        out.append(f"THC reaches {100 * r['accuracy_thc']:.2f} %, more than {100 * margin:.0f} "
                   f"points below fp32")
    if whole and r["accuracy_fp32"] < 0.93:
        out.append(f"the baseline reaches only {100 * r['accuracy_fp32']:.2f} %")
    if not r["nmse"] < 1:
        out.append(f"NMSE is {r['nmse']}: the aggregated gradients say nothing")
    if r["fallback_buckets"]:
        out.append(f"{r['fallback_buckets']} buckets went through Gloo instead of THC")
    if not r["identical_models"]:
        out.append("the workers' models differ after training")
    return out


def run(args, screen):
    reason = netns.why_not()
    if reason:
        raise DemoError(reason)
    for module, package in (("torch", "python3-torch"), ("sklearn", "python3-sklearn")):
        if not importlib.util.find_spec(module):
            raise DemoError(f"{sys.executable} has no {module}: apt-get install {package}, and "
                            f"run this by /usr/bin/python3 (make demo PYTHON=/usr/bin/python3)")
    for name in netns.sweep():
        screen.say(f"removed {name}, left by a run that died")
    if args.transport != "auto":
        os.environ["THC_TRANSPORT"] = args.transport
    with screen.waiting("loading torch"):
        demo_worker()
    times = bucket_times(args, screen)
    return {**train(args, screen), "buckets": buckets_json(args, times)}


def train(args, screen):
    """Trains with THC and with Gloo; the content of demo.json but for times."""
    impair = netns.Impair(drop=args.loss) if args.loss else None
    counters = {}
    with tempfile.TemporaryDirectory(prefix=netns.temporary_prefix()) as folder, \
            netns.Topology(args.workers, impair=impair) as net, \
            Aggregator(net, args.workers, software=args.software, quiet=True) as aggregator:
        stats = aggregator.stats()
        lanes = f", lanes summed by {stats['lanes_by']}" if "lanes_by" in stats else ""
        screen.say(f"aggregator {netns.AGGREGATOR4} ({stats['mode']}{lanes}), "
                   f"{args.workers} workers "
                   f"{net.address(0)}..{args.workers}, one namespace each, "
                   f"{100 * args.loss:g} % loss per direction")
        screen.say("every gradient goes through THC: the hook's threshold is 0, nothing falls back")
        if args.hidden < 1024 or args.epochs < 5 or args.steps:
            screen.say(f"less than the whole demo: hidden layers of {args.hidden}, "
                       f"{args.epochs} epochs{f', {args.steps} steps' if args.steps else ''}; "
                       f"Gloo trains the same")
        workers = Workers(net, aggregator, args, folder)

        def thc_done():
            counters.update(aggregator.stats())
            counters["impaired"] = net.impaired()
            net.heal()  # the baseline runs on whole links

        workers.watch(screen, thc_done)
        return summary(args, workers, counters, stats, counters["impaired"])


def arguments():
    parser = argparse.ArgumentParser(
        description="Times all-reduces at 1 Gb/s, then trains on digits with gradients summed in "
                    "XDP; both beside plain Gloo.")
    parser.add_argument("--software", action="store_true",
                        help="aggregate in user space instead of XDP")
    parser.add_argument("--loss", type=float, default=0.0, metavar="P",
                        help="lose packets with probability P in each direction, e.g. 0.02")
    parser.add_argument("--workers", type=int, default=4, help="1 to 8, default 4")
    parser.add_argument("--epochs", type=int, default=5,
                        help="passes over the training images, default 5")
    parser.add_argument("--steps", type=int, default=0, metavar="N",
                        help="end each training after N steps, before all epochs are over")
    parser.add_argument("--hidden", type=int, default=1024, metavar="N",
                        help="width of the network's hidden layers, default 1024")
    parser.add_argument("--rate", default="1gbit", metavar="RATE",
                        help="speed of each link while all-reduces are timed, as 1gbit, 2500mbit "
                             "or none; default 1gbit. Links have no limit in the training")
    parser.add_argument("--repeats", type=int, default=7, metavar="N",
                        help="all-reduces of each kind that are timed, default 7; 0: none")
    parser.add_argument("--verbose", action="store_true",
                        help="show the counters of all packets as well")
    parser.add_argument("--transport", choices=TRANSPORTS, default="auto",
                        help="sockets that gradients go through; default: AF_THC if thc.ko is "
                             "there, else UDP (or what THC_TRANSPORT says)")
    parser.add_argument("--patience", type=int, default=SILENT_SECONDS, metavar="S",
                        help="stop when no worker has said anything for S seconds, default "
                             f"{SILENT_SECONDS}")
    parser.add_argument("--live", action="store_true", help="draw as on a terminal")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON on stdout, the rest on stderr")
    parser.add_argument("--output", metavar="FILE",
                        default=os.path.join(netns.build_dir(), "demo.json"),
                        help="where the JSON is written, default build/demo.json")
    args = parser.parse_args()
    if not 0 <= args.loss <= 0.5:
        parser.error("--loss is a probability from 0 to 0.5")
    if not 1 <= args.workers <= 8 or args.epochs < 1 or args.steps < 0:
        parser.error("--workers is 1 to 8, --epochs at least 1, --steps not negative")
    if args.repeats < 0:
        parser.error("--repeats is not negative")
    args.rate = None if args.rate == "none" else args.rate
    if args.rate and not re.fullmatch(r"\d+[mg]bit", args.rate):
        parser.error("--rate is a number with mbit or gbit behind it, or none")
    if not os.path.isdir(os.path.dirname(os.path.abspath(args.output))):
        parser.error(f"--output: there is no folder for {args.output}: make it first")
    return args


def main():
    args = arguments()
    screen = Screen(args.json, args.live)
    try:
        with netns.guard():
            result = run(args, screen)
    except (DemoError, netns.NetnsError) as error:
        screen.say(f"demo: {error}")
        return 1
    except SystemExit:
        screen.say("demo: interrupted; its namespaces and processes are gone")
        raise
    text = json.dumps(result, indent=2)
    with open(args.output, "w", encoding="utf-8") as f:
        f.write(text + "\n")
    wrong = faults(result, args)
    if args.json:
        print(text)
    screen.say("")
    screen.say(table(result, args.verbose))
    screen.say("")
    for sentence in wrong:
        screen.say(f"  WRONG: {sentence}")
    if not wrong:
        screen.say(f"  Counts add up: {result['aggregated_packets']} packets were aggregated in "
                   f"the training, as many as\n  its buckets call for, and each of "
                   f"{result['received']} received has one fate or drop. --verbose shows all.")
        screen.say("")
        screen.say(how_to_use(result))
    screen.say(f"\n  Written to {netns.output_name(args.output)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
