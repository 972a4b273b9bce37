"""The corpus: the inference for each pipeline, and two runs that differ where it expects a difference."""

import itertools
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.nodes import ProcessorNode, steps_of
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.stream import Stream
from falkirk.errors.location import caller
from falkirk.plan.guarantees import Promise, promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.platform.local_data import LocalData
from falkirk.steps.batch.call import calling
from falkirk.steps.batch.in_epoch import InEpoch
from falkirk.steps.batch.replay import replay
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.live import stamped as frames
from tests.integration.corpus import ARRIVAL, CHECKPOINT, LIVE, SCHEMA, Pipeline, batch, tagged
from tests.integration.corpus_batches import BATCHES, PIPELINES, newest
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Pipelines whose code is deterministic, as only its author can know: no run shows a difference.
_UNKNOWN = {"of unknown Python", "a folded stream", "a folded stream, saved seldom", "median of zeros"}


def planned(spark: "SparkSession", pipeline: Pipeline) -> Plan:
    app, read = fk.App("corpus"), "events"
    app.source("events", fk.Kafka("events", schema=SCHEMA, key=pipeline.key))
    for number, body in enumerate(pipeline.bodies):
        name = "p" if number == len(pipeline.bodies) - 1 else f"before{number}"
        if pipeline.batch:
            reads = ("events",) if pipeline.state is None else ("events", "p")
            app.add_processor("p", body, reads=reads, policy=pipeline.policy, cut=pipeline.cut, state=pipeline.state)
        else:
            policy = fk.Ephemeral() if pipeline.fused and name != "p" else pipeline.policy
            app.add_processor(name, body, reads=(read,), policy=policy)
        read = name
    app.sink("out", read, fk.Kafka("out", key=pipeline.sink_key))
    return plan_application(app, spark, "deadbeef")


@pytest.mark.parametrize("name", PIPELINES)
def test_what_is_inferred(spark: "SparkSession", name: str) -> None:
    pipeline = PIPELINES[name]
    plan = planned(spark, pipeline)
    (promise,) = promises_of(plan)
    known, expected = plan.properties["p"], pipeline.expected
    found = {
        "release": promise.release, "same": not known.differs, "ordered": bool(known.ordered),
        "twice": bool(known.adds_up),
    }  # fmt: skip
    assert found == vars(expected)
    assert bool(promise.awaits) == (promise.release == "behind a checkpoint")
    assert promise.reasons


def test_the_corpus_is_as_large_as_was_asked() -> None:
    assert len(PIPELINES) >= 60
    assert sum(p.expected.release == ARRIVAL for p in PIPELINES.values()) >= 25


# -- two runs ----------------------------------------------------------------------------------------------------------


def rows_of(seed: int) -> list[tuple[Any, ...]]:
    """Return the same rows with their stamps for each seed, in another order."""
    drawn, began = random.Random(1), datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        (
            f"k{i % 3}", drawn.randint(0, 5), drawn.choice([1e16, 1.0, -1e16, 0.1]), [f"{i}", "x", "y"],
            began + timedelta(seconds=i),
        )
        for i in range(40)
    ]  # fmt: skip
    stamped = [(*row, (0, 0, i)) for i, row in enumerate(rows)]
    if seed:
        random.Random(seed).shuffle(stamped)
    return stamped


@cache
def _rows_in(spark: "SparkSession", seed: int) -> "DataFrame":
    """Return the rows with their stamps, which the JVM keeps in one partition."""
    stamped = f"{SCHEMA}, {STAMP} STRUCT<source: INT, partition: INT, offset: BIGINT>"
    return spark.createDataFrame(rows_of(seed), stamped).coalesce(1).localCheckpoint()


def given(spark: "SparkSession", seed: int, *, in_order: bool) -> "DataFrame":
    """Return the rows with stamps: in their order, or in another and divided otherwise."""
    frame = _rows_in(spark, 0 if in_order else seed)
    return frame if in_order or not seed else frame.repartition(seed + 1)


def run(spark: "SparkSession", pipeline: Pipeline, seed: int, folder: Path) -> Counter[str]:
    """Return the results of one run of a pipeline."""
    if pipeline.batch:
        return _batch(spark, pipeline, seed)
    steps = [steps_of(body(Stream(ProcessorNode(name="events"))).node) for body in pipeline.bodies]
    if any(step.operation in ("map_rows", "stateful") for some in steps for step in some):
        return _micro_batch(spark, pipeline, seed, folder)
    keyed = any(step.operation in ("agg", "count") for some in steps for step in some)
    frame = frames.good(given(spark, seed, in_order=keyed))
    for step in itertools.chain(*steps):
        frame = frames.apply(frame, step)
    return _counted(frame.data.select(*[F.col(f"`{c}`") for c in frame.columns], STAMP))


def _batch(spark: "SparkSession", pipeline: Pipeline, seed: int) -> Counter[str]:
    (body,) = pipeline.bodies
    rows = given(spark, seed, in_order=False).drop(STAMP)
    kept = [] if pipeline.state is None else [spark.createDataFrame([], pipeline.state)]
    found: Any = body(rows, *kept)
    return sum(map(_counted, found), Counter()) if isinstance(found, tuple) else _counted(found)


def _micro_batch(spark: "SparkSession", pipeline: Pipeline, seed: int, folder: Path) -> Counter[str]:
    (body,) = pipeline.bodies
    processor = DeclaredProcessor(name="p", body=body, reads=("events",), policy=fk.Eager(), where=caller())
    places = (LocalData(folder / f"{seed}-{i}") for i in itertools.count())
    with calling(InEpoch(fk.EpochContext(), spark, {}, lambda: next(places))):
        node = body(Stream(ProcessorNode(name="events"))).node
        return _counted(replay(node, {"events": given(spark, seed, in_order=False)}, processor))


def _counted(rows: "DataFrame") -> Counter[str]:
    return Counter(str(row) for row in rows.collect())


def _differs(pipeline: Pipeline) -> bool:
    """Whether the final results are expected to differ: at least held ones, unless the policy holds them anyway."""
    held = pipeline.expected.release == CHECKPOINT and not isinstance(pipeline.policy, fk.Snapshots)
    return held or not pipeline.expected.same


#: The pipelines that are run until two results differ. The other half is a soak: with a wrong expectation, results wait
#: that need not, and none is wrong.
DIFFERING = [name for name, pipeline in PIPELINES.items() if _differs(pipeline) and name not in _UNKNOWN]
if "FALKIRK_STRIKES" not in os.environ:
    DIFFERING = DIFFERING[::2]


@pytest.mark.parametrize("name", DIFFERING)
def test_two_runs_of_what_is_said_to_differ_do(spark: "SparkSession", name: str, tmp_path: Path) -> None:
    pipeline = PIPELINES[name]
    first = run(spark, pipeline, 0, tmp_path)
    seeds = itertools.count(1)
    wait_until(lambda: run(spark, pipeline, next(seeds), tmp_path) != first, 60, "another result")


@pytest.mark.parametrize(
    "name", [n for n, p in PIPELINES.items() if p.expected.same and len(p.bodies) == 1]
)  # fmt: skip
def test_two_runs_of_what_is_said_to_be_the_same_are(spark: "SparkSession", name: str, tmp_path: Path) -> None:
    pipeline = PIPELINES[name]
    if "by a word" in name and name in BATCHES and not name.startswith(("of", "a mapped")):
        pytest.skip("its author's word is wrong: that is what the audit is for")
    assert run(spark, pipeline, 0, tmp_path) == run(spark, pipeline, 3, tmp_path)
    assert name in LIVE or name in BATCHES


# -- values outside the rows -------------------------------------------------------------------------------------------


def test_a_table_that_is_read_in_a_function_may_have_changed(spark: "SparkSession", tmp_path: Path) -> None:
    """It is in no log of the application's, so a replay may find something else there."""
    file = str(tmp_path / "prices")
    spark.createDataFrame([("k0", 1.0)], "s STRING, price DOUBLE").write.parquet(file)

    def priced(events: "DataFrame") -> "DataFrame":
        return events.select("s", "n").join(events.sparkSession.read.parquet(file), "s")

    pipeline = batch("with its epoch", priced)
    plan = planned(spark, pipeline)
    (reason,) = plan.properties["p"].differs
    assert reason.startswith("a table or file read in it")
    first = _batch(spark, pipeline, 0)
    spark.createDataFrame([("k0", 2.0)], "s STRING, price DOUBLE").write.mode("overwrite").parquet(file)
    assert _batch(spark, pipeline, 0) != first


def test_what_is_late_by_what_was_seen_depends_on_where_an_epoch_ended(spark: "SparkSession") -> None:
    """The inference does not show this. The durable records do: they contain the ends of epochs."""
    pipeline = PIPELINES["too late by what was seen"]
    (body,) = pipeline.bodies
    assert pipeline.state is not None

    def epochs(*sizes: int) -> Counter[str]:
        rows, state = given(spark, 1, in_order=False).drop(STAMP).collect(), spark.createDataFrame([], pipeline.state)
        for end, size in zip(itertools.accumulate(sizes), sizes, strict=True):
            state = body(spark.createDataFrame(rows[end - size : end], SCHEMA), state).localCheckpoint()
        return _counted(state)

    assert epochs(20, 20) == epochs(20, 20) != epochs(10, 30)
    (promise,) = promises_of(planned(spark, pipeline))
    assert "p: which input each epoch reads, and its results, in the home" in promise.durable, promise.durable


def test_a_view_is_the_one_that_was_recorded(spark: "SparkSession") -> None:
    """The choice of its epoch is recorded once, so a view makes no reader non-deterministic."""
    app = fk.App("corpus")
    app.source("events", fk.Kafka("events", schema=SCHEMA))

    @app.batch(rows=10, state="s STRING, n LONG")
    def totals(events: Any, totals: Any) -> Any:
        new = events.groupBy("s").agg(F.count("*").alias("n"))
        return totals.unionByName(new).groupBy("s").agg(F.sum("n").alias("n"))

    @app.batch(rows=10)
    def p(events: Any, totals: fk.View) -> Any:
        return events.select("s").join(totals, "s")  # type: ignore[arg-type]

    app.sink("out", "p", fk.Kafka("out"))
    plan = plan_application(app, spark, "deadbeef")
    (promise,) = promises_of(plan)
    assert (promise.release, plan.properties["p"].differs, plan.properties["totals"].differs) == (
        "with its epoch", (), (),
    )  # fmt: skip
    assert promise.goes_back == {"totals": ("totals",), "p": ("p",)}


# -- inputs of a batch ---------------------------------------------------------------------------------------------


def _rests_on(spark: "SparkSession", before: Any) -> Promise:
    """Return the promise of a batch that counts the rows of `drawn`, which `before` adds to an application."""
    app = fk.App("corpus")
    app.source("events", fk.Kafka("events", schema=SCHEMA, key="s"))
    before(app)

    @app.batch(rows=10)
    def p(drawn: Any) -> Any:
        return drawn.groupBy("s").agg(F.count("*").alias("n"))

    app.sink("out", "p", fk.Kafka("out"))
    (promise,) = promises_of(plan_application(app, spark, "deadbeef"))
    return promise


def test_a_batch_waits_for_the_live_region_that_may_take_back_what_it_has_read(spark: "SparkSession") -> None:
    def live(app: fk.App) -> None:
        @app.stream(fk.Lazy("3 seconds"))
        def drawn(events: fk.Stream) -> fk.Stream:
            return tagged(events).groupBy("s").agg(fk.latest_value("lot"))

    promise = _rests_on(spark, live)
    assert (promise.release, promise.awaits, promise.within_s) == ("behind a checkpoint", ("drawn-out",), 3.0)
    assert promise.goes_back == {"drawn-out": ("drawn-out", "p"), "p": ("p",)}
    (waits,) = [reason for reason in promise.reasons if reason.kind == "waits"]
    assert (waits.operations, waits.processor) == (("Uuid",), "drawn")
    assert promise.advice


def test_a_batch_waits_for_the_batch_that_may_take_back_what_it_has_read(spark: "SparkSession") -> None:
    def lazy(app: fk.App) -> None:
        @app.batch(rows=10, state="s STRING, n INT", policy=fk.Lazy("1 minute"))
        def drawn(events: Any, drawn: Any) -> Any:
            return drawn, newest(events, drawn)

    promise = _rests_on(spark, lazy)
    assert (promise.release, promise.awaits, promise.within_s) == ("behind a checkpoint", ("drawn",), 60.0)
    (unsaved,) = [reason for reason in promise.reasons if reason.kind == "unsaved"]
    assert (unsaved.operations, unsaved.processor) == (("First",), "drawn")
    assert unsaved.where is not None
    assert unsaved.where.place.startswith("test_corpus.py:")
    assert [reason.processor for reason in promise.reasons if reason.kind == "upstream"] == ["p"]


def test_a_batch_waits_for_nothing_that_stays(spark: "SparkSession") -> None:
    def live(app: fk.App) -> None:
        @app.stream(fk.Lazy("3 seconds"))
        def drawn(events: fk.Stream) -> fk.Stream:
            return events.groupBy("s").agg(fk.latest_value("n"))

    promise = _rests_on(spark, live)
    assert (promise.release, promise.awaits, promise.within_s) == ("with its epoch", (), None)
    assert promise.goes_back == {"drawn-out": ("drawn-out",), "p": ("p",)}
