"""A model of two joins of three streams, one after the other, in plain Python: it compares all records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

import falkirk as fk
from tests import timed_streams
from tests.timed_streams import Letters, Record, Records, fitting, time_of

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

Result = tuple[int | None, int | None, int | None]
"""The numbers of the three records of a result."""


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
    letters: Letters = field(default_factory=dict)


def expected(records: Mapping[str, Records], first: str, second: str) -> Due:
    """Return the results. A record with a number that 7 divides moves time, and is left out after that."""
    due = Due()
    shown, clicks, sold = ([*fitting(name, records[name], delay_s, due.letters)] for name, delay_s in DELAYS_S.items())
    used = set[int]()
    for _, left in shown:
        for click in _partners(left, clicks, first, (0, CLICKED_S), CLICKED_S):
            for sale in _partners(left, sold, second, (-BEFORE_S, AFTER_S), BEFORE_S):
                due.results.append((left["n"], click, sale))
                used |= {sale} if sale is not None else set()
    if second in ("right", "full"):
        due.results += [(None, None, each["n"]) for _, each in sold if each["n"] not in used]
    due.results.sort(key=str)
    return due


def _partners(
    left: Record, others: list[tuple[tuple[int, int], Record]], how: str, between_s: tuple[int, int], tolerance_s: int
) -> list[int | None]:
    """Return the numbers of a record's partners. None stands for none, if that is a result."""
    same = [
        (place, each, (time_of(each) - time_of(left)).total_seconds())
        for place, each in others
        if each["id"] == left["id"]
    ]
    if how == "as of":
        older = [(place, each) for place, each, apart in same if -tolerance_s <= apart <= 0]
        newest = max(older, key=lambda found: (time_of(found[1]), found[0]), default=None)
        return [None if newest is None else newest[1]["n"]]
    found: list[int | None] = [each["n"] for _, each, apart in same if between_s[0] <= apart <= between_s[1]]
    return found or ([None] if how in ("left", "full") else [])


def drawn(seed: int, count: int, *, ids: int) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return random records of the streams, by partition: see `timed_streams.drawn`."""
    return timed_streams.drawn(seed, count, DELAYS_S, lambda random: f"i{random.randrange(ids)}")


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results in the values of a topic, with their repetitions, sorted."""
    return sorted(((row["n"], row["clicked"], row["right_n"]) for row in rows), key=str)
