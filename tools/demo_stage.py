# SPDX-License-Identifier: GPL-2.0
"""Training processes, forked into the workers' namespaces: starts one per worker and reads their
reports until all have ended. training.py has the training and the reports.
"""
import argparse
import contextlib
import functools
import json
import os
import selectors
import tempfile
import time

import netns
from aggregator import Aggregator

TRANSPORTS = {"auto": None, "udp": "UDP", "af_thc": "AF_THC"}   # values of THC_TRANSPORT


class DemoError(RuntimeError):
    """A demo without a result; the message says why."""


def bar(step, total, loss, run):
    done = 24 * step // total
    return (f"{run:9s} [{'#' * done}{'.' * (24 - done)}] step {step:3d}/{total}"
            f"  loss {loss:6.4f}")


class Workers:
    """Collects the reports of all workers until they end.

    body(arguments): what each worker runs; task: arguments that all workers share; runs: names of
    the trainings, the first of which uses THC; folder: for logs; patience: seconds without a
    report until a worker counts as hung
    """

    def __init__(self, net, body, task, *, runs, folder, patience):
        self.processes, self.results, self.joined = [], [{} for _ in range(net.workers)], {}
        self.selector = selectors.DefaultSelector()
        self.runs, self.folder, self.patience = runs, folder, patience
        task = {"world": net.workers, "rendezvous": net.address(0), **task}
        for rank in range(net.workers):
            with open(self.log(rank), "wb") as log:
                p = net.fork(net.worker(rank), functools.partial(
                    body, argparse.Namespace(rank=rank, **task)), talk=True,
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
        """Draws until all workers have ended; DemoError if one fails or hangs.

        Calls thc_done() after the first run, when the last worker has left the job.
        """
        with self.selector:
            self._listen(screen, thc_done)
        for p in self.processes:
            if p.wait():
                raise DemoError(f"a worker ended with status {p.returncode}, though it has trained")

    def _listen(self, screen, thc_done):
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
                elif word["event"] == "judging":
                    phase = f"{word['run']}: judging the model"
                elif word["event"] == "joining":
                    phase = "joining the job"
                elif word["event"] == "joined":
                    self.joined = word
                elif word["event"] == "result":
                    self.results[key.data][word["run"]] = word
                    if all(self.runs[0] in r for r in self.results) and thc_done:
                        thc_done()
                        thc_done = None
            screen.progress(phase)
            if time.monotonic() - heard > self.patience:
                raise DemoError(f"no worker has said anything for {self.patience} s: stopped")

    def ended(self, rank):
        if self.runs[-1] not in self.results[rank]:
            raise DemoError(f"worker {rank} ended too early: {self.complaint(rank)}")


class Stage:
    """Where workers train: net, folder for logs, aggregator with the job, its counters at_start."""

    def __init__(self, net, folder, aggregator):
        self.net, self.folder, self.aggregator = net, folder, aggregator
        self.at_start = aggregator.stats()

    def describe(self, loss):
        """The stage in a sentence. loss: fraction of packets that the links drop"""
        by = self.at_start.get("lanes_by")
        return (f"aggregator {netns.AGGREGATOR4} ({self.at_start['mode']}"
                f"{f', lanes summed by {by}' if by else ''}), {self.net.workers} workers "
                f"{self.net.address(0)}..{self.net.workers}, one namespace each, "
                f"{100 * loss:g} % loss per direction")

    def train(self, body, task, *, runs, patience, screen):
        """Runs Workers to their end; returns (workers, the aggregator's counters)."""
        counters = {}
        job = {"job": self.aggregator.job, "key_file": self.aggregator.key_file,
               "aggregator": netns.AGGREGATOR4}
        workers = Workers(self.net, body, {**job, **task}, runs=runs, folder=self.folder,
                          patience=patience)

        def thc_done():
            counters.update(self.aggregator.stats())
            counters["impaired"] = self.net.impaired()
            self.net.heal()  # the baseline runs on whole links

        workers.watch(screen, thc_done)
        return workers, counters


@contextlib.contextmanager
def stage(args, job=None, shape=None):
    """A Stage for a demo's arguments. job: more keys of the job; shape: see netns.Topology"""
    impair = netns.Impair(drop=args.loss) if args.loss else None
    with tempfile.TemporaryDirectory(prefix=netns.temporary_prefix()) as folder, \
            netns.Topology(args.workers, shape=shape, impair=impair) as net, \
            Aggregator(net, args.workers, software=args.software, job=job,
                       quiet=True) as aggregator:
        yield Stage(net, folder, aggregator)
