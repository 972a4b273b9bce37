"""Values that Spark can represent and Python can't: a row with one becomes a dead letter, and no function stops."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from falkirk.steps.batch.folding import folding
from falkirk.steps.batch.python import KIND, LETTER_KIND, RESULT_KIND, STATE_KIND, Poison, RowCollector, mapping

FAR_US = 9 * 10**18  # about the year 287,000
ROWS = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
TOLD = pa.struct([("key", pa.string()), ("value", pa.string())])
NUMBER = pa.struct([("n", pa.int64())])
BACK = pa.schema([(KIND, pa.string()), (RESULT_KIND, NUMBER),
                  (STATE_KIND, pa.struct([("k", pa.int64()), ("n", pa.int64())])),
                  (LETTER_KIND, TOLD)])  # fmt: skip


def sender(*, fails: bool = False) -> Callable[[], RowCollector]:
    return lambda: RowCollector(BACK, "r", fails=fails)


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[Any]:
    return [row[kind] for row in rows if row[KIND] == kind]


def test_a_time_that_python_has_not_is_a_dead_letter() -> None:
    """Before, the task failed with `OverflowError` for any function, and the application with it."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, FAR_US, 2], ROWS.field("at").type), pa.array([1, 2, 3])], schema=ROWS
    )
    work = mapping(lambda row: {"n": row.n}, ["at", "n"], sender())
    back = [row for out in work(iter([batch])) for row in out.to_pylist()]
    assert of_kind(back, RESULT_KIND) == [{"n": 1}, {"n": 3}]
    [letter] = [json.loads(told["value"]) for told in of_kind(back, LETTER_KIND)]
    assert letter["reason"].startswith("the function failed: OverflowError")
    assert json.loads(letter["value"])["n"] == 2


def test_a_user_may_let_it_fail() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([FAR_US], ROWS.field("at").type), pa.array([2])], schema=ROWS)
    with pytest.raises(Poison):
        list(mapping(lambda row: {"n": row.n}, ["at", "n"], sender(fails=True))(iter([batch])))


def test_a_state_stays_as_it_was_before_such_a_row() -> None:
    key, order = pa.struct([("k", pa.int64())]), pa.struct([("source", pa.string()), ("offset", pa.int64())])
    schema = pa.schema([("key", key), ("order", order), ("state", NUMBER), ("row", pa.struct(list(ROWS)))])
    stamps = [{"source": "clicks", "offset": i} for i in range(3)]
    columns = [
        pa.array([{"k": 1}] * 3, key), pa.array(stamps, order), pa.array([None] * 3, NUMBER),
        pa.StructArray.from_arrays(
            [pa.array([1, FAR_US, 2], ROWS.field("at").type), pa.array([5, 6, 7])], fields=list(ROWS)
        ),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)

    def total(row: Any, state: Any) -> Any:
        n = row.n + (0 if state is None else state.n)
        return {"n": n}, {"n": n}

    work = folding(total, ["at", "n"], ["k"], ["n"], None, None, sender())
    back = [row for out in work(iter([batch])) for row in out.to_pylist()]
    assert of_kind(back, RESULT_KIND) == [{"n": 5}, {"n": 12}]
    assert of_kind(back, STATE_KIND) == [{"k": 1, "n": 12}]
    [letter] = [json.loads(told["value"]) for told in of_kind(back, LETTER_KIND)]
    assert (letter["source"], letter["offset"]) == ("clicks", 1)
    assert json.loads(letter["value"])["n"] == 6
