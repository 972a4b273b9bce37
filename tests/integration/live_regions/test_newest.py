"""The newest record of a key in a query: the last one. If that has not the greatest offset, the task fails."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.endpoints import Kafka
from falkirk.declare.nodes import SourceNode, Step
from falkirk.errors.location import caller
from falkirk.steps.dataframes.names import CO_PARTITIONING, STAMP
from falkirk.steps.live import stamped as frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Source, partition and offset of the records of one key, in the order in which a task gets them.
IN_ORDER, DISORDERED = [(0, 1, 4), (0, 1, 7), (0, 1, 9)], [(0, 1, 4), (0, 1, 9), (0, 1, 7)]
DOWN, UP = [(0, 1, 4), (0, 0, 9)], [(0, 0, 9), (0, 1, 4)]
TOPICS = [(0, 1, 4), (1, 1, 4)]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs a count with the latest value over records, as a query."""

    spark: "SparkSession"
    folder: Path

    def __call__(self, records: list[tuple[int, int, int]], *, several: bool = False) -> Row:
        """Return the result of the one key. Args: several: they may have several sources."""
        rows = [f"{s} {p} {o} {place}" for place, (s, p, o) in enumerate(records)]
        (self.folder / "in").mkdir()
        (self.folder / "in" / "one").write_text("\n".join(rows), "utf-8")
        parts: Any = F.split("value", " ")
        kinds = {"source": "int", "partition": "int", "offset": "long"}
        stamp = F.struct(*[parts[i].cast(kind).alias(name) for i, (name, kind) in enumerate(kinds.items())]).alias(
            STAMP
        )
        given = self.spark.readStream.text(str(self.folder / "in")).select(
            F.lit("a").alias("k"), parts[3].alias("n"), stamp
        )
        aggregates = F.count("*").alias("count"), fk.latest_value("n")
        source = SourceNode(name="s", topic=Kafka("s"))
        step = Step(parent=source, operation="agg", arguments=(("k",), aggregates), where=caller())
        counted = frames.apply(replace(frames.good(given), several=several), step)
        found: list[Row] = []

        def keep(batch: DataFrame, number: int) -> None:
            found.extend(batch.collect())

        query = counted.data.writeStream.outputMode("update").option("checkpointLocation", str(self.folder / "c"))
        query.trigger(availableNow=True).foreachBatch(keep).start().awaitTermination()
        (only,) = found
        return only


@pytest.fixture
def run(spark: "SparkSession", tmp_path: Path) -> Runs:
    return Runs(spark, tmp_path)


def test_the_last_record_is_the_newest(run: Runs) -> None:
    only = run(IN_ORDER)
    assert (only["count"], only["n"], only[STAMP]["partition"], only[STAMP]["offset"]) == (3, "2", 1, 9)


def test_records_in_another_order_fail_the_task(run: Runs) -> None:
    with pytest.raises(StreamingQueryException, match="another order: offset 7 after 9"):
        run(DISORDERED)


@pytest.mark.parametrize("records", [DOWN, UP])
def test_records_of_two_partitions_fail_the_task_in_either_order(
    run: Runs, records: list[tuple[int, int, int]]
) -> None:
    """Before the barrier, which would drop a result whose newest record is one that it has seen."""
    with pytest.raises(StreamingQueryException, match=rf"{CO_PARTITIONING}\|0\|1\|.*a"):
        run(records)


def test_records_of_two_topics_fail_the_task(run: Runs) -> None:
    """Their partitions have the same number, and only the source tells them apart."""
    with pytest.raises(StreamingQueryException, match=rf"{CO_PARTITIONING}\|1\|{2**32 + 1}\|.*a"):
        run(TOPICS, several=True)
