"""Corpus of batches, and of streams that run as batches: a plan shows their steps, or hides them."""

import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import falkirk as fk
from tests.integration.corpus import (
    ARRIVAL,
    BY_TIME,
    CHECKPOINT,
    EPOCH,
    LIVE,
    Body,
    batch,
    in_time,
    live,
    present,
)
from tests.integration.corpus_settled import SETTLED


def noisy(n):  # type: ignore[no-untyped-def]  # else Spark takes it for a vectorised one
    return n + uuid.uuid4().int % 1_000_000


def shifted(n):  # type: ignore[no-untyped-def]
    return n + 1


def noisy_mean(values: pd.Series) -> float:
    return float(values.mean() + random.random())


def _numbered(row: Any) -> tuple[str, str]:
    return row.s, str(uuid.uuid4())


vouched = fk.deterministic(lambda n: n + 1, because="it only adds")


def by_key(rows: DataFrame, *results: Any) -> DataFrame:
    return rows.groupBy("s").agg(*results)


def _drawn(events: DataFrame) -> DataFrame:
    return events.select("s", (F.rand() * 99).cast("int").alias("n"))


def _lots(events: DataFrame) -> int:
    return sum(row.n for row in _drawn(events).collect())


def _table(events: DataFrame, x: float) -> DataFrame:
    return events.sparkSession.createDataFrame([("k0", x)], "s STRING, x DOUBLE")


def newest(events: DataFrame, p: DataFrame) -> DataFrame:
    """Keep one row of each key: whichever comes first."""
    return p.unionByName(events.select("s", "n")).groupBy("s").agg(F.first("n").alias("n"))


def added(events: DataFrame, p: DataFrame) -> DataFrame:
    return p.unionByName(events.select("s", "n")).groupBy("s").agg(F.sum("n").cast("int").alias("n"))


def after_the_newest(events: DataFrame, p: DataFrame) -> DataFrame:
    """Omit rows that are older than those of earlier epochs: it depends on where they were cut, a decision."""
    seen = p.groupBy("s").agg(F.max("t").alias("upto"))
    good = events.join(seen, "s", "left").where("upto IS NULL OR t >= upto").select("s", "t")
    return p.unionByName(good)


def within(column: Callable[[], Any], amount: Callable[[], Any], how: Callable[[Any], Any] = F.sum) -> Body:
    """Return an aggregate of values inside a column of another type."""
    return lambda events: by_key(events.select("s", column().alias("p")), how(amount()).alias("x"))


def in_python(events: DataFrame) -> DataFrame:
    """Make a random value for each row in Python, if there are rows."""
    drawn = [(row.s, random.random()) for row in events.collect()]
    return events.sparkSession.createDataFrame(drawn, "s STRING, x DOUBLE")


def in_python_if_any(events: DataFrame) -> DataFrame:
    rows = events.select("s").toPandas()
    return events.select("s", F.lit(time.time() if len(rows) else 0.0).alias("x"))


def last_ones(events: DataFrame) -> DataFrame:
    """Keep the last rows, for any order of rows."""
    return events.sparkSession.createDataFrame([(row.s, row.n) for row in events.tail(3)], "s STRING, n INT")


@fk.deterministic(because="it takes each row as it is")
def vouched_rows(events: DataFrame) -> DataFrame:
    return events.sparkSession.createDataFrame([(row.s, row.n) for row in events.collect()], "s STRING, n INT")


@fk.deterministic(because="ties can't be")
def vouched_first(events: DataFrame) -> DataFrame:
    return by_key(events, F.first("n").alias("x"))


def told(step: Callable[[DataFrame], DataFrame]) -> Body:
    return lambda events: step(events)


def _in_a_view(events: DataFrame) -> DataFrame:
    events.createOrReplaceTempView("falkirk_corpus")
    return events.sparkSession.sql("WITH q AS (SELECT s, n FROM falkirk_corpus) SELECT a.s FROM q a JOIN q b USING (s)")


def _in_any_case(events: DataFrame) -> DataFrame:
    """Return keys with spellings that a collation holds for one."""
    return events.select(F.expr("collate(if(n > 2, upper(s), s), 'UTF8_LCASE')").alias("s"), "n")


def _filled(how: Callable[[Any], Any], least: str, greatest: str) -> Body:
    """Return a sum of values so large that two of them overflow."""
    amount = f"CASE d WHEN 1e16 THEN {greatest} WHEN -1e16 THEN {least} ELSE 0 END"
    return lambda events: by_key(events, how(F.expr(amount)).alias("x"))


_FULL = f"{9 * 10**37}"
_LONG, _NONE = "INTERVAL '60000000' DAY", "INTERVAL '0' DAY"
#: As SQL compares them, 0.0 and -0.0 are equal; written they are not. Computed: Spark takes two such literals for one.
_ZERO = "CAST(n - n AS DOUBLE) * if(n > 2, 1D, -1D)"


def _of_zeros(how: Callable[[Any], Any], column: str = _ZERO) -> Body:
    """Return an aggregate of values that are equal and are written in two ways."""
    return lambda events: by_key(events, how(F.expr(column)).alias("x"))


def in_sql(text: Callable[[], str]) -> Body:
    """Return a statement of SQL about `{rows}`."""
    return lambda events: events.sparkSession.sql(text(), rows=events)


def selected(text: str) -> Body:
    """Return keys with a constant."""
    return lambda events: events.select("s", F.expr(text).alias("x"))


BATCHES = {
    "rows": batch(EPOCH, told(lambda e: e.where("n > 1").select("s", "n"))),
    "lambdas": batch(EPOCH, told(lambda e: e.select(
        F.filter("a", lambda x: x != "x").alias("a"),
        F.aggregate("a", F.lit(""), lambda x, y: F.concat(x, y)).alias("n"),
    ))),
    "counted": batch(EPOCH, told(lambda e: by_key(e, F.count("*").alias("x")))),
    "summed": batch(EPOCH, told(lambda e: by_key(e, F.sum("n").alias("x")))),
    "summed as decimals": batch(EPOCH, told(lambda e: by_key(e, F.sum(F.col("d").cast("decimal(30,6)")).alias("x")))),
    "joined": batch(EPOCH, told(lambda e: e.join(by_key(e, F.max("n").alias("top")), "s").select("s", "n", "top"))),
    "distinct": batch(EPOCH, told(lambda e: e.select("s").distinct().unionByName(e.select("s")))),
    "one of each": batch(EPOCH, told(lambda e: e.select("s", "n").dropDuplicates(["s"])), same=False, ordered=True),
    "median": batch(EPOCH, told(lambda e: by_key(e, F.median("n").alias("x")))),
    "mean of whole numbers": batch(
        EPOCH, told(lambda e: by_key(e, F.avg(F.col("d").cast("long")).alias("x"))), same=False, ordered=True
    ),
    "summed as doubles": batch(EPOCH, told(lambda e: by_key(e, F.sum("d").alias("x"))), same=False, ordered=True),
    "summed as doubles in a struct": batch(
        EPOCH, within(lambda: F.struct("d"), lambda: F.col("p.d")), same=False, ordered=True
    ),
    "summed as doubles in an array": batch(
        EPOCH, within(lambda: F.array("d"), lambda: F.col("p")[0]), same=False, ordered=True
    ),
    "summed as doubles in a map": batch(
        EPOCH, within(lambda: F.create_map(F.lit("k"), "d"), lambda: F.element_at("p", "k")), same=False, ordered=True
    ),
    "summed as months": batch(
        EPOCH, within(lambda: F.col("t"), lambda: F.months_between("p", F.to_timestamp(F.lit("2025-12-11 07:00:00")))),
        same=False, ordered=True,
    ),
    "mean of whole numbers in a struct": batch(
        EPOCH, within(lambda: F.struct(F.col("d").cast("long").alias("i")), lambda: F.col("p.i"), F.avg),
        same=False, ordered=True,
    ),
    "summed as decimals in a struct": batch(
        EPOCH, within(lambda: F.struct(F.col("d").cast("decimal(30,6)").alias("i")), lambda: F.col("p.i") * 2)
    ),
    "mean of small numbers in an array": batch(EPOCH, within(lambda: F.array("n"), lambda: F.col("p")[0], F.try_avg)),
    "summed if possible": batch(EPOCH, told(lambda e: by_key(e, F.try_sum("n").alias("x")))),
    "summed as doubles if possible": batch(
        EPOCH, told(lambda e: by_key(e, F.try_sum("d").alias("x"))), same=False, ordered=True
    ),
    "summed as doubles in a subquery": batch(
        EPOCH,
        told(lambda e: e.sparkSession.range(1).select(
            e.where("s = 'k0'").agg(F.sum(F.struct("d")["d"])).scalar().alias("x"),
        )),
        same=False, ordered=True,
    ),
    "summed if it does not overflow": batch(
        EPOCH, _filled(F.try_sum, str(-(2**62)), str(2**62)), same=False, ordered=True
    ),
    "summed as wide decimals if it does not overflow": batch(
        EPOCH, _filled(F.try_sum, f"-{_FULL}", _FULL), same=False, ordered=True
    ),
    "mean of intervals if it does not overflow": batch(
        EPOCH,
        told(lambda e: by_key(e, F.try_avg(F.expr(
            f"CASE d WHEN 1e16 THEN {_LONG} WHEN -1e16 THEN -{_LONG} ELSE {_NONE} END"
        )).alias("x"))),
        same=False, ordered=True,
    ),
    "mean of whole numbers if possible": batch(EPOCH, told(lambda e: by_key(e, F.try_avg("n").alias("x")))),
    "greatest of zeros": batch(EPOCH, _of_zeros(F.max), same=False, ordered=True),
    "least of zeros in a struct": batch(
        EPOCH, _of_zeros(F.min, f"struct(CAST({_ZERO} AS FLOAT) AS f, 1 AS i)"), same=False, ordered=True
    ),
    "greatest of zeros in an array": batch(EPOCH, _of_zeros(F.max, f"array({_ZERO})"), same=False, ordered=True),
    "greatest of decimals": batch(EPOCH, _of_zeros(F.max, f"CAST({_ZERO} AS DECIMAL(10, 2))")),
    "median of zeros": batch(EPOCH, _of_zeros(F.median), same=False, ordered=True),
    "grouped by zeros": batch(EPOCH, told(lambda e: e.groupBy(F.expr(_ZERO).alias("z")).count())),
    "distinct zeros": batch(EPOCH, told(lambda e: e.select(F.expr(_ZERO).alias("z")).distinct())),
    "grouped by intervals": batch(
        EPOCH,
        told(lambda e: e.groupBy(F.expr("make_interval(0, 0, 0, if(n > 2, n, NULL))")).count().select("count")),
        same=False, ordered=True,
    ),
    "pivoted by what is there": batch(
        EPOCH, told(lambda e: e.groupBy("s").pivot("n").agg(F.first("t"))), same=False, ordered=True
    ),
    "one of each, by one column that is named twice": batch(
        EPOCH, told(lambda e: e.select("s", "n").dropDuplicates(["s", "S"])), same=False, ordered=True
    ),
    "rows of a SQL script": batch(
        EPOCH, told(lambda e: e.sparkSession.sql("BEGIN SELECT uuid() AS u; END")), same=False
    ),
    "joined with rows in SQL": batch(
        EPOCH, in_sql(lambda: "SELECT s, n + m AS x FROM {rows} JOIN VALUES ('k0', 1), ('k1', -2) AS v(s, m) USING (s)")
    ),
    "joined with rows in SQL that Python draws": batch(
        EPOCH, in_sql(lambda: f"SELECT s, x FROM {{rows}}, (VALUES ({random.random()})) AS v(x)"), same=False
    ),
    "joined with the present in SQL": batch(
        EPOCH, in_sql(lambda: "SELECT s, x FROM {rows}, (VALUES (timestamp'now')) AS v(x)"), same=False
    ),
    "a literal of the present in other quotes": batch(EPOCH, selected('timestamp_ltz"now"'), same=False),
    "a literal of the present behind a comment": batch(EPOCH, selected("timestamp /* */ r'now'"), same=False),
    "a literal of the present in letters that are escaped": batch(
        EPOCH, selected("timestamp_ntz'\\u006e\\u006fw'"), same=False
    ),
    "a word for the present that is put together": batch(
        EPOCH, selected("CAST(concat('no', 'w') AS TIMESTAMP)"), same=False
    ),
    "a word for the present that is put together, parsed": batch(
        EPOCH, selected("to_timestamp(reverse('won'))"), same=False
    ),
    "dates that are plain": batch(
        EPOCH, selected("array(date'2020-01-01', DATE \"2021-1-1\", CAST('2022-01-01' AS DATE), date'2023')"),
    ),
    "grouped under a collation": batch(
        EPOCH, told(lambda e: by_key(_in_any_case(e), F.count("*").alias("x"))), same=False, ordered=True
    ),
    "distinct under a collation": batch(EPOCH, told(lambda e: _in_any_case(e).select("s").distinct()), same=False,
                                        ordered=True),
    "greatest under a collation": batch(EPOCH, told(lambda e: _in_any_case(e).agg(F.max("s").alias("x"))), same=False,
                                        ordered=True),
    "grouped in one spelling of a collation": batch(
        EPOCH, told(lambda e: _in_any_case(e).groupBy(F.expr("collate(lower(s), 'UTF8_BINARY')").alias("s")).count()),
    ),
    "in a view and a common table expression": batch(EPOCH, _in_a_view),
    "in SQL that is given a DataFrame": batch(
        EPOCH, told(lambda e: e.sparkSession.sql("SELECT s, n FROM {rows} WHERE n > 1", rows=e)),
    ),
    "with a binary literal": batch(EPOCH, told(lambda e: e.select("s", F.lit(b"abc").alias("x")))),
    "with a binary literal that Python draws": batch(
        EPOCH, told(lambda e: e.select("s", F.lit(random.randbytes(8)).alias("x"))), same=False
    ),
    "pivoted": batch(EPOCH, told(lambda e: e.groupBy("s").pivot("n", [1, 2]).agg(F.max("t")))),
    "observed": batch(EPOCH, told(lambda e: e.observe("seen", F.count(F.lit(1))).select("s", "n"))),
    "joined laterally": batch(EPOCH, told(lambda e: e.sparkSession.sql(
        "SELECT s, m FROM {rows}, LATERAL (SELECT n + 1 AS m)", rows=e,
    ))),
    "rolled up": batch(EPOCH, told(lambda e: e.rollup("s").agg(F.grouping("s").alias("all"), F.max("n").alias("x")))),
    "stacked": batch(EPOCH, told(lambda e: e.selectExpr("s", "stack(2, n, n + 1) AS m"))),
    "in sessions": batch(EPOCH, told(lambda e: e.groupBy(F.session_window("t", "2 seconds")).count())),
    "regressed on": batch(
        EPOCH, told(lambda e: by_key(e, F.regr_avgx("d", "d").alias("x"))), same=False, ordered=True
    ),
    "whichever comes first": batch(EPOCH, told(lambda e: by_key(e, F.first("n").alias("x"))), same=False, ordered=True),
    "all in a list": batch(EPOCH, told(lambda e: by_key(e, F.collect_list("n").alias("x"))), same=False, ordered=True),
    "one of the greatest": batch(EPOCH, told(lambda e: by_key(e, F.max_by("n", F.lit(1)).alias("x"))), same=False,
                                 ordered=True),
    "deviating": batch(EPOCH, told(lambda e: by_key(e, F.stddev("d").alias("x"))), same=False, ordered=True),
    "numbered": batch(
        EPOCH,
        told(lambda e: e.withColumn("i", F.row_number().over(Window.partitionBy("s").orderBy("s"))).select("n", "i")),
        same=False, ordered=True,
    ),
    "some": batch(EPOCH, told(lambda e: e.select("s", "n").limit(3)), same=False, ordered=True),
    "identified": batch(EPOCH, told(lambda e: e.select("n", F.monotonically_increasing_id().alias("i"))), same=False,
                        ordered=True),
    "too late by the clock": batch(EPOCH, told(lambda e: in_time(e).select("s", "n")), same=False),
    "too late by what was seen": batch(EPOCH, after_the_newest, state="s STRING, t TIMESTAMP", twice=True),
    "too late by the log": batch(EPOCH, told(lambda e: by_key(e, F.count("*").alias("x"))), cut=BY_TIME),
    "a watermark": batch(
        EPOCH, told(lambda e: e.withWatermark("t", "1 second").select("s", "t").dropDuplicates()),
    ),
    "drawn": batch(EPOCH, told(lambda e: e.select("s", F.rand().alias("x"))), same=False),
    "of unknown Python": batch(EPOCH, told(lambda e: e.select(F.udf(shifted, "int")("n").alias("x"))), same=False,
                               ordered=True),
    "of noisy Python": batch(EPOCH, told(lambda e: e.select(F.udf(noisy, "int")("n").alias("x"))), same=False,
                             ordered=True),
    "of Python by a word": batch(EPOCH, told(lambda e: e.select(F.udf(vouched, "int")("n").alias("x")))),
    "by a word": batch(EPOCH, vouched_first),
    "of Python by a word, beside unknown Python in a subquery": batch(
        EPOCH,
        told(lambda e: e.select(
            F.udf(vouched, "int")("n").alias("n"), e.agg(F.max(F.udf(noisy, "int")("n"))).scalar().alias("x"),
        )),
        same=False, ordered=True,
    ),
    "of Python by a word, beside unknown Python": batch(
        EPOCH, told(lambda e: e.groupBy(F.udf(vouched, "int")("n")).agg(F.pandas_udf(noisy_mean, "double")("d"))),
        same=False, ordered=True,
    ),
    "the present": batch(EPOCH, told(lambda e: present(e).select("s", "now")), same=False),
    "rows that come out of Python": batch(EPOCH, told(lambda e: e.rdd.map(_numbered).toDF("s STRING, x STRING")),
                                          same=False, ordered=True),
    "rows that Python is handed": batch(EPOCH, told(in_python), same=False, ordered=True),
    "rows that Python is handed, if there are any": batch(EPOCH, told(in_python_if_any), same=False, ordered=True),
    "the last rows": batch(EPOCH, told(last_ones), same=False, ordered=True),
    "of Python by a word, which is handed the rows": batch(EPOCH, vouched_rows),
    "joined with rows that Python draws": batch(
        EPOCH, told(lambda e: e.join(_table(e, random.random()), "s").select("x")), same=False,
    ),
    "joined with rows of Python's": batch(
        EPOCH, told(lambda e: e.join(_table(e, 1.0), "s").select("x")),
    ),
    "timed in Python": batch(EPOCH, told(lambda e: e.select("s", F.lit(time.time()).alias("x"))), same=False),
    "a state of sums": batch(EPOCH, added, state="s STRING, n INT", policy=fk.Lazy(), twice=True),
    "a state of firsts, saved": batch(EPOCH, newest, state="s STRING, n INT", same=False, ordered=True, twice=True),
    "a state of firsts, told": batch(EPOCH, newest, state="s STRING, n INT", policy=fk.Lazy(), same=False, ordered=True,
                                     twice=True),
    "a state of lots that the plan has lost": batch(
        CHECKPOINT, lambda e, p: (p, p.unionByName(_drawn(e).localCheckpoint())),
        state="s STRING, n INT", policy=fk.Lazy(), same=False, twice=True,
    ),
    "a state of lots that were collected": batch(
        CHECKPOINT, lambda e, p: (p, p.unionByName(e.select("s", F.lit(_lots(e)).alias("n")))),
        state="s STRING, n INT", policy=fk.Lazy(), same=False, ordered=True, twice=True,
    ),
    "a state that was checkpointed": batch(EPOCH, lambda e, p: added(e.localCheckpoint(), p), state="s STRING, n INT",
                                           policy=fk.Lazy(), twice=True),
    "a state of firsts": batch(CHECKPOINT, lambda e, p: (p, newest(e, p)), state="s STRING, n INT", policy=fk.Lazy(),
                               same=False, ordered=True, twice=True),
    "drawn beside a state that is timed in Python": batch(
        CHECKPOINT, lambda e, p: (p.withColumn("x", F.rand()), e.select("s", F.lit(time.time()).alias("n"))),
        state="s STRING, n DOUBLE", policy=fk.Lazy(), same=False, twice=True,
    ),
    "timed in Python beside a state of sums": batch(
        EPOCH, lambda e, p: (e.select("s", F.lit(time.time()).alias("n")), added(e, p)), state="s STRING, n INT",
        policy=fk.Lazy(), same=False, twice=True,
    ),
    "drawn beside a state of sums": batch(
        EPOCH, lambda e, p: (e.select("s", F.rand().alias("x")), added(e, p)), state="s STRING, n INT",
        policy=fk.Lazy(), same=False, twice=True,
    ),
    "a folded stream": live(EPOCH, lambda s: s.stateful(
        lambda row, state: ([{"s": row.s}], {"n": 1}), key="s", state="n INT", returns="s STRING",
    ), same=False, ordered=True, twice=True, policy=fk.Eager()),
    "a folded stream, saved seldom": live(CHECKPOINT, lambda s: s.stateful(
        lambda row, state: ([{"s": row.s}], {"n": 1}), key="s", state="n INT", returns="s STRING",
    ), same=False, ordered=True, twice=True, policy=fk.Lazy("1 minute")),
    "a mapped stream": live(EPOCH, lambda s: s.map_rows(lambda row: {"n": noisy(row.n)}, returns="n INT"), same=False,
                            ordered=True, policy=fk.Eager()),
    "a mapped stream by a word": live(
        ARRIVAL, lambda s: s.map_rows(fk.deterministic(lambda row: {"n": row.n}), returns="n INT"),
    ),
} | SETTLED  # fmt: skip
PIPELINES = LIVE | BATCHES
