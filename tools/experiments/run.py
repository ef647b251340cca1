#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make experiments`: figures of the papers beside ours.

Each experiment is a module here. It prints a table, writes NAME.csv and
NAME.svg, and its part of Documentation/experiments.md is drawn from that
file. The same seed gives the same numbers, but for times, with the same numpy and torch.
"""
import argparse
import importlib
import importlib.util
import json
import os
import sys

sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
import netns  # noqa: E402  (found through the path above)
from bench.page import fill  # noqa: E402
from experiments import report  # noqa: E402
from screen import Screen  # noqa: E402

# ALONE: experiments without a network. The others need network namespaces.
ALONE = ("nmse", "tables", "baselines", "rate_error", "lhc_index", "lhc_peel")
NAMES = (*ALONE, "lhc_goodput", "lhc_exact", "lhc_train", "rate_train")
FOLDER = os.path.join(netns.ROOT, "Documentation/experiments")
PACKAGES = {"numpy": "python3-numpy", "torch": "python3-torch", "sklearn": "python3-sklearn"}
PAGE = os.path.join(netns.ROOT, "Documentation/experiments.md")
SEED = 1


def missing():
    """A sentence that names a missing package and how to install it, or None."""
    for package, debian in PACKAGES.items():
        if not importlib.util.find_spec(package):
            return f"{package} is missing: apt-get install {debian}"
    return None


def module(name):
    return importlib.import_module(f"experiments.{name}")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def measured(name):
    """The rows of Documentation/experiments/NAME.csv."""
    return report.from_csv(read(os.path.join(FOLDER, f"{name}.csv")))


def drawn(text):
    """The page with the tables between its marks drawn from the CSV files."""
    def draw(name):
        found = measured(name)
        return f"{report.page(*module(name).shown(found))}\n\n{module(name).summary(found)}"

    return fill(text, "experiments", draw)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help=f"which: {', '.join(NAMES)}; all if none is given")
    parser.add_argument("--quick", action="store_true",
                        help="smaller gradients, fewer values, less certain figures; needs "
                             "--output")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all draws, default {SEED}")
    parser.add_argument("--output", metavar="DIR",
                        help="where CSV and SVG go; default Documentation/experiments, and the "
                             "page beside it is drawn again")
    parser.add_argument("--all", action="store_true",
                        help="rate_train: trainings whose rows the CSV file has are done anew, too, "
                             "which takes a night")
    parser.add_argument("--json", action="store_true", help="rows as JSON on stdout, no tables")
    parser.add_argument("--draw", action="store_true",
                        help="measure nothing, draw page and charts from the CSV files")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no experiment {unknown[0]}: {', '.join(NAMES)} there are")
    if args.quick and not args.output:
        parser.error("--quick needs --output: figures of the page are not measured in a hurry")
    if args.draw and (args.quick or args.output):
        parser.error("--draw draws the page from its own files: without --quick and --output")
    if args.seed < 0:
        parser.error("--seed is a whole number from 0 on")
    return args


def run(args, screen):
    """Runs the experiments, and writes each one's files as it ends; returns {name: rows}."""
    folder = args.folder = args.output or FOLDER
    netns.open_folder(folder)
    results = {}
    for name in args.names or NAMES:
        experiment = module(name)
        if args.draw:
            found = measured(name)
        else:
            found = experiment.rows(args, screen.progress)
            write(os.path.join(folder, f"{name}.csv"), report.to_csv(experiment.COLUMNS, found))
        # the CSV's rounded numbers, so that a chart drawn from the file is equal
        found = report.from_csv(report.to_csv(experiment.COLUMNS, found))
        write(os.path.join(folder, f"{name}.svg"), experiment.svg(found))
        results[name] = found
        if not args.json:
            screen.clear()
            print(f"{experiment.TITLE}\n\n{report.table(*experiment.shown(found))}\n\n  "
                  f"{experiment.summary(found)}\n  Written to "
                  f"{os.path.relpath(os.path.join(folder, name))}.csv and .svg\n", flush=True)
    return results


def main():
    args = arguments()
    screen = Screen(quiet=True)
    try:
        if missing():
            raise report.ExperimentError(missing())
        results = run(args, screen)
    except (report.ExperimentError, netns.NetnsError) as error:
        screen.say(f"experiments: {error}")
        return 1
    if args.json:
        print(json.dumps(results, indent=1))
    if not args.output:
        write(PAGE, drawn(read(PAGE)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
