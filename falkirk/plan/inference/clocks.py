"""Clocks: words that Spark takes for the present: `CAST('now' AS TIMESTAMP)`, `to_date('today')`, `date'today'`.

To the table of functions they are a cast, a function and a literal, and all are pure. Only constants are read so;
a column that holds such a word is not.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from falkirk.plan.inference.functions import PRESENT

_WORDS = r"\s*(now|today|tomorrow|yesterday)\b"
_WORD = re.compile(_WORDS, re.IGNORECASE)
_TYPED = re.compile(rf"\b(date|timestamp(_ltz|_ntz)?)\s*'{_WORDS}", re.IGNORECASE)
_TIMES = ("date", "timestamp", "timestamp_ntz")
#: These are casts, unless they are told a format.
_PARSERS = (".ParseToDate", ".ParseToTimestamp")


def in_plan(node: Any) -> Iterator[str]:
    """Yield `PRESENT` for each such cast in a plan, or in an expression, as Spark's JSON."""
    if isinstance(node, Mapping):
        for value in node.values():
            yield from in_plan(value)
    elif isinstance(node, list):
        for i, each in enumerate(node):
            if _is_cast(each) and any(map(_is_word, _constants(node, i + 1))):
                yield PRESENT
            yield from in_plan(each)


def in_text(text: str) -> bool:
    """Tell whether SQL has a literal of such a word; it is read when the SQL is parsed."""
    return _TYPED.search(text) is not None


def _is_cast(node: Any) -> bool:
    if not isinstance(node, Mapping):
        return False
    name = str(node.get("class", ""))
    if name.endswith(_PARSERS):
        return "format" not in node
    return name.endswith(".Cast") and node.get("dataType") in _TIMES


def _constants(nodes: list[Any], first: int) -> list[Mapping[str, Any]]:
    """Return the nodes of an argument, in a list of nodes each before its parts; nothing if it reads a column."""
    found, open_ = [], 1
    for node in nodes[first:]:
        if not open_:
            break
        if str(node.get("class", "")).endswith("AttributeReference"):
            return []
        found.append(node)
        open_ += int(node.get("num-children", 0)) - 1
    return found


def _is_word(node: Mapping[str, Any]) -> bool:
    return str(node.get("class", "")).endswith(".Literal") and _WORD.match(str(node.get("value"))) is not None
