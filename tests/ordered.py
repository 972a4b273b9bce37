"""States whose function gets the records of a key by their times, and a model of them in plain Python.

The function chains the numbers of all records of a key, so each result tells the order of those before it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import Row

import falkirk as fk
from tests import timed_streams, versioned

DELAY_S = versioned.DELAYS_S["orders"]
SCHEMA = "id STRING, at TIMESTAMP, n INT"
STATE = "seen STRING"
RETURNS = "id STRING, n INT, seen STRING, copy INT"
#: A result: the record's number, and the chain of the numbers up to it.
Result = tuple[int, str, int]


def _chain(seen: str | None, n: int) -> str:
    return hashlib.sha1(f"{seen},{n}".encode()).hexdigest()[:12]


@fk.deterministic
def chained(row: Row, state: Row | None) -> tuple[Any, Any]:
    """Chain the records of a key. The record's number says how many results it has, and what becomes of the state."""
    if row.n % 11 == 3:
        raise ValueError(f"no {row.n}")
    seen = _chain(None if state is None else state.seen, row.n)
    results = [{"id": row.id, "n": row.n, "seen": seen, "copy": copy} for copy in range(row.n % 3)]
    return results, None if row.n % 13 == 0 else {"seen": seen}


def steps(stream: fk.Stream) -> fk.Stream:
    """Return the steps of a processor. Records that a step leaves out have moved the time."""
    timed = stream.withWatermark("at", f"{DELAY_S} seconds").where("n % 7 <> 0")
    return timed.stateful(chained, key="id", state=STATE, returns=RETURNS, order="at")


@dataclass(kw_only=True)
class Expected:
    """The expected results. Args: letters: the numbers of records by the kind of their dead letter."""

    results: list[Result] = field(default_factory=list)
    letters: Counter[tuple[str, int]] = field(default_factory=Counter)


def expected(partitions: timed_streams.Records) -> Expected:
    """Return the results, sorted. The last record of each partition is left out by the steps."""
    found, letters = Expected(), timed_streams.Letters()
    records = [*timed_streams.fitting("orders", partitions, DELAY_S, letters)]
    found.letters.update(("late" if reason == "late" else "unfit", n) for (_, n), reason in letters.items())
    states: dict[str | None, Row | None] = {}
    for _, record in sorted(records, key=lambda each: (datetime.fromisoformat(each[1]["at"]), each[0])):
        name = record["id"]
        try:
            results, after = chained(Row("id", "n")(name, record["n"]), states.get(name))
        except ValueError:
            found.letters["failed", record["n"]] += 1
            continue
        found.results += [(each["n"], each["seen"], each["copy"]) for each in results]
        states[name] = None if after is None else Row("seen")(after["seen"])
    found.results.sort()
    return found


def drawn(seed: int, count: int, *, ids: int = 5) -> dict[int, list[dict[str, Any]]]:
    """Return random records of each partition, with the last ones. A key is in all partitions."""
    records, last = versioned.drawn(seed, count, ids=ids)["orders"], timed_streams.ends(count)
    return {partition: [*mine, *last[partition]] for partition, mine in records.items()}


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results in the values of a topic, with their repetitions, sorted."""
    return sorted((row["n"], row["seen"], row["copy"]) for row in rows)


def letters(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, int]]:
    """Return the dead letters in the values of a topic."""
    kinds = {True: "late", False: "unfit"}
    return Counter(
        ("failed" if row.get("traceback") else kinds[row["reason"] == "late"], json.loads(row["value"])["n"])
        for row in rows
    )
