# SPDX-License-Identifier: GPL-2.0
"""Tables in documents that a program draws: what stands between a mark of its
own and the next end is replaced, the text around it is people's.

    <!-- figures: links -->
    ...
    <!-- end -->
"""
import re


def markdown(heading, rows):
    return "\n".join("| " + " | ".join(row) + " |"
                     for row in [heading, ["---"] * len(heading), *rows])


def fill(text, mark, draw):
    """draw: from the name behind the mark to what stands there"""
    def drawn(match):
        return f"{match[1]}\n\n{draw(match[2])}\n\n{match[3]}"

    return re.sub(rf"(<!-- {mark}: (\S+) -->)\n.*?\n(<!-- end -->)", drawn, text, flags=re.S)
