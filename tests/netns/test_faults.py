#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""When a worker stops, restarts, leaves or disagrees, the other workers get an
error that names it within their timeout. No worker hangs, no buffer changes
(rank.py compares), and after rejoining the job works again. The exact times
of timeouts are tested by unit/test_worker_stall with a virtual clock, since
here a rank may have to wait for its CPU.
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import Aggregator  # noqa: E402
from keyfile import KeyFile  # noqa: E402
from ranks import Ranks, good  # noqa: E402
from tap import netns  # noqa: E402
from thcwire import PATIENCE  # noqa: E402

N = 3
TIMEOUT = 2.0           # seconds, of every client
SLACK = 8.0             # for a loaded machine; less than the timeouts that must not pass
COUNT = 300000


class Bed:
    """N joined ranks on an aggregator."""

    def __init__(self, n=N, software=False, job=None, thcd=(), **options):
        self.net = netns.Topology(n)
        self.aggregator = Aggregator(self.net, n, software=software, job=job,
                                     options=thcd)
        self.ranks = Ranks(self.net, self.aggregator,
                           **{"timeout": TIMEOUT, "join_timeout": 10, **options})

    def __enter__(self):
        self.ranks.open()
        self.works()
        return self

    def __exit__(self, *_exc):
        self.ranks.close()
        self.aggregator.stop()
        self.net.close()

    def epoch(self):
        return self.aggregator.ask("jobs")["jobs"][0]["epoch"]

    def wait_for_epoch(self, epoch):
        """Wait until a JOIN has begun this epoch."""
        end = time.monotonic() + PATIENCE
        while self.epoch() != epoch:
            assert time.monotonic() < end, f"epoch {self.epoch()}, not {epoch}"
            time.sleep(0.02)

    def works(self):
        answers = self.ranks.reduce(counts=[5000], first_key=100)
        assert len({a["digest"] for a in answers}) == 1, "ranks received different bits"

    def rejoin_works(self):
        """All ranks rejoin after an error, and the job works again."""
        good(self.ranks.all(do="rejoin"))
        self.works()


def named(answers, who, code, within=TIMEOUT):
    """Every answer is an error with this code whose sentence names rank who."""
    codes = (code,) if isinstance(code, str) else code
    for answer in answers:
        print(f"# {answer.get('seconds', 0):.2f} s {answer.get('errno')}: {answer.get('error')}")
    for answer in answers:
        assert "error" in answer, "no error was raised"
        assert answer["errno"] in codes, f"{answer['errno']}, not {codes}"
        assert re.search(rf"\branks? ([\d,]+ |and )*{who}\b|this rank \({who}\)",
                         answer["error"]), f"rank {who} is not named"
        assert answer["seconds"] < within + SLACK, f"took {answer['seconds']:.1f} s"


def stopped(software):
    with Bed(software=software) as bed:
        for r in (0, 1):
            bed.ranks.tell(r, do="reduce", counts=[COUNT])
        named([bed.ranks.hear(r) for r in (0, 1)], 2, "ETIMEDOUT")
        bed.rejoin_works()


def stops__xdp():
    stopped(False)


def stops__software():
    stopped(True)


def quorum(software):
    """With a quorum of 2 and a deadline, two ranks go on without the third."""
    with Bed(software=software, job={"quorum": 2, "deadline_ms": 200, "rate": "fixed"}) as bed:
        for r in (0, 1):
            bed.ranks.tell(r, do="reduce", counts=[COUNT], exact_of=2)
        answers = good([bed.ranks.hear(r) for r in (0, 1)])
        assert answers[0]["digest"] == answers[1]["digest"], "ranks received different bits"
        assert answers[0]["nmse"][0] < 0.1, f"not the mean of two: {answers[0]['nmse']}"
        for a in answers:
            assert a["stats"]["partial"] >= COUNT // 1024, a["stats"]
        closed = bed.aggregator.stats()["events"]["closed"]
        assert closed >= COUNT // 1024, f"only {closed} generations were closed by deadline"


def quorum__goes_on_without_a_straggler__xdp():
    quorum(False)


def quorum__goes_on_without_a_straggler__software():
    quorum(True)


def killed_in_the_middle__xdp():
    with Bed() as bed:
        for r in range(N):
            bed.ranks.tell(r, do="reduce", counts=[4_000_000] * 4)
        time.sleep(0.15)
        bed.ranks.kill(1)
        # the time includes computing until the last answer comes
        named([bed.ranks.hear(r) for r in (0, 2)], 1, "ETIMEDOUT", PATIENCE)


def restarts(software):
    with Bed(software=software) as bed:
        epoch = bed.epoch()
        bed.ranks.kill(1)
        bed.ranks.restart(1)
        bed.ranks.tell(1, **bed.ranks.open_request())
        bed.wait_for_epoch(epoch + 1)
        for r in (0, 2):
            bed.ranks.tell(r, do="reduce", counts=[COUNT])
        named([bed.ranks.hear(r) for r in (0, 2)], 1, "ESTALE")
        for r in (0, 2):
            bed.ranks.tell(r, do="rejoin")
        good([bed.ranks.hear(r) for r in range(N)])
        bed.works()


def restarts__xdp():
    restarts(False)


def restarts__software():
    restarts(True)


def forgets(**options):
    """An aggregator that lost its state says so at the next packet, before any timeout."""
    with Bed(timeout=20.0, **options) as bed:
        bed.aggregator.stop()
        time.sleep(0.1)     # epochs begin with the clock's sixteenths of a second
        bed.aggregator.start()
        for r in range(N):
            bed.ranks.tell(r, do="reduce", counts=[COUNT])
        for answer in [bed.ranks.hear(r) for r in range(N)]:
            assert answer.get("errno") == "ESTALE", answer
            assert "the aggregator restarted" in answer["error"], answer["error"]
            assert answer["seconds"] < SLACK, f"took {answer['seconds']:.1f} s"
        bed.rejoin_works()


def forgets__xdp():
    forgets()


def forgets__generic():
    forgets(thcd=("--mode", "generic"))


def forgets__software():
    forgets(software=True)


def leaves__xdp():
    with Bed() as bed:
        good(bed.ranks.all([2], do="close"))
        for r in (0, 1):
            bed.ranks.tell(r, do="reduce", counts=[COUNT])
        named([bed.ranks.hear(r) for r in (0, 1)], 2, ("EPIPE", "ETIMEDOUT"))


def disagrees__in_length():
    with Bed() as bed:
        for r in range(N):
            bed.ranks.tell(r, do="reduce", counts=[COUNT + (r == 1)])
        answers = [bed.ranks.hear(r) for r in range(N)]
        named([answers[0], answers[2]], 1, "EBADMSG")
        named([answers[1]], 0, "EBADMSG")
        assert "300001" in answers[0]["error"] and "300000" in answers[0]["error"]
        bed.rejoin_works()


def disagrees__in_dtype():
    with Bed() as bed:
        for r in range(N):
            bed.ranks.tell(r, do="reduce", counts=[COUNT], dtype="fp16" if r == 2 else "fp32")
        answers = [bed.ranks.hear(r) for r in range(N)]
        named(answers[:2], 2, "EBADMSG")
        assert "fp16" in answers[0]["error"] and "fp32" in answers[0]["error"]
        bed.rejoin_works()


def disagrees__in_order():
    """Rank 0 has two buckets of equal length in another order: their keys differ."""
    with Bed() as bed:
        for r in range(N):
            bed.ranks.tell(r, do="reduce", counts=[COUNT, COUNT], swap=r == 0)
        answers = [bed.ranks.hear(r) for r in range(N)]
        named(answers[1:], 0, ("EBADMSG", "ESTALE"))
        bed.rejoin_works()


def disagrees__in_round():
    """Rank 1 skips a step that the others make: their errors name rank 1."""
    with Bed() as bed:
        for r in range(N):
            bed.ranks.tell(r, do="reduce", counts=[COUNT], rounds=1 if r == 1 else 2)
        answers = [bed.ranks.hear(r) for r in range(N)]
        good([answers[1]])
        named([answers[0], answers[2]], 1, "ETIMEDOUT")
        bed.rejoin_works()


def not_finite__is_named_to_all():
    with Bed() as bed:
        for r in range(N):
            bed.ranks.tell(r, do="reduce", counts=[COUNT], poison=777 if r == 1 else None)
        answers = [bed.ranks.hear(r) for r in range(N)]
        named(answers, 1, "EDOM")
        assert "777" in answers[1]["error"], "the place is not named"
        bed.rejoin_works()


def join__names_who_is_missing():
    with netns.Topology(N) as net, Aggregator(net, N) as aggregator, \
            Ranks(net, aggregator, join_timeout=1.5) as ranks:
        answers = ranks.all([0, 2], **ranks.open_request())
        named(answers, 1, "ETIMEDOUT", 1.5)


def join__refusals_are_sentences():
    stranger = KeyFile()
    with netns.Topology(1) as net, Aggregator(net, 1) as aggregator, \
            Ranks(net, aggregator, join_timeout=2) as ranks:
        for change, codes, words in (
                ({"key_file": stranger.path}, ("EACCES", "ENOENT"), "this key"),
                ({"job": 9}, ("EACCES", "ENOENT"), "job 9"),
                ({"aggregator": "10.77.0.99"}, ("EHOSTUNREACH", "ETIMEDOUT"), "10.77.0.99"),
                ({"port": 20000}, ("ECONNREFUSED", "EHOSTUNREACH"), "20000")):
            answer = ranks.all([0], **ranks.open_request(**change))[0]
            print(f"# {change}: {answer.get('errno')} {answer.get('error')}")
            assert answer.get("errno") in codes, f"{change}: {answer.get('errno')}"
            assert words in answer["error"], f"{change}: '{words}' is not in the sentence"
            assert answer["seconds"] < 2 + SLACK


def daemon__killed_and_restarted_keeps_the_job():
    with Bed(timeout=8.0) as bed:
        bed.aggregator.kill()
        bed.works()         # XDP goes on without its daemon
        bed.aggregator.start()
        bed.works()


CASES = [stops__xdp, stops__software, killed_in_the_middle__xdp, restarts__xdp, restarts__software,
         forgets__xdp, forgets__generic, forgets__software, leaves__xdp, disagrees__in_length,
         disagrees__in_dtype, disagrees__in_order, disagrees__in_round,
         not_finite__is_named_to_all, join__names_who_is_missing, join__refusals_are_sentences,
         daemon__killed_and_restarted_keeps_the_job, quorum__goes_on_without_a_straggler__xdp,
         quorum__goes_on_without_a_straggler__software]

if __name__ == "__main__":
    tap.main(tap.once(CASES, stops__xdp, restarts__xdp, forgets__xdp, forgets__generic,
                      disagrees__in_length, disagrees__in_dtype,
                      quorum__goes_on_without_a_straggler__xdp,
                      threads=[stops__software, killed_in_the_middle__xdp, restarts__software,
                               leaves__xdp, disagrees__in_order]))
