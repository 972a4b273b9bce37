"""An extension of griffe for the site: docstrings as this house writes them, signatures without internal parameters."""

import re
from typing import Any

import griffe

#: `Args: a: text. b: text.` on one line, which is not Google's style.
INLINE = re.compile(
    r"^(\s*)(Args|Returns|Raises|Yields): (.+(?:\n(?!\s*(?:Args|Returns|Raises|Yields|Source):|\s*$).*)*)", re.MULTILINE
)

#: A section directly after a line of text; Google's style wants an empty line between them.
SECTION = re.compile(r"(?<=[^\n])\n((?:Args|Returns|Raises|Yields):\n)")


class HouseDocstrings(griffe.Extension):
    """Turns one-line sections into Google's form, and hides the parameter `where` of dataclasses."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object, when griffe has loaded it."""
        if obj.docstring is not None:
            text = INLINE.sub(_section, obj.docstring.value)
            obj.docstring.value = SECTION.sub(r"\n\1", text)
        if isinstance(obj, griffe.Class) and "where" in obj.members and "dataclass" in obj.labels:
            del obj.members["where"]


def _section(match: re.Match[str]) -> str:
    indent, name, text = match.groups()
    text = " ".join(text.split())
    entries = re.split(r"(?<=[.;]) (?=\w+: )", text) if name in ("Args", "Raises") else [text]
    lines = [f"{indent}    {entry}" for entry in entries]
    return "\n".join(["", f"{indent}{name}:", *lines])
