"""The training of the class archives: an application with typical parts, so that the JVMs save their classes.

It has a live region with state, a batch with state, sinks of two kinds, a Python function, and a broker. Both JVMs save
their classes when they end. A JVM loads classes outside the training as usual.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.declare.application import Application
from falkirk.declare.endpoints import Files, Kafka
from falkirk.declare.grouped import latest_value
from falkirk.declare.policy import Lazy
from falkirk.declare.stream import Stream
from falkirk.errors.conditions.commands import ARCHIVE_NOT_MADE
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.archive import archive_file, driver_class_path, made
from falkirk.spark_setup.java import find_java
from falkirk.spark_setup.module import module_jar
from falkirk.spark_setup.spark import spark_session
from falkirk.spark_setup.stopping import stop_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PATIENCE_S = 300.0
_ROUNDS = 2


def make_archives() -> Path:
    """Return the folder of this machine's class archives; make them first if they are absent.

    Raises: MachineError: `ARCHIVE_NOT_MADE`, or an error about missing Java or jars.
    """
    return made(find_java(), train)


def train(folder: Path) -> None:
    """Run the training application and its broker, which write their archives to `folder`.

    Raises: MachineError: `ARCHIVE_NOT_MADE`, with the application's last output.
    """
    print("Making the class archives (270 MB, a minute or two, once per machine) …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="falkirk-training-") as scratch:
        kafka = Path(scratch) / "broker"
        broker = local_broker.start(kafka, java_options=_saving(archive_file(folder, "broker")))
        try:
            saving = " ".join(_saving(archive_file(folder, "spark")))
            done = subprocess.run(
                [sys.executable, "-m", "falkirk.user_tools.commands.training", broker.bootstrap],
                cwd=scratch, env={**os.environ, "SPARK_SUBMIT_OPTS": saving},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
        finally:
            local_broker.stop(kafka, timeout_s=_PATIENCE_S)
    if done.returncode != 0:
        raise ARCHIVE_NOT_MADE.error(lacking=("spark",), reason=" ".join(done.stdout.splitlines()[-3:]))


def _saving(file: Path) -> tuple[str, ...]:
    """Return the options of a JVM that saves its classes. The archive also fits other compilers and collectors."""
    return *local_broker.SHORT_RUN, f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds*=error"


def _application(home: Path) -> Application:
    """Return the training application."""
    app = Application("training", home=home)
    app.source("events", Kafka("events", schema="word STRING NOT NULL, n INT", key="word"))

    @app.stream(Lazy("2 seconds"))
    def counts(events: Stream) -> Stream:
        return events.where("word <> ''").groupBy("word").agg(F.count("*").alias("seen"), latest_value("n"))

    @app.batch(every="1 second", state="word STRING, total LONG")
    def totals(events: "DataFrame", totals: "DataFrame") -> "DataFrame":
        read = events.mapInArrow(_as_it_is, events.schema).selectExpr("word", "1L AS total")
        return totals.unionByName(read).groupBy("word").agg(F.sum("total").alias("total"))

    app.sink("counts", counts, Kafka("counts", key="word"))
    app.sink("totals", totals, Kafka("totals", key="word"))
    app.sink("files", totals, Files("totals"))
    return app


def _as_it_is(parts: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    yield from parts


def main() -> None:
    """Run the application on the given broker until it has saved some checkpoints and epochs."""
    connection = Connection.of(sys.argv[1])
    topics = Topics(connection)
    topics.create("events", 2, {})
    producer = Producer({"bootstrap.servers": sys.argv[1]})
    spark_session("training", master="local[32]", settings=_class_path())
    query = run_here(_application(Path("home")), connection, create_topics=True)
    for number in range(_ROUNDS):
        before = _ends(topics)
        for n in range(40):
            word = f"word {n % 10}"
            producer.produce("events", key=word, value=json.dumps({"word": word, "n": number}))
        producer.flush()
        deadline = time.monotonic() + _PATIENCE_S
        while not all(end > before[topic] for topic, end in _ends(topics).items()):
            if not query.isActive or time.monotonic() > deadline:
                raise SystemExit(f"no results: {query.exception() or query.status}")
            query.awaitTermination(0.5)
    query.stop()
    _end(SparkSession.builder.getOrCreate())


def _class_path() -> dict[str, str]:
    """Return the settings of a session whose archive fits every Java module.

    An archive contains the class path up to the last jar from which the JVM has loaded a class. Spark loads the classes
    of `spark.jars` by a separate loader, and the JVM saves none of these.
    """
    archived = os.pathsep.join(map(str, driver_class_path()))
    return {"spark.driver.extraClassPath": archived, "spark.jars": str(module_jar())}


def _ends(topics: Topics) -> dict[str, int]:
    return {topic: sum(topics.end_positions(topic).values()) for topic in ("counts", "totals")}


def _end(session: SparkSession) -> None:
    """End the JVM normally, and wait until it has saved its classes."""
    stop_session(session)
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]  # not in its stubs
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    main()
