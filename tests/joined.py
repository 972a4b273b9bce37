"""A model of joins of two streams with event time in plain Python: it compares all records of both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.duplicates import BEGAN, HOSTILE, PARTITIONS

#: A click belongs to a page that was shown up to this long before it.
WITHIN_S = 4
DELAYS_S = {"shown": 6, "clicks": 3}
CONDITION = f"clicks.id = shown.id AND clicks.at BETWEEN shown.at AND shown.at + INTERVAL {WITHIN_S} SECONDS"
#: The last records, which move the times of all partitions far ahead.
END = (BEGAN + timedelta(days=1)).isoformat()

Records = Mapping[int, Iterable[Mapping[str, Any]]]
Result = tuple[int | None, int | None]
"""The numbers of the two records of a result."""


@dataclass(kw_only=True)
class Joined:
    """The expected results. Args: pairs, lefts, rights: of records, and those without a partner. letters: the reasons
    of dead letters, by side and number."""

    pairs: list[Result] = field(default_factory=list)
    lefts: list[Result] = field(default_factory=list)
    rights: list[Result] = field(default_factory=list)
    letters: dict[tuple[str, int], str] = field(default_factory=dict)

    def of(self, how: str) -> list[Result]:
        """Return the results of a kind of join, sorted."""
        found = list(self.pairs)
        found += self.lefts if how in ("left", "full", "named") else []
        found += self.rights if how in ("right", "full", "named") else []
        return sorted(found, key=str)


def expected(shown: Records, clicks: Records, *, before_s: int = 0) -> Joined:
    """Return the results. A record with a number that 7 divides moves time, and is left out after that.

    Args: before_s: a click may be this long before the page is shown.
    """
    found = Joined()
    lefts, rights = ([*_fitting(name, of, found)] for name, of in (("shown", shown), ("clicks", clicks)))
    partners: dict[tuple[str, int], int] = {}
    for left in lefts:
        for right in rights:
            apart = (_time(right) - _time(left)).total_seconds()
            if left["id"] == right["id"] and -before_s <= apart <= WITHIN_S:
                found.pairs.append((left["n"], right["n"]))
                partners["shown", left["n"]] = partners["clicks", right["n"]] = 1
    found.lefts = [(each["n"], None) for each in lefts if ("shown", each["n"]) not in partners]
    found.rights = [(None, each["n"]) for each in rights if ("clicks", each["n"]) not in partners]
    return found


def _fitting(name: str, partitions: Records, found: Joined) -> Iterable[Mapping[str, Any]]:
    for records in partitions.values():
        greatest: datetime | None = None
        for record in records:
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
            yield record


def _time(record: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(record["at"])


def drawn(seed: int, count: int, *, ids: int = 40) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return random records of both streams, by partition. An id is in several. Times may be late, null or hostile."""
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
            found[name][partition].append({"id": f"i{random.randrange(ids)}", "at": at, "n": n})
    return found


def ends(first: int) -> dict[int, list[dict[str, Any]]]:
    """Return a last record for each partition of a stream, whose numbers 7 divides. Args: first: is less than them."""
    begin = first - first % 7 + 7
    return {p: [{"id": "end", "at": END, "n": begin + 7 * p}] for p in range(PARTITIONS)}


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results in the values of a topic, with their repetitions, sorted."""
    return sorted(((row["n"], row["right_n"]) for row in rows), key=str)
