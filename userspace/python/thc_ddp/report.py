# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""What a state says of itself: the line at the start, and how each bucket of a step
went, by its runs. info is that of ThcClient.info().
"""
# A digit of an exact mean, up and down; a value has as many as it takes.
_DIGIT_BITS = 32
# Schemes that send floats as integers; lhc those that are not zero.
PRECISE = ("none", "lhc")


class Way:
    """How floats go through the job: @scheme is a scheme's name, or None, the job's own. Floats
    by none and lhc are exact, but for the job's own: they have the job's precision. @keep: by lhc
    this fraction goes, 0: all. By thc bits may follow the norms of blocks, as info's rate_goal
    or error_goal asks: then they are no numbers of their own here.
    """

    def __init__(self, scheme, info, keep=0.0):
        self.scheme = scheme or info["scheme"]
        self.keep = keep if self.scheme == "lhc" else 0.0
        self.loses = self.scheme not in PRECISE or self.keep > 0
        self.fixed = info["precision"] if scheme is None else 0
        self.is_exact = not self.loses and not self.fixed
        self.rate, self.error = (info[goal] if self.scheme == "thc" and info[goal] > 0 else None
                                 for goal in ("rate_goal", "error_goal"))
        self.table = info["bits"], info["sum_width"]
        self.tried = bool(self.rate and info["rate_tried"])
        self.expected = info["table_error"] if self.scheme == "thc" else 0
        if self.rate or self.error:
            self.bits = None, None
        elif self.scheme not in PRECISE:
            self.bits = self.table
        else:
            self.bits = 2 * (self.fixed or _DIGIT_BITS,)
        self.precision = (None if self.loses else f"fixed{self.fixed}" if self.fixed else "exact")

    def __str__(self):
        up, down = self.bits
        bits = f"{up} bits up, {down} down"
        if self.expected:
            bits += f", error {self.expected:.2g} expected"
        if self.rate:
            bits = f"{self.rate:g} bits up and down, more for larger norms"
        if self.tried:
            bits += ", or {} up, {} down, whichever takes less time".format(*self.table)
        if self.error:
            bits = f"as many bits as an error of {self.error:g} takes"
        if self.scheme in PRECISE:
            bits = f"fixed point of {up} bits" if self.fixed else f"{up} bits a digit"
        if self.scheme == "lhc":
            bits += (f", of the largest {100 * self.keep:g} %" if self.keep else
                     ", of what is not zero")
        return f"scheme {self.scheme} ({bits})"


def _exceptions(state, info):
    """What the options choose, in words."""
    by = {}

    def goes(choice, what):
        way = Way(None if choice == "job" else choice, info, state.keep)
        by.setdefault("process group" if choice == "group" else str(way), []).append(what)

    for pattern, choice in state.schemes.items():
        goes(choice, pattern)
    if state.threshold > 0:
        goes("none" if state.small == "exact" else "group",
             f"buckets below {state.threshold} elements")
    if state.start_iter:
        goes("group", f"the first {state.start_iter} steps" if state.start_iter > 1 else
             "the first step")
    return [f"{way} for {', '.join(what)}" for way, what in by.items()]


def start_line(state, options, info):
    """What is in use, and why the window is no larger."""
    window, slots = info["window"], info["data_slots"]
    line = (f"job {options['job']} at {options['aggregator']}: rank {options['rank']} of "
            f"{info['ranks']}, {Way(None, info, state.keep)}, seal {info['seal']}, "
            f"{info['shards']} shard{'s' * (info['shards'] != 1)}, {info['transport']} sockets, "
            f"answers by {'multicast' if info['multicast'] else 'fanout'}")
    if window:
        line += f", a window of {window} of {slots} chunks"
    if window and window < slots:
        line += f" because of {info['window_limit']}"
    return "; ".join([line, *_exceptions(state, info)])


class Went:
    """How a run of parameters went: through the job by a Way, or why not."""

    def __init__(self, buffer, way, refusal=None):
        self.elements, self.dtype = buffer.numel(), str(buffer.dtype).removeprefix("torch.")
        self.element_bits = 8 * buffer.element_size()
        self.way, self.refusal = way, refusal

    def told(self, info):
        """As ThcState.stats() has it."""
        told = {"elements": self.elements, "dtype": self.dtype, "why": self.refusal}
        if self.refusal:
            return {**told, "scheme": "group", "bits_up": self.element_bits,
                    "bits_down": self.element_bits, "rate": None, "error": None,
                    "precision": None, "seal": None, "shards": None}
        up, down = self.way.bits
        return {**told, "scheme": self.way.scheme, "bits_up": up, "bits_down": down,
                "rate": self.way.rate, "error": self.way.error, "precision": self.way.precision,
                "seal": info["seal"], "shards": info["shards"]}


def settled_line(info, stats):
    """What the bits of blocks are from now on, and why, where they follow norms or might; None:
    nothing that the start line does not say, or the ranks do not know yet.
    """
    found, now = tried(stats), chosen(stats, info["block"])
    if not now or found and found["goes_by"] == "both in turns":
        return None
    if found and found["goes_by"] == "fixed":
        line = f"each block has {info['bits']} bits up, {info['sum_width']} down"
        error = info["table_error"]
    else:
        line = (f"bits follow norms: {now['bits_up']:.2f} up, {now['bits_down']:.2f} down a value, "
                f"{100 * now['skipped']:.0f} % of blocks left out")
        error = now["error"]
    line += f", error {error:.2g} expected"
    if found and found["rate_ns"] and found["fixed_ns"]:
        line += (f"; 1024 values take {found['rate_ns'] / 1e3:.3g} us by norms, "
                 f"{found['fixed_ns'] / 1e3:.3g} us by the job's table on this rank"
                 f"{_others(found)}")
    return line


def _others(found):
    """What most ranks have found, where this rank's times alone would say something else."""
    if found["goes_by"] == "fixed" and found["rate_ns"] < found["fixed_ns"]:
        return ", but no majority of ranks found norms 3 % faster"
    if found["goes_by"] == "rate" and found["rate_ns"] >= found["fixed_ns"]:
        return ", but most ranks found norms faster"
    return ""


def chosen(stats, block):
    """What rates have chosen so far, of a client's counters, as ThcState.stats() has it."""
    blocks = stats["rate_blocks"]
    if not blocks:
        return None
    return {"bits_up": stats["rate_bits_up"] / (blocks * block),
            "bits_down": stats["rate_bits_down"] / (blocks * block),
            "skipped": stats["rate_skipped"] / blocks,
            "error": stats["rate_lost"] / (stats["rate_square"] or 1)}


# enum thc_trial_state
_TRIED = (None, "both in turns", "fixed", "rate")


def tried(stats):
    """What ranks have found out of a rate that the job leaves to them, of a client's counters, as
    ThcState.stats() has it."""
    if not stats["trial"]:
        return None
    return {"goes_by": _TRIED[stats["trial"]],
            **{f"{way}_ns": stats[f"trial_{way}_ns"] or None for way in ("fixed", "rate")}}
