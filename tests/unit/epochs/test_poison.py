"""A row for which a user's function fails, if it is no dead letter: the run ends at once, with the row in the error."""

import itertools
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import Row

from falkirk.errors import SparkError
from falkirk.runtime.spark.epochs.run import Run
from falkirk.runtime.spark.epochs.runner import EpochRunner
from falkirk.runtime.spark.epochs.term import Term
from falkirk.steps.batch.folding import folding
from falkirk.steps.batch.python import KIND, Poison, RowCollector, mapping
from falkirk.theory.ids import EpochNumber

RESULT = pa.struct([("n", pa.int32())])
STATE = pa.struct([("key", pa.string()), ("seen", pa.int32())])
LETTER = pa.struct([("key", pa.string()), ("value", pa.string())])
SCHEMA = pa.schema([(KIND, pa.string()), ("result", RESULT), ("state", STATE), ("letter", LETTER)])


def sender(*, fails: bool = False) -> RowCollector:
    return RowCollector(SCHEMA, "here", fails=fails)


def done(work: Any, rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the results of a kind that a task returns."""
    batches = work(iter([pa.RecordBatch.from_pylist(rows)]))
    return [row[kind] for batch in batches for row in batch.to_pylist() if row[KIND] == kind]


def test_the_run_ends_with_the_row_and_the_functions_words() -> None:
    work = mapping(lambda row: {"n": 1 // row.n}, ["n"], lambda: sender(fails=True))
    with pytest.raises(Poison) as raised:
        done(work, [{"n": 0}], "result")
    future: Future[None] = Future()
    # A worker's error as the driver gets it, inside Spark's text.
    future.set_exception(
        RuntimeError(f"Job aborted … falkirk.steps.batch.python.Poison: {raised.value} … Driver stacktrace")
    )
    batch = SimpleNamespace(
        name="halves", where="shop.py:3", is_stateful=False, is_direct=False, cut=None, iteration=None
    )
    jobs = SimpleNamespace(batch=batch, began_s=lambda: 0.0, epochs=SimpleNamespace(files=lambda: "epochs"))
    run = Run(EpochRunner(cast(Any, jobs), EpochNumber(-1), Term()))
    with pytest.raises(SparkError) as ended:
        run._finish(7, future)
    assert ended.value.condition == "FUNCTION_FAILED"
    assert ended.value.parameters.items() >= {"processor": "halves", "epoch": 7}.items()
    assert '{"n": 0}' in str(ended.value)
    assert "ZeroDivisionError" in str(ended.value)


def test_a_state_is_of_its_key_alone_and_stays_as_it_was_before_a_bad_row() -> None:
    def step(row: Row, state: Row | None) -> Any:
        seen = 0 if state is None else state.seen
        if row.n < 0:
            raise ValueError("negative")
        if row.n == 9:
            return None, None
        return {"n": seen}, {"seen": seen + row.n}

    rows = [
        {"key": {"key": key}, "order": i, "state": None, "row": {"key": key, "n": n}}
        for key, numbers in {"a": [1, -1, 2], "b": [3], "c": [4, 9]}.items()
        for i, n in enumerate(numbers)
    ]
    held = {"key": {"key": "b"}, "order": None, "state": {"seen": 10}, "row": None}
    rows = [*rows[:3], held, *rows[3:]]
    whole = folding(step, ["key", "n"], ["key"], ["seen"], None, None, sender)
    assert [r["n"] for r in done(whole, rows, "result")] == [0, 1, 10, 0]
    assert done(whole, rows, "state") == [{"key": "a", "seen": 3}, {"key": "b", "seen": 13}]
    assert len(done(whole, rows, "letter")) == 1


def test_what_goes_back_goes_in_portions() -> None:
    small = partial(RowCollector, SCHEMA, "here", fails=False, rows_at_once=3)
    work = mapping(lambda row: [{"n": row.n}, {"n": -row.n}], ["n"], small)
    sizes = [batch.num_rows for batch in work(iter([pa.RecordBatch.from_pylist([{"n": i} for i in range(5)])]))]
    assert sizes == [4, 4, 2]
    assert list(itertools.accumulate(sizes))[-1] == 10
