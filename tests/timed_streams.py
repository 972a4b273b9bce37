"""Random records of streams with event time, in partitions, and which of them are late: for models of joins."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.duplicates import BEGAN, HOSTILE, PARTITIONS

Record = Mapping[str, Any]
Records = Mapping[int, Iterable[Record]]
Letters = dict[tuple[str, int], str]
"""The reasons of dead letters, by stream and number of the record."""
#: The time of the last records, which move the times of all partitions far ahead.
END = (BEGAN + timedelta(days=1)).isoformat()


def time_of(record: Record) -> datetime:
    """Return the event time of a record that has one."""
    return datetime.fromisoformat(record["at"])


def fitting(name: str, partitions: Records, delay_s: int, letters: Letters) -> Iterable[tuple[tuple[int, int], Record]]:
    """Yield the records of a stream that are not late, with partition and offset.

    A record with a number that 7 divides moves time, and is left out after that. Args: letters: receives the others.
    """
    for partition, records in partitions.items():
        greatest: datetime | None = None
        for offset, record in enumerate(records):
            at = record["at"]
            if at is None or at in HOSTILE:
                reason = "column at is null" if at is None else "column at is not between the years 1000 and 9000"
                letters[name, record["n"]] = reason
                continue
            greatest = time_of(record) if greatest is None else max(greatest, time_of(record))
            if record["n"] % 7 == 0:
                continue
            if time_of(record) < greatest - timedelta(seconds=delay_s):
                letters[name, record["n"]] = "late"
                continue
            yield (partition, offset), record


def drawn(
    seed: int, count: int, delays_s: Mapping[str, int], draw_id: Callable[[Random], str | None]
) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return random records of streams, by partition. An id is in several. Times may be late, null, equal or hostile.

    Args: count: of each stream. delays_s: of their watermarks, by name.
    """
    random = Random(seed)
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for name, delay_s in delays_s.items():
        now = dict.fromkeys(range(PARTITIONS), BEGAN)
        found[name] = {p: [] for p in now}
        for n in range(1, count + 1):
            partition = random.randrange(PARTITIONS)
            now[partition] += timedelta(seconds=random.choice([0, 0, 1, 1, 2]))
            time = now[partition] - timedelta(seconds=random.choice([0, 0, 0, 1, 2, delay_s, delay_s + 3]))
            at = random.choices([time.isoformat(), None, *HOSTILE], [60, 1, 1, 1])[0]
            found[name][partition].append({"id": draw_id(random), "at": at, "n": n})
    return found


def ends(first: int) -> dict[int, list[dict[str, Any]]]:
    """Return a last record for each partition of a stream, whose numbers 7 divides. Args: first: is less than them."""
    begin = first - first % 7 + 7
    return {p: [{"id": "end", "at": END, "n": begin + 7 * p}] for p in range(PARTITIONS)}
