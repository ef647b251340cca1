#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The failures of practice in examples/train_ddp.py, which the user's guide
explains: two ranks with 8 buckets a step, real thcd, with and without error
feedback. All ranks end with equal weights, bit for bit, and with a loss near
the losses of undisturbed runs with the same seed.

With THC_TRANSPORT=af_thc (selftests/test_libthc_recovery.sh) the test runs in
an emulated machine: with fewer steps, each case either with error feedback or
without, and this program restarts a killed rank, as torchrun would.
--repeat N runs each case N times, to find errors that depend on timing.
"""
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from aggregator import Aggregator  # noqa: E402
from tap import netns  # noqa: E402

if not importlib.util.find_spec("torch"):
    print("1..0 # SKIP torch is missing: apt-get install python3-torch")
    sys.exit(tap.SKIPPED)
import trainers  # noqa: E402
from trainers import Trainers, agreed, agreed_runs, counted  # noqa: E402

EMULATED = os.environ.get("THC_TRANSPORT") == "af_thc"
STEPS_EMULATED = 8
STEPS = STEPS_EMULATED if EMULATED else 60
DISTURBED = STEPS // 2
EVERY = STEPS // 6
SEED = 1
UNDISTURBED = 3         # runs, in jobs with other keys, so that they round differently
WORSE = 1.12            # a loss may be this many times the worst undisturbed one
# A rank that other processes keep from its CPU has not failed.
TIMEOUT_S = 30 if EMULATED else 10
# Its torchrun needs redirections with Python 3.11; these are of a rank that does not exist.
DEBIAN_12 = ("--redirects=9:1", "--tee=9:1")
FEEDBACK = {True: [], False: ["--no-error-feedback"]}


def environment(aggregator):
    return {"THC_AGGREGATOR": netns.AGGREGATOR4, "THC_JOB": "1",
            "THC_KEY_FILE": aggregator.key_file, "GLOO_SOCKET_IFNAME": "eth0",
            **netns.environment()}


def training(net, aggregator, *words, seeds=(SEED,), prepare=None):
    return Trainers(["--steps", str(STEPS), "--timeout", str(TIMEOUT_S), *words],
                    places=[net.worker(r) for r in range(net.workers)], seeds=seeds,
                    prepare=prepare, address=net.address(0), port=29500, **environment(aggregator))


@functools.cache
def losses_of(feedback, steps=None):
    """The losses of undisturbed runs."""
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        with training(net, aggregator, *FEEDBACK[feedback], "--steps", str(steps or STEPS),
                      seeds=[SEED] * UNDISTURBED) as ranks:
            return [loss for _, loss, _ in agreed_runs(ranks.finish())]


def subject():
    """A digest of the files on which the losses in an emulated machine depend."""
    digest = hashlib.sha256()
    for path in (__file__, trainers.__file__, os.path.join(netns.ROOT, "examples/train_ddp.py"),
                 os.path.join(netns.build_dir(), "libthc.so")):
        with open(path, "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()


@functools.cache
def losses_for_emulated():
    """{error feedback: losses} of undisturbed runs of an emulated machine's length. The machine
    takes the host's losses if it can: the runs take the host seconds, and the machine minutes.
    """
    path = os.path.join(netns.build_dir(), "undisturbed.json")
    if EMULATED:
        try:
            with open(path, encoding="ascii") as f:
                made = json.load(f)
            if made["subject"] == subject():
                print("# undisturbed runs: those of the host", flush=True)
                return made["losses"]
        except FileNotFoundError:
            pass
    losses = {str(feedback): losses_of(feedback, STEPS_EMULATED) for feedback in FEEDBACK}
    if not EMULATED:
        with open(path + ".new", "w", encoding="ascii") as f:
            json.dump({"subject": subject(), "losses": losses}, f)
        os.replace(path + ".new", path)
    return losses


def undisturbed(feedback):
    return losses_for_emulated()[str(feedback)] if EMULATED else losses_of(feedback)


def undisturbed_runs_for_the_machine():
    """The losses of undisturbed runs are close to each other."""
    for losses in losses_for_emulated().values():
        assert max(losses) < WORSE * min(losses), losses


def check(texts, feedback, failed, nonfinite=0):
    """Check equal weights, a loss near the undisturbed ones, and the counters.

    failed: "some", "any" or a number.
    """
    steps, loss, _ = agreed(texts)
    losses = undisturbed(feedback)
    print(f"# error feedback {'on' if feedback else 'off'}: loss {loss:.4f}, undisturbed",
          *(f"{other:.4f}" for other in losses), flush=True)
    assert steps == STEPS, "\n".join(texts)
    # a lower loss is no error
    assert loss < WORSE * max(losses), f"loss {loss}, undisturbed {losses}"
    for text in texts:
        buckets, failures, skipped = counted(text)
        assert buckets >= trainers.BUCKETS * (STEPS // 2), text
        assert skipped == nonfinite, text
        assert failures > 0 if failed == "some" else failed in ("any", failures), text


def with_both(in_machine):
    """Run a case with and without error feedback; in an emulated machine as in_machine says."""
    def decorate(case):
        @functools.wraps(case)
        def both():
            for feedback in [in_machine] if EMULATED else FEEDBACK:
                case(feedback)
        return both
    return decorate


@with_both(True)
def thcd_is_killed_and_restarted(feedback):
    # XDP goes on without its daemon; the new daemon loses the rounds, since --fresh discards
    # them. The software aggregator dies with its process.
    software, options = not feedback, () if not feedback else ("--fresh",)
    with tempfile.TemporaryDirectory(prefix="thc-recovery-") as folder, \
            netns.Topology(2) as net, Aggregator(net, 2, software=software) as aggregator:
        pid, restarted = aggregator.process.pid, os.path.join(folder, "restarted")

        def kill_and_wait(_grad):
            """Wait in the backward pass, so that the new daemon starts between two buckets."""
            os.kill(pid, signal.SIGKILL)
            while not os.path.exists(restarted):
                time.sleep(0.01)

        die = trainers.in_backward(0, DISTURBED, kill_and_wait)
        with training(net, aggregator, *FEEDBACK[feedback], prepare=die) as ranks:
            aggregator.process.wait(300)
            aggregator.process.stdout.close()
            aggregator.start(*options)
            with open(restarted, "w"):
                pass
            texts = ranks.finish()
    check(texts, feedback, failed="some")
    assert all("joining again" in text for text in texts), texts


@with_both(False)
def thcd_is_stopped_for_good(feedback):
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        pid = aggregator.process.pid
        stop = trainers.in_backward(0, DISTURBED, lambda grad: os.kill(pid, signal.SIGTERM))
        with training(net, aggregator, *FEEDBACK[feedback], "--timeout", "3",
                      "--join-timeout", "3", prepare=stop) as ranks:
            texts = ranks.finish(status=trainers.ENDED_BY_ERROR)
    for text in texts:
        last = text.strip().splitlines()[-1]
        assert last.startswith("ended by ThcError: no"), text
        assert "start thcd there" in last or "is thcd running there" in last, text
        assert "Traceback" not in text, text


@with_both(True)
def inf_in_one_bucket(feedback):
    with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        with training(net, aggregator, *FEEDBACK[feedback],
                      prepare=trainers.one_inf(DISTURBED)) as ranks:
            texts = ranks.finish()
    check(texts, feedback, failed=0, nonfinite=1)


@with_both(True)
def loss_of_5_percent(feedback):
    with netns.Topology(2, impair=netns.Impair(drop=0.05)) as net:
        with Aggregator(net, 2) as aggregator:
            with training(net, aggregator, *FEEDBACK[feedback]) as ranks:
                texts = ranks.finish()
            repeated = sum(aggregator.stats()["events"][name] for name in ("waited", "repeated"))
    check(texts, feedback, failed="any")
    assert repeated, "nothing was lost"


def torchrun(net, folder, aggregator, feedback):
    """Run torchrun's agents on both hosts. Returns what each agent printed.

    Agents exchange the names of their hosts, which are all equal here. So each host
    gets its address as its name, which needs no resolver.
    """
    files = [tempfile.TemporaryFile("w+") for _ in range(net.workers)]
    agents = [net.popen(net.worker(r), [
        "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', net.address(r),
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1",
        "--max_restarts=3", "--monitor_interval=1", "--rdzv_backend=c10d",
        f"--rdzv_endpoint={net.address(0)}:29400", *DEBIAN_12,
        os.path.join(netns.ROOT, "tests/lib/trainers.py"), "--steps", str(STEPS), "--every", str(EVERY),
        "--seed", str(SEED), "--timeout", str(TIMEOUT_S), "--checkpoints", folder,
        *FEEDBACK[feedback]],
        env={**environment(aggregator), "TRAINERS_DIE_ONCE": f"{DISTURBED}:{folder}/died",
             "PYTHONPATH": os.path.join(netns.ROOT, "userspace/python"), "OMP_NUM_THREADS": "1"},
        stdout=files[r], stderr=subprocess.STDOUT) for r in range(net.workers)]
    statuses = [agent.wait(240) for agent in agents]
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read())
        file.close()
    assert statuses == [0, 0], "\n".join(texts)
    return texts


@with_both(True)
def a_rank_is_killed_and_restarted_by_torchrun(feedback):
    folder = tempfile.mkdtemp(prefix="thc-checkpoints-")
    try:
        with netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
            texts = torchrun(net, folder, aggregator, feedback)
            assert os.path.exists(os.path.join(folder, "died")), "no rank was killed"
    finally:
        shutil.rmtree(folder)
    check_resumed(texts, feedback)


def check_resumed(texts, feedback):
    saved = (DISTURBED - 1) // EVERY * EVERY
    assert all(f"goes on after step {saved}" in text for text in texts), "\n".join(texts)
    check(texts, feedback, failed="any")


@with_both(True)
def a_rank_is_killed_and_all_are_started_again(feedback):
    with tempfile.TemporaryDirectory(prefix="thc-checkpoints-") as folder, \
            netns.Topology(2) as net, Aggregator(net, 2) as aggregator:
        words = [*FEEDBACK[feedback], "--checkpoints", folder, "--every", str(EVERY)]
        kill = trainers.die_once(DISTURBED, os.path.join(folder, "died"))
        # the other rank reports that it cannot go on alone
        with training(net, aggregator, *words, "--timeout", "3", "--join-timeout", "3",
                      prepare=kill) as ranks:
            texts = ranks.ended()
        assert ranks.statuses == [trainers.ENDED_BY_ERROR, -signal.SIGKILL], "\n".join(texts)
        with training(net, aggregator, *words, prepare=kill) as ranks:
            texts = ranks.finish()
    check_resumed(texts, feedback)


CASES = [thcd_is_killed_and_restarted, thcd_is_stopped_for_good]
if EMULATED:
    CASES.append(a_rank_is_killed_and_all_are_started_again)
else:   # these cases do not depend on the transport
    CASES = [undisturbed_runs_for_the_machine, *CASES, loss_of_5_percent, inf_in_one_bucket,
             a_rank_is_killed_and_restarted_by_torchrun]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--repeat"]:
        CASES = [case for case in CASES for _ in range(int(sys.argv[2]))]
        del sys.argv[1:3]
    tap.main(CASES)
