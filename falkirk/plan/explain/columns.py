"""Columns of text: plain tables that fit a width, without colours and without cutting anything off."""

import textwrap
from collections.abc import Iterator, Sequence

_GAP = 2
#: The last column is wrapped before the others, down to this width.
_LAST_MIN = 27


def table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table. If it is wider than `width` characters, cells are wrapped, the last column first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    while sum(widths) + _GAP * (len(widths) - 1) > width and max(widths) > 10:
        widths[-1 if widths[-1] > _LAST_MIN else widths.index(max(widths))] -= 1
    for row in rows:
        cells = [wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            parts = [cell[number] if number < len(cell) else "" for cell in cells]
            padded = [part.ljust(size) for part, size in zip(parts, widths, strict=True)]
            yield (" " * _GAP).join(padded).rstrip()


def wrapped(text: str, width: int | None) -> list[str]:
    """Return the lines of a text, of at most `width` characters; None: it is one line, however long.

    If the text is indented, so are its later lines, by two characters more.
    """
    if width is None or len(text) <= width:
        return [text]
    indent = len(text) - len(text.lstrip())
    later = " " * (indent + 2 if indent else 0)
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False, subsequent_indent=later)
