#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The demo as a user meets it: times of buckets, real DDP training on every kind
of aggregator and of every task, counts that add up, the promised keys, no long silence, and
nothing left behind, also after Ctrl-C and SIGTERM at any moment.
"""
import glob
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from tap import netns  # noqa: E402

DEMO = os.path.join(netns.ROOT, "tools/demo.py")
KEYS = {"workers", "steps", "accuracy_thc", "accuracy_fp32", "nmse", "bytes_up_per_step",
        "bytes_down_per_step", "fp32_bytes_per_step", "xdp_packets", "xdp_expected_packets",
        "retransmits", "drops", "xdp_mode", "transport", "buckets"}
SILENCE = 2.0
WORKERS, STEPS = 2, 8
LONGER = ["--steps", "30"]      # for a demo that a signal ends
STEP = rb"step +\d+/"           # of the progress of a training


def start(*argv, repeats=0):
    timed = [] if "--task" in argv else ["--repeats", str(repeats)]
    return subprocess.Popen([sys.executable, DEMO, "--workers", str(WORKERS), "--steps",
                             str(STEPS), *timed, *argv],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            process_group=0)


def left_of(pid):
    """What a demo with this pid has left behind."""
    name = f"thc-{pid}-"
    left = [path for folder in (netns.RUN, "/sys/fs/bpf/thc", "/run/thc", tempfile.gettempdir())
            for path in glob.glob(f"{folder}/{name}*")]
    # a fork has the demo's command line, and a name of its own
    for said in (*glob.glob("/proc/[0-9]*/cmdline"), *glob.glob("/proc/[0-9]*/comm")):
        try:
            with open(said, "rb") as f:
                text = f.read()
        except OSError:
            continue
        if name.encode() in text:
            left.append("process " + text.replace(b"\0", b" ").decode(errors="replace"))
    return left


def clock(pid):
    """Monotonic seconds without the time in which the process waited for a CPU."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
        waited = int(f.read().split()[1])
    return time.monotonic() - waited / 1e9


def finish(p, limit=120):
    """(output, the second longest silence) of a demo that must end well: the first read from a
    disk may cause one long silence."""
    output, silences, heard = b"", [0.0], clock(p.pid)
    with selectors.DefaultSelector() as selector:
        selector.register(p.stdout, selectors.EVENT_READ)
        end = time.monotonic() + limit
        while time.monotonic() < end and selector.select(end - time.monotonic()):
            chunk = os.read(p.stdout.fileno(), 65536)
            silences.append(clock(p.pid) - heard)
            heard = clock(p.pid)
            if not chunk:
                break
            output += chunk
    p.stdout.close()
    status = p.wait(10)
    text = output.decode()
    assert status == 0, f"status {status}:\n{text}"
    return text, sorted(silences)[-2]


def train(*argv, repeats=0):
    """(result, what was shown) of a demo that ends well."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "demo.json")
        p = start("--output", path, *argv, repeats=repeats)
        text, silence = finish(p)
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    assert not left_of(p.pid), f"left behind: {left_of(p.pid)}"
    assert KEYS <= set(result), f"keys are missing: {KEYS - set(result)}"
    assert silence < SILENCE, f"{silence:.1f} s of silence"
    assert (result["workers"], result["steps"], result["transport"]) == (WORKERS, STEPS, "UDP")
    assert result["fp32_bytes_per_step"] == 4 * (64 * 1024 + 1024 + 1024 * 1024 + 1024 + 10240 + 10)
    assert result["xdp_packets"] == result["xdp_expected_packets"]
    # 4 bits by norms leave more of a step's gradient to the next steps
    most = (.1, .3) if "fixed" in argv or result["chosen"]["rate"] != 4 else (.2, .6)
    assert 0 < result["nmse_of_compression"] < most[0] and result["nmse"] < most[1], result
    assert result["fallback_buckets"] == 0
    assert result["bytes_up_per_step"] * 4 < result["fp32_bytes_per_step"]
    assert result["bytes_down_per_step"] * 2 < result["fp32_bytes_per_step"]
    for words in ("test accuracy", "NMSE", "Traffic", "Counts add up", "thcd -i", "thc_hook()"):
        assert words in text, f"'{words}' is not in the table"
    return result, text


def has_chosen(result, text, **goal):
    """Check bits by norms: the bytes fit the chosen bits, and errors are as predicted."""
    chosen = result["chosen"]
    print(f"# {chosen}")
    assert {key: chosen[key] for key in ("rate", "error")} == {"rate": None, "error": None, **goal}
    for way in ("up", "down"):
        least = chosen[f"bits_{way}"] / 32 * result["fp32_bytes_per_step"]
        # headers, norms and retransmissions come on top; a busy machine retransmits more
        assert least < result[f"bytes_{way}_per_step"] < 4 * least, (way, least, result)
        assert f"bits of a coordinate {way} " in text and f"{chosen[f'bits_{way}']:.2f}" in text
    assert 0 < chosen["skipped"] < 1 and f"{100 * chosen['skipped']:.1f} %" in text
    for which in ("predicted", "measured"):
        assert f"{chosen[f'error_{which}']:.4f}" in text and f"error {which}" in text, text
    assert .7 < chosen["error_measured"] / chosen["error_predicted"] < 1.4, chosen
    assert chosen["error_measured"] < result["nmse_of_compression"], result
    return chosen


def packets_by_hand(workers, steps):
    """The first step has one bucket, later steps have two, since DDP rebuilds its buckets."""
    def all_reduce(parameters):
        blocks = -(-parameters // 1024)
        return 1 + -(-blocks // 256) + blocks

    hidden, first = 1024 * 1024 + 1024 + 10240 + 10, 64 * 1024 + 1024
    return workers * (all_reduce(hidden + first) +
                      (steps - 1) * (all_reduce(hidden) + all_reduce(first)))


def trains__in_xdp():
    result, text = train("--links", "500mbit", "--rate", "fixed", repeats=2)
    assert result["xdp_mode"] == "native", result["xdp_mode"]
    assert result["xdp_packets"] == packets_by_hand(WORKERS, STEPS)
    assert not any(result["drops"].values()), result["drops"]
    assert "retransmits" not in text, "counters are shown without --verbose"
    assert result["chosen"] is None and "norms" not in text and "ranks=2,rate=fixed,key=" in text
    has_times_of_links(result["buckets"], text)


def has_times_of_links(buckets, text):
    """No bucket is faster than links of 500 Mb/s, and the table shows the times."""
    small, large = buckets["times"]
    assert (small["bucket_bytes"], large["bucket_bytes"]) == (64 << 10, 25 << 20)
    # two ranks' frames of 602 bytes for each of 6400 chunks on the aggregator's link; the
    # ring sends the bucket's bytes once, in frames of 1514 bytes with 1448 bytes of data
    least = {"thc_ef": 6400 * 2 * 602 * 8 / 500e3,
             "gloo_fp32": 25 * 2**20 * 8 / 500e3 * 1514 / 1448}
    for system, link in (("thc_ef", "thc_link_ms"), ("gloo_fp32", "gloo_fp32_link_ms")):
        assert abs(large[link] / least[system] - 1) < 1e-6, large
        assert large[f"{system}_ms"] > 0.95 * least[system], large
        assert f"{large[f'{system}_ms']:.0f} ms" in text, text
    assert large["thc_packets_up"] >= 6400 + 25 and 0 < large["thc_nmse"] < 0.03
    assert "links: 0.5 Gb/s" in text and "median of 2" in text


def trains__in_software():
    result, text = train("--software", "--verbose", "--rate", "fixed")
    assert result["xdp_mode"] == "software" and result["xdp_packets"] == 0
    assert result["aggregated_packets"] == packets_by_hand(WORKERS, STEPS)
    for words in ("packets aggregated in user space", "duplicates", "retransmits"):
        assert words in text, f"'{words}' is not in the table"
    assert result["buckets"] == {} and "Time of one all-reduce" not in text


def trains__with_loss():
    result, text = train("--loss", "0.02")
    chosen = has_chosen(result, text, rate=4)
    # not quite 4: the first step with two buckets goes by norms of a step with one
    assert chosen["bits_up"] + chosen["bits_down"] < 4.3, chosen
    assert result["xdp_packets"] < packets_by_hand(WORKERS, STEPS)
    for direction in ("up", "down"):
        count = result["impaired"][direction]
        assert 0.01 < count["dropped"] / count["seen"] < 0.03, count
        assert f"{count['dropped']} of {count['seen']}" in text
    assert result["retransmits"] >= result["impaired"]["up"]["dropped"] * 0.8


def trains__by_a_rate():
    result, text = train("--rate", "6", "--software", repeats=1)
    chosen = has_chosen(result, text, rate=6)
    # a step's buckets share the rate by norms of earlier steps, and first steps differ much
    assert 5.7 < chosen["bits_up"] + chosen["bits_down"] < 6.3, chosen
    assert "by a rate of 6 bits" in text and "ranks=2,rate=6,key=" in text, text
    assert "25 MiB" in text and "thc_link_ms" not in result["buckets"]["times"][1]


def trains__by_an_error_with_loss():
    result, text = train("--error", "0.02", "--loss", "0.02")
    chosen = has_chosen(result, text, error=.02)
    # the bits of a block follow log2 of its norm, which is rounded to sixteenths
    assert .018 < chosen["error_predicted"] < .0208, chosen
    assert result["retransmits"] > 0 and "by an error of 0.02" in text, text


def refuses__what_makes_no_sense():
    for argv, words in ((["--hidden", "0"], "--hidden at least 1"),
                        (["--links", "0gbit"], "--links is a whole number from 1 on"),
                        (["--links", "1.5gbit"], "--links is a whole number from 1 on"),
                        (["--rate", "0.1"], "'0.1' is no number from 0.25 to 24, bits"),
                        (["--rate", "auto"], "bits a coordinate, nor \"fixed\""),
                        (["--rate", "500mbit"], "--links is the speed of links"),
                        (["--error", "1"], "'1' is no number from 1e-06 to 0.5"),
                        (["--rate", "6", "--error", "0.1"], "not allowed with"),
                        (["--task", "lm", "--rate", "6"], "--task digits alone"),
                        (["--task", "ncf", "--epochs", "5"], "--task digits alone"),
                        (["--task", "lm", "--hidden", "9"], "--task digits alone"),
                        (["--task", "ncf", "--repeats", "0"], "--task digits alone"),
                        (["--dense-embeddings"], "digits have no embeddings")):
        p = start(*argv)
        text = p.stdout.read().decode()
        p.stdout.close()
        assert p.wait() == 2 and words in text, text


def train_sparse(*argv):
    """(result, what was shown) of a demo of a task with sparse gradients that ends well. There are
    two workers, since a sum of two does not depend on the order.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "demo.json")
        p = start("--steps", "3", "--links", "none", "--output", path, *argv)
        try:
            text, silence = finish(p)
        except AssertionError as error:
            lacking = re.search(r"^demo: (.*apt-get (update|install wordnet-base).*)$", str(error),
                                re.M)
            if lacking:
                raise tap.Skip(lacking[1]) from None
            raise
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    assert not left_of(p.pid), f"left behind: {left_of(p.pid)}"
    assert silence < SILENCE, f"{silence:.1f} s of silence"
    runs = result["runs"]
    assert result["bit_equal"] is True and "bit-equal to exact summation" in text, runs
    assert all(len(run["digests"]) == 1 for run in runs.values()), runs
    assert result["fallback_buckets"] == 0 and result["exact_buckets"] > 0, result
    for name, d in result["density"].items():
        # two ranks share some rows
        assert 0 < d["own"] < d["union"] <= 2 * d["own"], (name, d)
        assert f"{100 * d['union']:.2f} %" in text and f"{d['rows']:,}" in text, text
    assert result["fp32_bytes_per_step"] == 4 * result["parameters"]
    fp32 = runs["Gloo fp32"]
    # a ring of two ranks sends as many bytes as the gradients have
    assert 1 < fp32["bytes_up_per_step"] / result["fp32_bytes_per_step"] < 1.1, fp32
    assert result["sha256"][:16] in text and "links: no limit" in text, text
    return result, text


def bytes_of_rows(result):
    """The bytes of the mean's rows, with two numbers of 32 bits for each value."""
    return 8 * sum(d["union"] * d["rows"] * d["width"] for d in result["density"].values())


def trains__packages():
    result, text = train_sparse("--task", "ncf", "--verbose")
    assert set(result["runs"]) == {"THC lhc", "Gloo fp32", "Gloo rows"}
    lhc = result["runs"]["THC lhc"]
    assert .8 < lhc["bytes_up_per_step"] / bytes_of_rows(result) < 1.6, result
    assert .1 < lhc["quality"] <= 1 and f"{100 * lhc['quality']:.2f} %" in text
    for words in ("HR@10", "Counters of the training", "THC lhc", "schemes=\"auto\""):
        assert words in text, f"'{words}' is not in the table"


def trains__packages_with_dense_gradients():
    result, text = train_sparse("--task", "ncf", "--dense-embeddings", "--software")
    assert set(result["runs"]) == {"THC lhc", "Gloo fp32"} and "Gloo rows" not in text
    assert result["xdp_mode"] == "software"
    assert result["runs"]["THC lhc"]["bytes_up_per_step"] < result["fp32_bytes_per_step"] / 5


def trains__definitions():
    result, text = train_sparse("--task", "lm")
    lhc = result["runs"]["THC lhc"]
    assert .8 < lhc["bytes_up_per_step"] / bytes_of_rows(result) < 1.6, result
    assert 1 < lhc["quality"] < result["density"]["words.weight"]["rows"]
    assert f"{lhc['quality']:.1f}" in text and "perplexity" in text, text


def refuses__fixed_point_of_rows():
    p = start("--task", "ncf", "--precision", "fixed32")
    text = p.stdout.read().decode()
    p.stdout.close()
    assert p.wait() == 2 and "needs --dense-embeddings" in text, text


def await_text(p, until):
    """Wait until the output of the demo matches the expression `until`."""
    seen = b""
    end = time.monotonic() + 120
    while not re.search(until, seen):
        chunk = os.read(p.stdout.fileno(), 65536)
        assert chunk and time.monotonic() < end, f"no {until} in:\n{seen.decode()}"
        seen += chunk


def await_end_of_processes(pid, seconds):
    """What the demo with this pid has left when its processes have ended, or after `seconds`."""
    end = time.monotonic() + seconds
    left = left_of(pid)
    while any(x.startswith("process ") for x in left) and time.monotonic() < end:
        time.sleep(0.1)
        left = left_of(pid)
    return left


def interrupted(number, until, group, repeats=0):
    """End a demo by signal `number` when its output matches `until`; group: as Ctrl-C does."""
    p = start(*LONGER, repeats=repeats)
    await_text(p, until)
    (os.killpg if group else os.kill)(p.pid, number)
    begin = time.monotonic()
    rest = p.stdout.read().decode()
    p.stdout.close()
    status = p.wait(60)
    assert status == 128 + number, f"status {status}"
    assert "Traceback" not in rest, rest
    assert time.monotonic() - begin < 30, "took too long to end"
    # a program that the demo was starting gets Ctrl-C itself, and may end after the demo
    left = await_end_of_processes(p.pid, 5)
    assert not left, f"left behind: {left}"


def cleans_up__after_ctrl_c_while_starting():
    interrupted(signal.SIGINT, b"every gradient", True)


def cleans_up__after_ctrl_c_while_timing():
    interrupted(signal.SIGINT, b"one all-reduce of", True, repeats=50)


def cleans_up__after_ctrl_c_while_training():
    interrupted(signal.SIGINT, STEP, True)


def cleans_up__after_sigterm():
    interrupted(signal.SIGTERM, b"Gloo fp32", False)


def cleans_up__after_sigkill_in_the_next_run():
    p = start(*LONGER)
    await_text(p, STEP)
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    p.stdout.close()
    left = await_end_of_processes(p.pid, 30)
    assert not any(x.startswith("process ") for x in left), f"still running: {left}"
    netns.sweep()
    assert not left_of(p.pid), f"left behind: {left_of(p.pid)}"


if __name__ == "__main__":
    tap.main([trains__in_xdp, trains__in_software, trains__with_loss,
              trains__by_a_rate, trains__by_an_error_with_loss, refuses__what_makes_no_sense,
              trains__packages, trains__packages_with_dense_gradients, trains__definitions,
              refuses__fixed_point_of_rows,
              cleans_up__after_ctrl_c_while_starting, cleans_up__after_ctrl_c_while_timing,
              cleans_up__after_ctrl_c_while_training, cleans_up__after_sigterm,
              cleans_up__after_sigkill_in_the_next_run])
