"""A random application: several sinks, each after a different kind of pipeline, with steps that a seed chooses.

Falkirk infers the promise of each sink. Some results are published on arrival although they contain random values;
others are held. `believed` is like a held one, but its user wrongly asserts that it is deterministic, and a kill must
show that. The test chooses the shapes of `hopped` and `extra`, and whether the user declares rightly that they are
deterministic. `DRAWN_KIND` chooses live pipelines or epochs; `DRAWN_SINKS` chooses among the sinks of epochs. The file
`DRAWN_BEGUN` lists each started epoch with its process, or with the value of `DRAWN_PROCESS`. While a file with the
same name and the suffix `.held` exists, no epoch finishes.
"""

import os
import random
import threading
import uuid
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.cut import OnArrival

#: A function of a stream or of an epoch's rows: both have the methods that it calls.
Pipeline = Callable[[Any], Any]

_HONEST = not os.environ.get("DRAWN_LIE")
SEED, TAG = int(os.environ.get("DRAWN_SEED", "0")), os.environ.get("DRAWN_TAG", "")
EVENTS = "id STRING NOT NULL, word STRING NOT NULL, n INT, at TIMESTAMP"
#: How `hopped` groups its records, the shape of `extra`, and which of the two has a true declaration.
HOPPED, EXTRA = os.environ.get("DRAWN_HOPPED", "words"), os.environ.get("DRAWN_EXTRA", "joined with a view")
VOUCHED = os.environ.get("DRAWN_VOUCHED", "").split()
#: Seconds between the checkpoints of the asserted processors: each kill finds results that no checkpoint covers.
SELDOM_S = 6
#: Seconds between the epochs of a stream. On arrival, epoch would follow upon epoch under load, and use a processor.
PAUSE_S = 4.0
OnArrival.may_be_due = lambda self, *, now_s, last_at_s: now_s - last_at_s >= PAUSE_S  # type: ignore[method-assign]
#: Steps whose random values depend on the row: each result has its own value.
ROW_BY_ROW: dict[str, Pipeline] = {
    "uuid": lambda s: s.withColumn("lot", F.expr("uuid()")),
    "rand": lambda s: s.withColumn("lot", F.rand().cast("string")),
    "clock": lambda s: s.withColumn("lot", F.current_timestamp().cast("string")),
    "cipher": lambda s: s.withColumn("lot", F.expr("base64(aes_encrypt(word, '0000111122223333'))")),
}
#: A step that Falkirk takes for random: in the mode ECB, encryption has no initialization vector.
ENCRYPTED = "base64(aes_encrypt(word, '0000111122223333', 'ECB'))"
#: Deterministic steps.
PLAIN: dict[str, Pipeline] = {
    "nothing": lambda s: s,
    "some": lambda s: s.where("n % 5 <> 0"),
    "more": lambda s: s.withColumn("twice", F.col("n") * 2),
    "renamed": lambda s: s.withColumnRenamed("n", "m").withColumnRenamed("m", "n"),
}


def chained(stream: fk.Stream, key: Column | str = "word") -> fk.Stream:
    """Fold random values into a state, so that each result depends on all earlier values."""
    return stream.groupBy(key).agg(
        F.count("*").alias("version"), fk.latest_value("n"), fk.latest_value("lot"),
        F.sum(F.crc32(F.col("lot").cast("binary"))).alias("chain"),
    )  # fmt: skip


def regrouped(stream: fk.Stream, key: Column) -> fk.Stream:
    """Number the records of each word, and fold the numbers by another key: two keyed steps in a row."""
    numbered = stream.groupBy("word").agg(
        F.count("*").alias("number"), fk.latest_value("n"), fk.latest_value("at"), fk.latest_value("lot")
    )
    lot = F.concat_ws("|", "lot", "word", F.col("number").cast("string"))
    return chained(numbered.select("n", "at", lot.alias("lot")), key.alias("word"))


#: The shapes of `hopped`: one keyed step, or two in a row. The second one groups by a number or by a window.
KEYED: dict[str, Pipeline] = {
    "words": chained,
    "teams": lambda s: regrouped(s, F.concat(F.lit("t"), (F.col("n") % 4).cast("string"))),
    "windows": lambda s: regrouped(s, F.window("at", "7 seconds").getField("start").cast("string")),
}


def parted(stream: fk.Stream) -> fk.Stream:
    """Make three results of each record, which share the random value."""
    return stream.explode(F.array(F.lit(0), F.lit(1), F.lit(2)), "part")


chosen = random.Random(SEED)
app = fk.App("drawn", kafka=os.environ.get("DRAWN_BROKER"), home=os.environ.get("DRAWN_HOME", ".falkirk/drawn"))
app.source("keyed", fk.Kafka(f"events-{TAG}", schema=EVENTS, key="word"))
app.source("loose", fk.Kafka(f"events-{TAG}", schema=EVENTS))


def _told(body: Callable[..., Any], *, honest: bool = _HONEST) -> Callable[..., Any]:
    """Assert that a processor is deterministic, unless it is honest to leave that to Falkirk."""
    return body if honest else fk.deterministic(body)


def _steps() -> tuple[Pipeline, Pipeline]:
    return PLAIN[chosen.choice([*PLAIN])], ROW_BY_ROW[chosen.choice([*ROW_BY_ROW])]


# -- live --------------------------------------------------------------------------------------------------------------


def _live(name: str, source: str, last: Pipeline | None, *, honest: bool = _HONEST, vouched: bool = False) -> None:
    """Declare a live processor. Args: honest: without a false declaration. vouched: with a true one."""
    plain, draw = _steps()
    if vouched:
        draw = lambda s: s.withColumn("lot", F.expr(ENCRYPTED))  # noqa: E731

    def body(stream: fk.Stream) -> fk.Stream:
        found = draw(plain(stream))
        return found if last is None else last(found)

    seconds = chosen.randint(2, 4)
    policy = fk.Lazy(f"{seconds if honest else SELDOM_S} seconds")
    app.add_processor(name, _told(body, honest=honest and not vouched), reads=(source,), policy=policy)
    key = "word" if last in KEYED.values() else chosen.choice([None, "word"])
    app.sink(f"{name}-sink", name, fk.Kafka(f"{name}-{TAG}", key=key))


def _behind() -> None:
    """Declare a batch that reports the newest result of each word in the random state."""

    @app.batch(every="4 seconds")
    def behind(held: DataFrame) -> DataFrame:
        newest = F.max_by(F.struct("version", "chain"), "version").alias("newest")
        return held.groupBy("word").agg(newest).select("word", "newest.*", of_epoch("behind"))

    app.sink("behind-sink", behind, fk.Kafka(f"behind-{TAG}", key="word"))


# -- epochs ------------------------------------------------------------------------------------------------------------


def of_epoch(name: str) -> Column:
    """Return the number of the epoch for which a batch is called."""
    number, begun = fk.current_epoch().number, os.environ.get("DRAWN_BEGUN")
    if number and begun:  # 0: a call of the planner
        with open(begun, "a") as file:
            file.write(f"{name} {number} {os.environ.get('DRAWN_PROCESS', os.getpid())}\n")
        while os.path.exists(f"{begun}.held"):
            threading.Event().wait(0.05)
    return F.lit(number).cast("long").alias("epoch")


def _epochs() -> None:
    """Declare four processors of epochs.

    A batch makes random values, a second one sums these values, and a third one keeps its own random values. A stream
    in micro-batches has a Python function that makes random values.
    """
    every, parts = f"{chosen.randint(3, 4)} seconds", chosen.choice([1, 3])
    plain, draw = _steps()
    plain_kept, draw_kept = _steps()

    @app.batch(every=every)
    @_told
    def lots(loose: DataFrame) -> DataFrame:
        part = F.explode(F.array(*map(F.lit, range(parts)))).alias("part")
        return draw(plain(loose)).select("*", part, of_epoch("lots"))

    @app.batch(every=every, state="word STRING, version LONG, chain LONG, upto LONG, epoch LONG")
    def sums(lots: DataFrame, sums: DataFrame) -> DataFrame:
        crc = F.crc32(F.col("lot").cast("binary"))
        new = lots.select("word", F.lit(1).alias("version"), crc.alias("chain"), F.col("epoch").alias("upto"))
        both = sums.drop("epoch").unionByName(new).groupBy("word")
        added = both.agg(F.sum("version").alias("version"), F.sum("chain").alias("chain"), F.max("upto").alias("upto"))
        return added.select("*", of_epoch("sums"))

    seldom = fk.Lazy(f"{chosen.randint(8, 10)} seconds" if _HONEST else "1 hour")

    @app.batch(every=every, policy=seldom,
               state="word STRING, ones ARRAY<STRING>, epoch LONG")  # fmt: skip
    @_told
    def kept(loose: DataFrame, kept: DataFrame) -> DataFrame:
        new = draw_kept(plain_kept(loose)).select("word", F.concat_ws("=", "id", "lot").alias("one"))
        both = kept.select("word", F.explode("ones").alias("one")).unionByName(new)
        return both.groupBy("word").agg(F.sort_array(F.collect_list("one")).alias("ones")).select("*", of_epoch("kept"))

    for name, policy, honest in (("folded", seldom, _HONEST), ("believed", fk.Lazy("1 hour"), False)):

        def folded(keyed: fk.Stream) -> fk.Stream:  # a separate function each: only one is asserted
            return keyed.stateful(
                fold, key="word", state="version LONG, chain LONG",
                returns="word STRING, n LONG, version LONG, lot STRING, chain LONG",
            )  # fmt: skip

        app.add_processor(name, _told(folded, honest=honest), reads=("keyed",), policy=policy, engine="micro-batch")

    sinks = os.environ["DRAWN_SINKS"].split()
    if "extra" in sinks:
        EXTRAS[EXTRA](every)
    for name in sinks:
        app.sink(f"{name}-sink", name, fk.Kafka(f"{name}-{TAG}", key="word"))


def _viewed(every: str) -> None:
    """Declare a batch that joins its rows with the newest sums."""

    @app.batch(every=every)
    @partial(_told, honest="extra" not in VOUCHED)
    def extra(lots: DataFrame, sums: fk.View) -> DataFrame:
        rows: Any = sums
        if "extra" in VOUCHED:  # true: no two rows have the same id and part
            lots = lots.dropDuplicates(["id", "part"])
        known = rows.select("word", F.col("version").alias("seen"), F.col("epoch").alias("of"))
        both = lots.drop("epoch").join(known, "word", "left")
        return both.select("id", "word", "n", "part", "lot", "seen", "of", of_epoch("extra"))


def _joined(_: str) -> None:
    """Declare a join of two streams in micro-batches."""

    def extra(keyed: fk.Stream, loose: fk.Stream) -> fk.Stream:
        lot = F.expr(ENCRYPTED if "extra" in VOUCHED else "md5(word)")
        return keyed.select("id", "word", "at", lot.alias("lot")).join(
            loose.select("id", "n", "at"), "id", time="at", within="1 minute"
        )

    body = _told(extra, honest="extra" not in VOUCHED)
    app.add_processor("extra", body, reads=("keyed", "loose"), policy=fk.Eager(), engine="micro-batch")


def _windowed(_: str) -> None:
    """Declare a batch whose epochs are windows of event time."""

    @app.batch(every="5 seconds", by="at", late="1 second")
    @partial(_told, honest="extra" not in VOUCHED)
    def extra(loose: DataFrame) -> DataFrame:
        if "extra" in VOUCHED:  # true: no two rows have the same id
            loose = loose.dropDuplicates(["id"])
        window = F.floor(F.unix_micros("at") / 5_000_000).alias("window")
        return loose.groupBy("word", window).agg(F.count("*").alias("events"), F.sum("n").alias("total"))


EXTRAS = {"joined with a view": _viewed, "streams joined": _joined, "windows of event time": _windowed}


def fold(row, state):  # type: ignore[no-untyped-def]
    lot = str(uuid.uuid4())
    version, chain = (state.version, state.chain) if state else (0, 0)
    after = {"version": version + 1, "chain": chain + zlib.crc32(lot.encode())}
    return {"word": row.word, "n": row.n, "lot": lot, **after}, after


if os.environ.get("DRAWN_KIND") == "epochs":
    _epochs()
else:
    _behind()
    _live("rows", "loose", None)
    _live("parts", "loose", parted)
    _live("held", "keyed", chained)
    told_true = "hopped" in VOUCHED
    _live("hopped", "keyed" if told_true and HOPPED != "words" else "loose", KEYED[HOPPED], vouched=told_true)
    _live("believed", "keyed", chained, honest=False)
