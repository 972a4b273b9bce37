"""Windows: recognises a window of event time among the keys of `groupBy`, as PySpark's functions make it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from falkirk.declare.keys import key_columns

_FUNCTIONS = ("window", "session_window")
#: The arguments of these functions after the time, as `Window` names them.
_INTERVALS = ("size", "slide", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window of event time: `F.window` or `F.session_window`.

    Args: name: the column with the window. column: the column with the time; empty for an expression. size, slide,
        offset: intervals as texts of Spark. In a session, `size` is the gap and `slide` is empty. A gap that is no
        constant is empty, too.
    """

    name: str
    column: str
    size: str
    slide: str = ""
    offset: str = ""


class Recorded(Protocol):
    """A step of a stream: the method, and its arguments."""

    @property
    def operation(self) -> str: ...
    @property
    def arguments(self) -> tuple[Any, ...]: ...


def window_of(key: Any) -> Window | None:
    """Return the window that a key is, if it is one."""
    if not hasattr(key, "_jc"):
        return None
    node, name = key._jc.node(), ""
    if _kind(node) == "Alias":
        name, node = str(node.name().head()), node.children().head()
    if _kind(node) != "UnresolvedFunction" or str(node.functionName()) not in _FUNCTIONS:
        return None
    parts = [node.children().apply(i) for i in range(node.children().size())]
    time, texts = parts[0], [str(part.value()) if _kind(part) == "Literal" else "" for part in parts[1:]]
    is_name = _kind(time) == "UnresolvedAttribute" and time.nameParts().size() == 1
    column = str(time.nameParts().head()) if is_name else ""
    return Window(name=name or str(node.functionName()), column=column, **dict(zip(_INTERVALS, texts, strict=False)))


def split_windows(keys: Sequence[Any]) -> tuple[list[Window], list[Any]]:
    """Return the windows among keys, and the other keys."""
    found = [(window_of(key), key) for key in keys]
    return [window for window, _ in found if window is not None], [key for window, key in found if window is None]


def without_time(windows: Sequence[Window], column: str, since: Sequence[Recorded]) -> str | None:
    """Return why windows are not of the event time, or None.

    Args: column: of `withWatermark`. since: the steps after it.
    """
    if len(windows) > 1:
        return "groupBy() has two windows"
    if not windows[0].size:
        return "its gap is no constant"
    if windows[0].column != column:
        return f"it is of {windows[0].column or 'an expression'}, and withWatermark() is of {column}"
    if column not in unchanged({column}, since):
        return f"a step after withWatermark() may change column {column}"
    return None


def is_in_one_partition(step: Recorded, before: Sequence[Recorded], keys: Collection[str]) -> bool:
    """Return whether all records with the same key of a step are certainly in one partition of the source.

    Args: step: `dropDuplicates`, windows, or `stateful`. before: the steps from the source on. keys: by which it is
        partitioned.
    """
    if step.operation == "stateful":
        others = [*key_columns(step.arguments[1]["key"])]
    else:
        _, others = split_windows(step.arguments[0])
    named = {str(c._jc.toString()) if hasattr(c, "_jc") else str(c) for c in others}
    return bool(keys) and set(keys) <= unchanged(keys, before) & named


def unchanged(names: Collection[str], steps: Sequence[Recorded]) -> set[str]:
    """Return those of some columns that steps certainly pass on unchanged, under their names."""
    kept = set(names)
    for step in steps:
        if step.operation in ("map_rows", "stateful"):
            kept = set()
        elif step.operation in ("select", "selectExpr"):
            entries = [c for each in step.arguments for c in (each if isinstance(each, list | tuple) else (each,))]
            texts = {str(c._jc.toString()) if hasattr(c, "_jc") else str(c).strip() for c in entries}
            kept = kept if "*" in texts else kept & texts
        elif step.operation in ("withColumns", "drop", "withColumnRenamed", "explode"):
            named = step.arguments[0] if step.operation == "withColumns" else step.arguments
            changed = {name.casefold() for name in named if isinstance(name, str)}
            kept = {name for name in kept if name.casefold() not in changed}
    return kept


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
