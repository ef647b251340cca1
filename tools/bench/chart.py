# SPDX-License-Identifier: GPL-2.0
"""Charts as SVG, without a library: bars, curves over a logarithmic axis, and points with their spread."""
import math

COLOURS = {"thc": "#2a6f97", "thc_ef": "#61a5c2", "thc_rate": "#588157",
           "gloo_fp32": "#bc6c25", "gloo_fp16": "#dda15e",
           "ours": "#2a6f97", "paper": "#bc6c25"}
# of curves, in their order
PALETTE = ("#2a6f97", "#bc6c25", "#588157", "#7b2d8b", "#c1121f", "#6c757d", "#17a2a2", "#b8860b",
           "#000", "#e377c2", "#8c564b")
_LEFT, _LONGEST = 200, 380      # pixels: left end of bars, length of a group's longest bar
_BOX = (80, 40, 560, 340)       # pixels: left, top, width, height of curves
_PANEL = (330, 200)             # pixels: width, height of a panel


def milliseconds(ms):
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def _document(title, width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="13" style="background:#fff">\n'
            f'<text x="10" y="22" font-size="15">{title}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def bars(title, groups, label=milliseconds):
    """An SVG of bars. groups: [(heading, [(key of COLOURS, label, value)])], each to its own scale.
    """
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
    """Maps values to pixels. ticks: the values that the axis labels; base: base of the logarithm,
    None: a linear axis
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


class _Fine:
    """A linear axis with a handful of ticks, which are 1, 2 or 5 times a power of ten apart."""

    def __init__(self, values, begin, length):
        low, high = min(values), max(values)
        span = (high - low) or abs(high) or 1
        power = 10. ** math.floor(math.log10(span / 5))
        self.step = next(n * power for n in (1, 2, 5, 10) if span <= 5 * n * power)
        self.begin, self.length = begin, length
        # rounding must not lose a tick
        self.low = math.floor(low / self.step + 1e-6)
        self.high = max(math.ceil(high / self.step - 1e-6), self.low + 1)
        self.ticks = [at * self.step for at in range(self.low, self.high + 1)]

    def __call__(self, value):
        return self.begin + self.length * (value / self.step - self.low) / (self.high - self.low)


def _number(value):
    if not value or .001 <= abs(value) < 1e4:
        return f"{value:g}"
    return f"1e{round(math.log10(value))}"


def _axes(labels, x, y, box=_BOX):
    left, top, width, height = box
    out = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" '
           f'stroke="#888"/>',
           f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle">'
           f'{labels[0]}</text>',
           f'<text transform="translate({left - 64} {top + height / 2}) rotate(-90)" '
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
    """An SVG of curves. series: [(name, [(x, y) or (x, y, label)], True to join by lines)]

    labels: of the axes (x, y). y > 0 is logarithmic to base 10, x to base 2 if log_x
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


def _spread(x, y, colour, at_x, at_y, spread):
    """A point with an error bar from at_y - spread to at_y + spread."""
    return (f'<path d="M{x(at_x):.1f} {y(at_y - spread):.1f}V{y(at_y + spread):.1f}" '
            f'stroke="{colour}"/><circle cx="{x(at_x):.1f}" cy="{y(at_y):.1f}" r="3.5" '
            f'fill="{colour}"/>')


def panels(title, label, parts):
    """Charts side by side, two in a row, with one legend below.

    label: of x, which is logarithmic; parts: [(label of y, [(name, x, y, spread)])]
    """
    width, height = _PANEL
    names = list(dict.fromkeys(name for _, points in parts for name, *_ in points))
    colour = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    x_values = [x for _, points in parts for _, x, _, _ in points]
    out, below = [], 0
    for number, (heading, points) in enumerate(parts):
        left, top = 80 + number % 2 * (width + 90), 40 + number // 2 * (height + 70)
        x = _Scale(x_values, 2, left, width)
        y = _Fine([v + way * spread for _, _, v, spread in points for way in (-1, 1)],
                  top + height, -height)
        out += _axes((label, heading), x, y, (left, top, width, height))
        out += [_spread(x, y, colour[name], *point) for name, *point in points]
        below = top + height + 70
    for number, name in enumerate(names):
        at_x, at_y = 80 + number % 4 * 190, below + 20 * (number // 4)
        out.append(f'<circle cx="{at_x}" cy="{at_y - 4}" r="4" fill="{colour[name]}"/>'
                   f'<text x="{at_x + 10}" y="{at_y}">{name}</text>')
    return _document(title, 2 * (width + 90) + 20, below + 20 * (-(-len(names) // 4)), out)
