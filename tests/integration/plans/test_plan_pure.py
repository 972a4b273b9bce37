"""Planning is pure: it changes no declaration, and calls each function of the user a fixed number of times."""

import copy
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.nodes import SourceNode
from falkirk.plan.explain.preview import preview
from falkirk.plan.planner import plan_application
from falkirk.reading import application_of
from falkirk.steps.static_analysis.functions import ITSELF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def echo(row: Any) -> Any:
    return {"id": row.id, "word": row.word}


def application(
    home: Path | None = None, calls: Counter[str] | None = None, tag: str = "", *, push: bool = True
) -> fk.App:
    """Declare one processor of each kind. Args: calls: counts the calls of each function."""
    calls = Counter() if calls is None else calls
    app = fk.App("pure", home=home, http="127.0.0.1:0")
    pages = fk.Kafka(f"pages{tag}", schema="id STRING NOT NULL, word STRING")
    app.source("pages", fk.Http("/pages", schema="id STRING NOT NULL, word STRING") if push else pages)

    @app.stream(fk.Ephemeral())
    def words(pages: fk.Stream) -> fk.Stream:
        calls["words"] += 1
        return pages.where("word != ''")

    @app.stream()
    def index(words: fk.Stream) -> fk.Stream:
        calls["index"] += 1
        return words.groupBy("word").count()

    @app.stream()
    @fk.deterministic
    def loud(words: fk.Stream) -> fk.Stream:
        calls["loud"] += 1
        return words.select("id", F.upper("word").alias("word"))

    @app.stream()
    def echoed(words: fk.Stream) -> fk.Stream:
        calls["echoed"] += 1
        return words.map_rows(echo, returns="id STRING, word STRING")

    @app.stream(engine="micro-batch")
    def small(words: fk.Stream) -> fk.Stream:
        calls["small"] += 1
        return words.select("id")

    @app.stream(fk.Eager())
    def eager(loud: "DataFrame", index: fk.View) -> "DataFrame":
        calls["eager"] += 1
        return loud.join(index, "word")

    @app.batch(every="1 minute", state="word STRING, n LONG")
    def totals(words: "DataFrame", totals: "DataFrame") -> "DataFrame":
        calls["totals"] += 1
        return totals.unionByName(words.groupBy("word").agg(F.count("*").alias("n")))

    @app.batch(rows=10)
    @fk.deterministic
    def declared(words: "DataFrame") -> "DataFrame":
        calls["declared"] += 1
        return words.distinct()

    @app.iterate(rows=10)
    def distinct(words: Any) -> Any:
        calls["distinct"] += 1
        return words.distinct()

    for name in app.processors:
        app.sink(f"to-{name}", name, fk.Kafka(f"{name}{tag}"))
    app.sink("copy", words, fk.Kafka(f"copy{tag}"))
    return app


def test_planning_changes_no_declaration_and_repeats(spark: "SparkSession", tmp_path: Path) -> None:
    app = application(tmp_path / "home")
    before = copy.deepcopy(vars(app))
    first, second = (plan_application(app, spark, "deadbeef") for _ in range(2))
    assert vars(app) == before
    assert [(r.name, r.fingerprint) for r in first.regions] == [(r.name, r.fingerprint) for r in second.regions]
    assert [(b.name, b.fingerprint) for b in first.batches] == [(b.name, b.fingerprint) for b in second.batches]
    assert first.push == second.push
    preview(app, kafka=None, home=tmp_path / "other", master="local[24]")
    assert vars(app) == before
    assert plan_application(app, spark, "another").push[0].topic != first.push[0].topic, "the home is not remembered"


def test_a_source_of_requests_can_be_written_after_a_plan(spark: "SparkSession") -> None:
    app = application()
    app.pushed.clear()
    requests = app.source("requests", fk.Http("/more", schema="id STRING NOT NULL"))
    app.sink("requests", requests, fk.Kafka("requests"))
    plan_application(app, spark, "deadbeef")
    app.sink("again", requests, fk.Kafka("again"))
    assert app.sinks["again"].reads == "requests"


def test_each_function_is_called_as_often_as_documented(spark: "SparkSession") -> None:
    calls = Counter[str]()
    plan = plan_application(application(calls=calls), spark, "deadbeef")
    assert sum("words" in region.processors for region in plan.regions) > 1, "it has several readers"
    twice = ("words", "index", "small", "eager", "totals", "distinct")
    once = ("loud", "declared", "echoed")  # by declaration; and no comparison clears what Python does with rows
    assert calls == dict.fromkeys(twice, 2) | dict.fromkeys(once, 1)


def drawn(pages: fk.Stream) -> fk.Stream:
    return pages.withColumn("lot", F.lit(random.random()))


@pytest.mark.parametrize("engine", ["live", "micro-batch"])
def test_a_function_that_draws_in_python_is_noticed_on_both_engines(spark: "SparkSession", engine: Any) -> None:
    app = fk.App("drawing")
    app.source("pages", fk.Kafka("pages", schema="id STRING"))
    app.stream(engine=engine)(drawn)
    app.sink("lots", drawn, fk.Kafka("lots"))
    plan = plan_application(app, spark, "deadbeef")
    assert plan.properties["drawn"].differs
    assert [ITSELF in batch.undetermined for batch in plan.batches] == [True] * (engine == "micro-batch")
    assert ["function itself" in str(r.undetermined) for r in plan.regions] == [True] * (engine == "live")


WRITTEN = [
    lambda s: s.where("n > 1"),
    lambda s: s.where("n > 1").groupBy("word").agg("count(*) AS n", "max(n) AS m").select("word", "n"),
    lambda s: s.map_rows(echo, returns="id STRING, word STRING"),
]


@pytest.mark.parametrize("body", WRITTEN)
def test_what_is_written_is_planned_like_an_application_with_one_sink(spark: "SparkSession", body: Any) -> None:
    topic, sink = fk.Kafka("some.events", schema="id STRING, word STRING, n INT"), fk.Kafka("counts.of.words")
    stream = body(fk.read(topic))
    written = application_of(stream, sink, delivery="exactly-once", interval="3 seconds")
    app = fk.App(written.name)
    app.sources["some.events"] = SourceNode(name="some.events", topic=topic)
    app.add_processor("stream", body, reads=("some.events",), policy=fk.Lazy("3 seconds"))
    app.sink(written.name, "stream", sink)
    mine, its = (plan_application(each, spark, "deadbeef") for each in (written, app))
    assert [(r.name, r.fingerprint) for r in mine.regions] == [(r.name, r.fingerprint) for r in its.regions]
    assert [(b.name, b.fingerprint) for b in mine.batches] == [(b.name, b.fingerprint) for b in its.batches]
    assert mine.regions or mine.batches
    (processor,) = written.processors.values()
    assert processor.body(None) is stream, "its steps are those that were recorded"
    assert processor.where.file == __file__


@pytest.mark.parametrize("kind", ["Stream", "DataFrame"])
def test_the_decorator_says_what_a_parameter_gets(spark: "SparkSession", kind: str) -> None:
    app, got = fk.App("handed"), list[str]()
    app.source("pages", fk.Kafka("pages", schema="id STRING"))
    of_streams = [
        app.stream(fk.Lazy()), app.stream(fk.Ephemeral()), app.stream(fk.Snapshots()), app.stream(fk.LogSends()),
        app.stream(engine="micro-batch"), app.stream(fk.Lazy("5 seconds"), engine="micro-batch"),
    ]  # fmt: skip
    of_frames = [
        app.stream(fk.Eager()), app.batch(rows=3), app.batch(every="1 minute", policy=fk.FullHistory()),
        app.batch(rows=3, policy=fk.Eager()),
    ]  # fmt: skip

    def body(pages: Any) -> Any:
        got.append(type(pages).__name__)
        return pages.select("id")

    for number, decorate in enumerate(of_streams if kind == "Stream" else of_frames):
        body.__name__ = f"p{number}"
        decorate(body)
        app.sink(f"to-{number}", f"p{number}", fk.Kafka(f"t{number}"))
    plan = plan_application(app, spark, "deadbeef")
    assert got == [kind] * 2 * len(app.processors)
    assert len(plan.regions) + len(plan.batches) >= len(app.processors)


def test_a_batch_that_takes_its_dataframe_for_a_stream_is_told(spark: "SparkSession") -> None:
    app = fk.App("mistaken")
    app.source("pages", fk.Kafka("pages", schema="words ARRAY<STRING>"))

    @app.stream(fk.Eager())
    def split(pages: Any) -> Any:
        return pages.explode("words", "word")

    app.sink("out", split, fk.Kafka("out"))
    with pytest.raises(fk.DefinitionError) as caught:
        plan_application(app, spark, "deadbeef")
    assert caught.value.condition == "BATCH_INVALID"
    assert "called with DataFrames: write F.explode(column)" in str(caught.value.hint)
