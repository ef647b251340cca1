# SPDX-License-Identifier: GPL-2.0
"""The bits of each block in a bucket with a rate, by Documentation/protocol.md: Python's integers,
and closed forms of errors that do not follow libthc's code.
"""
import math

BLOCK = 1024
ONE = 2**24
LAMBDA = 4224
RISE = 32
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
    """The classes of a job. rows: {b: row}, from WELCOME; n: ranks; skips: True: clients have error
    memories; correlated: True: rounding is correlated."""

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
        """True if another class, or a mixture of two, costs no more for no more bits."""
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
    """16 log2(norm^2), rounded down; None: the norm counts as zero."""
    return math.floor(32 * math.log2(norm)) if 2.0**-80 <= norm <= 2.0**112 else None


def exponents_of(norms):
    return [exponent_of(u) for u in norms]


class _Search:
    """The search for lambda. blocks: [(exponent, True if it may not be skipped)]; bits: goal in
    thousandths per block, or error: goal in millionths."""

    def __init__(self, classes, blocks, bits, error, asked=0, given=None):
        self.classes, self.blocks, self.bits = classes, blocks, bits
        self.top = max((e for e, _ in blocks if e is not None), default=0)
        self.most = self._amount(bits or error)
        if given is not None:
            # the bucket meets its goal together with others: see share()
            rest = (min, max) if bits else (max, min)
            self.most = rest[1](self.most, rest[0](self.total(blocks, given + RISE),
                                                   self._amount(asked)))
        every = range(-LAMBDA, LAMBDA + 1) if bits else range(LAMBDA, -LAMBDA - 1, -1)
        # the total falls along `every`: find the first that meets the goal
        low, high = 0, len(every)
        while low < high:
            middle = (low + high) // 2
            if self.total(blocks, every[middle]) <= self.most:
                high = middle
            else:
                low = middle + 1
        self.chosen = every[low] if low < len(every) else every[-1] + every.step
        self.next = self.chosen - every.step

    def _amount(self, goal):
        return (goal * len(self.blocks) // 1000 if self.bits else
                sum(self.weight(e) for e, _ in self.blocks) * goal // 10**6)

    def weight(self, e):
        whole = -(-(self.top - e) // 16) if e is not None else 32
        if whole > 31:
            return 0
        return round(2**31 * 2.0**((16 * whole - (self.top - e)) / 16)) * 2 >> whole

    def price(self, block, k):
        return (self.classes.bits[k] if self.bits else
                self.weight(block[0]) * self.classes.error[k] // ONE)

    def given(self, blocks, chosen):
        return [self.classes.of(e, chosen, due) for e, due in blocks]

    def total(self, blocks, chosen):
        return sum(map(self.price, blocks, self.given(blocks, chosen)))


def _blocks(exponents, turn):
    return [(e, (i + turn) % 8 == 0) for i, e in enumerate(exponents)]


def choose(classes, norms, turn, bits=0, error=0, **shared):
    """The class of each block. bits, error: see _Search; shared: other results of share()"""
    blocks = _blocks(exponents_of(norms), turn)
    search = _Search(classes, blocks, bits, error, **shared)
    of, other = (search.given(blocks, way) for way in (search.chosen, search.next))
    now = sum(map(search.price, blocks, of))
    for i, k in enumerate(other):
        changed = now - search.price(blocks[i], of[i]) + search.price(blocks[i], k)
        if changed <= search.most:
            now, of[i] = changed, k
    return of


def _parts(part, whole, of):
    while whole >= 2**43:
        part, whole = part // 2, whole // 2
    return part * of // whole if whole else of


def share(classes, buckets, own, bits=0, error=0):
    """The arguments of choose() for bucket number `own` of buckets that meet one goal together.
    buckets: [(exponents, turn)]"""
    all_blocks = [block for bucket in buckets for block in _blocks(*bucket)]
    search, blocks = _Search(classes, all_blocks, bits, error), _blocks(*buckets[own])
    now = search.total(all_blocks, search.chosen)
    more = search.total(all_blocks, search.next) - now
    part = _parts(min(max(search.most - now, 0), more), more, 2**16)
    counted = search.total(blocks, search.chosen)
    counted += (search.total(blocks, search.next) - counted) * part // 2**16
    goal = ({"bits": max(1, counted * 1000 // len(blocks))} if bits else
            {"error": max(1, _parts(counted, sum(search.weight(e) for e, _ in blocks), 10**6))})
    return {**goal, "asked": bits or error, "given": search.chosen}


def chunks(of, rows):
    """[(class, [(block, part)])] of the chunks, in order; part: index of a block's part."""
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
