"""Random nested loops in one task, without Spark: after each epoch the result equals that of a program from scratch.

Loops count as converged exactly when they are, however often they were cut short before.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.steps.differential import Collection, collection, operators, runs
from falkirk.steps.differential import schedule as turns
from falkirk.steps.differential.expressions import Expression, Steps
from falkirk.steps.differential.expressions import RowStep as Done
from falkirk.steps.differential.files import FolderFiles
from falkirk.steps.differential.graph import Mapped, Scope, Source
from falkirk.steps.differential.rows import DIFFERENCE, rounds
from falkirk.steps.differential.schedule import Rounds, Schedule, WaitingKey
from falkirk.steps.differential.schemas import arrow_of
from falkirk.steps.differential.single_task import SingleTask, TaskOutcome
from tests.looping import STEPS, Built, Made, Plain, Rows, TooMuchError, changed, drawn

#: Set `FALKIRK_LOOPS=100:900` for other seeds.
SEEDS = range(*map(int, os.environ.get("FALKIRK_LOOPS", "0:16").split(":")))
EPOCHS = 4


@dataclass
class Like:
    """Replaces the empty DataFrame of a collection, without Spark."""

    schema: StructType

    @property
    def columns(self) -> list[str]:
        return self.schema.names

    @property
    def sparkSession(self) -> "Like":
        return self


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give collections this class where they ask Spark for a DataFrame without rows."""
    monkeypatch.setattr(collection, "no_rows", lambda session, schema: Like(schema))


def longs(*names: str) -> StructType:
    return StructType([StructField(name, LongType()) for name in names])


def step(kind: str, of: Collection) -> Collection:
    """Add a step, in the form in which it would be read from Spark's plan."""
    columns, less = STEPS[kind]
    node, schema = of._node, longs(*(name for name, *_ in columns))
    ours = [*rounds(node.scope.depth), DIFFERENCE]
    places = {name: number for number, name in enumerate([*of.columns, *ours])}

    def column(name: str, more: int) -> Expression:
        is_negated = kind == "negated" and name == DIFFERENCE
        there = Expression(name="AttributeReference", value=places[name], type="long")
        if is_negated:
            return Expression(name="UnaryMinus", of=(there,), type="long")
        more_of = Expression(name="Literal", value=more, type="long")
        return Expression(name="Add", of=(there, more_of), type="long") if more else there

    made = [*columns, *((name, name, 0) for name in ours)]
    numbered = tuple((name, number, column(source, more)) for number, (name, source, more) in enumerate(made))
    done = [Done(kind="project", columns=numbered)]
    if less is not None:
        place = next(number for name, number, _ in numbered if name == less[0])
        sides = (
            Expression(name="AttributeReference", value=place, type="long"),
            Expression(name="Literal", value=less[1], type="long"),
        )
        done.append(Done(kind="filter", condition=Expression(name="LessThan", of=sides, type="boolean")))
    steps = Steps(given=tuple(places.items()), steps=tuple(done), made=tuple((n, i) for n, i, _ in numbered))
    mapped = Mapped(scope=node.scope, schema=schema, of=node, how=lambda rows: rows, tried=None, steps=steps)
    return Collection(mapped, Like(schema))  # type: ignore[arg-type]


@dataclass
class Alones:
    """A program whose epochs are computed by one task, which runs in this process."""

    program: Made
    folder: Path
    traces: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    cut_short: dict[WaitingKey, int] = field(default_factory=dict)
    result: Rows = field(default_factory=Counter)

    def __post_init__(self) -> None:
        outside, schema, self._epochs = Scope(), longs("a", "b"), count()
        like: Any = Like(schema)
        sources = {name: Collection(Source(scope=outside, schema=schema, name=name), like) for name in "xy"}
        self.built = Built(sources, step)
        self._graph = self.built.of(self.program).graph()

    def epoch(self, changes: dict[str, Rows]) -> dict[Made, Rounds]:
        """Compute an epoch. Return how each loop with work has ended."""
        taken = {name: self._table(name, changes[name]) for name in changes}
        task = SingleTask(
            graph=self._graph, rest=None, entered=frozenset(), traces=self.traces, pending={}, rounds={},
            cut_short=self.cut_short, place=FolderFiles(str(self.folder)), folder=str(next(self._epochs)), partitions=2,
            most=1_000_000, is_load=not self.traces,
        )  # fmt: skip
        done = task.work(taken)
        self._take(done)
        ends = {loop: left.name for loop, left in self.built.loops.items()}
        return {loop: done.rounds[name] for loop, name in ends.items() if name in done.rounds}

    def _take(self, done: TaskOutcome) -> None:
        for trace, files in done.traces.items():
            merged = done.merged.get(trace, ())
            self.traces[trace] = (*(f for f in self.traces.get(trace, ()) if f not in merged), *files)
        self.cut_short = dict(done.cut_short)
        for key, files in done.pending.items():
            assert key == (self._graph.result.name, "deferred0", ()), "all others are worked off or dropped"
            for file in files:
                for row in runs.load_run(self.folder / file).to_pylist():
                    self.result[row["a"], row["b"]] += row[DIFFERENCE]
        self.result = Counter({row: often for row, often in self.result.items() if often})

    def _table(self, name: str, rows: Rows) -> pa.Table:
        schema = arrow_of(longs("a", "b"), 0)
        columns = list(zip(*((*row, often) for row, often in rows.items()), strict=True)) or [()] * 3
        return pa.table([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)


def run(seed: int, folder: Path) -> bool:
    """Compute epochs of a seed's program, and check each. Return whether the program was small enough."""
    program, draw = drawn(seed), random.Random(f"rows of {seed}")
    alone, there = Alones(program, folder), {"x": Counter(), "y": Counter()}
    for _ in range(EPOCHS):
        changes = {name: changed(draw, rows) for name, rows in there.items()}
        for name, rows in changes.items():
            there[name].update(rows)
        plain = Plain(there)
        try:
            wanted = plain.of(program)
        except TooMuchError:
            return False
        rests = alone.epoch(changes)
        assert alone.result == wanted, seed
        for loop, rest in rests.items():
            assert plain.rested[loop] <= rest.converged <= plain.ended[loop], seed
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_loops_in_loops_are_what_a_program_from_scratch_comes_to(seed: int, tmp_path: Path) -> None:
    if not run(seed, tmp_path):
        pytest.skip("its rows grow beyond all bounds")


@pytest.mark.parametrize(
    ("seed", "where", "what", "instead"),
    [
        (7, operators, "_due_keys", lambda *_: {}),
        (0, Schedule, "_begin", lambda *_: None),
        (0, turns, "added_up", lambda residues: sum(residues) or 1),
        (0, turns, "added_up", lambda residues: 0),
    ],
    ids=["keys are not due", "starts are not taken back", "cut short for good", "never cut short"],
)
def test_a_program_from_scratch_notices(
    seed: int, where: object, what: str, instead: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, what, instead)
    with pytest.raises(AssertionError):
        run(seed, tmp_path)
