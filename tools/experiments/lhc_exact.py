# SPDX-License-Identifier: GPL-2.0
"""Compares exact means of scheme lhc with big integers (bigmean.py), bit for bit, on every rank,
over links that lose, corrupt, duplicate and reorder packets. Aggregators: native XDP, generic XDP
and software, one of each or three that share the chunks. With THC_TRANSPORT=af_thc, in a test
machine, the ranks use AF_THC sockets.
"""
import contextlib
import functools
import json
import mmap
import os
import sys
import time
from typing import NamedTuple

import numpy as np

import netns
from aggregator import Shards
from bench import chart
from bench.buckets import Processes
from experiments import bigmean
from experiments.report import Column, ExperimentError
from experiments.stress import CASES

sys.path.append(os.path.join(netns.ROOT, "userspace/python"))
from thc_ddp import ThcClient  # noqa: E402  (found through the path above)

TITLE = "Means of lhc beside big integers"
TOTAL, QUICK, SAMPLE = 10**8, 10**7, 10**6
HARM = {"drop": .2, "corrupt": .01, "duplicate": .05, "late": .05}
OVER = "AF_THC" if os.environ.get("THC_TRANSPORT") == "af_thc" else "UDP"
BUCKET = 250000         # most values of a bucket that are not zero
COORDINATES = 1 << 20   # most coordinates of a bucket
THIN = 64               # most coordinates per value that is not zero
STEPS = 4               # fewest steps: the form of an index depends on earlier steps


class Path(NamedTuple):
    home: str
    aggregators: int
    ranks: int


# Means of three ranks have endless digits, means of four have ties.
PATHS = tuple(Path(home, aggregators, ranks) for home in ("native", "generic", "software")
              for aggregators, ranks in ((1, 3), (3, 4)))

COLUMNS = [Column("home", "aggregators by"), Column("aggregators", "how many"),
           Column("over", "ranks by"), Column("ranks", "ranks"), Column("kind", "values"),
           Column("share", "not zero on a rank", "", "g"), Column("coordinates", "coordinates"),
           Column("values", "not zero on some rank"), Column("differ", "differ"),
           Column("dropped", "packets dropped", "", ".3f"),
           Column("overtaken", "packets overtaken", "", ".3f"),
           Column("repeated", "requests sent again", "", ".3f"),
           Column("seconds", "time", "s", ".0f")]


# --- ranks ------------------------------------------------------------------
class Memory:
    """Inputs and results of the ranks, one row per rank, in memory that their processes share.
    Pages that are never written take no memory."""

    def __init__(self, ranks, room):
        whole = np.frombuffer(mmap.mmap(-1, 8 * ranks * room), np.uint32)
        self.brought, self.received = whole.reshape(2, ranks, room)


def _reduce(client, memory, rank, buckets):
    """Reduces buckets, [(key, first, count)], overlapped."""
    requests = []
    for key, first, count in buckets:
        out = memory.received[rank, first:first + count]
        out[:] = memory.brought[rank, first:first + count]
        requests.append(client.start(out.ctypes.data, count, key=key, scheme="lhc"))
    for request in requests:
        client.wait(request)
    return client.stats()


def _serve(memory, rank):
    os.environ.update(netns.environment())
    client = None
    for line in sys.stdin:
        (what, given), = json.loads(line).items()
        if what == "open":
            client = ThcClient(rank=rank, error_feedback=False, **given)
            out = client.info()["transport"]
        elif what == "reduce":
            out = _reduce(client, memory, rank, given)
        else:
            out = client.close()
        print(json.dumps(out), flush=True)


# --- paths ------------------------------------------------------------------
class Bed:
    """Impaired links and the ranks' processes, which the paths use one after the other."""

    def __init__(self, paths, stack):
        ranks = max(path.ranks for path in paths)
        self.memory = Memory(ranks, len(CASES) * COORDINATES)
        self.net = stack.enter_context(netns.Topology(
            ranks, aggregators=max(path.aggregators for path in paths),
            impair=netns.Impair(**HARM)))
        self.processes = Processes(self.net, functools.partial(_serve, self.memory))
        stack.callback(self.processes.close)

    def ask(self, path, **what):
        return self.processes.ask(json.dumps(what), path.ranks)

    @contextlib.contextmanager
    def joined(self, path):
        """A context in which the ranks have joined a job of this path's aggregators."""
        in_xdp = path.home != "software"
        with Shards(self.net, path.ranks, path.aggregators, software=not in_xdp, quiet=True,
                    job={"rate": "fixed"},      # scheme lhc has no rates
                    options=["--mode", path.home] if in_xdp else []) as shards:
            over = set(self.ask(path, open={"aggregator": netns.AGGREGATOR4, "job": shards.job,
                                            "key_file": shards.key_file}))
            modes = {a.stats()["mode"] for a in shards.all}
            if over != {OVER} or modes != {path.home}:
                raise ExperimentError(f"ranks by {over}, aggregators by {modes}: wanted were "
                                      f"{OVER} and {path.home}")
            yield
            self.ask(path, close=None)

    def harmed(self):
        """Numbers of packets: (seen, dropped, overtaken)."""
        counts = self.net.impaired().values()
        return np.array([sum(c[what] for c in counts) for what in ("seen", "dropped", "overtaken")])


class Step:
    """A bucket per case, with at most `most` values that are not zero, reduced overlapped."""

    def __init__(self, memory, ranks, seed, most):
        self.brought, self.received = memory.brought[:ranks], memory.received[:ranks]
        self.buckets, first = [], 0
        for key, case in enumerate(CASES):
            count = min(COORDINATES, THIN * most, int(most / case.union(ranks)))
            for rank in range(ranks):
                self.brought[rank, first:first + count] = case.bits([*seed, key], rank, ranks, count)
            self.buckets.append((key, first, count))
            first += count

    def check(self, found):
        """Adds the numbers of values and of wrong means to found, a row per case. Returns a
        sentence about the first wrong mean, or None."""
        wrong = None
        for row, (_, first, count) in zip(found, self.buckets):
            brought, received = (of[:, first:first + count] for of in (self.brought, self.received))
            there = np.flatnonzero((brought << 1).any(axis=0))
            want = np.zeros(count, np.uint32)
            want[there] = bigmean.mean(brought[:, there])
            differs = received != want
            row["coordinates"] += count
            row["values"] += there.size
            row["differ"] += int(differs.any(axis=0).sum())
            if differs.any() and not wrong:
                rank, at = np.argwhere(differs)[0]
                wrong = (f"{row['kind']}: coordinate {at} of {count} is {received[rank, at]:08x} "
                         f"on rank {rank}, but {' '.join(f'{b:08x}' for b in brought[:, at])} "
                         f"have the mean {want[at]:08x}")
        return wrong


def _rows_of(bed, path, total, seed, say):
    found = [{**path._asdict(), "over": OVER, "kind": case.kind, "share": case.share,
              "coordinates": 0, "values": 0, "differ": 0} for case in CASES]
    # the case with the fewest values contributes hardly any
    most = min(BUCKET, total // (STEPS * (len(CASES) - 1)) + 1)
    before, start, done, number, wrong = bed.harmed(), time.monotonic(), 0, 0, None
    with bed.joined(path):
        while done < total and not wrong:
            step = Step(bed.memory, path.ranks, [seed, number], most)
            stats = bed.ask(path, reduce=step.buckets)
            wrong = step.check(found)
            number, done = number + 1, sum(row["values"] for row in found)
            say(done)
    if wrong:
        raise ExperimentError(f"{path.home}, {path.aggregators}: of {done} values "
                              f"{sum(row['differ'] for row in found)} differ. {wrong}")
    seen, dropped, overtaken = (int(n) for n in bed.harmed() - before)
    sent, again = (sum(s[key] for s in stats) for key in ("packets_up", "retransmits"))
    for row in found:
        row.update(dropped=dropped / seen, overtaken=overtaken / seen, repeated=again / sent,
                   seconds=time.monotonic() - start)
    return found


def measured(total, seed, progress, paths=PATHS):
    """Rows by path and case, with `total` values over all paths. ExperimentError if one differs."""
    found = []
    with contextlib.ExitStack() as stack:
        bed = Bed(paths, stack)
        for number, path in enumerate(paths):
            part = -(-total // len(paths))
            found += _rows_of(bed, path, part, seed + 1000 * number, lambda done: progress(
                f"lhc_exact: {path.home}, {path.aggregators}: {done} of {part}"))
    return found


def rows(options, progress):
    reason = netns.why_not()
    if reason:
        raise ExperimentError(reason)
    try:
        with netns.guard():
            return measured(QUICK if options.quick else TOTAL, options.seed, progress)
    except netns.NetnsError as error:
        raise ExperimentError(error) from error


# --- shown ------------------------------------------------------------------
def total_of(found, what="values"):
    return sum(row[what] for row in found)


def summary(found):
    return (f"{total_of(found, 'differ')} of {total_of(found)} values differ on any rank, and "
            f"{total_of(found, 'coordinates') - total_of(found)} more are +0.")


def _by(found, *keys):
    """One row per combination of keys, with the sums of the counts."""
    lines = {}
    for row in found:
        line = lines.setdefault(tuple(row[key] for key in keys), {**row, **dict.fromkeys(
            ("coordinates", "values", "differ"), 0)})
        for what in ("coordinates", "values", "differ"):
            line[what] += row[what]
    return list(lines.values())


def shown(found):
    """(columns, rows) for people: kinds together; the CSV has them."""
    return ([c for c in COLUMNS if c.key not in ("kind", "share")],
            _by(found, "home", "aggregators"))


def svg(found):
    groups = [(heading, [("ours", name(row), row["values"]) for row in _by(found, *keys)])
              for heading, keys, name in (
                  ("by aggregators", ("home", "aggregators"),
                   lambda row: f"{row['home']}, {row['aggregators']}"),
                  ("by values", ("kind", "share"),
                   lambda row: f"{row['kind']}, {100 * row['share']:g} %"))]
    return chart.bars(f"Means compared: {total_of(found, 'differ')} differ", groups,
                      lambda value: f"{value / 1e6:.3g} million")
