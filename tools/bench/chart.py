# SPDX-License-Identifier: GPL-2.0
"""Bars of times as SVG, for bench.svg and the README's picture."""

COLOURS = {"thc": "#2a6f97", "thc_ef": "#61a5c2", "gloo_fp32": "#bc6c25", "gloo_fp16": "#dda15e"}
_LEFT, _LONGEST = 200, 380      # pixels: where bars begin, and the longest of a group


def _label(ms):
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def bars(title, groups):
    """groups: [(heading, [(system, its name, milliseconds)])]; each group has its own scale."""
    out, y = [], 50
    for heading, rows in groups:
        longest = max(ms for _, _, ms in rows)
        out.append(f'<text x="10" y="{y}" font-weight="bold">{heading}</text>')
        for system, name, ms in rows:
            y += 24
            width = _LONGEST * ms / longest
            out.append(f'<text x="10" y="{y}">{name}</text>'
                       f'<rect x="{_LEFT}" y="{y - 13}" width="{width:.1f}" height="17" '
                       f'fill="{COLOURS[system]}"/>'
                       f'<text x="{_LEFT + 6 + width:.1f}" y="{y}">{_label(ms)}</text>')
        y += 40
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{y - 10}" '
            f'font-family="sans-serif" font-size="13" style="background:#fff">\n'
            f'<text x="10" y="22" font-size="15">{title}</text>\n' + "\n".join(out) + "\n</svg>\n")
