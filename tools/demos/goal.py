# SPDX-License-Identifier: GPL-2.0
"""Bits that follow the norms of blocks in the demo, as --rate or --error asks for: keys of the job, what
was chosen in the training, how large an error was expected, and how large it was.
"""
GOALS = ("rate", "error")
FIXED = "fixed"         # a rate by which all blocks have the same bits
# What a job's ranks try where nothing is asked for, so that packets can be counted without a clock.
DEFAULT_RATE = 4.0


def follows_norms(args):
    return args.rate != FIXED


def job_of(args):
    """More keys of the job."""
    if not follows_norms(args):
        return {"rate": FIXED}
    return {key: f"{getattr(args, key):g}" for key in GOALS if getattr(args, key) is not None}


def chosen(args, results):
    """What demo.json says, of all workers' results; None: nothing was chosen.

    The bits and what was skipped are of all steps, errors of those that were measured. error_predicted
    is in parts of the square of a gradient that all ranks have, error_measured in parts of the mean
    of the squares of what the ranks have compressed.
    """
    if not follows_norms(args):
        return None
    first = results[0]
    of_all = first["stats"]["chosen"]
    return {**{key: getattr(args, key) for key in GOALS},
            **{key: of_all[key] for key in ("bits_up", "bits_down", "skipped")},
            "error_predicted": first["predicted"], "error_measured": first["measured"]}


def rows(r):
    """Of the table; none where nothing was chosen."""
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
    """What the job's line of thcd has more, with its comma."""
    c = r["chosen"]
    if not c:
        return f",rate={FIXED}"
    return "".join(f",{key}={c[key]:g}" for key in GOALS if c.get(key) is not None)


def what(r):
    """Which gradients were summed, as a sentence begins."""
    c = r["chosen"]
    if not c:
        return "Four-bit gradients"
    return f"Gradients of {c['bits_up']:.2f} bits a coordinate"


def errors(r):
    """What the errors are, as a paragraph; "" where nothing was chosen."""
    if not r["chosen"]:
        return ""
    return """\
  The error predicted is what ranks expect of the bits that they choose if all have one gradient, in parts
  of its square. The error measured is that of means beside the exact ones of what the ranks compressed,
  in parts of the mean of the ranks' own squares. Where their gradients differ, less of what they round
  cancels. The NMSE has the same difference in parts of the square of the exact mean, which is smaller.

"""
