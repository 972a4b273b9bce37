"""Corpus: small pipelines with the expected inference for each: every source of differences alone, and together.

A pipeline is one or more processors in a row, between the source `events` and the sink `out`. The corpus has
the expected properties of its last processor, and when a result is published.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.cut import ByRows, ByTime, Cut
from falkirk.declare.policy import Policy

SCHEMA = "s STRING, n INT, d DOUBLE, a ARRAY<STRING>, t TIMESTAMP"
BY_ROWS = ByRows(rows=10)
BY_TIME = ByTime(column="t", every_us=10_000_000, late_us=1_000_000)
LAZY, EAGER = fk.Lazy(), fk.Eager()
ARRIVAL, EPOCH, CHECKPOINT = "on arrival", "with its epoch", "behind a checkpoint"
Body = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The expected inference.

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
    """Add a random value."""
    return stream.withColumn("lot", F.expr("uuid()"))


def present(rows: Any) -> Any:
    """Add the time at which it is computed, by a word that Spark takes for it."""
    return rows.withColumn("now", F.expr("CAST('now' AS TIMESTAMP)"))


@fk.deterministic(because="the seed is fixed")
def weighed(stream: fk.Stream) -> fk.Stream:
    return stream.withColumn("weight", F.rand(7))


@fk.deterministic(because="the greatest is the greatest")
def newest_tag(stream: fk.Stream) -> fk.Stream:
    return stream.groupBy("s").agg(F.max("lot").alias("x"))


@fk.deterministic
def parts(stream: fk.Stream) -> fk.Stream:
    return stream.explode("a", "part")


def sampled(stream: fk.Stream) -> fk.Stream:
    """Keep the rows that a random value selects."""
    return stream.where(F.rand() < 0.5)


def timed(stream: fk.Stream) -> fk.Stream:
    """Add the time at which it is computed."""
    return stream.withColumn("now", F.current_timestamp())


#: In microseconds: the tests' rows are of so long, and a clock that goes round in it is always somewhere among them.
_ROUND_US = 40_000_000


def in_time(rows: Any) -> Any:
    """Omit rows that are late by the clock: it depends on when the row was looked at."""
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
    "sum of doubles in a struct": live(
        ARRIVAL, lambda s: s.select("s", F.struct("d").alias("p")).groupBy("s").agg(F.sum("p.d").alias("x")),
        ordered=True, twice=True,
    ),
    "mean": live(ARRIVAL, kept("avg(d) AS x"), ordered=True, twice=True),
    "greatest": live(ARRIVAL, kept("max(n) AS x"), ordered=True),
    "first": live(ARRIVAL, kept("first(n) AS x"), ordered=True),
    "the one with the greatest": live(ARRIVAL, kept("max_by(d, n) AS x"), ordered=True),
    "latest": live(ARRIVAL, lambda s: s.groupBy("s").agg(fk.latest_value("n")), ordered=True),
    "deviation": live(ARRIVAL, kept("stddev(d) AS x"), ordered=True, twice=True),
    "a list": live(ARRIVAL, kept("collect_list(n) AS x"), ordered=True, twice=True),
    "a list of doubles": live(ARRIVAL, kept("array_agg(d) AS x"), key="s", ordered=True, twice=True),
    "a list as text": live(ARRIVAL, kept("listagg(s, ',') AS x"), key="s", ordered=True, twice=True),
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
    "lots of all kinds": live(ARRIVAL, lambda s: s.select(
        F.uuid().alias("u"), F.randstr(5).alias("t"), F.uniform(F.lit(1), F.lit(5)).alias("i"), F.randn().alias("g"),
        F.transform("a", lambda x: F.concat(x, F.rand().cast("string"))).alias("a"), F.lit(12345678901).alias("c"),
    ), same=False),
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
    "the latest tag": live(CHECKPOINT, lambda s: tagged(s).groupBy("s").agg(fk.latest_value("lot")), key="s",
                           same=False, ordered=True),
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
    "a tag in a state that is vouched for": live(CHECKPOINT, tagged, newest_tag, key="s", fused=True, ordered=True),
    "a tag that parts share that are vouched for": live(CHECKPOINT, tagged, parts, fused=True),
    "a tag as the key of what is vouched for": live(CHECKPOINT, tagged, fk.deterministic(lambda s: s), sink_key="lot",
                                                    fused=True),
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
    "a word for the present, parsed, in a state": live(
        CHECKPOINT,
        lambda s: s.selectExpr("s", "to_timestamp('now') AS now").groupBy("s").agg(F.max("now").alias("x")),
        key="s", same=False, ordered=True,
    ),
    "a clock in Python beside a lot": live(
        CHECKPOINT, lambda s: s.withColumns({"id": F.uuid(), "at": F.lit(time.time_ns())}), same=False,
    ),
    "a clock in Python": live(CHECKPOINT, lambda s: s.withColumn("now", F.lit(time.time())), same=False),
    "a lot in Python": live(CHECKPOINT, lambda s: s.withColumn("lot", F.lit(random.random())), same=False),
    "snapshots, as asked": live(CHECKPOINT, counted, policy=fk.Snapshots(), twice=True),
}  # fmt: skip
