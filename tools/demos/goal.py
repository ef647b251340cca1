# SPDX-License-Identifier: GPL-2.0
"""Bits that follow the norms of blocks in the demo (--rate, --error): keys of the job, the bits
chosen in the training, the expected and the measured error.
"""
GOALS = ("rate", "error")
FIXED = "fixed"         # the rate that gives all blocks equal bits
# The rate that rate=auto tries. A fixed goal keeps the number of packets independent of times.
DEFAULT_RATE = 4.0


def follows_norms(args):
    return args.rate != FIXED


def job_of(args):
    """Keys of the job for --rate and --error."""
    if not follows_norms(args):
        return {"rate": FIXED}
    return {key: f"{getattr(args, key):g}" for key in GOALS if getattr(args, key) is not None}


def chosen(args, results):
    """The entry in demo.json, from all workers' results; None: bits are fixed.

    Bits and skipped blocks are means over all steps, errors over the measured steps.
    error_predicted is relative to the square of a gradient that all ranks have, error_measured to
    the mean of the squares of what the ranks compressed.
    """
    if not follows_norms(args):
        return None
    first = results[0]
    of_all = first["stats"]["chosen"]
    return {**{key: getattr(args, key) for key in GOALS},
            **{key: of_all[key] for key in ("bits_up", "bits_down", "skipped")},
            "error_predicted": first["predicted"], "error_measured": first["measured"]}


def rows(r):
    """Rows of the table; [] if bits are fixed."""
    c = r["chosen"]
    if not c:
        return []
    goal = (f"a rate of {c['rate']:g} bits" if c["rate"] is not None else
            f"an error of {c['error']:g}")
    return [(f"Bits that follow norms, by {goal}", "THC"),
            ("bits of a coordinate up", f"{c['bits_up']:.2f}"),
            ("bits of a coordinate down", f"{c['bits_down']:.2f}"),
            ("blocks of which a step sends nothing", f"{100 * c['skipped']:.1f} %"),
            ("error predicted, were the ranks' gradients equal", f"{c['error_predicted']:.4f}"),
            ("error measured, beside the squares of the ranks' own", f"{c['error_measured']:.4f}")]


def key_of(r):
    """The text to append to the job's keys for thcd, with its comma."""
    c = r["chosen"]
    if not c:
        return f",rate={FIXED}"
    return "".join(f",{key}={c[key]:g}" for key in GOALS if c.get(key) is not None)


def what(r):
    """The subject of a sentence about the gradients that were summed."""
    c = r["chosen"]
    if not c:
        return "Four-bit gradients"
    return f"Gradients of {c['bits_up']:.2f} bits a coordinate"


def errors(r):
    """A paragraph that explains the errors; "" if bits are fixed."""
    if not r["chosen"]:
        return ""
    return """\
  The error predicted is what ranks expect of the bits that they choose if all have one gradient, in parts
  of its square. The error measured is that of means beside the exact ones of what the ranks compressed,
  in parts of the mean of the ranks' own squares. Where their gradients differ, less of what they round
  cancels. The NMSE has the same difference in parts of the square of the exact mean, which is smaller.

"""
