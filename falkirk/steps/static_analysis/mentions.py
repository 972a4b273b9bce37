"""Mentions: finds the names that a function's code uses, and the modules that it imports itself."""

import dis
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}
#: With these, code may use names that do not appear in it.
_COMPUTING = {
    "getattr", "vars", "__dict__", "globals", "eval", "exec", "attrgetter", "methodcaller", "import_module",
    "__import__",
}  # fmt: skip


class MentionedNames:
    """The names that appear in code.

    Attributes: names: the names of globals and attributes, and all texts that could be one. computes_names: some code
        may use other names.
    """

    def __init__(self) -> None:
        self.names = set[str]()
        self.computes_names = False

    def add(self, code: CodeType) -> None:
        """Add the names of a code object."""
        texts = {value for value in code.co_consts if isinstance(value, str) and value.isidentifier()}
        self.names |= texts | set(code.co_names)
        self.computes_names |= not _COMPUTING.isdisjoint(code.co_names)


def globals_of(code: CodeType) -> set[str]:
    """Return the names of its module that code uses, including functions within the code."""
    return {i.argval for part in _codes(code) for i in dis.get_instructions(part) if i.opname in _GLOBAL}


def imports_of(code: CodeType, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the modules that code imports, by name; None for a missing one.

    Args: space: the names of its module, for relative imports.
    """
    found = {}
    for part in _codes(code):
        level: Any = 0
        several = [*dis.get_instructions(part)]
        for number, instruction in enumerate(several):
            if instruction.opname == "IMPORT_NAME":
                level = several[number - 2].argval
                name = f"{'.' * (level if isinstance(level, int) else 0)}{instruction.argval}"
                found[name] = _imported(name, space)
    return found


def _imported(name: str, space: Mapping[str, Any]) -> Any:
    package = space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0]
    try:
        full = importlib.util.resolve_name(name, package)
        return sys.modules.get(full) or importlib.import_module(full)
    except ImportError:
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and those of the functions and classes in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)
