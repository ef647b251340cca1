#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmarks run end to end and report every promise. The speed of this
machine is not tested.
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from tap import netns  # noqa: E402

sys.path.insert(0, os.path.join(netns.ROOT, "tools/bench"))
import compare  # noqa: E402
import run  # noqa: E402

FLOOD = os.path.join(netns.ROOT, "tools/bench/flood.py")
RUN = os.path.join(netns.ROOT, "tools/bench/run.py")
EXPERIMENTS = os.path.join(netns.ROOT, "tools/experiments/run.py")
RATE = os.path.join(netns.ROOT, "tools/bench/rate.py")


def bench__reports_every_promise():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, RUN, "--quick", "--repeats", "1",
                               "--output", folder],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(os.path.join(folder, "bench.json"), encoding="utf-8") as f:
            result = json.load(f)
        chart = xml.etree.ElementTree.parse(os.path.join(folder, "bench.svg")).getroot()
    assert len(result["promises"]) == 31
    for p in result["promises"]:
        assert p["value"] is not None, f"no value for {p['what']}"
        # other work on the machine may make a difference of times negative
        assert p["value"] > 0 or ", ns " in p["what"], p
        right = p["value"] <= p["limit"] if p["comparison"] == "<=" else p["value"] >= p["limit"]
        assert p["kept"] == right, p
        assert p["what"] in done.stdout, f"{p['what']} is not in the table"
    for seal, words in (("sum", "sum beside none"), ("nh", "nh beside none"),
                        ("nh_beside_sum", "nh beside sum")):
        for size in ("received_512", "received_1024", "sent_1024"):
            assert abs(result["xdp"][f"seal_{seal}"][f"{size}_ns"]) < 10000, result["xdp"]
        assert done.stdout.count(f"seal {words}") == 3, done.stdout
    for kind in ("unshaped", "shaped"):
        part = result["allreduce"][kind]
        assert part["xdp_mode"] == "native" and 0 < part["thc_nmse"] < 0.03
        assert 0.1 < part["sealed_beside_sum"] < 10 and \
            f"{part['sealed_beside_sum']:.3f} x the time" in done.stdout
        assert abs(part["speedup_fp32"] - part["gloo_fp32_ms"] / part["thc_ms"]) < 1e-9
    bits = {"thc": 6400 * 4 * 602 * 8, "gloo_fp32": 6 * 25 * 2**20 * 8 / 4}
    for system, least in bits.items():
        ms = result["allreduce"]["shaped"][f"{system}_min_ms"]
        assert ms > 0.95 * least / 1e6, f"{system} took {ms:.0f} ms: faster than its link allows"
    assert result["memory"]["aggregator"] > 0 and result["memory"]["client"] > 0
    assert len(chart.findall(".//{http://www.w3.org/2000/svg}rect")) == 2 * 5


def bench__repeats_as_often_as_its_help_says():
    for argv, repeats, pairs in (([], 15, 21), (["--quick"], 5, 3), (["--repeats", "2"], 2, 21),
                                 (["--quick", "--repeats", "2"], 2, 2)):
        args = run.parse(argv)
        assert (args.repeats, args.pairs) == (repeats, pairs), argv


def compare__knows_what_is_better():
    better = {name: compare.more_is_better(name) for name in (
        "codec.compress_ratio", "codec.rated_ratio", "codec.rated_ef_ratio", "fixed.exact_ratio",
        "allreduce.shaped.speedup_fp32", "allreduce.shaped.thc_ms")}
    assert [n for n, more in better.items() if more] == ["codec.compress_ratio",
                                                         "allreduce.shaped.speedup_fp32"]


def bench_flood__reports_every_promise():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "flood.json")
        done = subprocess.run([sys.executable, FLOOD, "--turns", "1", "--joins", "2", "--reduces",
                               "1", "--output", path], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    assert len(result["promises"]) == 5
    for p in result["promises"]:
        assert p["value"] >= 0 and p["what"] in done.stdout, p
        right = p["value"] <= p["limit"] if p["comparison"] == "<=" else p["value"] >= p["limit"]
        assert p["kept"] == right, p
    # the floods arrived, and thcd saw hardly any packet of them
    for target in ("name", "tag", "drop"):
        assert result[target]["packets_per_second"] > 1000, result[target]
    assert result["flood_dropped"] > 10 * result["refused"] > 0, result
    assert result["tag_dropped"] > 10 * result["refused"], result


def bench__looks_first_where_its_output_goes():
    for program in (FLOOD, RATE):
        done = subprocess.run([sys.executable, program, "--output", "/nowhere/x.json"],
                              capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and "cannot write /nowhere/x.json" in done.stderr, done.stderr
    for program in (RUN, EXPERIMENTS):
        done = subprocess.run([sys.executable, program, "--output", "/dev/null/x"],
                              capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and \
            "cannot write into /dev/null/x: " in done.stderr, done.stderr


def bench__refuses_to_repeat_never():
    for name in ("figures", "lhc", "rate", "run", "shards", "transport"):
        for repeats in ("0", "-2"):
            done = subprocess.run([sys.executable, os.path.join(netns.ROOT, f"tools/bench/{name}.py"),
                                   "--repeats", repeats], capture_output=True, text=True, timeout=30)
            assert done.returncode == 2 and "--repeats is at least 1" in done.stderr, done
            assert not done.stdout, done


def bench_rate__sends_the_bits_that_it_says():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rate.json")
        done = subprocess.run([sys.executable, RATE, "--tasks", "perceptron", "--mebibytes", "1",
                               "--warm-up", "2", "--repeats", "2", "--json", "--output", path],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads(done.stdout)
        with open(path, encoding="utf-8") as f:
            assert json.load(f) == result
    rows = {(row["links"], row["system"]): row for row in result["rows"]}
    assert len(rows) == len(result["rows"]) == 2 * 5
    for (links, system), row in rows.items():
        bits = row["bits_up"], row["bits_down"]
        if system.startswith("rate"):
            rate = int(system.partition("-")[2])
            assert .95 * rate < sum(bits) <= rate + 1e-9 and 0 < row["error"] < .3, row
            assert 0 < row["skipped"] < 1, row
        else:
            assert bits == ((4, 8) if system == "fixed" else (48, 48)), row
        for way, of in zip(("up", "down"), bits):
            # Gloo may have sent some bytes before the barrier ended here
            assert .9 < row[f"interface_{way}"] / (of / 32 * 2**20), (way, row)
        if row["frames_up"]:
            # headers and norms come on top, but no retransmissions
            assert 1 < row["frames_up"] / (bits[0] / 32 * 2**20) < 1.6, row
        beside = {"of_fixed": rows[links, "fixed"], "of_gloo": rows[links, "gloo_fp32"]}
        assert all(abs(row[key] * row["ms"] / other["ms"] - 1) < 1e-9
                   for key, other in beside.items()), row
    # four ranks' frames of 602 bytes; frames of norms come on top
    least = 256 * 4 * 602 * 8 / 1e6
    assert least < rows["1gbit", "fixed"]["link_ms"] < 1.05 * least, rows["1gbit", "fixed"]
    assert len(result["promises"]) == 3
    for p in result["promises"]:
        assert p["kept"] == (p["value"] >= p["limit"]) and p["what"] in done.stderr, p


if __name__ == "__main__":
    tap.main([bench__reports_every_promise, bench__repeats_as_often_as_its_help_says,
              compare__knows_what_is_better, bench_flood__reports_every_promise,
              bench__looks_first_where_its_output_goes, bench__refuses_to_repeat_never,
              bench_rate__sends_the_bits_that_it_says])
