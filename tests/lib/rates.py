# SPDX-License-Identifier: GPL-2.0
"""How many bits each block of a bucket with a rate gets, by the protocol's page: Python's whole
numbers, and closed forms of errors that are written another way than libthc's.
"""
import math

BLOCK = 1024
ONE = 2**24
LAMBDA = 4224
SUM_MOST = 16
BITS_MOST = 6


def _density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _below(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def error_of(row, n, correlated=False):
    """Expected squared error of the mean of n equal normal coordinates, whose square is 1."""
    dense = [a + (b - a) * k / n for a, b in zip(row.levels, row.levels[1:]) for k in range(n)]
    levels = [row.clamp * (2 * level / row.granularity - 1)
              for level in (dense + [row.levels[-1]] if correlated else row.levels)]
    rounding = 0
    for low, high in zip(levels, levels[1:]):
        # moments of the coordinates between them
        zeroth = _below(high) - _below(low)
        first = _density(low) - _density(high)
        second = zeroth + low * _density(low) - high * _density(high)
        rounding += (low + high) * first - low * high * zeroth - second
    t = row.clamp
    clamped = 2 * ((1 + t * t) * _below(-t) - t * _density(t))
    return (rounding if correlated else rounding / n) + clamped


class Classes:
    """Of a job: rows by b, as WELCOME has them; correlated: its ranks round so. skips: clients have
    error memories."""

    def __init__(self, rows, n, skips, correlated):
        self.bits, self.cost, self.error = {0: 0}, {0: ONE}, {0: ONE}
        for b in range(1, BITS_MOST + 1):
            if b in rows and rows[b].sum_width <= SUM_MOST:
                self.bits[b] = b + rows[b].sum_width
                self.cost[b], self.error[b] = (
                    min(ONE, math.floor(error_of(rows[b], n, way) * ONE))
                    for way in (False, correlated))
        corners = [k for k in self.bits if k or skips]
        self.steps = [k for k in corners if not self._is_above(k, corners)]
        self.edges = [-10**9] + [
            round(-16 * math.log2((self.cost[a] - self.cost[b]) / ONE /
                                  (self.bits[b] - self.bits[a])))
            for a, b in zip(self.steps, self.steps[1:])]

    def _is_above(self, k, corners):
        """Is another class, or a mixture of two, as good for no more bits?"""
        for a in corners:
            if a != k and self.bits[a] <= self.bits[k] and self.cost[a] <= self.cost[k]:
                return True
            for b in corners:
                if self.bits[a] < self.bits[k] < self.bits[b]:
                    line = ((self.cost[a] * (self.bits[b] - self.bits[k]) +
                             self.cost[b] * (self.bits[k] - self.bits[a])))
                    if line <= self.cost[k] * (self.bits[b] - self.bits[a]):
                        return True
        return False

    def of(self, exponent, chosen, due):
        if exponent is None:
            return 0
        at = max(i for i, edge in enumerate(self.edges) if not i or exponent - chosen >= edge)
        return self.steps[1 if due and not self.steps[at] else at]


def exponent_of(norm):
    """16 log2 of its square, rounded down; None: it stands for zero."""
    return math.floor(32 * math.log2(norm)) if 2.0**-80 <= norm <= 2.0**112 else None


def choose(classes, norms, turn, bits=0, error=0):
    """The class of each block. bits: thousandths, or error: millionths."""
    exponents = [exponent_of(u) for u in norms]
    top = max((e for e in exponents if e is not None), default=0)

    def weight(e):
        whole = -(-(top - e) // 16) if e is not None else 32
        if whole > 31:
            return 0
        return round(2**31 * 2.0**((16 * whole - (top - e)) / 16)) * 2 >> whole

    weights = [weight(e) for e in exponents]

    def price(block, k):
        return classes.bits[k] if bits else weights[block] * classes.error[k] // ONE

    def given(chosen):
        return [classes.of(e, chosen, (i + turn) % 8 == 0) for i, e in enumerate(exponents)]

    def total(of):
        return sum(price(i, k) for i, k in enumerate(of))

    most = bits * len(norms) // 1000 if bits else sum(weights) * error // 10**6
    every = range(-LAMBDA, LAMBDA + 1) if bits else range(LAMBDA, -LAMBDA - 1, -1)
    # what counts falls, or rises, from one to the next: the first that is little enough
    low, high = 0, len(every)
    while low < high:
        middle = (low + high) // 2
        if total(given(every[middle])) <= most:
            high = middle
        else:
            low = middle + 1
    chosen = every[low] if low < len(every) else every[-1] + every.step
    of, other = given(chosen), given(chosen - every.step)
    now = total(of)
    for i, k in enumerate(other):
        changed = now - price(i, of[i]) + price(i, k)
        if changed <= most:
            now, of[i] = changed, k
    return of


def chunks(of, rows):
    """[(class, [(block, part)])] of the chunks, in order: part of 1 / parts of a block."""
    out = []
    for k in range(1, BITS_MOST + 1):
        blocks = [i for i, c in enumerate(of) if c == k]
        if not blocks:
            continue
        size = 8192 // rows[k].sum_width
        if size > BLOCK:
            pairs = [blocks[i:i + 2] for i in range(0, len(blocks), 2)]
            out += [(k, [(block, 0) for block in pair]) for pair in pairs]
        else:
            out += [(k, [(block, part)]) for block in blocks for part in range(BLOCK // size)]
    return out
