"""A task that is killed while it writes, in a Spark that runs dead tasks again, as clusters do."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from falkirk.steps.differential import runs
from falkirk.steps.differential.single_task import ALONE_MAX, SingleTask
from falkirk.steps.differential.task import FileName, Task
from tests.dying import Work, dying
from tests.integration.attempts import tasks_run_again
from tests.integration.changing import EDGES, Changing, Row, shuffled, there, three_rounds, three_rounds_plainly

#: In each epoch, the task whose worker is killed once, and the file that it then writes.
PLACES: list[tuple[type, str]] = [(Task, "input0"), (Task, "deferred0"), (SingleTask, "input0")]


def apart(work: Work) -> Work:
    """Return a task's work whose files are named after the attempt."""

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        store, attempt = runs.store, uuid.uuid4().int % 1_000_000

        def stored(path: Path, table: Any) -> None:
            store(path.with_name(str(replace(FileName.parse(path.name), part=attempt))), table)

        runs.store = stored
        try:
            yield from work(batches)
        finally:
            runs.store = store

    return call


def wrong(session: SparkSession, folder: Path, patch: pytest.MonkeyPatch, *, off: bool) -> str:
    """Process the epochs; return the killed task after which a result is not that of all edges, or an empty text."""
    mark, state = folder / "dies", folder / "state"
    state.mkdir(parents=True)
    changing = Changing(session, state, three_rounds, edges=EDGES)
    edges: list[Row] = [(a, b) for a in range(6) for b in range(6) if a < b]
    first, *others = shuffled(17, len(PLACES) + 1, edges, most=8)
    changing.epoch(edges=first)
    frame: Any = type(session.range(1))
    real = frame.mapInArrow
    for (owner, what), changes in zip(PLACES, others, strict=True):

        def mapped(rows: DataFrame, task: Any, schema: str, owner: type = owner, what: str = what) -> DataFrame:
            work = apart(task) if off and isinstance(task, Task) else task
            mapped: DataFrame = real(rows, dying(work, mark, what) if isinstance(task, owner) else work, schema)
            return mapped

        with patch.context() as patched:
            patched.setattr(frame, "mapInArrow", mapped)
            changing.alone = ALONE_MAX if owner is SingleTask else 0
            changing.flow = changing.fresh()
            mark.touch()
            changing.epoch(edges=changes)
        assert not mark.exists(), f"no worker has died in {owner}"
        if changing.result != three_rounds_plainly(there(changing.put["edges"])):
            return owner.__name__
    return ""


def test_the_second_attempt_overwrites_the_files_of_the_first(
    spark: SparkSession, session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it used other names, the data of the first attempt would count twice."""
    with tasks_run_again(spark):
        assert wrong(session, tmp_path / "same", monkeypatch, off=False) == ""
        assert wrong(session, tmp_path / "apart", monkeypatch, off=True) == "Task"
