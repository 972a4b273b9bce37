"""Python workers: runs a user's function on each row, and turns rows on which it fails into dead letters.

This module runs in Spark's Python workers, where Falkirk need not be installed: this module,
`falkirk/steps/dataframes/user_function.py` and `falkirk/errors/redaction.py` are sent with the function
(`register_pickle_by_value`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from falkirk.steps.dataframes.user_function import (
    TEXT_MAX,
    fitted,
    poison_text,
    reason_of,
    results_of,
    row_text,
    traceback_text,
)

#: The column that tells the kind of a row, if rows of several kinds were computed together; and the kinds.
KIND, RESULT_KIND, STATE_KIND, LETTER_KIND = "__falkirk_kind", "result", "state", "letter"
#: The fields that tell the row's origin.
_STAMP = ("source", "partition", "offset")
#: The number of rows that are sent to Spark at once.
ROWS_AT_ONCE = 10_000


class Poison(Exception):
    """The user's function failed on a row, and the epoch must fail."""


class RowCollector:
    """Collects the rows for Spark: results, states and dead letters, each checked against its type.

    Args: schema: KIND and a struct per kind. region: for dead letters. fails: whether a row on which the function fails
        must fail the epoch instead of becoming a dead letter. rows_at_once: the number of rows that are sent together.
    """

    def __init__(self, schema: pa.Schema, region: str, *, fails: bool, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._schema, self._region, self._fails, self._rows_at_once = schema, region, fails, rows_at_once
        self._rows: list[dict[str, Any]] = []

    def add(self, kind: str, value: Mapping[str, Any]) -> None:
        """Send a row of a kind."""
        self._rows.append({KIND: kind, kind: value})

    def check(self, kind: str, value: object, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a row as plain values, after checking that it fits its kind. Args: names: those of its columns; None:
        all of its kind.

        Raises: TypeError, ValueError: it does not fit; the user's function is the cause.
        """
        of = self._schema.field(kind).type
        if names is not None:
            of = pa.struct([of.field(name) for name in names])
        plain, _ = fitted(kind, of, value)
        return plain

    def refuse(self, row: Mapping[str, Any], stamp: object = None) -> None:
        """Send a row on which the function has just failed to the dead letters, with the error.

        Args: stamp: the row's stamp; by default the value of its column `stamp`.
        Raises: Poison.
        """
        text = traceback_text()
        if self._fails:
            raise Poison(poison_text(row, text)) from None
        stamp = row.get("stamp") if stamp is None else stamp
        place = {n: stamp[n] for n in _STAMP if n in stamp} if isinstance(stamp, Mapping) else {}
        fields = {"reason": reason_of(text), "region": self._region, "value": row_text(row), **place}
        self.add(LETTER_KIND, {"key": None, "value": json.dumps({**fields, "traceback": text[-TEXT_MAX:]})})

    def ready(self) -> bool:
        """Return whether there are enough rows to send."""
        return len(self._rows) >= self._rows_at_once

    def batch(self) -> pa.RecordBatch:
        """Return the collected rows, and clear them."""
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, schema=self._schema)


def mapping(
    function: Callable[[Row], object], names: list[str], sender: Callable[[], RowCollector]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task's function for `map_rows`. Args: names: the columns."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, make = sender(), Row(*names)
        for batch in batches:
            for plain, error in plain_rows(batch):
                try:
                    if error is not None:
                        raise error
                    found = [out.check(RESULT_KIND, r) for r in results_of(function(make(*plain.values())))]
                except Exception:
                    out.refuse(plain)
                    continue
                for result in found:
                    out.add(RESULT_KIND, result)
                if out.ready():
                    yield out.batch()
        yield out.batch()

    return work


def refuse_unreadable(out: RowCollector, each: Mapping[str, Any], error: Exception) -> None:
    """Refuse a row with values that Python can't represent. A state has no such values."""
    try:
        raise error
    except Exception:
        row = each["row"]
        out.refuse(row if isinstance(row, Mapping) else {"row": row}, each["order"])


def plain_rows(batch: pa.RecordBatch) -> Iterator[tuple[dict[str, Any], Exception | None]]:
    """Yield rows as plain values. Python has no times after the year 9999. A row with one has text instead, and the
    error comes with it."""
    try:
        rows = batch.to_pylist()
    except (OverflowError, ValueError):
        rows = None
    if rows is not None:
        yield from ((row, None) for row in rows)
        return
    for number in range(batch.num_rows):
        one = batch.slice(number, 1)
        try:
            yield one.to_pylist()[0], None
        except (OverflowError, ValueError) as error:
            yield {name: _readable(one.column(name)) for name in one.schema.names}, error


def _readable(column: pa.Array) -> Any:
    """Return the single value of a column, as text if Python can't represent it."""
    try:
        return column.to_pylist()[0]
    except (OverflowError, ValueError):
        if pa.types.is_struct(column.type):
            names = [column.type.field(i).name for i in range(column.type.num_fields)]
            return {n: _readable(part) for n, part in zip(names, column.flatten(), strict=True)}
        try:
            return str(column.cast(pa.string())[0])
        except pa.ArrowException:
            return "out of range"
