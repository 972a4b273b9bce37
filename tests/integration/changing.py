"""Changing: a graph of collections that is fed epoch by epoch, with its inputs and outputs so far."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType

from falkirk.steps.differential import Collection
from falkirk.steps.differential.files import FlowFiles
from falkirk.steps.differential.flow import Advanced, Flow
from falkirk.steps.differential.graph import Scope, Source
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.rows import DIFFERENCE
from falkirk.steps.differential.single_task import ALONE_MAX
from falkirk.steps.differential.state import LoopState
from falkirk.steps.differential.task import Task, Worker

Row = tuple[Any, ...]
Edge = tuple[int, int]
Rows = Counter[Row]
EDGES = "src LONG, dst LONG"


def row_of(values: Iterable[Any]) -> Row:
    """Return values as a row that can be counted: to Python no NaN is equal to another."""
    return tuple(math.nan if value != value else value for value in values)


def there(rows: Rows) -> list[Row]:
    """Return the rows that exist, each as many times as it exists."""
    return list(Counter({row: often for row, often in rows.items() if often > 0}).elements())


def three_rounds(edges: Collection) -> Collection:
    """Return the value of each node after three rounds in which all nodes send their values to their neighbours."""
    ways = edges.select(F.col("src").alias("n"), "dst")

    def spread(weights: Collection) -> Collection:
        given = weights.join(ways, "n").select(F.col("dst").alias("n"), "weight")
        return given.concat(weights).groupBy("n").sum("weight")

    return ways.groupBy("n").count("weight").iterate(spread, rounds=3)


def three_rounds_plainly(edges: list[Row]) -> Rows:
    """Return what `three_rounds` comes to."""
    weights = Counter(a for a, _ in edges)
    for _ in range(3):
        before = weights.copy()
        for a, b in edges:
            weights[b] += before[a]
    return Counter(weights.items())


def added(rows: Iterable[Row]) -> list[Row]:
    return [(*row, 1) for row in rows]


def taken(rows: Iterable[Row]) -> list[Row]:
    return [(*row, -1) for row in rows]


def shuffled(seed: int, epochs: int, rows: list[Row], most: int = 6) -> Iterable[list[Row]]:
    """Draw the rows that each epoch adds and removes."""
    draw, held = random.Random(seed), Counter[Row]()
    for _ in range(epochs):
        away = draw.sample(list(held.elements()), min(held.total(), draw.randint(0, most // 2)))
        more = draw.choices(rows, k=draw.randint(1, most))
        held.subtract(away)
        held.update(more)
        yield taken(away) + added(more)


def components(edges: Iterable[Edge]) -> Rows:
    return Counter((n, min(some)) for some in nx.connected_components(nx.Graph(list(edges))) for n in some)


def sources(edges: Collection) -> Collection:
    return edges.select(F.col("src").alias("n"))


def _both(changes: DataFrame, whole: DataFrame) -> tuple[list[Row], list[Row]]:
    """Return the rows of both, each with its difference behind its columns. One job of Spark collects them."""
    found: tuple[list[Row], list[Row]] = [], []
    marked = (data.select("*", F.lit(number).alias("_of")) for number, data in enumerate((changes, whole)))
    for *row, number in reduce(DataFrame.unionAll, marked).collect():
        found[number].append(tuple(row))
    return found


def _read_here(rows: DataFrame) -> list[Row]:
    """Return the rows of a result of `_Flow` without a job of Spark: this process runs the same task."""
    task: Task = vars(rows)["task"]
    batches = (batch for part in range(task.partitions) for batch in Worker(task, part).work(iter(())))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


class _Flow(Flow):
    """A flow whose DataFrames know the task that computes them."""

    def _jobs(self, *arguments: Any) -> Jobs:
        jobs = super()._jobs(*arguments)
        made = jobs._task

        def task(task: Task, arriving: DataFrame | None, schema: StructType) -> DataFrame:
            rows = made(task, arriving, schema)
            vars(rows)["task"] = task
            return rows

        jobs._task = task  # type: ignore[method-assign]
        return jobs


class Changing:
    """A program over sources, and its epochs.

    Args: program: gets the collections of the sources, and returns the result. sources: the columns of each, as DDL.

    Attributes: alone: as of `Flow`. parts: the number of partitions of each input; None: one per row. by_spark: a job
        of Spark reads the results, which costs a third of an epoch, and this process reads them too.
    """

    alone = ALONE_MAX
    by_spark = False
    parts: int | None = 2

    def __init__(
        self, session: SparkSession, folder: Path, program: Callable[..., Collection], partitions: int = 2,
        **sources: str,
    ) -> None:  # fmt: skip
        self.session, self._folder, self._program = session, folder, program
        self._partitions, self._numbers = partitions, count()
        self._likes = {name: session.createDataFrame([], ddl) for name, ddl in sources.items()}
        self.state = LoopState()
        self.put: dict[str, Rows] = {name: Counter() for name in sources}
        self.result: Rows = Counter()
        self.flow = self.fresh()

    def fresh(self) -> Flow:
        """Return a flow of the same program that knows nothing of the other."""
        outside = Scope()
        nodes = {name: Source(scope=outside, schema=like.schema, name=name) for name, like in self._likes.items()}
        made = self._program(*(Collection(nodes[name], like) for name, like in self._likes.items()))
        return _Flow(made.graph(), self.session, FlowFiles(self._folder), self._partitions, self.alone)

    def changes(self, name: str, rows: Iterable[Sequence[Any]]) -> DataFrame:
        """Return rows of a source, each with its difference behind its columns, as they are given to a flow."""
        schema = to_arrow_schema(StructType([*self._likes[name].schema.fields]).add(DIFFERENCE, LongType()))
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        given = self.session.createDataFrame(pa.table(list(map(pa.array, columns, schema.types)), schema=schema))
        return given if self.parts is None else given.coalesce(self.parts)

    def epoch(self, **changes: Iterable[Sequence[Any]]) -> Advanced:
        """Process the changes, and check that their sum is the whole result."""
        given = {name: list(rows) for name, rows in changes.items()}
        inputs = {name: self.changes(name, rows) for name, rows in given.items()}
        done = self.flow.advance(self.state, inputs, f"epoch-{next(self._numbers)}")
        self.state = done.state
        for name, rows in given.items():
            for *row, more in rows:
                self.put[name][row_of(row)] += more
        frames = done.changes, self.flow.whole(self.state)
        changed, whole = map(_read_here, frames)
        if self.by_spark:
            for ours, theirs in zip((changed, whole), _both(*frames), strict=True):
                assert Counter(map(row_of, ours)) == Counter(map(row_of, theirs))
        for *row, more in changed:
            self.result[row_of(row)] += more
        self.result = Counter({row: often for row, often in self.result.items() if often})
        assert Counter({row_of(row): often for *row, often in whole}) == self.result
        assert len(whole) == len(self.result), "what has come and gone meets"
        return done
