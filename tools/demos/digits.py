# SPDX-License-Identifier: GPL-2.0
"""The demo's task digits: times all-reduces at 1 Gb/s, THC beside Gloo, then trains a small network
twice with equal seeds: an aggregator in XDP sums all gradients, then Gloo fp32 does.
bench/buckets.py measures the times, demo_worker.py trains.
"""
import importlib
import os
import re

import netns
from aggregator import FATES, add_up
from bench import model
from bench.buckets import BUCKET_BYTES, SYSTEMS, measure
from demos import goal
from screen import aligned
from demo_stage import TRANSPORTS, stage

with open(os.path.join(netns.ROOT, "include/uapi/linux/thc_wire.h"), encoding="ascii") as header:
    NORMS_PER_PACKET = int(re.search(r"#define\s+THC_NORMS\s+(\d+)", header.read())[1])
ACCURACY_MARGIN = 0.03  # most accuracy that THC may lose against fp32 after 5 epochs
ACCURACY_EARLY = 0.15   # most accuracy that it may lose before
SMALL_BYTES = 64 << 10
# Error feedback is on, as in the hook.
TIMED = {"thc_ef": "THC", "gloo_fp32": "Gloo fp32", "gloo_fp16": "Gloo fp16"}
AT_LEAST = 0.95         # least time / closed form: no bucket is faster than its links
RUNS = ("THC", "Gloo fp32")
LINK_MS = ("thc_link_ms", "gloo_fp32_link_ms", "gloo_fp16_link_ms")     # of TIMED


def bucket_times(args, screen):
    """{bytes: times} of an all-reduce by THC and by Gloo at the link rate args.links."""
    if not args.repeats:
        return {}
    links = model.speed(args.links)
    with screen.waiting("timing buckets: starting workers") as show:
        def progress(size, repeat, system, seconds):
            show(f"one all-reduce of {mebibytes(size)}, links: {links}, "
                 f"{repeat or 'warming up'}{f'/{args.repeats}' if repeat else ''}: "
                 f"{TIMED[system]} {1e3 * seconds:.1f} ms")

        times, _, _ = measure(args.workers, args.links, args.repeats, systems=tuple(TIMED),
                              sizes=(SMALL_BYTES, BUCKET_BYTES), software=args.software,
                              job=goal.job_of(args), progress=progress)
    return times


def expected_packets(sizes, block, chunk):
    """Packets of one worker that the aggregator must have added for buckets of these sizes.

    An all-reduce has one agreement packet, the norms of its blocks, and its chunks.
    """
    total = 0
    for count in sizes:
        blocks = -(-count // block)
        total += 1 + -(-blocks // NORMS_PER_PACKET) + -(-blocks * block // chunk)
    return total


def nmse(errors):
    """The NMSE over all measured steps. errors: [(||difference||^2, ||mean||^2)] by step"""
    difference, norm = map(sum, zip(*errors))
    return difference / norm


def buckets_json(args, times):
    """The times in demo.json, with the closed form; {} if none were measured."""
    if not times:
        return {}
    return {"rate": args.links, "workers": args.workers, "repeats": args.repeats,
            "times": [{"bucket_bytes": size, **t, **bounds(args, size)}
                      for size, t in times.items()]}


def bounds(args, size):
    """The least milliseconds by the links; {} without a limit. THC's only with fixed bits."""
    if not args.links:
        return {}
    thc = {} if goal.follows_norms(args) else {"thc_link_ms": model.thc_ms(args.workers, size, args.links)}
    return {**thc, "gloo_fp32_link_ms": model.ring_ms(args.workers, size, args.links),
            "gloo_fp16_link_ms": model.ring_ms(args.workers, size // 2, args.links)}


def expected_of(args, thc, info):
    """Packets that the aggregator must have added: from the sizes of buckets, or, if bits follow
    norms, the packets that the ranks sent, without retransmits.
    """
    if goal.follows_norms(args):
        return sum(r["stats"]["packets_up"] - r["stats"]["retransmits"] for r in thc)
    return sum(expected_packets(r["sizes"], info["block"], info["chunk"]) for r in thc)


def summary(args, workers, stats, at_start, impaired):
    """The content of demo.json."""
    thc = [r["THC"] for r in workers.results]
    fp32 = [r["Gloo fp32"] for r in workers.results]
    info = workers.joined
    steps, n = thc[0]["steps"], args.workers
    errors = thc[0]["errors"]
    expected = expected_of(args, thc, info)
    added = stats["events"]["added"]
    per_step = {k: sum(r["stats"][k] for r in thc) / n / steps
                for k in ("bytes_up", "bytes_down", "packets_up", "packets_down")}
    parameter_bytes = 4 * thc[0]["parameters"]
    return {
        "workers": n,
        "steps": steps,
        "accuracy_thc": thc[0]["quality"],
        "accuracy_fp32": fp32[0]["quality"],
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
        "chosen": goal.chosen(args, thc),
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
    """Rows about times; [] if none were measured."""
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
                         *(f"{t[link]:.0f} ms" if link in t else "-" for link in LINK_MS)))
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
        (f"packets expected from {'what workers sent once' if r['chosen'] else 'bucket sizes'}",
         f"{r['aggregated_expected_packets']}"),
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
    return aligned([times_of(r), results_of(r), goal.rows(r), counters_of(r) if verbose else []])


def last_words(r):
    """The closing text: the result, when THC pays, commands to try."""
    where = "in user space" if r["xdp_mode"] == "software" else "by an XDP program"
    return f"""\
{goal.errors(r)}\
  Counts add up: {r["aggregated_packets"]} packets were aggregated in the training, as many as
  its {"workers sent" if r["chosen"] else "buckets call for"}, and each of {r["received"]} received has one fate or drop. --verbose shows all.

  {goal.what(r)} of {r["workers"]} workers were summed {where}, without decompressing them.
  THC pays where links are slow beside the processors. It gains little or loses with large
  buckets on fast links, and loses with many ranks, because the link of the one aggregator carries the
  packets of all.
  The table "When it pays" in README.md says by how much.

  On one host:      thcd -i eth0 --job 1,ranks={r["workers"]}{goal.key_of(r)},key=@/etc/thc/job1.key
  In each trainer:  state, hook = thc_hook()              # from thc_ddp; reads THC_AGGREGATOR, ...
                    model.register_comm_hook(state, hook)"""


def too_fast(buckets):
    """Sentences about large buckets that were faster than their links: shaping failed."""
    return [f"{SYSTEMS[system]} reduced {mebibytes(t['bucket_bytes'])} in {t[f'{system}_ms']:.0f} "
            f"ms, and its links take {t[link]:.0f} ms: they were not limited"
            for t in buckets.get("times", []) if t["bucket_bytes"] == BUCKET_BYTES
            for system, link in zip(TIMED, LINK_MS)
            if link in t and t[f"{system}_ms"] < AT_LEAST * t[link]]


def faults(r, args):
    """The faults of this result, as sentences; []: it is good."""
    out = []
    wanted = TRANSPORTS[args.transport]
    if wanted and r["transport"] != wanted:
        out.append(f"packets went through {r['transport']}, not {wanted}")
    if r["aggregated_packets"] != r["aggregated_expected_packets"]:
        out.append(f"{r['aggregated_packets']} packets were aggregated, "
                   f"{'workers sent' if r['chosen'] else 'bucket sizes call for'} "
                   f"{r['aggregated_expected_packets']}")
    if wrong := add_up(r):
        out.append(wrong)
    out += too_fast(r["buckets"])
    whole = args.epochs >= 5 and not args.steps and args.hidden >= 1024
    margin = ACCURACY_MARGIN if whole and not r["chosen"] else ACCURACY_EARLY
    if r["accuracy_thc"] < r["accuracy_fp32"] - margin:
        out.append(f"THC reaches {100 * r['accuracy_thc']:.2f} %, more than {100 * margin:.0f} "
                   f"points below fp32")
    if whole and r["accuracy_fp32"] < 0.93:
        out.append(f"the baseline reaches only {100 * r['accuracy_fp32']:.2f} %")
    # a block that was skipped for some steps brings their sum: at a low rate more than one step's
    noise = r["nmse_of_compression" if r["chosen"] else "nmse"]
    if not noise < 1:
        out.append(f"NMSE is {noise}: the aggregated gradients say nothing")
    if r["fallback_buckets"]:
        out.append(f"{r['fallback_buckets']} buckets went through Gloo instead of THC")
    if not r["identical_models"]:
        out.append("the workers' models differ after training")
    return out


def run(args, screen):
    with screen.waiting("loading torch"):
        worker = importlib.import_module("demo_worker")
        task = importlib.import_module("tasks.digits").Digits(args.hidden)
    times = bucket_times(args, screen)
    return {**train(args, screen, worker, task), "buckets": buckets_json(args, times)}


def train(args, screen, worker, task):
    """Trains with THC and with Gloo; returns the content of demo.json without times."""
    with stage(args, job=goal.job_of(args)) as here:
        screen.say(here.describe(args.loss))
        screen.say("every gradient goes through THC: the hook's threshold is 0, nothing falls back")
        if args.hidden < 1024 or args.epochs < 5 or args.steps:
            screen.say(f"less than the whole demo: hidden layers of {args.hidden}, "
                       f"{args.epochs} epochs{f', {args.steps} steps' if args.steps else ''}; "
                       f"Gloo trains the same")
        total = task.steps(args.workers, args.epochs)
        workers, counters = here.train(
            worker.work, {"task": task, "steps": min(total, args.steps or total)}, runs=RUNS,
            patience=args.patience, screen=screen)
        return summary(args, workers, counters, here.at_start, counters["impaired"])
