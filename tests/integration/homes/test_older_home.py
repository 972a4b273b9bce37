"""A home that was restored from an older copy, while its outputs stayed: refused at each start."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import HomeError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.claim import MARK
from falkirk.runtime.spark.sinks.comparison import SinkComparison
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire, await_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_an_older_home_is_refused(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events", 1), wire.topic("out", 1)

    def run() -> Query:
        app = fk.App("older", home=home)
        app.source("events", fk.Kafka(events, schema="n INT NOT NULL"))
        app.add_processor("passed", lambda s: s.select(F.col("n")), reads=("events",), policy=fk.Lazy("1 second"))
        app.sink("out", "passed", fk.Kafka(out))
        return run_here(app, Connection.of(broker.bootstrap))

    for count in (1, 2):
        query = run()
        wire.send(events, [{"n": count}])
        wire.await_count(out, count, query)
        query.stop()
        if count == 1:
            copy = shutil.copytree(home, home.with_name("copy"))
    shutil.rmtree(home)
    shutil.copytree(copy, home)
    for _ in range(2):
        with pytest.raises(HomeError) as refused:
            run()
        assert refused.value.condition == "SINK_AHEAD"
        assert refused.value.parameters.items() >= {"sink": out, "seen": 2, "there": 1}.items()
    assert wire.count(out) == 2


def test_a_start_in_this_process_claims_the_home_before_it_plans(spark: "SparkSession", home: Path) -> None:
    """As a start in a process of its own does. The program is wrong, so planning would raise another error."""
    app = fk.App("copied", home=home)
    app.source("events", fk.Kafka("events", schema="n LONG"))
    app.add_processor("wrong", lambda events: events.select("missing"), reads=("events",), policy=fk.Lazy("5 seconds"))
    app.sink("out", "wrong", fk.Kafka("out"))
    home.mkdir(exist_ok=True)
    (home / MARK).write_text("another")
    with pytest.raises(HomeError) as caught:
        run_here(app, Connection.of("localhost:9"))
    assert caught.value.condition == "HOME_COPIED"


def test_an_older_home_of_a_batch_is_refused_and_would_lose_a_record(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the mechanism off, the older home uses the number of an epoch again that the folder already has. The folder
    skips the new epoch, and with it a record that the old one did not have."""
    wire, files = Wire(bootstrap=broker.bootstrap, tag=tag), home.with_name("files")
    events = wire.topic("events", 1)

    def run() -> Query:
        app = fk.App("older", home=home)
        app.source("events", fk.Kafka(events, schema="n INT NOT NULL"))

        @app.batch(every="500 milliseconds")
        def passed(events: "DataFrame") -> "DataFrame":
            return events.select("n")

        app.sink("out", passed, fk.Files(str(files), "json"))
        return run_here(app, Connection.of(broker.bootstrap))

    def there() -> set[int]:
        return {json.loads(line)["n"] for f in files.glob("epoch=*/*.json") for line in f.read_text().splitlines()}

    for n in (1, 2):
        query = run()
        wire.send(events, [{"n": n}])
        await_one(query, lambda n=n: n in there(), f"{n}")
        query.stop()
        if n == 1:
            copy = shutil.copytree(home, home.with_name("copy"))
    shutil.rmtree(home)
    copy.rename(home)
    wire.send(events, [{"n": 3}])
    with pytest.raises(HomeError) as refused:
        run()
    assert refused.value.condition == "SINK_AHEAD"
    assert refused.value.parameters.items() >= {"sink": "out", "seen": 2, "there": 1}.items()

    monkeypatch.setattr(SinkComparison, "_refuse_ahead", lambda comparison, name, upto: None)
    query = run()
    await_one(query, lambda: query.status[0].last_commit == 1, "the second epoch, made again of two records")
    wire.send(events, [{"n": 4}])
    await_one(query, lambda: 4 in there(), "a later epoch")
    query.stop()
    assert there() == {1, 2, 4}
