"""A plan's leaves, and functions that Spark can't look into: Falkirk knows only the facts in the plan."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.steps.static_analysis.determinism import InBatch
from falkirk.steps.static_analysis.functions import Nature, entry_of
from falkirk.steps.static_analysis.structure import KnownLeaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "s STRING, n INT"
#: A catalog with a function that Spark calls as `StaticInvoke` or `Invoke`, by whether it is static.
CATALOG = """
package falkirktest;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.catalog.functions.*;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
public class Functions implements FunctionCatalog {
  private String name;
  public void initialize(String name, CaseInsensitiveStringMap options) { this.name = name; }
  public String name() { return name; }
  public Identifier[] listFunctions(String[] namespace) { return new Identifier[0]; }
  public UnboundFunction loadFunction(Identifier ident) {
    if (ident.name().equals("drawn")) { return new Drawn(); } else { return new Counted(); }
  }
  public abstract static class Any implements UnboundFunction, ScalarFunction {
    public String name() { return "any"; }
    public String description() { return "comes out differently"; }
    public BoundFunction bind(StructType input) { return this; }
    public DataType[] inputTypes() { return new DataType[] { DataTypes.IntegerType }; }
    public DataType resultType() { return DataTypes.DoubleType; }
  }
  public static class Drawn extends Any {
    public static double invoke(int n) { return n + Math.random(); }
  }
  public static class Counted extends Any {
    private double seen = 0;
    public double invoke(int n) { seen = seen + n; return seen; }
  }
}
"""


def planned(session: "SparkSession", body: Any, **options: Any) -> Plan:
    """Plan a batch, or a live stream, between a source and a sink."""
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema=SCHEMA, key="s"))
    app.add_processor("p", body, reads=("events",), **options)
    app.sink("out", "p", fk.Kafka("out"))
    return plan_application(app, session, "deadbeef")


def of_batch(session: "SparkSession", body: Any) -> tuple[str, ...]:
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema=SCHEMA))

    @app.batch(rows=10)
    def p(events: Any) -> Any:
        return body(events)

    app.sink("out", p, fk.Kafka("out"))
    return plan_application(app, session, "deadbeef").properties["p"].differs


@pytest.mark.parametrize("how", ["checkpointed", "made", "in a view", "in SQL"])
def test_rows_from_outside_a_batch_are_not_known(spark: "SparkSession", how: str) -> None:
    """The rows differ at each start of the program, and its plan does not contain them."""
    if how == "made":
        outside = spark.createDataFrame([("k0", 1)], "s STRING, x INT")
    else:
        outside = spark.range(3).select(F.concat(F.lit("k"), "id").alias("s"), F.uuid().alias("x")).localCheckpoint()

    def joined(events: "DataFrame") -> "DataFrame":
        if how == "in a view":
            outside.createOrReplaceTempView("falkirk_outside")
            return events.join(events.sparkSession.sql("SELECT * FROM falkirk_outside"), "s")
        if how == "in SQL":
            return events.sparkSession.sql(
                "SELECT s, x FROM {events} JOIN {rows} USING (s)", events=events, rows=outside
            )
        return events.join(outside, "s")

    (reason,) = of_batch(spark, joined)
    assert reason.startswith("a DataFrame from outside the function")


def test_a_frame_from_outside_is_not_known_in_a_live_step(spark: "SparkSession") -> None:
    outside = spark.range(3).select(F.rand().alias("x")).localCheckpoint()

    def above(stream: fk.Stream) -> fk.Stream:
        return stream.withColumn("x", outside.agg(F.max("x")).scalar())

    assert planned(spark, above, policy=fk.Lazy()).properties["p"].differs


def test_what_a_function_reads_and_makes_itself_is_known(spark: "SparkSession") -> None:
    def joined(events: "DataFrame") -> "DataFrame":
        session = events.sparkSession
        rates = session.createDataFrame([("k0", 1)], "s STRING, x INT")
        listed = session.sql("SELECT s, m FROM {rows} JOIN (VALUES ('k0', -1)) AS v(s, m) USING (s)", rows=events)
        return events.join(rates, "s").join(listed, "s").join(events.groupBy("s").count().localCheckpoint(), "s")

    assert of_batch(spark, joined) == ()


@pytest.mark.parametrize("name", ["drawn", "counted"])
def test_a_function_of_a_catalog_is_not_known(spark: "SparkSession", name: str) -> None:
    jvm: Any = spark._jvm
    compiler, thread = jvm.org.codehaus.janino.SimpleCompiler(), jvm.Thread.currentThread()
    before = thread.getContextClassLoader()
    compiler.setParentClassLoader(before)
    compiler.cook(CATALOG)
    thread.setContextClassLoader(compiler.getClassLoader())
    try:
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.falkirktest", "falkirktest.Functions")
        rows = session.createDataFrame([], SCHEMA)
        called = rows.select(F.expr(f"falkirktest.{name}(n)").alias("x"))
        undetermined = InBatch.of(called, KnownLeaves.of({"rows": rows})).undetermined
    finally:
        thread.setContextClassLoader(before)
    assert undetermined == {"StaticInvoke" if name == "drawn" else "Invoke"}


@pytest.mark.parametrize("bounds", ["ROWS 1 PRECEDING", "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"])
def test_all_of_a_window_is_in_the_table(spark: "SparkSession", bounds: str) -> None:
    rows = spark.createDataFrame([], SCHEMA)
    windowed = rows.select(F.expr(f"sum(n) OVER (PARTITION BY s ORDER BY n {bounds})"))
    plain = rows.select(F.sum("n").over(Window.partitionBy("s").orderBy("n").rowsBetween(-1, 1)))
    for data in (windowed, plain):
        found = InBatch.of(data, KnownLeaves.of({"rows": rows})).operations
        assert not [name for name in found if entry_of(name).nature is Nature.UNKNOWN]
