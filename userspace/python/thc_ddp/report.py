# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""What a state says of itself: the line at the start, and how each bucket of a step
went, by its runs. info is that of ThcClient.info().
"""
# A digit of an exact mean, up and down; a value has as many as it takes.
_DIGIT_BITS = 32


def _scheme_bits(scheme, info):
    """(bits up, bits down) of a coordinate, by none of a digit."""
    return (_DIGIT_BITS, _DIGIT_BITS) if scheme == "none" else (info["bits"], info["sum_width"])


def _named(scheme, info):
    up, down = _scheme_bits(scheme, info)
    bits = f"{up} bits a digit" if scheme == "none" else f"{up} bits up, {down} down"
    return f"scheme {scheme} ({bits})"


def _exceptions(state, info):
    """What does not go by the job's scheme, in words."""
    by = {}
    for pattern, choice in state.schemes.items():
        by.setdefault(info["scheme"] if choice == "job" else choice, []).append(pattern)
    if state.threshold > 0:
        by.setdefault("none" if state.small == "exact" else "group", []).append(
            f"buckets below {state.threshold} elements")
    if state.start_iter:
        by.setdefault("group", []).append(
            f"the first {state.start_iter} steps" if state.start_iter > 1 else "the first step")
    return [f"{'process group' if choice == 'group' else _named(choice, info)} for "
            f"{', '.join(what)}" for choice, what in by.items()]


def start_line(state, options, info):
    """What is in use, and why the window is no larger."""
    window, slots = info["window"], info["data_slots"]
    line = (f"job {options['job']} at {options['aggregator']}: rank {options['rank']} of "
            f"{info['ranks']}, {_named(info['scheme'], info)}, seal {info['seal']}, "
            f"{info['shards']} shard{'s' * (info['shards'] != 1)}, {info['transport']} sockets, "
            f"answers by {'multicast' if info['multicast'] else 'fanout'}")
    if window:
        line += f", a window of {window} of {slots} chunks"
    if window and window < slots:
        line += f" because of {info['window_limit']}"
    return "; ".join([line, *_exceptions(state, info)])


class Went:
    """How a run of parameters went: through the job by a scheme, or why not."""

    def __init__(self, buffer, scheme, refusal=None):
        self.elements, self.dtype = buffer.numel(), str(buffer.dtype).removeprefix("torch.")
        self.element_bits = 8 * buffer.element_size()
        self.scheme, self.refusal = scheme, refusal

    def told(self, info):
        """As ThcState.stats() has it."""
        told = {"scheme": self.scheme or "group", "elements": self.elements, "dtype": self.dtype}
        if self.refusal:
            return {**told, "bits_up": self.element_bits, "bits_down": self.element_bits,
                    "precision": None, "seal": None, "shards": None, "why": self.refusal}
        up, down = _scheme_bits(self.scheme, info)
        return {**told, "bits_up": up, "bits_down": down,
                "precision": "exact" if self.scheme == "none" else None,
                "seal": info["seal"], "shards": info["shards"], "why": None}
