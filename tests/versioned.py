"""A model of as-of joins in plain Python: orders of products, and prices that change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests import timed_streams
from tests.timed_streams import Letters, Records, fitting, time_of

DELAYS_S = {"orders": 3, "prices": 5}
#: A price is valid for this long, in the joins with a tolerance.
TOLERANCE_S = 6

Result = tuple[int, int | None]
"""The number of an order, and that of its price."""


@dataclass(kw_only=True)
class Versioned:
    """The expected results. Args: letters: the reasons of dead letters, by stream and number of the record."""

    results: list[Result] = field(default_factory=list)
    letters: Letters = field(default_factory=dict)


def expected(orders: Records, prices: Records, how: str, tolerance_s: int | None = None) -> Versioned:
    """Return the results, sorted. A record with a number that 7 divides moves time, and is left out after that."""
    found = Versioned()
    stream, table = (
        [*fitting(name, of, DELAYS_S[name], found.letters)] for name, of in (("orders", orders), ("prices", prices))
    )
    for _, order in stream:
        same = [each for each in table if order["id"] is not None and each[1]["id"] == order["id"]]
        past = [each for each in same if time_of(each[1]) <= time_of(order)]
        newest = max(past, key=lambda each: (time_of(each[1]), each[0]), default=None)
        if newest is not None and tolerance_s is not None:
            age = time_of(order) - time_of(newest[1])
            newest = newest if age <= timedelta(seconds=tolerance_s) else None
        if newest is not None or how == "left":
            found.results.append((order["n"], None if newest is None else newest[1]["n"]))
    found.results.sort(key=str)
    return found


def drawn(seed: int, count: int, *, ids: int = 12) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return random records of both streams, by partition, some without an id: see `timed_streams.drawn`."""
    names = [None, *[f"i{i}" for i in range(ids)]]
    return timed_streams.drawn(seed, count, DELAYS_S, lambda random: random.choice(names))


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results in the values of a topic, with their repetitions, sorted."""
    return sorted(((row["n"], row["right_n"]) for row in rows), key=str)
