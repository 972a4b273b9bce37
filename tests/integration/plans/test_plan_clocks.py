"""Constants that are another one on another day: which of them are known, in every spelling."""

from datetime import date
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from falkirk.steps.static_analysis.determinism import InBatch
from falkirk.steps.static_analysis.functions import DATED, PRESENT
from falkirk.steps.static_analysis.structure import KnownLeaves

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "s STRING, d DATE, t TIMESTAMP, z TIME"

DIFFER = [
    "date'today'", 'date"today"', "DATE r'today'", "date /* of */ 'today'", "date'\\u0074oday'", "date' TODAY '",
    "date'today' + 1", "timestamp'now'", "timestamp_ltz'now'", "timestamp_ntz\"tomorrow\"", "timestamp'12:30'",
    "timestamp'T12:30:00'", "timestamp'today Europe/Berlin'", "array(date'today')[0]",
    "cast('now' as timestamp)", "'today'::date", "try_cast('now' as timestamp)", "to_date('today')",
    "try_to_date('today')", "to_timestamp('now')", "to_timestamp_ntz('now')", "date_add('today', 1)", "t > 'now'",
    "cast('12:30' as timestamp)", "cast(concat('no', 'w') as timestamp)", "cast(reverse('won') as timestamp)",
    "cast(cast(unbase64('bm93') as string) as timestamp)", "to_timestamp(concat('no', 'w'))",
    "to_date(lower('TODAY'))", "try_to_timestamp(reverse('won'))", "cast(array('now') as array<timestamp>)[0]",
    "cast(chr(110) || chr(111) || chr(119) as timestamp)", "date_add(reverse('yadot'), 1)",
    "cast((SELECT '12:30') as timestamp_ltz)", "to_timestamp((SELECT max(x) FROM VALUES ('now') AS v(x)))",
    "cast(time'12:30' as timestamp_ntz)", "cast(z as timestamp_ntz)",
    "exists(SELECT 1 WHERE date'today' > date'2020-01-01')", "transform(array(1), x -> date'today')[0]",
]  # fmt: skip
SAME = [
    "date'2020-01-01'", 'DATE "2020-1-1"', "date'2020'", "date'2020-02'", "timestamp'2020-01-01 12:30:00.123'",
    "timestamp_ltz'2020-01-01T12:30:00Z'", "timestamp'2020-01-01 00:00:00 Europe/Berlin'",
    "timestamp_ntz'2020-01-01 12:30:00'", "time'12:30'", "date'2020-01-01' + 1", "interval '1' day",
    "cast('2020-01-01' as date)", "cast(' 2020-1-1 ' as timestamp)", "to_date('2020-01-01')", "d > '2020-01-01'",
    "to_date('today', 'yyyy-MM-dd')", "cast(null as date)", "cast(d as timestamp)", "cast(s as timestamp)",
    "cast(date_add(date'2020-01-01', 7) as timestamp)", "cast(1 + 1 as timestamp)", "to_timestamp(s)",
    "try_cast(concat(s, ' now') as timestamp)", "t > timestamp'2020-01-01 00:00:00' - interval '7' day", "s = 'now'",
    "cast(t as date)", "to_timestamp(s, 'yyyy')", "cast(z as string)",
]  # fmt: skip


def found(spark: "SparkSession", text: str) -> set[str]:
    rows = spark.createDataFrame([], SCHEMA)
    return set(InBatch.of(rows.select(F.expr(text).alias("x")), KnownLeaves.of({"rows": rows})).undetermined)


@pytest.mark.parametrize("text", DIFFER)
def test_what_is_another_constant_on_another_day_is_not_known(spark: "SparkSession", text: str) -> None:
    assert found(spark, text) & {PRESENT, DATED}


@pytest.mark.parametrize("text", SAME)
def test_what_is_plainly_a_date_is_known(spark: "SparkSession", text: str) -> None:
    assert found(spark, text) == set()


@pytest.mark.parametrize("day", ["date /* of */ 'yesterday'", "try_cast(' N\\117W ' as date)", "date(r'today')"])
def test_a_date_that_a_variable_of_sql_hands_over_is_not_known(spark: "SparkSession", day: str) -> None:
    """The plan shows a literal, as for a parameter of Python. Found by the hunt (seeds 56246745, 56246816)."""
    spark.sql(f"DECLARE OR REPLACE VARIABLE falkirk_day = {day}")
    rows = spark.createDataFrame([], SCHEMA)
    rows.createOrReplaceTempView("falkirk_rows")
    handed = spark.sql("EXECUTE IMMEDIATE 'SELECT s, ? AS x FROM falkirk_rows' USING falkirk_day")
    assert DATED in InBatch.of(handed, KnownLeaves.of({"rows": rows})).undetermined


def test_a_date_of_python_is_a_value(spark: "SparkSession") -> None:
    """Two calls of the function show whether it is another one."""
    rows = spark.createDataFrame([], SCHEMA)
    dated = rows.select(F.lit(date(2020, 1, 1)).alias("x"))
    assert not InBatch.of(dated, KnownLeaves.of({"rows": rows})).undetermined
