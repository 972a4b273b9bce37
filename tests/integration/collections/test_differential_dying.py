"""kill -9 of a worker that writes a file of a round or a state: the epoch has no effect, and runs again."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from falkirk.steps.differential import connected_components, jobs
from falkirk.steps.differential.runs import UNREADABLE_STATE
from falkirk.steps.differential.single_task import ALONE_MAX, SingleTask
from falkirk.steps.differential.state import sweep
from falkirk.steps.differential.task import Merge, Task
from tests.dying import dying, listing
from tests.integration.changing import EDGES, Changing, Row, components, shuffled, there

Place = tuple[type, str, int]
#: The task to kill, the file that it then writes, and how many rows one task may compute alone.
PLACES: list[Place] = [
    (Task, "input0", 0),
    (Task, "output", 0),
    (Merge, "input0", 0),
    (SingleTask, "input0", ALONE_MAX),
    (SingleTask, "deferred0", ALONE_MAX),
    (Task, "deferred0", 0),
    (Task, "due", 0),
]
NODES: list[Row] = [(a, b) for a in range(6) for b in range(6) if a < b]


class Struck:
    """Epochs of a loop in which a worker is killed at one of the places."""

    def __init__(self, session: SparkSession, folder: Path, patch: pytest.MonkeyPatch, *, torn: bool = False) -> None:
        self.folder, self.mark = folder / "state", folder / "dies"
        self.folder.mkdir()
        self.changing = Changing(session, self.folder, connected_components, edges=EDGES)
        self._place: Place = (object, "", 0)
        frame = type(session.range(1))
        real = frame.mapInArrow

        def mapped(rows: DataFrame, task: Any, schema: str) -> DataFrame:
            owner, what, _ = self._place
            return real(rows, dying(task, self.mark, what, torn=torn) if isinstance(task, owner) else task, schema)

        patch.setattr(frame, "mapInArrow", mapped)

    def at(self, place: Place) -> None:
        """Kill the next worker that reaches a place."""
        self._place = place
        self.changing.alone = place[2]
        self.changing.flow = self.changing.fresh()
        self.mark.touch()

    def epoch(self, changes: list[Row]) -> None:
        """Compute an epoch, and check its result."""
        self.changing.epoch(edges=changes)
        assert self.changing.result == components(there(self.changing.put["edges"]))


def test_an_epoch_whose_worker_is_killed_while_it_writes_is_done_again(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "NEW_MAX", 1)
    struck = Struck(session, tmp_path, monkeypatch)
    first, *others = shuffled(13, len(PLACES) + 1, NODES, most=8)
    struck.epoch(first)
    for place, changes in zip(PLACES, others, strict=True):
        struck.at(place)
        with pytest.raises(Py4JJavaError, match="worker exited unexpectedly"):
            struck.epoch(changes)
        assert not struck.mark.exists()
        assert list(struck.folder.rglob(".*.arrow.*")), "half of a file is there"
        struck.epoch(changes)
        state = struck.changing.state.files()
        sweep(struck.folder, state)
        left = {str(path.relative_to(struck.folder)) for path in struck.folder.rglob("*") if path.is_file()}
        assert left == state, "and of who has died nothing"


@pytest.mark.parametrize("torn", [False, True], ids=["a file is missing", "half of a file is taken for all of it"])
def test_what_a_dead_worker_has_left_would_spoil_the_loop(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    """The same test, but the driver adds the files that it finds, also those of the failed job, to the lists."""
    struck = Struck(session, tmp_path, monkeypatch, torn=torn)
    first, second = shuffled(13, 2, NODES, most=8)
    struck.epoch(first)
    struck.at((Task, "deferred0" if torn else "input0", 0))
    collect = type(session.range(1)).collect

    def taken(rows: DataFrame) -> list[Any]:
        try:
            return collect(rows)
        except Py4JJavaError:
            if struck.mark.exists() or failed:
                raise
            failed.append(rows)
            return []

    failed: list[DataFrame] = []
    monkeypatch.setattr(type(session.range(1)), "collect", taken)
    listing(struck.folder, monkeypatch)
    with pytest.raises(PySparkException if torn else AssertionError) as told:
        struck.epoch(second)
    assert failed, "a job has, and it went on"
    assert not torn or UNREADABLE_STATE in str(told.value)
