"""What runs in Spark's Python workers: a user's function, row by row, and what becomes of a row on which it fails.

Nothing of Falkirk need be installed there: this module travels with the function (`register_pickle_by_value`).
"""

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

RESULT, STATE, LETTER, KIND = "result", "state", "letter", "__falkirk_kind"
#: What a dead letter of such a row begins with, and where it says that it comes from.
FAILED = "the function failed"
_STAMP = ("source", "partition", "offset")
#: So many rows go back to Spark at once.
ROWS_AT_ONCE = 10_000
#: Of a row, and of a traceback, a dead letter keeps so many characters.
TEXT_MAX = 10_000


class Poison(Exception):
    """A row on which the user's function failed, where that is to fail the epoch."""


class Sender:
    """Collects what goes back to Spark: results, states and dead letters, each checked against its type.

    Args: schema: of what goes back: KIND and a struct per kind. region: for dead letters. fails: a row on which the
        function fails is not to become one.
    """

    def __init__(self, schema: pa.Schema, region: str, *, fails: bool) -> None:
        self._schema, self._region, self._fails = schema, region, fails
        self._rows: list[dict[str, Any]] = []

    def add(self, kind: str, value: Mapping[str, Any]) -> None:
        """Send a row of a kind."""
        self._rows.append({KIND: kind, kind: value})

    def check(self, kind: str, value: object) -> dict[str, Any]:
        """Return a row as plain values, if it can be one of its kind.

        Raises: TypeError, ValueError: it can't; of what the message says, the user's function is the cause.
        """
        plain = value.asDict() if isinstance(value, Row) else value
        names = self._schema.field(kind).type
        names = [names.field(i).name for i in range(names.num_fields)]
        if not isinstance(plain, Mapping):
            raise TypeError(f"{plain!r} is no {kind}: return a dict or Row with {', '.join(names)}")
        unknown = [name for name in plain if name not in names]
        if unknown:
            raise ValueError(f"{kind} has no column {unknown[0]!r}; it has {', '.join(names)}")
        pa.array([plain], type=self._schema.field(kind).type)
        return dict(plain)

    def refuse(self, row: Mapping[str, Any], stamp: object = None) -> None:
        """Send a row on which the function has just failed to the dead letters, with what it said.

        Args: stamp: that of the row, if that is what it is; by default the one that it has itself.
        Raises: Poison.
        """
        text = traceback.format_exc()
        if self._fails:
            raise Poison(f"the function failed on {_text(row)}\n{text[-TEXT_MAX:]}") from None
        last = text.strip().splitlines()[-1]
        stamp = row.get("stamp") if stamp is None else stamp
        place = {n: stamp[n] for n in _STAMP if n in stamp} if isinstance(stamp, Mapping) else {}
        told = {"reason": f"{FAILED}: {last}"[:500], "region": self._region, "value": _text(row), **place}
        self.add(LETTER, {"key": None, "value": json.dumps({**told, "traceback": text[-TEXT_MAX:]})})

    def ready(self) -> bool:
        """Tell whether it is time to send."""
        return len(self._rows) >= ROWS_AT_ONCE

    def batch(self) -> pa.RecordBatch:
        """Return what was collected, and begin anew."""
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, schema=self._schema)


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str)[:TEXT_MAX]


def _results(found: object) -> Iterable[object]:
    """Return what a function returned as several rows: None is none, and one row is one."""
    if found is None:
        return ()
    if isinstance(found, Mapping | Row):
        return (found,)
    return found  # type: ignore[return-value]  # whatever can't be iterated over raises at the user's row


def mapping(
    function: Callable[[Row], object], names: list[str], sender: Callable[[], Sender]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does for `map`. Args: names: of the columns."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, make = sender(), Row(*names)
        for batch in batches:
            for plain in batch.to_pylist():
                try:
                    found = [out.check(RESULT, r) for r in _results(function(make(*plain.values())))]
                except Exception:
                    out.refuse(plain)
                    continue
                for result in found:
                    out.add(RESULT, result)
                if out.ready():
                    yield out.batch()
        yield out.batch()

    return work


def folding(
    function: Callable[[Row, Row | None], object],
    names: list[str],
    keys: list[str],
    states: list[str],
    sender: Callable[[], Sender],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does for `stateful`: its rows come key by key, of each key the state first, then the rows in
    their order. Args: names, keys, states: of the columns of rows, of keys and of the state without them."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, make, make_state = sender(), Row(*names), Row(*states)
        of: tuple[Any, ...] | None = None
        state: Row | None = None
        for batch in batches:
            for each in batch.to_pylist():
                key = tuple(each["key"].values())
                if key != of and repr(key) != repr(of):  # NaN equals nothing, and is one key to Spark
                    _keep(out, keys, of, state)
                    of, state = key, None
                if each["row"] is None:
                    state = make_state(*each["state"].values())
                    continue
                try:
                    returned = function(make(*each["row"].values()), state)
                    if not isinstance(returned, tuple) or len(returned) != 2:
                        raise TypeError(f"{returned!r} is not (results, state)")
                    found = [out.check(RESULT, r) for r in _results(returned[0])]
                    after = returned[1]
                    if after is not None:
                        values = after.asDict() if isinstance(after, Row) else after
                        kept = out.check(STATE, {**dict(zip(keys, key, strict=True)), **values})
                        after = make_state(*[kept.get(name) for name in states])
                except Exception:
                    out.refuse(each["row"], each["order"])
                    continue
                state = after
                for result in found:
                    out.add(RESULT, result)
                if out.ready():
                    yield out.batch()
        _keep(out, keys, of, state)
        yield out.batch()

    return work


def _keep(out: Sender, keys: list[str], key: tuple[Any, ...] | None, state: Row | None) -> None:
    if key is not None and state is not None:
        out.add(STATE, {**dict(zip(keys, key, strict=True)), **state.asDict()})
