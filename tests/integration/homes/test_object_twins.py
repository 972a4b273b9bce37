"""A region with twins and its home in an object store: another machine resumes it, and each result is there once."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire, await_one
from tests.objects import BUCKET, ObjectStore
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = 3


class Counting:
    """A region with twins that counts by key. Each run is in a new folder, as on another machine."""

    def __init__(self, wire: Wire, postgres: Postgres, tag: str, folder: Path) -> None:
        self.wire, self.folder, self.runs, self.sent = wire, folder, 0, 0
        self.events, self.out = wire.topic("events", 1), wire.topic("out", 1)
        self.app = fk.App("shop", home=f"s3a://{BUCKET}/{tag}", store=postgres.url(), state_partitions=2)
        self.app.source("events", fk.Kafka(self.events, schema="word STRING NOT NULL", key="word"))
        self.app.add_processor(
            "counts", lambda events: events.groupBy("word").agg(F.count("*").alias("version")),
            reads=("events",), policy=fk.Lazy("5 seconds", twins=True),
        )  # fmt: skip
        self.app.sink("out", "counts", fk.Kafka(self.out, key="word"))

    def send(self) -> None:
        self.wire.send(self.events, [{"word": f"w{self.sent % WORDS}"}])
        self.sent += 1

    def start(self, broker: Broker) -> tuple[Query, LiveRegion]:
        self.runs += 1
        self.app.home = self.folder / f"machine-{self.runs}"
        query = run_here(self.app, Connection.of(broker.bootstrap))
        return query, cast(SupervisedRegion, query._host._units[query.status[0].name]).live

    def sends_twice(self, region: LiveRegion) -> bool:
        """Send a record, and return whether one query has dropped a result that the other one had sent."""
        self.send()
        return lanes.sent_ends(region._context, region.region.name)[0] > 0

    def await_covered(self, query: Query, region: LiveRegion) -> None:
        """Wait until a checkpoint in the object store covers everything that was sent."""
        due = self.sent
        await_one(
            query,
            lambda: (
                (numbers := region.files.numbers())
                and region.files.end_offsets(numbers[-1], region.logs.sources[0]).get(0, 0) >= due
            ),
            "a checkpoint in the object store",
        )


def test_another_machine_resumes_a_region_with_twins(
    spark: "SparkSession", broker: Broker, postgres: Postgres, objects: ObjectStore, tag: str, tmp_path: Path
) -> None:
    """A twin begins on each machine. The second one resumes from the first query's checkpoint alone."""
    counting = Counting(Wire(bootstrap=broker.bootstrap, tag=tag), postgres, tag, tmp_path)
    for _ in range(2):
        query, region = counting.start(broker)
        await_one(query, lambda: counting.sends_twice(region), "a twin at work")  # noqa: B023
        counting.await_covered(query, region)
        incarnations = query._home.store.incarnations(region.region.name)
        query.stop()
    assert [row.restored_batch >= 0 for row in incarnations] == [False, True]
    found = Counter((row["word"], row["version"]) for row in counting.wire.rows(counting.out))
    words = Counter(f"w{n % WORDS}" for n in range(counting.sent))
    assert found == Counter((word, n + 1) for word, times in words.items() for n in range(times))
    assert not [path for _, path in objects.requests if f"/{tag}/" in path and "/twin/" in path], "no copy of the twin"
