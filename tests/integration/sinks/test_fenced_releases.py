"""A task that releases results stands still while its successor takes over, and then resumes: readers of committed
records see each result once. The task is one of another JVM, as it seems: nobody here finds its lanes."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.application.logs import KafkaLogs
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks import copying, topic, writing
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.times import TopicPartition
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The number of rows of a release, and the row at which the task is suspended. Spark gives Python 100 rows at once.
ROWS, STILL = 250, 150
#: Python's answers leave its buffer of 64 KiB.
PADDING = "x" * 1_000


class Releases:
    """Two releases of the same results. Args: release: releases the results up to a number, with a context."""

    def __init__(self, contexts: list[Context], release: Callable[[Context, int], None]) -> None:
        self.old, self.new = (partial(release, context) for context in contexts)


def _epochs(wire: Wire, out: str, contexts: list[Context]) -> Releases:
    targets = {
        id(context): TopicTarget(context, fk.Kafka(out, key="n"), partial(writing.settle, context))
        for context in contexts
    }

    def release(context: Context, number: int) -> None:
        rows = context.session.range(number * ROWS, (number + 1) * ROWS, 1, 1)
        columns = F.col("id").alias("n"), F.lit(PADDING).alias("padding"), (F.col("id") % ROWS).alias(ROW)
        targets[id(context)].deliver(number, rows.select(*columns))

    return Releases(contexts, release)


def _copies(wire: Wire, out: str, contexts: list[Context]) -> Releases:
    held = wire.topic("held", 1)
    layout = Layout(
        stages={"r": Stage(name="r", inputs=("in",), output=held, deterministic=False)},
        partitions={"in": 1, held: 1, out: 1},
        held={held: out},
    )
    wire.send(held, [{"n": n, "padding": PADDING} for n in range(2 * ROWS)])
    logs = {
        id(c): KafkaLogs(layout, c, partial(writing.settle, c), partial(copying.copy, c)) for c in contexts
    }  # fmt: skip

    def upto(number: int) -> OffsetFrontier:
        return OffsetFrontier.of({TopicPartition(topic=held, partition=0): number * ROWS})

    def release(context: Context, number: int) -> None:
        logs[id(context)].copy(held, out, upto(number), upto(number + 1))

    return Releases(contexts, release)


KINDS = {"an epoch": (_epochs, topic), "a copy": (_copies, copying)}


@pytest.fixture
def opened(home: Path) -> Iterator[Home]:
    with open_home(home, "releases") as found:
        yield found


@contextmanager
def _another_jvm(patch: pytest.MonkeyPatch, ids: str) -> Iterator[None]:
    """Name lanes so that this process does not find them. Args: ids: the beginning of their transactional ids."""
    key, prefix = lanes.lanes_key, lanes._prefix
    with patch.context() as own:
        own.setattr(lanes, "lanes_key", lambda *arguments: f"other-{key(*arguments)}")
        own.setattr(lanes, "_prefix", lambda *arguments: f"{ids}{prefix(*arguments)}")
        yield


@pytest.mark.parametrize(
    ("kind", "commit_ms", "transactional", "ids"),
    [
        pytest.param("an epoch", 1, True, "", id="an epoch, fenced"),
        pytest.param("a copy", 1, True, "", id="a copy, fenced"),
        pytest.param("a copy", 600_000, True, "", id="a copy, fenced, within a transaction"),
        pytest.param("an epoch", 100, False, "", id="an epoch, not fenced"),
        pytest.param("a copy", 100, False, "", id="a copy, not fenced"),
        pytest.param("an epoch", 1, True, "other-", id="an epoch, other ids"),
    ],
)
def test_a_task_that_resumes_after_its_successor(
    spark: "SparkSession", wire: Wire, opened: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    kind: str, commit_ms: int, ids: str, *, transactional: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(lanes, "JOB_COMMIT_MS", commit_ms)
    made, writer = KINDS[kind]
    contexts = [
        Context(
            session=spark,
            connection=Connection.of(wire.bootstrap),
            home=opened,
            state_partitions=2,
            transactional=transactional,
        )
        for _ in range(2)
    ]
    out = wire.topic("out", 1)
    releases = made(wire, out, contexts)
    releases.old(0)
    with _standing_still(releases, writer, tmp_path, monkeypatch, ids) as failed:
        if commit_ms < 1_000:
            wait_until(lambda: len(_there(wire, out)) > ROWS, 30, "the first results of the task")
        releases.new(1)
    there = _there(wire, out)
    print(f"{kind}, {transactional=} {ids}: {len(there) - len(set(there))} of {2 * ROWS} results twice")
    assert set(there) == set(range(2 * ROWS))
    if transactional and not ids:
        assert len(there) == 2 * ROWS
        assert "Fenced" in str(failed[0]) or "InvalidProducerEpoch" in str(failed[0])
    else:
        assert max(Counter(there).values()) == 2
        assert not failed


@contextmanager
def _standing_still(
    releases: Releases, writer: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, ids: str
) -> Iterator[list[SparkError]]:
    """Let a task of another JVM stand still in the middle of its results, until the block ends. Yield its errors."""
    gates, failed = [folder / "started", folder / "resume"], list[SparkError]()
    os.mkfifo(gates[1])
    real = writing.write

    def write(context: Context, to: str, rows: "DataFrame", limit_bytes: int) -> None:
        real(context, to, rows.withColumn("value", _waiting(*map(str, gates))("value")), limit_bytes)

    def release() -> None:
        try:
            releases.old(1)
        except SparkError as error:
            failed.append(error)

    thread = threading.Thread(target=release)
    with _another_jvm(monkeypatch, ids), monkeypatch.context() as patch:
        patch.setattr(writer, "write", write)
        thread.start()
        wait_until(gates[0].exists, 60, "the task")
    try:
        yield failed
    finally:
        pipe = os.open(gates[1], os.O_RDWR)  # which does not wait for the task
        os.write(pipe, b"\n")
        thread.join()
        os.close(pipe)


def _waiting(started: str, may_resume: str) -> Callable[[str], Any]:
    def wait(value: bytes) -> bytes:
        if json.loads(value)["n"] % ROWS == STILL:
            Path(started).touch()
            with Path(may_resume).open() as pipe:
                pipe.readline()
        return value

    return F.udf(wait, "binary", useArrow=False)  # type: ignore[call-overload]


def _there(wire: Wire, topic: str) -> list[int]:
    return [row["n"] for row in wire.rows(topic)]
