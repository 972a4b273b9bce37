"""A loop on a Spark that repeats a dead task, as clusters do. In each epoch a worker is killed with -9 while it writes.

The loop runs twice. The second time, two attempts of a task do not write the same files. For each time, a line of
its output is `right` if every epoch's result equals that of all edges, or says where the first wrong one is.

Argument: a folder.
"""

import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from falkirk.differential import runs
from falkirk.differential.single_task import ALONE_MAX, SingleTask
from falkirk.differential.task import FileName, Task
from falkirk.environment.spark import session
from tests.dying import Work, dying
from tests.integration.changing import EDGES, Changing, shuffled, there, three_rounds, three_rounds_plainly

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


def wrong(folder: Path, spark: Any, *, off: bool) -> str:
    """Process the epochs; return after which killed task a result is wrong, or an empty text."""
    folder.mkdir()
    mark, state = folder / "dies", folder / "state"
    state.mkdir()
    changing = Changing(spark, state, three_rounds, edges=EDGES)
    edges: list[Any] = [(a, b) for a in range(6) for b in range(6) if a < b]
    first, *others = shuffled(17, len(PLACES) + 1, edges, most=8)
    changing.epoch(edges=first)
    frame: Any = type(spark.range(1))
    real = frame.mapInArrow
    try:
        for (owner, what), changes in zip(PLACES, others, strict=True):

            def mapped(rows: Any, task: Any, schema: str, owner: type = owner, what: str = what) -> Any:
                work = apart(task) if off and isinstance(task, Task) else task
                return real(rows, dying(work, mark, what) if isinstance(task, owner) else work, schema)

            frame.mapInArrow = mapped
            changing.alone = ALONE_MAX if owner is SingleTask else 0
            changing.flow = changing.fresh()
            mark.touch()
            changing.epoch(edges=changes)
            assert not mark.exists(), f"no worker has died in {owner}"
            if changing.result != three_rounds_plainly(there(changing.put["edges"])):
                return f"wrong after {owner.__name__} {what}"
    finally:
        frame.mapInArrow = real
    return ""


if __name__ == "__main__":
    active = session("again", master="local[2,3]")
    for name, is_off in (("same", False), ("apart", True)):
        print(wrong(Path(sys.argv[1]) / name, active.newSession(), off=is_off) or "right", flush=True)
