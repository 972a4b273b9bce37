"""Grouped: a stream grouped by key, before its aggregates are known, and the value of the newest record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from falkirk.declare.nodes import Node, Step, steps_since, timed_by
from falkirk.declare.unknown_methods import refuse_method
from falkirk.declare.windows import split_windows, without_time
from falkirk.errors.conditions.declare import (
    AGGREGATE_MISSING,
    AGGREGATE_MISSING_COLUMN,
    KEY_MISSING,
    OUTPUT_MODE_INVALID,
    WINDOW_INVALID,
)
from falkirk.errors.location import SourceLocation, caller

if TYPE_CHECKING:
    from pyspark.sql import Column


_S = TypeVar("_S")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestValue:
    """A column's value in the newest record of the group. Made by `latest_value`."""

    column: Any
    name: str

    def alias(self, name: str) -> "LatestValue":
        """Return the same value under another column name."""
        return LatestValue(column=self.column, name=name)


def latest_value(column: "Column | str") -> LatestValue:
    """Return the value of `column` in the record that caused an update: the one with its key's greatest stamp."""
    return LatestValue(column=column, name=column if isinstance(column, str) else "latest")


class GroupedStream(Generic[_S]):
    """A stream grouped by key, before its aggregates are known."""

    __slots__ = ("_keys", "_like", "_mode", "_node")

    def __init__(
        self,
        node: Node,
        keys: tuple[Any, ...],
        where: SourceLocation,
        like: "Callable[[Node], _S]",
        mode: str = "",
    ) -> None:
        if not keys:
            raise KEY_MISSING.error(where=where)
        self._node, self._keys, self._like, self._mode = node, keys, like, mode

    def outputMode(self, mode: str) -> "GroupedStream[_S]":
        """Say when windows give results, as ``DataStreamWriter.outputMode``.

        Args: mode: "append", the default: one result for each window, when it closes. "update": an updated result for
            each record.
        Raises: DefinitionError: `OUTPUT_MODE_INVALID`.
        """
        where = caller()
        if mode not in ("append", "update"):
            raise OUTPUT_MODE_INVALID.error(where=where, mode=mode)
        return GroupedStream(self._node, self._keys, where, self._like, mode)

    def agg(self, *aggregates: "Column | LatestValue | str") -> _S:
        """Aggregate each group; every input record gives one updated row of its group.

        With a window of event time among the keys (``F.window`` or ``F.session_window`` after `withWatermark`), each
        window of a key gives one row when the time has passed its end. See `outputMode`.

        Args: aggregates: PySpark aggregates such as ``F.count("*").alias("n")``; the same as SQL text, ``"count(*) AS
            n"``, which needs no Spark session yet; and `latest_value`.
        Raises: DefinitionError: `AGGREGATE_MISSING`, `WINDOW_INVALID`, `OUTPUT_MODE_INVALID`.
        """
        where = caller()
        if not aggregates:
            raise AGGREGATE_MISSING.error(where=where)
        return self._aggregated("agg", aggregates, where)

    def count(self) -> _S:
        """Count the records of each group in a column ``count``, as ``GroupedData.count``."""
        return self._aggregated("count", ("count(1) AS count",), caller())

    def sum(self, *columns: str) -> _S:
        """Sum these columns in columns ``sum(column)``, as ``GroupedData.sum``; here the columns must be named."""
        return self._each("sum", columns)

    def avg(self, *columns: str) -> _S:
        """Average these columns in columns ``avg(column)``, as ``GroupedData.avg``."""
        return self._each("avg", columns)

    mean = avg

    def min(self, *columns: str) -> _S:
        """Keep the least value of these columns in columns ``min(column)``, as ``GroupedData.min``."""
        return self._each("min", columns)

    def max(self, *columns: str) -> _S:
        """Keep the greatest value of these columns in columns ``max(column)``, as ``GroupedData.max``."""
        return self._each("max", columns)

    def _each(self, function: str, columns: tuple[str, ...]) -> _S:
        where, found = caller(), []
        for column in columns or ("",):
            if not isinstance(column, str) or not column:
                raise AGGREGATE_MISSING_COLUMN.error(where=where, function=function, column=column)
            found.append(f"{function}({_quoted(column)}) AS {_quoted(f'{function}({column})')}")
        return self._aggregated("agg", tuple(found), where)

    def _aggregated(self, operation: str, aggregates: tuple[Any, ...], where: SourceLocation) -> _S:
        """Return the stream after an aggregation. Without an event time, a window is a key like any other."""
        windows, _ = split_windows(self._keys)
        timed = timed_by(self._node) if windows else None
        arguments: tuple[Any, ...] = (self._keys,) if operation == "count" else (self._keys, aggregates)
        if timed is not None:
            reason = without_time(windows, timed.arguments[0].column, steps_since(timed, self._node))
            if reason is not None:
                raise WINDOW_INVALID.error(where=where, window=windows[0].name, reason=reason)
            operation, arguments = "windows", (self._keys, aggregates, self._mode or "append", timed.arguments[0])
        elif self._mode == "append":
            raise OUTPUT_MODE_INVALID.error(where=where, mode=self._mode)
        return self._like(Step(parent=self._node, operation=operation, arguments=arguments, where=where))

    def __getattr__(self, name: str) -> NoReturn:
        refuse_method(name, "a grouped stream", GroupedStream)


def _quoted(name: str) -> str:
    """Return a column's name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"
