# SPDX-License-Identifier: GPL-2.0
"""The tables of rate.py's results, for a terminal and for Documentation/benchmarks.md, and the
check of the project's promises.
"""
import json
import os

import netns
from bench.figures import ran_on
from bench.model import speed
from bench.page import fill, markdown
from screen import aligned

MEASURED = os.path.join(netns.ROOT, "Documentation/bench-rate.json")
PAGE = os.path.join(netns.ROOT, "Documentation/benchmarks.md")
NAMES = {"fixed": "fixed, 4 + 8", "gloo_fp32": "Gloo fp32"}
BESIDE = {"of_fixed": "fixed", "of_gloo": "Gloo fp32"}
# (links, system, beside): least speed-up
WANTED = {("1gbit", "rate-4", "of_fixed"): 2.0, ("1gbit", "rate-4", "of_gloo"): 4.5,
          (None, "rate-4", "of_fixed"): 1.0}


def name(system):
    return NAMES.get(system) or f"{system.replace('-', ' ')}"


def promises(rows):
    return [{"what": f"{row['task']}, {speed(links)}: {name(system)} beside {BESIDE[beside]}",
             "value": row[beside], "limit": limit, "kept": row[beside] >= limit}
            for row in rows for (links, system, beside), limit in WANTED.items()
            if (row["links"], row["system"]) == (links, system)]


def percent(part):
    return "-" if part is None else f"{100 * part:.0f} %"


def cells(row):
    return [f"{row['ms']:.1f}", "-" if row["link_ms"] is None else f"{row['link_ms']:.1f}",
            f"{row['cpu_ms']:.0f}", f"{row['of_fixed']:.2f}", f"{row['of_gloo']:.2f}",
            f"{row['bits_up']:.2f}", f"{row['bits_down']:.2f}", percent(row["skipped"]),
            "-" if row["error"] is None else f"{row['error']:.4f}",
            f"{row['interface_up'] / 1e6:.2f}", f"{row['interface_down'] / 1e6:.2f}"]


HEADING = ("ms", "links ms", "CPU ms", "x fixed", "x Gloo", "bits up", "bits down", "skipped", "error", "MB up", "MB down")


def table(result):
    """The result as text."""
    parts = {}
    for row in result["rows"]:
        part = parts.setdefault((row["task"], row["links"]), [
            (f"{row['task']}, {speed(row['links'])}", *HEADING)])
        part.append((name(row["system"]), *cells(row)))
    kept = [(p["what"], f"{p['value']:.2f}", f">= {p['limit']:g}", "kept" if p["kept"] else "MISSED")
            for p in result["promises"]]
    head = (f"{result['bytes'] >> 20} MiB, {result['workers']} workers, median of {result['repeats']} "
            f"after {result['warm_up']} rounds; steps {result['steps'][0]} to {result['steps'][1]}")
    return "\n".join([head, aligned(list(parts.values())), "",
                      aligned([[("Promised", "x as fast", "wanted", "")] + kept])])


def table_of_page(result):
    def bold(row, beside):
        wanted = WANTED.get((row["links"], row["system"], beside))
        text = f"{row[beside]:.2f}"
        return f"**{text}**" if wanted and row[beside] < wanted else text

    return markdown(
        ["gradients of", "links", "by", "ms", "ms of links alone", "ms of processors",
         "times as fast as fixed", "as Gloo fp32", "bits up", "down",
         "blocks skipped", "error predicted", "MB up", "down"],
        [[row["task"], speed(row["links"]), name(row["system"]), *cells(row)[:3],
          bold(row, "of_fixed"), bold(row, "of_gloo"), *cells(row)[5:]] for row in result["rows"]])


def drawn(text, result):
    draw = {"table": table_of_page, "machine": ran_on}
    return fill(text, "rate", lambda what: draw[what](result))


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def draw():
    """Writes the table of Documentation/bench-rate.json into benchmarks.md."""
    text = drawn(read(PAGE), json.loads(read(MEASURED)))
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(text)
