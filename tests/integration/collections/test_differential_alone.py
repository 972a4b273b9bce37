"""Rounds in one task: it computes the same as Spark, jobs can continue its work, and it refuses unsuitable steps."""

import itertools
import logging
import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.steps.differential import connected_components, files, fixpoint, in_memory, shortest_paths
from falkirk.steps.differential.expressions import Steps, Unsuitable
from falkirk.steps.differential.hashing import hash_of, partition_of_hash
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.single_task import ALONE_MAX, SingleTask
from tests.integration.changing import EDGES, Changing, Row, added, components, shuffled, sources, taken, there

KEYS = "a LONG, b INT, c STRING, d STRING NOT NULL, e BOOLEAN, f DATE, g TINYINT, h TIMESTAMP, i DOUBLE"


def keyed_rows(session: SparkSession) -> DataFrame:
    draw = random.Random(5)

    def word() -> str:
        return "".join(draw.choice("abcäö€x😀 ") for _ in range(draw.randint(0, 50)))

    rows = [
        (
            draw.choice([None, draw.randint(-(2**63), 2**63 - 1)]), draw.randint(-(2**31), 2**31 - 1),
            draw.choice([None, word()]), word(), draw.random() < 0.5,
            date(2000, 1, 1) + timedelta(days=draw.randint(-9999, 9999)), draw.randint(-128, 127),
            datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randint(-(10**15), 10**15)),
            draw.choice([None, 0.0, -0.0, float("nan"), float("inf"), draw.gauss(0, 1e9)]),
        )
        for _ in range(300)
    ]  # fmt: skip
    return session.createDataFrame(rows, KEYS).coalesce(2)


def test_hashes_and_partitions_are_those_of_spark(session: SparkSession) -> None:
    rows = keyed_rows(session)
    for keys in ([], *([k] for k in "abcdefghi"), ["a", "c", "b"], ["d", "f", "e", "h", "i"]):
        hashed = F.xxhash64(*([F.col(k) for k in keys] or [F.lit(0)])).alias("hash")
        placed = rows.select("*", hashed).repartition(7, "hash").withColumn("place", F.spark_partition_id()).toArrow()
        found = hash_of([placed.column(k) for k in keys], placed.num_rows)
        assert found.tolist() == placed.column("hash").to_pylist(), keys
        assert partition_of_hash(found, 7).tolist() == placed.column("place").to_pylist(), keys


#: Suitable expressions. Each is evaluated on rows with nulls and extreme values.
SAME = (
    "l", "t", "3", "CAST(NULL AS LONG)", "'a'", "i + 1", "i - j", "i * 2", "-j", "d / 4", "i / 3",
    "d * 0.85D + 0.15D", "CAST(i AS LONG)", "CAST(i AS DOUBLE)", "i < j", "d >= 0.5D", "t = 'b'", "t <> 'b'",
    "t <=> 'b'", "t <=> CAST(NULL AS STRING)", "i > 0 AND j > 0", "i > 0 OR j > 0", "NOT i > 0", "t IS NULL",
    "t IS NOT NULL", "coalesce(t, 'none')", "least(i, j)", "greatest(i, 2)", "abs(i)",
    "CASE WHEN i > 0 THEN j WHEN i IS NULL THEN 7 END", "if(i > j, t, 'no')", "d = 0.0D",
    "CASE WHEN i > 0 THEN 1 WHEN j > 0 THEN 2 ELSE 3 END",
)  # fmt: skip
#: Unsuitable expressions; and suitable ones that raise an error, or differ from Spark, on some of the rows.
SPARKS = ("upper(t)", "CAST(l AS INT)", "CAST(i AS STRING)", "hash(i)", "t LIKE 'a%'", "array(i)", "i % 3")
REFUSED = ("l + l", "1.0D / z", "n > 1.0D")
COLUMNS = "i INT, j INT, l LONG, d DOUBLE, t STRING, z DOUBLE, n DOUBLE"


def some_rows(session: SparkSession) -> DataFrame:
    draw = random.Random(6)
    rows = [
        (
            draw.choice([None, draw.randint(-5, 5)]), draw.randint(-5, 5), draw.choice([2**62, -(2**63), 0, None]),
            draw.choice([None, draw.random(), -0.0]), draw.choice([None, "a", "b", ""]), draw.choice([0.0, 1.0]),
            draw.choice([1.0, float("nan")]),
        )
        for _ in range(60)
    ]  # fmt: skip
    return session.createDataFrame(rows, COLUMNS).coalesce(2)  # by default there would be a task per slot


@pytest.fixture(scope="module")
def answers(session: SparkSession) -> tuple[pa.Table, pa.Table, DataFrame]:
    """Return rows, Spark's answers to all of `SAME` on them, from one job, and an empty DataFrame of their columns."""
    rows, said = some_rows(session), [F.expr(each).alias(str(number)) for number, each in enumerate(SAME)]
    together = rows.select(*rows.columns, *said).toArrow()
    return together.select(rows.columns), together, session.createDataFrame([], COLUMNS)


@pytest.mark.parametrize("said", SAME)
def test_a_step_comes_out_as_in_spark(answers: tuple[pa.Table, pa.Table, DataFrame], said: str) -> None:
    rows, together, given = answers
    theirs = together.column(str(SAME.index(said)))
    ours = Steps.of(given.selectExpr("j", "1 AS one", said))(rows)
    assert ours.column(0).to_pylist() == rows.column("j").to_pylist()
    assert ours.column(1).to_pylist() == [1] * len(rows)
    for result in (ours.column(2), Steps.of(given.withColumn("x", F.expr(said)).select("x"))(rows).column(0)):
        assert (result.type, result.to_pylist()) == (theirs.type, theirs.to_pylist())
    if pa.types.is_boolean(theirs.type):
        kept = Steps.of(given.where(said).select("i", "t"))(rows).to_pylist()
        assert kept == rows.select(["i", "t"]).filter(theirs).to_pylist()


@pytest.mark.parametrize("said", SPARKS)
def test_other_steps_are_sparks(session: SparkSession, said: str) -> None:
    with pytest.raises(Unsuitable):
        Steps.of(session.createDataFrame([], COLUMNS).selectExpr(said))


@pytest.mark.parametrize("said", REFUSED)
def test_what_would_come_out_otherwise_is_left_to_spark(session: SparkSession, said: str) -> None:
    steps = Steps.of(session.createDataFrame([], COLUMNS).selectExpr(said))
    with pytest.raises((Unsuitable, pa.ArrowException)):
        steps(some_rows(session).toArrow())


CHAIN = [(n, n + 1) for n in range(12)]


def test_all_further_rounds_are_one_job(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = Changing(session, tmp_path, connected_components, edges=EDGES)
    done = changing.epoch(edges=added(CHAIN))
    assert changing.result == components(CHAIN)
    assert done.rounds[0].count > 10
    assert done.jobs == 2, "the first round, and all others"
    done = changing.epoch(edges=added([(20, 21), (0, 20)]))
    assert changing.result == components([*CHAIN, (20, 21), (0, 20)])
    assert done.jobs == 1, "it is not a load, so one task does all of it"
    monkeypatch.setattr(Changing, "alone", 0)
    changing.flow = changing.fresh()
    by_jobs = changing.epoch(edges=taken(CHAIN[:1]))
    assert changing.result == components([*CHAIN[1:], (20, 21), (0, 20)])
    assert by_jobs.jobs >= by_jobs.rounds[0].count > 10


def epochs(changing: Changing, seed: int) -> None:
    """Compute epochs with the task and with jobs by turns, and check each result."""
    edges: list[Row] = [(a, b) for a in range(9) for b in range(9) if a < b]
    limits = itertools.cycle([ALONE_MAX, 0, 6])
    for changes in shuffled(seed, 5, edges, most=6):
        changing.alone = next(limits)
        changing.flow = changing.fresh()
        changing.epoch(edges=changes)
        assert changing.result == components(there(changing.put["edges"]))


def test_jobs_go_on_where_a_task_was_and_it_where_they_were(session: SparkSession, tmp_path: Path) -> None:
    epochs(Changing(session, tmp_path, connected_components, partitions=3, edges=EDGES), seed=7)


@pytest.mark.parametrize("off", ["partitions", "runs", "hashes"])
def test_jobs_would_miss_what_a_task_has_left_elsewhere(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    """The same test, but the task's work runs again in this process with one mechanism off: wrong partitions, runs in
    another order, or other hashes."""
    if off == "partitions":
        monkeypatch.setattr(in_memory, "partition_of_hash", lambda hashes, n: (partition_of_hash(hashes, n) + 1) % n)
    elif off == "runs":
        sorted_by_hash = files.sorted_by_hash
        monkeypatch.setattr(files, "sorted_by_hash", lambda *rows: sorted_by_hash(*rows)[::-1].combine_chunks())
    else:
        monkeypatch.setattr(in_memory, "hash_of", lambda columns, rows: np.zeros(rows, dtype=np.int64))
    monkeypatch.setattr(Jobs, "go_alone", lambda *_: False)  # its input exists no more
    monkeypatch.setattr(SingleTask, "outcome", lambda task, rows: task.work({}))
    with pytest.raises((AssertionError, PySparkException)):  # the result is wrong or impossible
        epochs(Changing(session, tmp_path, connected_components, partitions=3, edges=EDGES), seed=7)


def test_a_sum_that_one_task_keeps_ignores_a_row_that_is_removed_before_it_is_added(
    session: SparkSession, tmp_path: Path
) -> None:
    """A kept sum contains the removed row. At its end, the task notices this, and computes the epoch without it."""

    def program(given: Any) -> Any:
        def halved(c: Any) -> Any:
            half = c.select("n", (F.col("v") * 0.5).alias("v"))
            return given.concat(half).groupBy("n").sum("v", tolerance=1e-9)

        return fixpoint(given, halved)

    changing = Changing(session, tmp_path, program, given="n LONG, v DOUBLE")
    epochs: list[list[Row]] = [[(1, 8.0, 1), (1, 2.0, 1)], [(1, 4.0, -1)], [(1, 1.0, 1)], [(1, 4.0, 1)], [(1, 4.0, 1)]]
    for changes, wanted in zip(epochs, [20.0, 20.0, 22.0, 22.0, 30.0], strict=True):
        done = changing.epoch(given=changes)
        assert done.jobs == 1 or changes == epochs[0], "it is not a load, so one task does all of it"
        ((_, found),) = changing.result
        assert abs(found - wanted) < 1e-6


def test_what_the_task_cannot_do_spark_does(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A division by zero that Spark never evaluates, but Arrow does: it computes both sides of an OR."""

    def program(edges: Any) -> Any:
        def less(nodes: Any) -> Any:
            fewer = nodes.where("n = 0 OR 1 / n > 0.4D").select((F.col("n") - 1).alias("n")).where("n >= 0")
            return fewer.concat(nodes).distinct()

        return sources(edges).iterate(less)

    changing = Changing(session, tmp_path, program, edges=EDGES)
    with caplog.at_level(logging.INFO, "falkirk"):
        changing.epoch(edges=added([(2, 0), (5, 0)]))
    assert "Spark jobs compute this, since one task could not: Unsuitable: a division by zero" in caplog.text
    assert changing.result == {(n,): 1 for n in (0, 1, 2, 5)}


def test_shortest_paths_alone(session: SparkSession, tmp_path: Path) -> None:
    changing = Changing(session, tmp_path, shortest_paths, edges=f"{EDGES}, length INT", sources="node LONG")
    done = changing.epoch(edges=added([(n, n + 1, n) for n in range(9)]), sources=added([(0,)]))
    assert changing.result == {(n, sum(range(n))): 1 for n in range(10)}
    assert done.jobs < done.rounds[0].count
