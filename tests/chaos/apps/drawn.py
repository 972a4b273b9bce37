"""An application drawn from a seed: four sinks, each behind a pipeline of a kind, with steps of the seed's choice.

What each is promised is inferred: some results leave on arrival though something in them is drawn by lot, others are
held.
"""

import os
import random
from collections.abc import Callable

from pyspark.sql import functions as F

import falkirk as fk

Pipeline = Callable[[fk.Stream], fk.Stream]

SEED, TAG = int(os.environ.get("DRAWN_SEED", "0")), os.environ.get("DRAWN_TAG", "")
EVENTS = "id STRING NOT NULL, word STRING NOT NULL, n INT"
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


def _declare(name: str, source: str, last: Pipeline | None) -> None:
    plain, draw = PLAIN[chosen.choice([*PLAIN])], ROW_BY_ROW[chosen.choice([*ROW_BY_ROW])]

    def body(stream: fk.Stream) -> fk.Stream:
        found = draw(plain(stream))
        return found if last is None else last(found)

    if os.environ.get("DRAWN_LIE"):
        fk.deterministic(body)  # it is not
    app.add_processor(name, body, reads=(source,), policy=fk.Lazy(f"{chosen.randint(1, 3)} seconds"))
    key = "word" if last is chained else chosen.choice([None, "word"])
    app.sink(f"{name}-sink", name, fk.Kafka(f"{name}-{TAG}", key=key))


_declare("rows", "loose", None)
_declare("parts", "loose", parted)
_declare("held", "keyed", chained)
_declare("hopped", "loose", chained)
