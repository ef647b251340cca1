# SPDX-License-Identifier: GPL-2.0
"""The ranks of an integration test, one process (rank.py) per worker namespace.
Every wait for an answer has a time limit. The processes are forks of the test; with
a sanitizer, which must be loaded at the start of a process, they are new programs."""
import functools
import json
import os
import select
import subprocess
import sys
import time

from rank import serve
from tap import netns
from aggregator import read_line

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 120             # seconds after which a rank counts as hanging


def _serve(number):
    os.environ.update(netns.environment())
    serve(number)


class Ranks:
    """n client processes. pin: True: rank r runs on CPU r mod (number of CPUs) only."""

    def __init__(self, net, aggregator, n=None, pin=False, address=netns.AGGREGATOR4, **options):
        self.net, self.address, self.aggregator, self.pin = net, address, aggregator, pin
        self.options = options
        self.n = n or net.workers
        self.processes = [self.spawn(rank) for rank in range(self.n)]

    def spawn(self, number):
        place = self.net.worker(number)
        if os.environ.get("RANK_PRELOAD"):
            p = self.net.popen(place, [sys.executable, os.path.join(HERE, "rank.py"), str(number)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=netns.environment())
        else:
            p = self.net.fork(place, functools.partial(_serve, number), talk=True)
        if self.pin:
            os.sched_setaffinity(p.pid, {number % os.cpu_count()})
        return p

    def tell(self, rank, **request):
        self.processes[rank].stdin.write(json.dumps(request) + "\n")
        self.processes[rank].stdin.flush()

    def hear(self, rank, limit=LIMIT):
        line = read_line(self.processes[rank].stdout, limit)
        assert line, f"rank {rank} hangs or died: no answer within {limit} s"
        return json.loads(line)

    def has_answered(self, rank, limit):
        """True if the rank's answer comes within `limit` seconds; hear() returns it."""
        return bool(select.select([self.processes[rank].stdout], [], [], limit)[0])

    def all(self, ranks=None, limit=LIMIT, **request):
        """Sends one request to ranks (None: all); returns their answers in order."""
        ranks = range(self.n) if ranks is None else ranks
        for r in ranks:
            self.tell(r, **request)
        end = time.monotonic() + limit
        return [self.hear(r, max(0.1, end - time.monotonic())) for r in ranks]

    def open_request(self, **more):
        return {"do": "open", "aggregator": self.address, "job": self.aggregator.job,
                "key_file": self.aggregator.key_file, **self.options, **more}

    def open(self, ranks=None, **more):
        return good(self.all(ranks, **self.open_request(**more)))

    def reduce(self, **more):
        return good(self.all(do="reduce", **more))

    def kill(self, rank):
        """kill -9, as a crash would."""
        p = self.processes[rank]
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()

    def restart(self, rank):
        """A new process in place of a killed one."""
        self.processes[rank] = self.spawn(rank)

    def close(self):
        for p in self.processes:
            if p.poll() is None:
                p.stdin.close()
                try:
                    p.wait(5)
                except subprocess.TimeoutExpired:
                    pass
                p.stdout.close()
        self.net.stop(*self.processes)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()


def good(answers):
    """Returns answers; fails the test if one of these is an error."""
    for rank, answer in enumerate(answers):
        assert "error" not in answer, f"rank {rank}: {answer['error']}"
    return answers
