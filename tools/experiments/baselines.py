# SPDX-License-Identifier: GPL-2.0
"""Error and bytes of other compressors beside THC, on the same gradients of four workers.

One round from fresh memories, so DGC has the error of TopK on a gradient of one layer: DGC differs
in later rounds, and in its choice by layer. "One way": the mean comes down uncompressed, in the
smallest form (exchange.py). "Both ways": the server compresses the mean by the method, too.
"""
import math

import baselines
from baselines.exchange import exchange, states
from baselines.halves import nmse_of_normals
from baselines.terngrad import nmse as nmse_of_terngrad
from bench import chart
from experiments import forms, gradients, library
from experiments.report import Column

TITLE = "Error and bytes of compressors, four workers"
WORKERS = 4
STEPS = (0, 60)
BLOCK = 1024            # coordinates per norm of THC
SCALE_BLOCK = 4096      # coordinates per scale of the scheme none
OURS = ("thc", "uthc", "none")
# The values in THC (NSDI'24), on its own gradients.
PAPER = {"TopK 10 %": .46, "TernGrad": 6.95}

COLUMNS = [
    Column("method", "method"), Column("data", "gradients"),
    Column("nmse", "NMSE, one way", "", ".3g"), Column("closed_form", "closed form", "", ".3g"),
    Column("both_ways", "NMSE, both ways", "", ".3g"),
    Column("up", "up", "bytes a coordinate", ".3f"),
    Column("down", "down, one way", "bytes a coordinate", ".3f"),
    Column("down_both_ways", "down, both ways", "bytes a coordinate", ".3f"),
    Column("paper", "paper, its gradients", "", ".3g")]


def _data(options, progress):
    """{name: gradients}"""
    count = 1 << (14 if options.quick else 20)
    progress("baselines: training for gradients")
    real = gradients.digits(WORKERS, (0, 2) if options.quick else STEPS,
                            hidden=64 if options.quick else 512)
    return {"normals, equal": gradients.normals(count, WORKERS, options.seed),
            "normals, own": gradients.normals(count, WORKERS, options.seed, equal=False),
            "log-normals, equal": gradients.lognormals(count, WORKERS, options.seed),
            **{f"digits, step {step}": of for step, of in real.items()}}


def _topk_form(ratio):
    """NMSE of TopK on normal values: the energy outside the largest `ratio`."""
    low, high = 0., 10.
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if math.erfc(t / math.sqrt(2)) > ratio else (low, t)
    return 1 - 2 * t * math.exp(-t * t / 2) / math.sqrt(2 * math.pi) - ratio


def _closed_form(method, layers):
    """NMSE of equal normal gradients, one way; None: no closed form."""
    if hasattr(method, "mantissa"):
        return nmse_of_normals(method.mantissa)
    if hasattr(method, "ratio"):
        return _topk_form(method.ratio)
    if method.name == "TernGrad":
        return nmse_of_terngrad(layers[0]) / WORKERS
    return 1 - 2 / math.pi if method.name.startswith("SignSGD") else None


def _by_methods(name, of, seed, progress):
    exact, count = gradients.joined(of), sum(layer.size for layer in of[0])
    for method in baselines.methods().values():
        progress(f"baselines: {method.name} on {name}")
        row = {"method": method.name, "data": name, "paper": PAPER.get(method.name),
               "closed_form": _closed_form(method, of[0]) if name == "normals, equal" else None}
        for both in (False, True):
            mean, up, down = exchange(method, of, states(len(of[0]), WORKERS, seed), both)
            error = gradients.nmse(gradients.joined([mean])[0], exact)
            row["both_ways" if both else "nmse"] = error
            row["up"], row["down_both_ways" if both else "down"] = up / count, down / count
        yield row


def _ours(name, data, mean, x, up, down):
    error = gradients.nmse(mean, x)
    return {"method": name, "data": data, "nmse": error, "both_ways": error, "up": up,
            "down": down, "down_both_ways": down}


def _tables():
    """(name, table, bits of sums, form) of the schemes thc and uthc."""
    for bits in range(1, library.BITS_MAX + 1):
        words = f"{bits} bit{'s' if bits > 1 else ''}"
        for width in (4, 8, 16):
            if (2 ** bits - 1) * WORKERS < 2 ** width:
                yield (f"thc, {words}" + (", sums of 4" if width == 4 else ""),
                       library.choose(bits, WORKERS, width), width, 0)
                if width > 4:
                    break
    yield "thc, 4 bits, not rotated", library.choose(4, WORKERS, 8), 8, library.UNROTATED
    for bits in (4, 8):
        yield (f"uthc, {bits} bits", library.uniform(bits), 8 if bits < 7 else 16, library.RANGES)


def _by_library(name, of, seed, progress):
    x = gradients.joined(of)
    for words, table, width, form in _tables():
        progress(f"baselines: {words} on {name}")
        scale = (8 if form & library.RANGES else 4) / BLOCK
        mean = library.by_table(table, width, x, seed, correlated=True, form=form)
        row = _ours(words, name, mean, x, table.bits / 8 + scale, width / 8 + scale)
        if name == "normals, equal" and not form:
            row["closed_form"] = forms.correlated(table, WORKERS)
        yield row
    for width in (8, 16, 32):
        mean, _ = library.by_fixed(width, x)
        size = width / 8 + 4 / SCALE_BLOCK
        yield _ours(f"none, {width} bits", name, mean, x, size, size)
    mean, lanes = library.by_fixed(32, x, exact=True)
    size = 4 * lanes + 8 / SCALE_BLOCK
    yield _ours("none, exact", name, mean, x, size, size)


def rows(options, progress):
    found = []
    for name, of in _data(options, progress).items():
        found += _by_methods(name, of, options.seed, progress)
        found += _by_library(name, of, options.seed, progress)
    return found


def _data_sets(found):
    return list(dict.fromkeys(row["data"] for row in found))


def shown(found):
    """(columns, rows): methods down, gradients across; bytes are those on the last ones."""
    sets = _data_sets(found)
    by_method = {}
    for row in found:
        line = by_method.setdefault(row["method"], {"method": row["method"]})
        line[row["data"]] = row["nmse"]
        if row["data"] == sets[-1]:
            line.update({key: row.get(key) for key in
                         ("both_ways", "up", "down", "down_both_ways", "paper")})
    columns = [COLUMNS[0]] + [Column(name, name, "", ".3g") for name in sets]
    return columns + [c for c in COLUMNS if c.key in ("both_ways", "up", "down", "down_both_ways",
                                                      "paper")], list(by_method.values())


def summary(found):
    last = _data_sets(found)[-1]
    return (f"Figures are NMSE one way by gradients; both ways and bytes are those on "
            f"\"{last}\".")


def svg(found):
    """A chart: THC's schemes as lines, other families as points, labelled by their parameters."""
    last = _data_sets(found)[-1]
    families = {}
    for row in found:
        if row["data"] != last or row["both_ways"] < 1e-12:
            continue
        family, *rest = row["method"].split(", ")
        if family in ("fp16", "bf16"):
            family, rest = "halves", [family]
        elif family.startswith(("TopK ", "DGC ")):
            family, rest = family.split(" ", 1)[0], [family.split(" ", 1)[1]]
        if family == "thc" and rest[1:]:
            family = ", ".join([family, *rest[1:]])
            rest = rest[:1]
        families.setdefault(family, []).append(
            (row["up"] + row["down_both_ways"], row["both_ways"], ", ".join(rest)))
    series = [(name, sorted(points), name.split(",")[0] in OURS)
              for name, points in families.items()]
    return chart.curves(f"NMSE of the mean by bytes, {last}, {WORKERS} workers",
                        ("bytes up + down a coordinate", "NMSE, compressed both ways"), series,
                        log_x=True)
