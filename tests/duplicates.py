"""A model of `withWatermark` and `dropDuplicates` in plain Python: it reads each partition's records in their order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
DELAY_S = 10
#: Times outside the years 1000 to 9000, which no record may have.
HOSTILE = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z")
PARTITIONS = 2


@dataclass(kw_only=True)
class Expected:
    """The expected results. Args: results: the numbers of the records that are the first of their id. letters: the
    reasons of dead letters, by the number of the record."""

    results: list[int] = field(default_factory=list)
    letters: dict[int, str] = field(default_factory=dict)


def expected(partitions: Mapping[int, Iterable[Mapping[str, Any]]]) -> Expected:
    """Return the results of the records of each partition. A record with a number that 7 divides moves time, and
    is left out after that."""
    found = Expected()
    for records in partitions.values():
        greatest: datetime | None = None
        known: dict[str, datetime] = {}
        for record in records:
            n, at = record["n"], record["at"]
            if at is None:
                found.letters[n] = "column at is null"
                continue
            if at in HOSTILE:
                found.letters[n] = "column at is not between the years 1000 and 9000"
                continue
            time = datetime.fromisoformat(at)
            greatest = time if greatest is None else max(greatest, time)
            watermark = greatest - timedelta(seconds=DELAY_S)
            if n % 7 == 0:
                continue
            if time < watermark:
                found.letters[n] = "late"
                continue
            first = known.get(record["id"])
            if first is None or first < watermark:
                known[record["id"]] = time
                found.results.append(n)
    return found


def drawn(seed: int, count: int, *, ids: int = 12) -> dict[int, list[dict[str, Any]]]:
    """Return random records of each partition. An id is in one partition. Some times are late, null or hostile."""
    random = Random(seed)
    now = dict.fromkeys(range(PARTITIONS), BEGAN)
    records: dict[int, list[dict[str, Any]]] = {p: [] for p in now}
    for n in range(1, count + 1):
        number = random.randrange(ids)
        partition = number % PARTITIONS
        now[partition] += timedelta(seconds=random.choice([0, 0, 1, 1, 2, 3]))
        time = now[partition] - timedelta(seconds=random.choice([0, 0, 0, 1, 4, DELAY_S, DELAY_S + 3]))
        at = random.choices([time.isoformat(), None, *HOSTILE], [60, 1, 1, 1])[0]
        records[partition].append({"id": f"i{number}", "at": at, "n": n})
    return records
