"""The text for the program of a batch whose results go straight to their topic, to compare it between two processes."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.planner import plan_application
from falkirk.runtime.spark.epochs.direct import _around
from falkirk.steps.static_analysis.structure import KnownLeaves, digest, structure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def program(spark: "SparkSession", added: str) -> str:
    """Return the text for a program with a lambda, an observation and an option."""
    app = fk.App("direct", home=Path("home"))
    app.source("events", fk.Kafka("events", schema="n LONG NOT NULL"))

    @app.stream(fk.Eager())
    def numbers(events: "DataFrame") -> "DataFrame":
        return events.select("n")

    app.sink("numbers", numbers, fk.Kafka("numbers"))
    batch = plan_application(app, spark, "id").batches[0]
    rows = spark.range(3).select(F.col("id").alias("n"), F.array("id").alias("several"))
    rows = rows.select(F.expr(added).alias("n"), F.transform("several", lambda x: x + 1).alias("several"))
    rows = rows.select("n", F.to_json(F.struct("several"), {"ignoreNullFields": "false"}).alias("half"))
    result = rows.observe(Observation(), F.count("*").alias("rows"))
    return digest([structure_of(result, KnownLeaves()), _around(batch, spark)])
