"""Costs of an epoch of a loop in Spark's jobs: they depend on the changes, not on the state or the number of rounds."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.steps.dataframes.plans import plan_text
from falkirk.steps.differential import connected_components
from falkirk.steps.differential.graph import Entered, LoopNode
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.rows import LoopTime
from falkirk.steps.differential.task import FileName, Task
from tests.integration.changing import EDGES, Changing, Row, added, components, there

PATH: list[Row] = [(n, n + 1) for n in range(10)]
#: Separate paths of five nodes each.
PATHS: list[Row] = [(10 * p + n, 10 * p + n + 1) for p in range(200) for n in range(4)]
#: An edge to a new node causes at most this many rows, of all kinds together.
FEW = 150


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark jobs compute all rounds."""
    monkeypatch.setattr(Changing, "alone", 0)


def rows_of(paths: Iterator[Path] | list[Path]) -> int:
    return sum(FileName.parse(path.name).rows for path in paths)


def counting(work: Any, folder: Path) -> Any:
    """Return a task function that also writes the number of rows that arrived, in a new file for each call. Workers
    receive it by value."""
    where = str(folder)

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        with open(f"{where}/{uuid.uuid4().hex}", "w") as file:
            file.write(str(sum(batch.num_rows for batch in found)))
        yield from work(iter(found))

    return call


def counted(folder: Path) -> tuple[int, int]:
    """Return the number of calls, and of rows that arrived; and reset both."""
    numbers = [int(path.read_text()) for path in folder.iterdir()]
    for path in folder.iterdir():
        path.unlink()
    return len(numbers), sum(numbers)


@pytest.mark.parametrize("from_files", [True, False])
def test_the_plan_of_a_later_round_is_no_longer_than_that_of_an_earlier_one(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_files: bool
) -> None:
    """If the rows of a round were computed from those of the former round, each plan would contain all former plans."""
    plans: list[str] = []
    made_before: dict[str, DataFrame] = {}
    task_of, flush = Jobs._task, Jobs.flush

    def chained(jobs: Jobs, task: Task, *arguments: Any) -> DataFrame:
        made = task_of(jobs, task, *arguments)
        if not from_files and task.operator is not None and any(task.now):
            before = made_before.get(task.holder)
            made_before[task.holder] = made if before is None else made.unionAll(before.limit(0))
        return made_before.get(task.holder, made) if any(task.now) else made

    def flushed(jobs: Jobs) -> None:
        step = jobs.step
        ends: list[Any] = [*jobs._open.ends, *(frame for made, frame in step.made.items() if made not in step.read)]
        plans.append("\n".join(plan_text(end) for end in ends))
        flush(jobs)

    monkeypatch.setattr(Jobs, "_task", chained)
    monkeypatch.setattr(Jobs, "flush", flushed)
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    done = changing.epoch(edges=added(PATH))
    assert changing.result == components(PATH)
    assert done.rounds[0].count > 9
    lines = [len(plan.splitlines()) for plan in plans]
    assert lines[2] > 0
    assert (lines[8] == lines[2]) is from_files, lines
    assert (len(plans[8]) < 1.1 * len(plans[2])) is from_files, "but for the numbers in it"


def everything(jobs: Jobs) -> None:
    """Merge all runs, old ones included."""
    jobs._merge(lambda runs: runs if len(runs) > 1 else [])


@pytest.mark.parametrize("only_new", [True, False])
def test_an_epoch_of_one_edge_saves_and_sends_what_depends_on_it(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_new: bool
) -> None:
    """The graph has 800 edges. If an epoch merged all runs at its end, it would save the whole state again."""
    folder = tmp_path / "arrived"
    folder.mkdir()
    frame = type(session.range(1))
    real = frame.mapInArrow

    def mapped(rows: DataFrame, task: Any, *arguments: Any) -> DataFrame:
        return real(rows, counting(task, folder) if isinstance(task, Task) and task.arrives else task, *arguments)

    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    monkeypatch.setattr(frame, "mapInArrow", mapped)
    changing.epoch(edges=added(PATHS))
    _, loaded = counted(folder)
    assert loaded > 5 * len(PATHS), "they have been counted"
    assert rows_of([tmp_path / path for path in changing.state.files()]) > 5 * len(PATHS)
    before = changing.state.files()
    if not only_new:
        monkeypatch.setattr(Jobs, "compact", everything)
    changing.epoch(edges=added([(4, 9)]))
    assert changing.result == components(there(changing.put["edges"]))
    saved = rows_of([tmp_path / path for path in changing.state.files() - before])
    assert saved > 0
    assert (saved <= FEW) is only_new, saved
    _, arrived = counted(folder)
    assert 0 < arrived <= FEW, "only keys that have changed travel"
    handed = rows_of(path for path in (tmp_path / "epoch-1").rglob("*.arrow") if "_deferred" in path.name)
    assert 0 < handed <= FEW, "and no others go from one round to the next"


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_loop_reads_from_around_it_is_read_in_its_first_round_alone(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Operators in the loop store their input; otherwise it would have to be sent to them again in each round."""
    folder = tmp_path / "read"
    folder.mkdir()
    read: list[int] = []
    flush, made = Jobs.flush, Jobs._evaluate

    def flushed(jobs: Jobs) -> None:
        flush(jobs)
        read.append(counted(folder)[0])

    def told_again(jobs: Jobs, node: LoopNode, now: LoopTime) -> DataFrame | None:
        found = made(jobs, node, now)
        if isinstance(node, Entered) and now[-1] and found is None:
            again = made(jobs, node, (*now[:-1], 0))
            return None if again is None else again.where(F.lit(False))  # with its rows, the result would be wrong
        return found

    if not kept:
        monkeypatch.setattr(Jobs, "_evaluate", told_again)
    monkeypatch.setattr(Jobs, "flush", flushed)
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    for edges in (PATH[:5], PATH[5:]):
        read.clear()
        given = changing.changes("edges", added(edges))
        watched = given.mapInArrow(counting(iter, folder), given.schema)
        done = changing.flow.advance(changing.state, {"edges": watched}, f"watched-{len(edges)}-{edges[0][0]}")
        changing.state = done.state
        assert done.rounds[0].count > 4
        assert read[0] > 0, "the first round reads it"
        assert (not any(read[1:])) is kept, read
    assert {tuple(row)[:2]: row[2] for row in changing.flow.whole(changing.state).collect()} == components(PATH)
