"""An application drawn from a seed: four sinks, each behind a pipeline of a kind, with steps of the seed's choice.

What each is promised is inferred: some results leave on arrival though something in them is drawn by lot, others are
held. `believed` is like one that is held, but its user vouches for it and is wrong: a kill must show that. `DRAWN_KIND`
says whether the pipelines are live, or epochs; `DRAWN_SINKS`, which of the latter there are. In the file `DRAWN_BEGUN`
each epoch that is begun is noted, and by which process; while there is one beside it, `.held`, none comes to an end.
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

#: On a stream, or on an epoch's rows: both have the methods that are called.
Pipeline = Callable[[Any], Any]

_HONEST = not os.environ.get("DRAWN_LIE")
SEED, TAG = int(os.environ.get("DRAWN_SEED", "0")), os.environ.get("DRAWN_TAG", "")
EVENTS = "id STRING NOT NULL, word STRING NOT NULL, n INT"
#: Seconds between the checkpoints of what is vouched for: each kill finds results that are not saved yet.
SELDOM_S = 6
#: What one row depends on: each result has its own draw.
ROW_BY_ROW: dict[str, Pipeline] = {
    "uuid": lambda s: s.withColumn("lot", F.expr("uuid()")),
    "rand": lambda s: s.withColumn("lot", F.rand().cast("string")),
    "clock": lambda s: s.withColumn("lot", F.current_timestamp().cast("string")),
    "cipher": lambda s: s.withColumn("lot", F.expr("base64(aes_encrypt(word, '0000111122223333'))")),
}
#: What is the same each time.
PLAIN: dict[str, Pipeline] = {
    "nothing": lambda s: s,
    "some": lambda s: s.where("n % 5 <> 0"),
    "more": lambda s: s.withColumn("twice", F.col("n") * 2),
    "renamed": lambda s: s.withColumnRenamed("n", "m").withColumnRenamed("m", "n"),
}


def chained(stream: fk.Stream) -> fk.Stream:
    """Fold what was drawn into a state, so that each result tells of all draws before it."""
    return stream.groupBy("word").agg(
        F.count("*").alias("version"), fk.latest("n"), fk.latest("lot"),
        F.sum(F.crc32(F.col("lot").cast("binary"))).alias("chain"),
    )  # fmt: skip


def parted(stream: fk.Stream) -> fk.Stream:
    """Make three of each, which share what was drawn."""
    return stream.explode(F.array(F.lit(0), F.lit(1), F.lit(2)), "part")


chosen = random.Random(SEED)
app = fk.App("drawn", kafka=os.environ.get("DRAWN_BROKER"), home=os.environ.get("DRAWN_HOME", ".falkirk/drawn"))
app.source("keyed", fk.Kafka(f"events-{TAG}", schema=EVENTS, key="word"))
app.source("loose", fk.Kafka(f"events-{TAG}", schema=EVENTS))


def _told(body: Callable[..., Any], *, honest: bool = _HONEST) -> Callable[..., Any]:
    """Vouch for a processor, if that is what the test wants: it is not true."""
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
    """Declare a batch that tells what the newest result of each word in the state that is drawn was."""

    @app.batch(every="2 seconds")
    def behind(held: DataFrame) -> DataFrame:
        newest = F.max_by(F.struct("version", "chain"), "version").alias("newest")
        return held.groupBy("word").agg(newest).select("word", "newest.*", of_epoch("behind"))

    app.sink("behind-sink", behind, fk.Kafka(f"behind-{TAG}", key="word"))


# -- epochs ------------------------------------------------------------------------------------------------------------


def of_epoch(name: str) -> Column:
    """Return the number of the epoch that a batch is called for."""
    number, begun = fk.epoch().number, os.environ.get("DRAWN_BEGUN")
    if number and begun:  # 0: it may be called for the plan
        with open(begun, "a") as file:
            file.write(f"{name} {number} {os.getpid()}\n")
        while os.path.exists(f"{begun}.held"):
            threading.Event().wait(0.05)
    return F.lit(number).cast("long").alias("epoch")


def _epochs() -> None:
    """Declare a batch that draws, one that adds up what that one drew, one that keeps what it draws itself, and a
    stream in micro-batches with a function of Python that draws."""
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

        def folded(keyed: fk.Stream) -> fk.Stream:  # a function for each: one alone is vouched for
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
