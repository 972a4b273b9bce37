"""Corpus: small pipelines with what has to be inferred of each, every way to be wrong alone and together.

A pipeline is one or more processors in a row, between the source `events` and the sink `out`. What is expected of it
are the properties of its last processor and when a result leaves.
"""

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.cut import ByRows, ByTime, Cut
from falkirk.policy import Policy

SCHEMA = "s STRING, n INT, d DOUBLE, a ARRAY<STRING>, t TIMESTAMP"
BY_ROWS = ByRows(rows=10)
BY_TIME = ByTime(column="t", every_us=10_000_000, late_us=1_000_000)
LAZY, EAGER = fk.Lazy(), fk.Eager()
ARRIVAL, EPOCH, CHECKPOINT = "on arrival", "with its epoch", "behind a checkpoint"
Body = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What has to be inferred.

    Args: release: when a result leaves. same: the last processor is deterministic. ordered: the order of rows matters
        to it. twice: a row that is taken in again counts again.
    """

    release: str
    same: bool = True
    ordered: bool = False
    twice: bool = False


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Processors in a row. Args: batch: the last one is a batch. fused: those before the last one are a part of it.
    state: its columns. key: of the source; sink_key."""

    bodies: tuple[Body, ...]
    expected: Expected
    policy: Policy = LAZY
    batch: bool = False
    fused: bool = False
    cut: Cut | ByTime = BY_ROWS
    state: str | None = None
    key: str | None = None
    sink_key: str | None = None


def live(release: str, *bodies: Body, key: str | None = None, sink_key: str | None = None, policy: Policy = LAZY,
         fused: bool = False, **known: bool) -> Pipeline:  # fmt: skip
    expected = Expected(release=release, **known)
    return Pipeline(bodies=bodies, expected=expected, key=key, sink_key=sink_key, policy=policy, fused=fused)


def batch(release: str, body: Body, *, policy: Policy = EAGER, state: str | None = None,
          cut: Cut | ByTime = BY_ROWS, **known: bool) -> Pipeline:  # fmt: skip
    expected = Expected(release=release, **known)
    return Pipeline(bodies=(body,), expected=expected, batch=True, policy=policy, state=state, cut=cut)


def tagged(stream: fk.Stream) -> fk.Stream:
    """Add what is drawn by lot."""
    return stream.withColumn("lot", F.expr("uuid()"))


def present(rows: Any) -> Any:
    """Add the time at which it is computed, by a word that Spark takes for it."""
    return rows.withColumn("now", F.expr("CAST('now' AS TIMESTAMP)"))


@fk.deterministic(because="the seed is fixed")
def weighed(stream: fk.Stream) -> fk.Stream:
    return stream.withColumn("weight", F.rand(7))


def sampled(stream: fk.Stream) -> fk.Stream:
    """Keep what a lot decides."""
    return stream.where(F.rand() < 0.5)


def timed(stream: fk.Stream) -> fk.Stream:
    """Add the time at which it is computed."""
    return stream.withColumn("now", F.current_timestamp())


#: In microseconds: the tests' rows are of so long, and a clock that goes round in it is always somewhere among them.
_ROUND_US = 40_000_000


def in_time(rows: Any) -> Any:
    """Leave out what comes too late by the clock: it depends on when the row was looked at."""
    return rows.where(F.unix_micros("t") % _ROUND_US > F.unix_micros(F.current_timestamp()) % _ROUND_US)


def counted(stream: fk.Stream) -> fk.Stream:
    return stream.groupBy("s").count()


def kept(aggregate: str) -> Body:
    """Return a keyed step."""
    return lambda stream: stream.groupBy("s").agg(aggregate)


LIVE = {
    # -- on arrival: the same on every replay --------------------------------------------------------------------------
    "as it is": live(ARRIVAL, lambda s: s),
    "select": live(ARRIVAL, lambda s: s.select("s", (F.col("n") * 2).alias("m"))),
    "where": live(ARRIVAL, lambda s: s.where("n > 1 AND s IS NOT NULL")),
    "text": live(ARRIVAL, lambda s: s.select(F.upper("s").alias("s"), F.md5("s").alias("m"))),
    "numbers": live(ARRIVAL, lambda s: s.select(F.sqrt("d").alias("r"), F.sin("d").alias("i"))),
    "choice": live(ARRIVAL, lambda s: s.select(F.when(F.col("n") > 1, F.col("s")).otherwise("x").alias("c"))),
    "json": live(ARRIVAL, lambda s: s.select(F.from_json("s", "a INT").alias("j"), F.to_json(F.struct("n")))),
    "arrays": live(ARRIVAL, lambda s: s.select(F.sort_array("a").alias("a"), F.transform("a", F.upper).alias("b"))),
    "times": live(ARRIVAL, lambda s: s.select(F.year("t").alias("y"), F.date_trunc("hour", "t").alias("h"))),
    "dates that are constants": live(ARRIVAL, lambda s: counted(s.where("t > DATE'2020-01-01'")), key="s", twice=True),
    "a word for the present in a column": live(
        ARRIVAL, lambda s: s.groupBy(F.expr("try_cast(concat(s, ' now') AS TIMESTAMP)").alias("k")).count(), twice=True,
    ),
    "explode": live(ARRIVAL, lambda s: s.explode("a", "part")),
    "count": live(ARRIVAL, counted, twice=True),
    "count, one key in one partition": live(ARRIVAL, counted, key="s", twice=True),
    "sum of whole numbers": live(ARRIVAL, kept("sum(n) AS x"), ordered=True, twice=True),
    "sum of doubles": live(ARRIVAL, kept("sum(d) AS x"), ordered=True, twice=True),
    "mean": live(ARRIVAL, kept("avg(d) AS x"), ordered=True, twice=True),
    "greatest": live(ARRIVAL, kept("max(n) AS x"), ordered=True),
    "first": live(ARRIVAL, kept("first(n) AS x"), ordered=True),
    "the one with the greatest": live(ARRIVAL, kept("max_by(d, n) AS x"), ordered=True),
    "latest": live(ARRIVAL, lambda s: s.groupBy("s").agg(fk.latest("n")), ordered=True),
    "deviation": live(ARRIVAL, kept("stddev(d) AS x"), ordered=True, twice=True),
    "distinct, about": live(ARRIVAL, kept("approx_count_distinct(n) AS x"), ordered=True),
    "window": live(ARRIVAL, lambda s: s.groupBy(F.window("t", "1 minute")).count(), twice=True),
    "words": live(ARRIVAL, lambda s: s.explode(F.split("s", " "), "word").groupBy("word").count(), twice=True),
    "two counts": live(ARRIVAL, counted, lambda s: counted(s.select(F.col("count").alias("s"))), twice=True),
    "having": live(ARRIVAL, counted, lambda s: s.where("count > 3")),
    # -- on arrival: drawn, and nobody can tell ------------------------------------------------------------------------
    "a tag": live(ARRIVAL, tagged, same=False),
    "a tag, with a key": live(ARRIVAL, tagged, sink_key="s", same=False),
    "a time": live(ARRIVAL, timed, same=False),
    "a word for the present": live(ARRIVAL, present, same=False),
    "a sample": live(ARRIVAL, sampled, same=False),
    "a seeded sample": live(ARRIVAL, lambda s: s.where(F.rand(7) < 0.5), same=False),
    "a cipher": live(ARRIVAL, lambda s: s.select(F.expr("aes_encrypt(s, '0000111122223333')").alias("c")), same=False),
    "a shuffled array": live(ARRIVAL, lambda s: s.select(F.shuffle("a").alias("a")), same=False),
    "a tag behind a count": live(ARRIVAL, lambda s: tagged(s.groupBy("s").count()), same=False, twice=True),
    "too late": live(ARRIVAL, lambda s: in_time(s), same=False),
    "too late, and a hop writes down what is not": live(ARRIVAL, in_time, counted, twice=True),
    "a tag for each part": live(ARRIVAL, lambda s: tagged(s.explode("a", "part")), same=False),
    "a tag that a hop writes down": live(ARRIVAL, lambda s: tagged(s).groupBy("s").agg(F.max("lot").alias("x")),
                                         same=False, ordered=True),
    "a tag that nobody counts": live(ARRIVAL, lambda s: counted(tagged(s)), key="s", twice=True),
    "a sample that a hop writes down": live(ARRIVAL, sampled, counted, twice=True),
    "a tag that is dropped": live(ARRIVAL, lambda s: tagged(s).drop("lot").explode("a", "part")),
    "a tag, logged": live(ARRIVAL, lambda s: tagged(s).groupBy("s").agg(F.max("lot").alias("x")), key="s",
                          policy=fk.LogSends(), same=False, ordered=True),
    # -- behind a checkpoint -------------------------------------------------------------------------------------------
    "a tag that parts share": live(CHECKPOINT, lambda s: tagged(s).explode("a", "part"), same=False),
    "a time that parts share": live(CHECKPOINT, lambda s: timed(s).explode("a", "part"), same=False),
    "a sample of wholes": live(CHECKPOINT, lambda s: sampled(s).explode("a", "part"), same=False),
    "parts in any order": live(CHECKPOINT, lambda s: s.explode(F.shuffle("a"), "part"), same=False),
    "too late, in a state": live(CHECKPOINT, lambda s: counted(in_time(s)), key="s", same=False, twice=True),
    "parts of what came too late": live(CHECKPOINT, lambda s: in_time(s).explode("a", "part"), same=False),
    "as many parts as a lot says": live(
        CHECKPOINT, lambda s: s.explode(F.array_repeat("s", (F.rand() * 5).cast("int")), "part"), same=False,
    ),
    "a tag in a state": live(CHECKPOINT, lambda s: tagged(s).groupBy("s").agg(F.max("lot").alias("x")), key="s",
                             same=False, ordered=True),
    "the latest tag": live(CHECKPOINT, lambda s: tagged(s).groupBy("s").agg(fk.latest("lot")), key="s", same=False,
                           ordered=True),
    "a time in a state": live(CHECKPOINT, lambda s: timed(s).groupBy("s").agg(F.max("now").alias("x")), key="s",
                              same=False, ordered=True),
    "a word for the present in a state": live(
        CHECKPOINT, lambda s: present(s).groupBy("s").agg(F.max("now").alias("x")), key="s", same=False, ordered=True,
    ),
    "a literal of the present": live(
        CHECKPOINT, lambda s: s.selectExpr("s", "timestamp'now' AS now"), same=False,
    ),
    "a lot in a state, behind another that is vouched for": live(
        CHECKPOINT, weighed, lambda s: s.withColumn("lot", F.rand()).groupBy("s").agg(F.max("lot").alias("x")),
        key="s", fused=True, same=False, ordered=True,
    ),
    "a sample in a state": live(CHECKPOINT, lambda s: counted(sampled(s)), key="s", same=False, twice=True),
    "a cipher in a state": live(
        CHECKPOINT,
        lambda s: s.withColumn("c", F.expr("base64(aes_encrypt(s, '0000111122223333'))")).groupBy("s").agg(
            F.max("c").alias("x")
        ),
        key="s", same=False, ordered=True,
    ),
    "a lot as a group": live(CHECKPOINT, lambda s: s.groupBy((F.rand() < 0.5).alias("coin")).count(), same=False,
                             twice=True),
    "a lot as the key": live(CHECKPOINT, lambda s: s.withColumn("lot", (F.rand() * 9).cast("int")), sink_key="lot",
                             same=False),
    "a tag in a state, then more": live(
        CHECKPOINT, lambda s: tagged(s).groupBy("s").agg(F.max("lot").alias("x")), lambda s: s.groupBy("x").count(),
        key="s", twice=True,
    ),
    "parts that share, then a count": live(
        CHECKPOINT, lambda s: tagged(s).explode("a", "part"), lambda s: s.groupBy("lot").count(), twice=True,
    ),
    "a clock in Python": live(CHECKPOINT, lambda s: s.withColumn("now", F.lit(time.time())), same=False),
    "a lot in Python": live(CHECKPOINT, lambda s: s.withColumn("lot", F.lit(random.random())), same=False),
    "snapshots, as asked": live(CHECKPOINT, counted, policy=fk.Snapshots(), twice=True),
}  # fmt: skip


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
    """Leave out what is older than what epochs before have seen: it depends on where they were cut, a decision."""
    seen = p.groupBy("s").agg(F.max("t").alias("upto"))
    good = events.join(seen, "s", "left").where("upto IS NULL OR t >= upto").select("s", "t")
    return p.unionByName(good)


@fk.deterministic(because="ties can't be")
def vouched_first(events: DataFrame) -> DataFrame:
    return by_key(events, F.first("n").alias("x"))


def told(step: Callable[[DataFrame], DataFrame]) -> Body:
    return lambda events: step(events)


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
    "of Python by a word, beside unknown Python": batch(
        EPOCH, told(lambda e: e.groupBy(F.udf(vouched, "int")("n")).agg(F.pandas_udf(noisy_mean, "double")("d"))),
        same=False, ordered=True,
    ),
    "the present": batch(EPOCH, told(lambda e: present(e).select("s", "now")), same=False),
    "rows that come out of Python": batch(EPOCH, told(lambda e: e.rdd.map(_numbered).toDF("s STRING, x STRING")),
                                          same=False, ordered=True),
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
        state="s STRING, n INT", policy=fk.Lazy(), same=False, twice=True,
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
        EPOCH, lambda s: s.map_rows(fk.deterministic(lambda row: {"n": row.n}), returns="n INT"), policy=fk.Eager(),
    ),
}  # fmt: skip
PIPELINES = LIVE | BATCHES
