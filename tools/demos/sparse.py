# SPDX-License-Identifier: GPL-2.0
"""The demo's tasks with sparse gradients, ncf and lm: trains by scheme lhc and, with equal seeds,
by Gloo, at one link rate. Shows the models' quality, the time of a step, bytes, and the number of
rows in gradients. sparse_worker.py trains.
"""
import importlib
import statistics

from aggregator import FATES, add_up
from bench import model
from screen import aligned
from demo_stage import TRANSPORTS, DemoError, stage

TASKS = {"ncf": ("tasks.ncf", "Packages"), "lm": ("tasks.lm", "Definitions")}
LHC, FP32, ROWS = "THC lhc", "Gloo fp32", "Gloo rows"
WARM_UP = 4             # steps until buckets and the index's levels are steady


def runs_of(sparse):
    """Names of the trainings, lhc first. The last one trains with the same gradients as lhc does;
    with two ranks its sums are exact, too.
    """
    return (LHC, FP32, ROWS) if sparse else (LHC, FP32)


def load(name):
    """The task with this name, with its data loaded."""
    module, kind = TASKS[name]
    tasks = importlib.import_module(module)
    try:
        return getattr(tasks, kind)()
    except tasks.TaskError as error:
        raise DemoError(str(error)) from None


def run(args, screen):
    with screen.waiting("loading torch"):
        importlib.import_module("sparse_worker")
    with screen.waiting("reading the data"):
        task = load(args.task)
    screen.say(f"{task.data}; sha256 {task.sha256[:16]}")
    return train(args, screen, task)


def way(args):
    """(more keys of the job, the hook's schemes). Precision "exact": embeddings by "auto", the rest
    by the job, all exact. Another precision: the job's for all parameters.
    """
    if args.precision == "exact":
        return {"scheme": "lhc"}, "auto"
    return {"scheme": "lhc", "precision": args.precision}, None


def train(args, screen, task):
    """The content of demo.json."""
    worker = importlib.import_module("sparse_worker")
    job, schemes = way(args)
    sparse = not args.dense_embeddings
    with stage(args, job=job, shape=args.links) as here:
        screen.say(f"{here.describe(args.loss)}, links: {model.speed(args.links)}")
        screen.say(f"embeddings have {'sparse' if sparse else 'dense'} gradients, which go by scheme "
                   f"lhc, {args.precision}; Gloo trains the same")
        workers, counters = here.train(
            worker.work, {"task": task, "steps": args.steps or task.STEPS, "sparse": sparse,
                          "schemes": schemes},
            runs=runs_of(sparse), patience=args.patience, screen=screen)
        return {**about(args, task), **summary(workers, runs_of(sparse), args.precision),
                "density": densities(task, workers), **counted(workers, counters, here.at_start)}


def about(args, task):
    return {"task": args.task, "workers": args.workers, "steps": args.steps or task.STEPS,
            "rate": args.links, "precision": args.precision, "sparse": not args.dense_embeddings,
            "data": task.data, "sha256": task.sha256, "quality": task.QUALITY, "loss": args.loss}


def step_ms(results):
    """Median of the slowest rank, without the first ones if there are others."""
    def median(seconds):
        return statistics.median(seconds[WARM_UP:] or seconds)

    return 1e3 * max(median(r["step_seconds"]) for r in results)


def summary(workers, runs, precision):
    """Results by run; equal: whether lhc and the last run give equal bits, None if they may not."""
    out = {}
    for name in runs:
        of = [r[name] for r in workers.results]
        steps = of[0]["steps"]
        out[name] = {"quality": of[0]["quality"], "training_loss": of[0]["loss"],
                     "step_ms": step_ms(of), "seconds": max(r["seconds"] for r in of),
                     **{f"{way}_per_step": round(statistics.mean(r[way] for r in of) / steps)
                        for way in ("bytes_up", "bytes_down")},
                     "digests": sorted({r["digest"] for r in of})}
    # Gloo rounds a sum of two ranks once, as an exact mean does
    equal = (out[runs[0]]["digests"] == out[runs[-1]]["digests"]
             if len(workers.results) == 2 and precision == "exact" else None)
    parameters = workers.results[0][LHC]["parameters"]
    return {"runs": out, "bit_equal": equal, "parameters": parameters,
            "fp32_bytes_per_step": 4 * parameters}


def densities(task, workers):
    """Density of each embedding's gradient, mean over the steps seen: of a rank's own (own) and of
    the ranks' mean (union).
    """
    of = [r[LHC] for r in workers.results]
    return {name: {"rows": rows, "width": width, "steps_seen": len(of[0]["union"][name]),
                   "own": statistics.mean(n for r in of for n in r["own"][name]) / rows,
                   "union": statistics.mean(of[0]["union"][name]) / rows}
            for name, (rows, width) in task.rows.items()}


def counted(workers, counters, at_start):
    """Counters of packets and buckets."""
    stats = [r[LHC]["stats"] for r in workers.results]
    return {"transport": workers.joined["transport"], "xdp_mode": at_start["mode"],
            "aggregated_packets": counters["events"]["added"], "received": counters["received"],
            "events": counters["events"], "drops": counters["drops"],
            "impaired": counters["impaired"],
            "retransmits": sum(s["retransmits"] for s in stats),
            "fallback_buckets": sum(s["buckets_fallback"] for s in stats),
            "exact_buckets": sum(s["buckets_exact"] for s in stats)}


def megabytes(n):
    return f"{n / 1e6:.3f} MB"


def qualities_of(r, task_shows):
    runs = r["runs"]
    rows = [(f"After {r['steps']} steps of {r['workers']} workers", *runs),
            (r["quality"], *(task_shows(run["quality"]) for run in runs.values())),
            ("loss of the last batch", *(f"{run['training_loss']:.4f}" for run in runs.values()))]
    if r["bit_equal"] is not None:
        rows.append(("bit-equal to exact summation", "yes" if r["bit_equal"] else "NO"))
    return rows


def steps_of(r):
    """Rows about times and bytes."""
    runs, fp32 = r["runs"], r["fp32_bytes_per_step"]
    ms = [run["step_ms"] for run in runs.values()]
    both = [run["bytes_up_per_step"] + run["bytes_down_per_step"] for run in runs.values()]
    return [
        (f"A step of a worker, links: {model.speed(r['rate'])}", *runs),
        ("time, median", *(f"{x:.0f} ms" if x >= 10 else f"{x:.2f} ms" for x in ms)),
        ("  beside lhc", "", *(f"{x / ms[0]:.2f} x" for x in ms[1:])),
        ("sent", *(megabytes(run["bytes_up_per_step"]) for run in runs.values())),
        ("received", *(megabytes(run["bytes_down_per_step"]) for run in runs.values())),
        (f"{megabytes(fp32)} of fp32 both ways, beside that", *(f"{2 * fp32 / x:.1f} x" if x else "-"
                                                               for x in both))]


def densities_of(r):
    return [("Rows of gradients, part of all", "own", "of the mean"),
            *((f"{name}, {d['rows']:,} rows of {d['width']}", f"{100 * d['own']:.2f} %",
               f"{100 * d['union']:.2f} %") for name, d in r["density"].items())]


def counters_of(r):
    """Rows for --verbose."""
    return [("Counters of the training by lhc", LHC), ("transport", r["transport"]),
            ("aggregated", "in user space" if r["xdp_mode"] == "software" else
             f"in XDP ({r['xdp_mode']})"),
            ("packets received by the aggregator", f"{r['received']}"),
            *((f"  {name}", f"{r['events'][name]}") for name in FATES),
            *((f"  dropped: {name}", f"{n}") for name, n in r["drops"].items() if n),
            *((f"lost on purpose, {direction}", f"{c['dropped']} of {c['seen']}")
              for direction, c in (r["impaired"] or {}).items()),
            ("retransmits", f"{r['retransmits']}")]


def shows(r):
    """The class of the task, which formats its quality."""
    module, kind = TASKS[r["task"]]
    return getattr(importlib.import_module(module), kind)


def table(r, verbose):
    return aligned([qualities_of(r, shows(r).shown), steps_of(r), densities_of(r),
                    counters_of(r) if verbose else []])


def faults(r, args):
    """The faults of this result, as sentences; []: it is good."""
    out = []
    wanted, lhc, fp32 = TRANSPORTS[args.transport], r["runs"][LHC], r["runs"][FP32]
    if wanted and r["transport"] != wanted:
        out.append(f"packets went through {r['transport']}, not {wanted}")
    if wrong := add_up(r):
        out.append(wrong)
    if r["fallback_buckets"]:
        out.append(f"{r['fallback_buckets']} buckets went through Gloo instead of lhc")
    for name, run in r["runs"].items():
        if len(run["digests"]) > 1:
            out.append(f"the workers' models differ after training by {name}")
    if r["bit_equal"] is False:
        out.append("parameters are not those of exact summation")
    if not shows(r).agree(lhc["quality"], fp32["quality"]):
        out.append(f"{r['quality']}: {shows(r).shown(lhc['quality'])} by lhc, "
                   f"{shows(r).shown(fp32['quality'])} by Gloo")
    return out


def last_words(r):
    paragraphs = [f"Each of {r['received']} packets that the aggregator received has one fate or drop. "
                  f"Bytes are those of the\n  interfaces, with headers and all that ranks confirm to "
                  f"each other."]
    if r["bit_equal"]:
        paragraphs.append("Means by lhc are exact: after training on two workers parameters have the bits "
                          "of exact summation.")
    elif r["precision"] == "exact":
        paragraphs.append("Means by lhc are exact, rounded once. --workers 2 compares parameters bit by "
                          "bit: a sum of two has one order.")
    if ROWS in r["runs"]:
        paragraphs.append(f"{ROWS} is torch's all-reduce of sparse tensors: each rank gets the rows of all "
                          f"others, and adds them up.\n  It sends less than lhc while ranks are few and "
                          f"have few rows in common.")
    return "  " + "\n  ".join(paragraphs) + f"""

  On one host:      thcd -i eth0 --job 1,ranks={r["workers"]},scheme=lhc,key=@/etc/thc/job1.key
  In each trainer:  state, hook = thc_hook(schemes="auto", model=model)
                    model.register_comm_hook(state, hook)"""
