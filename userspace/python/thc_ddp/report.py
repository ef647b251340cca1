# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Reports of a ThcState: the lines that it prints, and how each run of a bucket was
reduced. info is the dict of ThcClient.info().
"""
# Bits of one digit of an exact mean, up and down. The number of digits depends on the values.
_DIGIT_BITS = 32
# Schemes that send floats as integers.
PRECISE = ("none", "lhc")


class Way:
    """How floats go through the job. scheme: a name, exact if it is none or lhc; None: the job's
    scheme and precision. keep: the fraction of values that lhc sends, 0: all. bits is (None, None)
    where a goal in info (rate_goal, error_goal) lets the bits of thc follow the norms of blocks.
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
    """Phrases for the parameters and buckets that do not go by the job's own scheme."""
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
    """The line printed after the join: job, schemes, transport, and what limits the window."""
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
    """How a run of parameters was reduced: through the job by a Way, or by the process group.
    refusal: the counter of the reason for the process group, such as "fallback_small"
    """

    def __init__(self, buffer, way, refusal=None):
        self.elements, self.dtype = buffer.numel(), str(buffer.dtype).removeprefix("torch.")
        self.element_bits = 8 * buffer.element_size()
        self.way, self.refusal = way, refusal

    def told(self, info):
        """The run's dict in ThcState.stats()["buckets"]."""
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
    """The line that tells the bits of blocks in a job whose bits may follow norms; None: no bits
    have followed norms yet, or the ranks still try both ways.
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
    """The majority's decision, where this rank's own times would suggest the other one."""
    if found["goes_by"] == "fixed" and found["rate_ns"] < found["fixed_ns"]:
        return ", but no majority of ranks found norms 3 % faster"
    if found["goes_by"] == "rate" and found["rate_ns"] >= found["fixed_ns"]:
        return ", but most ranks found norms faster"
    return ""


def chosen(stats, block):
    """The dict ThcState.stats()["chosen"] from a client's counters; block: coordinates."""
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
    """The dict ThcState.stats()["tried"] from a client's counters."""
    if not stats["trial"]:
        return None
    return {"goes_by": _TRIED[stats["trial"]],
            **{f"{way}_ns": stats[f"trial_{way}_ns"] or None for way in ("fixed", "rate")}}
