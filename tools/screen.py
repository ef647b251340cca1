# SPDX-License-Identifier: GPL-2.0
"""Progress output of programs that run for a while, and tables as text."""
import contextlib
import shutil
import sys
import threading
import time

SILENCE = 1.0           # seconds between lines if the output is no terminal


class Screen:
    """One live line on a terminal, else a line per second. quiet: True: write to stderr."""

    def __init__(self, quiet, live=False):
        self.out = sys.stderr if quiet else sys.stdout
        self.live = live or self.out.isatty()
        self.start = self.shown = time.monotonic()

    def say(self, text):
        self.out.write(("\r\033[K" if self.live else "") + text + "\n")
        self.out.flush()
        self.shown = time.monotonic()

    def clear(self):
        """Erases the live line, before other output to the terminal."""
        if self.live:
            self.out.write("\r\033[K")
            self.out.flush()

    def progress(self, text, force=False):
        now = time.monotonic()
        if not force and now - self.shown < (0.1 if self.live else SILENCE):
            return
        self.shown = now
        text = f"[{now - self.start:5.1f} s] {text}"
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.out.write("\r\033[K" + text[:width])
        else:
            self.out.write(text + "\n")
        self.out.flush()

    @contextlib.contextmanager
    def waiting(self, text):
        """Shows text as progress until the block ends; the yielded function replaces text."""
        done, now = threading.Event(), [text]

        def repeat():
            while not done.wait(0.1):
                self.progress(now[0])

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield lambda other: now.__setitem__(0, other)
        finally:
            done.set()
            thread.join()


def aligned(parts):
    """Parts of a table as text. A part is a list of rows (label, value, value, ...). Its first row
    is a heading, and so is a row behind None. Empty parts are left out.
    """
    rows = []
    for part in filter(None, parts):
        rows += [None] * bool(rows) + part
    columns = max(len(row) for row in rows if row)
    wide = [max(len(row[c]) for row in rows if row and c < len(row)) for c in range(columns)]
    lines, heading = [], True
    for row in rows:
        what, *values = row or ("",)
        cells = "".join(f"  {v:>{wide[c]}}" for c, v in enumerate(values, 1))
        lines.append(f"  {what if heading else '  ' + what:<{wide[0] + 2}}{cells}".rstrip())
        heading = not row
    return "\n".join(lines)
