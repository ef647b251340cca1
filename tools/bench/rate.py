#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make bench-rate`: the all-reduce of a 25 MiB bucket of recorded gradients, by bits that follow
norms, by fixed bits (4 up, 8 down) and by Gloo fp32, in turns in one run. Each rank has the
gradients that it had in an earlier training. Prints a table, writes build/bench-rate.json; with
--page also Documentation/bench-rate.json, and the table in benchmarks.md.
"""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns  # noqa: E402  (found through the path above)
from aggregator import Shards  # noqa: E402
from bench import rate_table  # noqa: E402
from bench.buckets import BUCKET_BYTES, QUIET, Processes  # noqa: E402
from bench.figures import machine  # noqa: E402
from bench.model import gbit, ring_ms, speed  # noqa: E402
from experiments import gradients  # noqa: E402
from experiments.rate_error import TASKS  # noqa: E402
from tasks.task import TaskError  # noqa: E402

WORKERS = 4
FIRST, STEPS = 20, 8    # first step and number of steps of a training that are recorded
SYSTEMS = ("fixed", "rate-4", "rate-6", "rate-12", "gloo_fp32")
LINKS = {"1gbit": "1gbit", "none": None}
WARM_UP = 10            # rounds until error memories are steady: a skipped block returns within 8
MAKERS = {name: make for name, make, _ in TASKS}


def note(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def recorded(names):
    """{task: [rank][step] an array of whole blocks}, for the tasks whose data is installed."""
    out = {}
    for name in names:
        note(f"training: {name}")
        try:
            of = gradients.trained(MAKERS[name](), WORKERS, range(FIRST, FIRST + STEPS))
        except TaskError as error:
            note(f"{name} is left out: {error}")
            continue
        steps = [gradients.joined(by_worker) for by_worker in of.values()]
        whole = steps[0].shape[1] // 1024 * 1024
        out[name] = [[x[rank, :whole].copy() for x in steps] for rank in range(WORKERS)]
    return out


class Ranks(Processes):
    """The persistent processes, each with its own gradients."""

    def __init__(self, net, aggregator, size, of):
        from bench import recorded as body      # imports torch once, before the forks
        task = {"world": net.workers, "job": aggregator.job, "key_file": aggregator.key_file,
                "aggregator": netns.AGGREGATOR4, "rendezvous": net.address(0), "bytes": size}
        super().__init__(net, lambda rank: body.serve(
            argparse.Namespace(rank=rank, gradients=of[rank], **task)))
        self._answers(self.processes)


def measured(links, of, size, args):
    """{system: [all ranks' answers, by round]}. The systems take turns; warm-up rounds are left
    out."""
    rounds = {system: [] for system in SYSTEMS}
    with netns.Topology(WORKERS, shape=links) as net, \
            Shards(net, WORKERS, 1, job={"rate": 4}, quiet=True) as shards:
        ranks = Ranks(net, shards, size, of)
        for number in range(args.warm_up + args.repeats):
            for system in SYSTEMS:
                rounds[system].append(ranks.ask(f"{system} {number % STEPS}"))
        ranks.close()
    return {system: answers[args.warm_up:] for system, answers in rounds.items()}


def rows(task, links, size, rounds):
    """A row per system. Times are the slowest rank's, medians over rounds; CPU time is the sum of
    all ranks.
    """
    def mean(answers, key):
        values = [a[key] for ranks in answers for a in ranks if key in a]
        return statistics.mean(values) if values else None

    out = []
    for system, answers in rounds.items():
        seconds = [max(a["seconds"] for a in ranks) for ranks in answers]
        out.append({"task": task, "links": links, "system": system,
                    "ms": 1e3 * statistics.median(seconds), "min_ms": 1e3 * min(seconds),
                    **{key: mean(answers, key) for key in (
                        "bits_up", "bits_down", "skipped", "error", "interface_up",
                        "interface_down", "retransmits", "frames_up")},
                    "cpu_ms": 1e3 * WORKERS * mean(answers, "cpu_seconds")})
    ms = {row["system"]: row["ms"] for row in out}
    return [{**row, "of_fixed": ms["fixed"] / row["ms"], "of_gloo": ms["gloo_fp32"] / row["ms"],
             "link_ms": link_ms(row, size)} for row in out]


def link_ms(row, size):
    """The least milliseconds by the links, None without a limit. For THC: all ranks' frames, each
    counted once, on the aggregator's link.
    """
    if not row["links"]:
        return None
    if row["system"] == "gloo_fp32":
        return ring_ms(WORKERS, size, row["links"])
    return WORKERS * row["frames_up"] * 8 / gbit(row["links"]) / 1e6


def measure(args):
    """The content of bench-rate.json."""
    load, size, found = os.getloadavg()[0], args.mebibytes << 20, []
    if load > QUIET:
        note(f"this machine is busy (load average {load:.1f}): what needs the CPU, rates before all, "
             f"will look worse than it is")
    for task, of in recorded(args.tasks).items():
        for links in args.links:
            note(f"{task}, {speed(LINKS[links])}")
            found += rows(task, LINKS[links], size, measured(LINKS[links], of, size, args))
    return {"machine": machine(), "load_at_start": load, "workers": WORKERS, "bytes": size,
            "repeats": args.repeats, "warm_up": args.warm_up, "steps": [FIRST, FIRST + STEPS - 1],
            "rows": found, "promises": rate_table.promises(found)}


def arguments():
    parser = argparse.ArgumentParser(description="Bits that follow norms beside fixed ones and Gloo.")
    parser.add_argument("--repeats", type=int, default=15, help="of each all-reduce; default 15")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, metavar="N",
                        help=f"rounds before that; default {WARM_UP}")
    parser.add_argument("--tasks", nargs="+", choices=MAKERS, default=list(MAKERS),
                        help=f"whose gradients; default {' '.join(MAKERS)}")
    parser.add_argument("--links", nargs="+", choices=LINKS, default=list(LINKS),
                        help="speed of each link; default 1gbit none")
    parser.add_argument("--mebibytes", type=int, default=BUCKET_BYTES >> 20, metavar="N",
                        help=f"of the bucket; default {BUCKET_BYTES >> 20}")
    parser.add_argument("--quick", action="store_true",
                        help="the first task alone, three of each all-reduce")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON on stdout, the rest on stderr")
    parser.add_argument("--page", action="store_true",
                        help="into Documentation/, too: bench-rate.json, and its table in benchmarks.md")
    parser.add_argument("--draw", action="store_true",
                        help="measure nothing, draw Documentation/bench-rate.json in benchmarks.md")
    parser.add_argument("--output", metavar="FILE", default=os.path.join(netns.build_dir(),
                                                                         "bench-rate.json"),
                        help="where the JSON is written, default build/bench-rate.json")
    args = parser.parse_args()
    if args.repeats < 1 or args.warm_up < 0 or not 1 <= args.mebibytes <= 1024:
        parser.error("--repeats is at least 1, --warm-up not negative, --mebibytes 1 to 1024")
    if args.quick:
        args.tasks, args.repeats = args.tasks[:1], 3
    return args


def main():
    args = arguments()
    if args.draw:
        rate_table.draw()
        return 0
    reason = netns.why_not()
    if reason:
        print(f"bench-rate: {reason}", file=sys.stderr)
        return 1
    try:
        netns.open_output(args.output)
        with netns.guard():
            netns.sweep()
            result = measure(args)
    except netns.NetnsError as error:
        print(f"bench-rate: {error}", file=sys.stderr)
        return 1
    text = json.dumps(result, indent=1) + "\n"
    for path in [args.output] + [rate_table.MEASURED] * args.page:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    if args.page:
        rate_table.draw()
    if args.json:
        print(text, end="")
    print(f"{rate_table.table(result)}\n\n  Written to {os.path.relpath(args.output)}",
          file=sys.stderr if args.json else sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
