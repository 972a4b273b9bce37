"""The steps of random programs, each with its model. Each step keeps the columns `id`, `at` and `n`."""

from collections.abc import Callable
from random import Random
from typing import Any

from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

import falkirk as fk
from tests import chained
from tests.chaos.program_models import FailedError, First, Row, States, Timed, Totals, Windows, operator


def _checked_number(n: int) -> int:
    """Fail on some numbers."""
    if n % 13 == 5:
        raise ValueError(f"no {n}")
    return n


@fk.deterministic
def checked_row(row: SparkRow) -> Any:
    """Fail on some rows."""
    return {"id": row.id, "at": row.at, "n": _checked_number(row.n)}


def _with_checked_numbers(stream: Any) -> Any:
    # From the hints of a function, PySpark would guess a kind of UDF.
    return stream.withColumn("n", F.udf(fk.deterministic(lambda n: _checked_number(n)), "int")("n"))


def _checked(row: Row) -> list[Row]:
    if row.n % 13 == 5:
        raise FailedError("failed")
    return [row]


def _halved(row: Row) -> list[Row]:
    given = chained.halved(SparkRow("id", "at", "n")(row.id, row.at, row.n))
    return [row._replace(n=each["n"]) for each in given]


#: A step: its text, its declaration, and the link of its model.
Step = tuple[str, Callable[[Any], Any], Any]

SIMPLE: list[Step] = [
    ("where", chained.KEEPING["where"], lambda row: [row] if row.n % 7 else []),
    ("columns", chained.KEEPING["columns"], lambda row: [row._replace(n=row.n * 2)]),
    ("explode", chained.KEEPING["explode"], lambda row: [row, row._replace(n=row.n + 1000)]),
]
KEEPING: list[Step] = [
    *SIMPLE,
    ("udf", chained.KEEPING["udf"], lambda row: [row._replace(n=row.n + 1)]),
    (
        "failing udf",
        lambda s: s.withColumn("n", F.udf(fk.deterministic(lambda n: _checked_number(n)), "int")("n")),
        _checked,
    ),
]
AFTER: list[Step] = [
    *KEEPING,
    ("map_rows", chained.AFTER["map_rows"], _halved),
    ("failing map_rows", lambda s: s.map_rows(checked_row, returns=chained.RETURNS), _checked),
]


def timed(delay_s: int) -> Step:
    """Return `withWatermark`."""
    return f"time {delay_s}", lambda s: s.withWatermark("at", f"{delay_s} seconds"), Timed(delay_s)


def first(random: Random) -> Step:
    size = random.choice([0, 5])
    if not size:
        return "first of id, n", lambda s: s.dropDuplicates(["id", "n"]), operator(lambda: First(lambda row: row.n))
    return (
        f"first of id, n % {size}",
        lambda s: s.withColumn("k", F.expr(f"pmod(n, {size})")).dropDuplicates(["id", "k"]).selectExpr("id", "at", "n"),
        operator(lambda: First(lambda row: row.n % size)),
    )


def window(random: Random) -> Step:
    mode = random.choice(["append", "update"])
    kinds: list[tuple[str, int, int, Callable[[], Any]]] = [
        ("tumbling", 7, 7, lambda: F.window("at", "7 seconds")),
        ("sliding", 6, 2, lambda: F.window("at", "6 seconds", "2 seconds")),
        ("session", 4, 0, lambda: F.session_window("at", "4 seconds")),
    ]
    name, size, slide, made = random.choice(kinds)

    def declare(stream: Any) -> Any:
        grouped = stream.groupBy(made().alias("w"), "id").outputMode(mode)
        return grouped.agg(F.sum("n").cast("int").alias("n")).selectExpr("id", "w.start AS at", "n")

    return f"{name} {mode}", declare, operator(lambda: Windows(size, slide, mode == "append"))


def _totals(stream: Any) -> Any:
    found = stream.groupBy("id").agg(
        F.max("at").alias("at"), F.sum("n").alias("total"), F.count("*").alias("seen"), fk.latest_value("n")
    )
    return found.selectExpr("id", "at", "CAST(pmod(total, 100003) + seen * 7 + n AS INT) AS n")


TOTALS: Step = ("totals", _totals, operator(Totals))


def python_state(random: Random, *, timed: bool) -> Step:
    """Return a step with a Python state. Args: timed: it may expire and have timers."""
    kind = random.choice(["expiry", "timers", "both", "plain"]) if timed else "plain"
    options: dict[str, Any] = {"key": "id", "state": "seen INT", "returns": chained.RETURNS}
    has_timers, expires = kind in ("timers", "both"), kind in ("expiry", "both")
    function: Any = chained.reminding if has_timers else chained.chained
    if has_timers:
        options["on_timer"] = chained.reminded
    if expires:
        options["expires"] = "20 seconds"
    model = operator(lambda: States(function, chained.reminded if has_timers else None, 20 if expires else None))
    return f"state {kind}", lambda s: s.stateful(function, **options), model


@fk.deterministic
def chained_by_key(row: SparkRow, state: SparkRow | None) -> tuple[Any, Any]:
    """Do as `chained`, without the key."""
    result, after = chained.chained(row, state)
    return {"at": result["at"], "n": result["n"]}, after


STATE_BY_KEY: Step = (
    "state by key",
    lambda s: s.stateful(
        chained_by_key, key="id", state="seen INT", returns=chained.WITHOUT_KEY, include_key=True
    ).selectExpr("id", "at", "n"),
    operator(lambda: States(chained.chained)),
)
