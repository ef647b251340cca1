# SPDX-License-Identifier: GPL-2.0
"""TAP for the Python tests that need namespaces: each case prints ok or not
ok with its reason, and a missing capability is a skip (exit 4), never a pass.

    def case__does_this(): assert ...
    tap.main([case__does_this, ...])
"""
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
import netns  # noqa: E402  (found through the path above)

SKIPPED = 4


class Skip(Exception):
    """Raised by a case that cannot run here, with the reason."""


def once(cases, *but, threads=None):
    """The cases to run. With a sanitizer, which is slow, the cases in `but` are left out: they run
    the code of other cases with another kind of aggregator, number, or limit of the kernel. With
    ThreadSanitizer only `threads` run, if given: cases in which threads meet in ways of their own.
    """
    sanitizer = os.environ.get("THC_SANITIZED")
    if sanitizer == "tsan" and threads:
        return [c for c in cases if c in threads]
    return [c for c in cases if not (sanitizer and c in but)]


def main(cases):
    """Runs cases (those named on the command line, or all); never returns."""
    wanted = sys.argv[1:]
    unknown = set(wanted) - {c.__name__ for c in cases}
    if unknown:
        print(f"1..1\nnot ok 1 - no case is called {' or '.join(sorted(unknown))}")
        sys.exit(1)
    cases = [c for c in cases if not wanted or c.__name__ in wanted]
    reason = netns.why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        sys.exit(SKIPPED)
    print(f"1..{len(cases)}", flush=True)
    failed = skipped = 0
    with netns.guard():
        for number, case in enumerate(cases, 1):
            start = time.monotonic()
            try:
                case()
                verdict, after = "ok", ""
            except Skip as error:
                skipped += 1
                verdict, after = "ok", f" # SKIP {error}"
            except Exception as error:  # a failed case must not hide the others
                failed += 1
                verdict, after = "not ok", ""
                if not isinstance(error, AssertionError):
                    traceback.print_exc(file=sys.stderr)
                for line in (str(error) or traceback.format_exc()).splitlines():
                    print(f"# {line}")
            print(f"{verdict} {number} - {case.__name__}{after}", flush=True)
            print(f"# {time.monotonic() - start:.1f} s")
    sys.exit(1 if failed else SKIPPED if skipped == len(cases) else 0)
