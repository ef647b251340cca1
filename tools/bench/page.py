# SPDX-License-Identifier: GPL-2.0
"""Tables in documents that a program draws. The program replaces the text
between its mark and the next "end"; people write the rest.

    <!-- figures: links -->
    ...
    <!-- end -->
"""
import re


def markdown(heading, rows):
    return "\n".join("| " + " | ".join(row) + " |"
                     for row in [heading, ["---"] * len(heading), *rows])


def fill(text, mark, draw):
    """Replaces the tables in text. draw(name): the table for the name in a mark"""
    def drawn(match):
        return f"{match[1]}\n\n{draw(match[2])}\n\n{match[3]}"

    return re.sub(rf"(<!-- {mark}: (\S+) -->)\n.*?\n(<!-- end -->)", drawn, text, flags=re.S)
