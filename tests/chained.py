"""Random chains of steps for both engines: row steps, one or two steps with a state, and more row steps.

Each step keeps the columns `id`, `at` and `n`, so any chain is a program. Its results are a function of its input, so
every engine and every timing of the input must give the same ones.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

import falkirk as fk
from tests.duplicates import DELAY_S

Step = Callable[[fk.Stream], fk.Stream]
SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
RETURNS, WITHOUT_KEY = "id STRING, at TIMESTAMP, n INT", "at TIMESTAMP, n INT"


@fk.deterministic
def halved(row: Row) -> list[dict[str, Any]]:
    """Return no result, one or two."""
    return [{"id": row.id, "at": row.at, "n": row.n // 2 + place} for place in range(row.n % 3)]


@fk.deterministic
def chained(row: Row, state: Row | None) -> tuple[Any, Any]:
    """Return a number that depends on all records of the key, in their order."""
    seen = ((0 if state is None else state.seen) * 31 + row.n) % 10_007
    return {"id": row.id, "at": row.at, "n": seen}, {"seen": seen}


@fk.deterministic
def reminding(row: Row, state: Row | None) -> tuple[Any, Any, datetime]:
    """Do the same, and set a timer."""
    return *chained(row, state), row.at + timedelta(seconds=row.n % 5 * 4)


@fk.deterministic
def reminded(key: Row, time: datetime, state: Row) -> tuple[Any, Any]:
    """Return the number at the time of a timer."""
    return {"id": key.id, "at": time, "n": -state.seen}, {"seen": (state.seen + 1) % 10_007}


def _without_id(returned: tuple[Any, ...]) -> tuple[Any, ...]:
    result, *others = returned
    return {name: value for name, value in result.items() if name != "id"}, *others


@fk.deterministic
def reminding_by_key(row: Row, state: Row | None) -> tuple[Any, ...]:
    """Do as `reminding`, without the key."""
    return _without_id(reminding(row, state))


@fk.deterministic
def reminded_by_key(key: Row, time: datetime, state: Row) -> tuple[Any, ...]:
    """Do as `reminded`, without the key."""
    return _without_id(reminded(key, time, state))


#: Row steps after which all records of an id are still in one partition of the source.
KEEPING: Mapping[str, Step] = {
    "where": lambda s: s.where("n % 7 <> 0"),
    "columns": lambda s: s.withColumn("n", F.expr("n * 2")),
    "explode": lambda s: s.explode(F.array("n", F.expr("n + 1000")), "m").selectExpr("id", "at", "m AS n"),
    "udf": lambda s: s.withColumn("n", F.udf(fk.deterministic(lambda n: n + 1), "int")("n")),
}
#: Row steps that may follow a step with a state.
AFTER: Mapping[str, Step] = {**KEEPING, "map_rows": lambda s: s.map_rows(halved, returns=RETURNS)}


def _state(function: Any, **options: Any) -> Step:
    return lambda s: s.stateful(function, key="id", state="seen INT", returns=RETURNS, **options)


def _window(window: Callable[[], Any], mode: str) -> Step:
    def step(stream: fk.Stream) -> fk.Stream:
        grouped = stream.groupBy(window().alias("w"), "id").outputMode(mode)
        return grouped.agg(F.sum("n").cast("int").alias("n")).selectExpr("id", "w.start AS at", "n")

    return step


def _after_first(name: str) -> Step:
    """Return a step of `STATES` after a `dropDuplicates` and row steps: one live region has both."""
    return lambda s: STATES[name][0](
        s.dropDuplicates(["id", "n"]).where("n % 11 <> 0").withColumn("n", F.expr("n + 1"))
    )


#: Steps with a state, and whether they need a `withWatermark` before them.
STATES: Mapping[str, tuple[Step, bool]] = {
    "state": (_state(chained), False),
    "first": (lambda s: s.dropDuplicates(["id", "n"]), True),
    "first of id": (lambda s: s.dropDuplicates(["id"]), True),
    "windows": (_window(lambda: F.window("at", "7 seconds"), "append"), True),
    "sliding": (_window(lambda: F.window(F.col("at"), "6 seconds", "2 seconds"), "update"), True),
    "sessions": (_window(lambda: F.session_window("at", "4 seconds"), "append"), True),
    "expiry": (_state(chained, expires="20 seconds"), True),
    "timers": (_state(reminding, on_timer=reminded), True),
    "both": (_state(reminding, on_timer=reminded, expires="20 seconds"), True),
    "order": (_state(chained, order="at"), True),
    "first, state": (_after_first("state"), True),
    "first, windows": (_after_first("windows"), True),
    "first, sessions": (_after_first("sessions"), True),
    "first, both": (_after_first("both"), True),
}


def timed(stream: fk.Stream) -> fk.Stream:
    """Return the stream with its event time."""
    return stream.withWatermark("at", f"{DELAY_S} seconds")


def program(seed: int) -> tuple[str, Step]:
    """Return a chain of steps, and its text. As many seeds in a row as `STATES` has entries have each once."""
    random = Random(seed)
    name = [*STATES][seed % len(STATES)]
    state, needs_time = STATES[name]
    before = random.sample([*KEEPING], random.randrange(3))
    after = random.choices([*AFTER], k=random.randrange(3))
    steps = [KEEPING[each] for each in before]
    names = [*before, name, *after]
    if needs_time:
        place = random.randrange(len(steps) + 1)
        steps.insert(place, timed)
        names.insert(place, "time")

    def chain(stream: fk.Stream) -> fk.Stream:
        for step in (*steps, state, *(AFTER[each] for each in after)):
            stream = step(stream)
        return stream

    return " > ".join(names), chain
