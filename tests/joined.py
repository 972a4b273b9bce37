"""A model of joins of two streams with event time in plain Python: it compares all records of both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests import timed_streams
from tests.timed_streams import Letters, Records, fitting, time_of

#: A click belongs to a page that was shown up to this long before it.
WITHIN_S = 4
DELAYS_S = {"shown": 6, "clicks": 3}
CONDITION = f"clicks.id = shown.id AND clicks.at BETWEEN shown.at AND shown.at + INTERVAL {WITHIN_S} SECONDS"

Result = tuple[int | None, int | None]
"""The numbers of the two records of a result."""


@dataclass(kw_only=True)
class Joined:
    """The expected results. Args: pairs, lefts, rights: of records, and those without a partner. letters: the reasons
    of dead letters, by side and number."""

    pairs: list[Result] = field(default_factory=list)
    lefts: list[Result] = field(default_factory=list)
    rights: list[Result] = field(default_factory=list)
    letters: Letters = field(default_factory=dict)

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
    lefts, rights = (
        [record for _, record in fitting(name, of, DELAYS_S[name], found.letters)]
        for name, of in (("shown", shown), ("clicks", clicks))
    )
    partners: dict[tuple[str, int], int] = {}
    for left in lefts:
        for right in rights:
            apart = (time_of(right) - time_of(left)).total_seconds()
            if left["id"] == right["id"] and -before_s <= apart <= WITHIN_S:
                found.pairs.append((left["n"], right["n"]))
                partners["shown", left["n"]] = partners["clicks", right["n"]] = 1
    found.lefts = [(each["n"], None) for each in lefts if ("shown", each["n"]) not in partners]
    found.rights = [(None, each["n"]) for each in rights if ("clicks", each["n"]) not in partners]
    return found


def drawn(seed: int, count: int, *, ids: int = 40) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return random records of both streams, by partition: see `timed_streams.drawn`."""
    return timed_streams.drawn(seed, count, DELAYS_S, lambda random: f"i{random.randrange(ids)}")


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results in the values of a topic, with their repetitions, sorted."""
    return sorted(((row["n"], row["right_n"]) for row in rows), key=str)
