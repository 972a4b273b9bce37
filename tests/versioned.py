"""A model of as-of joins in plain Python: orders of products, and prices that change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.duplicates import BEGAN, HOSTILE, PARTITIONS

DELAYS_S = {"orders": 3, "prices": 5}
#: A price is valid for this long, in the joins with a tolerance.
TOLERANCE_S = 6
#: The last records, which move the times of all partitions far ahead. No product has this name.
END = (BEGAN + timedelta(days=1)).isoformat()

Records = Mapping[int, Iterable[Mapping[str, Any]]]
Result = tuple[int, int | None]
"""The number of an order, and that of its price."""


@dataclass(kw_only=True)
class Versioned:
    """The expected results. Args: letters: the reasons of dead letters, by stream and number of the record."""

    results: list[Result] = field(default_factory=list)
    letters: dict[tuple[str, int], str] = field(default_factory=dict)


def expected(orders: Records, prices: Records, how: str, tolerance_s: int | None = None) -> Versioned:
    """Return the results, sorted. A record with a number that 7 divides moves time, and is left out after that."""
    found = Versioned()
    stream, table = ([*fitting(name, of, found)] for name, of in (("orders", orders), ("prices", prices)))
    for _, order in stream:
        same = [each for each in table if order["id"] is not None and each[1]["id"] == order["id"]]
        past = [each for each in same if _time(each[1]) <= _time(order)]
        newest = max(past, key=lambda each: (_time(each[1]), each[0]), default=None)
        if newest is not None and tolerance_s is not None:
            age = _time(order) - _time(newest[1])
            newest = newest if age <= timedelta(seconds=tolerance_s) else None
        if newest is not None or how == "left":
            found.results.append((order["n"], None if newest is None else newest[1]["n"]))
    found.results.sort(key=str)
    return found


def fitting(name: str, partitions: Records, found: Versioned) -> Iterable[tuple[tuple[int, int], Mapping[str, Any]]]:
    """Yield the records that are not late, with their places."""
    for partition, records in partitions.items():
        greatest: datetime | None = None
        for offset, record in enumerate(records):
            at = record["at"]
            if at is None or at in HOSTILE:
                reason = "column at is null" if at is None else "column at is not between the years 1000 and 9000"
                found.letters[name, record["n"]] = reason
                continue
            greatest = _time(record) if greatest is None else max(greatest, _time(record))
            if record["n"] % 7 == 0:
                continue
            if _time(record) < greatest - timedelta(seconds=DELAYS_S[name]):
                found.letters[name, record["n"]] = "late"
                continue
            yield (partition, offset), record


def _time(record: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(record["at"])


def drawn(seed: int, count: int, *, ids: int = 12) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return random records of both streams, by partition. An id is in several, some are null. Times may be late, null,
    equal or hostile."""
    random = Random(seed)
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for name, delay_s in DELAYS_S.items():
        now = dict.fromkeys(range(PARTITIONS), BEGAN)
        found[name] = {p: [] for p in now}
        for n in range(1, count + 1):
            partition = random.randrange(PARTITIONS)
            now[partition] += timedelta(seconds=random.choice([0, 0, 1, 1, 2]))
            time = now[partition] - timedelta(seconds=random.choice([0, 0, 0, 1, 2, delay_s, delay_s + 3]))
            at = random.choices([time.isoformat(), None, *HOSTILE], [60, 1, 1, 1])[0]
            product = random.choice([None, *[f"i{i}" for i in range(ids)]])
            found[name][partition].append({"id": product, "at": at, "n": n})
    return found


def ends(first: int) -> dict[int, list[dict[str, Any]]]:
    """Return a last record for each partition of a stream, whose numbers 7 divides. Args: first: is less than them."""
    begin = first - first % 7 + 7
    return {p: [{"id": "end", "at": END, "n": begin + 7 * p}] for p in range(PARTITIONS)}


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results in the values of a topic, with their repetitions, sorted."""
    return sorted(((row["n"], row["right_n"]) for row in rows), key=str)
