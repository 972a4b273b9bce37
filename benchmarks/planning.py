"""Planning bench: the time that the plan of an application of ten processors takes, beyond Spark's start.

It needs no broker. CPU time includes the JVM, so it says more than wall time on a machine that does other work.
"""

import time
from collections.abc import Callable
from typing import Annotated

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import falkirk as fk
from benchmarks.report import Report
from falkirk.plan.planner import plan_application
from falkirk.spark_setup.spark import spark_session

#: The plans of the same application, one after the other, in one Spark session.
PLANS = 4


def run_planning(say: Callable[[str], None]) -> Report:
    """Plan the application several times, and return the figures of Spark's start and of each plan."""
    report, clock = Report(bench="planning", settings={"plans": PLANS}), _Clock()
    session = spark_session("planning", master="local[2]", brief=True, shows_log=False)
    say(clock.lap(report, "start", "Spark's start"))
    for number in range(1, PLANS + 1):
        plan = plan_application(application(), session, "planning")
        say(clock.lap(report, f"plan_{number}", f"plan {number}"))
    say(f"{len(plan.regions)} regions, {len(plan.batches)} batches")
    session.stop()
    return report


class _Clock:
    def __init__(self) -> None:
        self._last = self._now()

    def lap(self, report: Report, name: str, text: str) -> str:
        """Record the time since the last lap, and return it as a line."""
        wall_s, processor_s = (now - last for now, last in zip(self._now(), self._last, strict=True))
        report.figures |= {f"{name}_wall_s": round(wall_s, 1), f"{name}_processor_s": round(processor_s, 1)}
        self._last = self._now()
        return f"{text}: {wall_s:.1f} s, {processor_s:.1f} s of CPU time, load {psutil.getloadavg()[0]:.0f}"

    @staticmethod
    def _now() -> tuple[float, float]:
        here = psutil.Process()
        used = [process.cpu_times() for process in (here, *here.children(recursive=True))]
        return time.monotonic(), sum(each.user + each.system for each in used)


def application() -> fk.App:
    """Return the application: five live processors and five batches, with hops, states and views."""
    app = fk.App("planning")
    schema = "id STRING NOT NULL, customer STRING, items ARRAY<STRING>, price INT"
    app.source("orders", fk.Kafka("orders", schema=schema))

    @app.stream(fk.Ephemeral())
    def paid(orders: fk.Stream) -> fk.Stream:
        return orders.where("price > 0")

    @app.stream(fk.Ephemeral())
    def items(paid: fk.Stream) -> fk.Stream:
        return paid.explode("items", "item").select("item", "customer", "price")

    @app.stream(fk.Lazy("10 seconds"))
    def sales(items: fk.Stream) -> fk.Stream:
        return items.groupBy("item").agg(F.count("*").alias("sold"), fk.latest_value("customer"))

    @app.stream(fk.Ephemeral())
    def popular(sales: fk.Stream) -> fk.Stream:
        return sales.where("sold > 100").withColumn("name", F.upper("item"))

    @app.stream(fk.Lazy("10 seconds"))
    def buyers(orders: fk.Stream) -> fk.Stream:
        return orders.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("price").alias("spent"))

    _batches(app)
    for name in ("popular", "buyers"):
        app.sink(name, name, fk.Kafka(name))
    for name in ("ranked", "sizes", "answers"):
        app.sink(name, name, fk.Files(f"planning/{name}", format="json"))
    return app


def _batches(app: fk.App) -> None:
    @app.batch(every="1 minute")
    def turnover(items):  # type: ignore[no-untyped-def]
        return items.groupBy("item").agg(F.sum("price").alias("total"))

    @app.batch(every="1 minute", state="item STRING, total LONG")
    def totals(turnover, totals):  # type: ignore[no-untyped-def]
        return totals.unionByName(turnover).groupBy("item").agg(F.sum("total").alias("total"))

    @app.batch(every="1 minute")
    def ranked(totals):  # type: ignore[no-untyped-def]
        return totals.withColumn("level", F.expr("CAST(log10(total + 1) AS INT)"))

    @app.batch(rows=1000)
    def sizes(orders):  # type: ignore[no-untyped-def]
        return orders.select(F.size("items").alias("size")).groupBy("size").count()

    @app.stream(fk.Eager())
    def answers(orders, sales: Annotated[DataFrame, fk.View], totals: Annotated[DataFrame, fk.View]):  # type: ignore[no-untyped-def]
        asked = orders.select("id", F.explode("items").alias("item"))
        return asked.join(sales.select("item", "sold"), "item", "left").join(totals, "item", "left")
