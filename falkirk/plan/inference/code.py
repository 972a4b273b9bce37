"""Code: what a Python function does, as a text that is the same in every process, and another when the function is.

It has the function's instructions and constants, what it was made with (defaults, what it closes over), and the same of
what it calls by a name of its module's. What modules hold that it reaches through their names (`math.sqrt`) is the name
alone, and so is what is not written in Python.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_Seen = dict[int, tuple[int, Any]]
"""What was told already, by identity: its number, and itself, since the identity of what is gone is soon another's."""


def text_of(function: Any) -> str:
    """Return what a function does, as a text."""
    return "\n".join(_told(function, {}))


def _told(value: Any, seen: _Seen) -> Iterator[str]:
    """Yield the text of a value."""
    if value is None or value is ... or isinstance(value, bool | int | float | complex | str | bytes):
        yield f"{type(value).__name__} {value!r}"
    elif id(value) in seen:
        yield f"again {seen[id(value)][0]}"
    else:
        seen[id(value)] = len(seen), value
        yield from _parts(value, seen)


def _parts(value: Any, seen: _Seen) -> Iterator[str]:
    if isinstance(value, CodeType):
        yield f"code {value.co_code.hex()} {value.co_names} {value.co_varnames} {value.co_freevars}"
        yield from _told(value.co_consts, seen)
    elif isinstance(value, FunctionType):
        yield f"function {value.__name__}"
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        named = {name: value.__globals__[name] for name in sorted(_names(value.__code__)) if name in value.__globals__}
        for part in (value.__code__, value.__defaults__, value.__kwdefaults__, cells, named):
            yield from _told(part, seen)
    elif isinstance(value, MethodType):
        yield from _told(value.__func__, seen)
        yield from _told(value.__self__, seen)
    elif isinstance(value, partial):
        yield from _told((value.func, value.args, value.keywords), seen)
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} {len(value)}"
        for part in value:
            yield from _told(part, seen)
    elif isinstance(value, set | frozenset):  # in no order, and that of another process is another
        yield f"{type(value).__name__} {sorted(chr(10).join(_told(part, dict(seen))) for part in value)}"
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}"
        for key, part in value.items():
            yield from _told(key, seen)
            yield from _told(part, seen)
    elif isinstance(value, ModuleType):
        yield f"module {value.__name__}"
    elif isinstance(value, type):
        yield f"class {value.__module__}.{value.__qualname__}"
    else:
        yield f"one of {type(value).__module__}.{type(value).__qualname__}"
        called = type(value).__call__ if callable(value) else None
        if isinstance(called, FunctionType):
            yield from _told((called, getattr(value, "__dict__", None)), seen)


def _names(code: CodeType) -> set[str]:
    """Return the names that code looks up, that of functions within it included."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # what it is called is not there yet
        return False
