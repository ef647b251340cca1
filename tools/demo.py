#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""`make demo`: trains a network with PyTorch DDP twice with equal seeds: an aggregator in XDP sums
all gradients, then plain Gloo does. Each worker is a process in a network namespace of its own.
Prints a table and writes build/demo.json. Tasks are in tasks/, their screens and tables in demos/,
the workers in demo_stage.py and training.py, the topology in netns.py.
"""
import argparse
import importlib
import importlib.util
import json
import os
import re
import sys

import netns
from screen import Screen
from demo_stage import TRANSPORTS, DemoError
from demos import goal

SILENT_SECONDS = 120    # a worker without output for this long hangs


def run(demo, args, screen):
    reason = netns.why_not()
    if reason:
        raise DemoError(reason)
    for module, package in (("torch", "python3-torch"), ("sklearn", "python3-sklearn")):
        if not importlib.util.find_spec(module):
            raise DemoError(f"{sys.executable} has no {module}: apt-get install {package}, and "
                            f"run this by /usr/bin/python3 (make demo PYTHON=/usr/bin/python3)")
    for name in netns.sweep():
        screen.say(f"removed {name}, left by a run that died")
    if args.transport != "auto":
        os.environ["THC_TRANSPORT"] = args.transport
    return demo.run(args, screen)


def number(low, high, what, words=()):
    """An argparse type: a number from low to high, or one of words."""
    def read(text):
        if text in words:
            return text
        try:
            value = float(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {low:g} to {high:g}, {what}")
        return value

    return read


def add_goals(parser):
    goals = parser.add_mutually_exclusive_group()
    goals.add_argument("--rate", metavar="BITS", type=number(
                           .25, 24, 'bits a coordinate, nor "fixed"; --links is the speed of links',
                           words=(goal.FIXED,)),
                       help="digits: bits follow the norms of blocks, and there are so many a "
                            f"coordinate, up and down together, default {goal.DEFAULT_RATE:g}; fixed: "
                            "all blocks have 4 up and 8 down")
    goals.add_argument("--error", metavar="E", type=number(
                           1e-6, .5, "in parts of the gradient's square"),
                       help="digits: bits follow the norms of blocks, and are as many as an expected "
                            "squared error of E of the gradient's square takes, as 0.01")


# Options of --task digits alone, and their defaults.
DIGITS_ALONE = {"epochs": 5, "hidden": 1024, "repeats": 7}


def complete(parser, args):
    """Sets the defaults of a task's own options; an option of another task is an error."""
    for name, default in DIGITS_ALONE.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
        elif args.task != "digits":
            parser.error(f"--{name} is of --task digits alone: leave it out")
    if args.task == "digits" and args.dense_embeddings:
        parser.error("--dense-embeddings is of --task ncf and lm: digits have no embeddings")


def arguments():
    parser = argparse.ArgumentParser(
        description="Times all-reduces at 1 Gb/s, then trains on digits with gradients summed in "
                    "XDP; both beside plain Gloo. Or trains a task with sparse gradients.")
    parser.add_argument("--task", choices=("digits", "ncf", "lm"), default="digits",
                        help="digits (the default); ncf: which packages packages depend on; lm: the "
                             "next word of WordNet's definitions. --epochs, --hidden, --repeats, "
                             "--rate and --error are of digits alone")
    add_goals(parser)
    parser.add_argument("--software", action="store_true",
                        help="aggregate in user space instead of XDP")
    parser.add_argument("--loss", type=float, default=0.0, metavar="P",
                        help="lose packets with probability P in each direction, e.g. 0.02")
    parser.add_argument("--workers", type=int, default=4, help="1 to 8, default 4")
    parser.add_argument("--epochs", type=int,
                        help="passes over the training images, default 5")
    parser.add_argument("--steps", type=int, default=0, metavar="N",
                        help="end each training after N steps, before all epochs are over; ncf, lm: "
                             "instead of the task's")
    parser.add_argument("--dense-embeddings", action="store_true",
                        help="ncf, lm: gradients of embeddings are dense, most of their rows zero")
    parser.add_argument("--precision", choices=("exact", "fixed32"), default="exact",
                        help="ncf, lm: of the sums by scheme lhc, default exact; fixed32 needs "
                             "--dense-embeddings")
    parser.add_argument("--hidden", type=int, metavar="N",
                        help="width of the network's hidden layers, default 1024")
    parser.add_argument("--links", default="1gbit", metavar="SPEED",
                        help="speed of each link while all-reduces are timed, as 1gbit, 2500mbit "
                             "or none; default 1gbit. Links have no limit in the training on digits")
    parser.add_argument("--repeats", type=int, metavar="N",
                        help="all-reduces of each kind that are timed, default 7; 0: none")
    parser.add_argument("--verbose", action="store_true",
                        help="show the counters of all packets as well")
    parser.add_argument("--transport", choices=TRANSPORTS, default="auto",
                        help="sockets that gradients go through; default: AF_THC if thc.ko is "
                             "there, else UDP (or what THC_TRANSPORT says)")
    parser.add_argument("--patience", type=int, default=SILENT_SECONDS, metavar="S",
                        help="stop when no worker has said anything for S seconds, default "
                             f"{SILENT_SECONDS}")
    parser.add_argument("--live", action="store_true", help="draw as on a terminal")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON on stdout, the rest on stderr")
    parser.add_argument("--output", metavar="FILE",
                        default=os.path.join(netns.build_dir(), "demo.json"),
                        help="where the JSON is written, default build/demo.json")
    args = parser.parse_args()
    complete(parser, args)
    if not 0 <= args.loss <= 0.5:
        parser.error("--loss is a probability from 0 to 0.5")
    if not 1 <= args.workers <= 8 or args.epochs < 1 or args.steps < 0:
        parser.error("--workers is 1 to 8, --epochs at least 1, --steps not negative")
    if args.precision != "exact" and not args.dense_embeddings:
        parser.error("--precision fixed32 needs --dense-embeddings: means of rows are exact")
    if args.task != "digits" and (args.rate or args.error):
        parser.error(f"--rate and --error are of --task digits alone: gradients of {args.task} go by "
                     f"scheme lhc, whose means have no bits to choose")
    if args.task == "digits" and args.rate is None and args.error is None:
        args.rate = goal.DEFAULT_RATE
    if args.repeats < 0 or args.hidden < 1:
        parser.error("--repeats is not negative, --hidden at least 1")
    args.links = None if args.links == "none" else args.links
    if args.links and not re.fullmatch(r"0*[1-9]\d*[mg]bit", args.links):
        parser.error("--links is a whole number from 1 on with mbit or gbit behind it, or none")
    if not os.path.isdir(os.path.dirname(os.path.abspath(args.output))):
        parser.error(f"--output: there is no folder for {args.output}: make it first")
    return args


def main():
    args = arguments()
    screen = Screen(args.json, args.live)
    demo = importlib.import_module(f"demos.{'digits' if args.task == 'digits' else 'sparse'}")
    try:
        with netns.guard():
            result = run(demo, args, screen)
    except (DemoError, netns.NetnsError) as error:
        screen.say(f"demo: {error}")
        return 1
    except SystemExit:
        screen.say("demo: interrupted; its namespaces and processes are gone")
        raise
    text = json.dumps(result, indent=2)
    with open(args.output, "w", encoding="utf-8") as f:
        f.write(text + "\n")
    wrong = demo.faults(result, args)
    if args.json:
        print(text)
    screen.say("")
    screen.say(demo.table(result, args.verbose))
    screen.say("")
    for sentence in wrong:
        screen.say(f"  WRONG: {sentence}")
    if not wrong:
        screen.say(demo.last_words(result))
    screen.say(f"\n  Written to {netns.output_name(args.output)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
