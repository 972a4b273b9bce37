"""A model of two joins of three streams, one after the other, in plain Python: it compares all records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from pyspark.sql import functions as F

import falkirk as fk
from tests.duplicates import BEGAN, HOSTILE, PARTITIONS
from tests.joined import END

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
DELAYS_S = {"shown": 6, "clicks": 3, "sold": 5}
#: A click comes up to this long after its page is shown. Something is sold up to so long before or after that.
CLICKED_S, BEFORE_S, AFTER_S = 4, 3, 5
CLICKED = f"clicks.id = shown.id AND clicks.at BETWEEN shown.at AND shown.at + INTERVAL {CLICKED_S} SECONDS"
SOLD = (
    f"sold.id = shown.id AND sold.at BETWEEN shown.at - INTERVAL {BEFORE_S} SECONDS AND "
    f"shown.at + INTERVAL {AFTER_S} SECONDS"
)
#: Kinds of the two joins. "as of" is `join_asof`, with a tolerance of `CLICKED_S`, or of `BEFORE_S`.
KINDS = (("left", "full"), ("inner", "left"), ("as of", "right"), ("inner", "as of"))

Records = Mapping[int, Iterable[Mapping[str, Any]]]
Result = tuple[int | None, int | None, int | None]
"""The numbers of the three records of a result."""
_Record = Mapping[str, Any]


def body(first: str, second: str, *, other_key: bool = False) -> Any:
    """Return the steps of a processor. Args: first, second: of `KINDS`. other_key: no step keeps the key as it is."""

    def steps(shown: fk.Stream, clicks: fk.Stream, sold: fk.Stream) -> fk.Stream:
        left, right, last = (
            stream.withWatermark("at", f"{DELAYS_S[name]} seconds").where("n % 7 <> 0")
            for name, stream in (("shown", shown), ("clicks", clicks), ("sold", sold))
        )
        if first == "as of":
            both = left.join_asof(right, "id", "left", tolerance=f"{CLICKED_S} seconds")
        else:
            both = left.join(right, F.expr(CLICKED), first)
        both = both.selectExpr("concat('', id) AS id" if other_key else "id", "at", "n", "right_n AS clicked")
        if second == "as of":
            return both.join_asof(last, "id", "left", tolerance=f"{BEFORE_S} seconds")
        return both.join(last, F.expr(SOLD), second)

    return steps


@dataclass(kw_only=True)
class Due:
    """The expected results, sorted, and the reasons of dead letters, by stream and number."""

    results: list[Result] = field(default_factory=list)
    letters: dict[tuple[str, int], str] = field(default_factory=dict)


def expected(records: Mapping[str, Records], first: str, second: str) -> Due:
    """Return the results. A record with a number that 7 divides moves time, and is left out after that."""
    due = Due()
    shown, clicks, sold = ([*_fitting(name, records[name], due)] for name in DELAYS_S)
    used = set[int]()
    for left in shown:
        for click in _partners(left, clicks, first, (0, CLICKED_S), CLICKED_S):
            for sale in _partners(left, sold, second, (-BEFORE_S, AFTER_S), BEFORE_S):
                due.results.append((left["n"], click, sale))
                used |= {sale} if sale is not None else set()
    if second in ("right", "full"):
        due.results += [(None, None, each["n"]) for each in sold if each["n"] not in used]
    due.results.sort(key=str)
    return due


def _partners(
    left: _Record, others: list[_Record], how: str, between_s: tuple[int, int], tolerance_s: int
) -> list[int | None]:
    """Return the numbers of a record's partners. None stands for none, if that is a result."""
    same = [(each, (_time(each) - _time(left)).total_seconds()) for each in others if each["id"] == left["id"]]
    if how == "as of":
        older = [each for each, apart in same if -tolerance_s <= apart <= 0]
        newest = max(older, key=lambda each: (_time(each), each["p"], each["place"]), default=None)
        return [None if newest is None else newest["n"]]
    found: list[int | None] = [each["n"] for each, apart in same if between_s[0] <= apart <= between_s[1]]
    return found or ([None] if how in ("left", "full") else [])


def _fitting(name: str, partitions: Records, due: Due) -> Iterable[_Record]:
    for p, records in partitions.items():
        greatest: datetime | None = None
        for place, record in enumerate(records):
            at = record["at"]
            if at is None or at in HOSTILE:
                reason = "column at is null" if at is None else "column at is not between the years 1000 and 9000"
                due.letters[name, record["n"]] = reason
                continue
            greatest = _time(record) if greatest is None else max(greatest, _time(record))
            if record["n"] % 7 == 0:
                continue
            if _time(record) < greatest - timedelta(seconds=DELAYS_S[name]):
                due.letters[name, record["n"]] = "late"
                continue
            yield {**record, "p": p, "place": place}


def _time(record: _Record) -> datetime:
    return datetime.fromisoformat(record["at"])


def drawn(seed: int, count: int, *, ids: int) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return random records of the streams, by partition. An id is in several. Times may be late, null or hostile."""
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
    return sorted(((row["n"], row["clicked"], row["right_n"]) for row in rows), key=str)
