"""A random application: four sinks, each after a different kind of pipeline, with steps that a seed chooses.

Falkirk infers the promise of each sink. Some results are published on arrival although they contain random values;
others are held. `believed` is like a held one, but its user wrongly asserts that it is deterministic, and a kill must
show that. `DRAWN_KIND` chooses live pipelines or epochs; `DRAWN_SINKS` chooses among the sinks of epochs. The file
`DRAWN_BEGUN` lists each started epoch with its process. While a file with the same name and
the suffix `.held` exists, no epoch finishes.
"""

import os
import random
import threading
import uuid
import zlib
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import falkirk as fk

#: A function of a stream or of an epoch's rows: both have the methods that it calls.
Pipeline = Callable[[Any], Any]

_HONEST = not os.environ.get("DRAWN_LIE")
SEED, TAG = int(os.environ.get("DRAWN_SEED", "0")), os.environ.get("DRAWN_TAG", "")
EVENTS = "id STRING NOT NULL, word STRING NOT NULL, n INT"
#: Seconds between the checkpoints of the asserted processors: each kill finds results that no checkpoint covers.
SELDOM_S = 6
#: Steps whose random values depend on the row: each result has its own value.
ROW_BY_ROW: dict[str, Pipeline] = {
    "uuid": lambda s: s.withColumn("lot", F.expr("uuid()")),
    "rand": lambda s: s.withColumn("lot", F.rand().cast("string")),
    "clock": lambda s: s.withColumn("lot", F.current_timestamp().cast("string")),
    "cipher": lambda s: s.withColumn("lot", F.expr("base64(aes_encrypt(word, '0000111122223333'))")),
}
#: Deterministic steps.
PLAIN: dict[str, Pipeline] = {
    "nothing": lambda s: s,
    "some": lambda s: s.where("n % 5 <> 0"),
    "more": lambda s: s.withColumn("twice", F.col("n") * 2),
    "renamed": lambda s: s.withColumnRenamed("n", "m").withColumnRenamed("m", "n"),
}


def chained(stream: fk.Stream) -> fk.Stream:
    """Fold random values into a state, so that each result depends on all earlier values."""
    return stream.groupBy("word").agg(
        F.count("*").alias("version"), fk.latest_value("n"), fk.latest_value("lot"),
        F.sum(F.crc32(F.col("lot").cast("binary"))).alias("chain"),
    )  # fmt: skip


def parted(stream: fk.Stream) -> fk.Stream:
    """Make three results of each record, which share the random value."""
    return stream.explode(F.array(F.lit(0), F.lit(1), F.lit(2)), "part")


chosen = random.Random(SEED)
app = fk.App("drawn", kafka=os.environ.get("DRAWN_BROKER"), home=os.environ.get("DRAWN_HOME", ".falkirk/drawn"))
app.source("keyed", fk.Kafka(f"events-{TAG}", schema=EVENTS, key="word"))
app.source("loose", fk.Kafka(f"events-{TAG}", schema=EVENTS))


def _told(body: Callable[..., Any], *, honest: bool = _HONEST) -> Callable[..., Any]:
    """Assert that a processor is deterministic, if the test asks for it; the assertion is false."""
    return body if honest else fk.deterministic(body)


def _steps() -> tuple[Pipeline, Pipeline]:
    return PLAIN[chosen.choice([*PLAIN])], ROW_BY_ROW[chosen.choice([*ROW_BY_ROW])]


# -- live --------------------------------------------------------------------------------------------------------------


def _live(name: str, source: str, last: Pipeline | None, *, honest: bool = _HONEST) -> None:
    plain, draw = _steps()

    def body(stream: fk.Stream) -> fk.Stream:
        found = draw(plain(stream))
        return found if last is None else last(found)

    seconds = chosen.randint(1, 3)
    policy = fk.Lazy(f"{seconds if honest else SELDOM_S} seconds")
    app.add_processor(name, _told(body, honest=honest), reads=(source,), policy=policy)
    key = "word" if last is chained else chosen.choice([None, "word"])
    app.sink(f"{name}-sink", name, fk.Kafka(f"{name}-{TAG}", key=key))


def _behind() -> None:
    """Declare a batch that reports the newest result of each word in the random state."""

    @app.batch(every="2 seconds")
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
            file.write(f"{name} {number} {os.getpid()}\n")
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

    for name in os.environ["DRAWN_SINKS"].split():
        app.sink(f"{name}-sink", name, fk.Kafka(f"{name}-{TAG}", key="word"))


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
    _live("hopped", "loose", chained)
    _live("believed", "keyed", chained, honest=False)
