# SPDX-License-Identifier: GPL-2.0
"""The NMSE of a round of libthc's codec by bits and ranks, beside its closed form.

THC (NSDI'24), appendix D.4. Values are normal; the ranks have one gradient or their own, and round
independently or in a correlated way.
"""
import math
from typing import NamedTuple

from bench import chart
from experiments import forms, gradients, library
from experiments.report import Column, rounded_up

TITLE = "NMSE of a mean by b bits up, beside the closed form"
BITS = range(1, library.BITS_MAX + 1)
RANKS = (1, 2, 4, 8)
TOLERANCE = .03
# Tables with many levels clamp few coordinates. Rounds are repeated, REPEATS times at most, until
# the standard error is SAMPLING.
SAMPLING = .01
REPEATS = 40
# The published table.
PUBLISHED = (0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30)
PUBLISHED_P = 1 / 32

COLUMNS = [
    Column("table", "table"), Column("bits", "b", "bits up"),
    Column("width", "sums", "bits down"), Column("ranks", "ranks"),
    Column("granularity", "g"), Column("p", "p", "", ".3g"), Column("gradients", "gradients"),
    Column("rounding", "rounding"), Column("nmse", "NMSE", "", ".3g"),
    Column("closed_form", "closed form", "", ".3g"),
    Column("ratio", "measured / closed form", "", ".3f"),
    Column("sampling", "standard error of the ratio", "", ".3f"), Column("rounds", "rounds")]


def _closed_form(case, equal, correlated, x):
    """The expected NMSE; None: no closed form. Ranks with their own gradients have independent
    errors."""
    if case.form & library.RANGES:
        return forms.by_range(case.table.bits, case.ranks, x[0], 1 << case.block_log2)
    if not equal:
        return None if correlated else library.closed_form(case.table, 1)
    return (forms.correlated if correlated else library.closed_form)(case.table, case.ranks)


class _Case(NamedTuple):
    kind: str
    table: library.abi.Table
    width: int
    ranks: int
    block_log2: int = 14
    form: int = 0


def _cases(options):
    of = RANKS[::2] if options.quick else RANKS
    for bits in BITS:
        for ranks in of:
            top = (2 ** bits - 1) * ranks
            for width in (4, 8, 16):
                if top < 2 ** width and (bits > 4 or width < 16):
                    yield _Case("chosen", library.choose(bits, ranks, width), width, ranks)
            # small blocks give many ranges, so that the mean over them is certain
            for kind, form in (("uthc", library.RANGES),
                               ("uthc, not rotated", library.RANGES | library.UNROTATED)):
                yield _Case(kind, library.uniform(bits), 8 if top < 256 else 16, ranks, 10, form)
    for ranks in of:
        yield _Case("published", library.from_values(4, 30, PUBLISHED_P, PUBLISHED), 8, ranks)


def _ways(case):
    """The ways to measure a case: (True if gradients are equal, True if rounding is correlated)."""
    yield True, False
    if case.kind == "chosen" and case.ranks > 1:
        yield False, False
        yield True, True
        yield False, True


def _measure(case, x, seed, correlated, rounds):
    """The mean NMSE of rounds whose rotations differ."""
    return sum(gradients.nmse(library.by_table(case.table, case.width, x, seed + k,
                                               case.block_log2, correlated, case.form), x)
               for k in range(rounds)) / rounds


def _row(case, equal, correlated, x, options):
    form = _closed_form(case, equal, correlated, x)
    ranges, count = case.form & library.RANGES, x.shape[1]
    row = {"table": case.kind, "bits": case.table.bits, "width": case.width, "ranks": case.ranks,
           "granularity": case.table.granularity, "p": None if ranges else case.table.p,
           "gradients": "equal" if equal else "own",
           "rounding": "correlated" if correlated else "independent", "closed_form": form,
           "rounds": 1}
    if form and not ranges:
        # ranks with their own gradients clamp different coordinates
        error = forms.sampling(case.table, form, count * (1 if equal else case.ranks))
        if not options.quick:
            row["rounds"] = min(max(math.ceil((error / SAMPLING) ** 2), 1), REPEATS)
        row["sampling"] = error / math.sqrt(row["rounds"])
    row["nmse"] = _measure(case, x, options.seed, correlated, row["rounds"])
    row["ratio"] = row["nmse"] / form if form else None
    return row


def rows(options, progress):
    count, found = 1 << (17 if options.quick else 19), []
    of = {equal: gradients.joined(gradients.normals(count, max(RANKS), options.seed, equal))
          for equal in (True, False)}
    for case in _cases(options):
        for equal, correlated in _ways(case):
            progress(f"nmse: {case.kind}, b = {case.table.bits}, ranks: {case.ranks}")
            found.append(_row(case, equal, correlated, of[equal][:case.ranks], options))
    return found


def certain(found):
    """Rows with a closed form and a standard error of SAMPLING at most."""
    return [row for row in found if row["closed_form"] and (row.get("sampling") or 0) <= SAMPLING]


def worst(found):
    """The largest distance from a closed form, as a fraction."""
    return max(abs(row["ratio"] - 1) for row in found)


def summary(found):
    with_form = [row for row in found if row["closed_form"]]
    sure = certain(found)
    return (f"{len(with_form)} measured errors have a closed form. The {len(sure)} of them with a "
            f"standard error of at most {100 * SAMPLING:g} % are within "
            f"{rounded_up(100 * worst(sure), 1)} % of it, all within "
            f"{rounded_up(100 * worst(with_form), 1)} %.")


def _curve(found, **wanted):
    """[(bits, NMSE)] of chosen tables, with the better of the widths."""
    best = {}
    for row in found:
        if row["table"] == "chosen" and all(row[key] == value for key, value in wanted.items()):
            best[row["bits"]] = min(row["nmse"], best.get(row["bits"], math.inf))
    return sorted(best.items())


def svg(found):
    series = [(f"{n} rank{'s' if n > 1 else ''}",
               _curve(found, ranks=n, gradients="equal", rounding="independent"), True)
              for n in RANKS]
    series += [(f"4 ranks, {words}", _curve(found, ranks=4, gradients=whose, rounding=how), True)
               for words, whose, how in (("own gradients", "own", "independent"),
                                         ("correlated", "equal", "correlated"))]
    return chart.curves("NMSE of the mean, normals, tables of least error",
                        ("bits up a coordinate", "NMSE"), series)


def shown(found):
    """(columns, rows) for people, ranks across; the CSV has all of it."""
    lines = {}
    for row in found:
        if (row["gradients"], row["rounding"]) == ("equal", "independent"):
            line = lines.setdefault((row["table"], row["bits"], row["width"]), dict(row))
            line[f"nmse {row['ranks']}"] = row["nmse"]
            line[f"form {row['ranks']}"] = row["closed_form"]
    columns = COLUMNS[:3]
    for ranks in RANKS:
        columns += [Column(f"nmse {ranks}", f"{ranks} rank{'s' if ranks > 1 else ''}", "", ".3g"),
                    Column(f"form {ranks}", "closed form", "", ".3g")]
    return columns, [lines[key] for key in sorted(lines)]
