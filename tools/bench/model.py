# SPDX-License-Identifier: GPL-2.0
"""The closed form: the time of an all-reduce if only the links take time.
Frames count as in a qdisc: Ethernet header, IP, UDP or TCP, payload.

THC with one aggregator: every rank sends each chunk once, so the aggregator's
link receives n frames per chunk; every rank's link carries one answer. Both
directions are used at once. Ring (Gloo): every link carries 2 (n - 1) / n of
the bucket in each direction.
"""
import re

_CHUNK = 1024           # coordinates of a chunk with sums of 8 bits; half with 16
_HEADERS = 14 + 20 + 8 + 48     # Ethernet, IPv4, UDP, THC
ANSWER = _HEADERS + 1024        # a full packet of lanes, in either direction
_LEAST_GRANULARITY = 15         # of a 4-bit table
_TCP_OVERHEAD = 1514 / 1448     # full frame / payload, with TCP timestamps


def gbit(rate):
    """1.0 for "1gbit", 2.5 for "2500mbit"."""
    number, unit = re.fullmatch(r"([\d.]+)([mg])bit", rate).groups()
    return float(number) / (1 if unit == "g" else 1000)


def speed(rate):
    """A tc rate in Gb/s, as text; None: "no limit"."""
    return f"{gbit(rate):g} Gb/s" if rate else "no limit"


def chunk_of(ranks):
    """Coordinates in a chunk: sums of 16 bits halve it."""
    return _CHUNK if ranks * _LEAST_GRANULARITY < 256 else _CHUNK // 2


def framed(payload):
    """Bytes of full frames that carry `payload` bytes of lanes."""
    return payload * ANSWER / 1024


def thc_ms(ranks, bucket_bytes, rate, aggregator_rate=None, fanout=False):
    """Milliseconds of an all-reduce by THC.

    aggregator_rate: rate of the aggregator's link, None: rate; fanout: True: one answer per rank
    instead of one per multicast group
    """
    chunk = chunk_of(ranks)
    chunks = -(-(bucket_bytes // 4) // chunk)
    up = _HEADERS + chunk // 2
    by_worker = max(up, ANSWER) / gbit(rate)
    down = ANSWER * (ranks if fanout else 1)
    by_aggregator = max(ranks * up, down) / gbit(aggregator_rate or rate)
    return chunks * max(by_worker, by_aggregator) * 8 / 1e6


def ring_ms(ranks, bucket_bytes, rate):
    """Milliseconds of a ring. bucket_bytes: bytes sent, for fp16 half of the fp32 bucket's"""
    return 2 * (ranks - 1) / ranks * bucket_bytes * _TCP_OVERHEAD * 8 / gbit(rate) / 1e6
