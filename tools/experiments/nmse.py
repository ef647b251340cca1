# SPDX-License-Identifier: GPL-2.0
"""The error of a whole round over bits and ranks, by libthc's codec, beside its closed form.

THC (NSDI'24), appendix D.4. Normals; each rank has the same gradient or its own, and ranks round
independently or in a correlated way.
"""
import math

from bench import chart
from experiments import forms, gradients, library
from experiments.report import Column

TITLE = "NMSE of a mean by b bits up, beside the closed form"
BITS = range(1, library.BITS_MAX + 1)
RANKS = (1, 2, 4, 8)
TOLERANCE = .03
# The published table, and what the paper gives for it at 1, 4 and 8 ranks.
PUBLISHED = (0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30)
PUBLISHED_P = 1 / 32

COLUMNS = [
    Column("table", "table"), Column("bits", "b", "bits up"),
    Column("width", "sums", "bits down"), Column("ranks", "ranks"),
    Column("granularity", "g"), Column("p", "p", "", ".3g"), Column("gradients", "gradients"),
    Column("rounding", "rounding"), Column("nmse", "NMSE", "", ".3g"),
    Column("closed_form", "closed form", "", ".3g"),
    Column("ratio", "measured / closed form", "", ".3f")]


def _closed_form(table, ranks, equal, correlated):
    """None: there is none. Errors of different gradients are as independent as the gradients."""
    if not equal:
        return None if correlated else library.closed_form(table, 1)
    return (forms.correlated if correlated else library.closed_form)(table, ranks)


def _cases():
    """(kind of table, table, bits of sums, ranks)"""
    for bits in BITS:
        for ranks in RANKS:
            for width in (8, 16):
                if (2 ** bits - 1) * ranks < 2 ** width and (width == 8 or bits > 4):
                    yield "chosen", library.choose(bits, ranks, width), width, ranks
    for ranks in RANKS:
        yield ("published", library.from_values(4, 30, PUBLISHED_P, PUBLISHED), 8, ranks)
        for bits in BITS:
            top = 2 ** bits - 1
            yield ("uniform", library.solve(bits, top, PUBLISHED_P),
                   8 if top * ranks < 256 else 16, ranks)


def _ways(kind, ranks):
    """(equal gradients?, correlated?)"""
    yield True, False
    if kind == "chosen" and ranks > 1:
        yield False, False
        yield True, True
        yield False, True


def rows(options, progress):
    count, found = 1 << (17 if options.quick else 19), []
    of = {equal: gradients.joined(gradients.normals(count, max(RANKS), options.seed, equal))
          for equal in (True, False)}
    for kind, table, width, ranks in _cases():
        for equal, correlated in _ways(kind, ranks):
            progress(f"nmse: {kind} table of {table.bits} bits, {ranks} ranks")
            x = of[equal][:ranks]
            error = gradients.nmse(library.by_table(table, width, x, options.seed, 14,
                                                    correlated), x)
            form = _closed_form(table, ranks, equal, correlated)
            found.append({"table": kind, "bits": table.bits, "width": width, "ranks": ranks,
                          "granularity": table.granularity, "p": table.p,
                          "gradients": "equal" if equal else "own",
                          "rounding": "correlated" if correlated else "independent",
                          "nmse": error, "closed_form": form,
                          "ratio": error / form if form else None})
    return found


def worst(found):
    """The largest distance from a closed form, as a fraction."""
    return max(abs(row["ratio"] - 1) for row in found if row["ratio"] is not None)


def summary(found):
    return (f"The measured error is within {100 * worst(found):.1f} % of the closed form; "
            f"{100 * TOLERANCE:g} % are allowed.")


def _curve(found, **wanted):
    """(bits, NMSE) of chosen tables, of two widths the better one."""
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
    return chart.curves("NMSE of the mean, normals, tables as thcd chooses them",
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
    return columns, list(lines.values())
