"""Statement: the whole statement of the user's code that a source location names, for the details of an output.

A location has one line. A chain of steps usually takes several, and the one that is named may not show which stream it
belongs to.
"""

import ast
import linecache
import textwrap
from collections.abc import Iterator, Sequence

from falkirk.errors.location import SourceLocation
from falkirk.errors.redaction import redact

#: The number of lines of a longer statement that are quoted: its first line, and those around the named line.
LINES_MAX = 10
_CUT = "…"


def statement_at(where: SourceLocation, width: int | None = None) -> list[str]:
    """Return the place and the statement, as a line, or as several lines with their numbers.

    Of a function, a class or a block, the statement ends where its body begins. If the file can't be read or has
    changed, the line of the location stands for the statement.

    Args: width: of the longest line that is not continued on the next one; None: no line is.
    """
    lines = linecache.getlines(where.file)
    span = _span(lines, where.line)
    if span is None or redact(lines[where.line - 1].strip()) != where.text:
        return [str(where)]
    first, last = span
    code = redact(textwrap.dedent("".join(lines[first - 1 : last])))
    numbered = [(number, text) for number, text in enumerate(code.split("\n"), first) if text.strip()]
    if len(numbered) < 2:
        return [str(where)]
    digits = len(str(last))
    shown = (_line(f"  {number or '':>{digits}}  ", text, width) for number, text in _cut(numbered, where.line))
    return [f"{where.place}:", *(line for lines in shown for line in lines)]


def _span(lines: Sequence[str], line: int) -> tuple[int, int] | None:
    """Return the first and the last line of the innermost statement at this line."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None
    spans = [span for span in _spans(tree) if span[0] <= line <= span[1]]
    return min(spans, key=lambda span: span[1] - span[0], default=None)


def _spans(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            body: list[ast.stmt] = getattr(node, "body", [])
            first, last = _first(node), node.end_lineno or node.lineno
            yield first, max(first, _first(body[0]) - 1) if body else last


def _first(node: ast.stmt | ast.ExceptHandler) -> int:
    """Return the first line of a statement: decorators belong to it."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _line(number: str, code: str, width: int | None) -> list[str]:
    """Return a line of code after its number, continued below itself if it is too long."""
    if width is None or len(number) + len(code) <= width:
        return [f"{number}{code}"]
    later = " " * (len(number) + len(code) - len(code.lstrip()) + 2)
    return textwrap.wrap(
        f"{number}{code}", max(width, len(later) + 20), break_on_hyphens=False, subsequent_indent=later
    )


def _cut(numbered: list[tuple[int, str]], line: int) -> list[tuple[int | None, str]]:
    """Return at most `LINES_MAX` lines, with a mark where lines are left out."""
    if len(numbered) <= LINES_MAX:
        return [*numbered]
    room = LINES_MAX - 1
    at = sum(number < line for number, _ in numbered)
    begin = min(max(1, at - room // 2), len(numbered) - room)
    head, end = numbered[0], begin + room
    before: list[tuple[int | None, str]] = [(None, _CUT)] if begin > 1 else []
    after: list[tuple[int | None, str]] = [(None, _CUT)] if end < len(numbered) else []
    return [head, *before, *numbered[begin:end], *after]
