#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The demo as a user meets it: real DDP training on every kind of aggregator,
counts that add up, the promised keys, no long silence, and nothing left
behind, also after Ctrl-C and SIGTERM at any moment.
"""
import glob
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time

import tap
from tap import netns

DEMO = os.path.join(netns.ROOT, "tools/demo.py")
KEYS = {"workers", "steps", "accuracy_thc", "accuracy_fp32", "nmse", "bytes_up_per_step",
        "bytes_down_per_step", "fp32_bytes_per_step", "xdp_packets", "xdp_expected_packets",
        "retransmits", "drops", "xdp_mode", "transport"}
SILENCE = 2.0
WORKERS, EPOCHS, STEPS = 2, 1, 17


def start(*argv):
    return subprocess.Popen([sys.executable, DEMO, "--workers", str(WORKERS), "--epochs",
                             str(EPOCHS), *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            start_new_session=True)


def left_of(pid):
    """What a demo with this pid has left behind."""
    name = f"thc-{pid}-"
    left = [path for folder in (netns.RUN, "/sys/fs/bpf/thc", "/run/thc", tempfile.gettempdir())
            for path in glob.glob(f"{folder}/{name}*")]
    for cmdline in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(cmdline, "rb") as f:
                text = f.read()
        except OSError:
            continue
        if name.encode() in text:
            left.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return left


def finish(p, limit=120):
    """(output, the longest silence but one) of a demo that must end well: a busy machine
    may be the reason for one."""
    output, silences, heard = b"", [0.0], time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(p.stdout, selectors.EVENT_READ)
        end = time.monotonic() + limit
        while time.monotonic() < end and selector.select(end - time.monotonic()):
            chunk = os.read(p.stdout.fileno(), 65536)
            silences.append(time.monotonic() - heard)
            heard = time.monotonic()
            if not chunk:
                break
            output += chunk
    p.stdout.close()
    status = p.wait(10)
    text = output.decode()
    assert status == 0, f"status {status}:\n{text}"
    return text, sorted(silences)[-2]


def train(*argv):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "demo.json")
        p = start("--output", path, *argv)
        text, silence = finish(p)
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    assert not left_of(p.pid), f"left behind: {left_of(p.pid)}"
    assert KEYS <= set(result), f"keys are missing: {KEYS - set(result)}"
    assert silence < SILENCE, f"{silence:.1f} s of silence"
    assert (result["workers"], result["steps"], result["transport"]) == (WORKERS, STEPS, "UDP")
    assert result["fp32_bytes_per_step"] == 4 * (64 * 1024 + 1024 + 1024 * 1024 + 1024 + 10240 + 10)
    assert result["xdp_packets"] == result["xdp_expected_packets"]
    assert 0 < result["nmse_of_compression"] < 0.1 and result["nmse"] < 0.3
    assert result["fallback_buckets"] == 0
    assert result["bytes_up_per_step"] * 4 < result["fp32_bytes_per_step"]
    assert result["bytes_down_per_step"] * 2 < result["fp32_bytes_per_step"]
    for words in ("test accuracy", "NMSE", "packets aggregated", "retransmits", "Counts add up"):
        assert words in text, f"'{words}' is not in the table"
    return result


def packets_by_hand(workers, steps):
    """Each step, in two buckets after DDP has rebuilt them, in one before."""
    def all_reduce(parameters):
        blocks = -(-parameters // 1024)
        return 1 + -(-blocks // 256) + blocks

    hidden, first = 1024 * 1024 + 1024 + 10240 + 10, 64 * 1024 + 1024
    return workers * (all_reduce(hidden + first) +
                      (steps - 1) * (all_reduce(hidden) + all_reduce(first)))


def trains__in_xdp():
    result = train()
    assert result["xdp_mode"] == "native", result["xdp_mode"]
    assert result["xdp_packets"] == packets_by_hand(WORKERS, STEPS)
    assert not any(result["drops"].values()), result["drops"]


def trains__in_software():
    result = train("--software")
    assert result["xdp_mode"] == "software" and result["xdp_packets"] == 0
    assert result["aggregated_packets"] == packets_by_hand(WORKERS, STEPS)


def trains__with_loss():
    result = train("--loss", "0.02")
    assert result["xdp_packets"] == packets_by_hand(WORKERS, STEPS)
    for direction in ("up", "down"):
        count = result["impaired"][direction]
        assert 0.01 < count["dropped"] / count["seen"] < 0.03, count
    assert result["retransmits"] >= result["impaired"]["up"]["dropped"] * 0.8


def interrupted(number, until, group):
    """Ends a demo when a line with `until` has come; to_all: as Ctrl-C does."""
    p = start()
    seen = b""
    end = time.monotonic() + 120
    while until.encode() not in seen and time.monotonic() < end:
        seen += os.read(p.stdout.fileno(), 65536)
    (os.killpg if group else os.kill)(p.pid, number)
    begin = time.monotonic()
    rest = p.stdout.read().decode()
    p.stdout.close()
    status = p.wait(60)
    assert status == 128 + number, f"status {status}"
    assert "Traceback" not in rest, rest
    assert time.monotonic() - begin < 30, "took too long to end"
    assert not left_of(p.pid), f"left behind: {left_of(p.pid)}"


def cleans_up__after_ctrl_c_while_starting():
    interrupted(signal.SIGINT, "every gradient", True)


def cleans_up__after_ctrl_c_while_training():
    interrupted(signal.SIGINT, "step", True)


def cleans_up__after_sigterm():
    interrupted(signal.SIGTERM, "Gloo fp32", False)


def cleans_up__after_sigkill_in_the_next_run():
    p = start()
    while b"step" not in os.read(p.stdout.fileno(), 65536):
        pass
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    p.stdout.close()
    end = time.monotonic() + 30
    while processes := [x for x in left_of(p.pid) if not x.startswith("/")]:
        assert time.monotonic() < end, f"still running: {processes}"
        time.sleep(0.1)
    netns.sweep()
    assert not left_of(p.pid), f"left behind: {left_of(p.pid)}"


if __name__ == "__main__":
    tap.main([trains__in_xdp, trains__in_software, trains__with_loss,
              cleans_up__after_ctrl_c_while_starting, cleans_up__after_ctrl_c_while_training,
              cleans_up__after_sigterm, cleans_up__after_sigkill_in_the_next_run])
