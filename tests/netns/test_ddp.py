#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""thc_ddp with real DDP, real libthc and XDP: a user's program with the two
lines for THC trains, keeps its error memories in a checkpoint, and names a
worker that died.
"""
import functools
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import Aggregator, read_line  # noqa: E402
from ddp_rank import train  # noqa: E402
from tap import netns  # noqa: E402

LIMIT = 60
STEPS = 60              # of two buckets or more: enough for the trial of bits by norms
PARAMETERS = 201 * 1500, 1501 * 200, 201 * 3


class Training:
    """The program on every worker; their events and stderr."""

    def __init__(self, net, aggregator, *options):
        self.errors = [tempfile.TemporaryFile("w+") for _ in range(net.workers)]
        self.processes = [net.fork(net.worker(r), functools.partial(train, [
            "--rank", str(r), "--world", str(net.workers), "--key-file", aggregator.key_file,
            *options]), talk=True, stderr=self.errors[r].fileno()) for r in range(net.workers)]

    def until(self, rank, event):
        """The next such event of a rank."""
        end = time.monotonic() + LIMIT
        while line := read_line(self.processes[rank].stdout, end - time.monotonic()):
            word = json.loads(line)
            if word["event"] == event:
                return word
        raise AssertionError(f"rank {rank} did not get to '{event}': {self.stderr(rank)}")

    def stderr(self, rank):
        self.errors[rank].seek(0)
        return self.errors[rank].read()

    def finish(self):
        for r, p in enumerate(self.processes):
            assert p.wait(LIMIT) == 0, f"rank {r}: {self.stderr(r)}"
        self.close()

    def close(self):
        for p, f in zip(self.processes, self.errors):
            p.stdin.close()
            p.stdout.close()
            f.close()


def two_lines__train_and_fall_back():
    """The job has the default rate, so the ranks find out how many bits blocks get."""
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        training = Training(net, aggregator, "--steps", str(STEPS))
        words = [training.until(r, "trained") for r in range(2)]
        said = training.stderr(0)
        training.finish()
        added = aggregator.stats()["events"]["added"]
    assert words[0]["digest"] == words[1]["digest"], "the models differ"
    for word in words:
        stats = word["stats"]
        # One bucket in the first step, several of about 1 MB each after the rebuild.
        assert stats["requests"] == stats["buckets_thc"] > 4, stats
        assert stats["elements_thc"] == STEPS * sum(PARAMETERS), stats
        assert stats["failures"] == 0
        goes_by, chosen = stats["tried"]["goes_by"], stats["chosen"]
        assert goes_by in ("rate", "fixed"), stats["tried"]
        assert 3 < chosen["bits_up"] + chosen["bits_down"] < 5, chosen
    blocks = STEPS * sum(PARAMETERS) // 1024
    assert 2 * blocks / 3 < added, (added, blocks)
    words = {"rate": "bits follow norms: ", "fixed": "each block has 4 bits up, 8 down, "}[goes_by]
    assert words in said, said
    assert said.count(" us by norms, ") == 1 and said.count(" expected; 1024 values take ") == 1, said


def small_buckets__fall_back_on_all_ranks():
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        training = Training(net, aggregator, "--steps", "3", "--bucket-mb", "0.001", "--means")
        means = [training.until(r, "means") for r in range(2)]
        words = [training.until(r, "trained") for r in range(2)]
        training.finish()
    assert words[0]["digest"] == words[1]["digest"], "the models differ"
    for word in words:
        stats = word["stats"]
        elements = 3 * sum((201 * 1500, 1501 * 200, 201 * 3))
        assert stats["elements_thc"] + stats["elements_fallback"] == elements, stats
        assert stats["fallback_small"] == stats["buckets_fallback"] > 0, stats
    for word, mean in zip(words, means):
        assert mean["buckets"] == word["stats"]["buckets_fallback"], (mean, word)
        assert mean["spread"] > 0.01, f"the ranks' gradients hardly differ: {mean}"
        assert mean["error"] < 1e-6, f"a bucket that fell back is not the mean: {mean}"


def small_buckets__are_exact_means():
    """A double holds the exact mean of two ranks, and the result is this mean, rounded once."""
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        training = Training(net, aggregator, "--steps", "3", "--bucket-mb", "0.001", "--means",
                            "--small", "exact")
        means = [training.until(r, "means") for r in range(2)]
        words = [training.until(r, "trained") for r in range(2)]
        training.finish()
    assert words[0]["digest"] == words[1]["digest"], "the models differ"
    for word, mean in zip(words, means):
        stats = word["stats"]
        assert not stats["buckets_fallback"] and stats["buckets_thc"], stats
        assert mean["buckets"] == stats["buckets_exact"] > 0, (mean, stats)
        assert mean["spread"] > 0.01 and mean["exact"], mean


def embeddings__are_exact_means():
    """Three ranks' embedding gradients, sparse or dense, have exact means in each row that a rank
    has, for a fraction of the bytes of fp32.
    """
    for kind in ("sparse", "dense"):
        with netns.Topology(3) as net, Aggregator(net, 3) as aggregator:
            training = Training(net, aggregator, "--steps", "4", "--means", "--words", kind,
                                "--schemes", '"auto"')
            means = [training.until(r, "means") for r in range(3)]
            words = [training.until(r, "trained") for r in range(3)]
            said = training.stderr(0)
            training.finish()
        assert len({word["digest"] for word in words}) == 1, "the models differ"
        for word, mean in zip(words, means):
            stats = word["stats"]
            assert mean["buckets"] == 4 and mean["exact"] and mean["spread"] > 0.01, mean
            assert not stats["buckets_fallback"] and stats["buckets_thc"], stats
            assert stats["elements_exact"] == 4 * 6000 * 48, stats
            assert stats["bytes_down"] * 3 < 4 * 4 * 6000 * 48, stats
        assert "; scheme lhc (32 bits a digit, of what is not zero) for 0.weight" in said, said


def assert_told(buckets, exact, group, thc):
    """Check what stats() tells about the last step: more than one bucket, and each element once.
    The job has the default rate, so bits by thc may follow norms.
    """
    runs = [run for bucket in buckets for run in bucket]
    assert len(buckets) > 1 and len(runs) > len(buckets), buckets
    for run in runs:
        assert run["dtype"] == "float32", run
        bits = {"thc": (None, None), "none": (32, 32), "group": (32, 32)}[run["scheme"]]
        assert (run["bits_up"], run["bits_down"]) == bits, run
        assert run["rate"] == (4 if run["scheme"] == "thc" else None), run
        assert run["precision"] == ("exact" if run["scheme"] == "none" else None), run
        ours = run["scheme"] != "group"
        assert (run["seal"], run["shards"]) == (("nh", 1) if ours else (None, None)), run
        assert run["why"] == (None if ours else "fallback_excluded"), run
    assert [sum(run["elements"] for run in runs if run["scheme"] == scheme)
            for scheme in ("none", "group", "thc")] == [exact, group, thc], buckets


def schemes__of_parameters():
    """After a step by the process group, some parameters come back exact, one goes through the
    process group, and the others through thc.
    """
    # 3.bias is a small bucket, so it is exact, too
    exact, group, thc = 1500 + 200 + 300000 + 3, 600, 300000
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        training = Training(net, aggregator, "--steps", "3", "--means", "--start-iter", "1",
                            "--small", "exact", "--schemes",
                            json.dumps({"[02].bias": "none", "2.w*": "none", "3.weight": "group"}))
        means = [training.until(r, "means") for r in range(2)]
        words = [training.until(r, "trained") for r in range(2)]
        said = training.stderr(0), training.stderr(1)
        training.finish()
    assert words[0]["digest"] == words[1]["digest"], "the models differ"
    for word, mean in zip(words, means):
        stats = word["stats"]
        assert mean["buckets"] == 3 * 3 and mean["exact"] and mean["spread"] > 0.01, mean
        assert stats["fallback_early"] and stats["fallback_excluded"] == 2, stats
        assert stats["elements_fallback"] == exact + thc + group + 2 * group, stats
        assert stats["elements_exact"] == 2 * exact and stats["elements_thc"] == 2 * thc, stats
        assert_told(stats["buckets"], exact, group, thc)
    for words in ("rank 0 of 2, scheme thc (4 bits up and down, more for larger norms, or 4 up, 8 "
                  "down, whichever takes less time), seal nh, 1 shard, UDP sockets",
                  "; scheme none (32 bits a digit) for [02].bias, 2.w*, buckets below 4096 "
                  "elements; process group for 3.weight, the first step\n"):
        assert words in said[0], said[0]
    assert not said[1], said[1]


def checkpoint__keeps_error_memories():
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        training = Training(net, aggregator, "--steps", "3", "--checkpoint")
        words = [training.until(r, "restored") for r in range(2)]
        training.finish()
    assert words[0]["digest"] == words[1]["digest"], "the models differ"
    for word in words:
        assert word["parameters"] == 6 and word["owed"] > 0, word
        assert len(word["equal"]) == 6 and all(word["equal"]), "a memory was lost or misplaced"
    assert abs(words[0]["owed"] - words[1]["owed"]) > 0, "memories are each rank's own"


def death__of_a_worker_is_named_in_backward():
    with netns.Topology(3) as net, Aggregator(net, 3) as aggregator:
        training = Training(net, aggregator, "--steps", "100000")
        # DDP talks over Gloo, too, until it has rebuilt its buckets.
        for r in range(3):
            while training.until(r, "step")["step"] < 5:
                pass
        training.processes[1].kill()
        start = time.monotonic()
        for r in (0, 2):
            assert training.processes[r].wait(20) != 0
            text = training.stderr(r)
            # rank 1 may have been killed between its last bucket and the end of its step
            assert "ThcError" in text, text
            assert "rank 1 did not contribute" in text or "cannot confirm the step" in text, text
        seconds = time.monotonic() - start
        training.processes[1].wait()
        training.close()
    assert seconds < 10, f"took {seconds:.1f} s"


if __name__ == "__main__":
    tap.main([two_lines__train_and_fall_back, small_buckets__fall_back_on_all_ranks,
              small_buckets__are_exact_means, schemes__of_parameters, embeddings__are_exact_means,
              checkpoint__keeps_error_memories, death__of_a_worker_is_named_in_backward])
