#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A job of several aggregators gives the bits of one, over XDP and software, with losses, too.
Ranks name an aggregator that dies, and refuse aggregators that do not serve one job."""
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import PORT, Aggregator, Shards  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402

N = 3
SECRET = bytes(range(32))       # determines the seed of rotations
TIMEOUT = 2.0                   # seconds, of every client
SLACK = 8.0                     # for a loaded machine
# One bucket that ends in the middle of a chunk, and one of a single chunk.
COUNTS = [70001, 900]


class Bed:
    """N ranks of a job of `count` aggregators."""

    def __init__(self, count, apart=True, impair=None, job=None, n=N, quiet=False,
                 **options):
        # in a test machine each thcd and client would compute tables of rates for too long
        job = job or ({"rate": "fixed"} if "THC_VM_KERNEL" in os.environ else None)
        self.net = netns.Topology(n, aggregators=count if apart else 1, impair=impair)
        try:
            self.shards = Shards(self.net, n, count, apart, job=job, secret=SECRET,
                                 quiet=quiet)
            self.ranks = Ranks(self.net, self.shards,
                               **{"timeout": TIMEOUT, "join_timeout": 10,
                                  "error_feedback": False, **options})
        except BaseException:
            self.net.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.ranks.close()
        self.shards.__exit__(*error)
        self.net.close()

    def digest(self, rounds=2):
        """The digest of what all ranks have received."""
        answers = self.ranks.reduce(counts=COUNTS, rounds=rounds)
        assert len({a["digest"] for a in answers}) == 1, "ranks received different bits"
        return answers[0]["digest"]


_of_one = {}


def of_one(rounds=2):
    """The digest of these all-reduces by one aggregator."""
    if rounds not in _of_one:
        with Bed(1, apart=False) as bed:
            assert bed.ranks.open()[0]["shards"] == 1
            _of_one[rounds] = bed.digest(rounds)
    return _of_one[rounds]


def same_bits(count, apart, **more):
    with Bed(count, apart, **more) as bed:
        info = bed.ranks.open()[0]
        assert info["shards"] == count, info
        assert bed.digest() == of_one(), f"{count} aggregators sum to other bits than one"
        added = [a.stats()["events"]["added"] for a in bed.shards.all]
        # each has its part: shards differ by at most one chunk in each stream
        assert max(added) - min(added) <= 6 * N, added
        if not more:
            chunks = -(-COUNTS[0] // 1024) + -(-COUNTS[1] // 1024)
            assert sum(added) >= 2 * N * chunks, added


def bits__software_8():
    same_bits(8, False)


def bits__software_16():
    same_bits(16, False)


def bits__xdp_3_with_losses():
    same_bits(3, True, impair=netns.Impair(0.05, 0.01, 0.01))


def received_by(bed, i):
    """Bytes that the interface of aggregator @i has received."""
    told = bed.net.run(bed.net.aggregators[i], ["ip", "-j", "-s", "link", "show", "eth0"]).stdout
    return json.loads(told)[0]["stats64"]["rx"]["bytes"]


def switch__keeps_the_answers_of_others_away():
    with Bed(3) as bed:
        bed.ranks.open()
        bed.digest()
        before = [received_by(bed, i) for i in range(3)]
        bed.digest(8)
        # 4 bits a coordinate of three ranks, each third coordinate; others' answers are 4/3 of that
        indices = 8 * sum(COUNTS) / 2
        for i in range(3):
            got = received_by(bed, i) - before[i]
            assert indices <= got < 2 * indices, (got, indices)


def group__may_be_that_of_all():
    """Answers of the job's other aggregators to their common group are not foreign."""
    group = {"group": "239.84.7.7", "group_port": 20001}
    with Bed(2, job=group, quiet=True) as bed:
        bed.ranks.open()
        bed.digest()
        for shard in bed.shards.all:
            assert shard.stats()["daemon"]["foreign"] == 0, shard.has_said()
            assert "sends to this job's group" not in shard.has_said(), shard.has_said()
            # and no aggregator receives all answers of the others
            assert "239.84.7.7" not in bed.net.run(
                shard.namespace, ["ip", "maddr", "show", "dev", "eth0"]).stdout


def dies__is_named():
    """One of three aggregators is killed: all ranks name it, and go on when it is back."""
    with Bed(3) as bed:
        bed.ranks.open()
        bed.digest()
        bed.shards[2].kill()
        # XDP goes on without its daemon, so it is taken away as well
        bed.net.run(bed.net.aggregators[2], ["ip", "link", "set", "eth0", "xdp", "off"])
        answers = bed.ranks.all(do="reduce", counts=COUNTS)
        for a in answers:
            print(f"# {a.get('seconds', 0):.2f} s {a.get('errno')}: {a.get('error')}")
        for a in answers:
            assert a["errno"] in ("ETIMEDOUT", "ECONNREFUSED"), a
            assert re.search(rf"{re.escape(bed.net.aggregator_address(2))}:{PORT} "
                             r"\(shard 2 of 3\)", a["error"]), a["error"]
            assert a["seconds"] < TIMEOUT + SLACK, a
        bed.shards[2].start("--fresh")
        good(bed.ranks.all(do="rejoin"))
        assert bed.digest() == of_one()


def dies__before_the_job_is_ready():
    """Ranks that join name the aggregator that does not answer."""
    with Bed(3, apart=False) as bed:
        bed.shards[1].stop()
        answers = bed.ranks.all(**bed.ranks.open_request(join_timeout=6))
        for a in answers:
            assert "(shard 1 of 3)" in a["error"], a
            assert a["errno"] in ("EHOSTUNREACH", "ECONNREFUSED"), a


def late__one_starts_after_the_workers():
    """Workers wait for an aggregator that is not there yet."""
    with Bed(3, apart=False) as bed:
        bed.shards[1].stop()
        for r in range(N):
            bed.ranks.tell(r, **bed.ranks.open_request())
        time.sleep(0.7)
        bed.shards[1].start()
        good([bed.ranks.hear(r) for r in range(N)])
        assert bed.digest() == of_one()


def session_when_ready(shard, after):
    """The session of the shard's job, newer than `after`, when all ranks have joined it."""
    end = time.monotonic() + SLACK
    while True:
        job = shard.ask("jobs")["jobs"][0]
        if job["ready"] and job["epoch"] > after:
            return job["epoch"]
        assert time.monotonic() < end, f"no session after {after} is ready: {job}"
        time.sleep(0.02)


def restart__while_one_is_waited_for():
    """A rank restarts while a shard is missing, so the shards that were ready begin new epochs. The
    other ranks hear of them before they start."""
    with Bed(3, apart=False) as bed:
        bed.shards[2].stop()
        for r in range(N):
            bed.ranks.tell(r, **bed.ranks.open_request())
        before = [session_when_ready(bed.shards[i], 0) for i in range(2)]
        bed.ranks.kill(1)
        bed.ranks.restart(1)
        bed.ranks.tell(1, **bed.ranks.open_request())
        for i in range(2):
            session_when_ready(bed.shards[i], before[i])
        bed.shards[2].start()
        good([bed.ranks.hear(r) for r in range(N)])
        assert bed.digest() == of_one()


def restart_of_what_is_waited_for(bed, shard):
    """Rank 1 restarts and joins: shards 0 and 1 begin new sessions, and shard 2, for which ranks 0
    and 2 wait, gets ready. shard: hears of rank 1 only after ranks 0 and 2 have opened."""
    bed.shards[2].stop()
    for r in range(N):
        bed.ranks.tell(r, **bed.ranks.open_request())
    for i in range(2):
        session_when_ready(bed.shards[i], 0)
    bed.ranks.kill(1)
    bed.ranks.restart(1)
    bed.shards[2].start()
    end = time.monotonic() + SLACK
    while bed.shards[2].ask("jobs")["jobs"][0]["joined"] != [0, 2]:
        assert time.monotonic() < end, "ranks 0 and 2 do not join number 2"
        time.sleep(0.02)
    if shard:
        shard.process.send_signal(signal.SIGSTOP)
    bed.ranks.tell(1, **bed.ranks.open_request())
    good([bed.ranks.hear(r) for r in (0, 2)])


def restart__is_what_was_waited_for():
    """Ranks 0 and 2 hear first of the new sessions of shards 0 and 1. If a shard had to wait for a
    CPU, ranks 0 and 2 have to rejoin, as below."""
    with Bed(3, apart=False) as bed:
        restart_of_what_is_waited_for(bed, None)
        if not bed.ranks.has_answered(1, TIMEOUT):
            good(bed.ranks.all((0, 2), do="rejoin"))
        good([bed.ranks.hear(1)])
        assert bed.digest() == of_one()


def restart__is_heard_of_late():
    """Shard 1 hears late of the restart, so ranks 0 and 2 open in a session that is over. The error
    of their next all-reduce tells them to rejoin."""
    with Bed(3, apart=False) as bed:
        late = bed.shards[1]
        restart_of_what_is_waited_for(bed, late)
        late.process.send_signal(signal.SIGCONT)
        for answer in bed.ranks.all((0, 2), do="reduce", counts=COUNTS, rounds=1):
            assert "rejoin" in answer["error"], answer
        good(bed.ranks.all((0, 2), do="rejoin"))
        good([bed.ranks.hear(1)])
        assert bed.digest() == of_one()


def rejoin__after_a_rank_was_killed():
    with Bed(3, apart=False) as bed:
        bed.ranks.open()
        bed.digest()
        bed.ranks.kill(0)
        bed.ranks.restart(0)
        bed.ranks.tell(0, **bed.ranks.open_request())
        for r in (1, 2):
            bed.ranks.tell(r, do="rejoin")
        good([bed.ranks.hear(r) for r in range(N)])
        assert bed.digest() == of_one()


def refused(bed, code, words, **more):
    for a in bed.ranks.all(**bed.ranks.open_request(join_timeout=6, **more)):
        assert a.get("errno") == code and words in a["error"], a


def wrong__number_1_is_asked():
    """The ranks take shard 1 for the first one: it drops packets sealed for shard 0."""
    with Bed(2, apart=False) as bed:
        refused(bed, "EHOSTUNREACH", "its first shard", port=PORT + 100)
        drops = bed.shards[1].stats()["drops"]
        assert drops["tag"] > 0, drops


def wrong__another_table():
    """An aggregator with another table has the address of shard 1."""
    with Bed(2, apart=False) as bed:
        keys = {**bed.shards[1].keys, "granularity": 20}
        bed.shards[1].stop()
        with Aggregator(bed.net, N, software=True, job=keys, secret=SECRET, number=1,
                        options=["--port", str(PORT + 100)]):
            refused(bed, "EPROTO", "(shard 1 of 2) does not serve the same job")


if __name__ == "__main__":
    tap.main(tap.once([
        bits__software_8,
        bits__software_16,
        bits__xdp_3_with_losses,
        switch__keeps_the_answers_of_others_away,
        group__may_be_that_of_all,
        dies__is_named,
        dies__before_the_job_is_ready,
        late__one_starts_after_the_workers,
        restart__while_one_is_waited_for,
        restart__is_what_was_waited_for,
        restart__is_heard_of_late,
        rejoin__after_a_rank_was_killed,
        wrong__number_1_is_asked,
        wrong__another_table,
    ], bits__software_16, switch__keeps_the_answers_of_others_away))
