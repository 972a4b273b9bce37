"""Reference: the due results of each query, by Spark SQL over all events at once, and a comparison with the outputs.

This shares no code with Falkirk. A query whose results are updates or changes is folded first: into the last row of
each key, or into the rows whose differences do not cancel.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from benchmarks.nexmark.events import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Due:
    """The results that a query should have.

    Args: sql: gives them. fold: takes the published results and returns those that count at the end.
    """

    sql: str
    fold: Callable[[Iterable[Row]], Counter[tuple[Any, ...]]]


def _in_json(value: Any) -> Any:
    """Return a value as it comes out of JSON."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return float(value) if isinstance(value, Decimal) else value


def _all(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def _last(*keys: str) -> Callable[[Iterable[Row]], Counter[tuple[Any, ...]]]:
    """Return the fold of updates: the last row of each key."""

    def fold(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
        return _all({tuple(row[k] for k in keys): row for row in rows}.values())

    return fold


def _changes(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """Fold changes: the rows whose differences do not cancel."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        found[tuple(v for k, v in row.items() if k != "difference")] += row["difference"]
    return Counter({row: n for row, n in found.items() if n})


def _summed(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """Fold counts by epoch: their sum for each bidder."""
    found: Counter[int] = Counter()
    for row in rows:
        found[row["bidder"]] += row["bids"]
    return Counter(found.items())


_SELLERS = "auction JOIN person ON seller = person.id WHERE category = 10 AND state IN ('OR', 'ID', 'CA')"
_FINAL = """SELECT auction.id, category, max(price) AS final FROM auction JOIN bid ON auction.id = bid.auction
    WHERE bid.at BETWEEN auction.at AND expires GROUP BY auction.id, category"""
_PLACED = """SELECT seller, max(price) AS final,
    row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction.id DESC) AS place
    FROM auction JOIN bid ON auction.id = bid.auction
    WHERE bid.at BETWEEN auction.at AND expires GROUP BY auction.id, seller, expires"""
_HOT = """SELECT window.end AS ends, auction, count(*) AS count FROM bid
    GROUP BY window(at, '10 seconds', '2 seconds'), auction"""
_BY_TEN = "SELECT window(at, '10 seconds') AS w, *"
#: Windows that end later need not be closed: `closing` events come long after all others.
_OPEN = "(SELECT max(at) - INTERVAL 10 SECONDS FROM bid)"
DUE: Mapping[str, Due] = {
    "q0": Due("SELECT * FROM bid", _all),
    "q1": Due("SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)) AS price, channel, at FROM bid", _all),
    "q2": Due("SELECT auction, price FROM bid WHERE auction % 13 = 0", _all),
    "q3": Due(f"SELECT name, city, state, auction.id FROM {_SELLERS}", _all),
    "q4": Due(f"SELECT category, sum(final) / count(*) AS average FROM ({_FINAL}) GROUP BY category", _changes),
    "q5": Due(
        f"""SELECT auction, count, ends - INTERVAL 10 SECONDS AS begins FROM ({_HOT}) AS counts
        WHERE ends < {_OPEN}
        AND count = (SELECT max(count) FROM ({_HOT}) AS others WHERE others.ends = counts.ends)""",
        _all,
    ),
    "q6": Due(
        f"SELECT seller, sum(final) / count(*) AS average FROM ({_PLACED}) WHERE place <= 10 GROUP BY seller", _changes
    ),
    "q7": Due(
        f"""SELECT auction, bidder, price, at FROM ({_BY_TEN} FROM bid) AS bids WHERE w.end < {_OPEN}
        AND price = (SELECT max(price) FROM ({_BY_TEN} FROM bid) AS others WHERE others.w = bids.w)""",
        _all,
    ),
    "q8": Due(
        f"""SELECT DISTINCT p.id, name FROM ({_BY_TEN} FROM person) AS p JOIN ({_BY_TEN} FROM auction) AS a
        ON p.id = seller AND p.w = a.w WHERE p.w.end < {_OPEN}""",
        _all,
    ),
    "q11": Due(
        f"""SELECT bidder, count(*) AS bids, session_window.start AS begins, session_window.end AS ends FROM bid
        WHERE at < {_OPEN} GROUP BY session_window(at, '2 seconds'), bidder""",
        _all,
    ),
    "q12": Due("SELECT bidder, count(*) AS bids FROM bid GROUP BY bidder", _summed),
    "q17": Due(
        """SELECT auction, date_format(at, 'yyyy-MM-dd') AS day, count(*) AS bids, count_if(price < 10000) AS low,
        count_if(price >= 10000 AND price < 1000000) AS middle, count_if(price >= 1000000) AS high, min(price) AS least,
        max(price) AS most, sum(price) AS total FROM bid GROUP BY ALL""",
        _last("auction", "day"),
    ),
    "q18": Due(
        "SELECT bidder, auction, max_by(price, at) AS price, max(at) AS at FROM bid GROUP BY bidder, auction",
        _last("bidder", "auction"),
    ),
    "q19": Due(
        """SELECT auction, bidder, price, at FROM
        (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid) WHERE place <= 10""",
        _changes,
    ),
    "q20": Due(
        "SELECT auction, bidder, price, item, category FROM bid JOIN auction ON auction = id WHERE category = 10", _all
    ),
}


class Reference:
    """The due results over some events. Args: rows: of each topic."""

    def __init__(self, session: "SparkSession", rows: Mapping[str, Sequence[Row]]) -> None:
        self._session = session
        for topic, schema in SCHEMAS.items():
            session.createDataFrame([tuple(row.values()) for row in rows[topic]], schema).createOrReplaceTempView(topic)

    def differences(self, query: str, found: Iterable[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
        """Return the missing and the surplus rows. Args: found: the rows that came out, in their order."""
        due = Counter(tuple(map(_in_json, row)) for row in self._session.sql(DUE[query].sql).collect())
        got = DUE[query].fold(found)
        return {"missing": due - got, "surplus": got - due}
