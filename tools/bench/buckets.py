# SPDX-License-Identifier: GPL-2.0
"""Times of all-reduces, THC beside Gloo, on one topology of namespaces: for
`make bench`, `make figures` and the demo. The ranks run allreduce.py.
"""
import argparse
import functools
import json
import statistics

import netns
from aggregator import Shards

BUCKET_BYTES = 25 << 20     # DDP's default
QUIET = 0.5                 # most load average of an idle machine
WARM_UP = 3                 # most rounds until windows have grown and error memories have pages
RATE = 4                    # bits up plus down, the goal of a job with rate=auto
SYSTEMS = {"thc": "THC, 4 + 8 bits", "thc_ef": "4 + 8 bits, error feedback",
           "thc_rate": f"{RATE} bits by norms, feedback", "gloo_fp32": "Gloo fp32",
           "gloo_fp16": "Gloo fp16"}
# Systems without a secret key, and their seal.
KEYLESS = {"thc_unsealed": "none", "thc_summed": "sum"}
_COUNTED = ("packets_up", "bytes_up", "packets_down", "bytes_down", "send_calls", "receive_calls")


class Processes:
    """One process per worker of a topology, which runs serve(rank). Each request is a line to every
    process, and each answer a JSON object."""

    def __init__(self, net, serve):
        self.processes = [net.fork(net.worker(rank), functools.partial(serve, rank), talk=True)
                          for rank in range(net.workers)]

    @staticmethod
    def _answers(processes):
        lines = [p.stdout.readline() for p in processes]
        if not all(lines):
            raise netns.NetnsError("a process of a rank died; its message is above")
        return [json.loads(line) for line in lines]

    def ask(self, word, ranks=None):
        """Sends a line to the first `ranks` processes (None: all); returns their answers."""
        some = self.processes[:ranks]
        for p in some:
            p.stdin.write(word + "\n")
            p.stdin.flush()
        return self._answers(some)

    def close(self):
        for p in self.processes:
            p.stdin.close()
            p.wait()
            p.stdout.close()


class Ranks(Processes):
    """The persistent benchmark processes."""

    def __init__(self, net, aggregator):
        from bench import allreduce     # imports torch once, before the forks
        task = {"world": net.workers, "jobs": jobs_of(aggregator),
                "key_file": aggregator.key_file, "aggregator": netns.AGGREGATOR4,
                "rendezvous": net.address(0), "bytes": BUCKET_BYTES}
        super().__init__(net, lambda rank: allreduce.serve(argparse.Namespace(rank=rank, **task)))
        self.info = self._answers(self.processes)[0]["info"]


def jobs_of(aggregator):
    """A job per system, so that all clients of a rank can stay joined."""
    systems = ("thc", "thc_ef", "thc_rate", *KEYLESS)
    return {system: aggregator.job + i for i, system in enumerate(systems)}


def with_jobs(aggregator, systems):
    """Restarts thcd with the jobs of these systems added."""
    aggregator.stop()
    for system, job in jobs_of(aggregator).items():
        if system not in systems or job == aggregator.job:
            continue
        keys = {**aggregator.keys, "job": job}
        if system in KEYLESS:
            del keys["key"]
            keys["seal"] = KEYLESS[system]
        if system == "thc_rate":
            keys["rate"] = RATE
        aggregator.options += ["--job", ",".join(f"{k}={v}" for k, v in keys.items())]
    aggregator.start()


def _summary(samples, details):
    """Medians of the slowest rank's times, and the counters of the last THC all-reduce."""
    out = {f"{s}_ms": 1e3 * statistics.median(samples[s]) for s in samples}
    out.update({f"{s}_min_ms": 1e3 * min(samples[s]) for s in samples})
    first = next(s for s in samples if s.startswith("thc"))
    for base in ("fp32", "fp16"):
        if f"gloo_{base}" in samples:
            out[f"speedup_{base}"] = out[f"gloo_{base}_ms"] / out[f"{first}_ms"]
    thc = details[first]
    for key in _COUNTED:
        out[f"thc_{key}"] = statistics.mean(a[key] for a in thc)
    out["thc_retransmits"] = sum(a["retransmits"] for a in thc)
    out["thc_nmse"] = thc[0]["nmse"]
    return out


def measure(workers, shape, repeats, *, systems=tuple(SYSTEMS), sizes=(BUCKET_BYTES,),
            software=False, aggregators=1, job=None, progress=None):
    """({bytes: times}, memory, the aggregator's counters) of `repeats` all-reduces each.

    Several aggregators, each on a host of its own, share the chunks; the counters are the first
    aggregator's. job: more keys of the job, None: rate=fixed, because the blocks of random
    gradients have nearly equal norms.

    The systems take turns, so that other load on the machine affects every system. The baselines
    use worker links only, without XDP. progress(bytes, repeat, system, seconds) is called after
    each all-reduce; repeat is 0 during the warm-up.
    """
    with netns.Topology(workers, shape=shape, aggregators=aggregators) as net, \
            Shards(net, workers, aggregators, software=software, job=job or {"rate": "fixed"},
                   quiet=True) as shards:
        for aggregator in shards.all:
            with_jobs(aggregator, systems)
        ranks = Ranks(net, shards)
        samples = {size: {system: [] for system in systems} for size in sizes}
        details = {size: {} for size in sizes}
        for repeat in range(-min(WARM_UP, repeats), repeats):
            for size in sizes:
                for system in systems:
                    answers = ranks.ask(f"{system} {size}")
                    seconds = max(a["seconds"] for a in answers)
                    details[size][system] = answers
                    if repeat >= 0:
                        samples[size][system].append(seconds)
                    if progress:
                        progress(size, max(0, repeat + 1), system, seconds)
        memory = ranks.ask("memory")
        stats = shards[0].stats()
        ranks.close()
    more = {"repeats": repeats, "multicast": ranks.info["multicast"], "xdp_mode": stats["mode"]}
    return {size: {**_summary(samples[size], details[size]), **more} for size in sizes}, \
        memory, stats
