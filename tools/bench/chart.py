# SPDX-License-Identifier: GPL-2.0
"""Charts as SVG, without a library: bars, and curves over a logarithmic axis."""
import math

COLOURS = {"thc": "#2a6f97", "thc_ef": "#61a5c2", "gloo_fp32": "#bc6c25", "gloo_fp16": "#dda15e",
           "ours": "#2a6f97", "paper": "#bc6c25"}
# of curves, in their order
PALETTE = ("#2a6f97", "#bc6c25", "#588157", "#7b2d8b", "#c1121f", "#6c757d", "#17a2a2", "#b8860b",
           "#000", "#e377c2", "#8c564b")
_LEFT, _LONGEST = 200, 380      # pixels: where bars begin, and the longest of a group
_BOX = (80, 40, 560, 340)       # pixels: left, top, width, height of curves


def milliseconds(ms):
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def _document(title, width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="13" style="background:#fff">\n'
            f'<text x="10" y="22" font-size="15">{title}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def bars(title, groups, label=milliseconds):
    """groups: [(heading, [(key of COLOURS, its name, value)])]; each group has its own scale."""
    out, y = [], 50
    for heading, rows in groups:
        longest = max(value for _, _, value in rows)
        out.append(f'<text x="10" y="{y}" font-weight="bold">{heading}</text>')
        for system, name, value in rows:
            y += 24
            width = _LONGEST * value / longest
            out.append(f'<text x="10" y="{y}">{name}</text>'
                       f'<rect x="{_LEFT}" y="{y - 13}" width="{width:.1f}" height="17" '
                       f'fill="{COLOURS[system]}"/>'
                       f'<text x="{_LEFT + 6 + width:.1f}" y="{y}">{label(value)}</text>')
        y += 40
    return _document(title, 680, y - 10, out)


class _Scale:
    """Values to pixels; ticks: where the axis has a number.

    base: of the logarithm; None: a linear axis
    """

    def __init__(self, values, base, begin, length):
        self.base, self.begin, self.length = base, begin, length
        low, high = self._at(min(values)), self._at(max(values))
        self.low, self.high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
        step = max(1, (self.high - self.low) // 8)
        self.ticks = [float(base) ** at if base else at
                      for at in range(self.low, self.high + 1, step)]

    def _at(self, value):
        return math.log(value, self.base) if self.base else value

    def __call__(self, value):
        return self.begin + self.length * (self._at(value) - self.low) / (self.high - self.low)


def _number(value):
    return f"{value:g}" if .001 <= value < 1e4 else f"1e{round(math.log10(value))}"


def _axes(labels, x, y):
    left, top, width, height = _BOX
    out = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" '
           f'stroke="#888"/>',
           f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle">'
           f'{labels[0]}</text>',
           f'<text transform="translate(16 {top + height / 2}) rotate(-90)" '
           f'text-anchor="middle">{labels[1]}</text>']
    for value in x.ticks:
        out.append(f'<text x="{x(value):.1f}" y="{top + height + 18}" text-anchor="middle">'
                   f'{_number(value)}</text>')
    for value in y.ticks:
        out.append(f'<path d="M{left} {y(value):.1f}h{width}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
                   f'{_number(value)}</text>')
    return out


def curves(title, labels, series, log_x=False):
    """series: [(name, [(x, y), or (x, y, its label)], joined by lines?)]; y is above 0.

    labels: of x and y; y is logarithmic by ten, and x by two if log_x
    """
    left, top, width, height = _BOX
    points = [point for _, of, _ in series for point in of]
    x = _Scale([p[0] for p in points], 2 if log_x else None, left, width)
    y = _Scale([p[1] for p in points], 10, top + height, -height)
    out = _axes(labels, x, y)
    for number, (name, of, line) in enumerate(series):
        colour = PALETTE[number % len(PALETTE)]
        if line:
            path = "L".join(f"{x(p[0]):.1f} {y(p[1]):.1f}" for p in of)
            out.append(f'<path d="M{path}" fill="none" stroke="{colour}"/>')
        for at_x, at_y, *label in of:
            out.append(f'<circle cx="{x(at_x):.1f}" cy="{y(at_y):.1f}" r="3.5" fill="{colour}"/>')
            out += [f'<text x="{x(at_x) + 6:.1f}" y="{y(at_y) + 4:.1f}" font-size="10">{text}</text>'
                    for text in label]
        at = top + 14 + 20 * number
        out.append(f'<circle cx="{left + width + 18}" cy="{at - 4}" r="4" fill="{colour}"/>'
                   f'<text x="{left + width + 28}" y="{at}">{name}</text>')
    below = max(top + height + 50, top + 14 + 20 * len(series))
    return _document(title, left + width + 240, below, out)
