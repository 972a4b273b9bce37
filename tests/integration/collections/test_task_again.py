"""A task that is killed while it writes, in a Spark that runs dead tasks again, as clusters do."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from falkirk.steps.differential.single_task import ALONE_MAX, SingleTask
from falkirk.steps.differential.task import Task
from tests.dying import dying, listing
from tests.integration.attempts import tasks_run_again
from tests.integration.changing import EDGES, Changing, Row, shuffled, there, three_rounds, three_rounds_plainly

#: In each epoch, the task whose worker is killed once, and the file that it then writes.
PLACES: list[tuple[type, str]] = [(Task, "input0"), (Task, "deferred0"), (SingleTask, "input0")]


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
            mapped: DataFrame = real(rows, dying(task, mark, what) if isinstance(task, owner) else task, schema)
            return mapped

        with patch.context() as patched:
            if off:
                listing(state, patched)
            patched.setattr(frame, "mapInArrow", mapped)
            changing.alone = ALONE_MAX if owner is SingleTask else 0
            changing.flow = changing.fresh()
            mark.touch()
            changing.epoch(edges=changes)
        assert not mark.exists(), f"no worker has died in {owner}"
        if changing.result != three_rounds_plainly(there(changing.put["edges"])):
            return owner.__name__
    return ""


def test_files_of_an_attempt_that_died_do_not_count(
    spark: SparkSession, session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt has written the same rows under other names. If the driver listed, they would count twice."""
    with tasks_run_again(spark):
        assert wrong(session, tmp_path / "same", monkeypatch, off=False) == ""
        assert wrong(session, tmp_path / "apart", monkeypatch, off=True) == "Task"
