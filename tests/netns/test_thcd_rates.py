#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A job with a rate, and its rows: the sums of chunks by each row are bit for bit those of the
levels in WELCOME, in native and generic XDP and in software; thcctl shows the rows; rows outlive
a thcd that is killed.
"""
import os
import random
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import decoder  # noqa: E402  (found through the path above)
import tap  # noqa: E402
import thcwire as wire  # noqa: E402
from tap import netns  # noqa: E402
from test_thcd_attach import Daemon, nothing_left, workers_of  # noqa: E402
from thcwire import ADD, KEYED, LUT_ADD, join_all  # noqa: E402

RANKS = 3
SLOTS = 512


def sums_of(row, payloads):
    """The lanes of the sum of all contributions."""
    indices = [decoder.unpack_indices(p, row.width) for p in payloads]
    return decoder.pack_lanes([sum(row.levels[i] for i in column) for column in zip(*indices)],
                              row.sum_width)


def send(worker, width, payload, slot, generation, op=LUT_ADD):
    worker.send(op, payload, width=width, slot=slot, chunk=slot + SLOTS * generation,
                generation=generation)


def a_chunk(rng, workers, rows, width, slot, generation):
    """Reduce a chunk by the row of @width. Indices of another row in between get WAIT with
    F_DIFFERS. Where the width of sums allows it, one rank sends lanes.
    """
    row = rows[width]
    payloads = [rng.randbytes(1024 * width // row.sum_width) for _ in workers]
    for _ in range(2):
        send(workers[0], width, payloads[0], slot, generation)
    workers[0].expect(wire.WAIT, flags=0, bitmap=1, count=1)
    other = rng.choice([r for r in rows.values() if r.width != width])
    send(workers[1], other.width, bytes(1024 * other.width // other.sum_width), slot, generation)
    workers[1].expect(wire.WAIT, flags=decoder.F_DIFFERS, bitmap=1, count=1)
    send(workers[1], width, payloads[1], slot, generation)
    if row.sum_width >= 8:
        send(workers[2], row.sum_width, sums_of(row, payloads[2:]), slot, generation, op=ADD)
    else:
        send(workers[2], width, payloads[2], slot, generation)
    for w in workers:
        packet = w.expect(LUT_ADD, flags=wire.F_ANSWER, width=row.sum_width, slot=slot,
                          generation=generation, count=RANKS)
        assert packet.payload == sums_of(row, payloads), f"wrong bits by the row of {width} bits"


def all_rows(rng, workers, rows, generation):
    for k, width in enumerate(sorted(rows) * 2):
        a_chunk(rng, workers, rows, width, width, generation + k // len(rows))
    width = min(set(range(1, 9)) - set(rows))
    send(workers[0], width, bytes(128 * width), 9, 0)


def check_shown(daemon, rows, own):
    """Check what `thcctl job` shows, as JSON and as a table."""
    job, = daemon.ctl("job")["jobs"]
    assert [(r["bits"], r["sum_width"], r["granularity"]) for r in job["rows"]] == \
        [(b, rows[b].sum_width, rows[b].granularity) for b in sorted(rows)], job["rows"]
    assert all(abs(r["clamp_deviations"] - rows[r["bits"]].clamp) < 1e-9 for r in job["rows"])
    assert (job["bits"], job["granularity"]) == (own, rows[own].granularity), job
    text = subprocess.run(
        netns.Topology.enter(daemon.ns, [os.path.join(netns.build_dir(), "thcctl"), "--instance",
                                         daemon.instance, "job"]),
        capture_output=True, text=True, timeout=wire.PATIENCE, check=True).stdout
    lines = [line.split() for line in text.splitlines()]
    at, = (i for i, words in enumerate(lines) if words[:1] == ["rows"])
    assert [words[:3] for words in lines[at + 1:at + 1 + len(rows)]] == \
        [[str(b), str(rows[b].sum_width), str(rows[b].granularity)] for b in sorted(rows)], text
    return job, text


def rates(keys, own, *options):
    """Test a job in one mode. Returns what thcctl shows."""
    rng = random.Random(own)
    job = f"1,ranks={RANKS},{KEYED},{keys}"
    with netns.Topology(RANKS) as net:
        d = Daemon(net, *options, job=job)
        assert d.ready, d.said
        workers = workers_of(net, RANKS)
        rows = workers[0].join_once().rows
        assert next(iter(rows)) == own and sorted({own, *range(1, 7)}) == sorted(rows), rows
        join_all(workers)
        all_rows(rng, workers, rows, 0)
        drops = d.ctl("stats")["drops"]
        assert (drops["mismatch"], drops["width"]) == (2 * len(rows), 1), drops
        shown = check_shown(d, rows, own)
        if "--software" in options:
            d.end()
            return shown
        d.end(signal.SIGKILL)
        d = Daemon(net, *options, job=job)
        assert d.ready, d.said
        all_rows(rng, workers, rows, 2)
        check_shown(d, rows, own)
        d.end(signal.SIGKILL)
        other = Daemon(net, *options, job=f"1,ranks={RANKS},{KEYED},{keys.split(',')[0]}1")
        assert not other.ready and "is asked for" in other.said, other.said
        d = Daemon(net, *options, job=job)
        assert d.ready, d.said
        d.end()
        nothing_left(net, d)
    return shown


def case__native():
    job, text = rates("rate=4.5", 4)
    assert job["rate"] == 4.5 and not {"error", "rate_tried"} & set(job), job
    assert "4.5 bits a coordinate, up and down together" in text, text


def case__left_to_the_ranks():
    """rate=auto: a third of the table's bits, and the record RATE says that it is on trial."""
    job, text = rates("rate=auto", 4, "--software", "--listen", netns.AGGREGATOR4)
    assert job["rate"] == (job["bits"] + job["sum_width"]) / 3 == 4 and job["rate_tried"], job
    assert "4 bits a coordinate, up and down together, where it is faster" in text, text


def case__generic():
    job, text = rates("error=0.002,bits=7", 7, "--mode", "generic")
    assert job["error"] == 0.002 and "rate" not in job, job
    assert "0.002 of the gradient's square" in text, text


def case__software():
    rates("rate=2,bits=2", 2, "--software", "--listen", netns.AGGREGATOR4)


if __name__ == "__main__":
    tap.main([case for name, case in list(globals().items()) if name.startswith("case__")])
