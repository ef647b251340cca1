# SPDX-License-Identifier: GPL-2.0
"""Checks that an aggregator's answers are the sums of the requests that it received, by the
decoder's plain integers, coordinate by coordinate.
"""
import collections

import decoder
from decoder import F_ANSWER, Malformed


def _welcomes_in(seen):
    """{epoch: Welcome} of a worker."""
    welcomes, parts = {}, {}
    for s in seen:
        if s.up or s.data[1] != decoder.WELCOME:
            continue
        p = decoder.Packet(s.data)
        if any(p.nonce) and not p.welcome_flags & decoder.REFUSED:
            whole = parts.setdefault(p.nonce, decoder.Parts(p.nonce)).add(p)
            if whole:
                welcomes[p.epoch] = whole
    return welcomes


class Sums:
    """The requests and answers of one aggregator, by op and round. The first wrong answer raises
    Malformed. welcomes: {epoch: Welcome} of a worker; answers: their number."""

    def __init__(self, seen):
        self.welcomes, self.generations = _welcomes_in(seen), {}
        self.jobs = {epoch: welcome.job() for epoch, welcome in self.welcomes.items()}
        self.asked = collections.defaultdict(dict)      # (op, round): {(chunk, rank): Packet}
        self.answered = collections.defaultdict(dict)   # (op, round): {chunk: Packet}
        self.answers = 0
        packets = [(s.up, self._packet(s.data)) for s in seen
                   if decoder.LUT_ADD <= s.data[1] <= decoder.CLAIM_HIGH]
        for up, p in packets:
            if up:
                self._generation(p).add(p)
                self.asked[p.op, p.round][p.chunk, p.rank] = p
        for up, p in packets:
            if not up:
                self._compare(p)

    def _packet(self, data):
        epoch = decoder.HEADER.unpack_from(data)[8]
        return decoder.Packet(data, self.jobs[epoch])

    def _generation(self, p):
        key = p.epoch, p.slot, p.generation
        if key not in self.generations:
            self.generations[key] = decoder.Generation(self.jobs[p.epoch])
        return self.generations[key]

    def _compare(self, p):
        made = self._generation(p)
        if not p.flags & F_ANSWER or not made.count:
            raise Malformed(f"an answer of op {p.op} to nobody")
        want = decoder.Packet(made.answer(), self.jobs[p.epoch])
        for name in ("op", "width", "round", "chunk", "count", "bitmap", "payload"):
            if getattr(p, name) != getattr(want, name):
                raise Malformed(f"an answer of op {p.op} with another {name}, in slot {p.slot}, "
                                f"generation {p.generation}")
        self.answers += 1
        self.answered[p.op, p.round][p.chunk] = p

    def widths(self):
        """{(op, bits up, bits of the sum)} of all generations."""
        return {(g.first.op, g.first.width, g.width) for g in self.generations.values()}
