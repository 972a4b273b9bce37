"""Programs: generates the random pipelines of a seed. The same seed always gives the same pipelines."""

import random
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tests.integration.hunting import inputs, jvm, literals, statements
from tests.integration.hunting.expressions import (
    TRIES,
    Function,
    Pool,
    accepted,
    call,
    functions,
)
from tests.integration.hunting.forms import AGGREGATES, FORMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Kind(Enum):
    """The kind of a pipeline: an expression of one row or of many rows, statements, or a DataFrame in Python."""

    ROW, GROUP, SQL, FRAME = "row", "group", "sql", "frame"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline. Args: texts: an expression, or statements. The last statement gives the rows."""

    seed: int
    number: int
    kind: Kind
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return ";\n    ".join(self.texts)


#: The number of expressions of one row in each round. A round uses the expressions of earlier rounds.
ROUNDS = (14, 8, 6)
GROUPED, STATED, FRAMED = 10, 8, 4
PIPELINES = sum(ROUNDS) + GROUPED + STATED + FRAMED


def program(session: "SparkSession", tables: "dict[str, DataFrame]", seed: int) -> list[Pipeline]:
    """Generate the pipelines of a seed. Args: session: has the tables as views of these names."""
    drawn = random.Random(seed)
    pool = Pool(drawn=drawn)
    for column, kind in tables["r"].dtypes:
        pool.of[kind].append(column)
    known = functions(session)
    found = [*_of_one_row(session, pool, known["row"])]
    grouped = _of_many(session, pool, known["agg_funcs"])
    several = [[call(pool, drawn.choice(known["generator_funcs"])) for _ in range(TRIES)] for _ in range(3)]
    generators = [made[0] for made in accepted(session, several) if made is not None]
    draw = statements.Draw(pool=pool, aggregates=grouped, generators=generators or ["explode(a)"])
    texts: list[tuple[Kind, tuple[str, ...]]] = [(Kind.ROW, (one,)) for one in found]
    texts += [(Kind.GROUP, (one,)) for one in grouped]
    texts += [(Kind.SQL, one) for one in _stated(session, draw)]
    texts += [(Kind.FRAME, (draw.frame(),)) for _ in range(FRAMED)]
    return [Pipeline(seed=seed, number=i, kind=kind, texts=one) for i, (kind, one) in enumerate(texts)]


def _of_one_row(session: "SparkSession", pool: Pool, known: Sequence[Function]) -> list[str]:
    found = []
    for number in ROUNDS:
        choices = [[_one(pool, one) for _ in range(TRIES)] for one in _some(pool.drawn, known, FORMS, number)]
        for made in accepted(session, choices):
            if made is not None:
                found.append(literals.commented(pool.drawn, made[0]) if pool.drawn.random() < 0.1 else made[0])
                pool.of[made[1]].append(f"({made[0]})")
    return found


def _of_many(session: "SparkSession", pool: Pool, known: Sequence[Function]) -> list[str]:
    choices = [[_one(pool, one) for _ in range(TRIES)] for one in _some(pool.drawn, known, AGGREGATES, GROUPED)]
    found = accepted(session, choices, tail=" FROM r GROUP BY s")
    return [made[0] for made in found if made is not None] or ["count(*)"]


def _stated(session: "SparkSession", draw: statements.Draw) -> list[tuple[str, ...]]:
    """Generate statements that Spark accepts. A single statement is tried; several are not."""
    found = []
    for _ in range(STATED):
        for _ in range(TRIES):
            several = draw.statements()
            if len(several) > 1 or not jvm.error(session, several[0]):
                found.append(several)
                break
    return found


def _some(drawn: random.Random, known: Sequence[Function], forms: Sequence[str], number: int) -> list[Function | str]:
    return [drawn.choice(known) if drawn.random() < 0.6 else drawn.choice(forms) for _ in range(number)]


def _one(pool: Pool, what: Function | str) -> str:
    return pool.filled(what) if isinstance(what, str) else call(pool, what)


#: The views that a session has. No pipeline changes them.
_VIEWS: "weakref.WeakKeyDictionary[SparkSession, dict[str, DataFrame]]" = weakref.WeakKeyDictionary()


def given(session: "SparkSession", tables: "dict[str, DataFrame]") -> None:
    """Make the tables views of the session, and activate the session, so that its settings apply."""
    jvm.activate(session)
    views = _VIEWS.setdefault(session, {})
    for name in inputs.TABLES:
        if views.get(name) is not tables[name]:
            tables[name].createOrReplaceTempView(name)
            views[name] = tables[name]
