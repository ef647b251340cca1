# SPDX-License-Identifier: GPL-2.0
"""thcd in a topology's aggregator namespace, for demo, benchmarks and tests: starts
it, waits for it, reads its counters, stops it.
"""
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time

from keyfile import KeyFile
from netns import THCD_SOCKETS, NetnsError, build_dir

PORT = 18500    # an aggregator's base port by default


class Aggregator:
    """A running thcd with one job, number 1.

    ranks: ranks of the job; software: True: no BPF; job: more keys of the job, as {"reply":
    "fanout"}; options: more options of thcd; quiet: stderr is shown only after a failure; secret:
    the job's secret key in bytes, None: a new one; number: tells several thcds on one network
    apart; host: index in net.aggregators; prefix: a command that starts thcd, as ["taskset", ...].
    key and key_file are None in a job with seal=sum or seal=none.
    """

    def __init__(self, net, ranks, software=False, job=None, options=(), stderr=None,
                 quiet=False, secret=None, number=0, host=0, prefix=()):
        self.net, self.ranks, self.software = net, ranks, software
        self.job = 1
        self.keys = {"job": self.job, "ranks": ranks, **(job or {})}
        self.secret = self.key = self.key_file = None
        if self.keys.get("seal", "nh") == "nh":
            self.secret = KeyFile(secret)
            self.key, self.key_file = self.secret.key, self.secret.path
            self.keys.setdefault("key", f"@{self.key_file}")
        self.options = ["-i", "eth0", *(["--software"] if software else []), *options]
        self.said = tempfile.TemporaryFile("w+") if quiet else None
        self.stderr = self.said or stderr
        self.instance = f"{net.name}-{number}" if number else net.name
        self.prefix = prefix
        self.namespace = net.aggregators[host]
        self.process = None
        self.start()

    def start(self, *more):
        """Starts thcd and waits until it prints "ready"."""
        self.process = self.net.popen(
            self.namespace,
            [*self.prefix, _program("thcd"), "--instance", self.instance, *self.options, *more,
             "--job", ",".join(f"{k}={v}" for k, v in self.keys.items())],
            stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        # an emulated debug kernel takes five seconds and more to load the programs
        line = read_line(self.process.stdout, 120)
        if not line.startswith("ready"):
            self.stop()
            self.show()
            raise NetnsError("thcd did not get ready; its message is above")

    def stats(self):
        """Counters: {"received":, "events": {name:}, "drops": {name:}, ...}."""
        return self.ask("stats")

    def ask(self, request):
        """The answer of thcd's control socket to a request, from JSON."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(5)
            s.connect(f"{THCD_SOCKETS}/{self.instance}.sock")
            s.sendall(request.encode() + b"\n")
            with s.makefile() as answer:
                return json.loads(answer.readline())

    def kill(self):
        """kill -9, as a crash would."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.process:
            self.net.stop(self.process)
            self.process.stdout.close()
            self.process = None

    def has_said(self):
        """The stderr of a quiet thcd so far."""
        self.said.seek(0)
        return self.said.read()

    def show(self):
        if self.said:
            sys.stderr.write(self.has_said())

    def __enter__(self):
        return self

    def __exit__(self, kind, _error, _trace):
        self.stop()
        if kind and issubclass(kind, Exception):
            self.show()


class Shards:
    """count thcds that share the chunks of one job. apart: True: each runs on a host of its own;
    False: all run on the first host in software mode, on ports that differ by 100. [i] is the i-th
    Aggregator; job and key_file hold for every thcd."""

    def __init__(self, net, ranks, count, apart=True, software=False, job=None, options=(),
                 secret=None, **more):
        ports = [PORT + (0 if apart else 100 * i) for i in range(count)]
        hosts = [i if apart else 0 for i in range(count)]
        named = ",".join(f"{net.aggregator_address(h)}:{p}" for h, p in zip(hosts, ports))
        secret = secret or KeyFile().key
        self.all = []
        try:
            for i in range(count):
                keys = {"shards": named, "shard": i} if count > 1 else {}
                self.all.append(Aggregator(
                    net, ranks, software=software or not apart, job={**(job or {}), **keys}, secret=secret,
                    options=["--port", str(ports[i]), *options], number=i, host=hosts[i], **more))
        except BaseException:
            self.stop()
            raise
        self.job, self.key_file = self.all[0].job, self.all[0].key_file

    def __getitem__(self, i):
        return self.all[i]

    def stop(self):
        for a in self.all:
            a.stop()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for a in self.all:
            a.__exit__(kind, error, trace)


def _program(name):
    path = os.path.join(build_dir(), name)
    if not os.path.exists(path):
        raise NetnsError(f"{path} is missing: run `make`")
    return path


def read_line(stream, seconds):
    """The next line of a child's output; "" at end of file or after a timeout in seconds."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        end = time.monotonic() + seconds
        if selector.select(max(0.0, end - time.monotonic())):
            return stream.readline()
    return ""


def add_up(stats):
    """None if received packets equal fates plus drops, else a sentence."""
    fates = sum(stats["events"][name] for name in FATES)
    drops = sum(stats["drops"].values())
    if stats["received"] == fates + drops:
        return None
    return f"{stats['received']} packets were received, but {fates} have a fate and {drops} a drop"


# enum thc_event up to THC_EVENT_FATES: what can become of a received packet.
FATES = ("added", "waited", "repeated", "stale", "epoch", "membership")
