#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The packets of a seeded job, byte for byte behind their UDP headers: requests, answers, JOIN,
WELCOME and LEAVE on the aggregator's link, against digests in packets.json. Native and generic
XDP, the software aggregator, ranks over UDP and, with THC_TRANSPORT=af_thc, over AF_THC sockets
must send equal packets, with losses, too. Each runs with 1, 4 and 8 ranks, with fp32 and fp16 at
least once, against one record.

The test first removes what differs between runs: epochs, nonces, challenges, salts, seals (after
a check), digests in claims, repeated answers, WAIT, STALE and CHALLENGE. Copies count once. The job
has few slots, so that chunks come to later generations.

Except for the agreement the digests are those of version 1, whose payloads, numbers and order are
the same: headers, JOIN, LEAVE and WELCOME are converted to the format of version 1.

    test_packets.py --write     after an intended change of the wire format
"""
import hashlib
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from aggregator import Aggregator  # noqa: E402
from decoder import fnv1a  # noqa: E402
from ranks import Ranks  # noqa: E402
from recorder import Recorder, Seals  # noqa: E402
from tap import netns  # noqa: E402

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packets.json")
COUNTS = [40961, 9, 20000]      # coordinates of the buckets of a step
ROUNDS = 2
JOB = {"seed": 77, "slots": 24, "norm_slots": 5, "rate": "fixed"}
# version 1: the packet sum, the cookie that the job had, a rank of 8 bits
OLD_HEADER = struct.Struct(">BBBBIQHBBIIIHHIQ")
COOKIE = 0x5eed5eed5eed1234
OLD_WELCOME = struct.Struct(">QQdQIIHHHHHHHHBBBBBBBB32s16s24x")
OLD_CORRELATED = 16


def old_header(p, **other):
    """The header in the format of version 1, without sum and epoch."""
    fields = {**p.__dict__, **other}
    return OLD_HEADER.pack(1, p.op, p.width, fields["flags"], 0, COOKIE, p.job, fields["rank"], 0,
                           0, p.round, p.chunk, p.slot, p.count, p.generation, p.bitmap)


def table_hash(p):
    """The hash of the job's table of 4 bits, as libthc computes it."""
    words = [4, p.granularity, *p.table, int(p.clamp * 2**30)]
    return fnv1a(struct.pack(f"<{len(words)}Q", *words))


def old_welcome(p):
    """WELCOME in the format of version 1, without joined ranks, nonce and wishes of sockets."""
    address, port = p.group or (b"", 0)
    flags = p.welcome_flags & wire.READY | (OLD_CORRELATED if p.features & wire.CORRELATED else 0)
    return OLD_WELCOME.pack(0, p.seed, p.clamp, 0, table_hash(p), p.deadline_ms, p.ranks, p.quorum,
                            p.data_slots, p.control_slots, p.chunk_size, p.granularity, port, 1,
                            flags, 0, p.reply, 4, p.sum_width, p.block_log2, 4, 0,
                            struct.pack(">16H", *p.table), address)


def bare(up, data):
    """The part of a packet that all runs share, or None."""
    p = wire.Packet(data)
    if p.op in (wire.WAIT, wire.STALE, wire.CHALLENGE) or (p.flags & wire.F_REPEAT and not up):
        return None
    header = old_header(p) if up else old_header(p, flags=p.flags & ~wire.F_CE)
    payload = bytearray(p.payload)
    if p.op == wire.JOIN:
        # behind nonce and challenge: flags, without HEARD, and constant fields
        assert payload[36:] == wire.join_payload(1, offers=1 << wire.SEAL_NH)[36:], p
        payload[:] = payload[32:36] + bytes(4)
        payload[3] &= ~wire.HEARD
    elif p.op in (wire.CLAIM, wire.CLAIM_HIGH):
        for at in range(20, wire.LANES, 32):
            payload[at:at + 4] = bytes(4)   # the digest of an earlier round
    elif p.op == wire.LEAVE:
        payload.clear()                 # the nonce
    elif p.op == wire.WELCOME:
        if not p.welcome_flags & wire.READY:
            return None
        assert p.seal == wire.SEAL_NH and any(p.salt), p
        header = old_header(p, rank=0)  # the group's had none
        payload[:] = old_welcome(p)
    return ("up " if up else "down ").encode() + header + bytes(payload)


def summary_of(seen):
    """{"way op": [count, digest]}"""
    seals, kinds = Seals(seen, wire.KEY), {}
    wrong = [s for s in set(seen) if not seals.made(s)]
    assert not wrong, f"{len(wrong)} packets are not sealed right, as {wire.Packet(wrong[0].data)}"
    for p in sorted(set(filter(None, (bare(s.up, s.data) for s in seen)))):
        way, rest = p.split(b" ", 1)
        kinds.setdefault(f"{way.decode()} {rest[1]}", []).append(p)
    return {kind: [len(some), hashlib.sha256(b"".join(some)).hexdigest()]
            for kind, some in sorted(kinds.items())}


def leaves(seen):
    return [wire.Packet(s.data) for s in seen if s.data[1] == wire.LEAVE]


def run(n, dtype, mode, drop):
    options = ("--mode", mode) if mode in ("native", "generic") else ()
    with netns.Topology(n, impair=netns.Impair(drop, 0, drop)) as net:
        with Recorder(net) as recorder, \
                Aggregator(net, n, software=mode == "software", job=JOB, options=options,
                           secret=wire.KEY) as a, Ranks(net, a) as ranks:
            ranks.open()
            answers = ranks.reduce(counts=COUNTS, rounds=ROUNDS, dtype=dtype)
            ranks.all(do="close")
            recorder.until(lambda seen: len({p.rank for p in leaves(seen)}) == n)
    assert len({a["digest"] for a in answers}) == 1, "the ranks received different bits"
    return summary_of(recorder.packets())


def check(n, dtype, mode, drop=0.0):
    with open(KNOWN, encoding="ascii") as f:
        known = json.load(f)
    want, got = known[f"{n} {dtype}"], run(n, dtype, mode, drop)
    for kind in sorted(want.keys() | got.keys()):
        (many, digest), (expected, known_digest) = got.get(kind, (0, "")), want.get(kind, (0, ""))
        assert many == expected, f"{many} packets of way and op {kind!r}, not {expected}"
        assert digest == known_digest, f"other bytes in the packets of way and op {kind!r}"


def packets__1_rank_fp32_software():
    check(1, "fp32", "software")


def packets__1_rank_fp16_native():
    check(1, "fp16", "native")


def packets__1_rank_fp16_generic():
    check(1, "fp16", "generic")


def packets__4_ranks_fp32_native_with_losses():
    check(4, "fp32", "native", 0.05)


def packets__4_ranks_fp32_software_with_losses():
    check(4, "fp32", "software", 0.05)


def packets__4_ranks_fp16_generic():
    check(4, "fp16", "generic")


def packets__8_ranks_fp32_native():
    check(8, "fp32", "native")


def packets__8_ranks_fp32_generic():
    check(8, "fp32", "generic")


def packets__8_ranks_fp16_software_with_losses():
    check(8, "fp16", "software", 0.05)


def write():
    known = {}
    with netns.guard():
        for n in (1, 4, 8):
            for dtype in ("fp32", "fp16"):
                known[f"{n} {dtype}"] = run(n, dtype, "software", 0.0)
    with open(KNOWN, "w", encoding="ascii") as f:
        json.dump(known, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        tap.main([case for name, case in list(globals().items())
                  if name.startswith("packets__")])
