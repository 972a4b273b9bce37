"""Random nested loops on Spark: one task, jobs, and both by turns. `tests/unit/` has many more, without Spark."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.steps.differential import Collection
from falkirk.steps.differential.single_task import ALONE_MAX
from tests.integration.changing import Changing
from tests.looping import STEPS, Built, Plain, Rows, changed, drawn

ROWS = "a LONG, b LONG"


def step(kind: str, of: Collection) -> Collection:
    """Run a step with Spark's expressions."""
    if kind == "negated":
        return of.negate()
    columns, less = STEPS[kind]
    made = of.select(*((F.col(name) + more if more else F.col(name)).alias(new) for new, name, more in columns))
    return made if less is None else made.where(f"{less[0]} < {less[1]}")


#: One seed for each way; `FALKIRK_STRIKES` adds another one of both by turns.
SEEDS = [(7, 0), (13, 4), (25, ALONE_MAX), *([(31, 4)] if os.environ.get("FALKIRK_STRIKES") else [])]


@pytest.mark.parametrize(("seed", "alone"), SEEDS)
def test_loops_in_loops_are_what_a_program_from_scratch_comes_to(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, alone: int
) -> None:
    monkeypatch.setattr(Changing, "alone", alone)
    program, draw, built = drawn(seed), random.Random(seed), list[Built]()

    def collections(x: Collection, y: Collection) -> Collection:
        built.append(Built({"x": x, "y": y}, step))
        return built[-1].of(program)

    changing = Changing(session, tmp_path, collections, x=ROWS, y=ROWS)
    there: dict[str, Rows] = {"x": Counter(), "y": Counter()}
    for _ in range(3):
        changes = {name: changed(draw, rows) for name, rows in there.items()}
        for name, rows in changes.items():
            there[name].update(rows)
        plain = Plain(there)
        given = {name: [(*row, often) for row, often in rows.items()] for name, rows in changes.items()}
        done = changing.epoch(**given)
        assert changing.result == plain.of(program)
        if len(done.rounds) == len(built[-1].loops):  # the inner loop first, as in the graph
            for loop, rest in zip(built[-1].loops, done.rounds, strict=True):
                assert plain.rested[loop] <= rest.converged <= plain.ended[loop]
